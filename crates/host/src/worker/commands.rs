//! How the worker carries out what the control thread asks.

use std::io;
use std::os::fd::AsFd;

use ringway_device::{AnyGuestPort, Queue};
use ringway_net::{ControlState, Counters, FromPair, Negotiated};
use ringway_switch::{PolicyError, PortId, PortPolicy};

use crate::pace::Pace;
use crate::port::notify_fds::NotifyFds;
use crate::port::{End, GuestEnd, Port, RoomAt};
use crate::tap::TapOffloads;
use crate::worker::Worker;
use crate::worker::command::Command;
use crate::worker::wake::Wake;
use crate::{GuestMemory, Tap, TapError};

/// Commands carried out in one turn; those behind them come after the next visits.
pub(crate) const COMMANDS_MAX: usize = 64;

impl Worker {
    pub(crate) fn carry_out(&mut self, command: Command) {
        // A dropped answer means the control thread stopped waiting, which is its own business.
        match command {
            Command::AttachGuest { port, negotiated, mac, memory, pairs } => {
                let state = ControlState::new(mac, &negotiated).with_queue_pairs_max(pairs);
                self.attach_guest(port, negotiated, &state, &memory);
            }
            Command::AttachTap { port, tap, queue, done } => {
                let _ = done.send(self.attach_tap(port, tap, queue));
            }
            Command::SetPairs { port, running, has_control } => {
                self.set_pairs(port, running, has_control);
            }
            Command::TakeControlState { port, done } => {
                let _ = done.send(self.take_control_state(port));
            }
            Command::SetControlState { port, state } => self.set_control_state(port, &state),
            Command::Detach { port, done } => {
                self.detach(port);
                let _ = done.send(());
            }
            Command::SetMemory { port, memory, moved, done } => {
                let slots = self.slots_of(port).into_iter();
                let bound = slots.map(|slot| self.set_memory(slot, memory.clone(), &moved));
                let _ = done.send(bound.fold(Ok(()), Result::and));
            }
            Command::PositionByRing { port, queue, setup, done } => {
                let _ = done.send(self.position_by_ring(port, queue, &setup));
            }
            Command::StartQueue { port, queue, setup, fds, done } => {
                let _ = done.send(self.start_queue_of(port, queue, &setup, fds));
            }
            Command::StopQueue { port, queue, done } => {
                let slot = self.slot_of(port, queue.pair);
                let _ = done.send(slot.and_then(|slot| self.stop_queue(slot, queue.queue)));
            }
            Command::DiscardPackets { port, queue, setup, call, done } => {
                let _ = done.send(self.discard(port, queue, &setup, call.as_ref()));
            }
            Command::RebindQueue { port, queue, areas, done } => {
                let _ = done.send(self.rebind_queue_of(port, queue, &areas));
            }
            Command::SetNotifyFd { port, queue, notify_fd } => {
                self.set_notify_fd_of(port, queue, notify_fd)
            }
            Command::Snapshot { done } => _ = done.send(self.snapshots()),
            Command::SetPoll { options } => self.polling.set_options(options),
            Command::Effort { done } => _ = done.send(self.effort()),
            Command::Announce { port, mac } => self.announce(port, mac),
            Command::SetLink { port, is_up, done } => {
                self.set_link(port, is_up);
                let _ = done.send(());
            }
            Command::SetTapMtu { port, mtu, done } => _ = done.send(self.set_tap_mtu(port, mtu)),
            Command::SetPolicy { port, policy, done } => {
                let _ = done.send(self.set_policy(port, *policy));
            }
            Command::SnoopMulticast { is_on } => {
                self.switch.snoop_multicast(is_on);
                self.refresh_cable();
            }
            Command::SetNotify { port, policy } => self.set_notify(port, policy),
            Command::RemovePort { port, done } => {
                self.remove_port(port);
                let _ = done.send(());
            }
            Command::CatchUp { done } => _ = done.send(()),
            Command::Stop => {}
        }
    }

    fn attach_guest(
        &mut self,
        id: PortId,
        negotiated: Negotiated,
        state: &ControlState,
        memory: &GuestMemory,
    ) {
        self.detach(id);
        self.slot(id).told_mac = Some(state.mac);
        let before = self.counters_of(id);
        self.place_pairs(id, state.queue_pairs_max);
        let notify = self.slot(id).notify;
        for (number, slot) in self.slots_of(id).into_iter().enumerate() {
            let counters = before.get(number).copied().unwrap_or_default();
            let queues = AnyGuestPort::new(negotiated, state.clone(), counters);
            let fds = std::array::from_fn(|_| NotifyFds::default());
            let memory = memory.clone();
            let pace = Pace::new(notify);
            let guest = GuestEnd { queues, memory, fds, pace, poll_at: None, is_armed: false };
            self.at(slot).end = End::Guest(Box::new(guest));
        }
        self.join(id);
    }

    /// What the slots of a guest have counted, which goes on when it attaches again.
    fn counters_of(&mut self, id: PortId) -> Vec<[Counters; 2]> {
        let slots = self.slots_of(id).into_iter();
        slots.filter_map(|slot| Some(self.guest(slot)?.queues.counters())).collect()
    }

    fn attach_tap(&mut self, id: PortId, tap: Box<Tap>, queue: Option<FromPair>) -> io::Result<()> {
        if queue.is_some() {
            self.poller.add_edge(tap.as_fd(), Wake::Readable(id).token())?;
        }
        let port = self.slot(id);
        let before = std::mem::replace(&mut port.end, End::Tap(tap));
        port.is_read = queue.is_some();
        port.pair = queue.unwrap_or(port.pair);
        if let (End::Tap(before), End::Tap(tap)) = (before, &mut port.end) {
            (tap.to_tap, tap.from_tap) = (before.to_tap, before.from_tap);
            let _ = self.poller.remove(before.as_fd());
        }
        self.join(id);
        self.refresh_tap_offloads();
        if queue.is_some() {
            self.make_ready(id);
        }
        Ok(())
    }

    fn join(&mut self, id: PortId) {
        // A guest that attaches again already has its place in the switch.
        let _ = self.switch.add_port(id);
        self.refresh_cable();
    }

    fn remove_port(&mut self, id: PortId) {
        self.detach(id);
        self.place_pairs(id, 1);
        if let End::Tap(tap) = std::mem::replace(&mut self.slot(id).end, End::Absent) {
            let _ = self.poller.remove(tap.as_fd());
        }
        // The next port with this id starts afresh; it may still be in the list of ready ones.
        let is_ready = self.slot(id).is_ready;
        let generation = self.slot(id).generation.wrapping_add(1);
        *self.slot(id) = Port { is_ready, generation, ..Port::new(id, End::Absent) };
        self.switch.remove_port(id);
        self.refresh_cable();
        self.refresh_tap_offloads();
    }

    fn set_link(&mut self, id: PortId, is_up: bool) {
        self.slot(id);
        for slot in self.slots_of(id) {
            let port = self.at(slot);
            port.is_link_up = is_up;
            if let End::Tap(tap) = &port.end {
                // The host sees it too, if its kernel can show it.
                let _ = tap.set_link(is_up);
            }
            // Whoever waits for this port finds out that it may go on.
            self.release_holds(RoomAt::Port(slot));
            self.end_backlog(slot);
            self.make_ready(slot);
        }
        if !is_up {
            self.switch.forget(id);
        }
        self.refresh_claim(id);
    }

    fn set_tap_mtu(&mut self, id: PortId, mtu: u16) -> Result<(), TapError> {
        match &mut self.slot(id).end {
            End::Tap(tap) => tap.set_mtu(mtu),
            End::Guest(_) | End::Absent => Ok(()),
        }
    }

    fn set_policy(&mut self, id: PortId, policy: PortPolicy) -> Result<(), PolicyError> {
        let result = self.switch.set_port(id, policy);
        self.refresh_cable();
        // What waits for the old policy tries the new one.
        self.slot(id);
        for slot in self.slots_of(id) {
            self.release_holds(RoomAt::Port(slot));
            self.forget_hold(slot);
            self.make_ready(slot);
        }
        result
    }

    /// With exactly two ports the switch is a cable, unless there is anything to decide.
    fn refresh_cable(&mut self) {
        let mut ids = self.switch.ports();
        self.cable = match (ids.next(), ids.next(), ids.next()) {
            (Some(one), Some(other), None) if self.switch.is_plain() => Some((one, other)),
            _ => None,
        };
        if self.cable.is_none() {
            self.release_endless_holds();
        }
    }

    /// Stops all queues of a guest and lets go of its memory; the counters stay. Its stations may
    /// turn up elsewhere.
    pub(crate) fn detach(&mut self, id: PortId) {
        self.slot(id);
        for slot in self.slots_of(id) {
            for queue in Queue::ALL {
                self.stop_queue(slot, queue);
            }
            self.release_holds(RoomAt::Port(slot));
            self.end_backlog(slot);
            self.forget_hold(slot);
            self.at(slot).is_stuck = false;
            if let Some(guest) = self.guest(slot) {
                guest.memory = GuestMemory::empty();
            }
        }
        self.switch.forget(id);
        self.refresh_tap_offloads();
    }

    /// A tap may leave undone what any running guest accepts: for the others it is completed on
    /// delivery.
    pub(crate) fn refresh_tap_offloads(&mut self) {
        let mut wanted = TapOffloads::default();
        for port in &self.ports {
            let End::Guest(guest) = &port.end else { continue };
            if !guest.queues.is_running(Queue::ToGuest) {
                continue;
            }
            wanted = wanted.or(TapOffloads::accepted_by(guest.queues.negotiated()));
        }
        for port in &mut self.ports {
            match &mut port.end {
                // What is not granted is only slower, never wrong.
                End::Tap(tap) if self.peers.index() == 0 => drop(tap.set_offloads(wanted)),
                // The first worker knows all guests, so it decides for all queues of a tap.
                End::Tap(tap) => tap.expect_any_offload(),
                _ => {}
            }
        }
    }
}
