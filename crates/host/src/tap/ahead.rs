//! Short packets of a tap read ahead, several with one system call, while many of them wait.
//!
//! How: the kernel reads them into places of the tap's own, because where a packet goes cannot be
//! said before its length is known. From there each is copied to its receiver, which takes less
//! than the system call that was spared. So [`ReadBatcher`] allows it only while packets come one
//! behind the other, and all are short.
//!
//! A tap that gave fewer packets than it was asked for may have more by now: the reader that finds
//! nothing read ahead asks the tap itself, so that no packet is overlooked.
//!
//! Limits: [`AHEAD_PACKETS`] packets at a time, and no further ones before they are taken. That may
//! be 2 MiB in one visit if long ones come right behind short ones; what was read counts when it is
//! taken. Memory for as much belongs to each queue of a tap. Where the kernel cannot say at once
//! that a tap is empty, packets are read one by one.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use io_uring::{opcode, types};
use ringway_net::{HEADER_LEN, PACKET_LEN_MAX};
use ringway_virtq::SharedSlice;

use crate::memory::scratch::Scratch;
use crate::tap::read_batcher::{AHEAD_PACKETS, ReadBatcher};
use crate::tap::ring::TapRing;

/// Bytes of a header, the longest packet and one more, which tells that it was longer.
const READ_LEN: usize = HEADER_LEN + PACKET_LEN_MAX as usize + 1;
/// Bytes from one place to the next: no multiple of a page, so that the beginnings, all that there
/// is of short packets, do not compete for the same lines of the processor's cache.
const PLACE_LEN: usize = (64 << 10) + 1600;
const _: () = assert!(PLACE_LEN >= READ_LEN);

/// Packets that were read and not taken yet.
#[derive(Debug)]
pub(crate) struct ReadAhead {
    ring: TapRing,
    places: Scratch,
    /// Header and packet each, the next one last.
    waiting: Vec<SharedSlice>,
    pub(crate) row: ReadBatcher,
}

impl ReadAhead {
    /// From `from` packets on they are read at once.
    ///
    /// # Errors
    /// The kernel has no io_uring for us.
    pub(crate) fn new(from: usize) -> io::Result<Self> {
        Ok(Self {
            ring: TapRing::new()?,
            places: Scratch::new(AHEAD_PACKETS * PLACE_LEN),
            waiting: Vec::with_capacity(AHEAD_PACKETS),
            row: ReadBatcher::new(from),
        })
    }

    /// Reads several if they are likely to be there and none is left; whether there is one now.
    pub(crate) fn top_up(&mut self, fd: BorrowedFd<'_>) -> bool {
        if self.waiting.is_empty()
            && let Some(count) = self.row.batch_len()
        {
            self.read(fd, count);
        }
        !self.waiting.is_empty()
    }

    /// Whether one is left that was read.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The next one, header in front; it stays where it is until more are read.
    pub(crate) fn pop(&mut self) -> Option<SharedSlice> {
        self.waiting.pop()
    }

    /// Reads up to `count` packets, and gives how many were there; only while none is waiting or
    /// lent.
    pub(crate) fn read(&mut self, fd: BorrowedFd<'_>, count: usize) -> usize {
        let Self { ring, places, waiting, row } = self;
        let places = places.bytes();
        let place =
            |at: usize| places.slice(at * PLACE_LEN, READ_LEN).unwrap_or(SharedSlice::EMPTY);
        let reads = (0..count.min(AHEAD_PACKETS)).map(|at| {
            let len = u32::try_from(place(at).len()).unwrap_or(0);
            let read = opcode::Read::new(types::Fd(fd.as_raw_fd()), place(at).as_ptr(), len);
            // That the file is non-blocking is not enough for io_uring.
            read.rw_flags(libc::RWF_NOWAIT).build()
        });
        // SAFETY: the places are ours, and nothing refers to them: all packets that were in them
        // are taken. No read waits.
        let results = unsafe { ring.carry_out(reads) };
        let lens = results.iter().map(|&result| usize::try_from(result).unwrap_or(0));
        let found = lens.clone().enumerate().filter(|&(_, len)| len > 0);
        waiting.clear();
        waiting.extend(found.rev().map(|(at, len)| place(at).split_at(len).0));
        row.record_batch(results.len(), waiting.len(), lens.max().unwrap_or(0));
        if results.iter().any(|&result| is_impossible(result)) {
            row.give_up();
        }
        waiting.len()
    }
}

/// Neither a packet nor that there is none: the file cannot say so at once, or the ring is lost.
fn is_impossible(result: i32) -> bool {
    [libc::EOPNOTSUPP, libc::EINVAL, libc::ECANCELED].contains(&-result)
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, OwnedFd};
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    /// Two ends of a socket that keeps packets apart.
    fn seqpacket_pair(flags: SocketFlags) -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap()
    }

    /// `None`: io_uring cannot read here without waiting.
    fn ahead(from: usize) -> Option<ReadAhead> {
        let (ours, theirs) = seqpacket_pair(SocketFlags::NONBLOCK);
        rustix::io::write(&theirs, &marked(0)).unwrap();
        let is_possible = |ahead: &mut ReadAhead| ahead.read(ours.as_fd(), 1) == 1;
        if !ReadAhead::new(from).is_ok_and(|mut ahead| is_possible(&mut ahead)) {
            println!("skipped: no io_uring here that reads sockets");
            return None;
        }
        ReadAhead::new(from).ok()
    }

    fn marked(mark: u8) -> Vec<u8> {
        vec![mark; HEADER_LEN + 60]
    }

    /// The first byte and the length of everything that is there.
    fn taken(ahead: &mut ReadAhead) -> Vec<(u8, usize)> {
        let mut first = [0];
        let packets = std::iter::from_fn(|| ahead.pop());
        let look = |packet: SharedSlice| {
            packet.read(0, &mut first);
            (first[0], packet.len())
        };
        packets.map(look).collect()
    }

    #[test]
    fn what_is_read_at_once_comes_in_order_and_whole() {
        let Some(mut ahead) = ahead(4) else { return };
        let (ours, theirs) = seqpacket_pair(SocketFlags::NONBLOCK);
        for round in 0..3 {
            let lens = [72, 14, 60_000, READ_LEN, 1526].map(|len| len - round);
            for (mark, len) in (1..).zip(lens) {
                rustix::io::write(&theirs, &vec![mark; len]).unwrap();
            }
            assert_eq!(ahead.read(ours.as_fd(), AHEAD_PACKETS), lens.len());
            let expected: Vec<_> = (1..).zip(lens).collect();
            assert_eq!(taken(&mut ahead), expected);
        }
    }

    /// A file that would block stands for a tap, of which io_uring takes no notice that it would
    /// not.
    #[test]
    fn what_is_not_there_is_not_waited_for_and_comes_later() {
        let (done, ended) = mpsc::channel();
        thread::spawn(move || {
            let Some(mut ahead) = ahead(2) else { return done.send(()) };
            let (ours, theirs) = seqpacket_pair(SocketFlags::empty());
            rustix::io::write(&theirs, &marked(1)).unwrap();
            assert_eq!(ahead.read(ours.as_fd(), 8), 1);
            assert_eq!(taken(&mut ahead), [(1, 72)]);
            rustix::io::write(&theirs, &marked(2)).unwrap();
            assert!(!ahead.top_up(ours.as_fd()), "no row any more");
            (0..2).for_each(|_| ahead.row.record(72));
            assert!(!ahead.top_up(ours.as_fd()), "it found none");
            (0..2).for_each(|_| ahead.row.record(72));
            assert!(ahead.top_up(ours.as_fd()));
            assert_eq!(taken(&mut ahead), [(2, 72)]);
            done.send(())
        });
        ended.recv_timeout(Duration::from_secs(20)).expect("it waits, or has failed");
    }

    /// A ring that the kernel takes nothing from, as where it has no memory left.
    #[test]
    fn without_its_ring_packets_are_read_alone() {
        let Some(mut ahead) = ahead(2) else { return };
        let null = std::fs::File::open("/dev/null").unwrap();
        // SAFETY: the ring's number is another file's from now on, which the ring closes at its
        // end.
        let replaced = unsafe { libc::dup2(null.as_raw_fd(), ahead.ring.fd()) };
        assert!(replaced >= 0);
        let (ours, theirs) = seqpacket_pair(SocketFlags::NONBLOCK);
        rustix::io::write(&theirs, &marked(1)).unwrap();
        for _ in 0..100 {
            ahead.row.record(72);
            assert!(!ahead.top_up(ours.as_fd()));
        }
        let mut bytes = [0; 100];
        assert_eq!(rustix::io::read(&ours, &mut bytes), Ok(72), "it is where it was");
    }
}
