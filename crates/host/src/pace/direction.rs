//! One direction of a queue: its notifier, and when it wants to be asked again.

use ringway_net::CoalesceScope;
use ringway_net::notify::{Cause, Coalesce, CoalesceLimits, Learned, Nanos, Notifier, Visit};

/// How long a notification waits at most because its source only ran out of budget, in nanoseconds: a visit of
/// long packets takes about as long, and the source may have nothing more for this queue at its next one.
const COME_BACK_NS: u64 = 100_000;

/// A notifier and the moment at which it wants to be asked again.
#[derive(Debug)]
pub(super) struct Direction {
    pub(super) notifier: Notifier,
    pub(super) wake_at: Option<Nanos>,
    /// What was found out about the guest before the notifier began.
    learned: Learned,
    /// The guest's own limits, which the notifier then follows.
    limits: Option<(CoalesceLimits, CoalesceScope)>,
}

impl Direction {
    pub(super) fn new(notifier: Notifier) -> Self {
        Self { notifier, wake_at: None, learned: Learned::default(), limits: None }
    }

    /// Follows the guest's limits from now on, or the port's policy where it has set none; `true`:
    /// what was held back must be told now.
    pub(super) fn follow_limits(
        &mut self,
        limits: Option<(CoalesceLimits, CoalesceScope)>,
        size: u16,
        policy: impl FnOnce() -> Notifier,
    ) -> bool {
        if limits == self.limits {
            return false;
        }
        self.limits = limits;
        self.change(match limits {
            Some((limits, _)) => Notifier::Coalesce(Coalesce::new(limits, size)),
            None => policy(),
        })
    }

    /// Follows another policy from now on, unless the guest has set limits; `true`: what was held
    /// back must be told now.
    pub(super) fn follow(&mut self, notifier: Notifier) -> bool {
        if self.limits.is_some() {
            return false;
        }
        self.change(notifier)
    }

    fn change(&mut self, mut notifier: Notifier) -> bool {
        self.learned = self.notifier.learned().unwrap_or(self.learned);
        notifier.learn(self.learned);
        self.notifier = notifier;
        self.wake_at.take().is_some()
    }

    pub(super) fn cause(&self) -> Cause {
        match self.limits {
            None => self.notifier.cause(),
            Some((_, CoalesceScope::All)) => Cause::Guest,
            Some((_, CoalesceScope::One)) => Cause::GuestQueue,
        }
    }

    pub(super) fn is_due(&self, now: Nanos) -> bool {
        self.wake_at.is_some_and(|wake_at| wake_at <= now)
    }

    pub(super) fn give(&mut self, visit: Visit) -> bool {
        if visit.moved == 0 && !visit.short && !self.is_due(visit.now) {
            return false;
        }
        let plan = self.notifier.after(visit);
        let is_put_off = visit.more && !plan.notify;
        let at_latest = is_put_off.then(|| visit.now.plus(COME_BACK_NS));
        self.wake_at = plan.wake_at.or(at_latest);
        plan.notify
    }
}
