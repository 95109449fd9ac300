//! What holds of every notification policy, whatever the traffic.

use ringway_net::notify::{
    Cause, CoalesceLimits, LINGER_NS_MAX, LULL_NS, Nanos, Notifier, PATIENCE_NS, Plan, Policy,
    RETURN_WAIT_NS, Side, Visit,
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

/// SplitMix64, enough for traffic.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed ^ (mixed >> 29)
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

#[test]
fn nothing_is_held_longer_than_the_timer() {
    let returns = Notifier::for_returns(Policy::Adaptive, SIZE);
    let all = policies().into_iter().map(|policy| Notifier::new(policy, SIZE));
    for mut notifier in all.chain([returns]) {
        let longest = match notifier {
            Notifier::Every | Notifier::OnEmpty => 0,
            Notifier::Timer(_) => 150_000,
            Notifier::Coalesce(_) => 50_000,
            Notifier::Adaptive(_) => 2 * PATIENCE_NS,
            Notifier::Returns(_) => RETURN_WAIT_NS,
        };
        let (mut now, mut seed, mut held_since, mut wake_at) = (0, 1, None, None);
        for _ in 0..100_000 {
            let gap = 1 + random(&mut seed) % gap_max(seed);
            let (at, moved) = match wake_at {
                Some(Nanos(timer)) if timer <= now + gap => (timer, 0),
                _ => (now + gap, 1 + u32::from(random(&mut seed).to_le_bytes()[0] % 8)),
            };
            now = now.max(at);
            if moved > 0 {
                held_since.get_or_insert(now);
            }
            let plan = notifier.after(visit(now, Side::Gives, moved));
            match (plan.notify, held_since) {
                (true, _) => held_since = None,
                (false, Some(since)) => {
                    let Nanos(wake_at) = plan.wake_at.expect("a held packet has a timer");
                    assert!(wake_at - since <= longest, "{notifier:?}");
                }
                (false, None) => assert_eq!(plan.wake_at, None, "{notifier:?}"),
            }
            wake_at = plan.wake_at;
        }
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

/// When the sender of long packets has the next one.
enum Next {
    /// So long after it had the last one.
    Every(u64),
    /// So long after that was taken.
    Answered(u64),
}

/// A taker of that many long packets that looks whenever it said it would, or is told; how many of its
/// looks ended with the wish to be told of the next one.
fn take_long_packets(notifier: &mut Notifier, packets: u64, next: &Next) -> u64 {
    let (mut now, mut due, mut taken, mut wishes) = (0, 1_000_000, 0, 0);
    let mut plan = notifier.after(visit(now, Side::Takes, 0));
    while taken < packets {
        // Told of the next one, or at the time it wanted.
        now = plan.wake_at.map_or(due, |at| at.0).max(now + 1_000);
        assert!(plan.wake_at.is_none_or(|at| at.0 <= now + LINGER_NS_MAX));
        let mut moved = 0;
        while due <= now {
            moved += 1;
            due = match next {
                Next::Every(every_ns) => due + every_ns,
                Next::Answered(after_ns) => now + after_ns,
            };
        }
        taken += u64::from(moved);
        notifier.carried(moved, u64::from(moved) << 16);
        plan = notifier.after(visit(now, Side::Takes, moved));
        wishes += u64::from(moved > 0 && plan.arm == Arm::Next);
    }
    wishes
}

#[test]
fn a_taker_of_many_long_packets_looks_again_before_it_is_told_of_the_next() {
    for every_ns in [5_000, 20_000, 40_000, 100_000, 200_000] {
        let mut notifier = Notifier::new(Policy::Adaptive, SIZE);
        let wishes = take_long_packets(&mut notifier, 1000, &Next::Every(every_ns));
        assert!(wishes < 20, "{wishes} of 1000, one every {every_ns} ns");
        assert_eq!(notifier.cause(), Cause::Long);
        assert!(notifier.timer_ns() <= 6 * every_ns, "{every_ns} ns: {}", notifier.timer_ns());
    }
}

#[test]
fn who_sends_the_next_long_packet_when_this_one_is_answered_is_not_kept_waiting() {
    for after_ns in [20_000, 100_000, 300_000, 1_000_000] {
        let mut notifier = Notifier::new(Policy::Adaptive, SIZE);
        let wishes = take_long_packets(&mut notifier, 10_000, &Next::Answered(after_ns));
        assert!(wishes > 9_700, "{wishes} of 10,000, {after_ns} ns after the last");
    }
}
