//! One moderated direction of a queue: its moderator, and when it wants to be asked again.

use ringway_net::moderation::{
    CoalesceLimits, Moderator, OutsideEvent, Policy, Role, State, Visit, VisitPlan,
};
use ringway_net::{CoalesceScope, Nanos};
use ringway_virtq::Arm;

/// How long a notification waits at most because its source only used up its budget, in
/// nanoseconds: a visit that moves long packets takes about as long, and the next one may bring
/// nothing for this queue.
const COME_BACK_NS: u64 = 100_000;

/// A moderator and the moment at which it wants to be asked again.
#[derive(Debug)]
pub(super) struct Direction {
    role: Role,
    policy: Policy,
    /// Entries of the queue.
    size: u16,
    /// The guest's own limits, which come before the policy.
    limits: Option<(CoalesceLimits, CoalesceScope)>,
    moderator: Moderator,
    pub(super) wake_at: Option<Nanos>,
}

impl Direction {
    pub(super) fn new(role: Role, policy: Policy) -> Self {
        let moderator = Moderator::new(policy, role, 1);
        Self { role, policy, size: 1, limits: None, moderator, wake_at: None }
    }

    /// The queue starts, and has so many entries.
    pub(super) fn start(&mut self, size: u16) {
        *self = Self { size, ..Self::new(self.role, self.policy) };
        self.restart();
    }

    /// Follows the guest's limits from now on, or none; `true`: tell now of what was held back.
    pub(super) fn follow_limits(
        &mut self,
        limits: Option<(CoalesceLimits, CoalesceScope)>,
    ) -> bool {
        if limits == self.limits {
            return false;
        }
        self.limits = limits;
        self.restart()
    }

    /// Follows another policy from now on; `true`: tell now of what was held back.
    pub(super) fn follow(&mut self, policy: Policy) -> bool {
        self.policy = policy;
        self.limits.is_none() && self.restart()
    }

    fn restart(&mut self) -> bool {
        let policy = self.limits.map_or(self.policy, |(limits, _)| Policy::Coalesce(limits));
        self.moderator = Moderator::new(policy, self.role, self.size);
        self.wake_at.take().is_some()
    }

    pub(super) fn state(&self) -> State {
        self.moderator.state()
    }

    /// Why it does what it does, in a few words.
    pub(super) fn cause(&self) -> &'static str {
        match self.limits {
            None => self.state().cause.name(),
            Some((_, CoalesceScope::All)) => "set by the guest",
            Some((_, CoalesceScope::One)) => "set by the guest for this queue",
        }
    }

    pub(super) fn is_due(&self, now: Nanos) -> bool {
        self.wake_at.is_some_and(|wake_at| wake_at <= now)
    }

    pub(super) fn on(&mut self, now: Nanos, event: OutsideEvent) {
        if let Some(wake_at) = self.moderator.on(now, event) {
            self.wake_at = Some(wake_at);
        }
    }

    /// Buffers were published, or a timer may have ended; `true`: ask the ring.
    pub(super) fn produced(&mut self, visit: Visit) -> bool {
        if visit.moved == 0 && !visit.short && !self.is_due(visit.now) {
            return false;
        }
        let VisitPlan { notify, wake_at, .. } = self.moderator.after(visit);
        let is_put_off = visit.more && !notify;
        self.wake_at = wake_at.or(is_put_off.then(|| visit.now.plus(COME_BACK_NS)));
        notify
    }

    /// Packets were taken, and no more are there: when the guest shall kick.
    pub(super) fn consumed(&mut self, visit: Visit) -> Arm {
        let VisitPlan { arm, wake_at, .. } = self.moderator.after(visit);
        self.wake_at = wake_at;
        arm
    }
}
