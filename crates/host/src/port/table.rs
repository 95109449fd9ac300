//! All ports, and all slots with their queue pairs.
//!
//! Every worker has every port. Of a guest's pairs it owns those whose number is its own, and every
//! further one as many on as there are workers; each is in a slot. What the control thread and the
//! guest say about pairs is put together here, so that the data path only looks it up.

use ringway_device::Queue;
use ringway_net::moderation::Policy;
use ringway_net::{ControlState, Counters, FromPair, Nanos};
use ringway_switch::{PORTS_MAX, PortId};

use crate::nat::NatPort;
use crate::peers::WorkerIndex;
use crate::port::guest_end::GuestEnd;
use crate::port::pair_map::PairOwner;
use crate::port::queue_pair::{End, QueuePair};
use crate::port::waits::Waits;
use crate::port::{Carrier, Port};
use crate::tap::offloads::TapOffloads;

/// Everything that one worker can send packets to.
#[derive(Debug, Default)]
pub(crate) struct PortTable {
    /// By their number; never more than [`PORTS_MAX`].
    pub(crate) ports: Vec<Port>,
    /// By the number of the slot.
    pub(crate) slots: Vec<QueuePair>,
    /// Names of ports that guests of routers may be behind.
    names: Vec<(PortId, String)>,
    /// Slots with a router.
    routers: Vec<PortId>,
}

impl PortTable {
    /// A port, which exists from now on.
    pub(crate) fn port(&mut self, id: PortId) -> &mut Port {
        let at = usize::from(id.0);
        assert!(at < PORTS_MAX, "port ids come from the control thread");
        self.grow_to(at + 1);
        &mut self.ports[at]
    }

    fn grow_to(&mut self, len: usize) {
        while self.slots.len() < len
            && let Ok(next) = u16::try_from(self.slots.len())
        {
            if self.slots.len() < PORTS_MAX {
                self.ports.push(Port::new(PortId(next)));
            }
            self.slots.push(QueuePair::absent(PortId(next)));
        }
    }

    /// A slot that is known to exist.
    pub(crate) fn at(&mut self, slot: PortId) -> &mut QueuePair {
        &mut self.slots[usize::from(slot.0)]
    }

    /// The queue pair in a slot, if there is such a slot.
    pub(crate) fn get(&mut self, slot: PortId) -> Option<&mut QueuePair> {
        self.slots.get_mut(usize::from(slot.0))
    }

    /// The guest's end in a slot.
    pub(crate) fn guest(&mut self, slot: PortId) -> Option<&mut GuestEnd> {
        match &mut self.get(slot)?.end {
            End::Guest(guest) => Some(guest),
            _ => None,
        }
    }

    /// Slots with a router.
    pub(crate) fn routers(&self) -> &[PortId] {
        &self.routers
    }

    /// A router, which learns of all ports that guests may be behind.
    pub(crate) fn add_router(&mut self, id: PortId, mut router: Box<NatPort>) {
        for (port, name) in self.names.iter().filter(|(port, _)| *port != id) {
            router.add_guest(*port, name);
        }
        self.at(id).end = End::Nat(router);
        self.routers.push(id);
    }

    /// Gives a port its name.
    pub(crate) fn name(&mut self, id: PortId, name: String) {
        self.each_router(|at, router| {
            if at != id {
                router.add_guest(id, &name);
            }
        });
        self.names.push((id, name));
    }

    /// The port goes, and with it the flows of its guests.
    pub(crate) fn forget_guest(&mut self, id: PortId) {
        self.names.retain(|(port, _)| *port != id);
        self.routers.retain(|router| *router != id);
        self.each_router(|_, router| router.remove_guest(id));
    }

    /// Packets of that port come next: routers are told whose they are.
    #[inline(always)]
    pub(crate) fn note_sender(&mut self, port: PortId, now: Nanos) {
        if !self.routers.is_empty() {
            self.each_router(|_, router| router.note_sender(port, now));
        }
    }

    fn each_router(&mut self, mut tell: impl FnMut(PortId, &mut NatPort)) {
        for id in &self.routers {
            if let End::Nat(router) = &mut self.slots[usize::from(id.0)].end {
                tell(*id, router);
            }
        }
    }

    /// All guests' ends.
    pub(crate) fn guests(&mut self) -> impl Iterator<Item = &mut GuestEnd> {
        self.slots.iter_mut().filter_map(|pair| match &mut pair.end {
            End::Guest(guest) => Some(&mut **guest),
            _ => None,
        })
    }

    /// A tap may leave undone what any running guest accepts: for the others it is completed on
    /// delivery.
    pub(crate) fn refresh_tap_offloads(&mut self, worker: u16) {
        let mut wanted = TapOffloads::default();
        for guest in self.guests() {
            if !guest.queues.is_running(Queue::ToGuest) {
                continue;
            }
            wanted = wanted.or(TapOffloads::accepted_by(guest.queues.negotiated()));
        }
        for pair in &mut self.slots {
            match &mut pair.end {
                // An offload that is not granted is only slower, never wrong.
                End::Tap(tap) if worker == 0 => drop(tap.set_offloads(wanted)),
                // The first worker knows all guests, so it decides for all queues of a tap.
                End::Tap(tap) => tap.expect_any_offload(),
                _ => {}
            }
        }
    }

    /// The slot of a pair that this worker owns; `None`: it does not, or there is no such pair.
    pub(crate) fn slot_of(&self, port: PortId, pair: u16) -> Option<PortId> {
        match self.ports.get(usize::from(port.0))?.pairs.owner_of(pair)? {
            PairOwner::Here(slot) => Some(slot),
            PairOwner::There(_) => None,
        }
    }

    /// All slots of a port, which exists from now on; the first one first.
    pub(crate) fn slots_of(&mut self, id: PortId) -> Vec<PortId> {
        let mut slots = vec![id];
        slots.extend(self.port(id).pairs.slots().filter(|slot| *slot != id));
        slots
    }

    /// Gives the port slots for that many pairs. The slots must be without queues.
    pub(crate) fn place_pairs(&mut self, port: PortId, pairs: u16, worker: WorkerIndex) {
        let WorkerIndex { index, size } = worker;
        let mut slots = self.slots_of(port);
        for slot in slots.split_off(1) {
            *self.at(slot) = QueuePair::absent(slot);
        }
        let more = pairs.saturating_sub(index).div_ceil(size).saturating_sub(1);
        for number in 1..=more {
            let slot = self.free_slot();
            let pair = FromPair { pair: index + number * size, of: 1 };
            let carrier = self.port(port).carrier;
            *self.at(slot) = QueuePair { port, pair, carrier, ..QueuePair::absent(slot) };
            slots.push(slot);
        }
        self.port(port).pairs.place(pairs, worker, &slots);
        self.at(port).pair = FromPair { pair: index, of: 1 };
        self.refresh_steering(port);
    }

    /// A slot behind those that have the number of a port.
    fn free_slot(&mut self) -> PortId {
        self.grow_to(PORTS_MAX);
        let is_free = |pair: &&QueuePair| matches!(pair.end, End::Absent) && pair.port == pair.slot;
        if let Some(pair) = self.slots[PORTS_MAX..].iter().find(is_free) {
            return pair.slot;
        }
        self.grow_to(self.slots.len() + 1);
        self.slots[self.slots.len() - 1].slot
    }

    /// The next port with this id starts afresh. All its slots but the first are free.
    pub(crate) fn reset(&mut self, id: PortId) {
        let port = self.port(id);
        *port = Port { generation: port.generation.wrapping_add(1), ..Port::new(id) };
        *self.at(id) = QueuePair::absent(id);
    }

    pub(crate) fn set_link(&mut self, id: PortId, carrier: Carrier) {
        self.port(id).carrier = carrier;
        for slot in self.slots_of(id) {
            self.at(slot).carrier = carrier;
        }
    }

    /// The first so many receive queues of a guest run; see
    /// [`PairMap::set_running`](crate::port::pair_map::PairMap::set_running).
    pub(crate) fn set_pairs(&mut self, port: PortId, running: u16, has_control: bool) {
        self.port(port).pairs.set_running(running, has_control);
        for slot in self.slots_of(port) {
            if let Some(guest) = self.guest(slot) {
                guest.queues.set_running_pairs(running);
            }
        }
        self.refresh_steering(port);
    }

    /// Applies the settings that the guest has made through its controlq; `true`: a guest may sleep
    /// through a call, see [`uml`](crate::uml).
    pub(crate) fn set_control_state(&mut self, port: PortId, state: &ControlState) -> bool {
        let mut call_again = false;
        for slot in self.slots_of(port) {
            if let Some(guest) = self.guest(slot) {
                guest.queues.set_control_state(state.clone());
            }
            call_again |= self.at(slot).follow_coalescing();
        }
        self.refresh_steering(port);
        call_again
    }

    /// Another policy of notification, for the guest that is attached and for those that come;
    /// `true`: as above.
    pub(crate) fn set_notify(&mut self, port: PortId, policy: Policy) -> bool {
        if std::mem::replace(&mut self.port(port).notify, policy) == policy {
            return false;
        }
        let mut call_again = false;
        for slot in self.slots_of(port) {
            call_again |= self.at(slot).follow_policy(policy);
        }
        call_again
    }

    /// Whether waits of a guest are counted, of the one that is attached and of those that come.
    pub(crate) fn count_waits(&mut self, port: PortId, is_on: bool) {
        self.port(port).counts_waits = is_on;
        for slot in self.slots_of(port) {
            let Some(guest) = self.guest(slot) else { continue };
            match is_on {
                true => _ = guest.waits.get_or_insert_with(Box::<Waits>::default),
                false => guest.waits = None,
            }
        }
    }

    /// The settings of the guest, for the other workers.
    pub(crate) fn take_control_state(&mut self, port: PortId) -> Option<ControlState> {
        self.port(port).is_change_told = false;
        Some(self.guest(port)?.queues.control_state().clone())
    }

    /// The counters of the slots of a guest, which go on when it attaches again.
    pub(crate) fn counters_of(&mut self, id: PortId) -> Vec<[Counters; 2]> {
        let slots = self.slots_of(id).into_iter();
        slots.filter_map(|slot| Some(self.guest(slot)?.counters())).collect()
    }

    fn refresh_steering(&mut self, port: PortId) {
        let Some(guest) = self.guest(port) else { return };
        let state = guest.queues.control_state().clone();
        let pairs = self.port(port).pairs.steer(&state);
        for slot in self.slots_of(port) {
            self.at(slot).pair.of = pairs;
        }
    }
}
