//! Rules about what a router refuses, and what it has not.

use super::look::{Finding, Look};
use crate::config::{PortSpec, json};
use crate::units;

/// The most that a finding weighs.
const ALL: u64 = 100;

/// A guest that a router refuses, as one whose address another one has leased: it is seen at its
/// port and at the router's. It may be silent for most of the time.
pub(super) fn not_leased(look: &Look<'_>) -> Option<Finding> {
    let routers = look.now.ports.iter().filter_map(|port| Some((&port.name, port.nat.as_ref()?)));
    let (router, nat, (guest, ip)) = routers
        .filter_map(|(router, nat)| Some((router, nat, nat.spoofed.first_key_value()?)))
        .find(|(router, _, (guest, _))| [*router, *guest].contains(&&look.port.name))?;
    let count = nat.refused.get("spoofed_source").copied().unwrap_or(0);
    let owner = nat.leases.iter().find(|(_, ips)| ips.contains(ip)).map(|(port, _)| port);
    let whose = match owner.filter(|owner| *owner != guest) {
        Some(owner) => format!("which {owner} has leased"),
        None => format!("which {router} has not leased to it"),
    };
    let refused = units::counted(count, "packet");
    Some(Finding {
        weight: ALL,
        what: "an address is not its guest's own",
        figure: format!("{guest} sends from {ip}, {whose} ({refused} refused: spoofed_source)"),
        advice: "renew in the guest: dhclient, networkctl renew, or the interface down and up"
            .to_owned(),
    })
}

pub(super) fn lost_forward(look: &Look<'_>) -> Option<Finding> {
    let nat = look.port.nat.as_ref()?;
    let spec = PortSpec::resolve(&json::read_port(look.options).ok()?).ok()?;
    let lost = spec.nat.forwards.iter().find(|it| !nat.leases.contains_key(it.guest()))?;
    let guest = lost.guest();
    Some(Finding {
        weight: 1,
        what: "a forward leads to no guest",
        figure: format!("{lost}: {guest} has no lease"),
        advice: format!("see whether {guest} runs, and asks for an address: ringway why {guest}"),
    })
}

pub(super) fn lacks(look: &Look<'_>) -> Option<Finding> {
    let lacks = &look.port.nat.as_ref()?.lacks;
    (!lacks.is_empty()).then(|| Finding {
        weight: 1,
        what: "this machine lacks what guests need",
        figure: lacks.join("; "),
        advice: "see how to mend each: ringway doctor".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::Map;

    use super::*;
    use crate::control::examples::example;
    use crate::control::{NatStats, PortStats};

    /// Told at the guest's port and at the router's, also while all is silent.
    #[test]
    fn a_guest_with_the_address_of_another_is_named_with_it() {
        let mut now = example();
        let leases = |port: &str| [(port.to_owned(), vec!["10.0.2.15".to_owned()])].into();
        let port = |name: &str, nat| PortStats { name: name.into(), nat, ..PortStats::default() };
        let router = |leases| NatStats {
            leases,
            refused: [("spoofed_source".to_owned(), 7)].into(),
            spoofed: [("vm0".to_owned(), "10.0.2.15".to_owned())].into(),
            ..NatStats::default()
        };
        let mut figure = |of: &str, leases| {
            now.ports = vec![port("vm0", None), port("vm2", None)];
            now.ports.push(port("net", Some(router(leases))));
            let (before, options) = (now.clone(), Map::new());
            let port = now.ports.iter().find(|port| port.name == of).expect("a port");
            not_leased(&Look { before: &before, now: &now, port, options: &options })
                .map(|found| found.figure)
        };
        let of_vm2 = "vm0 sends from 10.0.2.15, which vm2 has leased (7 packets refused: \
                      spoofed_source)";
        assert_eq!(figure("vm0", leases("vm2")).as_deref(), Some(of_vm2));
        assert_eq!(figure("net", leases("vm2")).as_deref(), Some(of_vm2));
        assert_eq!(figure("vm2", leases("vm2")), None);
        let of_none = figure("vm0", [].into()).expect("it is refused");
        assert!(of_none.contains("which net has not leased to it"), "{of_none}");
    }
}
