//! IP addresses that guests were seen to use: the supervisor hears of them, where a tap asks for
//! that (`neighbours=sync`).

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use ringway_supervisor::wire::{List, SEEN_IPS_MAX, SeenIp, ToSupervisor};
use ringway_switch::{IPS_PER_PORT_MAX, PortId, PortPolicy, Shared, VlanId};

use super::ports::Ports;
use super::ports::uplinks::now_ms;

/// From the news that something was seen until it is told: a guest says several things at once.
const SETTLED_AFTER: Duration = Duration::from_millis(100);

/// Until the next look, for what is forgotten.
const AGAIN_AFTER: Duration = Duration::from_secs(10);

const _: () = assert!(IPS_PER_PORT_MAX <= SEEN_IPS_MAX);

pub(super) type OfPorts = BTreeMap<PortId, Vec<SeenIp>>;

/// IP addresses that were told, and when the next are.
#[derive(Default)]
pub(super) struct LastIps {
    all: OfPorts,
    due: Option<Instant>,
}

impl LastIps {
    pub(super) fn next(&self) -> Option<Instant> {
        self.due
    }

    /// Something may be different.
    pub(super) fn is_changed(&mut self) {
        let soon = Instant::now() + SETTLED_AFTER;
        self.due = Some(self.due.map_or(soon, |due| due.min(soon)));
    }

    /// The ports of which something else is to be told, with what is so now.
    fn follow(&mut self, now: OfPorts) -> OfPorts {
        let gone = self.all.keys().filter(|port| !now.contains_key(port));
        let gone = gone.map(|port| (*port, Vec::new()));
        let new = now.iter().filter(|(port, ips)| self.all.get(port) != Some(ips));
        let changes = gone.chain(new.map(|(port, ips)| (*port, ips.clone()))).collect();
        self.all = now;
        changes
    }

    /// The time has come: what the supervisor is to hear.
    pub(super) fn take_due(&mut self, ports: &Ports, shared: &Shared) -> Vec<ToSupervisor> {
        self.due = asks_for_ips(ports).then(|| Instant::now() + AGAIN_AFTER);
        let told = |(port, ips): (PortId, _)| {
            let ips = List::new(ips).unwrap_or_default();
            ToSupervisor::SeenIps { port: port.0, ips }
        };
        self.follow(seen_ips(ports, shared)).into_iter().map(told).collect()
    }
}

fn asks_for_ips(ports: &Ports) -> bool {
    ports.iter().any(|port| port.spec.syncs_neighbours)
}

/// Of ports that have no locked ones; and none that another port is locked to.
pub(super) fn seen_ips(ports: &Ports, shared: &Shared) -> OfPorts {
    if !asks_for_ips(ports) {
        return OfPorts::new();
    }
    let mut locked = Vec::new();
    for port in ports.iter() {
        let PortPolicy { locked_ips, vlan, .. } = port.spec.rules.policy();
        let vlan = vlan.of_untagged().map(VlanId::raw);
        locked.extend(locked_ips.into_iter().map(|ip| (ip, vlan)));
    }
    let mut all = OfPorts::new();
    for seen in shared.seen_ips(now_ms()) {
        let Some(port) = ports.port(seen.port) else { continue };
        let is_open = port.spec.rules.policy().locked_ips.is_empty();
        let is_locked = locked.contains(&(seen.ip, Some(seen.vlan)));
        if port.has_running_guest() && is_open && !is_locked {
            let seen_ip = SeenIp { vlan: seen.vlan, address: seen.address.0, ip: seen.ip };
            all.entry(seen.port).or_default().push(seen_ip);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_changed_is_told_of_each_port() {
        let (mut told, [a, b]) = (LastIps::default(), [1, 2].map(PortId));
        let seen = |last| vec![SeenIp { vlan: 0, address: [2; 6], ip: [10, 0, 0, last].into() }];
        let all = |ports: &[(PortId, u8)]| -> OfPorts {
            ports.iter().map(|(port, last)| (*port, seen(*last))).collect()
        };
        assert_eq!(told.follow(all(&[(a, 1), (b, 2)])), all(&[(a, 1), (b, 2)]));
        assert_eq!(told.follow(all(&[(a, 1), (b, 3)])), all(&[(b, 3)]));
        assert_eq!(told.follow(all(&[(b, 3)])), OfPorts::from([(a, vec![])]));
        assert_eq!(told.follow(all(&[(b, 3)])), OfPorts::new());
    }
}
