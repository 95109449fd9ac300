//! Packets that wait where they are: for room at a receiver, or for their time to come.
//!
//! How: a packet that waits is the next one of its slot. [`Holds`] lists the slots, and says all
//! that follows from it: which receivers and which rings to other workers are waited for, and until
//! when.

use std::time::{Duration, Instant};

use ringway_device::Queue;
use ringway_switch::{PORTS_MAX, PortId};
use ringway_virtq::Arm;

use crate::os::clock::now;
use crate::port::hold_credit::HOLD_MAX;
use crate::port::{End, RoomAt};
use crate::worker::Worker;

/// A packet that waits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hold {
    /// For room there; `None`: only for its time to come.
    pub(crate) to: Option<RoomAt>,
    /// Then the receiver counts as stuck; `None`: it waits as long as it takes.
    pub(crate) until: Option<Instant>,
}

/// The slots whose next packet waits, in the order in which they began to.
#[derive(Debug)]
pub(crate) struct Holds(Vec<(PortId, Hold)>);

impl Holds {
    pub(crate) fn new() -> Self {
        Self(Vec::with_capacity(PORTS_MAX))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What the next packet of this slot waits for.
    #[inline]
    pub(crate) fn of(&self, slot: PortId) -> Option<Hold> {
        self.0.iter().find(|(waiting, _)| *waiting == slot).map(|(_, hold)| *hold)
    }

    /// The workers whose rings are waited for, each once for every packet.
    pub(crate) fn workers(&self) -> impl Iterator<Item = u16> + Clone + '_ {
        self.0.iter().filter_map(|(_, hold)| match hold.to {
            Some(RoomAt::Worker(worker)) => Some(worker),
            _ => None,
        })
    }

    /// When the first wait ends that has an end.
    pub(crate) fn first_end(&self) -> Option<Instant> {
        self.0.iter().filter_map(|(_, hold)| hold.until).min()
    }

    fn is_waited_for(&self, at: RoomAt) -> bool {
        self.0.iter().any(|(_, hold)| hold.to == Some(at))
    }

    fn take(&mut self, is_it: impl Fn(PortId, &Hold) -> bool) -> Option<(PortId, Hold)> {
        let at = self.0.iter().position(|(slot, hold)| is_it(*slot, hold))?;
        Some(self.0.remove(at))
    }

    /// The next packet of a slot that does not wait yet waits from now on.
    pub(crate) fn add(&mut self, slot: PortId, hold: Hold) {
        assert!(self.of(slot).is_none(), "a slot that waits is not visited");
        self.0.push((slot, hold));
    }
}

impl Worker {
    /// Room came up there: everybody who waits for it tries again.
    pub(crate) fn release_holds(&mut self, to: RoomAt) {
        while let Some((slot, _)) = self.holds.take(|_, hold| hold.to == Some(to)) {
            self.make_ready(slot);
        }
        self.end_credit(to);
    }

    /// A packet waits no longer. The receiver is charged only while others do.
    pub(crate) fn end_credit(&mut self, at: RoomAt) {
        let RoomAt::Port(slot) = at else { return };
        let Some(port) = self.ports.get_mut(usize::from(slot.0)) else { return };
        let is_charged = port.credit.is_waiting() && port.backlog.is_none();
        if is_charged && !self.holds.is_waited_for(at) {
            port.credit.end(Instant::now());
        }
    }

    /// Whoever waits without end tries again: the reason for it is gone.
    pub(crate) fn release_endless_holds(&mut self) {
        while let Some((slot, _)) = self.holds.take(|_, hold| hold.until.is_none()) {
            self.make_ready(slot);
        }
    }

    pub(crate) fn end_expired_holds(&mut self) {
        if self.holds.is_empty() && self.backlogs == 0 {
            return;
        }
        while let Some(worker) = self.worker_with_room() {
            self.peers.set_stuck(worker, false);
            self.release_holds(RoomAt::Worker(worker));
        }
        let now = Instant::now();
        let is_over = |_, hold: &Hold| hold.until.is_some_and(|until| until <= now);
        while let Some((slot, hold)) = self.holds.take(is_over) {
            self.make_ready(slot);
            let Some(to) = hold.to else { continue };
            match to {
                RoomAt::Port(slot) => self.ports[usize::from(slot.0)].is_stuck = true,
                RoomAt::Worker(worker) => self.peers.set_stuck(worker, true),
            }
            self.release_holds(to);
        }
        self.end_expired_backlogs(now);
    }

    /// A worker whose ring is waited for and has room.
    fn worker_with_room(&self) -> Option<u16> {
        self.holds.workers().find(|worker| self.peers.has_room(*worker))
    }

    /// Says that this worker goes to sleep; `false`: it must not, there is something to do.
    pub(crate) fn may_sleep(&self) -> bool {
        self.peers.may_sleep(self.holds.workers())
    }

    /// The port's time has not come yet. Its guest need not kick meanwhile.
    pub(crate) fn on_wait(&mut self, id: PortId, at_ns: u64) {
        let wait = Duration::from_nanos(at_ns.saturating_sub(now().0));
        self.holds.add(id, Hold { to: None, until: Some(Instant::now() + wait) });
    }

    /// Asks the receiver to say when it has room, and looks once more in case it has.
    pub(crate) fn on_hold(&mut self, id: PortId, to: RoomAt) {
        match to {
            RoomAt::Worker(worker) => self.peers.ask_for_room(worker),
            RoomAt::Port(slot) => {
                if let End::Guest(guest) = &mut self.ports[usize::from(slot.0)].end
                    && guest.queues.arm_kicks(Queue::ToGuest, Arm::Next)
                {
                    return self.make_ready(id);
                }
            }
        }
        // A tap on a cable keeps nobody else waiting, and the kernel bounds its queue.
        let is_tap = matches!(self.ports[usize::from(id.0)].end, End::Tap(_));
        let is_patient = self.cable.is_some() && is_tap;
        let until = (!is_patient).then(|| match to {
            RoomAt::Port(slot) => self.ports[usize::from(slot.0)].wait_until(Instant::now()),
            RoomAt::Worker(_) => Instant::now() + HOLD_MAX,
        });
        self.holds.add(id, Hold { to: Some(to), until });
        if let RoomAt::Port(slot) = to {
            self.report_broken(slot);
        }
    }

    /// What the slot's next packet waits for does not matter any more.
    pub(crate) fn forget_hold(&mut self, id: PortId) {
        let taken = self.holds.take(|slot, _| slot == id);
        if let Some(to) = taken.and_then(|(_, hold)| hold.to) {
            self.end_credit(to);
        }
    }
}
