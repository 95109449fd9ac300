//! Why packets are dropped, reason by reason: what it is called, and what to do.

/// For one of the reasons of `drops` in the statistics, at a port of this name.
pub fn refusal(reason: &str, port: &str) -> (&'static str, String) {
    match reason {
        "spoofed_mac" => (
            "locked addresses",
            "the guest uses a MAC address that is another port's, or not its locked_mac: see \
             `ringway fdb`"
                .into(),
        ),
        "spoofed_ip" => (
            "locked addresses",
            "the guest uses an IP address that is not in its locked_ips: add it there".into(),
        ),
        "storm" => (
            "the storm limit",
            format!(
                "see what it broadcasts: ringway capture {port} --filter multicast; or raise storm"
            ),
        ),
        "isolated" => (
            "isolation",
            "isolated ports reach uplinks only: mark the other port with uplink=on, or take \
             isolated=on back"
                .into(),
        ),
        "vlan" => (
            "the VLAN",
            "it sends tags that the port may not have, or the other port is not in its VLAN: see \
             vlan, trunk and native of both"
                .into(),
        ),
        "malformed" => (
            "packets that make no sense",
            "they are too short, or their virtio header does not fit them: see the guest's driver"
                .into(),
        ),
        "no_route" => (
            "packets that lead nowhere",
            format!(
                "they are for stations behind the port itself, or for bridges only: ringway \
                 capture {port} --direction from-guest"
            ),
        ),
        "offload" => (
            "packets that cannot be completed",
            "they are not what their virtio header says: see the driver of the guest that sends \
             them"
                .into(),
        ),
        "os" => (
            "the operating system",
            "it does not read packets: their sender has taken their memory away, or it has no \
             memory left itself"
                .into(),
        ),
        "filtered" => (
            "the guest's own filters",
            "it asks for no such packets: see its addresses and VLANs, and whether its interface \
             is up"
                .into(),
        ),
        _ => ("the switch", "see each rule that has a say in it: ringway trace --help".into()),
    }
}
