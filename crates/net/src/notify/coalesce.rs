//! Notification coalescing as a driver configures it (virtio 1.2 §5.1.6.5.6, virtio 1.3
//! §5.1.6.5.7 for single queues).
//!
//! A giver counts packets and time from the first packet after a notification, and the condition
//! is met when either limit is reached; with one limit at 0 it is met by every packet. Whether the
//! peer then is notified is still up to event suppression.
//!
//! A device may notify more often than it was asked to: it does when the peer cannot go on without,
//! which is when all entries of the ring wait for the notification.

use super::{Held, NOTHING, Nanos, Plan, Side, Visit, arm_after};

/// The two limits, named as in `struct virtio_net_ctrl_coal`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CoalesceLimits {
    /// Packets before a notification.
    pub max_packets: u32,
    /// Microseconds before a notification.
    pub max_usecs: u32,
}

impl CoalesceLimits {
    /// Most packets that a driver may ask for: no queue has more entries.
    pub const PACKETS_MAX: u32 = 32_768;
    /// Longest delay in microseconds that a driver may ask for: beyond a second a guest looks dead.
    pub const USECS_MAX: u32 = 1_000_000;

    /// Whether a driver may ask for this.
    pub const fn is_in_range(self) -> bool {
        self.max_packets <= Self::PACKETS_MAX && self.max_usecs <= Self::USECS_MAX
    }

    /// Whether anything is ever held back.
    pub const fn holds(self) -> bool {
        self.max_packets > 1 && self.max_usecs > 0
    }

    /// The time limit in nanoseconds.
    pub const fn timer_ns(self) -> u64 {
        self.max_usecs as u64 * 1000
    }
}

/// State of one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Coalesce {
    limits: CoalesceLimits,
    /// Entries of the ring.
    size: u32,
    held: Held,
}

impl Coalesce {
    /// With nothing counted yet, in a queue of `size` entries.
    pub fn new(limits: CoalesceLimits, size: u16) -> Self {
        let held = Held { packets: 0, since: Nanos(0) };
        Self { limits, size: u32::from(size).max(1), held }
    }

    /// What was configured.
    pub const fn limits(&self) -> CoalesceLimits {
        self.limits
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
        let wake_at = self.held.since.plus(self.limits.timer_ns());
        let is_full = self.held.packets >= self.limits.max_packets.min(self.size);
        let is_met = !self.limits.holds() || is_full || visit.now >= wake_at;
        if is_met || visit.short {
            return self.held.release();
        }
        Plan::hold(wake_at)
    }

    fn take(&self, visit: Visit) -> Plan {
        match (visit.more, visit.moved) {
            (true, _) => Plan::COME_BACK,
            (false, 1..) if self.limits.holds() => Plan {
                arm: arm_after(self.limits.max_packets),
                ..Plan::hold(visit.now.plus(self.limits.timer_ns()))
            },
            (false, _) => NOTHING,
        }
    }
}
