//! A giver of long packets finds out by trying for how long it had best wait for several of them.

mod common;

use std::collections::VecDeque;

use common::random;
use ringway_net::notify::{Nanos, Notifier, Policy, Side, Visit};

const SIZE: u16 = 256;

const SECOND_NS: u64 = 1_000_000_000;

/// A sender of long packets, and a peer that takes and answers them.
#[derive(Debug, Clone, Copy)]
struct Stream {
    /// From packet to packet, in nanoseconds, if nothing keeps the sender waiting: half to one and a half times
    /// that, at random.
    gap_ns: u64,
    /// What the sender loses when the peer is told of anything, in nanoseconds: they share a processor.
    call_ns: u64,
    /// Packets that may be under way.
    depth: usize,
    /// From the notification to the answer, in nanoseconds.
    answer_ns: u64,
}

/// What has passed in the last one of so many seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Passed {
    packets: u64,
    calls: u64,
}

/// Packets on their way.
#[derive(Debug, Default)]
struct UnderWay {
    /// Not told of yet.
    held: usize,
    /// When the others are answered.
    answers: VecDeque<u64>,
}

impl UnderWay {
    /// When the next one may be sent, if so many may be under way; `None`: nobody has heard of any.
    fn room_at(&self, now: u64, depth: usize) -> Option<u64> {
        let is_full = self.held + self.answers.len() >= depth;
        if is_full { self.answers.front().copied() } else { Some(now) }
    }
}

impl Stream {
    /// What passes in the last one of so many seconds.
    fn run(self, notifier: &mut Notifier, seconds: u64, mut seed: u64) -> Passed {
        let (begin, end) = ((seconds - 1) * SECOND_NS, seconds * SECOND_NS);
        let (mut under_way, mut passed) = (UnderWay::default(), Passed::default());
        let (mut now, mut next_at, mut timer) = (0, 0, None);
        while now < end {
            let send_at = under_way.room_at(now, self.depth).map(|at| at.max(next_at));
            let timer_at = timer.map(|Nanos(at)| at);
            now = send_at.into_iter().chain(timer_at).min().expect("one of them").max(now);
            while under_way.answers.pop_front_if(|at| *at <= now).is_some() {}
            let moved = u32::from(send_at.is_some_and(|at| at <= now));
            if moved > 0 {
                under_way.held += 1;
                next_at = now + self.gap_ns / 2 + random(&mut seed) % self.gap_ns;
            }
            notifier.carried(moved.into());
            let visit =
                Visit { now: Nanos(now), side: Side::Gives, moved, more: false, short: false };
            let plan = notifier.after(visit);
            timer = plan.wake_at;
            if plan.notify {
                let told = std::mem::take(&mut under_way.held);
                under_way.answers.extend(std::iter::repeat_n(now + self.answer_ns, told));
                next_at += self.call_ns;
            }
            if now >= begin {
                passed.packets += u64::from(moved);
                passed.calls += u64::from(plan.notify);
            }
        }
        passed
    }

    /// The most packets that pass with any of the fixed waits.
    fn best(self) -> u64 {
        let timers = [20, 35, 50, 75, 100, 150, 200, 250, 300];
        let policies = timers.map(|usecs| Policy::Timer { usecs });
        let all = [Policy::Every].into_iter().chain(policies);
        all.map(|policy| self.run(&mut Notifier::new(policy, SIZE), 1, 1).packets)
            .max()
            .expect("some")
    }
}

/// Some have little under way, so that long waits keep them waiting; some lose more by each call than by any wait.
const STREAMS: [Stream; 8] = [
    Stream { gap_ns: 50_000, call_ns: 0, depth: 6, answer_ns: 100_000 },
    Stream { gap_ns: 50_000, call_ns: 20_000, depth: 6, answer_ns: 100_000 },
    Stream { gap_ns: 50_000, call_ns: 50_000, depth: 8, answer_ns: 50_000 },
    Stream { gap_ns: 50_000, call_ns: 50_000, depth: 64, answer_ns: 100_000 },
    Stream { gap_ns: 25_000, call_ns: 10_000, depth: 8, answer_ns: 50_000 },
    Stream { gap_ns: 25_000, call_ns: 40_000, depth: 64, answer_ns: 50_000 },
    Stream { gap_ns: 100_000, call_ns: 100_000, depth: 8, answer_ns: 100_000 },
    Stream { gap_ns: 100_000, call_ns: 30_000, depth: 6, answer_ns: 200_000 },
];

#[test]
fn a_stream_gets_as_fast_as_with_the_best_fixed_wait() {
    for stream in STREAMS {
        let best = stream.best();
        for seed in 1..=4 {
            let mut notifier = Notifier::new(Policy::Adaptive, SIZE);
            let packets = stream.run(&mut notifier, 10, seed).packets;
            let share = 1000 * packets / best;
            assert!(share > 970, "{stream:?}, seed {seed}: {share} of 1000, {notifier:?}");
        }
    }
}

#[test]
fn what_was_found_out_is_not_forgotten() {
    for stream in STREAMS {
        let best = stream.best();
        let mut before = Notifier::new(Policy::Adaptive, SIZE);
        stream.run(&mut before, 10, 1);
        let mut notifier = Notifier::new(Policy::Adaptive, SIZE);
        notifier.learn(before.learned().expect("it does such things"));
        let share = 1000 * stream.run(&mut notifier, 1, 2).packets / best;
        assert!(share > 970, "{stream:?}: {share} of 1000, {notifier:?}");
    }
    assert_eq!(Notifier::Every.learned(), None);
}

/// Where waiting costs nothing, the longest wait is the best one.
#[test]
fn a_stream_that_no_wait_slows_down_needs_few_notifications() {
    let stream = Stream { gap_ns: 50_000, call_ns: 0, depth: 64, answer_ns: 50_000 };
    for seed in 1..=4 {
        let mut notifier = Notifier::new(Policy::Adaptive, SIZE);
        // The shorter wait may just be tried.
        let Passed { packets, calls } = stream.run(&mut notifier, 20, seed);
        assert!(calls * 10 < packets * 3, "{calls} for {packets}: {notifier:?}");
    }
    let early = stream.run(&mut Notifier::new(Policy::Adaptive, SIZE), 1, 1);
    assert!(early.calls * 10 > early.packets * 3, "it takes its time to find that out: {early:?}");
}

/// Who has so little under way that the first wait, half of four gaps, costs a tenth or more of it.
#[test]
fn a_sender_with_little_under_way_gets_a_shorter_wait() {
    for (depth, answer_ns) in [(3, 80_000), (4, 120_000), (4, 135_000), (5, 180_000), (8, 350_000)]
    {
        let stream = Stream { gap_ns: 50_000, call_ns: 0, depth, answer_ns };
        let best = stream.best();
        let mut first = Notifier::new(Policy::Timer { usecs: 100 }, SIZE);
        let share = 1000 * stream.run(&mut first, 1, 1).packets / best;
        assert!(share < 900, "{stream:?}: {share} of 1000 with the first wait");
        for seed in 1..=4 {
            let mut notifier = Notifier::new(Policy::Adaptive, SIZE);
            let share = 1000 * stream.run(&mut notifier, 10, seed).packets / best;
            assert!(share > 930, "{stream:?}, seed {seed}: {share} of 1000, {notifier:?}");
            let mut again = Notifier::new(Policy::Adaptive, SIZE);
            again.learn(notifier.learned().expect("it does such things"));
            let share = 1000 * stream.run(&mut again, 1, seed).packets / best;
            assert!(share > 930, "{stream:?}, seed {seed}: {share} of 1000 at once, {again:?}");
        }
    }
}
