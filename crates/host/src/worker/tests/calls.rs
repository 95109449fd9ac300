//! Guests that may sleep through a call.

use std::io::Read;
use std::os::unix::net::UnixStream;

use ringway_virtq::Arm;

use super::*;
use crate::{CallFd, Callee, KickFd, Wire};

#[test]
fn a_guest_is_called_again_about_the_queue_that_it_has_not_looked_at() {
    let mut bench = Bench::new(2);
    let mut ends = [Queue::ToGuest, Queue::FromGuest].map(|queue| {
        let (ours, theirs) = UnixStream::pair().unwrap();
        theirs.set_nonblocking(true).unwrap();
        let call = CallFd::new(ours.into(), &Callee::default()).unwrap();
        bench.worker.set_wire(PortId(0), queue, Wire::Call(Some(call)));
        theirs
    });
    let mut heard = || ends.each_mut().map(|end| end.read(&mut [0; 64]).unwrap_or(0));
    assert_eq!(heard(), [8, 8], "about what was used before it had these fds");
    // What a guest says about calls changes while it looks.
    for (queue, calls) in [(0, [0, 8]), (1, [0, 0])] {
        bench.guests[0].queues[queue].arm_calls(Arm::Never);
        let is_needed = bench.worker.guest(PortId(0)).unwrap().call_again();
        assert_eq!((heard(), is_needed), (calls, calls[1] > 0), "queue {queue}");
    }
}

/// To close an fd can take as long as whoever sent it likes.
#[test]
fn a_worker_closes_nothing_that_a_front_end_sent() {
    let mut bench = Bench::new(1);
    let unused = |bench: &Bench| {
        let events = bench.other_ends.1.try_iter();
        events.filter(|event| matches!(event, Event::Unused(_))).count()
    };
    assert_eq!(unused(&bench), 0);
    let call = || {
        let (ours, _) = UnixStream::pair().unwrap();
        Some(CallFd::new(ours.into(), &Callee::default()).unwrap())
    };
    let worker = &mut bench.worker;
    worker.set_wire(PortId(0), Queue::ToGuest, Wire::Call(call()));
    assert!(!worker.guest(PortId(0)).unwrap().call(Queue::ToGuest), "nobody is at its other end");
    assert_eq!(unused(&bench), 1, "the one before");
    let wires = || {
        [Wire::Kick(Some(KickFd::new(kick_fd()).unwrap())), Wire::Call(call()), Wire::Error(call())]
    };
    let worker = &mut bench.worker;
    wires().into_iter().for_each(|wire| worker.set_wire(PortId(0), Queue::ToGuest, wire));
    assert_eq!(unused(&bench), 2, "there was no error fd before");
    let (done, _) = mpsc::sync_channel(1);
    bench.worker.carry_out(Command::Detach { port: PortId(0), done });
    assert_eq!(unused(&bench), 3 + 2);
    let queue = QueueId { pair: 7, queue: Queue::ToGuest };
    for wire in wires() {
        bench.worker.carry_out(Command::SetWire { port: PortId(0), queue, wire });
    }
    assert_eq!(unused(&bench), 3, "nobody to take them");
}
