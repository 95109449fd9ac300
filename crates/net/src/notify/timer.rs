//! The 2008 scheme: the first notification starts a timer, and while it runs there are no others.
//!
//! A taker suppresses notifications, looks again when the timer ends, and starts it anew for as
//! long as that finds something (rearm). A ring that fills is flushed early. Where it differs from
//! 2008: what the first notification announced is taken at once, not when the timer ends.

use super::{Held, NOTHING, Nanos, Plan, Side, Visit, arm_after};

/// State of one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timer {
    timer_ns: u64,
    /// Buffers after which the ring counts as filling up.
    flush_at: u32,
    held: Held,
}

impl Timer {
    /// A timer of so many microseconds, in a queue of `size` entries.
    pub fn new(usecs: u32, size: u16) -> Self {
        let held = Held { packets: 0, since: Nanos(0) };
        // Three quarters: what Linux calls late enough, with room left until the peer reacts.
        Self { timer_ns: u64::from(usecs) * 1000, flush_at: (u32::from(size) * 3 / 4).max(1), held }
    }

    pub(super) const fn window(&self) -> u32 {
        self.flush_at
    }

    pub(super) const fn timer_ns(&self) -> u64 {
        self.timer_ns
    }

    pub(super) fn after(&mut self, visit: Visit) -> Plan {
        match visit.side {
            Side::Gives => self.give(visit),
            Side::Takes => self.take(visit),
        }
    }

    fn give(&mut self, visit: Visit) -> Plan {
        self.held.add(visit.moved, visit.now);
        if self.held.packets == 0 {
            return NOTHING;
        }
        let wake_at = self.held.since.plus(self.timer_ns);
        if visit.short || self.held.packets >= self.flush_at || visit.now >= wake_at {
            return self.held.release();
        }
        Plan::hold(wake_at)
    }

    fn take(&self, visit: Visit) -> Plan {
        match (visit.more, visit.moved) {
            (true, _) => Plan::COME_BACK,
            (false, 0) => NOTHING,
            (false, _) => {
                Plan { arm: arm_after(self.flush_at), ..Plan::hold(visit.now.plus(self.timer_ns)) }
            }
        }
    }
}
