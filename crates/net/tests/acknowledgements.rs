//! Packets to a peer that only acknowledge what it sends: told of a few at a time, and never in the way
//! of anything else.

use ringway_net::notify::{
    ACKNOWLEDGEMENT_WAIT_NS, ASKED_ACKNOWLEDGEMENT_WAIT_NS_MAX, Cause, Nanos, Notifier, Plan,
    Policy, Side, Visit, WINDOW_MAX_PACKETS,
};

const SIZE: u16 = 256;

/// Between two acknowledgements: slower than any window.
const EVERY_NS: u64 = 40_000;

/// How long the taker of the stream that is acknowledged waits for several packets.
const TAKER_WAIT_NS: u64 = 300_000;

/// How long acknowledgements wait while somebody asks.
const ASKED_WAIT_NS: u64 = TAKER_WAIT_NS / 2;

struct Giver {
    notifier: Notifier,
    now: u64,
}

impl Giver {
    fn new(policy: Policy, size: u16) -> Self {
        Self { notifier: Notifier::new(policy, size), now: 1_000_000 }
    }

    fn visit(&mut self, moved: u32, short: bool) -> Plan {
        let now = Nanos(self.now);
        self.notifier.after(Visit { now, side: Side::Gives, moved, more: false, short })
    }

    fn acknowledge(&mut self, moved: u32) -> Plan {
        self.now += EVERY_NS;
        self.notifier.only_acknowledges(TAKER_WAIT_NS);
        self.visit(moved, false)
    }
}

#[test]
fn acknowledgements_wait_for_each_other() {
    let mut giver = Giver::new(Policy::Adaptive, SIZE);
    let first = giver.acknowledge(1);
    let due = giver.now + ACKNOWLEDGEMENT_WAIT_NS;
    assert_eq!((first.notify, first.wake_at), (false, Some(Nanos(due))));
    for _ in 0..2 {
        let plan = giver.acknowledge(1);
        assert_eq!((plan.notify, plan.wake_at), (false, Some(Nanos(due))), "none is put off");
    }
    let state = (giver.notifier.cause(), giver.notifier.window(), giver.notifier.timer_ns());
    assert_eq!(state, (Cause::Acknowledges, WINDOW_MAX_PACKETS, ACKNOWLEDGEMENT_WAIT_NS));
    giver.now = due;
    let last = giver.visit(0, false);
    assert_eq!((last.notify, last.wake_at), (true, None));
    assert!(!giver.visit(0, false).notify, "once");
}

#[test]
fn whatever_else_comes_takes_them_along_at_once() {
    let mut giver = Giver::new(Policy::Adaptive, SIZE);
    for _ in 0..100 {
        assert!(!giver.acknowledge(2).notify);
        giver.now += EVERY_NS;
        assert!(giver.visit(1, false).notify, "somebody may wait for it");
        assert_eq!(giver.visit(0, false).wake_at, None, "nothing is left");
        assert_ne!(giver.notifier.cause(), Cause::Acknowledges);
    }
}

#[test]
fn what_waits_already_does_not_wait_longer_for_them() {
    let mut giver = Giver::new(Policy::Adaptive, SIZE);
    // A stream of short packets, which has a window.
    let held = (0..1_000).find_map(|_| {
        giver.now += 1_000;
        giver.visit(1, false).wake_at
    });
    let held = held.expect("a window has grown");
    giver.now += 1_000;
    giver.notifier.only_acknowledges(TAKER_WAIT_NS);
    let plan = giver.visit(1, false);
    assert!(plan.notify || plan.wake_at.is_some_and(|wake_at| wake_at <= held), "{plan:?}");
}

#[test]
fn a_peer_in_need_and_a_full_window_do_not_wait() {
    let mut giver = Giver::new(Policy::Adaptive, SIZE);
    assert!(!giver.acknowledge(WINDOW_MAX_PACKETS - 1).notify);
    assert!(giver.acknowledge(1).notify, "a window");
    assert!(!giver.acknowledge(1).notify);
    assert!(giver.visit(0, true).notify, "it has no buffers left");
    assert!(Giver::new(Policy::Adaptive, 4).acknowledge(1).notify, "no room for waiting");
}

#[test]
fn while_somebody_asks_they_wait_from_the_last_notification_on() {
    let mut giver = Giver::new(Policy::Adaptive, SIZE);
    giver.now += EVERY_NS;
    assert!(giver.visit(1, false).notify, "a question");
    giver.notifier.peer_was_asked(Nanos(giver.now));
    let (asked_at, mut told_at) = (giver.now, giver.now);
    // Until no other one is expected any more.
    while giver.now + 2 * EVERY_NS + ASKED_WAIT_NS < asked_at + 100_000_000 {
        let plan = giver.acknowledge(1);
        let due = told_at + ASKED_WAIT_NS;
        if plan.notify {
            assert!(giver.now >= due);
            giver.now += ASKED_WAIT_NS;
            assert!(giver.acknowledge(1).notify, "the last one is long ago");
            told_at = giver.now;
        } else {
            assert_eq!(plan.wake_at, Some(Nanos(due)), "none is put off");
            assert_eq!(giver.notifier.timer_ns(), ASKED_WAIT_NS);
        }
    }
    giver.now = asked_at + 100_000_000;
    assert_eq!(giver.visit(0, false).wake_at, None);
    assert!(!giver.acknowledge(1).notify);
    assert_eq!(giver.notifier.timer_ns(), ACKNOWLEDGEMENT_WAIT_NS, "none came");
}

#[test]
fn while_somebody_asks_a_slow_stream_does_not_put_them_off_for_long() {
    let mut giver = Giver::new(Policy::Adaptive, SIZE);
    giver.now += EVERY_NS;
    giver.visit(1, false);
    giver.notifier.peer_was_asked(Nanos(giver.now));
    let due = giver.now + ASKED_ACKNOWLEDGEMENT_WAIT_NS_MAX;
    giver.now += EVERY_NS;
    giver.notifier.only_acknowledges(4 * ASKED_ACKNOWLEDGEMENT_WAIT_NS_MAX);
    assert_eq!(giver.visit(1, false).wake_at, Some(Nanos(due)));
}

#[test]
fn a_question_takes_them_along() {
    let mut giver = Giver::new(Policy::Adaptive, SIZE);
    for _ in 0..100 {
        giver.now += EVERY_NS;
        assert!(giver.visit(1, false).notify, "a question");
        giver.notifier.peer_was_asked(Nanos(giver.now));
        for _ in 0..3 {
            assert!(!giver.acknowledge(2).notify);
        }
    }
}

/// That a wait was in vain says nothing while questions end others.
#[test]
fn while_somebody_asks_nothing_is_learned() {
    let mut giver = Giver::new(Policy::Adaptive, SIZE);
    for _ in 0..1_000 {
        giver.now += EVERY_NS;
        assert!(giver.visit(1, false).notify, "a question");
        giver.notifier.peer_was_asked(Nanos(giver.now));
        let Some(Nanos(wake_at)) = giver.acknowledge(1).wake_at else { panic!("it waits") };
        giver.now = wake_at;
        assert!(giver.visit(0, false).notify);
    }
    giver.now += 100_000_000;
    assert!(!giver.acknowledge(1).notify);
}

#[test]
fn where_nothing_is_gathered_each_is_told_of() {
    let mut giver = Giver::new(Policy::Adaptive, SIZE);
    let mut waits = 0;
    for _ in 0..10_000 {
        giver.now += ACKNOWLEDGEMENT_WAIT_NS;
        let plan = giver.acknowledge(3);
        if let Some(Nanos(wake_at)) = plan.wake_at {
            waits += 1;
            giver.now = wake_at;
            assert!(giver.visit(0, false).notify);
        }
    }
    assert!((200..300).contains(&waits), "{waits} of 10,000");
    // From then on they come closer together.
    let told = (0..10_000).filter(|_| giver.acknowledge(1).notify).count();
    assert!(told < 3_600, "{told}: a third, once one wait has gathered some");
}

/// One wait in six gathers some, behind five that do not: that is worth it.
#[test]
fn now_and_then_is_enough() {
    let mut giver = Giver::new(Policy::Adaptive, SIZE);
    let mut waits = 0;
    for at in 0..1_000 {
        giver.now += ACKNOWLEDGEMENT_WAIT_NS;
        let Some(Nanos(wake_at)) = giver.acknowledge(1).wake_at else { continue };
        waits += 1;
        if at % 6 == 0 {
            assert!(!giver.acknowledge(1).notify);
        }
        giver.now = wake_at;
        assert!(giver.visit(0, false).notify);
    }
    assert_eq!(waits, 1_000);
}

#[test]
fn fixed_policies_do_as_ever() {
    for policy in [Policy::Every, Policy::OnEmpty, Policy::Timer { usecs: 150 }] {
        let (mut told, mut not_told) = (Giver::new(policy, SIZE), Giver::new(policy, SIZE));
        for _ in 0..100 {
            let plan = told.acknowledge(1);
            not_told.now += EVERY_NS;
            assert_eq!(plan, not_told.visit(1, false), "{policy:?}");
        }
    }
}
