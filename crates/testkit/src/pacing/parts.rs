//! What the simulation is made of: a processor, a packet, a notifier with its timer, a visit.

use ringway_net::notify::{Nanos, Notifier, Side, Visit};
use ringway_virtq::Arm;

/// A turn that never comes.
pub(super) const NEVER: u64 = u64::MAX;

/// A processor: its next turn, and whether it sleeps until then.
#[derive(Default)]
pub(super) struct Processor {
    pub(super) turn_at: u64,
    pub(super) is_asleep: bool,
    pub(super) wakes: u64,
}

impl Processor {
    pub(super) fn wake(&mut self, at: u64) {
        if self.is_asleep {
            self.is_asleep = false;
            self.wakes += 1;
            self.turn_at = at;
        }
    }

    /// Sleeps, at most until a timer ends at `wake_at`.
    pub(super) fn sleep(&mut self, wake_at: Option<u64>) {
        self.is_asleep = true;
        self.turn_at = wake_at.unwrap_or(NEVER);
    }
}

/// One thing on its way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Packet {
    pub(super) flow: usize,
    pub(super) is_answer: bool,
    pub(super) len: u32,
    pub(super) ready_at: u64,
    /// When it was published.
    pub(super) given_at: u64,
}

/// A taker's notifier with the moment it wants to be visited at.
pub(super) struct Paced {
    notifier: Notifier,
    pub(super) wake_at: Option<u64>,
}

impl Paced {
    pub(super) fn new(notifier: Notifier) -> Self {
        Self { notifier, wake_at: None }
    }

    /// The owner has asked the peer something: an answer will come here.
    pub(super) fn asked(&mut self, now: u64) {
        self.notifier.peer_was_asked(Nanos(now));
        if self.notifier.keeps_waiting() {
            // So far it is called when the timer ends.
            self.wake_at = self.wake_at.map(|_| now);
        }
    }

    /// The owner has sent a packet, and looks here as well if the notifier counts on it.
    pub(super) fn looked(&mut self, is_long: bool) {
        self.notifier.looked(1, is_long.into());
    }

    /// Whether the owner looks here whenever it is awake.
    pub(super) fn looks(&self) -> bool {
        self.notifier.counts_on_looks()
    }

    /// When to be notified, behind `moved` packets, `long` of them long. Where nothing moved and no timer
    /// ended, there is nothing to decide, unless the owner looks by itself.
    pub(super) fn after(&mut self, now: u64, moved: usize, long: u64) -> Arm {
        if moved == 0 && !self.looks() && self.wake_at.is_none_or(|at| at > now) {
            return Arm::Next;
        }
        self.notifier.carried(long);
        let moved = u32::try_from(moved).unwrap_or(u32::MAX);
        let now = Nanos(now);
        let visit = Visit { now, side: Side::Takes, moved, more: false, short: false };
        let plan = self.notifier.after(visit);
        self.wake_at = plan.wake_at.map(|at| at.0);
        plan.arm
    }
}

/// What a visit of the device has moved.
#[derive(Default)]
pub(super) struct Done {
    pub(super) from: usize,
    pub(super) to: usize,
}

/// Long packets from the guest and to it so far.
#[derive(Default)]
pub(super) struct Long {
    pub(super) from: u64,
    pub(super) to: u64,
}
