//! What a stream to a guest means for the buffers that the guest gets back.

use ringway_net::CoalesceScope;
use ringway_net::notify::{CoalesceLimits, LULL_NS, Learned, STREAM_WAIT_NS};

use super::*;

const QUEUE_SIZE: u16 = 256;

/// How long a buffer waits that comes back beside `long` of two packets to the guest, and is a long
/// one itself or not.
fn wait_ns(long: u64, is_long: bool) -> u64 {
    let mut pace = Pace::new(Policy::Adaptive);
    [Queue::ToGuest, Queue::FromGuest].iter().for_each(|&queue| pace.start(queue, QUEUE_SIZE));
    let start = 10 * STREAM_WAIT_NS;
    let mut gave = |queue, long, at_ns| {
        let flush = Flush { now: Nanos(start + at_ns), more: false, short: false };
        pace.gave(queue, 1, long, flush)
    };
    // It is the guest that talks first.
    gave(Queue::FromGuest, 3, 0);
    gave(Queue::ToGuest, 7, 0);
    let now = STREAM_WAIT_NS - 1;
    gave(Queue::ToGuest, 7 + long.min(1), now);
    gave(Queue::ToGuest, 7 + long, now + 1);
    assert!(gave(Queue::FromGuest, 3, now + 2), "the first one, all this time");
    assert!(!gave(Queue::FromGuest, 3 + u64::from(is_long), now + 3));
    pace.returns.wake_at.map_or(0, |Nanos(wake_at)| wake_at - start - now - 3)
}

#[test]
fn short_packets_back_wait_for_a_stream_of_long_ones_only() {
    assert_eq!(wait_ns(2, false), STREAM_WAIT_NS);
    assert_eq!(wait_ns(1, false), LULL_NS, "no stream");
    assert_eq!(wait_ns(0, false), LULL_NS, "short ones");
    assert_eq!(wait_ns(2, true), LULL_NS, "a stream the other way");
}

/// A source ran out of budget, and has nothing more for this guest when it is visited again.
#[test]
fn what_was_put_off_until_the_next_visit_is_told_of_without_one() {
    for policy in [Policy::OnEmpty, Policy::Adaptive, Policy::Timer { usecs: 50 }] {
        for queue in [Queue::ToGuest, Queue::FromGuest] {
            let mut pace = Pace::new(policy);
            pace.start(queue, QUEUE_SIZE);
            let flush = Flush { now: Nanos(1), more: true, short: false };
            if pace.gave(queue, 8, 0, flush) {
                assert_eq!(policy, Policy::Adaptive, "nothing is put off");
                continue;
            }
            let now = pace.wake_at().expect("the worker comes back");
            assert!(pace.gave(queue, 0, 0, Flush { now, more: false, ..flush }), "{policy:?}");
            assert_eq!(pace.wake_at(), None, "{policy:?}");
        }
    }
}

/// Packets go to a guest and come from it by turns: whether it is told at once of the buffers of those
/// that came.
fn told_at_once(is_asked: bool, policy: Policy) -> bool {
    let mut pace = Pace::new(policy);
    [Queue::ToGuest, Queue::FromGuest].iter().for_each(|&queue| pace.start(queue, QUEUE_SIZE));
    let mut now = Nanos(0);
    let mut gave = |pace: &mut Pace, queue| {
        now = now.plus(2 * LULL_NS / 5);
        pace.gave(queue, 1, 0, Flush { now, more: false, short: false })
    };
    if !is_asked {
        gave(&mut pace, Queue::FromGuest);
    }
    let mut told = 0;
    for round in 0..100 {
        gave(&mut pace, Queue::ToGuest);
        told += u32::from(gave(&mut pace, Queue::FromGuest));
        if round == 50 {
            // Who asks whom is known whatever the policy.
            pace.follow(Policy::Adaptive, Nanos(0));
        }
    }
    told == 100
}

#[test]
fn who_is_asked_gets_the_buffers_of_its_answers_at_once() {
    assert!(told_at_once(true, Policy::Adaptive));
    assert!(!told_at_once(false, Policy::Adaptive), "the guest asks, and finds them by itself");
    assert!(told_at_once(true, Policy::Every));
}

/// Between two long packets.
const LONG_EVERY_NS: u64 = 100_000;

/// The pace of a guest that has sent long packets until it is looked at later; when that is, and how many.
fn sends_long() -> (Pace, Nanos, u64) {
    let mut pace = Pace::new(Policy::Adaptive);
    [Queue::ToGuest, Queue::FromGuest].iter().for_each(|&queue| pace.start(queue, QUEUE_SIZE));
    let (mut now, mut long) = (Nanos(0), 0);
    while !pace.kicks.notifier.keeps_waiting() {
        (now, long) = (now.plus(LONG_EVERY_NS), long + 1);
        pace.gave(Queue::FromGuest, 1, long, Flush { now, more: false, short: false });
        pace.idle(now, long);
        assert!(long < 1000, "{pace:?}");
    }
    (pace, now, long)
}

/// A guest that sends long packets is looked at later, until somebody asks it something.
#[test]
fn a_question_ends_the_wait_for_long_packets() {
    let (mut pace, now, long) = sends_long();
    assert!(pace.kicks.wake_at.is_some_and(|wake_at| wake_at > now));
    pace.was_asked(now);
    assert_eq!(pace.kicks.wake_at, Some(now), "the transmitq is visited");
    assert!(pace.is_asked_while_sending(now));
    assert_eq!((pace.idle(now, long), pace.kicks.wake_at), (Arm::Next, None));
    pace.was_asked(now);
    assert_eq!(pace.kicks.wake_at, None, "the guest kicks: nothing to be put forward");
}

/// Long packets go to a guest that acknowledges each: it need not kick, and is looked at when it gets the
/// next one; until it is asked something.
#[test]
fn acknowledgements_are_looked_for_beside_long_packets() {
    const EVERY_NS: u64 = 100_000;
    let mut pace = Pace::new(Policy::Adaptive);
    [Queue::ToGuest, Queue::FromGuest].iter().for_each(|&queue| pace.start(queue, QUEUE_SIZE));
    let mut now = Nanos(0);
    let mut acknowledges = |pace: &mut Pace, long: u64| {
        now = now.plus(EVERY_NS);
        let flush = Flush { now, more: false, short: false };
        pace.gave(Queue::ToGuest, 1, long, flush);
        pace.gave(Queue::FromGuest, 1, 0, flush);
        (pace.idle(now, 0), pace.expects_answers(1), now)
    };
    // Of the first packet it is not known that it is long.
    let (arm, is_looked_at, _) = acknowledges(&mut pace, 1);
    assert_eq!((arm, is_looked_at), (Arm::Next, false));
    let (arm, is_looked_at, now) = acknowledges(&mut pace, 2);
    assert!(arm != Arm::Next && is_looked_at, "{pace:?}");
    assert!(pace.wants_questions() && !pace.expects_answers(0));
    pace.was_asked(now);
    assert!(!pace.is_asked_while_sending(now), "the long packets are not its own");
    assert_eq!(
        pace.wake_at().filter(|at| *at > now),
        pace.calls.wake_at,
        "the transmitq is visited"
    );
    let (arm, is_looked_at, _) = acknowledges(&mut pace, 3);
    assert_eq!((arm, is_looked_at), (Arm::Next, false), "an answer may come");
    assert!(pace.wants_questions() && !pace.kicks.notifier.keeps_waiting(), "the next one counts");
}

/// A guest that is asked something beside the stream that it sends is told of its buffers when it is called
/// about packets, and of acknowledgements some time behind the last call.
#[test]
fn beside_its_own_stream_a_guest_that_is_asked_is_called_about_everything_at_once() {
    let (mut pace, mut now, mut long) = sends_long();
    // Of the first packets it is not known how many are long.
    let flush = Flush { now, more: false, short: false };
    pace.gave(Queue::ToGuest, 0, 0, flush);
    assert!(!pace.told_of_packets(now, true), "nobody asks");
    pace.was_asked(now);
    for _ in 0..100 {
        (now, long) = (now.plus(LONG_EVERY_NS), long + 1);
        let flush = Flush { now, ..flush };
        pace.nobody_asked();
        let is_told = pace.gave(Queue::ToGuest, 1, 0, flush);
        let is_due = pace.calls.wake_at.is_none();
        assert_eq!(is_told, is_due, "acknowledgements wait or are told of: {pace:?}");
        assert!(!pace.gave(Queue::FromGuest, 1, long, flush));
        assert!(pace.gave(Queue::ToGuest, 1, 0, flush), "a question");
        pace.was_asked(now);
        assert!(!pace.told_of_packets(now, false), "it is awake");
        assert!(pace.told_of_packets(now, true), "with its buffers");
        assert_eq!((pace.returns.wake_at, pace.told_of_packets(now, true)), (None, false), "once");
        pace.idle(now, long);
    }
}

/// What was tried out about the guest stays, whatever the policy is meanwhile.
#[test]
fn another_policy_does_not_make_a_port_forget_its_guest() {
    let mut pace = Pace::new(Policy::Adaptive);
    pace.start(Queue::ToGuest, QUEUE_SIZE);
    let (mut now, mut long) = (Nanos(0), 0);
    // Ten seconds of long packets, which no wait slows down: the longest one is found.
    while now < Nanos(10_000_000_000) {
        let next = now.plus(LONG_EVERY_NS);
        if let Some(at) = pace.wake_at().filter(|at| *at < next) {
            pace.gave(Queue::ToGuest, 0, long, Flush { now: at, more: false, short: false });
        }
        (now, long) = (next, long + 1);
        pace.gave(Queue::ToGuest, 1, long, Flush { now, more: false, short: false });
    }
    let learned = pace.calls.notifier.learned().expect("it does such things");
    assert_ne!(learned, Learned::default(), "{pace:?}");
    for policy in [Policy::Every, Policy::OnEmpty, Policy::Adaptive] {
        pace.follow(policy, now);
    }
    assert_eq!(pace.calls.notifier.learned(), Some(learned));
    pace.start(Queue::ToGuest, QUEUE_SIZE);
    assert_eq!(
        pace.calls.notifier.learned(),
        Some(Learned::default()),
        "another guest may have come"
    );
}

/// Limits that the guest has set no longer hold: the port's policy does.
#[test]
fn without_limits_of_the_guest_the_policy_holds_again() {
    let mut pace = Pace::new(Policy::Timer { usecs: 50 });
    let limits = CoalesceLimits { max_packets: 8, max_usecs: 1000 };
    for queue in [Queue::ToGuest, Queue::FromGuest] {
        pace.start(queue, QUEUE_SIZE);
        let direction = match queue {
            Queue::ToGuest => &mut pace.calls,
            _ => &mut pace.returns,
        };
        let policy = || Notifier::new(Policy::Timer { usecs: 50 }, QUEUE_SIZE);
        let before = direction.notifier.timer_ns();
        direction.follow_limits(Some((limits, CoalesceScope::All)), QUEUE_SIZE, policy);
        assert_eq!(direction.cause(), Cause::Guest);
        assert_ne!(direction.notifier.timer_ns(), before);
        direction.follow_limits(None, QUEUE_SIZE, policy);
        assert_eq!(direction.notifier.timer_ns(), before, "{queue:?}");
        assert_ne!(direction.cause(), Cause::Guest);
    }
}
