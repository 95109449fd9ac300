//! A file through which the state of a guest's device goes: a pipe, or a Unix stream socket.
//!
//! To read and to write waits for as long as the front-end likes, whatever flags the file has: both
//! ends are the front-end's, and one that copies to or from memory in which page faults sleep holds
//! the pipe's lock, or the socket's, meanwhile. So a thread does it that does nothing else. An
//! honest front-end makes it wait until a time that is given, or until it is told to end. No flag
//! of the file is changed: the front-end has the same ones.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use ringway_foreign::UntrustedFd;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, FileType, StatxFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::empty_path::empty_path;
use super::eventfd::{EventFd, is_local_stream};

/// Most bytes that are read at once.
const READ_LEN: usize = 64 * 1024;

/// Most bytes that are written at once: so many find room in each pipe that can be written to.
const WRITE_LEN: usize = 4096;

/// The file.
#[derive(Debug)]
pub struct StateFile {
    fd: UntrustedFd,
    is_socket: bool,
}

impl StateFile {
    /// Whether it is such a file; nothing is asked that can wait.
    ///
    /// # Errors
    /// It is another one.
    pub fn new(fd: UntrustedFd) -> io::Result<Self> {
        let is_socket = is_local_stream(fd.as_fd())?;
        if !is_socket && !is_pipe(fd.as_fd())? {
            let what = "the file for the state must be a pipe or a Unix stream socket";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        Ok(Self { fd, is_socket })
    }

    /// Reads to its end, but not much more than `most` bytes.
    ///
    /// # Errors
    /// The end does not come until then, `ends` is rung, or the operating system refuses.
    pub fn read_to_end(&self, most: usize, until: Instant, ends: &EventFd) -> io::Result<Vec<u8>> {
        let (mut bytes, mut piece) = (Vec::new(), vec![0; READ_LEN.min(most + 1)]);
        while bytes.len() <= most {
            self.wait_for(PollFlags::IN, until, ends)?;
            let read = match self.is_socket {
                true => recv(&self.fd, &mut piece[..], RecvFlags::DONTWAIT).map(|(_, len)| len),
                false => rustix::io::read(&self.fd, &mut piece[..]),
            };
            match read {
                Ok(0) => break,
                Ok(len) => bytes.extend(&piece[..len]),
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(why) => return Err(why.into()),
            }
        }
        Ok(bytes)
    }

    /// Writes all of it.
    ///
    /// # Errors
    /// It is not taken until then, `ends` is rung, or the operating system refuses.
    pub fn write_all(&self, mut bytes: &[u8], until: Instant, ends: &EventFd) -> io::Result<()> {
        while !bytes.is_empty() {
            self.wait_for(PollFlags::OUT, until, ends)?;
            let piece = &bytes[..bytes.len().min(WRITE_LEN)];
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            let written = match self.is_socket {
                true => send(&self.fd, piece, flags),
                false => rustix::io::write(&self.fd, piece),
            };
            match written {
                Ok(len) => bytes = &bytes[len..],
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(why) => return Err(why.into()),
            }
        }
        Ok(())
    }

    fn wait_for(&self, flags: PollFlags, until: Instant, ends: &EventFd) -> io::Result<()> {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let mut fds = [PollFd::new(&self.fd, flags), PollFd::new(ends, PollFlags::IN)];
            match poll(&mut fds, Timespec::try_from(left).ok().as_ref()) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) if !fds[1].revents().is_empty() => {
                    return Err(io::ErrorKind::Interrupted.into());
                }
                Ok(_) => return Ok(()),
                Err(why) => return Err(why.into()),
            }
        }
    }
}

/// The kernel knows that by itself: any other question could be one to a file system that the
/// front-end serves.
fn is_pipe(fd: BorrowedFd<'_>) -> io::Result<bool> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let mode = match rustix::fs::statx(fd, empty_path(), flags, StatxFlags::TYPE) {
        Ok(known) => known.stx_mode.into(),
        // A filter of system calls around all of it: there is nothing else to ask.
        Err(Errno::NOSYS | Errno::PERM) => rustix::fs::fstat(fd)?.st_mode,
        Err(why) => return Err(why.into()),
    };
    Ok(FileType::from_raw_mode(mode) == FileType::Fifo)
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    use super::*;

    fn pipes() -> Vec<(OwnedFd, OwnedFd)> {
        let (one, other) = UnixStream::pair().expect("sockets");
        vec![rustix::pipe::pipe().expect("a pipe"), (one.into(), other.into())]
    }

    fn file(fd: OwnedFd) -> StateFile {
        StateFile::new(fd.into()).expect("a pipe or a socket")
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(20)
    }

    #[test]
    fn what_is_written_is_read_also_if_it_is_more_than_fits() {
        let bytes: Vec<u8> = (0..300_000_u32).map(|at| at.to_le_bytes()[1]).collect();
        for (reads, writes) in pipes() {
            let ends = EventFd::new().expect("one");
            let written = std::thread::scope(|scope| {
                scope.spawn(|| {
                    let writes = file(writes);
                    writes.write_all(&bytes, soon(), &ends).expect("all is read");
                });
                file(reads).read_to_end(300_000, soon(), &ends).expect("all is written")
            });
            assert_eq!(written, bytes);
        }
    }

    #[test]
    fn it_ends_when_its_time_is_over_or_when_it_is_told() {
        for (reads, writes) in pipes() {
            let ends = EventFd::new().expect("one");
            let (reads, writes) = (file(reads), file(writes));
            let until = Instant::now() + Duration::from_millis(20);
            let why = reads.read_to_end(1, until, &ends).expect_err("no end");
            assert_eq!(why.kind(), io::ErrorKind::TimedOut);
            assert!(Instant::now() >= until);
            let much = vec![0; 1 << 20];
            let until = Instant::now() + Duration::from_millis(20);
            let why = writes.write_all(&much, until, &ends).expect_err("is not read");
            assert_eq!(why.kind(), io::ErrorKind::TimedOut);
            assert_eq!(reads.read_to_end(9999, soon(), &ends).expect("more").len() / 10_000, 1);
            ends.notify();
            let why = reads.read_to_end(1 << 30, soon(), &ends).expect_err("told to end");
            assert_eq!(why.kind(), io::ErrorKind::Interrupted);
        }
    }

    #[test]
    fn other_files_are_refused() {
        let file = std::fs::File::open("/proc/self/exe").expect("this program").into();
        let datagrams = std::os::unix::net::UnixDatagram::unbound().expect("a socket").into();
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").expect("a socket").into();
        let null = std::fs::File::open("/dev/null").expect("a device").into();
        for other in [file, datagrams, tcp, null] {
            let other: OwnedFd = other;
            assert!(StateFile::new(other.into()).is_err());
        }
    }
}
