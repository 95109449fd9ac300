//! What holds of every notification policy, whatever the traffic.

mod common;

use std::collections::VecDeque;

use common::random;
use ringway_net::notify::{
    Cause, CoalesceLimits, GIVER_WAIT_NS_MAX, LULL_NS, Nanos, Notifier, Plan, Policy,
    STREAM_WAIT_NS, Side, TAKER_WAIT_NS_MAX, Visit,
};
use ringway_virtq::Arm;

const SIZE: u16 = 256;

fn visit(now: u64, side: Side, moved: u32) -> Visit {
    Visit { now: Nanos(now), side, moved, more: false, short: false }
}

fn policies() -> Vec<Policy> {
    ["every", "on-empty", "timer:150us", "coalesce:16/50us", "coalesce:0/50us", "adaptive"]
        .iter()
        .map(|text| text.parse().unwrap())
        .collect()
}

/// Dense traffic, a stream, request and response, silence.
fn gap_max(seed: u64) -> u64 {
    match seed >> 3 & 3 {
        0 => 100,
        1 => 5_000,
        2 => 40_000,
        _ => 1_000_000,
    }
}

/// What else the owner of a notifier may tell it, at random: long packets for a while, then some among short
/// ones, then none; a stream beside it; questions.
fn tell_at_random(notifier: &mut Notifier, at: usize, now: u64, moved: u32, seed: &mut u64) {
    let moved = u64::from(moved);
    let long = match at / 1_000 % 3 {
        0 => moved,
        1 => random(seed) % (moved + 1),
        _ => 0,
    };
    notifier.carried(long);
    if !(at / 500).is_multiple_of(4) && random(seed).is_multiple_of(3) {
        notifier.beside_stream(Nanos(now));
    }
    if (at / 700).is_multiple_of(3) && random(seed).is_multiple_of(50) {
        notifier.peer_was_asked(Nanos(now));
    }
    let beside = u32::from(random(seed).to_le_bytes()[0] % 8);
    let long = if (at / 1_300).is_multiple_of(2) { beside / 2 } else { 0 };
    notifier.looked(if (at / 400).is_multiple_of(5) { 0 } else { beside }, long.into());
}

/// How long anything may wait at a giver and at a taker, in nanoseconds.
fn longest_ns(notifier: &Notifier, side: Side) -> u64 {
    match (notifier, side) {
        (Notifier::Every | Notifier::OnEmpty, _) => 0,
        (Notifier::Timer(_), _) => 150_000,
        (Notifier::Coalesce(_), _) => 50_000,
        (Notifier::Adaptive(_), Side::Gives) => GIVER_WAIT_NS_MAX,
        (Notifier::Adaptive(_), Side::Takes) => TAKER_WAIT_NS_MAX,
        (Notifier::Returns(_), _) => STREAM_WAIT_NS,
    }
}

/// Random traffic; the longest time for which anything was to wait.
fn longest_wait_ns(notifier: &mut Notifier, side: Side, longest_ns: u64) -> u64 {
    let (mut now, mut seed, mut held_since, mut wake_at) = (0, 1, None, None);
    let mut seen_ns = 0;
    for at in 0..100_000 {
        let gap = 1 + random(&mut seed) % gap_max((at as u64 / 250) << 3);
        let (next, moved) = match wake_at {
            Some(Nanos(timer)) if timer <= now + gap => (timer, 0),
            _ => (now + gap, 1 + u32::from(random(&mut seed).to_le_bytes()[0] % 8)),
        };
        now = now.max(next);
        tell_at_random(notifier, at, now, moved, &mut seed);
        let plan = notifier.after(visit(now, side, moved));
        if moved > 0 || side == Side::Takes {
            held_since.get_or_insert(now);
        }
        if plan.notify || plan.wake_at.is_none() {
            assert!(plan.notify || side == Side::Takes || held_since.is_none(), "{notifier:?}");
            held_since = None;
        }
        if let (Some(since), Some(Nanos(wake_at))) = (held_since, plan.wake_at) {
            // A taker's time runs anew from each look.
            let since = if side == Side::Takes { now } else { since };
            seen_ns = seen_ns.max(wake_at - since);
            assert!(wake_at - since <= longest_ns, "{side:?} {notifier:?}");
        }
        wake_at = plan.wake_at;
    }
    seen_ns
}

#[test]
fn nothing_is_held_longer_than_the_timer() {
    let returns = Notifier::for_returns(Policy::Adaptive, SIZE);
    let all = policies().into_iter().map(|policy| Notifier::new(policy, SIZE)).chain([returns]);
    for (notifier, side) in all.flat_map(|one| [(one, Side::Gives), (one, Side::Takes)]) {
        if matches!((notifier, side), (Notifier::Returns(_), Side::Takes)) {
            continue;
        }
        let mut notifier = notifier;
        let longest_ns = longest_ns(&notifier, side);
        let seen_ns = longest_wait_ns(&mut notifier, side, longest_ns);
        let is_held = !matches!(notifier, Notifier::Coalesce(one) if !one.limits().holds());
        // Nor much less: what decides about a linger is the traffic, and random traffic comes near its end only.
        assert!(!is_held || 10 * seen_ns >= 9 * longest_ns, "{side:?} {notifier:?}: {seen_ns} ns");
    }
}

#[test]
fn idle_costs_nothing() {
    for policy in policies() {
        let mut notifier = Notifier::new(policy, SIZE);
        let mut now = 0;
        for _ in 0..1000 {
            now += 2_000;
            notifier.after(visit(now, Side::Takes, 3));
        }
        // The traffic stops. Timers may end a few times, then nobody wakes any more.
        let mut plan = notifier.after(visit(now + 1_000, Side::Takes, 0));
        let mut wakes = 0;
        while let Some(Nanos(at)) = plan.wake_at {
            plan = notifier.after(visit(at, Side::Takes, 0));
            wakes += 1;
            assert!(wakes < 5, "{policy} does not come to rest");
        }
        assert_eq!(plan.arm, Arm::Next, "{policy}");
    }
}

/// As where pauses were short: behind each of its timers the owner looks by itself for a moment.
#[test]
fn idle_costs_nothing_either_if_the_owner_looks_by_itself() {
    for (policy, long) in policies().into_iter().flat_map(|policy| [(policy, 0), (policy, 3)]) {
        let mut notifier = Notifier::new(policy, SIZE);
        let mut now = 0;
        for _ in 0..1000 {
            now += 2_000;
            notifier.carried(long);
            notifier.after(visit(now, Side::Takes, 3));
        }
        let mut plan = notifier.after(visit(now + 1_000, Side::Takes, 0));
        let mut wakes = 0;
        while let Some(Nanos(at)) = plan.wake_at {
            notifier.keep_looking(visit(at, Side::Takes, 0));
            plan = notifier.after(visit(at + 1_000, Side::Takes, 0));
            wakes += 1;
            assert!(wakes < 10, "{policy} does not come to rest: {notifier:?}");
        }
        assert_eq!(plan.arm, Arm::Next, "{policy}");
    }
}

#[test]
fn without_a_timer_nothing_waits() {
    for policy in policies() {
        let mut notifier = Notifier::new(policy, SIZE);
        let mut seed = 7;
        for at in 0..10_000u64 {
            let side = if random(&mut seed) & 1 == 0 { Side::Gives } else { Side::Takes };
            let moved = u32::from(random(&mut seed).to_le_bytes()[0] % 4);
            let plan = notifier.without_timer(visit(at * 500, side, moved));
            assert_eq!(plan.wake_at, None);
            match side {
                Side::Gives => assert!(plan.notify || moved == 0, "{policy}"),
                Side::Takes => assert_eq!(plan.arm, Arm::Next, "{policy}"),
            }
        }
    }
}

#[test]
fn spec_5_1_6_5_6_counting_starts_with_the_first_packet_and_either_limit_ends_it() {
    let limits = CoalesceLimits { max_packets: 4, max_usecs: 50 };
    let mut notifier = Notifier::new(Policy::Coalesce(limits), SIZE);
    let mut give = |now, moved| notifier.after(visit(now, Side::Gives, moved));
    let hold = |at| Plan { notify: false, arm: Arm::Next, wake_at: Some(Nanos(at)) };
    assert_eq!(give(1_000_000, 1), hold(1_050_000));
    assert_eq!(give(1_010_000, 2), hold(1_050_000), "time runs from the first packet");
    assert!(give(1_020_000, 1).notify, "the fourth packet");
    assert_eq!(give(1_030_000, 1), hold(1_080_000), "both start anew");
    assert!(!give(1_079_999, 0).notify);
    assert!(give(1_080_000, 0).notify, "the time is over");
    assert_eq!(give(1_080_001, 0), Plan { notify: false, arm: Arm::Next, wake_at: None });
    assert!(give(2_000_000, 9).notify, "more than the limit at once");
}

#[test]
fn spec_5_1_6_5_6_a_limit_of_zero_notifies_of_every_packet() {
    for (max_packets, max_usecs) in [(0, 0), (16, 0), (0, 50), (1, 50)] {
        let limits = CoalesceLimits { max_packets, max_usecs };
        let mut notifier = Notifier::new(Policy::Coalesce(limits), SIZE);
        for at in 0..10 {
            assert!(notifier.after(visit(at, Side::Gives, 1)).notify, "{limits:?}");
        }
    }
}

/// A device may notify more often than asked: a guest without buffers waits for nothing else.
#[test]
fn a_guest_that_cannot_go_on_is_notified_before_its_limits() {
    let limits = CoalesceLimits { max_packets: 30_000, max_usecs: 1_000_000 };
    let mut notifier = Notifier::new(Policy::Coalesce(limits), SIZE);
    assert!(!notifier.after(visit(0, Side::Gives, 200)).notify);
    assert!(notifier.after(visit(1, Side::Gives, 56)).notify, "all entries");
    assert!(!notifier.after(visit(2, Side::Gives, 3)).notify);
    assert!(notifier.after(Visit { short: true, ..visit(3, Side::Gives, 0) }).notify);
}

#[test]
fn request_and_response_is_never_delayed() {
    for side in [Side::Gives, Side::Takes] {
        let mut notifier = Notifier::new(Policy::Adaptive, SIZE);
        for at in 1..10_000 {
            let plan = notifier.after(visit(at * 63_000, side, 1));
            assert_eq!((notifier.window(), plan.wake_at, plan.arm), (1, None, Arm::Next));
            assert!(plan.notify || side == Side::Takes);
        }
    }
}

#[test]
fn a_stream_opens_the_window_and_one_lonely_packet_closes_it() {
    let mut notifier = Notifier::new(Policy::Adaptive, SIZE);
    let mut now = 0;
    for _ in 0..200 {
        now += 3_000;
        notifier.after(visit(now, Side::Gives, 1));
    }
    assert!((8..=12).contains(&notifier.window()), "{}", notifier.window());
    assert_eq!(notifier.cause(), Cause::Filled);
    // Drain what is held, then one packet and silence.
    while !notifier.after(visit(now, Side::Gives, 1)).notify {}
    let plan = notifier.after(visit(now + 100_000, Side::Gives, 1));
    let Some(wake_at) = plan.wake_at else { panic!("held: {plan:?}") };
    assert!(notifier.after(visit(wake_at.0, Side::Gives, 0)).notify);
    assert_eq!((notifier.window(), notifier.cause()), (1, Cause::Ended));
    assert!(notifier.after(visit(wake_at.0 + 100_000, Side::Gives, 1)).notify, "no delay again");
}

#[test]
fn used_buffers_come_back_in_a_lull_or_a_quarter_of_the_ring_at_a_time() {
    let mut returns = Notifier::for_returns(Policy::Adaptive, SIZE);
    let plan = returns.after(visit(0, Side::Gives, 1));
    assert_eq!((plan.notify, plan.wake_at), (false, Some(Nanos(LULL_NS))));
    assert!(returns.after(visit(LULL_NS, Side::Gives, 0)).notify, "the guest has stopped");
    assert!(!returns.after(visit(100_000, Side::Gives, 63)).notify);
    assert!(returns.after(visit(101_000, Side::Gives, 1)).notify, "a quarter");
    let short = Visit { short: true, ..visit(200_000, Side::Gives, 1) };
    assert!(returns.after(short).notify, "the guest has no room left");
}

/// A sender of long packets.
#[derive(Debug, Clone, Copy)]
enum Sender {
    /// Has one so often, in nanoseconds.
    Every(u64),
    /// Has so many under way, and each one again so long after it was taken.
    Answered(usize, u64),
    /// The same, but each after half to one and a half times that, at random.
    Scattered(usize, u64),
    /// Has one so often on average, after nothing to twice that, at random.
    AtRandom(u64),
}

impl Sender {
    /// When its next packets are due, if the first ones are at `now`.
    fn begins(self, now: u64) -> VecDeque<u64> {
        match self {
            Self::Every(_) | Self::AtRandom(_) => [now].into(),
            Self::Answered(depth, _) | Self::Scattered(depth, _) => vec![now; depth].into(),
        }
    }

    /// One that was due has come.
    fn came(self, was_due: u64, due: &mut VecDeque<u64>, seed: &mut u64) {
        match self {
            Self::Every(every_ns) => due.push_back(was_due + every_ns),
            Self::AtRandom(every_ns) => due.push_back(was_due + random(seed) % (2 * every_ns)),
            Self::Answered(..) | Self::Scattered(..) => {}
        }
    }

    /// One was taken.
    fn taken(self, now: u64, due: &mut VecDeque<u64>, seed: &mut u64) {
        match self {
            Self::Answered(_, after_ns) => due.push_back(now + after_ns),
            Self::Scattered(_, after_ns) => {
                let at = now + after_ns / 2 + random(seed) % after_ns;
                due.insert(due.partition_point(|other| *other <= at), at);
            }
            Self::Every(_) | Self::AtRandom(_) => {}
        }
    }
}

/// Takes that many long packets whenever it said it would look, or is told; how many of its looks
/// ended with the wish to be told of the next one, and how long all of it took.
fn take_long_packets(notifier: &mut Notifier, packets: usize, sender: Sender) -> (usize, u64) {
    /// Between a notification and the look that follows it.
    const WAKE_UP_NS: u64 = 10_000;
    let (mut now, mut taken, mut wishes) = (0, 0, 0);
    let (mut due, mut seed) = (sender.begins(1_000_000), 1);
    let mut plan = notifier.after(visit(now, Side::Takes, 0));
    while taken < packets {
        let told_at = due[0] + WAKE_UP_NS;
        let Nanos(look_at) = plan.wake_at.unwrap_or(Nanos(told_at));
        assert!(plan.wake_at.is_none() || look_at <= now + 600_000, "{plan:?} at {now}");
        now = look_at.max(now + 1_000);
        let mut moved = 0;
        while due.front().is_some_and(|due| *due <= now) {
            moved += 1;
            let was_due = due.pop_front().expect("the first one");
            sender.came(was_due, &mut due, &mut seed);
            sender.taken(now, &mut due, &mut seed);
        }
        taken += moved;
        let moved = u32::try_from(moved).expect("a few");
        notifier.carried(moved.into());
        plan = notifier.after(visit(now, Side::Takes, moved));
        wishes += usize::from(moved > 0 && plan.arm == Arm::Next);
    }
    (wishes, now)
}

#[test]
fn a_taker_of_many_long_packets_looks_again_before_it_is_told_of_the_next() {
    for every_ns in [5_000, 20_000, 40_000, 100_000, 250_000] {
        let mut notifier = Notifier::new(Policy::Adaptive, SIZE);
        let (wishes, _) = take_long_packets(&mut notifier, 2000, Sender::Every(every_ns));
        assert!(wishes < 200, "{wishes} of 2000, one every {every_ns} ns: {notifier:?}");
        assert_eq!(notifier.cause(), Cause::Long);
        assert!(notifier.timer_ns() <= (4 * every_ns).max(20_000), "{}", notifier.timer_ns());
    }
}

/// The answer comes among long packets: told of one by one for a while, then as before.
#[test]
fn a_taker_that_lingers_is_told_of_an_answer_at_once() {
    const EVERY_NS: u64 = 100_000;
    let mut notifier = Notifier::new(Policy::Adaptive, SIZE);
    assert!(!notifier.keeps_waiting(), "nobody is kept waiting: no need to hear of questions");
    let (_, mut now) = take_long_packets(&mut notifier, 500, Sender::Every(EVERY_NS));
    assert!(notifier.keeps_waiting());
    let take = |notifier: &mut Notifier, now| {
        notifier.carried(1);
        notifier.after(visit(now, Side::Takes, 1))
    };
    let held = take(&mut notifier, now).wake_at.expect("a look later");
    notifier.peer_was_asked(Nanos(now));
    let until = now + 500_000;
    while now < until {
        let plan = take(&mut notifier, now);
        assert_eq!((plan.arm, plan.wake_at), (Arm::Next, None), "at {now}");
        now += EVERY_NS;
    }
    let plan = take(&mut notifier, now);
    assert_ne!(plan.arm, Arm::Next);
    assert!(plan.wake_at.is_some() && notifier.keeps_waiting(), "as before {held:?}");
}

/// However long somebody asks, what is told of one by one meanwhile does not count as gathered.
#[test]
fn questions_without_end_do_not_keep_a_taker_lingering() {
    let mut notifier = Notifier::new(Policy::Adaptive, SIZE);
    let (_, mut now) = take_long_packets(&mut notifier, 500, Sender::Every(100_000));
    for at in 0..6_000 {
        if at % 6 == 0 {
            notifier.peer_was_asked(Nanos(now));
        }
        now += 100_000;
        notifier.carried(1);
        notifier.after(visit(now, Side::Takes, 1));
    }
    // The sender has stopped; the taker finds nothing more.
    let (mut looks, mut at) = (0, Nanos(now + 600_000));
    while notifier.keeps_waiting() {
        at = notifier.after(visit(at.0, Side::Takes, 0)).wake_at.unwrap_or(at.plus(600_000));
        looks += 1;
        assert!(looks < 10, "{notifier:?}");
    }
}

/// Gives that many long packets as they come; how many of them were told of, and how long all took.
fn give_long_packets(notifier: &mut Notifier, packets: usize, sender: Sender) -> (usize, u64) {
    give_long_packets_beside(u64::MAX, notifier, packets, sender)
}

/// The same, while the peer is asked something so often.
fn give_long_packets_beside(
    asked_every_ns: u64,
    notifier: &mut Notifier,
    packets: usize,
    sender: Sender,
) -> (usize, u64) {
    let mut asked = 0;
    let (mut now, mut calls, mut given, mut held) = (10_000_000, 0, 0, 0);
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
        if now / asked_every_ns > asked {
            asked = now / asked_every_ns;
            notifier.peer_was_asked(Nanos(now));
        }
        notifier.carried(moved.into());
        let plan = notifier.after(visit(now, Side::Gives, moved));
        assert!(
            plan.wake_at.is_none_or(|Nanos(at)| at <= now + GIVER_WAIT_NS_MAX),
            "{plan:?} at {now}"
        );
        timer = plan.wake_at;
        if plan.notify {
            // The taker answers all that it was told of.
            (0..std::mem::take(&mut held)).for_each(|_| sender.taken(now, &mut due, &mut seed));
        }
        calls += usize::from(plan.notify);
    }
    (calls, now)
}

#[test]
fn a_giver_of_many_long_packets_tells_of_a_few_at_once() {
    for (every_ns, most) in [(20_000, 950), (40_000, 950), (100_000, 950)] {
        let mut notifier = Notifier::new(Policy::Adaptive, SIZE);
        let (calls, _) = give_long_packets(&mut notifier, 2000, Sender::Every(every_ns));
        assert!(calls < most, "{calls} for 2000, one every {every_ns} ns: {notifier:?}");
        assert_eq!(notifier.cause(), Cause::Long);
    }
}

/// The gap that was measured goes on to be right, until it is not: then it is measured anew.
#[test]
fn a_giver_finds_out_that_packets_come_faster() {
    let mut notifier = Notifier::new(Policy::Adaptive, SIZE);
    let (mut now, mut timer) = (10_000_000, None);
    let mut give = |notifier: &mut Notifier, every_ns: u64, for_ns: u64| {
        let until = now + for_ns;
        let mut due = now + every_ns;
        while now < until {
            now = timer.map_or(due, |Nanos(at): Nanos| at.clamp(now, due));
            let moved = u32::from(now == due);
            due += u64::from(moved) * every_ns;
            notifier.carried(moved.into());
            timer = notifier.after(visit(now, Side::Gives, moved)).wake_at;
        }
        (notifier.cause(), notifier.timer_ns())
    };
    let (cause, slow_ns) = give(&mut notifier, 70_000, 500_000_000);
    assert!(cause == Cause::Long && slow_ns >= 35_000, "{cause:?}, {slow_ns} ns");
    // As many looks as there may be before.
    give(&mut notifier, 5_000, 3_072 * GIVER_WAIT_NS_MAX);
    let (cause, fast_ns) = give(&mut notifier, 5_000, 1_000_000);
    // Four gaps at most, whatever share of them was tried last.
    assert!(cause == Cause::Long && fast_ns <= 22_000, "{cause:?}, {fast_ns} ns");
}

/// Fewer than the rate promises come now and then, by chance: nobody is kept waiting.
#[test]
fn a_stream_without_a_beat_is_lingered_for() {
    for (every_ns, most) in [(40_000, 7_000), (70_000, 6_500), (110_000, 9_700)] {
        let sender = Sender::AtRandom(every_ns);
        let mut notifier = Notifier::new(Policy::Adaptive, SIZE);
        let (calls, _) = give_long_packets(&mut notifier, 20_000, sender);
        assert!(calls < most, "{calls} for 20,000, one every {every_ns} ns: {notifier:?}");
        let mut notifier = Notifier::new(Policy::Adaptive, SIZE);
        let (wishes, _) = take_long_packets(&mut notifier, 20_000, sender);
        assert!(wishes < 800, "{wishes} of 20,000, one every {every_ns} ns: {notifier:?}");
    }
}

#[test]
fn a_giver_of_few_long_packets_tells_of_each() {
    let mut notifier = Notifier::new(Policy::Adaptive, SIZE);
    let (calls, _) = give_long_packets(&mut notifier, 2000, Sender::Every(400_000));
    assert!(calls > 1900, "{calls} for 2000: {notifier:?}");
}

#[test]
fn a_short_packet_behind_long_ones_is_told_of_at_once() {
    let mut notifier = Notifier::new(Policy::Adaptive, SIZE);
    let (_, end) = give_long_packets(&mut notifier, 101, Sender::Every(100_000));
    assert_eq!(notifier.cause(), Cause::Long);
    let now = end + GIVER_WAIT_NS_MAX + 1_000;
    assert!(notifier.after(visit(now - 1_000, Side::Gives, 0)).notify, "a timer has ended");
    notifier.carried(1);
    assert!(!notifier.after(visit(now, Side::Gives, 1)).notify, "a long one waits");
    // One long and one short packet.
    notifier.carried(1);
    assert!(notifier.after(visit(now + 1_000, Side::Gives, 2)).notify);
    assert_eq!(notifier.cause(), Cause::Long, "and the stream goes on");
}

#[test]
fn a_stream_of_short_packets_behind_one_of_long_ones_has_windows() {
    let mut notifier = Notifier::new(Policy::Adaptive, SIZE);
    let (_, mut now) = give_long_packets(&mut notifier, 101, Sender::Every(100_000));
    assert_eq!(notifier.cause(), Cause::Long);
    let mut told = 0;
    // 200 ms of one every two microseconds.
    for _ in 0..100_000 {
        now += 2_000;
        notifier.carried(0);
        told += u32::from(notifier.after(visit(now, Side::Gives, 1)).notify);
    }
    assert_eq!(notifier.cause(), Cause::Filled);
    assert!(told < 55_000, "{told}: a tenth of a second one by one, then a few at once");
}

/// The next question would stand behind what is held back.
#[test]
fn a_giver_holds_nothing_back_while_there_are_questions() {
    const EVERY_NS: u64 = 50_000;
    let mut notifier = Notifier::new(Policy::Adaptive, SIZE);
    let (_, mut now) = give_long_packets(&mut notifier, 500, Sender::Every(EVERY_NS));
    let mut longest_hold_ns = |packets: usize, is_asked: bool| {
        let mut timer = Nanos(now);
        let mut longest_ns = 0;
        for _ in 0..packets {
            let due = now + EVERY_NS;
            if timer.0 > now && timer.0 < due {
                notifier.after(visit(timer.0, Side::Gives, 0));
            }
            now = due;
            if is_asked {
                notifier.peer_was_asked(Nanos(now));
            }
            notifier.carried(1);
            timer = notifier.after(visit(now, Side::Gives, 1)).wake_at.unwrap_or(Nanos(now));
            longest_ns = longest_ns.max(timer.0 - now);
        }
        longest_ns
    };
    let usual_ns = longest_hold_ns(100, false);
    assert!(usual_ns >= EVERY_NS, "{usual_ns}");
    longest_hold_ns(1, true);
    let rest = usize::try_from(100_000_000 / EVERY_NS).expect("a few thousand") - 1;
    assert_eq!(longest_hold_ns(rest, false), 0, "another question may come");
    assert!(longest_hold_ns(500, false) >= usual_ns, "none came");
}

#[test]
fn a_question_now_and_then_leaves_a_giver_lingering_most_of_the_time() {
    for every_ns in [20_000, 40_000] {
        let mut notifier = Notifier::new(Policy::Adaptive, SIZE);
        let sender = Sender::Every(every_ns);
        let packets = 100_000;
        let (calls, _) = give_long_packets_beside(1_000_000_000, &mut notifier, packets, sender);
        let most = packets * 48 / 100;
        assert!(calls < most, "{calls} for {packets}, one every {every_ns} ns: {notifier:?}");
    }
}

/// Senders that wait for answers, with some packets under way.
fn few_under_way(after_ns: u64) -> Vec<Sender> {
    let both = |depth| [Sender::Answered(depth, after_ns), Sender::Scattered(depth, after_ns)];
    [1, 2, 3, 4, 5, 8].into_iter().flat_map(both).collect()
}

#[test]
fn who_waits_for_answers_to_long_packets_given_is_not_kept_waiting() {
    for after_ns in [20_000, 50_000, 100_000, 300_000, 1_000_000] {
        for (sender, asked_every_ns) in few_under_way(after_ns)
            .into_iter()
            .flat_map(|sender| [(sender, u64::MAX), (sender, 150_000_000)])
        {
            let mut notifier = Notifier::new(Policy::Adaptive, SIZE);
            let (_, took) = give_long_packets_beside(asked_every_ns, &mut notifier, 10_000, sender);
            let (_, least) = give_long_packets(&mut Notifier::Every, 10_000, sender);
            assert!(
                10 * took < 13 * least,
                "{sender:?}, asked every {asked_every_ns} ns: {took} ns instead of {least}: \
                 {notifier:?}"
            );
        }
    }
}

#[test]
fn who_waits_for_answers_to_long_packets_is_not_kept_waiting() {
    for after_ns in [20_000, 50_000, 100_000, 300_000, 1_000_000] {
        // A taker looks after 20 µs at least.
        let is_measured = |it: &Sender| after_ns > 20_000 || matches!(it, Sender::Answered(..));
        for sender in few_under_way(after_ns).into_iter().filter(is_measured) {
            let mut notifier = Notifier::new(Policy::Adaptive, SIZE);
            let (_, took) = take_long_packets(&mut notifier, 10_000, sender);
            let (_, least) = take_long_packets(&mut Notifier::Every, 10_000, sender);
            assert!(
                10 * took < 13 * least,
                "{sender:?}: {took} ns instead of {least}: {notifier:?}"
            );
        }
    }
}

#[test]
fn a_queue_of_few_entries_has_no_room_for_lingering() {
    let mut notifier = Notifier::new(Policy::Adaptive, 4);
    take_long_packets(&mut notifier, 200, Sender::Every(20_000));
    assert_ne!(notifier.cause(), Cause::Long);
}
