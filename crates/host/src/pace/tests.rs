//! The knowledge that the three directions of a queue pair have of each other.

use super::*;
use ringway_net::WAKE_NS;

const QUEUE_SIZE: u16 = 256;
const EVERY_NS: u64 = 20_000;

fn flush(now: Nanos) -> Flush {
    Flush { now, more: false, short: false }
}

fn packets(packets: u32, long: u32) -> Published {
    Published { packets, long }
}

fn pace(policy: Policy) -> Pace {
    let mut pace = Pace::new(policy);
    [Queue::ToGuest, Queue::FromGuest].iter().for_each(|&queue| pace.start(queue, QUEUE_SIZE));
    pace
}

/// In the middle of long packets from the guest.
fn sends_long() -> (Pace, Nanos) {
    let (mut pace, mut now) = (pace(Policy::Adaptive), Nanos(0));
    for _ in 0..200 {
        now = now.plus(EVERY_NS);
        pace.took(packets(1, 1), flush(now));
        pace.idle(now);
    }
    assert!(pace.kicks.wake_at.is_some() && pace.wants_requests(), "{pace:?}");
    (pace, now)
}

#[test]
fn a_request_brings_the_visit_forward_and_its_answer_is_kicked_about() {
    let (mut pace, now) = sends_long();
    assert!(pace.kicks.wake_at > Some(now));
    assert!(pace.gave(packets(1, 0), Some(true), flush(now)), "the request does not wait");
    assert_eq!(pace.kicks.wake_at, Some(now), "the transmitq is visited");
    assert_eq!((pace.idle(now), pace.kicks.wake_at), (Arm::Next, None));
    assert!(pace.wants_requests(), "the next one counts as well");
}

#[test]
fn acknowledgements_of_what_the_guest_sends_wait_for_each_other() {
    let (mut pace, mut now) = sends_long();
    let mut calls = 0;
    for _ in 0..300 {
        now = now.plus(EVERY_NS);
        pace.took(packets(1, 1), flush(now));
        calls += u32::from(pace.gave(packets(1, 0), Some(false), flush(now)));
        pace.idle(now);
    }
    assert!(calls < 200, "{calls} of 300");
}

#[test]
fn a_guest_need_not_kick_about_answers_to_a_stream() {
    let (mut pace, mut now) = (pace(Policy::Adaptive), Nanos(0));
    for _ in 0..100 {
        now = now.plus(EVERY_NS);
        pace.gave(packets(2, 2), None, flush(now));
        pace.took(packets(1, 0), flush(now));
        pace.idle(now);
    }
    assert!(pace.relies_on_polling(), "{pace:?}");
    pace.gave(packets(1, 0), Some(true), flush(now));
    assert_eq!(
        (pace.idle(now), pace.relies_on_polling()),
        (Arm::Next, false),
        "an answer may come"
    );
}

#[test]
fn used_buffers_wait_longer_behind_a_call_about_packets() {
    let (mut pace, now) = (pace(Policy::Adaptive), Nanos(1_000_000_000));
    assert!(!pace.took(packets(1, 0), flush(now)));
    let before = pace.used.wake_at.expect("held");
    let called = now.plus(WAKE_NS);
    pace.called(called);
    assert!(pace.used.wake_at >= Some(before), "{pace:?}");
    let wake_at = pace.used.wake_at.expect("held");
    assert!(pace.took(packets(0, 0), flush(wake_at)), "and not for ever");
}

#[test]
fn limits_of_the_guest_come_before_the_policy_until_it_takes_them_back() {
    let mut pace = pace(Policy::Every);
    let limits = ringway_net::moderation::CoalesceLimits { max_packets: 8, max_usecs: 50 };
    let set = Some((limits, ringway_net::CoalesceScope::All));
    assert!(!pace.calls.follow_limits(set), "nothing is held");
    assert!(!pace.gave(packets(1, 0), None, flush(Nanos(0))));
    assert_eq!((pace.calls.state().window, pace.calls.cause()), (8, "set by the guest"));
    pace.follow(Policy::OnEmpty, Nanos(0));
    assert_eq!(pace.calls.state().window, 8);
    assert!(pace.calls.follow_limits(None), "what was held is told of");
    assert_eq!((pace.calls.state().window, pace.calls.cause()), (1, "fixed"));
}
