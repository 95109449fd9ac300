//! Moderation of one guest's queue pair: the moderators of `ringway_net::moderation`, and their
//! timers.
//!
//! | queue | what is moderated | role |
//! |---|---|---|
//! | receiveq | calls about packets | producer |
//! | transmitq | calls about used buffers | used buffers |
//! | transmitq | kicks about packets | consumer |
//!
//! A guest that has set coalescing is called as it asked, not as the port's policy says: these are
//! its interrupts. How it kicks is still up to the policy.
//!
//! Limits: a timer ends as late as the worker's timer slack and the visit that goes on. A request
//! is not known to the other queue pairs of the guest.

mod direction;

use ringway_device::{Published, Queue, QueueId};
use ringway_net::moderation::{Cause, OutsideEvent, Policy, Role, Visit};
use ringway_net::{Coalescing, Counters, Nanos};
use ringway_virtq::Arm;

use crate::os::clock::now;
use direction::Direction;

/// The state of a moderator of a guest's queue, for statistics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PaceSnapshot {
    /// The queue that it moderates.
    pub queue: QueueId,
    /// The direction of the queue: `calls` for packets, `returns` for used transmit buffers,
    /// `kicks`.
    pub direction: &'static str,
    /// Packets so far that this is about.
    pub packets: u64,
    /// Notifications so far.
    pub notifications: u64,
    /// Packets that may pass before the other side is notified, and how long at most they wait.
    pub window: u32,
    /// See `window`, in nanoseconds.
    pub hold_ns: u64,
    /// Why, in a few words.
    pub cause: &'static str,
}

/// The moderators of one queue pair. It reads no clock and touches no ring, so a simulation drives
/// the same code.
#[derive(Debug)]
pub struct Pace {
    calls: Direction,
    used: Direction,
    kicks: Direction,
    /// Taken from the guest since its transmitq was last idle.
    taken: Published,
}

/// How the visit ended that is flushed.
#[derive(Debug, Clone, Copy)]
pub struct Flush {
    /// When it ended.
    pub now: Nanos,
    /// The source has more: the worker comes back at once.
    pub more: bool,
    /// The guest has no buffers left, and posts new ones when it is called.
    pub short: bool,
}

impl Flush {
    /// A visit has ended here, and nothing more is at hand.
    pub(crate) fn at_end() -> Self {
        Self { now: now(), more: false, short: false }
    }

    /// The guest has no buffers left.
    pub(crate) fn short() -> Self {
        Self { short: true, ..Self::at_end() }
    }

    fn visit(self, moved: Published, bulk: u32) -> Visit {
        let Self { now, more, short } = self;
        Visit { now, moved: moved.packets, bulk, more, short }
    }
}

impl Pace {
    /// All directions under the same policy.
    pub fn new(policy: Policy) -> Self {
        Self {
            calls: Direction::new(Role::Producer, policy),
            used: Direction::new(Role::UsedBuffers, policy),
            kicks: Direction::new(Role::Consumer, policy),
            taken: Published::default(),
        }
    }

    /// A queue of `size` entries starts: nothing is known about its traffic.
    pub fn start(&mut self, queue: Queue, size: u16) {
        match queue {
            Queue::ToGuest => self.calls.start(size),
            Queue::FromGuest => {
                self.used.start(size);
                self.kicks.start(size);
                self.taken = Published::default();
            }
            Queue::Control => {}
        }
    }

    /// A queue has stopped: its timers do not wake the worker.
    pub(crate) fn stop(&mut self, queue: Queue) {
        match queue {
            Queue::ToGuest => self.calls.wake_at = None,
            Queue::FromGuest => (self.used.wake_at, self.kicks.wake_at) = (None, None),
            Queue::Control => {}
        }
    }

    /// Follows the limits that the guest has set for its queue pair number `pair`; which queues
    /// must be told now of what was held back.
    pub(crate) fn follow_coalescing(
        &mut self,
        coalescing: &Coalescing,
        pair: u16,
    ) -> [(Queue, bool); 2] {
        let [to, from] = [2 * pair, 2 * pair + 1].map(|queue| coalescing.of(queue));
        [
            (Queue::ToGuest, self.calls.follow_limits(to)),
            (Queue::FromGuest, self.used.follow_limits(from)),
        ]
    }

    /// Another policy from now on; which queues must be told now of what was held back.
    pub(crate) fn follow(&mut self, policy: Policy, now: Nanos) -> [(Queue, bool); 2] {
        if self.kicks.follow(policy) {
            // The timer was what the guest had instead of a kick.
            self.kicks.wake_at = Some(now);
        }
        [(Queue::ToGuest, self.calls.follow(policy)), (Queue::FromGuest, self.used.follow(policy))]
    }

    /// Packets were published in the receiveq. `requests`: whether one of them was a request, if
    /// that is known. `true`: ask whether the guest wants a call.
    pub fn gave(&mut self, moved: Published, requests: Option<bool>, flush: Flush) -> bool {
        let Published { packets, long } = moved;
        if packets > 0 {
            self.kicks.on(flush.now, OutsideEvent::Reverse { packets, long });
        }
        // Without a request all of them are long, or acknowledgements of what the guest sends.
        let is_answer = requests == Some(false) && self.kicks.state().cause == Cause::Bulk;
        let bulk = if is_answer { packets } else { long };
        let is_time = self.calls.produced(flush.visit(moved, bulk));
        if requests == Some(true) {
            self.calls.on(flush.now, OutsideEvent::Request);
            self.kicks.on(flush.now, OutsideEvent::Request);
        }
        is_time
    }

    /// Packets were taken from the transmitq, and their buffers published as used; `true`: ask
    /// whether the guest wants a call.
    pub fn took(&mut self, moved: Published, flush: Flush) -> bool {
        self.taken.packets = self.taken.packets.saturating_add(moved.packets);
        self.taken.long = self.taken.long.saturating_add(moved.long);
        self.used.produced(flush.visit(moved, moved.long))
    }

    /// The guest was called about packets.
    pub fn called(&mut self, now: Nanos) {
        self.used.on(now, OutsideEvent::Called);
    }

    /// Whether packets were taken from the transmitq since it was last idle.
    pub(crate) fn has_taken(&self) -> bool {
        self.taken.packets > 0
    }

    /// The transmitq is idle: when the guest shall kick.
    pub fn idle(&mut self, now: Nanos) -> Arm {
        let moved = std::mem::take(&mut self.taken);
        let flush = Flush { now, more: false, short: false };
        self.kicks.consumed(flush.visit(moved, moved.long))
    }

    /// The transmitq is idle, and the worker polls it instead of arming it.
    pub fn polls(&mut self, now: Nanos) {
        self.taken = Published::default();
        self.kicks.on(now, OutsideEvent::Polled);
        self.kicks.wake_at = None;
    }

    /// Whether it must know of requests to the guest: bulk is held, or was until a request.
    pub fn wants_requests(&self) -> bool {
        let is_bulk =
            |direction: &Direction| matches!(direction.state().cause, Cause::Bulk | Cause::Request);
        is_bulk(&self.kicks) || is_bulk(&self.calls)
    }

    /// When the worker has to come back.
    pub fn wake_at(&self) -> Option<Nanos> {
        let all = [self.calls.wake_at, self.used.wake_at, self.kicks.wake_at];
        all.into_iter().flatten().min()
    }

    /// Whether the transmitq is to be visited because a timer has ended, which it then has.
    pub fn end_kick_timer(&mut self, now: Nanos) -> bool {
        let is_due = self.kicks.is_due(now);
        if is_due {
            self.kicks.wake_at = None;
        }
        is_due
    }

    /// Whether the guest need not kick: its transmitq is visited when it gets packets.
    pub(crate) fn relies_on_polling(&self) -> bool {
        self.kicks.wake_at.is_some() && self.kicks.state().cause == Cause::Bulk
    }

    /// Whether something of the queue waits for a timer.
    pub(crate) fn waits(&self, queue: Queue) -> bool {
        match queue {
            Queue::ToGuest => self.calls.wake_at.is_some(),
            Queue::FromGuest => self.used.wake_at.or(self.kicks.wake_at).is_some(),
            Queue::Control => false,
        }
    }

    /// The state of the moderators of the pair number `pair`, of which this was counted.
    pub(crate) fn snapshot(&self, pair: u16, to: &Counters, from: &Counters) -> [PaceSnapshot; 3] {
        let all = [
            (Queue::ToGuest, "calls", &self.calls, (to.packets, to.calls)),
            (Queue::FromGuest, "returns", &self.used, (from.packets, from.calls)),
            (Queue::FromGuest, "kicks", &self.kicks, (from.packets, from.kicks)),
        ];
        all.map(|(queue, name, direction, (packets, notifications))| PaceSnapshot {
            queue: QueueId { pair, queue },
            direction: name,
            packets,
            notifications,
            window: direction.state().window,
            hold_ns: direction.state().hold_ns,
            cause: direction.cause(),
        })
    }
}

#[cfg(test)]
mod tests;
