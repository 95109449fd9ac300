//! A guest that has only a few long packets under way and waits for acknowledgements: neither the
//! worker's looks nor what it holds back may keep it waiting.

use std::collections::VecDeque;

use ringway_device::{Published, Queue};
use ringway_host::{Flush, Pace};
use ringway_net::moderation::Policy;
use ringway_net::{Nanos, WAKE_NS};
use ringway_virtq::Arm;

const QUEUE_SIZE: u16 = 256;
const PACKETS: u64 = 10_000;

/// The time that a packet costs the guest.
const PREPARE_NS: u64 = 5_000;

/// The guest's long packets, and what is on its way to it.
struct Sender {
    pace: Pace,
    now: u64,
    /// When the guest has prepared packets that it may send.
    prepared: VecDeque<u64>,
    /// In the transmitq, since it was armed and in all.
    since_armed: u32,
    waiting: u32,
    arm: Arm,
    taken: u64,
    after_ns: u64,
    /// When the worker gets acknowledgements.
    acknowledgements: VecDeque<u64>,
    /// Given to the guest, which has not been called about them.
    held: u32,
    longest_hold_ns: u64,
    held_since: u64,
    /// Since when used buffers wait, of which the guest was not told.
    returns_since: Option<u64>,
}

impl Sender {
    fn new(policy: Policy, after_ns: u64) -> Self {
        let mut pace = Pace::new(policy);
        pace.start(Queue::ToGuest, QUEUE_SIZE);
        pace.start(Queue::FromGuest, QUEUE_SIZE);
        Self {
            pace,
            now: 0,
            prepared: VecDeque::new(),
            since_armed: 0,
            waiting: 0,
            arm: Arm::Next,
            taken: 0,
            after_ns,
            acknowledgements: VecDeque::new(),
            held: 0,
            longest_hold_ns: 0,
            held_since: 0,
            returns_since: None,
        }
    }

    fn flush(&self) -> Flush {
        Flush { now: Nanos(self.now), more: false, short: false }
    }

    /// The guest may send so many more.
    fn prepare(&mut self, packets: u32) {
        let mut at = self.prepared.back().map_or(self.now, |&last| last.max(self.now));
        for _ in 0..packets {
            at += PREPARE_NS;
            self.prepared.push_back(at);
        }
    }

    /// The guest sends one, and kicks if it was asked to.
    fn send(&mut self) {
        self.prepared.pop_front();
        self.waiting += 1;
        self.since_armed += 1;
        let is_kick = match self.arm {
            Arm::Next => self.since_armed > 0,
            Arm::After(wanted) => self.since_armed >= u32::from(wanted),
            Arm::Never => false,
        };
        if is_kick {
            self.take();
        }
    }

    fn take(&mut self) {
        let moved = std::mem::take(&mut self.waiting);
        self.taken += u64::from(moved);
        self.give_back(moved);
        self.arm = self.pace.idle(Nanos(self.now));
        self.since_armed = 0;
        let at = self.now + self.after_ns;
        self.acknowledgements.extend((0..moved).map(|_| at));
    }

    /// The worker gives so many buffers back, or none: a timer has ended.
    fn give_back(&mut self, moved: u32) {
        if moved > 0 {
            self.returns_since.get_or_insert(self.now);
        }
        let taken = Published { packets: moved, long: moved };
        if self.pace.took(taken, self.flush()) {
            self.returns_since = None;
        }
        let waited_ns = self.returns_since.map_or(0, |since| self.now - since);
        assert!(waited_ns < 20 * WAKE_NS, "{waited_ns} ns: {:?}", self.pace);
    }

    /// The guest gets so many acknowledgements, or none: a timer has ended.
    fn acknowledge(&mut self, packets: u32) {
        let requests = self.pace.wants_requests().then_some(false);
        if self.held == 0 {
            self.held_since = self.now;
        }
        self.held += packets;
        let given = Published { packets, long: 0 };
        if self.pace.gave(given, requests, self.flush()) {
            self.longest_hold_ns = self.longest_hold_ns.max(self.now - self.held_since);
            let packets = std::mem::take(&mut self.held);
            self.prepare(packets);
        }
    }

    /// How long it takes with so many packets under way.
    fn run(&mut self, depth: u32) -> u64 {
        self.prepare(depth);
        while self.taken < PACKETS {
            let timer = self.pace.wake_at().map_or(u64::MAX, |Nanos(at)| at);
            let first = |queue: &VecDeque<u64>| queue.front().copied().unwrap_or(u64::MAX);
            let (sent, due) = (first(&self.prepared), first(&self.acknowledgements));
            let next = timer.min(due).min(sent);
            assert!(next < u64::MAX, "nothing will ever happen: {:?}", self.pace);
            self.now = self.now.max(next);
            if sent == next {
                self.send();
            } else if due == next {
                let count = self.acknowledgements.iter().take_while(|&&at| at <= self.now).count();
                self.acknowledgements.drain(..count);
                self.acknowledge(u32::try_from(count).expect("as many as are under way"));
            } else {
                self.end_timers();
            }
        }
        self.now
    }

    fn end_timers(&mut self) {
        self.acknowledge(0);
        self.give_back(0);
        if self.pace.end_kick_timer(Nanos(self.now)) {
            self.take();
        }
    }
}

#[test]
fn a_sender_that_waits_for_acknowledgements_is_not_kept_waiting() {
    // Not 20 µs: a timer of the worker's is no shorter.
    for after_ns in [50_000, 100_000, 300_000, 1_000_000] {
        for depth in [1, 2, 3, 4, 5, 8, 12, 16, 24, 32] {
            let took = Sender::new(Policy::Adaptive, after_ns).run(depth);
            let least = Sender::new(Policy::Every, after_ns).run(depth);
            assert!(
                100 * took < 130 * least,
                "{depth} under way, {after_ns} ns: {took} ns instead of {least}"
            );
        }
    }
}

#[test]
fn acknowledgements_of_a_stream_are_held_back_for_a_while() {
    let mut sender = Sender::new(Policy::Adaptive, 300_000);
    sender.run(64);
    let held_ns = sender.longest_hold_ns;
    assert!((WAKE_NS..=10 * WAKE_NS).contains(&held_ns), "{held_ns}");
}
