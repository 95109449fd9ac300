//! The pause between two turns of the worker: look again, or sleep.
//!
//! Theory of operation: a transmitq that has run empty is not armed at once, so that its guest need
//! not kick while somebody looks. When a turn leaves nothing to do, [`Polling`] decides. To look
//! means to visit these queues again; file descriptors are looked at only every [`LOOK_AT_FDS_NS`],
//! because that is a system call. To sleep means, in this order: arm every such queue, look at each
//! once more, say to the other workers that this one sleeps, look once more for what they handed
//! over, and only then wait. A packet that comes at any moment either is found by the second look,
//! or its sender finds the queue armed and kicks.
//!
//! Limits: a queue is left unarmed only while its worker has nothing else to do; of a worker that
//! always has, every idle queue is armed.

use std::time::Duration;

use ringway_net::Next;
use ringway_net::notify::Nanos;
use ringway_switch::PortId;

use crate::clock::now_ns;
use crate::effort::WorkerSnapshot;
use crate::port::End;
use crate::worker::Worker;

/// Between two looks at the file descriptors without sleeping, in nanoseconds: twenty times what the
/// look takes, and a sixth of what a wake-up takes.
const LOOK_AT_FDS_NS: u64 = 5_000;

/// What comes before the next turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pause {
    /// Nothing: only rings are looked at.
    None,
    /// A wait of at most this long; `None`: as long as it takes.
    Wait(Option<Duration>),
}

impl Pause {
    /// A look at the file descriptors.
    const LOOK_AT_FDS: Self = Self::Wait(Some(Duration::ZERO));

    /// Whether the worker may sleep in it.
    pub(crate) fn is_sleep(self) -> bool {
        matches!(self, Self::Wait(at_most) if at_most != Some(Duration::ZERO))
    }
}

impl Worker {
    /// A turn is over: what comes before the next one.
    pub(crate) fn pause(&mut self) -> Pause {
        let has_found = std::mem::take(&mut self.has_found);
        if has_found {
            self.polling.found(self.turn_at);
        }
        if !self.ready.is_empty() {
            self.arm_idle_queues();
            return self.look_at_fds(self.turn_at);
        }
        if has_found {
            self.looked_at_fds = Nanos(0);
        }
        if !self.polling.may_look() {
            self.arm_idle_queues();
            return Pause::Wait(self.sleep_at_most());
        }
        let now = Nanos(now_ns());
        match self.polling.idle(now) {
            Next::Look => {
                while let Some(id) = self.unarmed.pop() {
                    self.make_ready(id);
                }
                self.look_at_fds(now)
            }
            Next::Sleep => {
                self.arm_idle_queues();
                Pause::Wait(self.sleep_at_most())
            }
        }
    }

    /// Without sleeping, and not too often.
    fn look_at_fds(&mut self, now: Nanos) -> Pause {
        if now.since(self.looked_at_fds) < LOOK_AT_FDS_NS {
            return Pause::None;
        }
        self.looked_at_fds = now;
        Pause::LOOK_AT_FDS
    }

    /// The queue of that port has run empty: it is armed before the worker sleeps.
    pub(crate) fn leave_unarmed(&mut self, id: PortId) {
        if let End::Guest(guest) = &mut self.ports[usize::from(id.0)].end {
            guest.keep_looking(self.turn_at);
        }
        self.unarmed.push(id);
    }

    fn arm_idle_queues(&mut self) {
        while let Some(id) = self.unarmed.pop() {
            self.arm_idle(id);
        }
    }

    /// How the worker spends its time.
    pub(crate) fn effort(&mut self) -> WorkerSnapshot {
        let polling = self.polling.counters();
        self.effort.roll(Nanos(now_ns()), polling.looked_ns);
        WorkerSnapshot {
            worker: self.team.index(),
            options: self.polling.options(),
            is_polling: self.polling.is_wanted(),
            total: self.effort.total(polling.looked_ns),
            last_second: self.effort.last_second(),
            polling,
        }
    }
}
