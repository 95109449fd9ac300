//! What the switch refuses, reason by reason: what it is called, and what to do.

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
        _ => ("the switch", "see each rule that has a say in it: ringway trace --help".into()),
    }
}
