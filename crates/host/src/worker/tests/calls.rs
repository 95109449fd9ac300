//! Guests that may sleep through a call.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use ringway_foreign::Closer;
use ringway_virtq::Arm;

use super::*;
use crate::{CallFd, Callee, KickFd, Wire};

#[test]
fn a_guest_is_called_again_about_the_queue_that_it_has_not_looked_at() {
    let mut bench = Bench::new(2);
    let mut ends = [Queue::ToGuest, Queue::FromGuest].map(|queue| {
        let (ours, theirs) = UnixStream::pair().unwrap();
        theirs.set_nonblocking(true).unwrap();
        let call = CallFd::new(OwnedFd::from(ours), &Callee::default()).unwrap();
        bench.worker.set_wire(PortId(0), queue, Wire::Call(Some(call)));
        theirs
    });
    let mut heard = || ends.each_mut().map(|end| end.read(&mut [0; 64]).unwrap_or(0));
    assert_eq!(heard(), [8, 8], "about what was used before it had these fds");
    // What a guest says about calls changes while it looks.
    for (queue, calls) in [(0, [0, 8]), (1, [0, 0])] {
        bench.guests[0].queues[queue].arm_calls(Arm::Never);
        let later = Nanos(now_ns()).plus(1_000_000);
        let is_needed = bench.worker.guest(PortId(0)).unwrap().call_again(later);
        assert_eq!((heard(), is_needed), (calls, calls[1] > 0), "queue {queue}");
    }
}

#[test]
fn a_guest_is_called_again_by_a_worker_that_is_awake_but_wakes_nobody_up_so_early() {
    let mut bench = Bench::new(1);
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    theirs.set_nonblocking(true).unwrap();
    let call = CallFd::new(OwnedFd::from(ours), &Callee::default()).unwrap();
    bench.worker.turn_at = Nanos(now_ns());
    bench.worker.set_wire(PortId(0), Queue::ToGuest, Wire::Call(Some(call)));
    assert!(theirs.read(&mut [0; 64]).is_ok());
    let (called_at, called_by) = (bench.worker.turn_at, Nanos(now_ns()));
    let due = bench.worker.second_calls.due().expect("it may have slept through it");
    assert_eq!(due.since(called_at), 1_000_000);
    for (now, calls) in [(called_at.plus(50_000), 0), (called_by.plus(100_000), 8)] {
        bench.worker.turn_at = now;
        bench.worker.call_again();
        assert_eq!(theirs.read(&mut [0; 64]).unwrap_or(0), calls, "{now:?}");
    }
    assert!(bench.worker.second_calls.due().is_some(), "it has not looked yet");
}

/// To close an fd can take as long as whoever sent it likes.
#[test]
fn a_worker_closes_nothing_that_a_front_end_sent() {
    let mut bench = Bench::new(1);
    let closer = Closer::start().unwrap();
    let (permit, permitted) = mpsc::channel::<()>();
    closer.afterwards(move || _ = permitted.recv());
    let mut others = Vec::new();
    let mut call = || {
        let (ours, theirs) = UnixStream::pair().unwrap();
        others.push(theirs);
        Some(CallFd::new(closer.keep(OwnedFd::from(ours)), &Callee::default()).unwrap())
    };
    let kick = || Some(KickFd::new(closer.keep(kick_fd())).unwrap());
    let set = |bench: &mut Bench, pair, wire| {
        let queue = QueueId { pair, queue: Queue::ToGuest };
        bench.worker.carry_out(Command::SetWire { port: PortId(0), queue, wire });
    };
    // Each is replaced by the next one; for the second pair there is nobody.
    for pair in [0, 0, 7] {
        set(&mut bench, pair, Wire::Kick(kick()));
        set(&mut bench, pair, Wire::Call(call()));
        set(&mut bench, pair, Wire::Error(call()));
    }
    let (done, _) = mpsc::sync_channel(1);
    bench.worker.carry_out(Command::Detach { port: PortId(0), done });
    let are_open = |others: &[UnixStream]| {
        let is_open = |end: &UnixStream| (&*end).write(&[1]).is_ok();
        others.iter().filter(|end| is_open(end)).count()
    };
    assert_eq!(are_open(&others), 6, "nobody has closed anything");
    drop(permit);
    let (done, all_gone) = mpsc::channel();
    closer.afterwards(move || _ = done.send(()));
    all_gone.recv().unwrap();
    assert!(closer.is_idle());
    assert_eq!(are_open(&others), 0);
}
