//! Packets that other workers hand over, for queue pairs of this one.
//!
//! A receiver without room makes its packets stay in the ring, others go past them. The wait is
//! bounded in time, as everywhere, and in packets and bytes; and when what waits takes up half of a
//! ring, which is released only from the front, it is dropped: one guest that does not receive
//! cannot take from others a ring that all share.

use ringway_device::Queue;
use ringway_net::{DropReason, Packet, Put};
use ringway_switch::PortId;
use ringway_virtq::Arm;

use crate::capture::observers::Observers;
use crate::forward::VisitEnd;
use crate::forward::budget::{BUDGET_UNITS, UNIT_LEN};
use crate::forward::completion::Completion;
use crate::forward::observed::grown;
use crate::journal::worker_line::{Busy, VisitNote, WorkerLine};
use crate::memory::ring_words::Entry;
use crate::pace::Flush;
use crate::peers::WorkerPeers;
use crate::peers::ring::HandedOver;
use crate::port::queue_pair::{End, PayloadLifetime};
use crate::port::table::PortTable;
use crate::worker::schedule::Schedule;

/// How often a guest may post too few buffers while it is being asked to say when it has some.
const RACES_MAX: usize = 3;

/// The parts of a worker that deliver packets of other workers.
pub(crate) struct Arrivals<'a> {
    pub(crate) ports: &'a mut PortTable,
    pub(crate) schedule: &'a mut Schedule,
    pub(crate) completion: &'a mut Completion,
    /// Captures, if there are any.
    pub(crate) observers: Option<&'a mut Observers>,
    pub(crate) journal: Option<&'a WorkerLine>,
    /// Done for packets of one worker in this turn, in units.
    pub(crate) work: u32,
}

impl Arrivals<'_> {
    /// Delivers what other workers have handed over, one budget of each: what a turn takes too much
    /// is taken off the next one. Whether something came.
    pub(crate) fn take(&mut self, peers: &mut WorkerPeers) -> bool {
        if peers.incoming_count() == 0 {
            return false;
        }
        let mut has_found = false;
        for at in 0..peers.incoming_count() {
            self.work = peers.debt(at);
            while self.work < BUDGET_UNITS {
                let Some(packet) = peers.peek(at) else { break };
                let Entry { port, pair, .. } = packet.entry;
                self.note(Some(Busy::of(PortId(port), pair)));
                let waits = self.deliver(&packet);
                has_found |= !waits;
                peers.settle(at, waits);
            }
            self.note(None);
            peers.set_debt(at, self.work.saturating_sub(BUDGET_UNITS));
            peers.release(at);
            if peers.is_crowded(at) {
                // The packets that wait keep others from the ring, so they do not wait any longer.
                self.schedule.end_backlogs_if(|_| true, self.ports, peers);
            }
        }
        let flush = Flush::at_end();
        let note = VisitNote::of(self.journal, None);
        let call_again = self.schedule.flush_dirty(VisitEnd::Idle, flush, self.ports, note);
        note.delivers_no_more();
        self.schedule.after_call(call_again);
        has_found
    }

    /// Notes to whom a packet is delivered.
    fn note(&self, busy: Option<Busy>) {
        self.journal.iter().for_each(|line| line.set_busy(busy));
    }

    /// `true`: the packet waits for room.
    pub(crate) fn deliver(&mut self, handed: &HandedOver) -> bool {
        let entry = &handed.entry;
        self.work += 1 + entry.len / UNIT_LEN;
        let port = self.ports.ports.get(usize::from(entry.port));
        // It was meant for a port that is gone.
        if port.is_none_or(|port| port.generation != entry.generation) {
            return false;
        }
        self.ports.note_sender(PortId(entry.from), self.schedule.turn_at);
        let Some(slot) = self.ports.slot_of(PortId(entry.port), entry.pair) else { return false };
        let pair = self.ports.at(slot);
        if let Some(backlog) = &mut pair.room.backlog {
            if backlog.add(entry.len as usize) {
                return true;
            }
            pair.count_drop(DropReason::NoRoom);
            return false;
        }
        let packet = Packet { header: &entry.header, payload: &handed.payload, len: entry.len };
        for _ in 0..RACES_MAX {
            let pair = self.ports.at(slot);
            let lifetime = PayloadLifetime::CallOnly;
            let before = self.observers.is_some().then(|| pair.drops());
            let completed = self.completion.put(pair, &packet, lifetime, handed.segments_done);
            self.work += pair.take_extra_units();
            if completed.packets > 0 {
                // One is counted already.
                let cut = u32::try_from(completed.packets - 1).unwrap_or(BUDGET_UNITS);
                self.work += cut;
                self.schedule.dirty.add(slot);
            }
            match completed.put {
                Put::Done => pair.room.is_stuck = false,
                Put::Refused | Put::Unfinished => {}
                Put::NoRoom if pair.room.is_stuck => pair.count_drop(DropReason::NoRoom),
                Put::NoRoom => {
                    if self.is_asked_for_room(slot) {
                        break;
                    }
                    continue;
                }
            }
            if let (Some(observers), Some(before)) = (&mut self.observers, before) {
                let dropped = grown(&before, &self.ports.at(slot).drops());
                observers.given((PortId(entry.port), entry.pair), &packet, dropped);
            }
            return false;
        }
        self.schedule.begin_backlog(self.ports.at(slot), entry.len as usize);
        true
    }

    /// Asks the receiver to say when it has room; `false`: it may have some already.
    fn is_asked_for_room(&mut self, slot: PortId) -> bool {
        let pair = self.ports.at(slot);
        let flushed = pair.flush_to(Flush::short());
        self.schedule.after_call(flushed.call_again);
        match &mut pair.end {
            End::Guest(guest) => !guest.queues.arm_kicks(Queue::ToGuest, Arm::Next),
            _ => true,
        }
    }
}
