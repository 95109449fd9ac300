//! Short packets of a tap read ahead, several with one system call, while many of them wait.
//!
//! How: into places of our own, for where a packet goes cannot be said before its length is known. From
//! there each is copied to its receiver, which takes less than the system call that was spared. So
//! [`Backlog`] allows it only while packets come one behind the other, and all are short.
//!
//! Nothing is concluded from a tap that gave fewer than it was asked for: whoever finds nothing here
//! asks the tap itself, so that no packet is overlooked that came meanwhile.
//!
//! Limits: [`AHEAD_PACKETS`] packets at a time, and no further ones before they are taken.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use io_uring::{opcode, types};
use ringway_net::{HEADER_LEN, PACKET_LEN_MAX};
use ringway_virtq::SharedSlice;

use crate::tap_ioctl::Scratch;
use crate::tap_ring::TapRing;

/// Packets at a time; half the budget of a visit.
pub(crate) const AHEAD_PACKETS: usize = 32;
/// Longer packets, in bytes, are better read straight to their receiver.
const SHORT_LEN: usize = 2048;
/// Bytes of a header, the longest packet and one more, which tells that it was longer.
const READ_LEN: usize = HEADER_LEN + PACKET_LEN_MAX as usize + 1;
/// Bytes from one place to the next: no multiple of a page, so that the beginnings, all that there is of
/// short packets, do not compete for the same lines of the processor's cache.
const PLACE_LEN: usize = (64 << 10) + 1600;
const _: () = assert!(PLACE_LEN >= READ_LEN);
/// Packets in a row after which several are read at once, at most.
const PATIENCE_MAX: usize = 256;

/// How many packets to read at once.
///
/// Packets that were there in a row say that more wait. If they do not, more must be in a row the next
/// time.
#[derive(Debug)]
pub(crate) struct Backlog {
    /// Fewer are read one by one.
    from: usize,
    /// Short packets in a row.
    row: usize,
    /// So many must be in a row first.
    patience: usize,
}

impl Backlog {
    /// `from`: fewer are read faster one by one.
    fn new(from: usize) -> Self {
        Self { from, row: 0, patience: from }
    }

    /// How many to read at once now; `None`: one by one.
    fn at_once(&self) -> Option<usize> {
        (self.row >= self.patience).then(|| self.row.clamp(self.from, AHEAD_PACKETS))
    }

    /// So many bytes were read alone, header included; 0: there was no packet.
    pub(crate) fn see(&mut self, len: usize) {
        let is_short = (1..=HEADER_LEN + SHORT_LEN).contains(&len);
        self.row = if is_short { self.row + 1 } else { 0 };
    }

    /// So many were read at once where `asked` would have been, and all were short, or not.
    fn see_several(&mut self, asked: usize, found: usize, are_short: bool) {
        if found == asked && are_short {
            self.row += found;
            self.patience = self.from.max(self.patience / 2);
            return;
        }
        self.row = 0;
        // A request that finds nothing takes about a third of one that does: with three quarters of
        // them, nothing is lost.
        if found * 4 < asked * 3 || !are_short {
            self.patience = PATIENCE_MAX.min(self.patience * 2);
        }
    }
}

/// Packets that were read and not taken yet.
#[derive(Debug)]
pub(crate) struct ReadAhead {
    ring: TapRing,
    places: Scratch,
    /// Header and packet each, the next one last.
    waiting: Vec<SharedSlice>,
    pub(crate) backlog: Backlog,
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
            backlog: Backlog::new(from),
        })
    }

    /// Whether a packet was read ahead; reads if several are likely to be there.
    pub(crate) fn has_packets(&mut self, fd: BorrowedFd<'_>) -> bool {
        if self.waiting.is_empty()
            && let Some(count) = self.backlog.at_once()
        {
            self.read(fd, count);
        }
        !self.waiting.is_empty()
    }

    /// The next one, header in front; it stays where it is until the next call finds none.
    pub(crate) fn next(&mut self, fd: BorrowedFd<'_>) -> Option<SharedSlice> {
        self.has_packets(fd).then(|| self.pop()).flatten()
    }

    /// The next one of those that are there already.
    pub(crate) fn pop(&mut self) -> Option<SharedSlice> {
        self.waiting.pop()
    }

    /// Reads up to `count` packets; only while none is waiting or lent.
    pub(crate) fn read(&mut self, fd: BorrowedFd<'_>, count: usize) {
        let Self { ring, places, waiting, backlog } = self;
        let places = places.bytes();
        let place =
            |at: usize| places.slice(at * PLACE_LEN, READ_LEN).unwrap_or(SharedSlice::EMPTY);
        let reads = (0..count.min(AHEAD_PACKETS)).map(|at| {
            let len = u32::try_from(place(at).len()).unwrap_or(0);
            let read = opcode::Read::new(types::Fd(fd.as_raw_fd()), place(at).as_ptr(), len);
            // That the file is non-blocking is not enough for io_uring.
            read.rw_flags(libc::RWF_NOWAIT).build()
        });
        // SAFETY: the places are ours, and nothing refers to them: all packets that were in them are
        // taken. No read waits.
        let results = unsafe { ring.carry_out(reads) };
        let lens = results.iter().map(|&result| usize::try_from(result).unwrap_or(0));
        let found = lens.clone().enumerate().filter(|&(_, len)| len > 0);
        waiting.clear();
        waiting.extend(found.rev().map(|(at, len)| place(at).split_at(len).0));
        let are_short = lens.max().is_none_or(|len| len <= HEADER_LEN + SHORT_LEN);
        backlog.see_several(results.len(), waiting.len(), are_short);
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, OwnedFd};
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    /// Two ends of what keeps packets apart.
    fn wire(flags: SocketFlags) -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap()
    }

    fn ahead(from: usize) -> Option<ReadAhead> {
        let ahead = ReadAhead::new(from).ok();
        if ahead.is_none() {
            println!("skipped: no io_uring here");
        }
        ahead
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
    fn several_are_read_only_behind_short_ones_in_a_row() {
        let (short, long) = (HEADER_LEN + SHORT_LEN, HEADER_LEN + SHORT_LEN + 1);
        let mut backlog = Backlog::new(4);
        for (lens, at_once) in [
            (&[short, short, short][..], None),
            (&[short][..], Some(4)),
            (&[short][..], Some(5)),
            (&[long][..], None),
            (&[short, short, short, 0, short][..], None),
            (&[short, short, short][..], Some(4)),
        ] {
            lens.iter().for_each(|&len| backlog.see(len));
            assert_eq!(backlog.at_once(), at_once, "{backlog:?}");
        }
        for at_once in [8, 16, 32, 32] {
            let asked = backlog.at_once().unwrap();
            backlog.see_several(asked, asked, true);
            assert_eq!(backlog.at_once(), Some(at_once), "more as long as all are there");
        }
    }

    #[test]
    fn who_asked_in_vain_waits_longer_the_next_time() {
        /// Short packets in a row until several are read at once.
        fn row(backlog: &mut Backlog) -> usize {
            backlog.see(0);
            let are_several = (1..1000).find(|_| {
                backlog.see(HEADER_LEN + 60);
                backlog.at_once().is_some()
            });
            are_several.unwrap()
        }
        let mut backlog = Backlog::new(4);
        assert_eq!(row(&mut backlog), 4);
        for expected in [8, 16, 32, 64, 128, 256, 256] {
            backlog.see_several(32, 23, true);
            assert_eq!(row(&mut backlog), expected);
        }
        backlog.see_several(32, 24, true);
        assert_eq!(row(&mut backlog), 256, "three quarters are neither gain nor loss");
        for expected in [128, 64, 32, 16, 8, 4, 4] {
            backlog.see_several(32, 32, true);
            assert_eq!(row(&mut backlog), expected);
        }
        backlog.see_several(32, 32, false);
        assert_eq!(row(&mut backlog), 8, "long ones among them");
    }

    #[test]
    fn what_is_read_at_once_comes_in_order_and_whole() {
        let Some(mut ahead) = ahead(4) else { return };
        let (ours, theirs) = wire(SocketFlags::NONBLOCK);
        for round in 0..3 {
            let lens = [72, 14, 60_000, READ_LEN, 1526].map(|len| len - round);
            for (mark, len) in (1..).zip(lens) {
                rustix::io::write(&theirs, &vec![mark; len]).unwrap();
            }
            ahead.read(ours.as_fd(), AHEAD_PACKETS);
            let expected: Vec<_> = (1..).zip(lens).collect();
            assert_eq!(taken(&mut ahead), expected);
        }
    }

    /// A file that would block stands for a tap, of which io_uring takes no notice that it would not.
    #[test]
    fn what_is_not_there_is_not_waited_for_and_comes_later() {
        let (done, ended) = mpsc::channel();
        thread::spawn(move || {
            let Some(mut ahead) = ahead(2) else { return done.send(()) };
            let (ours, theirs) = wire(SocketFlags::empty());
            rustix::io::write(&theirs, &marked(1)).unwrap();
            ahead.read(ours.as_fd(), 8);
            assert_eq!(taken(&mut ahead), [(1, 72)]);
            rustix::io::write(&theirs, &marked(2)).unwrap();
            assert!(ahead.next(ours.as_fd()).is_none(), "its backlog is over");
            (0..2).for_each(|_| ahead.backlog.see(72));
            assert!(ahead.next(ours.as_fd()).is_none(), "it was in vain");
            (0..2).for_each(|_| ahead.backlog.see(72));
            assert!(ahead.has_packets(ours.as_fd()));
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
        // SAFETY: the ring's number is another file's from now on, which the ring closes at its end.
        let replaced = unsafe { libc::dup2(null.as_raw_fd(), ahead.ring.fd()) };
        assert!(replaced >= 0);
        let (ours, theirs) = wire(SocketFlags::NONBLOCK);
        rustix::io::write(&theirs, &marked(1)).unwrap();
        for _ in 0..100 {
            ahead.backlog.see(72);
            assert!(!ahead.has_packets(ours.as_fd()));
        }
        let mut bytes = [0; 100];
        assert_eq!(rustix::io::read(&ours, &mut bytes), Ok(72), "it is where it was");
    }
}
