//! Bridges behind taps that are to hear of guests (`fdb=sync`, `neighbours=sync`): whether ringway
//! may tell them, and whether they do with it what a fabric with EVPN needs.

use super::finding::Finding;
use super::machine::may_administer_networks;
use crate::bridge_fdb::messages::KernelLink;
use crate::bridge_fdb::{Netlink, bridge_of};
use crate::config::{PortKind, PortSpec};
use crate::places::how_to_tell_bridges;

pub fn findings(ports: &[PortSpec]) -> Vec<Finding> {
    let mut ports = ports.iter().filter(|port| port.syncs_fdb || port.syncs_neighbours).peekable();
    if ports.peek().is_none() {
        return vec![];
    }
    // A kernel that does not tell has no bridges.
    let links = Netlink::open().and_then(|mut netlink| netlink.links()).unwrap_or_default();
    ports.flat_map(|port| of_port(port, &links, may_administer_networks())).collect()
}

fn of_port(port: &PortSpec, links: &[KernelLink], is_allowed: bool) -> Vec<Finding> {
    let PortKind::Tap { name } = &port.kind else { return vec![] };
    let Some(tap) = links.iter().find(|link| link.name == *name) else { return vec![] };
    let what = format!("port {}, bridge", port.name);
    let bridge = bridge_of(links, tap.interface);
    let Some(bridge) = links.iter().find(|link| Some(link.interface) == bridge) else {
        let found = format!("{name} is in no bridge: no bridge hears of guests");
        return vec![Finding::absent(
            what,
            found,
            format!("sudo ip link set {name} master BRIDGE"),
        )];
    };
    let mut findings = vec![match is_allowed {
        true => Finding::fine(&what, format!("{name} is a port of {}", bridge.name)),
        false => {
            let found = format!("this user may tell {} nothing", bridge.name);
            Finding::absent(&what, found, how_to_tell_bridges())
        }
    }];
    if port.syncs_neighbours {
        let of_bridge = links.iter().filter(|link| link.bridge == Some(bridge.interface));
        findings.extend(of_bridge.flat_map(|link| tunnel(&what, &bridge.name, link)));
    }
    findings
}

/// A VXLAN device, by which the bridge reaches other hosts.
fn tunnel(what: &str, bridge: &str, link: &KernelLink) -> Vec<Finding> {
    let Some(learns) = link.vxlan_learns else { return vec![] };
    let name = &link.name;
    let mut findings = Vec::new();
    if !link.suppresses {
        let found = format!("{bridge} knows neighbours, and asks all hosts for them by {name}");
        let mend = format!("sudo bridge link set dev {name} neigh_suppress on");
        findings.push(Finding::absent(what, found, mend));
    }
    if learns {
        let found = format!("{name} learns where stations are, beside what EVPN says");
        let mend = format!("sudo ip link set {name} type vxlan nolearning");
        findings.push(Finding::absent(what, found, mend));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::finding::Verdict;
    use super::*;

    #[test]
    fn what_is_missing_is_found_and_each_has_a_command() {
        let mut port = PortSpec::new("up", PortKind::Tap { name: "tap0".into() });
        port.syncs_fdb = true;
        let named = |interface, name: &str| KernelLink {
            interface,
            name: name.into(),
            ..KernelLink::default()
        };
        let mut tap = named(1, "tap0");
        assert_eq!(of_port(&port, &[], true), [], "ringway makes it");
        let found = |port: &PortSpec, links: &[KernelLink], is_allowed| -> Vec<String> {
            let found = of_port(port, links, is_allowed).into_iter();
            let mends = |it: Finding| it.mend.filter(|_| it.verdict == Verdict::Absent);
            found.filter_map(mends).collect()
        };
        assert_eq!(found(&port, &[tap.clone()], true), ["sudo ip link set tap0 master BRIDGE"]);
        tap.bridge = Some(2);
        let tunnel = KernelLink { bridge: Some(2), vxlan_learns: Some(true), ..named(3, "vx") };
        let other = KernelLink { bridge: Some(2), ..named(4, "eth1") };
        let links = [tap, named(2, "br0"), tunnel, other];
        assert_eq!(found(&port, &links, true), [""; 0]);
        assert_eq!(found(&port, &links, false).len(), 1, "it may not");
        port.syncs_neighbours = true;
        assert_eq!(
            found(&port, &links, true),
            [
                "sudo bridge link set dev vx neigh_suppress on",
                "sudo ip link set vx type vxlan nolearning"
            ]
        );
    }
}
