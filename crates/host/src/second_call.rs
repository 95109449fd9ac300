//! When to call a User Mode Linux guest a second time.
//!
//! Its kernel (6.1) can lose a wake-up: a signal that arrives after the idle loop has looked for
//! work and before it sleeps is only noted, and the guest sleeps until the next signal. Its own
//! tap driver shows it too, as flood pings of 10 to 20 ms, which end when the next packet signals
//! again. With event suppression nothing would signal again for a second: we have called already.
//! So whoever is called through a socket, which only User Mode Linux is, is called again a little
//! later: in the next two rounds, a millisecond apart. One round serves all, so that the first may
//! come right behind the call, when the guest still has not got to sleep.
//!
//! Limits: a call again for nothing costs the guest one interrupt per millisecond and queue at
//! most, and an idle one nothing.

use std::time::{Duration, Instant};

/// Well above the time in which a running guest sees a call, well below what a user notices.
const DELAY: Duration = Duration::from_millis(1);

/// Rounds that follow a call: before the second one a whole [`DELAY`] has passed.
pub(crate) const SECOND_CALL_ROUNDS: u8 = 2;

/// The moment of the next round of second calls.
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
    fn one_round_for_all_calls_of_a_millisecond() {
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
}
