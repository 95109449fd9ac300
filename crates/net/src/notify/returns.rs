//! Used buffers of a transmitq: their owner wants them back, but seldom waits for them.
//!
//! A guest that sends can go on until its ring is short, so a call for each used buffer wakes it
//! for nothing. What may wait for one is a sender with a limit on bytes in flight (TCP small
//! queues, a socket's send buffer): it stops sending. So the call comes when the guest has sent
//! nothing for a while, when a good part of the ring has come back, or when the oldest buffer has
//! waited long enough for one flow to stand still behind the others.
//!
//! A lull is worth its time if the guest meanwhile finds the buffer by itself, as one does that is
//! called about an answer. A slow one, under emulation, has not begun to run by then, and is called
//! twice. So the answers are kept: after [`VAIN_LULLS_MAX`] lulls in a row behind which the guest
//! wanted the call all the same, it gets its calls at once, as long as its buffers come one by one.

use super::{Cause, Held, NOTHING, Nanos, Plan, Side, Visit};

/// Longest lull in nanoseconds before the call. TCP small queues lets at least two packets of
/// 64 KiB go unreturned: two per 50 µs are 20 Gb/s, so a single flow that waits loses nothing
/// that it could have had.
pub const LULL_NS: u64 = 50_000;

/// Longest wait in nanoseconds of a buffer while others keep coming. A quarter of the
/// millisecond of data that TCP small queues allows a fast flow.
pub const RETURN_WAIT_NS: u64 = 250_000;

/// Lulls in a row that were of no use before the next buffers are told of at once.
const VAIN_LULLS_MAX: u32 = 16;

/// So many are then, before a lull is tried again. More than 100: see `CAUTION_PACKETS`.
const AT_ONCE_PACKETS: u32 = 128;

/// State of the way back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Returns {
    held: Held,
    last: Nanos,
    window: u32,
    /// Lulls in a row of one buffer, at the end of which the guest wanted a call.
    vain_lulls: u32,
    /// Buffers left to be told of at once.
    at_once: u32,
    /// The last call was asked for at the end of a lull of one buffer.
    is_single: bool,
}

impl Returns {
    /// In a queue of `size` entries.
    pub fn new(size: u16) -> Self {
        // A quarter: the guest is never stopped by buffers that only wait to be called for, and
        // has three quarters left to go on sending until it reacts.
        let window = (u32::from(size) / 4).max(1);
        Self {
            held: Held::default(),
            last: Nanos(0),
            window,
            vain_lulls: 0,
            at_once: 0,
            is_single: false,
        }
    }

    pub(super) const fn window(&self) -> u32 {
        self.window
    }

    pub(super) const fn cause(&self) -> Cause {
        match self.at_once {
            0 => Cause::Fixed,
            _ => Cause::InVain,
        }
    }

    pub(super) fn after(&mut self, visit: Visit) -> Plan {
        debug_assert_eq!(visit.side, Side::Gives);
        self.held.add(visit.moved, visit.now);
        if self.held.packets == 0 {
            return NOTHING;
        }
        let is_alone = self.held.packets == 1;
        if visit.moved > 0 {
            let is_behind_lull = visit.now.since(self.last) >= LULL_NS;
            self.last = visit.now;
            if is_alone && is_behind_lull && self.at_once > 0 {
                self.at_once -= 1;
                return self.held.release();
            }
        }
        let wake_at = self.last.plus(LULL_NS).min(self.held.since.plus(RETURN_WAIT_NS));
        if visit.short || self.held.packets >= self.window || visit.now >= wake_at {
            self.is_single = is_alone && visit.moved == 0 && visit.now >= wake_at;
            return self.held.release();
        }
        Plan::hold(wake_at)
    }

    /// What the ring said when it was asked last: whether the guest wants a call.
    pub(super) fn answered(&mut self, is_wanted: bool) {
        if !core::mem::take(&mut self.is_single) {
            return;
        }
        self.vain_lulls = if is_wanted { self.vain_lulls + 1 } else { 0 };
        if self.vain_lulls >= VAIN_LULLS_MAX {
            // One more in vain is enough after the next try.
            self.vain_lulls -= 1;
            self.at_once = AT_ONCE_PACKETS;
        }
    }
}
