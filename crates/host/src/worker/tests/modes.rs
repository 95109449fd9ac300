//! The mode of a queue in the statistics, and how often its kicks were noticed.

use ringway_net::PollMode;

use super::*;
use crate::QueueMode::{self, Held, Polling, Sleeping};
use crate::QueueSnapshot;
use crate::pace::Pace;

impl Bench {
    fn queue(&mut self, port: usize, queue: Queue) -> QueueSnapshot {
        let snapshot = &self.worker.snapshots()[port];
        *snapshot.queues.iter().find(|snapshot| snapshot.queue.queue == queue).unwrap()
    }

    fn mode(&mut self, port: usize) -> QueueMode {
        self.queue(port, Queue::FromGuest).mode
    }

    fn poll(&mut self, mode: PollMode) {
        let options = PollOptions { mode, budget_percent: 10 };
        self.worker.set_poll(options);
    }
}

#[test]
fn a_queue_is_shown_to_be_polled_until_it_is_armed() {
    let mut bench = Bench::new(2);
    bench.introduce();
    assert_eq!(bench.mode(0), Sleeping, "it was armed when it ran empty");
    bench.poll(PollMode::Always);
    bench.send(0, &frame(mac(1), mac(0), 1), 1);
    assert_eq!(bench.mode(0), Sleeping, "the worker has not visited it yet");
    bench.settle();
    for _ in 0..3 {
        assert_eq!(bench.mode(0), Polling, "it ran empty, and is looked at");
        assert!(!bench.worker.pause().is_sleep());
        bench.settle();
    }
    assert_eq!(bench.mode(1), Sleeping, "nothing came from it");
    assert_eq!(bench.queue(1, Queue::ToGuest).mode, Sleeping);
    bench.poll(PollMode::Never);
    assert!(bench.worker.pause().is_sleep());
    assert_eq!(bench.mode(0), Sleeping);
}

#[test]
fn a_queue_without_a_kick_fd_is_polled() {
    let mut bench = Bench::new(2);
    let queue = QueueId { pair: 0, queue: Queue::FromGuest };
    bench.worker.set_notify_fd(PortId(0), queue, crate::NotifyFd::Kick(None));
    bench.settle();
    assert_eq!(bench.mode(0), Polling);
    assert_eq!(bench.mode(1), Sleeping);
}

#[test]
fn what_waits_for_room_is_held() {
    let mut bench = Bench::new(3);
    bench.introduce();
    // The receiver takes what fits and does not post again.
    for _ in 0..2 {
        bench.send(0, &frame(mac(1), mac(0), 1), usize::from(QUEUE_SIZE));
        while let Some(port) = bench.worker.schedule.ready.pop_front() {
            bench.worker.visit(port);
        }
    }
    assert_eq!([0, 1, 2].map(|port| bench.mode(port)), [Held, Sleeping, Sleeping]);
    assert_eq!(bench.queue(1, Queue::ToGuest).mode, Sleeping, "its guest is to kick");
    bench.guests[1].receive();
    bench.worker.on_kick(PortId(1), Queue::ToGuest);
    bench.settle();
    assert_eq!(bench.mode(0), Sleeping);
}

#[test]
fn what_waits_for_a_timer_is_held() {
    let mut bench = Bench::new(2);
    bench.introduce();
    for port in &mut bench.worker.ports.slots {
        let End::Guest(guest) = &mut port.end else { continue };
        guest.pace = Pace::new(Policy::Timer { usecs: 1_000_000 });
        let queues = [Queue::ToGuest, Queue::FromGuest];
        queues.iter().for_each(|&queue| guest.pace.start(queue, QUEUE_SIZE));
    }
    bench.send(0, &frame(mac(1), mac(0), 1), 1);
    bench.settle();
    assert_eq!(bench.mode(0), Held);
    assert_eq!(bench.queue(1, Queue::ToGuest).mode, Held);
    assert_eq!(bench.mode(1), Sleeping);
}

#[test]
fn kicks_are_counted_for_their_queue() {
    let mut bench = Bench::new(2);
    let before = bench.queue(0, Queue::FromGuest).kicks;
    for round in 0..5 {
        bench.send(0, &frame(mac(1), mac(0), round), 1);
        bench.settle();
    }
    bench.worker.on_kick(PortId(0), Queue::ToGuest);
    let [from, to] = [Queue::FromGuest, Queue::ToGuest].map(|queue| bench.queue(0, queue).kicks);
    assert_eq!((from - before, to), (5, 1));
    assert_eq!(bench.queue(1, Queue::ToGuest).kicks, 0);
}
