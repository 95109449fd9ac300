//! A visit of one slot: where its packets come from, what they can reach, and what is left to do.

use ringway_device::{AnyGuestPort, FromGuest, Queue, QueueId};
use ringway_net::{ControlState, control_record};
use ringway_switch::PortId;
use ringway_virtq::{Arm, DeviceQueue, SharedSlice};

use crate::forward::budget::BUDGET_UNITS;
use crate::forward::delivery::Delivery;
use crate::forward::receivers::Receivers;
use crate::forward::tap_visit::visit_tap;
use crate::forward::watched::{Found, visit_watched};
use crate::forward::{Fabric, VisitEnd, forward};
use crate::journal::worker_line::{Busy, VisitNote};
use crate::nat::visit::visit_nat;
use crate::os::clock::now;
use crate::port::guest_end::GuestEnd;
use crate::port::queue_pair::{End, PayloadLifetime};
use crate::port::room::RoomAt;
use crate::port::waits::Left;
use crate::worker::Worker;
use crate::worker::event::WorkerEvent;

const NS_PER_MS: u64 = 1_000_000;

impl Worker {
    /// Visits a slot that was kicked, or has packets left.
    pub(crate) fn visit(&mut self, slot: PortId) {
        if let Some(guest) = self.ports.guest(slot)
            && std::mem::take(&mut guest.has_commands)
        {
            self.visit_control(slot);
        }
        if self.schedule.holds.of(slot).is_some() {
            return;
        }
        let (visit, packets) = self.move_packets(usize::from(slot.0));
        self.effort.packets += packets;
        let note = VisitNote::of(self.journal.as_ref(), self.busy_with(slot));
        self.schedule.flush(slot, visit, &mut self.ports, note);
        self.peers.publish();
        self.note_visit(None);
        match visit {
            VisitEnd::More => self.schedule.ready.add(slot),
            VisitEnd::Idle => self.on_idle(slot),
            VisitEnd::Hold(to) => {
                // A tap on a cable keeps no other port waiting, and the kernel bounds its queue.
                let is_tap = matches!(self.ports.at(slot).end, End::Tap(_));
                let is_endless = is_tap && self.bridge.cable.is_some();
                self.schedule.hold(slot, to, is_endless, (&mut self.ports, &self.peers));
                if let RoomAt::Slot(receiver) = to {
                    self.report_broken(receiver);
                }
            }
            VisitEnd::Wait(at) => self.schedule.wait(slot, at),
        }
    }

    /// Notes that a visit begins, or has ended.
    fn note_visit(&mut self, slot: Option<PortId>) {
        let Some(line) = &self.journal else { return };
        line.set_busy(slot.and_then(|slot| self.busy_with(slot)));
    }

    fn busy_with(&self, slot: PortId) -> Option<Busy> {
        self.ports.slots.get(usize::from(slot.0)).map(|pair| Busy::of(pair.port, pair.pair.pair))
    }

    /// How the visit ended, and how many packets were taken.
    fn move_packets(&mut self, at: usize) -> (VisitEnd, u64) {
        let now = now();
        self.stalls.visit_over(now, &mut self.ports);
        let from = self.ports.slots[at].port;
        let visited = Busy::of(from, self.ports.slots[at].pair.pair);
        let note = VisitNote::begin(self.journal.as_ref(), visited);
        self.ports.note_sender(from, now);
        self.peers.note_sender(from);
        let (before, rest) = self.ports.slots.split_at_mut(at);
        let Some((pair, after)) = rest.split_first_mut() else { return (VisitEnd::Idle, 0) };
        let cable = if pair.carrier.is_up() { self.bridge.other_end(pair.port) } else { None };
        let bounce = pair.faults.is_timed().then(|| self.stalls.bounce());
        // One packet at a time: others wait for one page fault, not for one of each packet.
        let work = if bounce.is_some() { BUDGET_UNITS - 1 } else { pair.debt };
        let mut fabric = Fabric {
            receivers: Receivers { ports: &self.ports.ports, before, after },
            from: pair.port,
            switch: &mut self.bridge.switch,
            cable,
            now,
            now_ms: now.0 / NS_PER_MS,
            is_link_up: pair.carrier.is_up(),
            refused: &mut pair.refused,
            rewriter: &mut self.buffers.rewriter,
            last_way: None,
            delivery: Delivery {
                pair: pair.pair,
                note,
                peers: &mut self.peers,
                completion: &mut self.buffers.completion,
                dirty: &mut self.schedule.dirty,
                position: 0,
                work,
                packets: 0,
                lifetime: lifetime_of(&pair.end, bounce),
                is_read_at_flush: false,
                call_again: false,
                observers: self.observers.if_any(),
            },
        };
        let (visit, found) = visit_end(&mut pair.end, pair.is_read, &mut fabric, bounce);
        let Delivery { work: done, packets, call_again, .. } = fabric.delivery;
        pair.faults.note(found.stalled_ns, found.untouched);
        if let End::Guest(guest) = &mut pair.end
            && let Some(waits) = &mut guest.waits
        {
            waits.visited(now, self.schedule.turn_at, packets, left_by(visit));
        }
        // A slot that has nothing more to send owes nothing.
        let is_more = visit == VisitEnd::More;
        pair.debt = if is_more { done.saturating_sub(BUDGET_UNITS) } else { 0 };
        self.schedule.after_call(call_again);
        self.idle.note_visit(now, done.saturating_sub(work), packets);
        (visit, packets)
    }

    /// Nothing is left to take from this slot now.
    fn on_idle(&mut self, slot: PortId) {
        let pair = self.ports.at(slot);
        match pair.end {
            End::Guest(_) if self.idle.policy.is_wanted() => self.idle.unarmed.push(slot),
            End::Tap(_) => self.report_gone(slot),
            // Its poller, its timers and its guests wake the worker.
            End::Nat(_) => self.tell_stations(slot),
            End::Guest(_) | End::Absent => {
                // The guest is asked to kick. A packet that came before that is taken now.
                if !pair.arm_idle() {
                    self.schedule.ready.add(slot);
                }
            }
        }
        self.report_broken(slot);
    }

    pub(crate) fn on_kick(&mut self, slot: PortId, queue: Queue) {
        let second = self.effort.second();
        let Some(guest) = self.ports.guest(slot) else { return };
        guest.fds[queue as usize].kicks.count(second);
        match queue {
            Queue::FromGuest => self.schedule.ready.add_first(slot),
            Queue::ToGuest => {
                self.ports.at(slot).room.is_stuck = false;
                self.schedule.release_slot(slot, &mut self.ports, &mut self.peers);
                for router in self.ports.routers() {
                    self.schedule.ready.add(*router);
                }
            }
            Queue::Control => self.visit_control(slot),
        }
    }

    pub(crate) fn visit_control(&mut self, slot: PortId) {
        self.note_visit(Some(slot));
        self.carry_out_control(slot);
        self.note_visit(None);
    }

    fn carry_out_control(&mut self, slot: PortId) {
        let Some(pair) = self.ports.get(slot) else { return };
        let step = pair.step();
        let End::Guest(guest) = &mut pair.end else { return };
        let before = guest.queues.control_state().clone();
        let noted = self.journal.as_ref().zip(guest.fds[Queue::Control as usize].noted);
        let note = |state: &ControlState| {
            if let Some((line, noted)) = noted {
                line.journal.note_control(noted.line, &control_record::commands(state));
            }
        };
        let call_again = guest.queues.visit_control(note) && guest.call(Queue::Control);
        // Commands that raced in with arming wait for the slot's next turn: no kick will come.
        guest.has_commands = guest.queues.arm_kicks(Queue::Control, Arm::Next);
        let has_commands = guest.has_commands;
        let has_changed = *guest.queues.control_state() != before;
        pair.faults.step_over(step);
        self.schedule.after_call(call_again);
        if has_changed {
            self.after_control(slot, before.announcements);
        }
        if has_commands {
            self.schedule.ready.add(slot);
        }
        self.report_broken(slot);
    }

    /// The guest has set something: it is true for all its queues.
    pub(crate) fn after_control(&mut self, port: PortId, announcements_before: u64) {
        let Some(guest) = self.ports.guest(port) else { return };
        let state = guest.queues.control_state().clone();
        self.schedule.after_call(self.ports.set_control_state(port, &state));
        self.ports.refresh_tap_offloads(self.peers.index());
        let is_news = self.peers.size() > 1 || state.announcements != announcements_before;
        // At most one such event per port is under way, however many commands a guest gives.
        if is_news && !std::mem::replace(&mut self.ports.port(port).is_change_told, true) {
            self.control.tell(WorkerEvent::ControlChanged { port });
        }
    }

    /// Tells the control thread if the interface is gone. What was behind it may turn up elsewhere.
    fn tell_stations(&mut self, slot: PortId) {
        let pair = self.ports.at(slot);
        let End::Nat(nat) = &mut pair.end else { return };
        if nat.takes_news() {
            let router = pair.port;
            self.control.tell(WorkerEvent::Stations { router });
        }
    }

    fn report_gone(&mut self, slot: PortId) {
        let pair = self.ports.at(slot);
        let End::Tap(tap) = &mut pair.end else { return };
        if tap.take_gone() {
            let port = pair.port;
            self.bridge.switch.forget(port);
            self.control.tell(WorkerEvent::TapGone { port });
        }
    }

    /// Tells the front-end and the control thread, once, about queues that the guest broke.
    pub(crate) fn report_broken(&mut self, slot: PortId) {
        let Some(pair) = self.ports.get(slot) else { return };
        let End::Guest(guest) = &mut pair.end else { return };
        for queue in Queue::ALL {
            let Some(why) = guest.queues.broken(queue) else { continue };
            if guest.fds[queue as usize].report_broken() {
                let queue = QueueId { pair: pair.pair.pair, queue };
                self.control.tell(WorkerEvent::Broken { port: pair.port, queue, why });
            }
        }
    }
}

fn lifetime_of(end: &End, bounce: Option<SharedSlice>) -> PayloadLifetime {
    match end {
        // A guest gets its buffers back at the end of the visit.
        End::Guest(_) if bounce.is_none() => PayloadLifetime::UntilFlush,
        // A tap reads into one place, as does what is copied while the worker watches.
        End::Guest(_) | End::Tap(_) | End::Nat(_) | End::Absent => PayloadLifetime::CallOnly,
    }
}

fn left_by(visit: VisitEnd) -> Left {
    match visit {
        VisitEnd::Idle => Left::Nothing,
        VisitEnd::More => Left::More,
        VisitEnd::Hold(_) | VisitEnd::Wait(_) => Left::Held,
    }
}

/// Moves packets out of what is at the end of a queue pair; and for how long the thread slept in
/// its guest's memory, if it watches.
fn visit_end(
    end: &mut End,
    is_read: bool,
    fabric: &mut Fabric<'_>,
    bounce: Option<SharedSlice>,
) -> (VisitEnd, Found) {
    let visit = match end {
        End::Guest(guest) => return visit_guest(guest, fabric, bounce),
        // Another worker reads what comes from this tap.
        End::Tap(_) if !is_read => VisitEnd::Idle,
        End::Tap(tap) => visit_tap(tap, fabric),
        End::Nat(nat) => visit_nat(nat, fabric),
        End::Absent => VisitEnd::Idle,
    };
    (visit, Found::default())
}

fn visit_guest(
    guest: &mut GuestEnd,
    fabric: &mut Fabric<'_>,
    bounce: Option<SharedSlice>,
) -> (VisitEnd, Found) {
    guest.is_armed = false;
    match &mut guest.queues {
        AnyGuestPort::Split(queues) => visit_queue(queues.from_guest.as_mut(), fabric, bounce),
        AnyGuestPort::Packed(queues) => visit_queue(queues.from_guest.as_mut(), fabric, bounce),
    }
}

/// Visits a transmitq: while it is being looked at, the guest need not kick.
fn visit_queue<Q: DeviceQueue>(
    from_guest: Option<&mut FromGuest<Q>>,
    fabric: &mut Fabric<'_>,
    bounce: Option<SharedSlice>,
) -> (VisitEnd, Found) {
    let Some(from_guest) = from_guest else { return (VisitEnd::Idle, Found::default()) };
    if let Some(bounce) = bounce {
        return visit_watched(from_guest, fabric, bounce);
    }
    from_guest.arm_kicks(Arm::Never);
    (forward(from_guest, fabric), Found::default())
}
