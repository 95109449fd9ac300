//! The work of a worker, and when it is due: which slots it visits and flushes, which packets wait,
//! and how long it may sleep.
//!
//! Three things wait for a moment to come: packets that are held for room, calls that a User Mode
//! Linux guest may have slept through, and what pacing puts off.

use std::time::Duration;

use ringway_device::Queue;
use ringway_net::Nanos;
use ringway_switch::PortId;
use ringway_virtq::Arm;

use crate::forward::VisitEnd;
use crate::journal::worker_line::VisitNote;
use crate::os::clock::now;
use crate::pace::Flush;
use crate::peers::WorkerPeers;
use crate::port::hold_credit::HOLD_MAX_NS;
use crate::port::queue_pair::QueuePair;
use crate::port::room::{Backlog, RoomAt};
use crate::port::slot_list::SlotList;
use crate::port::table::PortTable;
use crate::uml::UmlRetryTimer;
use crate::worker::holds::{Hold, Holds};

/// The work that is to be done.
#[derive(Debug)]
pub(crate) struct Schedule {
    /// Slots to visit, each once per turn: those first whose kick or packet woke the worker, so
    /// that a single packet does not wait for a visit of a stream.
    pub(crate) ready: SlotList,
    /// Slots to flush at the end of the visit.
    pub(crate) dirty: SlotList,
    /// Slots whose next packet waits, and for what.
    pub(crate) holds: Holds,
    pub(crate) uml_retries: UmlRetryTimer,
    /// Slots with a backlog.
    backlogs: usize,
    /// When this turn of the worker began.
    pub(crate) turn_at: Nanos,
}

impl Schedule {
    pub(crate) fn new() -> Self {
        Self {
            ready: SlotList::new(),
            dirty: SlotList::new(),
            holds: Holds::new(),
            uml_retries: UmlRetryTimer::default(),
            backlogs: 0,
            turn_at: now(),
        }
    }

    /// With `call_again` a guest was called that may sleep through it.
    #[inline]
    pub(crate) fn after_call(&mut self, call_again: bool) {
        if call_again {
            self.uml_retries.expect(self.turn_at);
        }
    }

    /// Calls those guests again that may have slept through the last call.
    pub(crate) fn call_again(&mut self, ports: &mut PortTable) {
        if !self.uml_retries.take(self.turn_at) {
            return;
        }
        let now = self.turn_at;
        for guest in ports.guests() {
            self.after_call(guest.call_again(now));
        }
    }

    /// Publishes once for the whole visit of the slot `from`, and notifies the guests that it is
    /// time to notify.
    pub(crate) fn flush(
        &mut self,
        from: PortId,
        visit: VisitEnd,
        ports: &mut PortTable,
        note: VisitNote<'_>,
    ) {
        let flush = Flush { more: visit == VisitEnd::More, ..Flush::at_end() };
        // A packet that was only staged for a tap lies in the sender's memory until it is written.
        let call_again = self.flush_dirty(visit, flush, ports, note);
        note.delivers_no_more();
        let flushed = ports.at(from).flush_from(flush);
        self.after_call(call_again || flushed.call_again);
    }

    /// Publishes what was put into slots; `true`: a guest was called that may sleep through it.
    pub(crate) fn flush_dirty(
        &mut self,
        visit: VisitEnd,
        flush: Flush,
        ports: &mut PortTable,
        note: VisitNote<'_>,
    ) -> bool {
        let mut call_again = false;
        while let Some(to) = self.dirty.pop_back() {
            let flush = Flush { short: visit == VisitEnd::Hold(RoomAt::Slot(to)), ..flush };
            let pair = ports.at(to);
            note.delivers_into(pair.port);
            let flushed = pair.flush_to(flush);
            call_again |= flushed.call_again;
            if flushed.visit {
                self.ready.add(to);
            }
        }
        call_again
    }

    /// How long the worker may sleep. While there is something to do, not at all. Otherwise until
    /// the first hold or backlog ends, a guest is to be called again, or a moderator's timer ends;
    /// `None`: until something wakes the worker.
    pub(crate) fn sleep_at_most(&self, ports: &PortTable, peers: &WorkerPeers) -> Option<Duration> {
        if !self.ready.is_empty() || !peers.may_sleep(self.holds.workers()) {
            return Some(Duration::ZERO);
        }
        let slots = ports.slots.iter();
        let wake_at = slots.filter_map(QueuePair::wake_at).chain(self.uml_retries.due()).min();
        let waits = self.holds.first_end().into_iter().chain(self.first_backlog_end(ports)).min();
        let first = wake_at.into_iter().chain(waits).min()?;
        Some(Duration::from_nanos(first.since(now())))
    }

    fn first_backlog_end(&self, ports: &PortTable) -> Option<Nanos> {
        if self.backlogs == 0 {
            return None;
        }
        let backlogs = ports.slots.iter().filter_map(|pair| pair.room.backlog);
        backlogs.map(|backlog| backlog.until).min()
    }

    /// Room came up there: every slot whose packet waits for it is visited again.
    pub(crate) fn release(&mut self, to: RoomAt, ports: &mut PortTable) {
        while let Some((slot, _)) = self.holds.take(|_, hold| hold.to == Some(to)) {
            self.ready.add(slot);
        }
        self.end_credit(to, ports);
    }

    /// Room came up in a slot, or what waited for it does not matter any more.
    pub(crate) fn release_slot(
        &mut self,
        slot: PortId,
        ports: &mut PortTable,
        peers: &mut WorkerPeers,
    ) {
        self.release(RoomAt::Slot(slot), ports);
        self.end_backlog(slot, ports, peers);
    }

    /// A packet waits no longer. The receiver is charged only while other packets wait for it.
    fn end_credit(&self, at: RoomAt, ports: &mut PortTable) {
        let RoomAt::Slot(slot) = at else { return };
        let Some(QueuePair { room, .. }) = ports.get(slot) else { return };
        let is_charged = room.credit.is_waiting() && room.backlog.is_none();
        if is_charged && !self.holds.is_waited_for(at) {
            room.credit.end(now());
        }
    }

    /// Slots whose packet waits without end are visited again: the cable is gone.
    pub(crate) fn release_endless(&mut self) {
        while let Some((slot, _)) = self.holds.take(|_, hold| hold.until.is_none()) {
            self.ready.add(slot);
        }
    }

    /// The hold on the slot's next packet does not matter any more.
    pub(crate) fn forget_hold(&mut self, slot: PortId, ports: &mut PortTable) {
        let taken = self.holds.take(|waiting, _| waiting == slot);
        if let Some(to) = taken.and_then(|(_, hold)| hold.to) {
            self.end_credit(to, ports);
        }
    }

    /// Ends the waits whose time is over, and those for rings that have room.
    pub(crate) fn end_expired_holds(&mut self, ports: &mut PortTable, peers: &mut WorkerPeers) {
        if self.holds.is_empty() && self.backlogs == 0 {
            return;
        }
        while let Some(worker) = self.worker_with_room(peers) {
            peers.set_stuck(worker, false);
            self.release(RoomAt::Worker(worker), ports);
        }
        let now = now();
        let is_over = |_, hold: &Hold| hold.until.is_some_and(|until| until <= now);
        while let Some((slot, hold)) = self.holds.take(is_over) {
            self.ready.add(slot);
            let Some(to) = hold.to else { continue };
            match to {
                RoomAt::Slot(slot) => ports.at(slot).room.is_stuck = true,
                RoomAt::Worker(worker) => peers.set_stuck(worker, true),
            }
            self.release(to, ports);
        }
        self.end_backlogs_if(|backlog| backlog.until <= now, ports, peers);
    }

    /// A worker whose ring is waited for and has room.
    fn worker_with_room(&self, peers: &WorkerPeers) -> Option<u16> {
        self.holds.workers().find(|worker| peers.has_room(*worker))
    }

    /// The slot's time has not come yet. Its guest need not kick meanwhile.
    pub(crate) fn wait(&mut self, slot: PortId, at: Nanos) {
        self.holds.add(slot, Hold { to: None, until: Some(at) });
    }

    /// The next packet of the slot `id` waits for room at `to`. The receiver is asked to say when
    /// it has room; if it has some already, the slot is visited again. With `is_endless` the packet
    /// waits without a time limit.
    pub(crate) fn hold(
        &mut self,
        id: PortId,
        to: RoomAt,
        is_endless: bool,
        (ports, peers): (&mut PortTable, &WorkerPeers),
    ) {
        match to {
            RoomAt::Worker(worker) => peers.ask_for_room(worker),
            RoomAt::Slot(slot) => {
                if let Some(guest) = ports.guest(slot)
                    && guest.queues.arm_kicks(Queue::ToGuest, Arm::Next)
                {
                    return self.ready.add(id);
                }
            }
        }
        let until = (!is_endless).then(|| match to {
            RoomAt::Slot(slot) => ports.at(slot).wait_until(now()),
            RoomAt::Worker(_) => now().plus(HOLD_MAX_NS),
        });
        self.holds.add(id, Hold { to: Some(to), until });
    }

    /// The first packet from another worker waits for room in a slot.
    pub(crate) fn begin_backlog(&mut self, pair: &mut QueuePair, len: usize) {
        let mut backlog = Backlog::new(pair.wait_until(now()));
        backlog.add(len);
        pair.room.backlog = Some(backlog);
        self.backlogs += 1;
    }

    /// Room came up, or the time is up: packets that wait for this receiver are offered to it
    /// again.
    fn end_backlog(&mut self, slot: PortId, ports: &mut PortTable, peers: &mut WorkerPeers) {
        if self.backlogs == 0 {
            return;
        }
        let Some(pair) = ports.get(slot) else { return };
        if pair.room.backlog.take().is_none() {
            return;
        }
        self.backlogs -= 1;
        self.end_credit(RoomAt::Slot(slot), ports);
        peers.offer_again();
        // All that stays is counted anew.
        let backlogs = ports.slots.iter_mut().filter_map(|pair| pair.room.backlog.as_mut());
        backlogs.for_each(Backlog::recount);
    }

    /// Ends those backlogs for which `is_over` holds; their receivers count as stuck.
    pub(crate) fn end_backlogs_if(
        &mut self,
        is_over: impl Fn(Backlog) -> bool,
        ports: &mut PortTable,
        peers: &mut WorkerPeers,
    ) {
        if self.backlogs == 0 {
            return;
        }
        for at in 0..ports.slots.len() {
            let QueuePair { slot, room, .. } = &mut ports.slots[at];
            if room.backlog.is_some_and(&is_over) {
                room.is_stuck = true;
                let slot = *slot;
                self.end_backlog(slot, ports, peers);
            }
        }
    }
}
