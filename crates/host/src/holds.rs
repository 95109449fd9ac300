//! Packets that wait where they are: for room at a receiver, or for their time to come.

use std::time::{Duration, Instant};

use ringway_device::Queue;
use ringway_switch::PortId;
use ringway_virtq::Arm;

use crate::clock::now_ns;
use crate::patience::HOLD_MAX;
use crate::port::{End, Hold, RoomAt};
use crate::worker::Worker;

impl Worker {
    /// Room came up there: everybody who waits for it tries again.
    pub(crate) fn release_holds(&mut self, to: RoomAt) {
        if self.holding == 0 {
            return;
        }
        for at in 0..self.ports.len() {
            if self.ports[at].hold.is_some_and(|hold| hold.to == Some(to)) {
                self.ports[at].hold = None;
                self.holding -= 1;
                self.make_ready(self.ports[at].id);
            }
        }
        if let RoomAt::Port(slot) = to {
            self.ports[usize::from(slot.0)].patience.end(Instant::now());
        }
    }

    /// Whoever waits without end tries again: the reason for it is gone.
    pub(crate) fn release_endless_holds(&mut self) {
        for at in 0..self.ports.len() {
            let port = &self.ports[at];
            if port.hold.is_some_and(|hold| hold.until.is_none()) {
                self.forget_hold(port.id);
                self.make_ready(self.ports[at].id);
            }
        }
    }

    pub(crate) fn end_expired_holds(&mut self) {
        if self.holding + self.backlogs == 0 {
            return;
        }
        while let Some(worker) = self.team.with_room() {
            self.team.end_wait(worker, false);
            self.release_holds(RoomAt::Worker(worker));
        }
        let now = Instant::now();
        for at in 0..self.ports.len() {
            let hold = self.ports[at].hold;
            let is_over = |hold: &Hold| hold.until.is_some_and(|until| until <= now);
            let Some(hold) = hold.filter(is_over) else { continue };
            match hold.to {
                Some(to) => {
                    match to {
                        RoomAt::Port(slot) => self.ports[usize::from(slot.0)].is_stuck = true,
                        RoomAt::Worker(worker) => self.team.end_wait(worker, true),
                    }
                    self.release_holds(to);
                }
                None => {
                    self.forget_hold(self.ports[at].id);
                    self.make_ready(self.ports[at].id);
                }
            }
        }
        self.end_expired_backlogs(now);
    }

    /// The port's time has not come yet. Its guest need not kick meanwhile.
    pub(crate) fn on_wait(&mut self, id: PortId, at_ns: u64) {
        let wait = Duration::from_nanos(at_ns.saturating_sub(now_ns()));
        self.ports[usize::from(id.0)].hold =
            Some(Hold { to: None, until: Some(Instant::now() + wait) });
        self.holding += 1;
    }

    /// Asks the receiver to say when it has room, and looks once more in case it has.
    pub(crate) fn on_hold(&mut self, id: PortId, to: RoomAt) {
        match to {
            RoomAt::Worker(worker) => self.team.wait_for_room(worker),
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
        self.ports[usize::from(id.0)].hold = Some(Hold { to: Some(to), until });
        self.holding += 1;
        if let RoomAt::Port(slot) = to {
            self.report_broken(slot);
        }
    }

    pub(crate) fn forget_hold(&mut self, id: PortId) {
        if let Some(port) = self.ports.get_mut(usize::from(id.0))
            && port.hold.take().is_some()
        {
            self.holding -= 1;
        }
    }
}
