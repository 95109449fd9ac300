//! Every option of a port in one table: its key, what it takes and what it means. Flags, files,
//! requests, the help and the documentation all come from here.

use ringway_net::Features;

use super::nat::NatField;
use super::option::Field;
pub use super::option::{DEFAULT, Effect, PortOption, Ports};
use super::rules::{Number, Rule};

const fn option(
    key: &'static str,
    value: &'static str,
    default: &'static str,
    field: Field,
    about: &'static str,
) -> PortOption {
    PortOption { key, value, default, ports: Ports::All, effect: Effect::Now, about, field }
}

const fn rule(
    key: &'static str,
    value: &'static str,
    default: &'static str,
    rule: Rule,
    about: &'static str,
) -> PortOption {
    option(key, value, default, Field::Rule(rule), about)
}

const fn number(
    key: &'static str,
    value: &'static str,
    number: Number,
    about: &'static str,
) -> PortOption {
    rule(key, value, "no limit", Rule::Number(number), about)
}

const fn router(
    key: &'static str,
    value: &'static str,
    default: &'static str,
    field: NatField,
    about: &'static str,
) -> PortOption {
    PortOption { ports: Ports::Routers, ..option(key, value, default, Field::Nat(field), about) }
}

const fn feature(key: &'static str, feature: Features, about: &'static str) -> PortOption {
    let field = Field::Feature(feature);
    let option = option(key, "on or off", "on", field, about);
    PortOption { ports: Ports::Guests, effect: Effect::NextConnection, ..option }
}

const fn on_request(key: &'static str, feature: Features, about: &'static str) -> PortOption {
    let field = Field::FeatureOnRequest(feature);
    let option = option(key, "on or off", "off", field, about);
    PortOption { ports: Ports::Guests, effect: Effect::NextConnection, ..option }
}

/// All of them, in the order of the documentation. Features have the names QEMU gives them.
pub const OPTIONS: &[PortOption] = &[
    PortOption {
        ports: Ports::Guests,
        effect: Effect::NextConnection,
        ..option(
            "mac",
            "address",
            "by machine, control socket and name",
            Field::Mac,
            "the guest's MAC address",
        )
    },
    option(
        "mtu",
        "bytes, 68 to 65535, or auto",
        "none advised",
        Field::Mtu,
        "the MTU the guest is advised of, or the tap's; auto: the smallest behind the taps of the \
         guest's VLAN, when it connects",
    ),
    option("link", "up or down", "up", Field::Link, "a link that is down carries nothing"),
    rule("vlan", "1 to 4094", "none", Rule::Vlan, "the VLAN of a port that knows no tags"),
    rule(
        "trunk",
        "list of VLANs and ranges, or all",
        "none",
        Rule::Trunk,
        "the VLANs of a port that tells them apart by tags",
    ),
    rule(
        "native",
        "1 to 4094",
        "none",
        Rule::Native,
        "the VLAN of what a trunk sends without a tag",
    ),
    number(
        "rate_to_guest",
        "bits per second",
        Number::BitsToGuest,
        "how much may go to the guest; `k`, `M`, `G` and `T` are powers of 1000",
    ),
    number(
        "packets_to_guest",
        "packets per second",
        Number::PacketsToGuest,
        "how many packets may go to the guest",
    ),
    rule(
        "burst_to_guest_us",
        "microseconds",
        "10000",
        Rule::Number(Number::BurstToGuest),
        "how far ahead of these rates it may get after a pause; with `when_full=drop` 250000 \
         unless told otherwise: TCP pauses for 200 ms where its last packets are dropped",
    ),
    number(
        "rate_from_guest",
        "bits per second",
        Number::BitsFromGuest,
        "how much may come from the guest; the rest waits there",
    ),
    number(
        "packets_from_guest",
        "packets per second",
        Number::PacketsFromGuest,
        "how many packets may come from the guest",
    ),
    rule(
        "burst_from_guest_us",
        "microseconds",
        "10000",
        Rule::Number(Number::BurstFromGuest),
        "how far ahead of these rates it may get after a pause",
    ),
    number(
        "storm",
        "packets per second",
        Number::Storm,
        "how many packets it may send to groups, to all, and to unknown stations",
    ),
    rule(
        "when_full",
        "hold or drop",
        "hold",
        Rule::WhenFull,
        "whether packets for it wait with their sender, for a bounded time, when it has no room",
    ),
    rule("isolated", "on or off", "off", Rule::Isolated, "reaches uplinks only"),
    rule("uplink", "on or off", "off", Rule::Uplink, "isolated ports may reach it"),
    rule("locked_mac", "address", "any", Rule::LockedMac, "the only MAC address it may use"),
    rule(
        "locked_ips",
        "list of addresses",
        "any",
        Rule::LockedIps,
        "the only IP addresses it may use as its own",
    ),
    rule(
        "static_macs",
        "list of addresses",
        "none",
        Rule::StaticMacs,
        "stations that are here, never elsewhere, and never forgotten",
    ),
    option(
        "mirror",
        "name of a port",
        "none",
        Field::Mirror,
        "where copies of all its packets go, both ways; that port gets no floods of its own",
    ),
    option(
        "label",
        "list of KEY:VALUE",
        "none",
        Field::Labels,
        "what is noted at the port: kept, shown, and asked for by `ringway port list --label`",
    ),
    option(
        "offloads",
        "on or off",
        "on",
        Field::Offloads,
        "off: checksums and segments are completed before a packet leaves by the port, for \
         programs that read a tap's interface with a raw socket; of guests: the next that connects",
    ),
    PortOption {
        ports: Ports::Guests,
        ..option(
            "announce",
            "on or off",
            "on",
            Field::Announce,
            "taps and uplinks are told in the guest's name where it is, when it comes up and while \
             it is silent",
        )
    },
    PortOption {
        ports: Ports::Taps,
        ..option(
            "fdb",
            "sync or off",
            "off",
            Field::Fdb,
            "stations that leave ringway are taken out of what the bridge behind the tap has \
             learned",
        )
    },
    PortOption {
        ports: Ports::Taps,
        ..option(
            "neighbours",
            "sync or off",
            "off",
            Field::Neighbours,
            "the bridge behind the tap knows the IP addresses of guests that are here, and \
             answers for them: their locked_ips, or what they were seen to use",
        )
    },
    PortOption {
        ports: Ports::Guests,
        ..option(
            "notify",
            "policy",
            "adaptive",
            Field::Notify,
            "when the guest is notified: every, on-empty, timer:150us, coalesce:16/50us, adaptive",
        )
    },
    PortOption {
        ports: Ports::Guests,
        ..option(
            "histograms",
            "on or off",
            "off",
            Field::Histograms,
            "how long packets wait is counted, for `ringway metrics` and `stats --json`",
        )
    },
    PortOption {
        effect: Effect::NextConnection,
        ..option(
            "queues",
            "1 to 64",
            "1",
            Field::Queues,
            "queue pairs of a guest, or queues of a tap, of which each worker uses one",
        )
    },
    PortOption {
        ports: Ports::Listening,
        ..option(
            "socket_mode",
            "octal digits",
            "0600",
            Field::SocketMode,
            "permissions of the socket's file; 0660 if `socket_group` is given",
        )
    },
    PortOption {
        ports: Ports::Listening,
        ..option(
            "socket_group",
            "name or number",
            "none",
            Field::SocketGroup,
            "a group whose members may connect; the socket's file belongs to that group",
        )
    },
    PortOption {
        ports: Ports::Listening,
        ..option(
            "socket_user",
            "name or number",
            "none",
            Field::SocketUser,
            "a user who may connect; the socket's file belongs to that user",
        )
    },
    router(
        "range",
        "list of networks",
        "10.0.2.0/24 or the next one that is free, and a /64 of its own",
        NatField::Range,
        "the guests' networks, one of each family; an IPv4 network alone: no IPv6; a change ends \
         all flows",
    ),
    router(
        "host",
        "address",
        "none",
        NatField::Host,
        "the address by which guests reach services on the host's loopback; a change ends the \
         flows there",
    ),
    router(
        "allow",
        "list of networks",
        "none",
        NatField::Allow,
        "networks or addresses that guests reach although they lie in others that they do not; the \
         longest network decides; felt by new flows",
    ),
    router(
        "deny",
        "list of networks",
        "none",
        NatField::Deny,
        "networks or addresses that guests do not reach, beside those that no guest does; felt by \
         new flows",
    ),
    router(
        "domain",
        "list of domains",
        "internal",
        NatField::Domain,
        "the guests' domain, in which each has the name of its port, and others that are searched; \
         felt with the next lease",
    ),
    router(
        "dns",
        "auto, off, or list of addresses",
        "auto",
        NatField::Dns,
        "resolvers that answer guests; auto: those of `/etc/resolv.conf`, also when they change",
    ),
    router(
        "forward",
        "list of tcp:PORT:GUEST:PORT, udp:… or unix:PATH:GUEST:PORT",
        "none",
        NatField::Forward,
        "ports and Unix sockets of this machine that lead into guests; also \
         tcp:ADDRESS:PORT-PORT:GUEST:PORT, and udp:, where the address may be * or [IPv6]; without \
         one: loopback",
    ),
    feature("packed", Features::RING_PACKED, "packed rings"),
    feature("mrg_rxbuf", Features::MRG_RXBUF, "a packet may span several receive buffers"),
    feature("event_idx", Features::EVENT_IDX, "notifications by index"),
    feature("indirect_desc", Features::INDIRECT_DESC, "indirect descriptors"),
    feature("in_order", Features::IN_ORDER, "buffers are used in order"),
    feature("notify_on_empty", Features::NOTIFY_ON_EMPTY, "a call when the ring has run empty"),
    feature("csum", Features::CSUM, "the guest may leave checksums to ringway"),
    feature("guest_csum", Features::GUEST_CSUM, "ringway may leave checksums to the guest"),
    feature("guest_tso4", Features::GUEST_TSO4, "unsegmented TCP over IPv4 to the guest"),
    feature("guest_tso6", Features::GUEST_TSO6, "unsegmented TCP over IPv6 to the guest"),
    feature("guest_ecn", Features::GUEST_ECN, "unsegmented TCP with ECN to the guest"),
    feature("guest_uso4", Features::GUEST_USO4, "unsegmented UDP over IPv4 to the guest"),
    feature("guest_uso6", Features::GUEST_USO6, "unsegmented UDP over IPv6 to the guest"),
    feature("host_tso4", Features::HOST_TSO4, "unsegmented TCP over IPv4 from the guest"),
    feature("host_tso6", Features::HOST_TSO6, "unsegmented TCP over IPv6 from the guest"),
    feature("host_ecn", Features::HOST_ECN, "unsegmented TCP with ECN from the guest"),
    feature("host_uso", Features::HOST_USO, "unsegmented UDP from the guest"),
    feature("guest_hdrlen", Features::GUEST_HDRLEN, "the guest says how long the headers are"),
    feature("ctrl_vq", Features::CTRL_VQ, "a control queue"),
    feature("ctrl_mac_addr", Features::CTRL_MAC_ADDR, "the guest may change its MAC address"),
    feature("ctrl_rx", Features::CTRL_RX, "the guest may choose receive modes"),
    feature("ctrl_rx_extra", Features::CTRL_RX_EXTRA, "the guest may choose more receive modes"),
    feature("ctrl_vlan", Features::CTRL_VLAN, "the guest may filter VLANs"),
    feature(
        "ctrl_guest_offloads",
        Features::CTRL_GUEST_OFFLOADS,
        "the guest may change its receive offloads while it runs",
    ),
    feature(
        "guest_announce",
        Features::GUEST_ANNOUNCE,
        "the guest can be asked to announce itself after its link came up",
    ),
    on_request("rss", Features::RSS, "the guest may choose queues by hash"),
    on_request("hash", Features::HASH_REPORT, "the guest is told each packet's hash"),
    on_request(
        "iommu_platform",
        Features::ACCESS_PLATFORM,
        "for QEMU's `iommu_platform=on`, which confidential guests have; not for guests with a \
         vIOMMU, nor for User Mode Linux",
    ),
    feature("status", Features::STATUS, "the guest sees whether its link is up"),
];

/// Every key, in the order of the table.
pub fn keys() -> Vec<&'static str> {
    OPTIONS.iter().map(|option| option.key).collect()
}

/// The option of that key.
pub fn find(key: &str) -> Option<&'static PortOption> {
    OPTIONS.iter().find(|option| option.key == key)
}
