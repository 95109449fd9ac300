//! Guests that send long packets, and are asked something meanwhile.

use ringway_net::notify::LULL_NS;

use super::*;

/// Bytes behind each frame, so that it is a long one.
const PADDING: u32 = ringway_net::LONG_LEN;

/// Time is real here: a test that loses its processor for as long as the worker waits tries again.
const TRIES: usize = 50;

/// With room for long packets at guest 1; guest 0 sends such ones from here on.
fn bench_of_long_packets() -> Bench {
    let mut bench = Bench::new(2);
    bench.introduce();
    // The old buffers are used up first.
    bench.guests[1].receive_len = RECEIVE_LEN + PADDING;
    bench.send(0, &frame(mac(1), mac(0), 0), usize::from(QUEUE_SIZE));
    bench.settle();
    bench.guests[0].padding = PADDING;
    bench
}

/// Guest 0 sends long packets until the worker waits for several of them.
fn linger(bench: &mut Bench) {
    let packet = frame(mac(1), mac(0), 1);
    for _ in 0..10_000 {
        let guest = bench.worker.guest(PortId(0)).unwrap();
        if guest.pace.wants_questions() && guest.pace.wake_at().is_some() {
            return;
        }
        bench.send(0, &packet, 1);
        bench.settle();
        std::thread::sleep(Duration::from_micros(100));
    }
    panic!("{:?}", bench.worker.guest(PortId(0)).unwrap().pace);
}

#[test]
fn a_question_to_a_guest_that_sends_long_packets_ends_the_wait_for_them() {
    let mut bench = bench_of_long_packets();
    bench.worker.carry_out(Command::SetNotify { port: PortId(0), policy: Policy::Adaptive });
    assert_eq!(bench.worker.asked_at, None);
    let is_put_forward = |bench: &mut Bench| {
        linger(bench);
        // The buffers that went back have been told of by then.
        std::thread::sleep(Duration::from_nanos(3 * LULL_NS));
        bench.worker.end_timers();
        bench.settle();
        let wake_at = |bench: &mut Bench| bench.worker.guest(PortId(0)).unwrap().pace.wake_at();
        let before = wake_at(bench);
        bench.send(1, &frame(mac(0), mac(1), 7), 1);
        bench.settle();
        let after = wake_at(bench);
        bench.worker.arm_idle(PortId(0));
        before.zip(after).is_some_and(|(before, after)| after < before)
    };
    assert!((0..TRIES).any(|_| is_put_forward(&mut bench)));
    assert!(bench.worker.asked_at.is_some(), "and whoever wakes up next goes first");
}

#[test]
fn answers_to_long_packets_are_looked_for_when_their_receiver_is_full_too() {
    const ROOM: usize = 6;
    let mut bench = bench_of_long_packets();
    bench.worker.carry_out(Command::SetNotify { port: PortId(1), policy: Policy::Adaptive });
    let packet = frame(mac(1), mac(0), 1);
    for _ in 0..4 {
        // It is visited right behind, and its answer found.
        bench.send(0, &packet, 1);
        bench.send(1, &frame(mac(0), mac(1), 2), 1);
        bench.settle();
    }
    // From here on it takes nothing.
    for _ in ROOM..usize::from(QUEUE_SIZE) {
        bench.send(0, &packet, 1);
        while let Some(port) = bench.worker.ready.pop_front() {
            bench.worker.visit(port);
        }
    }
    bench.send(0, &packet, ROOM + 1);
    assert_eq!(bench.worker.ready.pop_front(), Some(PortId(0)));
    bench.worker.visit(PortId(0));
    assert!(bench.worker.holds.of(PortId(0)).is_some(), "one packet waits for room");
    assert!(bench.worker.ports[1].is_ready, "and the others for answers");
}
