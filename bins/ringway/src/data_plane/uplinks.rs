//! Telling the networks behind uplinks where guests are, in their names ([`Announcer`] says when).

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use ringway_device::{Queue, QueueId};
use ringway_host::AnnounceTo;
use ringway_net::MacAddress;
use ringway_switch::{KnownAddress, MACS_MAX, PortId, VlanId};
use ringway_vhost_user::ProtocolFeatures;

use super::DataPlane;
use super::link::Link;
use super::ports::Port;
use crate::config::PortSpec;

/// Most addresses that a guest uses beside its own and that are announced with it.
const LEARNED_MAX: usize = 16;

const NS_PER_MS: u64 = 1_000_000;

/// The front-end reads the configuration, where the address is.
const CONFIG: ProtocolFeatures = ProtocolFeatures::CONFIG;

/// The first receive queue: with it a guest receives.
const FIRST: QueueId = QueueId { pair: 0, queue: Queue::ToGuest };

impl Port {
    /// Whether uplinks are told where its guest is.
    fn is_announced(&self) -> bool {
        self.spec.announces && self.spec.is_link_up && !self.is_leaving()
    }

    fn receives(&self) -> bool {
        self.link().is_some_and(|link| link.session.running().any(|index| index == 0))
    }

    /// The address that its guest has to use, or was told; `false`: its front-end did not ask for
    /// it, and may have given it another.
    fn own_address(&self) -> Option<(MacAddress, bool)> {
        let locked = self.spec.rules.policy().locked_mac.map(|locked| (locked, true));
        let reads = |link: &Link| link.session.protocol_features().contains(CONFIG);
        locked.or_else(|| self.link().map(|link| (link.mac, reads(link))))
    }
}

impl DataPlane {
    /// A queue runs.
    pub(super) fn note_start(&mut self, id: PortId, queue: QueueId) {
        if let Some(link) = self.link_of(id).filter(|_| queue == FIRST) {
            link.stopped = None;
        }
        let Some(port) = self.ports.get(&id).filter(|_| queue == FIRST) else { return };
        if port.spec.rules.policy().is_uplink {
            self.announce_all();
        } else if port.is_announced() {
            self.comes_up(id);
        }
    }

    /// A queue is about to stop.
    pub(super) fn note_stop(&mut self, id: PortId, queue: QueueId) {
        let Some(vm) = self.vm(id).filter(|_| queue == FIRST) else { return };
        vm.announcer.goes_down();
        if let Some(link) = &mut vm.link {
            link.stopped = Some(Instant::now());
        }
    }

    /// A port's options have changed.
    pub(super) fn follow_link(&mut self, id: PortId, before: &PortSpec) {
        let Some(port) = self.ports.get_mut(&id) else { return };
        let now = &port.spec;
        if (now.is_link_up, now.announces) == (before.is_link_up, before.announces) {
            return;
        }
        if port.is_announced() && port.receives() {
            return self.comes_up(id);
        }
        if let Some(vm) = &mut port.vm {
            vm.announcer.goes_down();
        }
    }

    /// Announces all guests: hosts behind this port may know none.
    pub(super) fn announce_all(&mut self) {
        for id in self.ids() {
            if self.ports.get(&id).is_some_and(|port| port.is_announced() && port.receives()) {
                self.comes_up(id);
            }
        }
    }

    fn comes_up(&mut self, id: PortId) {
        let heard = self.worker.shared().heard(id);
        if let Some(vm) = self.vm(id) {
            vm.announcer.comes_up(now_ms(), heard);
        }
    }

    /// When the next guest may have to be announced.
    pub(super) fn next_announcing(&self) -> Option<Instant> {
        let vms = self.ports.values().filter_map(|port| port.vm.as_ref());
        let due_ms = vms.filter_map(|vm| vm.announcer.due_ms()).min()?;
        // A timer must not end a moment before the time has come.
        let wait_ms = due_ms.saturating_sub(now_ms()).saturating_add(1);
        Some(Instant::now() + Duration::from_millis(wait_ms))
    }

    /// Announces all guests whose time has come.
    pub(super) fn announce_due(&mut self) {
        let now_ms = now_ms();
        for id in self.ids() {
            let heard = self.worker.shared().heard(id);
            if self.vm(id).is_some_and(|vm| vm.announcer.look(now_ms, heard)) {
                self.announce(id, now_ms);
            }
        }
    }

    fn announce(&self, id: PortId, now_ms: u64) {
        let Some(port) = self.ports.get(&id) else { return };
        let own = port.own_address().filter(|(mac, is_told)| *is_told || self.is_used(id, *mac));
        let own = own.map(|(mac, _)| mac);
        let Some(vlan) = port.spec.rules.policy().vlan.of_untagged() else { return };
        let is_it = |known: &KnownAddress| {
            let is_learned = known.age_ms.is_some() && Some(known.address) != own;
            is_learned && known.vlan.map_or(0, VlanId::raw) == vlan.raw()
        };
        let learned = self.worker.shared().addresses_at(id, LEARNED_MAX, now_ms, is_it);
        let learned = learned.into_iter().map(|known| known.address);
        for mac in own.into_iter().chain(learned) {
            self.worker.first().send(move |worker| worker.announce(id, mac, AnnounceTo::Uplinks));
        }
    }
}

impl DataPlane {
    /// Whether a packet came from that address at the port, as far as that is remembered.
    fn is_used(&self, id: PortId, mac: MacAddress) -> bool {
        let is_it = |known: &KnownAddress| known.age_ms.is_some() && known.address == mac;
        !self.worker.shared().addresses_at(id, 1, now_ms(), is_it).is_empty()
    }

    /// Of guests that use an address, and not the one that their port has: one of those that they
    /// use.
    pub(super) fn other_addresses(&self) -> BTreeMap<PortId, MacAddress> {
        let page = self.worker.shared().addresses(0, MACS_MAX, now_ms(), |it| it.age_ms.is_some());
        let mut others = BTreeMap::new();
        for known in &page.addresses {
            others.entry(known.port).or_insert(known.address);
        }
        let own = |id| self.ports.get(&id).and_then(Port::own_address).map(|(mac, _)| mac);
        for known in page.addresses.iter().filter(|known| own(known.port) == Some(known.address)) {
            others.remove(&known.port);
        }
        others.retain(|id, _| own(*id).is_some());
        others
    }
}

/// By the clock of the switch.
pub(super) fn now_ms() -> u64 {
    ringway_host::now().0 / NS_PER_MS
}
