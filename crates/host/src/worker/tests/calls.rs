//! Guests that may sleep through a call.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use ringway_foreign::DeferredDrop;
use ringway_net::{NetHeader, Packet, Put};
use ringway_virtq::Arm;

use super::*;
use crate::pace::Flush;
use crate::port::queue_pair::PayloadLifetime;
use crate::{CallFd, Callee, KickFd, NotifyFd};

/// Through which a User Mode Linux guest is called, and the guest's end, which never blocks.
fn call_socket() -> (NotifyFd, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    theirs.set_nonblocking(true).unwrap();
    (NotifyFd::Call(Some(CallFd::new(OwnedFd::from(ours), &Callee::default()).unwrap())), theirs)
}

#[test]
fn a_guest_is_called_again_about_the_queue_that_it_has_not_looked_at() {
    let mut bench = Bench::new(2);
    let mut ends = [Queue::ToGuest, Queue::FromGuest].map(|queue| {
        let (call, theirs) = call_socket();
        bench.worker.set_notify_fd_at(PortId(0), queue, call);
        theirs
    });
    let mut heard = || ends.each_mut().map(|end| end.read(&mut [0; 64]).unwrap_or(0));
    assert_eq!(heard(), [8, 8], "about what was used before it had these fds");
    // The guest changes what it says about calls while it looks.
    for (queue, calls) in [(0, [0, 8]), (1, [0, 0])] {
        bench.guests[0].queues[queue].arm_calls(Arm::Never);
        let later = now().plus(1_000_000);
        let is_needed = bench.worker.ports.guest(PortId(0)).unwrap().call_again(later);
        assert_eq!((heard(), is_needed), (calls, calls[1] > 0), "queue {queue}");
    }
}

#[test]
fn a_guest_is_called_again_so_early_only_by_a_worker_that_is_awake() {
    let mut bench = Bench::new(1);
    let (call, mut theirs) = call_socket();
    bench.worker.schedule.turn_at = now();
    bench.worker.set_notify_fd_at(PortId(0), Queue::ToGuest, call);
    assert!(theirs.read(&mut [0; 64]).is_ok());
    let (called_at, called_by) = (bench.worker.schedule.turn_at, now());
    let due = bench.worker.schedule.uml_retries.due().expect("it may have slept through it");
    assert_eq!(due.since(called_at), 1_000_000);
    for (now, calls) in [(called_at.plus(50_000), 0), (called_by.plus(100_000), 8)] {
        bench.worker.schedule.turn_at = now;
        bench.worker.schedule.call_again(&mut bench.worker.ports);
        assert_eq!(theirs.read(&mut [0; 64]).unwrap_or(0), calls, "{now:?}");
    }
    assert!(bench.worker.schedule.uml_retries.due().is_some(), "it has not looked yet");
}

/// By an index it has said that it wants to be told of the first packet, and by nothing that it has
/// heard it.
#[test]
fn a_guest_that_slept_through_all_calls_is_called_about_what_comes_then() {
    let mut bench = Bench::new(1);
    let features = Features::VERSION_1 | Features::EVENT_IDX;
    let pair = FromPair { pair: 0, of: 1 };
    let workers = std::slice::from_mut(&mut bench.worker);
    bench.guests[0] = Guest::attach_with(workers, 0, pair, features);
    bench.guests[0].post_all();
    let (call, mut theirs) = call_socket();
    bench.worker.set_notify_fd_at(PortId(0), Queue::ToGuest, call);
    let mut is_called = || theirs.read(&mut [0; 512]).is_ok();
    assert!(is_called(), "about what was used before it had this fd");
    let payload = [bench.guests[0].memory.slice(0, 60).unwrap()];
    let header = NetHeader { num_buffers: 1, ..NetHeader::default() };
    let packet = Packet { header: &header, payload: &payload, len: 60 };
    let start = now();
    let at = |milliseconds: u64| start.plus(milliseconds * 1_000_000);
    let mut publish = |milliseconds| {
        let port = &mut bench.worker.ports.slots[0];
        assert_eq!(port.put(&packet, PayloadLifetime::CallOnly), Put::Done);
        port.flush_to(Flush { now: at(milliseconds), more: false, short: false });
        if let (150, End::Guest(guest)) = (milliseconds, &mut port.end) {
            while guest.call_again(at(milliseconds)) {}
        }
        is_called()
    };
    // Twice the time of the last call, since the first one, is 300 ms.
    let times = [0, 1, 150, 151, 200, 310, 311];
    assert_eq!(times.map(&mut publish), [true, false, true, false, false, true, false]);
}

/// To close an fd can take as long as its sender likes.
#[test]
fn a_worker_closes_nothing_that_a_front_end_sent() {
    let mut bench = Bench::new(1);
    let closer = DeferredDrop::start().unwrap();
    let (permit, permitted) = mpsc::channel::<()>();
    closer.afterwards(move || _ = permitted.recv());
    let mut others = Vec::new();
    let mut call = || {
        let (ours, theirs) = UnixStream::pair().unwrap();
        others.push(theirs);
        Some(CallFd::new(closer.keep(OwnedFd::from(ours)), &Callee::default()).unwrap())
    };
    let kick = || Some(KickFd::new(closer.keep(kick_fd())).unwrap());
    let set = |bench: &mut Bench, pair, notify_fd| {
        let queue = QueueId { pair, queue: Queue::ToGuest };
        bench.worker.set_notify_fd(PortId(0), queue, notify_fd);
    };
    // Each is replaced by the next one; the second pair does not exist.
    for pair in [0, 0, 7] {
        set(&mut bench, pair, NotifyFd::Kick(kick()));
        set(&mut bench, pair, NotifyFd::Call(call()));
        set(&mut bench, pair, NotifyFd::Error(call()));
    }
    bench.worker.detach(PortId(0));
    let are_open = |others: &[UnixStream]| {
        let is_open = |end: &UnixStream| (&*end).write(&[1]).is_ok();
        others.iter().filter(|end| is_open(end)).count()
    };
    assert_eq!(are_open(&others), 6, "the worker has closed nothing");
    drop(permit);
    let (done, all_gone) = mpsc::channel();
    closer.afterwards(move || _ = done.send(()));
    all_gone.recv().unwrap();
    assert!(closer.is_idle());
    assert_eq!(are_open(&others), 0);
}
