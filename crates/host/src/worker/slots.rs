//! Where the queue pairs of a port are, and how packets are spread over them.
//!
//! Every worker has every port. Of a guest's pairs it owns those whose number is its own, and every
//! further one as many on as there are workers; each is in a slot. What the control thread and the
//! guest say about pairs is put together here, so that the data path only looks it up.

use ringway_net::moderation::Policy;
use ringway_net::{ControlState, FromPair, Steering};
use ringway_switch::{PORTS_MAX, PortId};

use crate::port::{End, PairOwner, Port};
use crate::worker::Worker;
use crate::worker::command::WorkerEvent;

impl Worker {
    /// The first slot of a port, whose number is the port's.
    pub(crate) fn slot(&mut self, id: PortId) -> &mut Port {
        let at = usize::from(id.0);
        assert!(at < PORTS_MAX, "port ids come from the control thread");
        self.grow_to(at + 1);
        &mut self.ports[at]
    }

    fn grow_to(&mut self, len: usize) {
        while self.ports.len() < len
            && let Ok(next) = u16::try_from(self.ports.len())
        {
            self.ports.push(Port::new(PortId(next), End::Absent));
        }
    }

    /// The slot of a pair that this worker owns; `None`: it does not, or there is no such pair.
    pub(crate) fn slot_of(&self, port: PortId, pair: u16) -> Option<PortId> {
        let first = self.ports.get(usize::from(port.0))?;
        match first.places.get(usize::from(pair))? {
            PairOwner::Here(slot) => Some(*slot),
            PairOwner::There(_) => None,
        }
    }

    /// All slots of a port, the first one first.
    pub(crate) fn slots_of(&self, port: PortId) -> Vec<PortId> {
        let mut slots = vec![port];
        let places = self.ports.get(usize::from(port.0)).map_or(&[][..], |first| &first.places);
        slots.extend(places.iter().filter_map(|place| match place {
            PairOwner::Here(slot) if *slot != port => Some(*slot),
            _ => None,
        }));
        slots
    }

    /// Gives the port places for that many pairs. The slots must be without queues.
    pub(crate) fn place_pairs(&mut self, port: PortId, pairs: u16) {
        let (index, size) = (self.peers.index(), self.peers.size());
        let mut slots = self.slots_of(port);
        for slot in slots.split_off(1) {
            *self.at(slot) =
                Port { is_ready: self.at(slot).is_ready, ..Port::new(slot, End::Absent) };
        }
        let more = pairs.saturating_sub(index).div_ceil(size).saturating_sub(1);
        for number in 1..=more {
            let slot = self.free_slot();
            let pair = FromPair { pair: index + number * size, of: 1 };
            let first = self.slot(port);
            let is_link_up = first.is_link_up;
            let is_ready = self.at(slot).is_ready;
            *self.at(slot) =
                Port { of: port, pair, is_link_up, is_ready, ..Port::new(slot, End::Absent) };
            slots.push(slot);
        }
        let places = (0..pairs).map(|pair| self.peers.owner_of(pair, &slots)).collect();
        let first = self.slot(port);
        first.places = places;
        first.pair = FromPair { pair: index, of: 1 };
        first.running_pairs = 0;
        first.has_control = false;
        self.refresh_steering(port);
    }

    /// A slot behind those that have the number of a port.
    fn free_slot(&mut self) -> PortId {
        self.grow_to(PORTS_MAX);
        let is_free = |port: &&Port| matches!(port.end, End::Absent) && port.of == port.id;
        if let Some(port) = self.ports[PORTS_MAX..].iter().find(is_free) {
            return port.id;
        }
        self.grow_to(self.ports.len() + 1);
        self.ports[self.ports.len() - 1].id
    }

    /// A slot that is known to exist.
    pub(crate) fn at(&mut self, slot: PortId) -> &mut Port {
        &mut self.ports[usize::from(slot.0)]
    }

    /// The first so many receive queues of a guest run, on whichever worker; with `has_control` the
    /// guest says itself how many of them it uses.
    pub(crate) fn set_pairs(&mut self, port: PortId, running: u16, has_control: bool) {
        let first = self.slot(port);
        (first.running_pairs, first.has_control) = (running, has_control);
        for slot in self.slots_of(port) {
            if let Some(guest) = self.guest(slot) {
                guest.queues.set_running_pairs(running);
            }
        }
        self.refresh_steering(port);
    }

    /// What the guest has set through its controlq, which belongs to the first worker.
    pub(crate) fn set_control_state(&mut self, port: PortId, state: &ControlState) {
        for slot in self.slots_of(port) {
            if let Some(guest) = self.guest(slot) {
                guest.queues.set_control_state(state.clone());
            }
            self.follow_coalescing(slot);
        }
        self.refresh_steering(port);
    }

    /// The guest has said how seldom it wants to be called, perhaps before this queue started.
    pub(crate) fn follow_coalescing(&mut self, slot: PortId) {
        let pair = self.at(slot).pair.pair;
        if self.guest(slot).is_some_and(|guest| guest.follow_coalescing(pair)) {
            self.uml_retries.expect(self.turn_at);
        }
    }

    /// Another policy of notification, for the guest that is attached and for those that come.
    pub(crate) fn set_notify(&mut self, port: PortId, policy: Policy) {
        if std::mem::replace(&mut self.slot(port).notify, policy) == policy {
            return;
        }
        for slot in self.slots_of(port) {
            if self.guest(slot).is_some_and(|guest| guest.follow_policy(policy)) {
                self.uml_retries.expect(self.turn_at);
            }
        }
    }

    /// The guest has set something: it is true for all its queues.
    pub(crate) fn after_control(&mut self, port: PortId, announcements_before: u64) {
        let Some(guest) = self.guest(port) else { return };
        let state = guest.queues.control_state().clone();
        self.set_control_state(port, &state);
        self.refresh_tap_offloads();
        let is_news = self.peers.size() > 1 || state.announcements != announcements_before;
        // At most one such event per port is under way, however many commands a guest gives.
        if is_news && !std::mem::replace(&mut self.slot(port).is_change_told, true) {
            self.tell(WorkerEvent::ControlChanged { port });
        }
    }

    /// What the guest has set, for the other workers.
    pub(crate) fn take_control_state(&mut self, port: PortId) -> Option<ControlState> {
        self.slot(port).is_change_told = false;
        Some(self.guest(port)?.queues.control_state().clone())
    }

    fn refresh_steering(&mut self, port: PortId) {
        let (running, has_control) = (self.slot(port).running_pairs, self.slot(port).has_control);
        let Some(guest) = self.guest(port) else { return };
        let state = guest.queues.control_state();
        let used = if has_control { state.queue_pairs } else { u16::MAX };
        let pairs = running.min(used).max(1);
        let steering = Steering::new(pairs, state.rss.as_ref());
        self.slot(port).steering = steering;
        for slot in self.slots_of(port) {
            self.at(slot).pair.of = pairs;
        }
    }
}
