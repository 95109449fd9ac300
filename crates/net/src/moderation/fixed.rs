//! The fixed policies: each is a number of packets and a time, of which the first one ends a hold.
//!
//! | policy | packets | time |
//! |---|---|---|
//! | `every`, `on-empty` | 1 | none |
//! | `timer:T` (the scheme of 2008) | three quarters of the ring | T |
//! | `coalesce:N/T` (virtio 1.2 §5.1.6.5.6, virtio 1.3 §5.1.6.5.7) | N | T |
//!
//! With one limit at 0 every packet ends the hold. A device notifies earlier than a guest asked for
//! when all entries of the ring wait for the notification: the guest cannot go on without it.
//! A consumer suppresses notifications for that time, looks, and starts again if it found packets.

use super::{Cause, Held, Policy, Role, State, Visit, VisitPlan};

/// State of one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fixed {
    role: Role,
    packets: u32,
    hold_ns: u64,
    /// Whether it waits until its owner has nothing more at hand.
    on_empty: bool,
    held: Held,
}

impl Fixed {
    pub fn new(policy: Policy, role: Role, size: u16) -> Self {
        let size = u32::from(size).max(1);
        let (packets, hold_ns) = match policy {
            // Linux, too, asks for a call after three quarters of a ring.
            Policy::Timer { usecs } => ((size * 3 / 4).max(1), u64::from(usecs) * 1000),
            Policy::Coalesce(limits) => (limits.max_packets.clamp(1, size), limits.hold_ns()),
            Policy::Every | Policy::OnEmpty | Policy::Adaptive => (1, 0),
        };
        let holds = packets > 1 && hold_ns > 0;
        let (packets, hold_ns) = if holds { (packets, hold_ns) } else { (1, 0) };
        let on_empty = policy == Policy::OnEmpty;
        Self { role, packets, hold_ns, on_empty, held: Held::default() }
    }

    pub fn after(&mut self, visit: Visit) -> VisitPlan {
        match self.role {
            Role::Producer | Role::UsedBuffers => self.produced(visit),
            Role::Consumer => self.consumed(visit),
        }
    }

    fn produced(&mut self, visit: Visit) -> VisitPlan {
        self.held.add(visit.moved, visit.now);
        if self.on_empty && visit.more && !visit.short {
            return VisitPlan::COME_BACK;
        }
        if self.held.packets == 0 {
            return VisitPlan::NOTHING;
        }
        let wake_at = self.held.since.plus(self.hold_ns);
        if visit.short || self.held.packets >= self.packets || visit.now >= wake_at {
            return self.held.release();
        }
        VisitPlan::hold(wake_at)
    }

    fn consumed(&self, visit: Visit) -> VisitPlan {
        match visit.more {
            true if self.on_empty || self.hold_ns > 0 => VisitPlan::COME_BACK,
            false if visit.moved > 0 && self.hold_ns > 0 => {
                VisitPlan::look(visit.now.plus(self.hold_ns), self.packets)
            }
            _ => VisitPlan::NOTHING,
        }
    }

    pub const fn state(&self) -> State {
        State { window: self.packets, hold_ns: self.hold_ns, cause: Cause::Fixed }
    }
}
