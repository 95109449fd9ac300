//! When the host tells the guest, and asks it to tell: what `ringway_host` does with the queues of one
//! port, for one queue pair.
//!
//! How: three directions, each with a notifier and a moment of its own: packets to the guest, used
//! buffers back to it, and kicks from it. What one of them does tells the others something.
//!
//! Limits: no coalescing that the guest has set, no second calls.

use ringway_net::notify::{Nanos, Notifier, Policy, Side, Visit};
use ringway_virtq::Arm;

/// A notifier, and the moment at which it wants to be asked again.
#[derive(Debug)]
struct Direction {
    notifier: Notifier,
    wake_at: Option<Nanos>,
    /// Long packets so far.
    long: u64,
}

impl Direction {
    fn new(notifier: Notifier) -> Self {
        Self { notifier, wake_at: None, long: 0 }
    }

    /// How many long packets are new, of `long` so far.
    fn carried(&mut self, long: u64) -> u64 {
        let new = long.saturating_sub(std::mem::replace(&mut self.long, long));
        self.notifier.carried(new);
        new
    }

    fn is_due(&self, now: Nanos) -> bool {
        self.wake_at.is_some_and(|wake_at| wake_at <= now)
    }

    fn give(&mut self, visit: Visit) -> bool {
        if visit.moved == 0 && !visit.short && !self.is_due(visit.now) {
            return false;
        }
        let plan = self.notifier.after(visit);
        self.wake_at = plan.wake_at;
        plan.notify
    }
}

/// How the queue pair is paced.
#[derive(Debug)]
pub(super) struct HostPace {
    calls: Direction,
    returns: Direction,
    kicks: Direction,
    /// Packets taken since the transmitq was last idle.
    taken: u32,
}

impl HostPace {
    /// For queues of `size` entries.
    pub fn new(policy: Policy, size: u16) -> Self {
        Self {
            calls: Direction::new(Notifier::new(policy, size)),
            returns: Direction::new(Notifier::for_returns(policy, size)),
            kicks: Direction::new(Notifier::new(policy, size)),
            taken: 0,
        }
    }

    /// Packets to the guest were published, of which `long` so far were long; `true`: ask whether it
    /// wants a call.
    pub fn gave_packets(&mut self, visit: Visit, long: u64) -> bool {
        self.kicks.notifier.looked(visit.moved);
        if self.calls.carried(long) > 0 {
            self.returns.notifier.beside_stream(visit.now);
        }
        self.calls.give(visit)
    }

    /// The same for buffers that go back to it.
    pub fn gave_back(&mut self, visit: Visit, long: u64) -> bool {
        self.taken = self.taken.saturating_add(visit.moved);
        self.returns.carried(long);
        self.returns.give(visit)
    }

    /// The ring has said whether the guest wants a call about what goes back.
    pub fn ring_said(&mut self, is_wanted: bool) {
        self.returns.notifier.ring_said(is_wanted);
    }

    /// The guest was given a question: its answer shall not wait, nor the next question.
    pub fn was_asked(&mut self, now: Nanos) {
        self.calls.notifier.peer_was_asked(now);
        self.kicks.notifier.peer_was_asked(now);
        if self.kicks.notifier.lingers()
            && let Some(wake_at) = &mut self.kicks.wake_at
        {
            *wake_at = now;
        }
    }

    /// Nothing is left in the transmitq, which had `long` long packets so far: when the guest shall
    /// kick.
    pub fn idle(&mut self, now: Nanos, long: u64) -> Arm {
        self.kicks.carried(long);
        let moved = std::mem::take(&mut self.taken);
        let visit = Visit { now, side: Side::Takes, moved, more: false, short: false };
        let plan = self.kicks.notifier.after(visit);
        self.kicks.wake_at = plan.wake_at;
        plan.arm
    }

    /// Whether answers of the guest wait for long packets, or questions to it do.
    pub fn wants_questions(&self) -> bool {
        self.kicks.notifier.lingers() || self.calls.notifier.lingers()
    }

    /// When the first direction wants to be asked again.
    pub fn wake_at(&self) -> Option<Nanos> {
        let all = [self.calls.wake_at, self.returns.wake_at, self.kicks.wake_at];
        all.into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_net::notify::{PATIENCE_NS, RETURN_WAIT_NS};

    fn visit(now: u64, moved: u32) -> Visit {
        Visit { now: Nanos(now), side: Side::Gives, moved, more: false, short: false }
    }

    #[test]
    fn what_one_direction_holds_is_not_forgotten_for_another() {
        let mut pace = HostPace::new(Policy::Adaptive, 256);
        assert!(!pace.gave_back(visit(1_000_000, 2), 0), "held: nobody waits for it");
        let held_until = pace.wake_at().expect("a timer");
        assert!(pace.gave_packets(visit(1_001_000, 1), 0), "a first packet is told of at once");
        assert_eq!(pace.wake_at(), Some(held_until));
        assert!(pace.gave_back(visit(held_until.0, 0), 0), "told when its time has come");
        assert_eq!(pace.wake_at(), None);
    }

    #[test]
    fn used_buffers_beside_a_stream_of_long_packets_wait_longer() {
        let mut pace = HostPace::new(Policy::Adaptive, 256);
        let mut now = 1_000_000;
        for long in 1..10 {
            now += PATIENCE_NS;
            let _ = pace.gave_packets(visit(now, 1), long);
        }
        assert!(!pace.gave_back(visit(now, 1), 0));
        let waits = pace.returns.wake_at.expect("a timer").since(Nanos(now));
        assert!(waits > RETURN_WAIT_NS, "{waits}");
    }
}
