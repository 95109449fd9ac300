//! Guests that answer long packets.

use ringway_device::Published;

use super::*;
use crate::Flush;
use crate::os::clock::now;
use crate::pace::Pace;

/// Bytes behind each frame, so that it is a long one.
const PADDING: u32 = ringway_net::LONG_LEN;

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

/// The pace of a guest that has answered a stream of long packets: it need not kick.
fn answering() -> Pace {
    const EVERY_NS: u64 = 20_000;
    let mut pace = Pace::new(Policy::Adaptive);
    [Queue::ToGuest, Queue::FromGuest].iter().for_each(|&queue| pace.start(queue, QUEUE_SIZE));
    let mut now = Nanos(now().0 - 100 * EVERY_NS);
    for _ in 0..100 {
        now = now.plus(EVERY_NS);
        let flush = Flush { now, more: false, short: false };
        pace.gave(Published { packets: 2, long: 2 }, None, flush);
        pace.took(Published { packets: 1, long: 0 }, flush);
        pace.idle(now);
    }
    assert!(pace.relies_on_polling(), "{pace:?}");
    pace
}

#[test]
fn answers_to_long_packets_are_looked_for_when_their_receiver_is_full_too() {
    const ROOM: usize = 6;
    let mut bench = bench_of_long_packets();
    let packet = frame(mac(1), mac(0), 1);
    // From here on the receiver takes nothing.
    for _ in ROOM..usize::from(QUEUE_SIZE) {
        bench.send(0, &packet, 1);
        while let Some(port) = bench.worker.schedule.ready.pop_front() {
            bench.worker.visit(port);
        }
    }
    bench.worker.ports.guest(PortId(1)).unwrap().pace = answering();
    bench.send(0, &packet, ROOM + 1);
    assert_eq!(bench.worker.schedule.ready.pop_front(), Some(PortId(0)));
    bench.worker.visit(PortId(0));
    assert!(bench.worker.schedule.holds.of(PortId(0)).is_some(), "one packet waits for room");
    assert!(bench.worker.schedule.ready.contains(PortId(1)), "and the others for answers");
}
