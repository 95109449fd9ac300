//! A worker that polls: which guest is spared a kick, and what is armed when it stops.

use ringway_net::PollMode;

use super::*;

#[test]
fn a_worker_that_polls_spares_the_guest_its_kicks_and_arms_before_it_sleeps() {
    let mut bench = Bench::new(2);
    bench.introduce();
    let poll = |mode| PollOptions { mode, budget_percent: 10 };
    bench.worker.set_poll(poll(PollMode::Always));
    bench.send(0, &frame(mac(1), mac(0), 1), 1);
    bench.settle();
    let kicks = |guest: &mut Guest| guest.queues[1].must_kick();
    kicks(&mut bench.guests[0]);
    for round in 1..10 {
        bench.guests[0].send(&frame(mac(1), mac(0), 2), 1);
        assert!(!kicks(&mut bench.guests[0]), "a polling worker wants no kicks");
        assert!(!bench.worker.pause().is_sleep(), "it looks");
        bench.settle();
        assert_eq!(bench.guests[1].received.len(), 1 + round, "and finds");
    }
    bench.worker.set_poll(poll(PollMode::Never));
    // A packet that comes before the worker has armed is found by the second look.
    bench.guests[0].send(&frame(mac(1), mac(0), 3), 1);
    assert!(!kicks(&mut bench.guests[0]));
    assert!(!bench.worker.pause().is_sleep());
    bench.settle();
    assert_eq!(bench.guests[1].received.len(), 11);
    assert!(bench.worker.pause().is_sleep());
    bench.guests[0].send(&frame(mac(1), mac(0), 4), 1);
    assert!(kicks(&mut bench.guests[0]), "a sleeping worker must be woken");
}

#[test]
fn an_idle_queue_is_armed_while_the_worker_is_busy_elsewhere() {
    let mut bench = Bench::new(3);
    bench.introduce();
    let options = PollOptions { mode: PollMode::Always, budget_percent: 10 };
    bench.worker.set_poll(options);
    bench.send(0, &frame(mac(1), mac(0), 1), 1);
    bench.send(2, &frame(mac(1), mac(2), 2), usize::from(QUEUE_SIZE));
    bench.step().unwrap();
    bench.step().unwrap();
    assert!(!bench.worker.pause().is_sleep(), "the other one has more");
    bench.guests[0].queues[1].must_kick();
    bench.guests[0].send(&frame(mac(1), mac(0), 3), 1);
    assert!(bench.guests[0].queues[1].must_kick());
}

/// Polling only while it pays, or not at all: under a load that never ends the worker does not
/// sleep.
#[test]
fn a_worker_that_always_has_more_to_do_never_sleeps() {
    for mode in [PollMode::Auto, PollMode::Never] {
        let mut bench = Bench::new(2);
        bench.introduce();
        let options = PollOptions { mode, ..PollOptions::default() };
        bench.worker.set_poll(options);
        for round in 0..1000 {
            bench.send(0, &frame(mac(1), mac(0), 1), usize::from(QUEUE_SIZE));
            let (_, got) = bench.step().unwrap();
            assert!(got[1] > 0, "round {round}");
            assert!(!bench.worker.pause().is_sleep(), "round {round}, polling {mode}");
        }
        bench.settle();
        while !bench.worker.pause().is_sleep() {
            bench.settle();
        }
    }
}
