//! Taps and their descriptors, for which a socket stands.

use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::*;
use crate::Tap;

/// More than a tap drops before it says so.
const MALFORMED: usize = 100;

/// A tap whose other end is the socket, which keeps packets apart.
fn tap() -> (Box<Tap>, OwnedFd) {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let (ours, notify_fd) = socketpair(family, kind, SocketFlags::NONBLOCK, None).unwrap();
    (Box::new(Tap::new(ours, "socket".to_owned(), None)), notify_fd)
}

fn attach(bench: &mut Bench, tap: Box<Tap>) -> PortId {
    let port = PortId(u16::try_from(bench.guests.len()).unwrap());
    try_attach(bench, port, tap).unwrap();
    port
}

fn try_attach(bench: &mut Bench, port: PortId, tap: Box<Tap>) -> io::Result<()> {
    let (done, answer) = mpsc::sync_channel(1);
    let queue = Some(FromPair { pair: 0, of: 1 });
    bench.worker.carry_out(Command::AttachTap { port, tap, queue, done });
    answer.recv().unwrap()
}

fn with_header(frame: &[u8]) -> Vec<u8> {
    [&[0; HEADER_LEN], frame].concat()
}

/// On a cable, where the tap is read into the guest's buffers, and on a switch. The poller tells of
/// the socket once.
#[test]
fn what_waits_behind_malformed_packets_is_taken() {
    for guests in [1, 2] {
        let mut bench = Bench::new(guests);
        bench.introduce();
        let (tap, notify_fd) = tap();
        let port = attach(&mut bench, tap);
        for _ in 0..MALFORMED {
            rustix::io::write(&notify_fd, &with_header(&[1; 13])).unwrap();
        }
        rustix::io::write(&notify_fd, &with_header(&frame(mac(0), mac(9), 7))).unwrap();
        bench.worker.schedule.ready.add(port);
        bench.settle();
        assert_eq!(bench.guests[0].received.len(), 1, "{guests} guests");
        assert_eq!(bench.drops(guests, DropReason::Malformed), [0, MALFORMED as u64]);
        assert_eq!(bench.drops(guests, DropReason::Os), [0, 0], "each is counted once");
    }
}

/// A file, of which no poller can tell when there is something to read.
#[test]
fn a_tap_that_cannot_be_watched_is_refused() {
    let mut bench = Bench::new(1);
    let file = rustix::fs::open("/dev/null", OFlags::RDWR, Mode::empty()).unwrap();
    let not_watched = Box::new(Tap::new(file, "file".to_owned(), None));
    assert!(try_attach(&mut bench, PortId(1), not_watched).is_err());
    assert!(bench.worker.ports.slots.get(1).is_none_or(|port| matches!(port.end, End::Absent)));
    let (tap, _wire) = tap();
    assert!(try_attach(&mut bench, PortId(1), tap).is_ok());
}

/// What the kernel says when the interface is gone cannot be had of a socket.
#[test]
fn a_tap_in_the_place_of_another_goes_on_counting() {
    let mut bench = Bench::new(2);
    bench.introduce();
    for round in 1..3 {
        let (tap, notify_fd) = tap();
        let port = attach(&mut bench, tap);
        rustix::io::write(&notify_fd, &with_header(&frame(mac(0), mac(9), 7))).unwrap();
        bench.worker.schedule.ready.add(port);
        bench.settle();
        assert_eq!(bench.guests[0].received.len(), round);
        let (done, answer) = mpsc::sync_channel(1);
        bench.worker.carry_out(Command::Snapshot { done });
        assert_eq!(answer.recv().unwrap()[2].from_end.packets, round as u64);
    }
}
