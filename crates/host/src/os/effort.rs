//! What a worker's own work costs: system calls, wake-ups, and time spent looking for work.
//!
//! System calls are counted where they are made, one counter for each thread. Everything else is
//! counted by the worker.
//!
//! Limits: `last second` is the last full second of the clock, and nothing if the worker slept
//! through it.

use std::cell::Cell;

use ringway_net::Nanos;
use ringway_net::{PollCounters, PollOptions};

const NS_PER_SECOND: u64 = 1_000_000_000;

thread_local! {
    static SYSTEM_CALLS: Cell<u64> = const { Cell::new(0) };
}

/// A system call is made on the data path.
#[inline]
pub(crate) fn count_system_call() {
    SYSTEM_CALLS.set(SYSTEM_CALLS.get() + 1);
}

pub(crate) fn system_calls() -> u64 {
    SYSTEM_CALLS.get()
}

/// What can be counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Effort {
    /// Packets taken from guests and taps.
    pub packets: u64,
    /// System calls of the data path: waits, reads and writes of taps, notifications.
    pub system_calls: u64,
    /// Sleeps that ended, other than for a command.
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
    /// What it was told about polling.
    pub options: PollOptions,
    /// Whether it would poll, and not sleep, if it had nothing to do now.
    pub is_polling: bool,
    /// Since its start.
    pub total: Effort,
    /// In the last full second.
    pub last_second: Effort,
    /// What polling has cost and brought.
    pub polling: PollCounters,
}

/// How often something has happened, and how often in the last full second.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PerSecond {
    total: u64,
    /// The second that `at_start` and `last` belong to.
    second: u64,
    /// The total when it began.
    at_start: u64,
    /// How often in the one before.
    last: u64,
}

impl PerSecond {
    /// Once more, in the second with this number.
    #[inline]
    pub(crate) fn count(&mut self, second: u64) {
        if second != self.second {
            self.last = self.last_second(second);
            (self.second, self.at_start) = (second, self.total);
        }
        self.total += 1;
    }

    pub(crate) fn total(self) -> u64 {
        self.total
    }

    /// How often in the second before that one.
    pub(crate) fn last_second(self, second: u64) -> u64 {
        match second.wrapping_sub(self.second) {
            0 => self.last,
            1 => self.total - self.at_start,
            _ => 0,
        }
    }
}

/// The counters of one worker.
#[derive(Debug, Default)]
pub(crate) struct EffortMeter {
    pub(crate) packets: u64,
    pub(crate) wakeups: u64,
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

    /// It is `now`: perhaps another second has begun.
    pub(crate) fn roll(&mut self, now: Nanos, looked_ns: u64) {
        let second = now.0 / NS_PER_SECOND;
        if second == self.second {
            return;
        }
        let total = self.total(looked_ns);
        let is_next = second == self.second + 1;
        self.last = if is_next { total.since(self.at_start) } else { Effort::default() };
        (self.second, self.at_start) = (second, total);
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
    fn whoever_slept_through_a_second_did_nothing_in_it() {
        let mut meter = EffortMeter::default();
        meter.roll(Nanos(NS_PER_SECOND), 0);
        meter.wakeups = 3;
        meter.roll(Nanos(4 * NS_PER_SECOND), 0);
        assert_eq!(meter.last_second(), Effort::default());
    }

    #[test]
    fn each_count_has_the_same_seconds() {
        let mut kicks = PerSecond::default();
        for (second, last) in [(7, 0), (7, 0), (8, 2), (8, 2), (8, 2), (9, 3), (11, 0)] {
            kicks.count(second);
            assert_eq!(kicks.last_second(second), last, "in second {second}");
        }
        assert_eq!([11, 12, 13].map(|second| kicks.last_second(second)), [0, 1, 0]);
        assert_eq!(kicks.total(), 7);
    }

    #[test]
    fn each_thread_counts_its_own_system_calls() {
        let before = system_calls();
        count_system_call();
        let elsewhere = std::thread::spawn(|| {
            count_system_call();
            system_calls()
        });
        assert_eq!(elsewhere.join().unwrap(), 1);
        assert_eq!(system_calls(), before + 1);
    }
}
