//! When the device is kicked about packets: the policies of `ringway_net::moderation` on a
//! transmitq.
//!
//! How: [`NetTx::flush_at`] publishes as [`NetTx::flush`] does, and then the policy decides whether
//! the device is asked. What is held back has a moment at which `flush_at` is to be called again,
//! with or without packets. `NOTIFY_ON_EMPTY` is two things: the policy `OnEmpty`, which kicks when
//! the sender has nothing more at hand, and the feature, by which a device calls when the ring runs
//! empty; the rings do the second by themselves once it is negotiated.
//!
//! Limits: a driver without timers gives no moment that it keeps; it uses [`NetTx::flush`].

use ringway_net::Nanos;
use ringway_net::moderation::{Moderator, Policy, Role, State, Visit, VisitPlan};
use ringway_virtq::DriverQueue;

use crate::NetTx;

/// The steps that a paced flush leaves to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct Flushed {
    /// Kick the device now.
    pub kick: bool,
    /// Flush again at this moment, if not before.
    pub wake_at: Option<Nanos>,
}

impl<Q: DriverQueue> NetTx<Q> {
    /// Kicks by this policy from now on, wherever [`flush_at`](Self::flush_at) is used.
    pub fn set_policy(&mut self, policy: Policy) {
        self.kicks = Moderator::new(policy, Role::Producer, self.queue.size());
    }

    /// Publishes everything staged at the time `now`; with `more`, the sender comes back at once
    /// with other packets.
    pub fn flush_at(&mut self, now: Nanos, more: bool) -> Flushed {
        if self.broken.is_some() {
            return Flushed { kick: false, wake_at: None };
        }
        self.queue.publish();
        let moved = core::mem::take(&mut self.unpublished);
        // Without room the sender waits for the device, which must hear of what there is.
        let short = self.queue.free() == 0;
        let visit = Visit { now, moved, bulk: 0, more, short };
        let VisitPlan { notify, wake_at, .. } = self.kicks.after(visit);
        let kick = notify && self.queue.must_kick();
        self.counters.kicks += u64::from(kick);
        Flushed { kick, wake_at }
    }

    /// How kicks are moderated now.
    pub fn pacing(&self) -> State {
        self.kicks.state()
    }
}
