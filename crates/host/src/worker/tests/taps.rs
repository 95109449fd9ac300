//! Taps and their descriptors, for which a socket stands.

use std::os::fd::OwnedFd;

use ringway_net::{NEEDS_CSUM, NetHeader};
use rustix::fs::{Mode, OFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::*;
use crate::Tap;

/// More than a tap drops before it says so.
const MALFORMED: usize = 100;

/// The only queue of a tap.
const QUEUE: Option<FromPair> = Some(FromPair { pair: 0, of: 1 });

/// A tap whose other end is the socket, which keeps packets apart.
fn tap() -> (Box<Tap>, OwnedFd) {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let (ours, theirs) = socketpair(family, kind, SocketFlags::NONBLOCK, None).unwrap();
    (Box::new(Tap::new(ours, "socket".to_owned(), None)), theirs)
}

fn attach(bench: &mut Bench, tap: Box<Tap>) -> PortId {
    let port = PortId(u16::try_from(bench.guests.len()).unwrap());
    bench.worker.attach_tap(port, tap, QUEUE).unwrap();
    port
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
        let (tap, theirs) = tap();
        let port = attach(&mut bench, tap);
        for _ in 0..MALFORMED {
            rustix::io::write(&theirs, &with_header(&[1; 13])).unwrap();
        }
        rustix::io::write(&theirs, &with_header(&frame(mac(0), mac(9), 7))).unwrap();
        bench.worker.schedule.ready.add(port);
        bench.settle();
        assert_eq!(bench.guests[0].received.len(), 1, "{guests} guests");
        assert_eq!(bench.drops(guests, DropReason::Malformed), [0, MALFORMED as u64]);
        assert_eq!(bench.drops(guests, DropReason::Os), [0, 0], "each is counted once");
    }
}

/// On a cable a tap is read into the guest's buffers, also packets that it then does not get; not
/// while pages are logged.
#[test]
fn a_packet_that_is_not_used_leaves_no_page_changed_while_pages_are_logged() {
    let mut bench = Bench::new(1);
    bench.introduce();
    let (tap, theirs) = tap();
    let port = attach(&mut bench, tap);
    let mut changes = |is_logged: bool| {
        if is_logged {
            let guest = bench.worker.ports.guest(PortId(0)).unwrap();
            let log = rustix::fs::memfd_create("log", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
            let size = (BASE + MEMORY_LEN) / (8 * 4096);
            rustix::fs::ftruncate(&log, size).unwrap();
            let request = crate::LogRequest { size, offset: 0, fd: log.into() };
            let memory = guest.memory.with_log(request).unwrap();
            bench.worker.set_memory(PortId(0), &memory, &[]).unwrap();
        }
        let read = |bench: &Bench| {
            let mut bytes = vec![0; usize::try_from(SEND_AT - RECEIVE_AT).unwrap()];
            bench.guests[0].memory.read(usize::try_from(RECEIVE_AT).unwrap(), &mut bytes);
            bytes
        };
        let before = read(&bench);
        rustix::io::write(&theirs, &with_header(&[1; 13])).unwrap();
        bench.worker.schedule.ready.add(port);
        bench.settle();
        before != read(&bench)
    };
    assert_eq!([changes(false), changes(true)], [true, false]);
}

/// A file, of which no poller can tell when there is something to read.
#[test]
fn a_tap_that_cannot_be_watched_is_refused() {
    let mut bench = Bench::new(1);
    let file = rustix::fs::open("/dev/null", OFlags::RDWR, Mode::empty()).unwrap();
    let not_watched = Box::new(Tap::new(file, "file".to_owned(), None));
    assert!(bench.worker.attach_tap(PortId(1), not_watched, QUEUE).is_err());
    assert!(bench.worker.ports.slots.get(1).is_none_or(|port| matches!(port.end, End::Absent)));
    let (tap, _wire) = tap();
    assert!(bench.worker.attach_tap(PortId(1), tap, QUEUE).is_ok());
}

/// A socket cannot give the error that the kernel reports when the interface is gone.
#[test]
fn a_tap_in_the_place_of_another_goes_on_counting() {
    let mut bench = Bench::new(2);
    bench.introduce();
    for round in 1..3 {
        let (tap, theirs) = tap();
        let port = attach(&mut bench, tap);
        rustix::io::write(&theirs, &with_header(&frame(mac(0), mac(9), 7))).unwrap();
        bench.worker.schedule.ready.add(port);
        bench.settle();
        assert_eq!(bench.guests[0].received.len(), round);
        assert_eq!(bench.worker.snapshots()[2].from_end.packets, round as u64);
    }
}

/// On a cable, and on a switch.
#[test]
fn nothing_is_left_undone_for_a_tap_that_asks_for_that() {
    const CHECKSUM_AT: usize = 34 + 16;
    for guests in [1, 2] {
        let mut bench = Bench::new(guests);
        bench.introduce();
        let (tap, wire) = tap();
        let port = attach(&mut bench, tap);
        let mut tcp = frame(mac(9), mac(0), 0);
        tcp[12..24].copy_from_slice(&[8, 0, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6]);
        let header = NetHeader {
            flags: NEEDS_CSUM,
            csum_start: 34,
            csum_offset: 16,
            ..NetHeader::default()
        };
        for id in 0..u64::from(QUEUE_SIZE) {
            let at = usize::try_from(SEND_AT + id * SEND_LEN).unwrap();
            bench.guests[0].memory.write(at, &header.encode());
        }
        for (is_on, flags) in [(false, NEEDS_CSUM), (true, 0)] {
            bench.worker.complete_for_tap(port, is_on);
            bench.send(0, &tcp, 1);
            bench.settle();
            let mut bytes = [0; 200];
            let len = rustix::io::read(&wire, &mut bytes).unwrap();
            assert_eq!((len, bytes[0]), (HEADER_LEN + tcp.len(), flags), "{guests} guests");
            let checksum = &bytes[HEADER_LEN + CHECKSUM_AT..][..2];
            assert_eq!(checksum != [0; 2], is_on);
        }
    }
}
