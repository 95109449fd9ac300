//! Telling the networks behind uplinks where guests are, in their names ([`Announcer`] says when).

use std::time::{Duration, Instant};

use ringway_device::{Queue, QueueId};
use ringway_net::MacAddress;
use ringway_switch::{KnownAddress, PortId, Shared, VlanId};
use ringway_vhost_user::ProtocolFeatures;

use super::super::links::Link;
use super::vm_port::VmPort;
use super::{Port, Ports};
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
        self.spec.announces && self.spec.is_link_up && !self.is_leaving
    }

    fn receives(&self) -> bool {
        self.link().is_some_and(|link| link.session.running().any(|index| index == 0))
    }

    /// The address that its guest has to use, or was told; `false`: its front-end did not ask for
    /// it, and may have given it another.
    pub fn own_address(&self) -> Option<(MacAddress, bool)> {
        let locked = self.spec.rules.policy().locked_mac.map(|locked| (locked, true));
        let reads = |link: &Link| link.session.protocol_features().contains(CONFIG);
        locked.or_else(|| self.link().map(|link| (link.mac, reads(link))))
    }

    fn comes_up(&mut self, shared: &Shared) {
        if let Some(vm) = &mut self.vm {
            vm.announcer.comes_up(now_ms(), shared.heard(self.id));
        }
    }

    /// Its options have changed.
    pub fn follow_link(&mut self, before: &PortSpec, shared: &Shared) {
        let now = &self.spec;
        if (now.is_link_up, now.announces) == (before.is_link_up, before.announces) {
            return;
        }
        if self.is_announced() && self.receives() {
            return self.comes_up(shared);
        }
        if let Some(vm) = &mut self.vm {
            vm.announcer.goes_down();
        }
    }

    /// The address of its guest, if that is known, and others that the guest uses.
    fn addresses(&self, now_ms: u64, shared: &Shared) -> Vec<MacAddress> {
        // Whether a packet came from it, as far as that is remembered.
        let is_used = |mac: MacAddress| {
            let is_it = |known: &KnownAddress| known.age_ms.is_some() && known.address == mac;
            !shared.addresses_at(self.id, 1, now_ms, is_it).is_empty()
        };
        let own = self.own_address().filter(|(mac, is_told)| *is_told || is_used(*mac));
        let own = own.map(|(mac, _)| mac);
        let Some(vlan) = self.spec.rules.policy().vlan.of_untagged() else { return Vec::new() };
        let is_it = |known: &KnownAddress| {
            let is_learned = known.age_ms.is_some() && Some(known.address) != own;
            is_learned && known.vlan.map_or(0, VlanId::raw) == vlan.raw()
        };
        let learned = shared.addresses_at(self.id, LEARNED_MAX, now_ms, is_it);
        own.into_iter().chain(learned.into_iter().map(|known| known.address)).collect()
    }
}

impl VmPort {
    /// A queue is about to stop.
    pub fn note_stop(&mut self, queue: QueueId) {
        if queue == FIRST {
            self.announcer.goes_down();
            if let Some(link) = &mut self.link {
                link.stopped = Some(Instant::now());
            }
        }
    }
}

impl Ports {
    /// A queue runs.
    pub fn note_start(&mut self, id: PortId, queue: QueueId, shared: &Shared) {
        let Some(port) = self.port_mut(id).filter(|_| queue == FIRST) else { return };
        if let Some(link) = port.vm.as_mut().and_then(|vm| vm.link.as_mut()) {
            link.stopped = None;
        }
        if port.spec.rules.policy().is_uplink {
            self.announce_all(shared);
        } else if port.is_announced() {
            port.comes_up(shared);
        }
    }

    /// Announces all guests: hosts behind an uplink may know none.
    pub fn announce_all(&mut self, shared: &Shared) {
        let announced = self.iter_mut().filter(|port| port.is_announced() && port.receives());
        announced.for_each(|port| port.comes_up(shared));
    }

    /// When the next guest may have to be announced.
    pub fn next_announcing(&self) -> Option<Instant> {
        let vms = self.iter().filter_map(|port| port.vm.as_ref());
        let due_ms = vms.filter_map(|vm| vm.announcer.due_ms()).min()?;
        // A timer must not end a moment before the time has come.
        let wait_ms = due_ms.saturating_sub(now_ms()).saturating_add(1);
        Some(Instant::now() + Duration::from_millis(wait_ms))
    }

    /// The guests whose time has come, with the addresses that uplinks are told.
    pub fn take_announced(&mut self, shared: &Shared) -> Vec<(PortId, MacAddress)> {
        let now_ms = now_ms();
        let mut announced = Vec::new();
        for port in self.iter_mut() {
            let heard = shared.heard(port.id);
            if port.vm.as_mut().is_some_and(|vm| vm.announcer.look(now_ms, heard)) {
                announced
                    .extend(port.addresses(now_ms, shared).into_iter().map(|it| (port.id, it)));
            }
        }
        announced
    }
}

/// By the clock of the switch.
pub fn now_ms() -> u64 {
    ringway_host::now().0 / NS_PER_MS
}
