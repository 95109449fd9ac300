//! A slow stream from the guest keeps nobody waiting who asks the guest something, a fast one does for a while.

use ringway_net::notify::{Nanos, Notifier, Policy, Side, Visit};

/// Between two questions, which are answered at once.
const ASKED_EVERY_NS: u64 = 1_000_000;

fn visit(now: u64, moved: u32) -> Visit {
    Visit { now: Nanos(now), side: Side::Takes, moved, more: false, short: false }
}

/// Takes long packets that come so often, and one answer to each question, for `ms` milliseconds; after how many of a
/// thousand visits the taker waited for several packets.
fn waits(notifier: &mut Notifier, now: &mut u64, gap_ns: u64, ms: u64, is_asked: bool) -> u64 {
    let end = *now + ms * 1_000_000;
    let (mut visits, mut waiting, mut moved) = (0, 0, 0);
    let (mut long_at, mut asked_at) = (*now + gap_ns, *now + ASKED_EVERY_NS);
    let mut timer = None;
    while *now < end {
        *now = if is_asked { long_at.min(asked_at) } else { long_at };
        let is_long = *now == long_at;
        if is_long {
            long_at += gap_ns;
            moved += 1;
        } else {
            asked_at += ASKED_EVERY_NS;
            notifier.peer_was_asked(Nanos(*now));
        }
        // Whoever is told of each is told now, everybody else when the time has come.
        if timer.is_some_and(|Nanos(at)| at > *now) && is_long {
            continue;
        }
        notifier.carried(moved);
        let answers = u32::from(!is_long);
        let plan = notifier.after(visit(*now, u32::try_from(moved).expect("a few") + answers));
        (timer, moved) = (plan.wake_at, 0);
        visits += 1;
        waiting += u64::from(timer.is_some());
    }
    1000 * waiting / visits
}

#[test]
fn a_slow_stream_is_told_of_packet_by_packet_while_there_are_questions() {
    for (gap_ns, least, most) in [(350_000, 0, 50), (100_000, 100, 1000)] {
        let mut notifier = Notifier::new(Policy::Adaptive, 256);
        let mut now = 10_000_000;
        let unasked = waits(&mut notifier, &mut now, gap_ns, 200, false);
        assert!(unasked > 300, "{unasked} of 1000 visits, {gap_ns} ns: {notifier:?}");
        let asked = waits(&mut notifier, &mut now, gap_ns, 500, true);
        assert!(
            (least..=most).contains(&asked),
            "{asked} of 1000 visits, {gap_ns} ns: {notifier:?}"
        );
        let unasked = waits(&mut notifier, &mut now, gap_ns, 500, false);
        assert!(unasked > 300, "{unasked} of 1000 visits, {gap_ns} ns: {notifier:?}");
    }
}

#[test]
fn a_slow_stream_that_becomes_fast_is_waited_for_again() {
    let mut notifier = Notifier::new(Policy::Adaptive, 256);
    let mut now = 10_000_000;
    waits(&mut notifier, &mut now, 350_000, 200, false);
    assert!(waits(&mut notifier, &mut now, 350_000, 300, true) < 50, "{notifier:?}");
    waits(&mut notifier, &mut now, 100_000, 100, true);
    let waiting = waits(&mut notifier, &mut now, 100_000, 300, true);
    assert!(waiting > 100, "{waiting} of 1000 visits: {notifier:?}");
}
