//! Used transmit buffers that come back one by one: at once to a guest that has not found them by
//! itself in a lull, behind one to any other.

use ringway_net::notify::{
    Cause, LULL_NS, Nanos, Notifier, Plan, Policy, RETURN_WAIT_NS, SENT_STREAM_NS, STREAM_WAIT_NS,
    Side, Visit,
};

const SIZE: u16 = 256;

/// Between two pings.
const PING_NS: u64 = 4 * LULL_NS;

/// A guest that gets its buffers back, and wants a call at the end of so many of ten lulls, one behind the other.
struct Guest {
    returns: Notifier,
    now: u64,
    slow_of_ten: u32,
    calls: u32,
}

impl Guest {
    fn new(slow_of_ten: u32) -> Self {
        let returns = Notifier::for_returns(Policy::Adaptive, SIZE);
        Self { returns, now: 0, slow_of_ten, calls: 0 }
    }

    fn visit(&mut self, moved: u32) -> Plan {
        let now = Nanos(self.now);
        let visit = Visit { now, side: Side::Gives, moved, more: false, short: false };
        let plan = self.returns.after(visit);
        if plan.notify {
            self.returns.ring_said(self.calls % 10 < self.slow_of_ten);
            self.calls += 1;
        }
        plan
    }

    /// Sends `count` pings; how many of them were told of without a lull.
    fn ping(&mut self, count: u32) -> u32 {
        let at_once = (0..count).map(|_| {
            self.now += PING_NS;
            let plan = self.visit(1);
            let Some(Nanos(wake_at)) = plan.wake_at else {
                assert!(plan.notify, "neither now nor later");
                return 1;
            };
            assert_eq!((plan.notify, wake_at), (false, self.now + LULL_NS));
            self.now = wake_at;
            assert!(self.visit(0).notify, "the lull is over");
            0
        });
        at_once.sum()
    }
}

#[test]
fn a_guest_that_finds_them_by_itself_is_never_called_at_once() {
    for slow_of_ten in 0..=2 {
        let mut guest = Guest::new(slow_of_ten);
        assert_eq!(guest.ping(10_000), 0, "{slow_of_ten} of ten");
        assert_eq!(guest.returns.cause(), Cause::Fixed);
    }
}

#[test]
fn a_guest_that_never_does_is_called_at_once_but_for_one_try_in_a_hundred() {
    let mut guest = Guest::new(10);
    assert_eq!(guest.ping(24), 0, "too early to know");
    assert_eq!(guest.returns.cause(), Cause::InVain);
    assert_eq!(guest.ping(128), 128);
    assert_eq!(guest.ping(1), 0, "one try");
    assert_eq!(guest.ping(128 * 129) / 128, 128, "and so on");
}

#[test]
fn a_guest_that_finds_six_of_ten_by_itself_is_called_at_once_most_of_the_time() {
    let mut guest = Guest::new(4);
    guest.ping(1_000);
    let at_once = guest.ping(10_000);
    assert!(at_once > 9_000, "{at_once}");
}

#[test]
fn a_guest_that_has_become_quick_has_its_lulls_again() {
    let mut guest = Guest::new(10);
    assert_eq!(guest.ping(24 + 128), 128);
    guest.slow_of_ten = 1;
    guest.ping(1_000);
    assert_eq!(guest.ping(10_000), 0);
}

#[test]
fn a_stream_is_not_told_of_at_once_however_slow_the_guest_is() {
    let mut guest = Guest::new(10);
    assert_eq!(guest.ping(24 + 10), 10);
    let calls = (0..1000).filter(|_| {
        guest.now += LULL_NS / 10;
        guest.visit(1).notify
    });
    assert_eq!(calls.count() as u64, 1000 * (LULL_NS / 10) / (RETURN_WAIT_NS + LULL_NS / 10));
    guest.now += PING_NS;
    assert!(guest.visit(0).notify, "the last of them");
    guest.now += PING_NS;
    assert!(!guest.visit(2).notify, "two are not one by one");
}

/// Long packets go to the guest, twice, until now.
fn stream(guest: &mut Guest) {
    guest.returns.beside_stream(Nanos(guest.now));
    guest.now += LULL_NS;
    guest.returns.beside_stream(Nanos(guest.now));
}

#[test]
fn acknowledgements_of_a_stream_are_told_of_when_it_calls_or_ends() {
    let mut guest = Guest::new(0);
    guest.now = 10 * STREAM_WAIT_NS;
    stream(&mut guest);
    let wake_at = Nanos(guest.now + STREAM_WAIT_NS);
    for _ in 0..9 {
        let plan = guest.visit(1);
        assert_eq!((plan.notify, plan.wake_at), (false, Some(wake_at)));
        guest.now += STREAM_WAIT_NS / 10;
        guest.returns.beside_stream(Nanos(guest.now));
    }
    guest.now = wake_at.0;
    assert!(guest.visit(0).notify, "the first of them has waited long enough");
    // The stream has ended: nobody else calls.
    guest.now += STREAM_WAIT_NS;
    assert_eq!(guest.visit(1).wake_at, Some(Nanos(guest.now + LULL_NS)));
}

#[test]
fn one_long_packet_makes_no_stream() {
    let mut guest = Guest::new(0);
    guest.now = 10 * STREAM_WAIT_NS;
    guest.returns.beside_stream(Nanos(guest.now));
    assert_eq!(guest.visit(1).wake_at, Some(Nanos(guest.now + LULL_NS)));
}

#[test]
fn whoever_sends_a_stream_as_well_may_wait_for_its_buffers() {
    let mut guest = Guest::new(0);
    guest.now = 10 * STREAM_WAIT_NS;
    stream(&mut guest);
    guest.returns.carried(1);
    assert_eq!(guest.visit(1).wake_at, Some(Nanos(guest.now + LULL_NS)));
    guest.now += LULL_NS;
    assert!(guest.visit(0).notify);
    // What follows are short ones again.
    assert_eq!(guest.visit(1).wake_at, Some(Nanos(guest.now + STREAM_WAIT_NS)));
}

#[test]
fn a_stream_that_has_ended_makes_none_of_the_next_long_packet() {
    let mut guest = Guest::new(0);
    guest.now = 10 * STREAM_WAIT_NS;
    stream(&mut guest);
    assert_eq!(guest.returns.timer_ns(), STREAM_WAIT_NS);
    guest.now += STREAM_WAIT_NS;
    guest.returns.beside_stream(Nanos(guest.now));
    assert_eq!(guest.visit(1).wake_at, Some(Nanos(guest.now + LULL_NS)));
    assert_eq!(guest.returns.timer_ns(), RETURN_WAIT_NS);
}

#[test]
fn one_long_packet_among_short_ones_may_be_waited_for() {
    let mut guest = Guest::new(0);
    guest.now = 10 * STREAM_WAIT_NS;
    stream(&mut guest);
    let waits_ns = [0, 1, 0].map(|long| {
        guest.returns.carried(long);
        guest.visit(1).wake_at.map(|Nanos(wake_at)| wake_at - guest.now)
    });
    assert_eq!(waits_ns, [Some(STREAM_WAIT_NS), Some(LULL_NS), Some(LULL_NS)]);
}

#[test]
fn what_a_stream_does_not_take_along_says_nothing_about_lulls() {
    let mut guest = Guest::new(10);
    guest.now = 10 * STREAM_WAIT_NS;
    for _ in 0..100 {
        stream(&mut guest);
        assert!(!guest.visit(1).notify);
        guest.now += STREAM_WAIT_NS;
        guest.returns.beside_stream(Nanos(guest.now - LULL_NS));
        guest.returns.beside_stream(Nanos(guest.now - LULL_NS / 2));
        assert!(guest.visit(0).notify);
        assert_eq!(guest.returns.cause(), Cause::Fixed);
    }
}

#[test]
fn more_short_packets_than_a_stream_has_acknowledgements_may_be_waited_for() {
    let mut guest = Guest::new(0);
    guest.now = 10 * STREAM_WAIT_NS;
    stream(&mut guest);
    assert_eq!(guest.visit(16).wake_at, Some(Nanos(guest.now + STREAM_WAIT_NS)));
    assert_eq!(guest.visit(1).wake_at, Some(Nanos(guest.now + LULL_NS)));
    guest.now += LULL_NS;
    assert!(guest.visit(0).notify);
}

/// The guest answers with `moved` packets, `long` of them long, `pause_ns` behind its last one: whether it is
/// told of their buffers at once.
fn answers(guest: &mut Guest, pause_ns: u64, moved: u32, long: u64) -> bool {
    guest.now += pause_ns;
    guest.returns.peer_has_answered();
    guest.returns.carried(long);
    let plan = guest.visit(moved);
    if let Some(Nanos(wake_at)) = plan.wake_at {
        guest.now = wake_at;
        assert!(guest.visit(0).notify);
    }
    plan.notify
}

#[test]
fn an_answer_is_told_of_at_once_however_quick() {
    let mut guest = Guest::new(0);
    for pause_ns in [LULL_NS, 1, LULL_NS / 2, PING_NS] {
        assert!(answers(&mut guest, pause_ns, 1, 0));
    }
    assert!(!answers(&mut guest, LULL_NS, 2, 0), "two");
    assert!(!answers(&mut guest, LULL_NS, 1, 1), "a long one");
    assert!(answers(&mut guest, LULL_NS, 1, 0));
    assert_eq!(guest.returns.cause(), Cause::Fixed);
    assert!(!guest.visit(1).notify, "nobody has asked");
}

/// One long packet per 300 µs: behind each there is a lull.
#[test]
fn a_slow_sender_of_long_packets_is_not_called_for_each_while_it_is_asked() {
    const EVERY_NS: u64 = 300_000;
    let mut guest = Guest::new(0);
    let long = |guest: &mut Guest, pause_ns: u64| {
        guest.now += pause_ns;
        guest.returns.carried(1);
        let Nanos(wake_at) = guest.visit(1).wake_at.expect("some time");
        let waits_ns = wake_at - guest.now;
        guest.now = wake_at;
        assert!(guest.visit(0).notify);
        waits_ns
    };
    assert_eq!(long(&mut guest, EVERY_NS), LULL_NS);
    assert_eq!(long(&mut guest, EVERY_NS), LULL_NS, "nobody asks");
    for _ in 0..100 {
        guest.returns.peer_was_asked(Nanos(guest.now));
        assert_eq!(long(&mut guest, EVERY_NS), STREAM_WAIT_NS);
        guest.now += EVERY_NS;
        guest.returns.peer_has_answered();
        assert_eq!(guest.visit(1).wake_at, Some(Nanos(guest.now + STREAM_WAIT_NS)), "its answer");
        guest.now += STREAM_WAIT_NS;
        assert!(guest.visit(0).notify);
        let state = (guest.returns.cause(), guest.returns.timer_ns());
        assert_eq!(state, (Cause::Asked, STREAM_WAIT_NS));
    }
    assert_eq!(long(&mut guest, SENT_STREAM_NS), LULL_NS, "the stream was over");
    guest.now += SENT_STREAM_NS;
    guest.returns.peer_has_answered();
    assert!(guest.visit(1).notify, "an answer, and no stream");
    assert_eq!(long(&mut guest, 100_000_000), LULL_NS);
    assert_eq!(long(&mut guest, EVERY_NS), LULL_NS, "no questions any more");
}

#[test]
fn a_fast_sender_that_is_asked_has_its_buffers_sooner() {
    const EVERY_NS: u64 = 20_000;
    let mut guest = Guest::new(0);
    let mut waits_ns = |taker_wait_ns: u64| {
        guest.now += EVERY_NS;
        guest.returns.peer_was_asked(Nanos(guest.now));
        guest.returns.beside_taker(taker_wait_ns);
        guest.returns.carried(1);
        let Nanos(wake_at) = guest.visit(1).wake_at.expect("some time");
        let waits_ns = (wake_at - guest.now, guest.returns.timer_ns());
        guest.now = wake_at;
        assert!(guest.visit(0).notify);
        waits_ns
    };
    waits_ns(STREAM_WAIT_NS);
    for _ in 0..10 {
        assert_eq!(waits_ns(3 * EVERY_NS), (6 * EVERY_NS, 6 * EVERY_NS));
        let longest = (STREAM_WAIT_NS, STREAM_WAIT_NS);
        assert_eq!(waits_ns(2 * STREAM_WAIT_NS), longest, "whatever the taker does");
    }
}

#[test]
fn calls_about_packets_take_buffers_along_while_it_is_asked_beside_its_stream() {
    const EVERY_NS: u64 = 300_000;
    let mut guest = Guest::new(0);
    let mut taken_along = |is_asked: bool, long: u64| {
        guest.now += EVERY_NS;
        if is_asked {
            guest.returns.peer_was_asked(Nanos(guest.now));
        }
        guest.returns.carried(long);
        let is_held = !guest.visit(1).notify;
        let now = Nanos(guest.now);
        assert!(!guest.returns.told_beside(now, false), "it is awake");
        let is_told = [(); 2].map(|()| guest.returns.told_beside(now, true));
        assert!(!is_told[1], "once");
        assert!(!is_told[0] || guest.visit(0).wake_at.is_none(), "nothing is left");
        is_held && is_told[0]
    };
    assert!(!taken_along(true, 0), "it sends no stream");
    assert!(!taken_along(true, 1), "one long packet is none");
    for _ in 0..1_000 {
        assert!(taken_along(true, 1));
        assert!(taken_along(true, 0), "nor do its answers wait for more");
    }
    for _ in 0..100_000_000 / EVERY_NS {
        taken_along(false, 1);
    }
    assert!(!taken_along(false, 1), "nobody asks");
}

/// It is time to call it all the while, and it is awake each time.
#[test]
fn whoever_is_awake_has_its_buffers_in_the_end() {
    const EVERY_NS: u64 = 300_000;
    let mut guest = Guest::new(0);
    guest.returns.peer_was_asked(Nanos(guest.now));
    let mut since = 0;
    for at in 0..300 {
        guest.now += EVERY_NS;
        guest.returns.carried(1);
        let plan = guest.visit(1);
        guest.returns.told_beside(Nanos(guest.now), false);
        assert!(guest.now - since <= SENT_STREAM_NS + EVERY_NS, "{at}");
        if plan.notify {
            assert!(at < 2 || guest.now - since > STREAM_WAIT_NS, "{at}");
            since = guest.now;
        }
    }
    assert!(since > 0, "told now and then");
}

#[test]
fn a_lull_begins_when_the_guest_is_called_about_something_else() {
    let mut guest = Guest::new(0);
    guest.now += PING_NS;
    let called_at = Nanos(guest.now + LULL_NS);
    guest.returns.beside_call(Nanos(guest.now), called_at);
    assert_eq!(guest.visit(1).wake_at, Some(Nanos(guest.now + 2 * LULL_NS)));
    let latest = Some(Nanos(guest.now + RETURN_WAIT_NS));
    for _ in 0..10 {
        guest.now += LULL_NS / 2;
        let called_at = Nanos(guest.now + 2 * LULL_NS);
        let wake_at = guest.returns.beside_call(Nanos(guest.now), called_at);
        assert!(wake_at <= latest, "at the latest");
        if wake_at < latest {
            assert_eq!(wake_at, Some(called_at.plus(LULL_NS)));
        }
    }
    guest.now = latest.map_or(0, |Nanos(at)| at);
    assert!(guest.visit(0).notify);
}
