//! Used buffers of a transmitq: their owner wants them back, but seldom waits for them.
//!
//! A guest that sends can go on until its ring is short, so a call for each used buffer wakes it
//! for nothing. What may wait for one is a sender with a limit on bytes in flight (TCP small
//! queues, a socket's send buffer): it stops sending. So the call comes when the guest has sent
//! nothing for a while, when a good part of the ring has come back, or when the oldest buffer has
//! waited long enough for one flow to stand still behind the others.

use super::{Held, NOTHING, Nanos, Plan, Side, Visit};

/// Longest lull in nanoseconds before the call. TCP small queues lets at least two packets of
/// 64 KiB go unreturned: two per 50 µs are 20 Gb/s, so a single flow that waits loses nothing
/// that it could have had.
pub const LULL_NS: u64 = 50_000;

/// Longest wait in nanoseconds of a buffer while others keep coming. A quarter of the
/// millisecond of data that TCP small queues allows a fast flow.
pub const RETURN_WAIT_NS: u64 = 250_000;

/// State of the way back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Returns {
    held: Held,
    last: Nanos,
    window: u32,
}

impl Returns {
    /// In a queue of `size` entries.
    pub fn new(size: u16) -> Self {
        // A quarter: the guest is never stopped by buffers that only wait to be called for, and
        // has three quarters left to go on sending until it reacts.
        let window = (u32::from(size) / 4).max(1);
        Self { held: Held { packets: 0, since: Nanos(0) }, last: Nanos(0), window }
    }

    pub(super) const fn window(&self) -> u32 {
        self.window
    }

    pub(super) fn after(&mut self, visit: Visit) -> Plan {
        debug_assert_eq!(visit.side, Side::Gives);
        self.held.add(visit.moved, visit.now);
        if self.held.packets == 0 {
            return NOTHING;
        }
        if visit.moved > 0 {
            self.last = visit.now;
        }
        let wake_at = self.last.plus(LULL_NS).min(self.held.since.plus(RETURN_WAIT_NS));
        if visit.short || self.held.packets >= self.window || visit.now >= wake_at {
            return self.held.release();
        }
        Plan::hold(wake_at)
    }
}
