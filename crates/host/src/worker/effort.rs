//! The cost of a worker's own work: system calls, wake-ups, and time spent looking for work.
//!
//! System calls are counted where they are made, one counter for each thread. Everything else is
//! counted by the worker.
//!
//! Limits: `last second` is the last full second of the clock, and nothing if the worker slept
//! through it.

use ringway_net::Nanos;

use crate::os::system_calls::system_calls;
use ringway_net::{PollCounters, PollOptions};

const NS_PER_SECOND: u64 = 1_000_000_000;

/// The work that can be counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Effort {
    /// Packets taken from guests and taps.
    pub packets: u64,
    /// System calls of the data path: waits, reads and writes of taps, notifications.
    pub system_calls: u64,
    /// Sleeps that ended, other than for a job.
    pub wakeups: u64,
    /// Time spent looking for work without finding any yet, in nanoseconds.
    pub looked_ns: u64,
}

impl Effort {
    fn since(self, earlier: Self) -> Self {
        Self {
            packets: self.packets - earlier.packets,
            system_calls: self.system_calls - earlier.system_calls,
            wakeups: self.wakeups - earlier.wakeups,
            looked_ns: self.looked_ns - earlier.looked_ns,
        }
    }
}

/// How one worker spends its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkerSnapshot {
    /// Its number.
    pub worker: u16,
    /// The options that it was given for polling.
    pub options: PollOptions,
    /// Whether it would poll, and not sleep, if it had nothing to do now.
    pub is_polling: bool,
    /// Processor time that its thread has used, in nanoseconds.
    pub cpu_ns: u64,
    /// Time for which it had nothing to do and slept, in nanoseconds.
    pub slept_ns: u64,
    /// The effort so far, with that of workers of its number in data planes before.
    pub total: Effort,
    /// The effort in the last full second.
    pub last_second: Effort,
    /// The cost of polling, and what it has brought.
    pub polling: PollCounters,
}

/// The effort that a worker has counted of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Spent {
    pub(crate) effort: Effort,
    /// Looks, and what they have cost; `looked_ns` is that of the effort.
    pub(crate) polling: PollCounters,
    pub(crate) cpu_ns: u64,
    pub(crate) slept_ns: u64,
}

impl Spent {
    /// Words in the journal.
    pub(crate) const WORDS: usize = 9;

    /// The sum of both.
    pub(crate) fn plus(&self, other: &Self) -> Self {
        let (mine, theirs) = (self.words(), other.words());
        Self::of_words(std::array::from_fn(|at| mine[at].wrapping_add(theirs[at])))
    }

    /// For the journal.
    pub(crate) fn words(&self) -> [u64; Self::WORDS] {
        let Effort { packets, system_calls, wakeups, looked_ns } = self.effort;
        let PollCounters { in_vain_ns, hits, misses, .. } = self.polling;
        let [cpu_ns, slept_ns] = [self.cpu_ns, self.slept_ns];
        [packets, system_calls, wakeups, looked_ns, in_vain_ns, hits, misses, cpu_ns, slept_ns]
    }

    /// From there.
    pub(crate) fn of_words(words: [u64; Self::WORDS]) -> Self {
        let [packets, system_calls, wakeups, looked_ns, in_vain_ns, hits, misses, rest @ ..] =
            words;
        let [cpu_ns, slept_ns] = rest;
        Self {
            effort: Effort { packets, system_calls, wakeups, looked_ns },
            polling: PollCounters { looked_ns, in_vain_ns, hits, misses },
            cpu_ns,
            slept_ns,
        }
    }
}

/// The counters of one worker.
#[derive(Debug, Default)]
pub(crate) struct EffortMeter {
    /// The effort of workers of its number in data planes before this one.
    pub(crate) before: Spent,
    pub(crate) packets: u64,
    pub(crate) wakeups: u64,
    pub(crate) slept_ns: u64,
    /// The second that `at_start` belongs to.
    second: u64,
    at_start: Effort,
    last: Effort,
}

impl EffortMeter {
    /// Everything so far; `looked_ns` is counted elsewhere.
    pub(crate) fn total(&self, looked_ns: u64) -> Effort {
        let Self { packets, wakeups, .. } = *self;
        Effort { packets, system_calls: system_calls(), wakeups, looked_ns }
    }

    /// It is `now`; `true`: another second has begun.
    pub(crate) fn roll(&mut self, now: Nanos, looked_ns: u64) -> bool {
        let second = now.0 / NS_PER_SECOND;
        if second == self.second {
            return false;
        }
        let total = self.total(looked_ns);
        let is_next = second == self.second + 1;
        self.last = if is_next { total.since(self.at_start) } else { Effort::default() };
        (self.second, self.at_start) = (second, total);
        true
    }

    /// The number of the second, as of the last [`roll`](Self::roll).
    pub(crate) fn second(&self) -> u64 {
        self.second
    }

    /// In the last full second, as of the last [`roll`](Self::roll).
    pub(crate) fn last_second(&self) -> Effort {
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_is_shown_when_it_is_over() {
        let mut meter = EffortMeter::default();
        let at = |tenths: u64| Nanos(tenths * NS_PER_SECOND / 10);
        meter.roll(at(10), 0);
        (meter.wakeups, meter.packets) = (3, 7);
        meter.roll(at(19), 500);
        assert_eq!(meter.last_second(), Effort::default(), "not over yet");
        meter.roll(at(21), 500);
        let last = meter.last_second();
        assert_eq!((last.wakeups, last.packets, last.looked_ns), (3, 7, 500));
        meter.wakeups = 4;
        meter.roll(at(30), 600);
        assert_eq!((meter.last_second().wakeups, meter.last_second().looked_ns), (1, 100));
    }

    #[test]
    fn a_worker_that_slept_through_a_second_did_nothing_in_it() {
        let mut meter = EffortMeter::default();
        meter.roll(Nanos(NS_PER_SECOND), 0);
        meter.wakeups = 3;
        meter.roll(Nanos(4 * NS_PER_SECOND), 0);
        assert_eq!(meter.last_second(), Effort::default());
    }
}
