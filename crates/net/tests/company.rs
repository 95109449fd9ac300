//! A taker beside a stream of long packets the other way: its owner looks whenever it gives one of
//! those, so that nobody need tell it.

use std::collections::VecDeque;

use ringway_net::notify::{
    Cause, LOOK_AGAIN_NS, Nanos, Notifier, PATIENCE_NS, Plan, Policy, Side, Visit,
    WINDOW_MAX_PACKETS,
};
use ringway_virtq::Arm;

const SIZE: u16 = 256;

/// Between two long packets.
const EVERY_NS: u64 = 100_000;

struct Taker {
    notifier: Notifier,
    now: u64,
}

impl Taker {
    fn new() -> Self {
        Self { notifier: Notifier::new(Policy::Adaptive, SIZE), now: 1_000_000 }
    }

    fn take(&mut self, moved: u32) -> Plan {
        let now = Nanos(self.now);
        self.notifier.after(Visit { now, side: Side::Takes, moved, more: false, short: false })
    }

    /// The owner gives so many long packets, one by one, and finds one short packet here each time.
    fn give_long_packets(&mut self, count: usize) {
        for _ in 0..count {
            self.now += EVERY_NS;
            self.notifier.looked(1, 1);
            self.take(1);
        }
    }
}

#[test]
fn the_peer_need_not_tell_of_what_is_found_beside_long_packets() {
    let mut taker = Taker::new();
    taker.give_long_packets(100);
    assert_eq!(taker.notifier.cause(), Cause::AwakeAnyway);
    taker.notifier.looked(1, 1);
    let plan = taker.take(1);
    assert_eq!(plan.wake_at, Some(Nanos(taker.now + LOOK_AGAIN_NS)));
    assert!(matches!(plan.arm, Arm::After(packets) if packets > 1), "{plan:?}");
    assert!(taker.notifier.counts_on_looks() && taker.notifier.keeps_waiting());
}

#[test]
fn beside_short_packets_it_waits_for_its_patience_only() {
    let mut taker = Taker::new();
    taker.notifier.looked(3, 0);
    assert_eq!(taker.take(1).wake_at, None, "a few are no stream");
    taker.now += 1_000_000;
    taker.notifier.looked(4, 0);
    assert_eq!(taker.take(1).wake_at, Some(Nanos(taker.now + PATIENCE_NS)));
    assert!(!taker.notifier.counts_on_looks() && !taker.notifier.keeps_waiting());
}

#[test]
fn who_asks_again_and_again_does_not_wait_for_looks() {
    const ASKED_NS: u64 = 100_000_000;
    let mut taker = Taker::new();
    taker.give_long_packets(100);
    taker.notifier.peer_was_asked(Nanos(taker.now));
    let until = taker.now + ASKED_NS;
    while taker.now < until {
        taker.notifier.looked(1, 1);
        let plan = taker.take(1);
        assert_eq!((plan.arm, plan.wake_at), (Arm::Next, None), "at {}", taker.now);
        taker.now += EVERY_NS;
    }
    taker.notifier.looked(1, 1);
    assert!(taker.take(1).wake_at.is_some() && taker.notifier.counts_on_looks(), "as before");
}

/// Questions every 50 ms: always within the time in which the next one is expected.
fn ask_for_ever(taker: &mut Taker, mut visit: impl FnMut(&mut Taker)) {
    const ASK_NS: u64 = 50_000_000;
    let mut asked_at = taker.now;
    for _ in 0..20_000 {
        if taker.now >= asked_at {
            taker.notifier.peer_was_asked(Nanos(taker.now));
            asked_at += ASK_NS;
        }
        visit(taker);
    }
}

#[test]
fn a_stream_that_the_peer_sends_is_lingered_for_while_somebody_asks() {
    for is_both_ways in [false, true] {
        let mut taker = Taker::new();
        taker.give_long_packets(100);
        assert!(taker.notifier.counts_on_looks());
        let mut lingered = 0;
        ask_for_ever(&mut taker, |taker| {
            taker.now += EVERY_NS / 4;
            taker.notifier.carried(1);
            taker.notifier.looked(is_both_ways.into(), is_both_ways.into());
            lingered += u32::from(taker.take(1).arm != Arm::Next);
        });
        assert!(lingered > 18_000, "{is_both_ways}: {lingered} of 20,000: {:?}", taker.notifier);
    }
}

#[test]
fn while_somebody_asks_it_says_so_and_goes_on_listening() {
    let mut taker = Taker::new();
    taker.give_long_packets(100);
    taker.notifier.peer_was_asked(Nanos(taker.now));
    taker.give_long_packets(1);
    let Taker { notifier, .. } = &taker;
    assert_eq!((notifier.cause(), notifier.window()), (Cause::Asked, 1));
    assert_eq!(notifier.timer_ns(), 0);
    assert!(notifier.wants_questions() && !notifier.keeps_waiting());
    // A tenth of a second without long packets the other way.
    taker.now += 100_000_000;
    taker.take(1);
    assert!(!taker.notifier.wants_questions(), "{:?}", taker.notifier);
    assert_eq!(taker.notifier.cause(), Cause::Slower, "nobody asks any more");
}

/// Its timer is that of a window, not that of company.
#[test]
fn a_fast_stream_without_looks_ends_company_however_long_its_window() {
    let mut taker = Taker::new();
    for _ in 0..1_000 {
        taker.now += 100;
        taker.notifier.looked(1, 1);
        taker.take(1);
    }
    assert_eq!(taker.notifier.cause(), Cause::AwakeAnyway);
    taker.now += 100;
    let plan = taker.take(1);
    assert!(plan.wake_at.is_some_and(|Nanos(at)| at < taker.now + 2 * PATIENCE_NS), "{plan:?}");
    assert_eq!(
        (taker.notifier.cause(), taker.notifier.window()),
        (Cause::Filled, WINDOW_MAX_PACKETS)
    );
}

#[test]
fn a_queue_too_small_for_windows_keeps_no_company() {
    let mut taker = Taker { notifier: Notifier::new(Policy::Adaptive, 4), now: 1_000_000 };
    taker.give_long_packets(100);
    assert_eq!(taker.notifier.cause(), Cause::Started);
    assert!(!taker.notifier.keeps_waiting());
}

#[test]
fn what_is_there_when_the_timer_ends_need_not_be_told_of() {
    let mut taker = Taker::new();
    taker.give_long_packets(100);
    for _ in 0..2_000 {
        taker.now += LOOK_AGAIN_NS;
        let plan = taker.take(1);
        assert_eq!(plan.wake_at, Some(Nanos(taker.now + LOOK_AGAIN_NS)));
        assert!(matches!(plan.arm, Arm::After(packets) if packets > 1), "{plan:?}");
    }
}

#[test]
fn where_nothing_is_there_it_is_told_of_the_next_one_and_left_alone_again_behind_it() {
    let mut taker = Taker::new();
    taker.give_long_packets(100);
    for _ in 0..100 {
        taker.now += LOOK_AGAIN_NS;
        let plan = taker.take(0);
        assert_eq!((plan.arm, plan.wake_at), (Arm::Next, None));
        assert_eq!(taker.notifier.cause(), Cause::AwakeAnyway);
        taker.give_long_packets(1);
        assert!(taker.take(0).wake_at.is_some() && taker.notifier.counts_on_looks());
    }
}

/// How long 10,000 long packets take of a sender with so many under way, which goes on so long after
/// each acknowledgement; and how often the peer told of one.
fn acknowledged(notifier: &mut Notifier, depth: usize, after_ns: u64) -> (u64, usize) {
    /// From a packet to its acknowledgement, and from a notification to the look behind it.
    const GUEST_NS: u64 = 20_000;
    const WAKE_UP_NS: u64 = 10_000;
    let (mut now, mut given, mut told) = (0, 0, 0);
    let mut packets: VecDeque<u64> = vec![1_000_000; depth].into();
    let mut answers = VecDeque::new();
    let mut plan = Plan { notify: false, arm: Arm::Next, wake_at: None };
    let of = |due: &VecDeque<u64>| due.front().copied().unwrap_or(u64::MAX);
    while given < 10_000 {
        let is_told = match plan.arm {
            Arm::Next => of(&answers).saturating_add(WAKE_UP_NS),
            _ => u64::MAX,
        };
        let timer = plan.wake_at.map_or(u64::MAX, |Nanos(at)| at);
        let next = of(&packets).min(timer).min(is_told);
        assert!(next < u64::MAX, "nobody will ever look: {notifier:?}");
        told += usize::from(next == is_told);
        now = next.max(now);
        let mut long = 0;
        while of(&packets) <= now {
            packets.pop_front();
            answers.push_back(now + GUEST_NS);
            long += 1;
        }
        let mut moved = 0;
        while of(&answers) <= now {
            answers.pop_front();
            packets.push_back(now + after_ns);
            moved += 1;
        }
        given += long;
        notifier.looked(u32::try_from(long).expect("a few"), long as u64);
        let visit = Visit { now: Nanos(now), side: Side::Takes, moved, more: false, short: false };
        plan = notifier.after(visit);
    }
    (now, told)
}

#[test]
fn a_sender_with_few_packets_under_way_is_not_kept_waiting() {
    for after_ns in [10_000, 50_000, 100_000, 300_000, 1_000_000] {
        for depth in [1, 2, 3, 4, 5, 8, 16] {
            let mut notifier = Notifier::new(Policy::Adaptive, SIZE);
            let (took, told) = acknowledged(&mut notifier, depth, after_ns);
            let (least, _) = acknowledged(&mut Notifier::Every, depth, after_ns);
            let what = format!("{depth} under way, {after_ns} ns: {took} ns instead of {least}");
            assert!(10 * took < 13 * least, "{what}: {notifier:?}");
            let is_soon = after_ns == 10_000 && depth > 3;
            assert!(!is_soon || told < 50, "{what}: told of {told} of 10,000 acknowledgements");
        }
    }
}
