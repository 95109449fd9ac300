//! Every option of a port in one table: its key, what it takes and what it means. Flags, files,
//! requests, the help and the documentation all come from here.

use ringway_net::Features;
use ringway_switch::WhenFull;

use super::kind::{Choice, Kind, List, Number, Other, SWITCH, Text};
pub use super::option::{DEFAULT, EffectTime, PortOption, Ports};
use super::option::{Read, Target, Write, feature, option, row};
use super::values::{parse_group, parse_mac, parse_user};
use super::{fields, labels, nat, rules};

const LINK: Choice<bool> = Choice([("up", true), ("down", false)]);

const SYNC: Choice<bool> = Choice([("sync", true), ("off", false)]);

const WHEN_FULL: Choice<WhenFull> = Choice([("hold", WhenFull::Hold), ("drop", WhenFull::Drop)]);

/// All of them, in the order of the documentation. Features have the names QEMU gives them.
pub const OPTIONS: &[PortOption] = &[
    option!("mac", mac, Text(parse_mac))
        .takes("address", "by machine, control socket and name")
        .about("the guest's MAC address")
        .of(Ports::Guests)
        .at(EffectTime::NextConnection),
    row("mtu", Target::Field(fields::read_mtu, fields::write_mtu))
        .takes("bytes, 68 to 65535, or auto", "none advised")
        .about(
            "the MTU the guest is advised of, or the tap's; auto: the smallest behind the taps of \
             the guest's VLAN, when it connects",
        ),
    option!("link", is_link_up, LINK)
        .takes("up or down", "up")
        .about("a link that is down carries nothing"),
    option!("vlan", rules.vlan, Other(rules::vlan, rules::written_vlan))
        .takes("1 to 4094", "none")
        .about("the VLAN of a port that knows no tags"),
    option!("trunk", rules.trunk, Other(rules::trunk, rules::written_trunk))
        .takes("list of VLANs and ranges, or all", "none")
        .about("the VLANs of a port that tells them apart by tags"),
    option!("native", rules.native, Other(rules::vlan, rules::written_vlan))
        .takes("1 to 4094", "none")
        .about("the VLAN of what a trunk sends without a tag"),
    option!("rate_to_guest", rules.rest.rate_to_guest.bits_per_second, Number)
        .takes("bits per second", "no limit")
        .about("how much may go to the guest; `k`, `M`, `G` and `T` are powers of 1000"),
    option!("packets_to_guest", rules.rest.rate_to_guest.packets_per_second, Number)
        .takes("packets per second", "no limit")
        .about("how many packets may go to the guest"),
    option!("burst_to_guest_us", rules.rest.rate_to_guest.burst_us, Number)
        .takes("microseconds", "10000")
        .about(
            "how far ahead of these rates it may get after a pause; with `when_full=drop` 250000 \
             unless told otherwise: TCP pauses for 200 ms where its last packets are dropped",
        ),
    option!("rate_from_guest", rules.rest.rate_from_guest.bits_per_second, Number)
        .takes("bits per second", "no limit")
        .about("how much may come from the guest; the rest waits there"),
    option!("packets_from_guest", rules.rest.rate_from_guest.packets_per_second, Number)
        .takes("packets per second", "no limit")
        .about("how many packets may come from the guest"),
    option!("burst_from_guest_us", rules.rest.rate_from_guest.burst_us, Number)
        .takes("microseconds", "10000")
        .about("how far ahead of these rates it may get after a pause"),
    option!("storm", rules.rest.storm_packets_per_second, Number)
        .takes("packets per second", "no limit")
        .about("how many packets it may send to groups, to all, and to unknown stations"),
    option!("when_full", rules.rest.when_full, WHEN_FULL).takes("hold or drop", "hold").about(
        "whether packets for it wait with their sender, for a bounded time, when it has no \
             room",
    ),
    option!("isolated", rules.rest.isolated, SWITCH)
        .takes("on or off", "off")
        .about("reaches uplinks only"),
    option!("uplink", rules.rest.is_uplink, SWITCH)
        .takes("on or off", "off")
        .about("isolated ports may reach it"),
    option!("locked_mac", rules.rest.locked_mac, Text(parse_mac))
        .takes("address", "any")
        .about("the only MAC address it may use"),
    option!("locked_ips", rules.rest.locked_ips, List(rules::ips))
        .takes("list of addresses", "any")
        .about("the only IP addresses it may use as its own"),
    option!("static_macs", rules.rest.static_macs, List(rules::macs))
        .takes("list of addresses", "none")
        .about("stations that are here, never elsewhere, and never forgotten"),
    row("mirror", Target::Field(fields::read_mirror, fields::write_mirror))
        .takes("name of a port", "none")
        .about(
            "where copies of all its packets go, both ways; that port gets no floods of its own",
        ),
    option!("label", labels, Other(labels::read, labels::written))
        .takes("list of KEY:VALUE", "none")
        .about(
            "what is noted at the port: kept, shown, and asked for by `ringway port list --label`",
        ),
    option!("offloads", offloads, SWITCH).takes("on or off", "on").about(
        "off: checksums and segments are completed before a packet leaves by the port, for \
             programs that read a tap's interface with a raw socket; of guests: the next that \
             connects",
    ),
    option!("announce", announces, SWITCH)
        .takes("on or off", "on")
        .about(
            "taps and uplinks are told in the guest's name where it is, when it comes up and \
             while it is silent",
        )
        .of(Ports::Guests),
    option!("fdb", syncs_fdb, SYNC)
        .takes("sync or off", "off")
        .about(
            "stations that leave ringway are taken out of what the bridge behind the tap has \
             learned",
        )
        .of(Ports::Taps),
    option!("neighbours", syncs_neighbours, SYNC)
        .takes("sync or off", "off")
        .about(
            "the bridge behind the tap knows the IP addresses of guests that are here, and \
             answers for them: their locked_ips, or what they were seen to use",
        )
        .of(Ports::Taps),
    option!("notify", notify, Other(fields::notify, fields::written_notify))
        .takes("policy", "adaptive")
        .about(
            "when the guest is notified: every, on-empty, timer:150us, coalesce:16/50us, adaptive",
        )
        .of(Ports::Guests),
    option!("histograms", has_histograms, SWITCH)
        .takes("on or off", "off")
        .about("how long packets wait is counted, for `ringway metrics` and `stats --json`")
        .of(Ports::Guests),
    option!("device_state", has_device_state, SWITCH)
        .takes("on or off", "on")
        .about(
            "what ringway knows of the guest goes along when it migrates or is saved; off: for a \
             guest that is to go on under QEMU below 10, or under a ringway without it",
        )
        .of(Ports::Guests)
        .at(EffectTime::NextConnection),
    option!("queues", queues, Other(fields::queues, fields::written_queues))
        .takes("1 to 64", "1")
        .about("queue pairs of a guest, or queues of a tap, of which each worker uses one")
        .at(EffectTime::NextConnection),
    option!("socket_mode", socket_mode, Other(fields::socket_mode, fields::written_socket_mode))
        .takes("octal digits", "0600")
        .about("permissions of the socket's file; 0660 if `socket_group` is given")
        .of(Ports::Listening),
    option!("socket_group", socket_group, Text(parse_group))
        .takes("name or number", "none")
        .about("a group whose members may connect; the socket's file belongs to that group")
        .of(Ports::Listening),
    option!("socket_user", socket_user, Text(parse_user))
        .takes("name or number", "none")
        .about("a user who may connect; the socket's file belongs to that user")
        .of(Ports::Listening),
    row("range", Target::Field(fields::read_range, fields::write_range))
        .takes("list of networks", "10.0.2.0/24 or the next one that is free, and a /64 of its own")
        .about(
            "the guests' networks, one of each family; an IPv4 network alone: no IPv6; a change \
             ends all flows",
        )
        .of(Ports::Routers),
    option!("host", nat.host, Text(nat::address))
        .takes("address", "none")
        .about(
            "the address by which guests reach services on the host's loopback; a change ends the \
             flows there",
        )
        .of(Ports::Routers),
    option!("allow", nat.allow, List(nat::networks))
        .takes("list of networks", "none")
        .about(
            "networks or addresses that guests reach although they lie in others that they do \
             not; the longest network decides; felt by new flows",
        )
        .of(Ports::Routers),
    option!("deny", nat.deny, List(nat::networks))
        .takes("list of networks", "none")
        .about(
            "networks or addresses that guests do not reach, beside those that no guest does; \
             felt by new flows",
        )
        .of(Ports::Routers),
    option!("domain", nat.domains, List(nat::domains))
        .takes("list of domains", "internal")
        .about(
            "the guests' domain, in which each has the name of its port, and others that are \
             searched; felt with the next lease",
        )
        .of(Ports::Routers),
    option!("dns", nat.dns, Other(nat::dns, nat::written_dns))
        .takes("auto, off, or list of addresses", "auto")
        .about(
            "resolvers that answer guests; auto: those of `/etc/resolv.conf`, also when they \
             change",
        )
        .of(Ports::Routers),
    option!("forward", nat.forwards, List(nat::forwards))
        .takes("list of tcp:PORT:GUEST:PORT, udp:… or unix:PATH:GUEST:PORT", "none")
        .about(
            "ports and Unix sockets of this machine that lead into guests; also \
             tcp:ADDRESS:PORT-PORT:GUEST:PORT, and udp:, where the address may be * or [IPv6]; \
             without one: loopback",
        )
        .of(Ports::Routers),
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
    feature("rss", Features::RSS, "the guest may choose queues by hash"),
    feature("hash", Features::HASH_REPORT, "the guest is told each packet's hash"),
    feature(
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
