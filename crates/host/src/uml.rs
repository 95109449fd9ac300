//! When to call a User Mode Linux guest again.
//!
//! Its kernel (6.1) can lose a wake-up: it only notes a signal that arrives after its idle loop has
//! looked for work and before it sleeps, and then sleeps until the next signal. Its own tap driver
//! shows it too: flood pings take 10 to 20 ms, until the next packet signals again. With event
//! suppression the device would not signal again for a second, because it has called already.
//!
//! Theory of operation: only User Mode Linux is called through a socket. After such a call the
//! worker reads what the guest says about calls. Once that has changed, the guest has looked, and
//! nothing is left to do. Until then the worker calls again: [`EARLY_NS`] after the call if it is
//! awake, else [`DELAY_NS`] after it, for which it wakes up, and from then on each time after twice
//! the time since the call. A guest whose processor was taken on its way to sleep misses every
//! signal of that time. After [`LAST_NS`] the worker does not wake up for the guest any more. A
//! packet that is published then still calls it, even if the guest did not ask to be told of it,
//! once twice the time has passed. So a sender that repeats its packet wakes the guest.
//!
//! Limits: a guest that says by flags, not by an index, when it wants calls says the same before
//! and after; so does a guest that was called about nothing. Both are called again for nothing. An
//! idle guest costs nothing after [`LAST_NS`].

use ringway_net::Nanos;

/// Before the first repetition, in nanoseconds: time enough for a guest that hears the call to
/// look, even if it answers before it says so. A worker that sleeps is not woken up for it.
const EARLY_NS: u64 = 100_000;

/// Before a worker that sleeps wakes up to look, in nanoseconds. Well above the time in which a
/// running guest sees a call, well below what a user notices.
const DELAY_NS: u64 = 1_000_000;

/// The worker wakes up for a guest for so long after a call, in nanoseconds. A guest that has not
/// looked by then is stopped, or its own timer wakes it up.
const LAST_NS: u64 = 100 * DELAY_NS;

/// A call through which the guest may have slept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UmlCallRetry {
    /// The wish of the guest for calls when it was called.
    event: Option<u32>,
    /// When that was.
    called_at: Nanos,
    /// When it is called again.
    again_at: Nanos,
}

/// The step to take about a call in a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RetryStep {
    /// The guest has looked: nothing.
    Heard,
    /// Nothing yet: its time comes later.
    Wait,
    /// The guest is called again, and checked in a later round.
    Call,
}

impl UmlCallRetry {
    /// The guest is called, and says this about calls (see `DeviceQueue::driver_event`).
    pub(crate) fn new(event: Option<u32>, now: Nanos) -> Self {
        Self { event, called_at: now, again_at: now.plus(EARLY_NS) }
    }

    /// The worker does not wake up for the guest any more.
    pub(crate) fn is_given_up(&self) -> bool {
        self.again_at.since(self.called_at) > LAST_NS
    }

    /// A round has come, or something was published for a guest that is given up. `event` is what
    /// the guest says about calls now.
    pub(crate) fn round(&mut self, event: Option<u32>, now: Nanos) -> RetryStep {
        if event != self.event || event.is_none() {
            return RetryStep::Heard;
        }
        if now < self.again_at {
            return RetryStep::Wait;
        }
        // Rounds come late: with all of twice the time it would be the one behind that.
        let twice_ns = (2 * now.since(self.called_at)).saturating_sub(DELAY_NS / 2);
        self.again_at = self.called_at.plus(twice_ns.max(DELAY_NS));
        RetryStep::Call
    }
}

/// The moment of the next round.
#[derive(Debug, Default)]
pub(crate) struct UmlRetryTimer {
    /// The first call since the last round, which a guest may have missed.
    since: Option<Nanos>,
}

impl UmlRetryTimer {
    /// A guest was called that may sleep through it.
    pub(crate) fn expect(&mut self, now: Nanos) {
        self.since.get_or_insert(now);
    }

    /// When a worker that sleeps has to wake up for the round, if one is due.
    pub(crate) fn due(&self) -> Option<Nanos> {
        Some(self.since?.plus(DELAY_NS))
    }

    /// `true`, once: it is time for the round.
    pub(crate) fn take(&mut self, now: Nanos) -> bool {
        let is_time = self.since.is_some_and(|since| now.since(since) >= EARLY_NS);
        if is_time {
            self.since = None;
        }
        is_time
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_round_for_all_calls_of_a_time() {
        let start = Nanos(7);
        let mut calls = UmlRetryTimer::default();
        assert!(!calls.take(start), "no guest was called");
        calls.expect(start);
        calls.expect(start.plus(EARLY_NS / 2));
        assert_eq!(calls.due(), Some(start.plus(DELAY_NS)), "the first one counts");
        assert!(!calls.take(start.plus(EARLY_NS - 1)));
        assert!(calls.take(start.plus(EARLY_NS)), "a worker that is awake does not wait for it");
        assert!(!calls.take(start.plus(2 * DELAY_NS)), "once");
        assert_eq!(calls.due(), None, "an idle guest is left alone");
    }

    #[test]
    fn a_guest_that_has_looked_is_not_called_again() {
        let retry = UmlCallRetry::new(Some(7), Nanos(0));
        let late = Nanos(DELAY_NS);
        assert_eq!({ retry }.round(Some(8), late), RetryStep::Heard);
        assert_eq!({ retry }.round(None, late), RetryStep::Heard);
        assert_eq!(
            UmlCallRetry::new(None, Nanos(0)).round(None, late),
            RetryStep::Heard,
            "the queue is gone"
        );
    }

    #[test]
    fn a_guest_that_was_called_just_now_has_time_to_look() {
        let mut retry = UmlCallRetry::new(Some(7), Nanos(50));
        assert_eq!(retry.round(Some(7), Nanos(50 + EARLY_NS - 1)), RetryStep::Wait);
        assert_eq!(retry.round(Some(7), Nanos(50 + EARLY_NS)), RetryStep::Call);
        assert_eq!(retry.round(Some(7), Nanos(50 + DELAY_NS - 1)), RetryStep::Wait);
        assert_eq!(retry.round(Some(7), Nanos(50 + DELAY_NS)), RetryStep::Call);
    }

    /// The times are milliseconds after the call, of a worker that looks once in each, a little
    /// late.
    #[test]
    fn a_guest_that_has_not_looked_is_called_less_and_less_often_and_given_up_at_last() {
        let mut retry = UmlCallRetry::new(Some(7), Nanos(0));
        let (mut called, mut given_up_after) = (Vec::new(), None);
        for milliseconds in 1..=1000 {
            let round = retry.round(Some(7), Nanos(milliseconds * DELAY_NS * 21 / 20));
            if round == RetryStep::Call {
                called.push(milliseconds);
            }
            if retry.is_given_up() {
                given_up_after.get_or_insert(milliseconds);
            }
        }
        assert_eq!(called, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]);
        assert_eq!(given_up_after, Some(64));
    }
}
