//! When to call a User Mode Linux guest again.
//!
//! Its kernel (6.1) can lose a wake-up: a signal that arrives after the idle loop has looked for
//! work and before it sleeps is only noted, and the guest sleeps until the next signal. Its own
//! tap driver shows it too, as flood pings of 10 to 20 ms, which end when the next packet signals
//! again. With event suppression nothing would signal again for a second: we have called already.
//! So whoever is called through a socket, which only User Mode Linux is, is looked at a little
//! later: has it changed what it says about calls, it has looked, and that is all. Otherwise it is
//! called again, after a round, two, four, and so on: whoever lost the processor on its way to sleep
//! sleeps through all signals of that time.
//!
//! Limits: a guest that says by flags, not by an index, when it wants calls says the same before
//! and after, as does one that was called about nothing, and both are called again in vain. An idle
//! one costs nothing after [`ROUNDS_MAX`] rounds.

use std::time::{Duration, Instant};

/// Between two rounds. Well above the time in which a running guest sees a call, well below what a
/// user notices.
const DELAY: Duration = Duration::from_millis(1);

/// The last round in which a guest is called that does not look: then it is stopped, or its own
/// timer wakes it up. A power of two.
const ROUNDS_MAX: u16 = 64;

/// A call through which the guest may have slept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unheard {
    /// What the guest said about calls when it was called.
    event: Option<u32>,
    /// Rounds since then.
    rounds: u16,
}

/// What a round brings for one guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Round {
    /// It has heard the call, or is given up.
    Over,
    /// It is looked at again in the next round.
    Wait,
    /// It is called again, and looked at in the next round.
    Call,
}

impl Unheard {
    /// The guest is called, and says this about calls (see `DeviceQueue::driver_event`).
    pub(crate) fn new(event: Option<u32>) -> Self {
        Self { event, rounds: 0 }
    }

    /// A round has come, and the guest says this now.
    pub(crate) fn round(&mut self, event: Option<u32>) -> Round {
        self.rounds += 1;
        match self.rounds {
            _ if event != self.event || event.is_none() => Round::Over,
            rounds if rounds > ROUNDS_MAX => Round::Over,
            rounds if rounds.is_power_of_two() => Round::Call,
            _ => Round::Wait,
        }
    }
}

/// The moment of the next round.
#[derive(Debug, Default)]
pub(crate) struct SecondCalls {
    due: Option<Instant>,
}

impl SecondCalls {
    /// Somebody was called who may have slept through it.
    pub(crate) fn expect(&mut self, now: Instant) {
        self.due.get_or_insert(now + DELAY);
    }

    /// When the round is due, if one is.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// `true`, once: the round is due now.
    pub(crate) fn take(&mut self, now: impl FnOnce() -> Instant) -> bool {
        let is_due = self.due.is_some_and(|due| due <= now());
        if is_due {
            self.due = None;
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_round_for_all_calls_until_it_is_due() {
        let start = Instant::now();
        let mut calls = SecondCalls::default();
        assert!(!calls.take(|| start), "nobody was called");
        calls.expect(start);
        calls.expect(start + DELAY / 2);
        assert_eq!(calls.due(), Some(start + DELAY), "the first one counts");
        assert!(!calls.take(|| start + DELAY / 2));
        assert!(calls.take(|| start + DELAY));
        assert!(!calls.take(|| start + 2 * DELAY), "once");
        assert_eq!(calls.due(), None, "an idle guest is left alone");
    }

    #[test]
    fn who_has_looked_is_not_called_again() {
        let mut unheard = Unheard::new(Some(7));
        assert_eq!(unheard.round(Some(8)), Round::Over);
        assert_eq!(Unheard::new(None).round(None), Round::Over, "the queue is gone");
        assert_eq!(Unheard::new(Some(7)).round(None), Round::Over);
    }

    #[test]
    fn who_has_not_is_called_less_and_less_often_and_not_for_ever() {
        let mut unheard = Unheard::new(Some(7));
        let rounds: Vec<Round> = (0..=ROUNDS_MAX).map(|_| unheard.round(Some(7))).collect();
        let called = (1..).zip(&rounds).filter(|(_, round)| **round == Round::Call);
        let called: Vec<u16> = called.map(|(at, _)| at).collect();
        assert_eq!(called, [1, 2, 4, 8, 16, 32, 64]);
        assert_eq!(rounds.iter().position(|round| *round == Round::Over), Some(64));
    }
}
