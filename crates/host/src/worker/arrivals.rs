//! What other workers hand over: packets for queues of this one.
//!
//! A receiver without room makes its packets stay in the ring, others go past them. The wait is
//! bounded in time, as everywhere, and in packets and bytes; and when what waits takes up half of
//! a ring, which is released only from the front, it is dropped: one guest that does not receive
//! cannot take from others a ring that all share.

use std::time::Instant;

use ringway_device::Queue;
use ringway_net::{DropReason, Packet, Put};
use ringway_switch::PortId;
use ringway_virtq::Arm;

use crate::forward::{BUDGET_UNITS, UNIT_LEN, VisitEnd};
use crate::pace::Flush;
use crate::peers::ring::{BYTES_MAX, HandedOver, PACKETS_MAX};
use crate::port::{Backlog, End, PayloadLifetime, RoomAt};
use crate::worker::Worker;

/// What may wait for one receiver in the rings to this worker.
const BACKLOG_PACKETS_MAX: usize = PACKETS_MAX / 4;
/// In bytes.
const BACKLOG_BYTES_MAX: usize = BYTES_MAX / 4;

/// How often a guest may post too few buffers while it is being asked to say when it has some.
const RACES_MAX: usize = 3;

impl Worker {
    /// Delivers what other workers have handed over, at most one budget of each.
    pub(crate) fn take_arrivals(&mut self) {
        if self.peers.incoming_count() == 0 {
            return;
        }
        for at in 0..self.peers.incoming_count() {
            let mut work = 0;
            while work < BUDGET_UNITS {
                let Some(packet) = self.peers.peek(at) else { break };
                work += 1 + packet.len / UNIT_LEN;
                let left_at = self.arrive(&packet);
                self.has_found |= left_at.is_none();
                self.peers.settle(at, left_at);
            }
            self.peers.release(at);
            if self.peers.is_crowded(at) {
                self.give_up_backlogs();
            }
        }
        if self.flush_dirty(VisitEnd::Idle, Flush::at_end()) {
            self.uml_retries.expect(self.turn_at);
        }
    }

    /// `Some`: the packet waits, and so many of its segments were delivered.
    pub(crate) fn arrive(&mut self, handed: &HandedOver) -> Option<usize> {
        let first = self.ports.get(usize::from(handed.port));
        // It was meant for a port that is gone.
        if first.is_none_or(|first| first.generation != handed.generation) {
            return None;
        }
        let slot = self.slot_of(PortId(handed.port), handed.pair)?;
        let port = &mut self.ports[usize::from(slot.0)];
        if let Some(backlog) = &mut port.backlog {
            if backlog.takes(handed.len as usize) {
                return Some(handed.segments_done);
            }
            port.count_drop(DropReason::NoRoom);
            return None;
        }
        let packet = Packet { header: &handed.header, payload: &handed.payload, len: handed.len };
        let mut position = handed.segments_done;
        for _ in 0..RACES_MAX {
            let port = &mut self.ports[usize::from(slot.0)];
            let completed = self.completion.put(port, &packet, position, PayloadLifetime::CallOnly);
            if completed.packets > 0 {
                self.mark_dirty(slot);
            }
            let port = &mut self.ports[usize::from(slot.0)];
            match completed.put {
                Put::Done => port.is_stuck = false,
                Put::Refused | Put::Unfinished => {}
                Put::NoRoom if port.is_stuck => port.count_drop(DropReason::NoRoom),
                Put::NoRoom => {
                    position = completed.position;
                    if self.is_asked_for_room(slot) {
                        break;
                    }
                    continue;
                }
            }
            return None;
        }
        let port = &mut self.ports[usize::from(slot.0)];
        let mut backlog = Backlog { until: port.wait_until(Instant::now()), packets: 0, bytes: 0 };
        backlog.takes(handed.len as usize);
        port.backlog = Some(backlog);
        self.backlogs += 1;
        Some(position)
    }

    /// Asks the receiver to say when it has room; `false`: it may have some already.
    fn is_asked_for_room(&mut self, slot: PortId) -> bool {
        let port = &mut self.ports[usize::from(slot.0)];
        if port.flush_to(Flush::short()).call_again {
            self.uml_retries.expect(self.turn_at);
        }
        match &mut self.ports[usize::from(slot.0)].end {
            End::Guest(guest) => !guest.queues.arm_kicks(Queue::ToGuest, Arm::Next),
            _ => true,
        }
    }

    /// Room came up, or the time is up: what waits for this receiver is looked at again.
    pub(crate) fn end_backlog(&mut self, slot: PortId) {
        if self.backlogs == 0 {
            return;
        }
        let Some(port) = self.ports.get_mut(usize::from(slot.0)) else { return };
        if port.backlog.take().is_none() {
            return;
        }
        self.backlogs -= 1;
        self.end_credit(RoomAt::Port(slot));
        self.peers.look_again();
        // Everything that lifetime is counted anew.
        for backlog in self.ports.iter_mut().filter_map(|port| port.backlog.as_mut()) {
            (backlog.packets, backlog.bytes) = (0, 0);
        }
    }

    pub(crate) fn end_expired_backlogs(&mut self, now: Instant) {
        self.end_backlogs_if(|backlog| backlog.until <= now);
    }

    /// What waits keeps others from the ring, so it does not wait any longer.
    fn give_up_backlogs(&mut self) {
        self.end_backlogs_if(|_| true);
    }

    fn end_backlogs_if(&mut self, is_over: impl Fn(Backlog) -> bool) {
        if self.backlogs == 0 {
            return;
        }
        for at in 0..self.ports.len() {
            if self.ports[at].backlog.is_some_and(&is_over) {
                self.ports[at].is_stuck = true;
                self.end_backlog(self.ports[at].id);
            }
        }
    }
}

impl Backlog {
    /// Counts one packet more; `false`: it is too much.
    fn takes(&mut self, len: usize) -> bool {
        self.packets += 1;
        self.bytes += len;
        self.packets <= BACKLOG_PACKETS_MAX && self.bytes <= BACKLOG_BYTES_MAX
    }
}
