//! Properties of every moderator, whatever the traffic.

mod common;

use std::collections::VecDeque;

use common::random;
use ringway_net::moderation::{
    Cause, CoalesceLimits, Moderator, OutsideEvent, Policy, Role, Visit, VisitPlan,
};
use ringway_net::{Nanos, WAKE_NS};
use ringway_virtq::Arm;

const SIZE: u16 = 256;
const ROLES: [Role; 3] = [Role::Producer, Role::UsedBuffers, Role::Consumer];

fn visit(now: u64, moved: u32) -> Visit {
    Visit { now: Nanos(now), moved, bulk: 0, more: false, short: false }
}

fn bulk(now: u64, moved: u32) -> Visit {
    Visit { bulk: moved, ..visit(now, moved) }
}

fn moderator(policy: Policy, role: Role) -> Moderator {
    Moderator::new(policy, role, SIZE)
}

fn policies() -> Vec<Policy> {
    ["every", "on-empty", "timer:150us", "coalesce:16/50us", "coalesce:0/50us", "adaptive"]
        .iter()
        .map(|text| text.parse().unwrap())
        .collect()
}

/// Dense traffic, a stream, request and response, silence.
fn gap_max(at: u64) -> u64 {
    [100, 5_000, 40_000, 1_000_000][(at / 250) as usize % 4]
}

/// Events elsewhere, at random: a stream the other way, requests, calls; when the queue is to be
/// visited because of that.
fn happens_at_random(
    moderator: &mut Moderator,
    at: u64,
    now: u64,
    seed: &mut u64,
) -> Option<Nanos> {
    let mut visit_at = None;
    if (at / 700).is_multiple_of(3) && random(seed).is_multiple_of(50) {
        visit_at = moderator.on(Nanos(now), OutsideEvent::Request);
    }
    if !(at / 500).is_multiple_of(4) && random(seed).is_multiple_of(3) {
        visit_at = moderator.on(Nanos(now), OutsideEvent::Called).or(visit_at);
    }
    if !(at / 400).is_multiple_of(5) {
        let packets = u32::from(random(seed).to_le_bytes()[0] % 8);
        let long = if (at / 1_300).is_multiple_of(2) { packets / 2 } else { 0 };
        moderator.on(Nanos(now), OutsideEvent::Reverse { packets, long });
    }
    visit_at
}

/// How long anything may wait, in nanoseconds.
fn longest_ns(policy: Policy, role: Role) -> u64 {
    match (policy, role) {
        (Policy::Every | Policy::OnEmpty, _) => 0,
        (Policy::Timer { usecs }, _) => u64::from(usecs) * 1000,
        (Policy::Coalesce(limits), _) if limits.max_packets > 1 => 50_000,
        (Policy::Coalesce(_), _) => 0,
        (Policy::Adaptive, Role::Producer) => 10 * WAKE_NS,
        (Policy::Adaptive, Role::UsedBuffers | Role::Consumer) => 20 * WAKE_NS,
    }
}

/// Random traffic; the longest time for which anything was to wait.
fn longest_wait_ns(policy: Policy, role: Role) -> u64 {
    let mut moderator = moderator(policy, role);
    let (mut now, mut seed, mut held_since, mut wake_at) = (0, 1, None, None);
    let mut seen_ns = 0;
    for at in 0..100_000 {
        let gap = 1 + random(&mut seed) % gap_max(at);
        let (next, moved) = match wake_at {
            Some(Nanos(timer)) if timer <= now + gap => (timer, 0),
            _ => (now + gap, 1 + u32::from(random(&mut seed).to_le_bytes()[0] % 8)),
        };
        now = now.max(next);
        happens_at_random(&mut moderator, at, now, &mut seed);
        let bulk = [moved, moved / 2, 0][(at / 1_000) as usize % 3];
        let plan = moderator.after(Visit { bulk, ..visit(now, moved) });
        if role == Role::Consumer {
            // Its time runs anew from each look.
            held_since = plan.wake_at.map(|_| now);
        } else if moved > 0 {
            held_since.get_or_insert(now);
        }
        if plan.notify {
            held_since = None;
        }
        assert_eq!(plan.wake_at.is_some(), held_since.is_some(), "{policy} {role:?} {moderator:?}");
        if let (Some(since), Some(Nanos(wake_at))) = (held_since, plan.wake_at) {
            seen_ns = seen_ns.max(wake_at - since);
        }
        wake_at = plan.wake_at;
    }
    seen_ns
}

#[test]
fn nothing_is_held_longer_than_the_timer() {
    for (policy, role) in policies().into_iter().flat_map(|policy| ROLES.map(|role| (policy, role)))
    {
        let longest_ns = longest_ns(policy, role);
        let seen_ns = longest_wait_ns(policy, role);
        assert!(seen_ns <= longest_ns, "{policy} {role:?}: {seen_ns} ns");
        // Nor much less: random traffic comes near.
        assert!(10 * seen_ns >= 5 * longest_ns, "{policy} {role:?}: {seen_ns} ns");
    }
}

/// The traffic stops; with `polled`, the owner looks by itself for a moment behind each timer.
fn wakes_when_idle(policy: Policy, long: bool, polled: bool) -> u32 {
    let mut moderator = moderator(policy, Role::Consumer);
    let mut now = 0;
    for _ in 0..1000 {
        now += 2_000;
        moderator.after(if long { bulk(now, 3) } else { visit(now, 3) });
    }
    let mut plan = moderator.after(visit(now + 1_000, 0));
    let mut wakes = 0;
    while let Some(Nanos(at)) = plan.wake_at {
        if polled {
            moderator.on(Nanos(at), OutsideEvent::Polled);
        }
        plan = moderator.after(visit(at + 1_000, 0));
        wakes += 1;
        assert!(wakes < 5, "{policy} does not come to rest: {moderator:?}");
    }
    assert_eq!(plan.arm, Arm::Next, "{policy}");
    wakes
}

#[test]
fn idle_costs_nothing() {
    for policy in policies() {
        for (long, polled) in [(false, false), (true, false), (false, true), (true, true)] {
            wakes_when_idle(policy, long, polled);
        }
    }
    assert!(wakes_when_idle(Policy::Adaptive, true, false) > 0, "a hold was under way");
}

#[test]
fn without_a_timer_nothing_waits() {
    for (policy, role) in policies().into_iter().flat_map(|policy| ROLES.map(|role| (policy, role)))
    {
        let mut moderator = moderator(policy, role);
        let mut seed = 7;
        for at in 0..10_000u64 {
            let moved = u32::from(random(&mut seed).to_le_bytes()[0] % 4);
            let plan = moderator.after(visit(at * 500, moved));
            // An owner without a timer notifies, or asks for a notification, where one is planned.
            match role {
                _ if plan.wake_at.is_some() => {}
                Role::Consumer => assert_eq!(plan.arm, Arm::Next, "{policy}"),
                _ => assert!(plan.notify || moved == 0, "{policy}"),
            }
        }
    }
}

#[test]
fn spec_5_1_6_5_6_counting_starts_with_the_first_packet_and_either_limit_ends_it() {
    let limits = CoalesceLimits { max_packets: 4, max_usecs: 50 };
    let mut moderator = moderator(Policy::Coalesce(limits), Role::Producer);
    let mut give = |now, moved| moderator.after(visit(now, moved));
    let hold = |at| VisitPlan { notify: false, arm: Arm::Next, wake_at: Some(Nanos(at)) };
    assert_eq!(give(1_000_000, 1), hold(1_050_000));
    assert_eq!(give(1_010_000, 2), hold(1_050_000), "time runs from the first packet");
    assert!(give(1_020_000, 1).notify, "the fourth packet");
    assert_eq!(give(1_030_000, 1), hold(1_080_000), "both start anew");
    assert!(!give(1_079_999, 0).notify);
    assert!(give(1_080_000, 0).notify, "the time is over");
    assert_eq!(give(1_080_001, 0), VisitPlan { notify: false, arm: Arm::Next, wake_at: None });
    assert!(give(2_000_000, 9).notify, "more than the limit at once");
}

#[test]
fn spec_5_1_6_5_6_a_limit_of_zero_notifies_of_every_packet() {
    for (max_packets, max_usecs) in [(0, 0), (16, 0), (0, 50), (1, 50)] {
        let limits = CoalesceLimits { max_packets, max_usecs };
        let mut moderator = moderator(Policy::Coalesce(limits), Role::Producer);
        for at in 0..10 {
            assert!(moderator.after(visit(at, 1)).notify, "{limits:?}");
        }
    }
}

/// A device may notify more often than asked: a guest without buffers waits for nothing else.
#[test]
fn a_guest_that_cannot_go_on_is_notified_before_its_limits() {
    let limits = CoalesceLimits { max_packets: 30_000, max_usecs: 1_000_000 };
    let mut moderator = moderator(Policy::Coalesce(limits), Role::Producer);
    assert!(!moderator.after(visit(0, 200)).notify);
    assert!(moderator.after(visit(1, 56)).notify, "all entries");
    assert!(!moderator.after(visit(2, 3)).notify);
    assert!(moderator.after(Visit { short: true, ..visit(3, 0) }).notify);
}

#[test]
fn request_and_response_is_never_delayed() {
    for role in [Role::Producer, Role::Consumer] {
        let mut moderator = moderator(Policy::Adaptive, role);
        for at in 1..10_000 {
            let plan = moderator.after(visit(at * 63_000, 1));
            assert_eq!((plan.wake_at, plan.arm), (None, Arm::Next));
            assert_eq!(moderator.state().cause, Cause::OneByOne);
            assert!(plan.notify || role == Role::Consumer);
        }
    }
}

#[test]
fn short_packets_are_held_in_a_stream_and_one_hold_in_vain_ends_that() {
    let mut moderator = moderator(Policy::Adaptive, Role::Producer);
    let mut now = 0;
    let notified = (0..1000).filter(|_| {
        now += 3_000;
        moderator.after(visit(now, 1)).notify
    });
    assert!(notified.count() < 200);
    assert_eq!(moderator.state().cause, Cause::Batch);
    while !moderator.after(visit(now, 1)).notify {}
    let Some(wake_at) = moderator.after(visit(now + 1_000, 1)).wake_at else { panic!("held") };
    assert!(moderator.after(visit(wake_at.0, 0)).notify);
    assert!(moderator.after(visit(wake_at.0 + 1_000, 1)).notify, "no delay again");
    assert_eq!(moderator.state().cause, Cause::OneByOne);
}

#[test]
fn used_buffers_go_back_in_a_pause_or_a_quarter_of_the_ring_at_a_time() {
    let mut used = moderator(Policy::Adaptive, Role::UsedBuffers);
    let plan = used.after(visit(1, 1));
    let Some(Nanos(wake_at)) = plan.wake_at.filter(|_| !plan.notify) else { panic!("{plan:?}") };
    assert!(used.after(visit(wake_at, 0)).notify, "the guest has stopped");
    assert!(!used.after(visit(wake_at + 1, 63)).notify);
    assert!(used.after(visit(wake_at + 2, 1)).notify, "a quarter");
    let short = Visit { short: true, ..visit(wake_at + 3, 1) };
    assert!(used.after(short).notify, "the guest has no room left");
}

/// A sender of long packets.
#[derive(Debug, Clone, Copy)]
enum Sender {
    /// Has one so often, in nanoseconds.
    Every(u64),
    /// Has one so often on average, after nothing to twice that, at random.
    AtRandom(u64),
    /// Has so many under way, and each one again so long after it was taken.
    Answered(usize, u64),
}

impl Sender {
    /// When its next packets are due, if the first ones are at `now`.
    fn begins(self, now: u64) -> VecDeque<u64> {
        match self {
            Self::Every(_) | Self::AtRandom(_) => [now].into(),
            Self::Answered(depth, _) => vec![now; depth].into(),
        }
    }

    /// One that was due has come.
    fn came(self, was_due: u64, due: &mut VecDeque<u64>, seed: &mut u64) {
        match self {
            Self::Every(every_ns) => due.push_back(was_due + every_ns),
            Self::AtRandom(every_ns) => due.push_back(was_due + random(seed) % (2 * every_ns)),
            Self::Answered(..) => {}
        }
    }

    /// One was taken.
    fn taken(self, now: u64, due: &mut VecDeque<u64>) {
        if let Self::Answered(_, after_ns) = self {
            due.push_back(now + after_ns);
        }
    }
}

/// The result of a stream.
#[derive(Debug)]
struct Came {
    /// Packets that were notified one by one.
    notified: usize,
    took_ns: u64,
}

/// Takes that many long packets whenever the moderator wants to look, or is notified.
fn take_long_packets(moderator: &mut Moderator, packets: usize, sender: Sender) -> Came {
    /// Between a notification and the look that follows it.
    const WAKE_UP_NS: u64 = 10_000;
    let (mut now, mut taken, mut notified) = (0, 0, 0);
    let (mut due, mut seed) = (sender.begins(1_000_000), 1);
    let mut plan = moderator.after(visit(now, 0));
    while taken < packets {
        let Nanos(look_at) = plan.wake_at.unwrap_or(Nanos(due[0] + WAKE_UP_NS));
        now = look_at.max(now + 1_000);
        let mut moved = 0;
        while due.front().is_some_and(|due| *due <= now) {
            moved += 1;
            let was_due = due.pop_front().expect("the first one");
            sender.came(was_due, &mut due, &mut seed);
            sender.taken(now, &mut due);
        }
        taken += moved as usize;
        plan = moderator.after(bulk(now, moved));
        notified += usize::from(moved > 0 && plan.arm == Arm::Next);
    }
    Came { notified, took_ns: now }
}

/// Gives that many long packets as they come.
fn give_long_packets(moderator: &mut Moderator, packets: usize, sender: Sender) -> Came {
    let (mut now, mut notified, mut given, mut held) = (10_000_000, 0, 0, 0);
    let (mut due, mut seed) = (sender.begins(now), 1);
    let mut timer = None;
    while given < packets {
        let next = due.front().copied().unwrap_or(u64::MAX);
        now = next.min(timer.map_or(u64::MAX, |Nanos(at)| at)).max(now);
        let moved = u32::from(next <= now);
        if moved > 0 {
            due.pop_front();
            sender.came(next, &mut due, &mut seed);
            given += 1;
            held += 1;
        }
        let plan = moderator.after(bulk(now, moved));
        timer = plan.wake_at;
        if plan.notify {
            // The consumer answers all that it was told of.
            (0..std::mem::take(&mut held)).for_each(|_| sender.taken(now, &mut due));
        }
        notified += usize::from(plan.notify);
    }
    Came { notified, took_ns: now }
}

#[test]
fn most_long_packets_of_a_stream_are_not_notified() {
    for every_ns in [5_000, 20_000, 40_000, 100_000] {
        for sender in [Sender::Every(every_ns), Sender::AtRandom(every_ns)] {
            let mut consumer = moderator(Policy::Adaptive, Role::Consumer);
            let taken = take_long_packets(&mut consumer, 4000, sender);
            assert!(taken.notified < 1500, "{sender:?}: {taken:?} {consumer:?}");
            let mut producer = moderator(Policy::Adaptive, Role::Producer);
            let given = give_long_packets(&mut producer, 4000, sender);
            assert!(given.notified < 2500, "{sender:?}: {given:?} {producer:?}");
        }
    }
}

#[test]
fn a_sender_that_waits_for_answers_is_not_kept_waiting() {
    for after_ns in [20_000, 50_000, 100_000, 300_000, 1_000_000] {
        for depth in [1, 2, 3, 4, 5, 8] {
            let sender = Sender::Answered(depth, after_ns);
            let took = |policy| {
                let mut consumer = moderator(policy, Role::Consumer);
                let mut producer = moderator(policy, Role::Producer);
                [
                    take_long_packets(&mut consumer, 10_000, sender).took_ns,
                    give_long_packets(&mut producer, 10_000, sender).took_ns,
                ]
            };
            let ([taken, given], [taken_least, given_least]) =
                (took(Policy::Adaptive), took(Policy::Every));
            assert!(10 * taken < 13 * taken_least, "{sender:?}: {taken} ns, not {taken_least}");
            assert!(10 * given < 13 * given_least, "{sender:?}: {given} ns, not {given_least}");
        }
    }
}

#[test]
fn a_request_ends_a_hold_of_bulk_for_a_while() {
    const EVERY_NS: u64 = 100_000;
    let mut consumer = moderator(Policy::Adaptive, Role::Consumer);
    let now = take_long_packets(&mut consumer, 500, Sender::Every(EVERY_NS)).took_ns;
    assert_eq!(consumer.on(Nanos(now), OutsideEvent::Request), Some(Nanos(now)), "visit it now");
    let plan = consumer.after(bulk(now + EVERY_NS, 1));
    assert_eq!((plan.arm, plan.wake_at), (Arm::Next, None), "the answer is notified");
    assert_eq!(consumer.state().cause, Cause::Request);
    assert!(consumer.after(bulk(now + 10 * EVERY_NS, 1)).wake_at.is_some(), "as before");

    let mut producer = moderator(Policy::Adaptive, Role::Producer);
    let now = give_long_packets(&mut producer, 500, Sender::Every(20_000)).took_ns;
    producer.on(Nanos(now), OutsideEvent::Request);
    assert!(producer.after(bulk(now + 20_000, 1)).notify, "the next request may come");
    assert_eq!(producer.state().cause, Cause::Request);
}

#[test]
fn a_short_packet_does_not_wait_behind_long_ones() {
    let mut producer = moderator(Policy::Adaptive, Role::Producer);
    let mut now = give_long_packets(&mut producer, 500, Sender::Every(20_000)).took_ns;
    while producer.after(bulk(now, 1)).notify {
        now += 20_000;
    }
    assert!(producer.after(visit(now + 1_000, 1)).notify);
}

#[test]
fn a_queue_of_few_entries_has_no_room_for_holds() {
    let mut consumer = Moderator::new(Policy::Adaptive, Role::Consumer, 4);
    take_long_packets(&mut consumer, 200, Sender::Every(20_000));
    assert_eq!(consumer.state().cause, Cause::OneByOne);
}
