//! Properties of polling, whatever the traffic; and it begins and ends with the traffic.

mod common;

use common::random;
use ringway_net::Nanos;
use ringway_net::{
    LOOK_NS_MAX, Next, POLL_BACKOFF_NS, PREEMPTED_NS, PollMode, PollOptions, Polling,
};

/// Between two looks of a worker that polls, in nanoseconds.
const STEP_NS: u64 = 500;

/// A worker in virtual time: packets come after pauses, and it polls or sleeps.
struct Worker {
    polling: Polling,
    now: u64,
    slept: u64,
    looks: u64,
}

impl Worker {
    fn new(mode: PollMode, budget_percent: u8) -> Self {
        let polling = Polling::new(PollOptions { mode, budget_percent }, Nanos(0));
        // Some credit is earned first.
        Self { polling, now: 100_000_000, slept: 0, looks: 0 }
    }

    /// Nothing comes for `pause_ns`; `wake_ns` later than that if it sleeps. `true`: it slept.
    fn pause(&mut self, pause_ns: u64, wake_ns: u64) -> bool {
        let arrives_at = self.now + pause_ns;
        loop {
            match self.polling.idle(Nanos(self.now)) {
                Next::Sleep => {
                    self.slept += 1;
                    self.now = self.now.max(arrives_at) + wake_ns;
                    self.polling.found(Nanos(self.now));
                    return true;
                }
                Next::Look => {
                    self.looks += 1;
                    self.now += STEP_NS;
                }
            }
            if self.now >= arrives_at {
                self.polling.found(Nanos(self.now));
                return false;
            }
        }
    }

    fn pauses(&mut self, count: u32, pause_ns: u64) -> u32 {
        (0..count).map(|_| u32::from(self.pause(pause_ns, 10_000))).sum()
    }
}

#[test]
fn short_pauses_begin_it_and_long_ones_end_it() {
    let mut worker = Worker::new(PollMode::Auto, 10);
    assert_eq!(worker.pauses(100, 1_000_000), 100, "long pauses are slept through");
    assert_eq!(worker.looks, 0);
    assert!(worker.pauses(20, 20_000) < 10, "it takes a few to begin");
    assert_eq!(worker.pauses(1000, 20_000), 0, "and then all are polled through");
    worker.pauses(20, 1_000_000);
    let looks = worker.looks;
    assert_eq!(worker.pauses(100, 1_000_000), 100);
    assert_eq!(worker.looks, looks, "it has ended");
}

#[test]
fn a_pause_too_short_to_sleep_in_says_nothing() {
    let mut worker = Worker::new(PollMode::Auto, 10);
    for _ in 0..1000 {
        worker.pause(1000, 0);
        worker.pause(200_000, 10_000);
    }
    assert_eq!(worker.polling.counters().misses, 0);
}

#[test]
fn idle_costs_one_look_at_most() {
    for budget in [1, 10, 100] {
        let mut worker = Worker::new(PollMode::Auto, budget);
        worker.pauses(50, 20_000);
        let before = worker.polling.counters().looked_ns;
        assert!(worker.pause(u64::MAX / 2, 0));
        let looked_ns = worker.polling.counters().looked_ns - before;
        assert!(looked_ns <= LOOK_NS_MAX + STEP_NS, "{looked_ns} ns");
    }
}

#[test]
fn never_and_no_budget_never_look_and_always_never_sleeps() {
    for (mode, budget) in [(PollMode::Never, 10), (PollMode::Auto, 0)] {
        let mut worker = Worker::new(mode, budget);
        worker.pauses(1000, 10_000);
        assert_eq!((worker.slept, worker.looks), (1000, 0), "{mode}");
        assert!(!worker.polling.is_wanted());
    }
    let mut worker = Worker::new(PollMode::Always, 0);
    worker.pauses(10, 1_000_000);
    assert_eq!(worker.slept, 0);
}

#[test]
fn a_thread_that_needs_the_processor_gets_it() {
    let mut worker = Worker::new(PollMode::Auto, 100);
    worker.pauses(50, 20_000);
    assert!(worker.polling.is_wanted());
    assert_eq!(worker.polling.idle(Nanos(worker.now)), Next::Look);
    worker.now += PREEMPTED_NS;
    assert_eq!(worker.polling.idle(Nanos(worker.now)), Next::Sleep);
    assert!(!worker.polling.is_wanted(), "not before it has seen short pauses again");
}

/// One that polls, and looks now.
fn looking(mode: PollMode) -> Worker {
    let mut worker = Worker::new(mode, 100);
    worker.pauses(50, 20_000);
    assert_eq!(worker.polling.idle(Nanos(worker.now)), Next::Look);
    worker
}

#[test]
fn the_worker_yields_beside_long_packets_only() {
    let mut worker = looking(PollMode::Auto);
    let now = Nanos(worker.now);
    assert!(!worker.polling.should_yield(now));
    worker.polling.stream_passed(now);
    assert!(worker.polling.should_yield(now.plus(500_000)));
    assert!(!worker.polling.should_yield(now.plus(5_000_000)), "the stream is over");

    let mut always = looking(PollMode::Always);
    let now = Nanos(always.now);
    always.polling.stream_passed(now);
    assert!(!always.polling.should_yield(now), "the processor is the worker's alone");
}

#[test]
fn a_yield_that_lets_no_thread_run_changes_nothing() {
    let mut worker = looking(PollMode::Auto);
    let before = worker.polling.counters();
    for _ in 0..10 {
        let began = Nanos(worker.now);
        worker.now += 400;
        assert_eq!(worker.polling.yielded(began, Nanos(worker.now)), Next::Look);
        assert_eq!(worker.polling.idle(Nanos(worker.now)), Next::Look);
    }
    assert_eq!(worker.polling.counters(), before, "that was no looking");
    assert!(worker.polling.is_wanted());
}

#[test]
fn a_yield_that_lets_another_thread_run_ends_it_for_a_while() {
    let mut worker = looking(PollMode::Auto);
    let before = worker.polling.counters();
    let began = Nanos(worker.now);
    worker.now += 10_000;
    assert_eq!(worker.polling.yielded(began, Nanos(worker.now)), Next::Sleep);
    assert_eq!(worker.polling.idle(Nanos(worker.now)), Next::Sleep);
    let after = worker.polling.counters();
    assert_eq!(after.misses, before.misses + 1);
    let spent = [before.looked_ns, before.in_vain_ns];
    assert_eq!([after.looked_ns, after.in_vain_ns], spent, "others had that time");

    let backoff_until = worker.now + POLL_BACKOFF_NS;
    while worker.now + 50_000 < backoff_until {
        assert!(worker.pause(20_000, 10_000), "however short pauses are");
    }
    assert!(worker.pauses(20, 20_000) < 10, "and it begins as it did at first");
    assert!(worker.polling.is_wanted());
}

#[test]
fn a_yield_while_the_worker_does_not_look_is_none() {
    let mut worker = Worker::new(PollMode::Auto, 10);
    let before = worker.polling;
    let now = worker.now;
    assert_eq!(worker.polling.yielded(Nanos(now), Nanos(now + 10_000)), Next::Look);
    assert_eq!(worker.polling, before);
}

/// Looks that find nothing stay within the budget, beside what was saved before.
#[test]
fn the_budget_holds_for_any_traffic() {
    for seed in 0..60_u64 {
        let mut state = seed;
        let budget = u8::try_from(random(&mut state) % 101).unwrap();
        let mut worker = Worker::new(PollMode::Auto, budget);
        let start = worker.now;
        for _ in 0..5_000 {
            // Dense, request and response, around what a look lasts, sparse; each for a while.
            let longest =
                [2_000, 40_000, 120_000, 2_000_000][(random(&mut state) >> 9 & 3) as usize];
            for _ in 0..random(&mut state) % 8 {
                worker.pause(random(&mut state) % longest, random(&mut state) % 30_000);
            }
        }
        let spent = worker.polling.counters();
        let saved_ns = 2_000_000;
        let allowed_ns = (worker.now - start) * u64::from(budget) / 100 + saved_ns + LOOK_NS_MAX;
        assert!(spent.in_vain_ns <= allowed_ns, "seed {seed}: {spent:?}, {allowed_ns} allowed");
        assert!(budget == 0 || spent.misses > 0, "seed {seed}: the test shows nothing");
    }
}

/// Against a worker that knows the traffic: with pauses that pay, nearly all are polled; with
/// pauses that do not, nearly none. Between the two it may do either, within the budget.
#[test]
fn most_pauses_decide() {
    for (short_of_10, polled) in [(9, true), (1, false)] {
        let mut state = short_of_10;
        let mut worker = Worker::new(PollMode::Auto, 100);
        let (mut slept, count) = (0, 10_000);
        for _ in 0..count {
            let is_short = random(&mut state) % 10 < short_of_10;
            let pause_ns = if is_short { 20_000 } else { 500_000 };
            slept += u64::from(worker.pause(pause_ns, 10_000) && is_short);
        }
        let short = count * short_of_10 / 10;
        assert!(if polled { slept * 10 < short } else { slept * 10 > short * 9 }, "{slept}");
    }
}
