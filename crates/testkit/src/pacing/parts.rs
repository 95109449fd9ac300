//! What the simulation is made of: a processor, a notifier with its timer, a visit.

use ringway_net::notify::{Nanos, Notifier, Plan, Side, Visit};
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

/// A notifier with the moment it wants to be visited at.
pub(super) struct Paced {
    pub(super) notifier: Notifier,
    pub(super) side: Side,
    pub(super) wake_at: Option<u64>,
}

impl Paced {
    pub(super) fn new(notifier: Notifier, side: Side) -> Self {
        Self { notifier, side, wake_at: None }
    }

    /// `None`: nothing moved and no timer ended, so there is nothing to decide.
    pub(super) fn after(&mut self, now: u64, moved: usize, more: bool) -> Decided {
        if moved == 0 && self.wake_at.is_none_or(|at| at > now) {
            return Decided(None);
        }
        let moved = u32::try_from(moved).unwrap_or(u32::MAX);
        let visit = Visit { now: Nanos(now), side: self.side, moved, more, short: false };
        let plan = self.notifier.after(visit);
        self.wake_at = plan.wake_at.map(|at| at.0);
        Decided(Some(plan))
    }
}

/// What a notifier decided, if there was anything to decide.
pub(super) struct Decided(Option<Plan>);

impl Decided {
    pub(super) fn notify(&self) -> bool {
        self.0.is_some_and(|plan| plan.notify)
    }

    pub(super) fn arm_or(&self, before: Arm) -> Arm {
        self.0.map_or(before, |plan| plan.arm)
    }
}

/// What a visit of the device has moved.
#[derive(Default)]
pub(super) struct Done {
    pub(super) from: usize,
    pub(super) to: usize,
}
