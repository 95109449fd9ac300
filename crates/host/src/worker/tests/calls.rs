//! Guests that may sleep through a call.

use std::io::Read;
use std::os::unix::net::UnixStream;

use ringway_virtq::Arm;

use super::*;
use crate::{CallFd, Callee, Wire};

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
