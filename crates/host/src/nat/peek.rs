//! Peeking behind what was peeked before. Kernels since 6.9 (IPv6: 6.11) do it by themselves
//! (`SO_PEEK_OFF`); older ones always peek from the front, and what is on the way to the guest is
//! copied once more with each read, into memory of the router's.
//!
//! Limits: 256 KiB of a connection are on the way to its guest there.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketType, socket};

use crate::nat::calls::{SocketOption, discard, set_option};
use crate::os::system_calls::count_system_call;

/// Where the kernel peeks next.
pub(crate) const PEEK_OFF: SocketOption = SocketOption(libc::SOL_SOCKET, libc::SO_PEEK_OFF);

/// Whether this kernel peeks at an offset, over each family that it has.
pub(crate) fn has_offsets() -> bool {
    [AddressFamily::INET, AddressFamily::INET6].into_iter().all(|family| {
        let stream = socket(family, SocketType::STREAM, None);
        stream.map_or(true, |stream| set_option(stream.as_fd(), PEEK_OFF, 0).is_ok())
    })
}

/// Takes bytes off the receive queue, each read of which ends at an urgent one; how many.
pub(crate) fn discard_all(fd: BorrowedFd<'_>, len: usize) -> usize {
    let mut taken = 0;
    // Each turn takes a byte at least.
    while taken < len {
        match discard(fd, len - taken) {
            Ok(0) | Err(_) => break,
            Ok(count) => taken += count,
        }
    }
    taken
}

/// The state of a stream beside its bytes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Ahead {
    /// The other end has sent all that it will.
    pub(crate) has_ended: bool,
    /// An urgent byte is in the receive queue.
    pub(crate) has_urgent: bool,
}

impl Ahead {
    /// Asks the kernel.
    pub(crate) fn of(fd: BorrowedFd<'_>) -> Self {
        const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
        const ENDED: PollFlags = PollFlags::RDHUP.union(PollFlags::HUP).union(PollFlags::ERR);
        count_system_call();
        let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::RDHUP | PollFlags::PRI)];
        let _ = poll(&mut fds, Some(&AT_ONCE));
        let found = fds[0].revents();
        Self { has_ended: found.intersects(ENDED), has_urgent: found.contains(PollFlags::PRI) }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write};
    use std::net::{Shutdown, TcpListener, TcpStream};
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    use ringway_nat::{Close, Read};
    use ringway_virtq::SharedSlice;
    use rustix::net::{SendFlags, send};

    use super::*;
    use crate::memory::scratch::Scratch;
    use crate::nat::calls::{SKIPPED_LEN_MAX, Skipped, Vectors};
    use crate::nat::part::FramePart;
    use crate::nat::socket::Socket;

    /// A socket of a router that peeks in that way, and its other end.
    fn pair(has_offsets: bool) -> (Socket, Vectors, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let far = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
        let (near, _) = listener.accept().expect("it came");
        near.set_nonblocking(true).expect("a socket");
        let mut socket = Socket::accepted(OwnedFd::from(near), false).expect("options");
        if !has_offsets {
            socket.forget_offsets();
        }
        (socket, Vectors::new(Skipped::new(has_offsets)), far)
    }

    fn read((socket, vectors): (&mut Socket, &mut Vectors), at: u32, into: &[SharedSlice]) -> Read {
        let read = |socket: &mut Socket, vectors: &mut Vectors| {
            socket.peek(vectors, at, FramePart { pieces: into, skip: 0, len: 5 }).expect("open")
        };
        // The kernel may need a moment.
        for _ in 0..1000 {
            let read = read(socket, vectors);
            if read != Read::Empty {
                return read;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        Read::Empty
    }

    #[test]
    fn both_ways_read_the_same() {
        for has_offsets in [true, false] {
            if has_offsets && !self::has_offsets() {
                println!("skipped: this kernel has no SO_PEEK_OFF for TCP");
                continue;
            }
            let (mut socket, mut vectors, mut far) = pair(has_offsets);
            let scratch = Scratch::new(16);
            let mut bytes = [0; 5];
            assert!(!socket.has_hung_up(), "it is open");
            far.write_all(b"hello world").expect("it is open");
            for (at, golden) in [(0, "hello"), (5, " worl"), (0, "hello"), (5, " worl")] {
                let into = [scratch.bytes()];
                let read = read((&mut socket, &mut vectors), at, &into);
                assert_eq!(read, Read::Bytes(5), "{at} {has_offsets}");
                scratch.bytes().read(0, &mut bytes);
                assert_eq!(bytes, golden.as_bytes());
                assert!(!socket.has_hung_up(), "there is something to read");
            }
            assert_eq!(socket.acknowledge(5), has_offsets, "it is taken off later, or at once");
            let into = [scratch.bytes()];
            for _ in ["before it is taken off", "and behind"] {
                assert_eq!(read((&mut socket, &mut vectors), 5, &into), Read::Bytes(1));
                let now = socket
                    .peek(&mut vectors, 6, FramePart { pieces: &into, skip: 0, len: 5 })
                    .expect("open");
                assert_eq!(now, Read::Empty, "nothing more yet");
                socket.take_off();
            }
            far.shutdown(Shutdown::Write).expect("it is open");
            assert_eq!(read((&mut socket, &mut vectors), 6, &into), Read::End);
            assert_eq!(read((&mut socket, &mut vectors), 3, &into), Read::Bytes(3), "again");
            socket.acknowledge(6);
            assert_eq!(read((&mut socket, &mut vectors), 0, &into), Read::End);
        }
    }

    /// A client that has sent its request and ends its half waits for the answer.
    #[test]
    fn an_end_behind_data_is_no_hanging_up_however_often_it_is_asked() {
        for has_offsets in [true, false] {
            if has_offsets && !self::has_offsets() {
                continue;
            }
            let (mut socket, mut vectors, mut far) = pair(has_offsets);
            let scratch = Scratch::new(16);
            far.write_all(b"x").expect("it is open");
            for _ in ["before the end", "again"] {
                assert!(!socket.has_hung_up(), "{has_offsets}");
            }
            far.shutdown(Shutdown::Write).expect("it is open");
            for _ in ["behind it", "again"] {
                assert!(!socket.has_hung_up(), "{has_offsets}");
            }
            let read_at = |socket: &mut Socket, vectors: &mut Vectors, at| {
                read((socket, vectors), at, &[scratch.bytes()])
            };
            assert_eq!(read_at(&mut socket, &mut vectors, 0), Read::Bytes(1));
            assert_eq!(read_at(&mut socket, &mut vectors, 1), Read::End);
            socket.acknowledge(1);
            assert!(socket.has_hung_up(), "nothing is left: {has_offsets}");
        }
    }

    /// All that comes, until there is so much of it. What is in front of an urgent byte is taken
    /// off where the kernel peeks at the front only.
    fn read_all((socket, vectors): (&mut Socket, &mut Vectors), len: usize) -> Vec<u8> {
        let (scratch, mut all, mut taken) = (Scratch::new(16), Vec::new(), 0);
        for _ in 0..1000 {
            let at = u32::try_from(all.len() - taken).expect("short");
            match socket
                .peek(vectors, at, FramePart { pieces: &[scratch.bytes()], skip: 0, len: 5 })
                .expect("open")
            {
                Read::Bytes(len) => {
                    let mut bytes = vec![0; len as usize];
                    scratch.bytes().read(0, &mut bytes);
                    all.extend(bytes);
                }
                _ if socket.takes_cut() => {
                    socket.acknowledge(at);
                    taken = all.len();
                }
                _ => std::thread::sleep(std::time::Duration::from_millis(1)),
            }
            if all.len() >= len {
                break;
            }
        }
        socket.acknowledge(u32::try_from(all.len() - taken).expect("short"));
        socket.take_off();
        all
    }

    /// The kernel ends each read at an urgent byte, and leaves it out unless it is told otherwise.
    #[test]
    fn what_is_sent_as_urgent_is_read_in_its_place() {
        for has_offsets in [true, false] {
            if has_offsets && !self::has_offsets() {
                continue;
            }
            let (mut socket, mut vectors, mut far) = pair(has_offsets);
            far.write_all(b"ab").expect("it is open");
            send(&far, b"!", SendFlags::OOB).expect("it is open");
            far.write_all(b"cd").expect("it is open");
            assert_eq!(read_all((&mut socket, &mut vectors), 5), b"ab!cd", "{has_offsets}");
            far.write_all(b"ef").expect("it is open");
            assert_eq!(read_all((&mut socket, &mut vectors), 2), b"ef", "{has_offsets}");
            // The end does not hide what is behind an urgent byte.
            far.write_all(b"gh").expect("it is open");
            send(&far, b"!", SendFlags::OOB).expect("it is open");
            far.shutdown(Shutdown::Write).expect("it is open");
            assert_eq!(read_all((&mut socket, &mut vectors), 3), b"gh!", "{has_offsets}");
        }
    }

    #[test]
    fn what_the_guest_has_makes_no_reset_of_an_end() {
        let (mut socket, mut vectors, mut far) = pair(true);
        let scratch = Scratch::new(16);
        far.write_all(b"hello").expect("it is open");
        let read = read((&mut socket, &mut vectors), 0, &[scratch.bytes()]);
        assert_eq!(read, Read::Bytes(5));
        socket.acknowledge(5);
        socket.close(Close::Gracefully);
        assert_eq!(far.read(&mut [0]).expect("no reset"), 0);
    }

    /// There the kernel steps over nothing that it does not copy.
    #[test]
    fn a_unix_socket_is_read_like_any_other() {
        let (near, mut far) = UnixStream::pair().expect("sockets");
        near.set_nonblocking(true).expect("a socket");
        let mut socket = Socket::accepted(OwnedFd::from(near), true).expect("options");
        let mut vectors = Vectors::new(Skipped::new(true));
        assert!(socket.room() > 64 << 10);
        let scratch = Scratch::new(16);
        let into = [scratch.bytes()];
        for part in ["hel", "lo ", "world"] {
            far.write_all(part.as_bytes()).expect("it is open");
        }
        for (at, golden) in [(0, "hello"), (5, " worl"), (0, "hello"), (3, "lo wo"), (9, "ld")] {
            let len = golden.len();
            let golden_len = u32::try_from(len).expect("short");
            assert_eq!(read((&mut socket, &mut vectors), at, &into), Read::Bytes(golden_len));
            let mut bytes = [0; 5];
            scratch.bytes().read(0, &mut bytes);
            assert_eq!(&bytes[..len], golden.as_bytes(), "{at}");
        }
        socket.acknowledge(6);
        assert_eq!(read((&mut socket, &mut vectors), 0, &into), Read::Bytes(5));
        assert_eq!(
            socket.peek(&mut vectors, 5, FramePart { pieces: &into, skip: 0, len: 5 }),
            Ok(Read::Empty)
        );
        far.shutdown(Shutdown::Write).expect("it is open");
        assert_eq!(read((&mut socket, &mut vectors), 5, &into), Read::End);
        socket.acknowledge(5);
        assert_eq!(read((&mut socket, &mut vectors), 0, &into), Read::End);
    }

    #[test]
    fn no_more_is_stepped_over_than_there_is_room_for() {
        let mut skipped = Skipped::new(false);
        assert!(skipped.first(SKIPPED_LEN_MAX).is_some());
        assert!(skipped.first(SKIPPED_LEN_MAX + 1).is_none());
    }
}
