//! Several packets written to a tap with one system call (io_uring), where that is faster.
//!
//! How: packets that stay where they are until the end of the visit are only noted, header and
//! pieces. At the end all of them are handed to the kernel at once ([`TapRing`]). Few packets are
//! written one by one: setting up a request costs as much as the system call it spares.
//!
//! If the kernel does not take a batch, its packets are lost, and all further ones are written one
//! by one.
//!
//! Limits: [`BATCH_PACKETS`] packets in [`BATCH_PIECES`] pieces at a time. A kernel without
//! io_uring, or that does not permit it, gets one `writev` per packet.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use io_uring::{opcode, types};
use ringway_net::{DropReason, HEADER_LEN, Packet};

use crate::os::system_calls::count_system_call;
use crate::tap::ioctl::vector;
use crate::tap::ring::{BATCH_PACKETS, TapRing};

/// Pieces at a time, headers included.
const BATCH_PIECES: usize = 512;

/// One noted packet.
#[derive(Debug, Clone, Copy)]
struct Noted {
    /// Where its vectors begin, and how many there are.
    first: usize,
    count: usize,
    len: u32,
}

/// Packets that are to be written.
#[derive(Debug)]
pub(crate) struct TapBatch {
    ring: TapRing,
    /// Fewer are written one by one.
    from: usize,
    headers: Box<[[u8; HEADER_LEN]; BATCH_PACKETS]>,
    vectors: Vec<libc::iovec>,
    noted: Vec<Noted>,
    /// The result of each: bytes, or an error number below zero.
    results: [i32; BATCH_PACKETS],
}

// SAFETY: the addresses in `vectors` are used between `note` and the end of `write` only, which is
// one visit of one worker.
unsafe impl Send for TapBatch {}

impl TapBatch {
    /// `from` packets at least go through io_uring.
    ///
    /// # Errors
    /// The kernel has no io_uring for us.
    pub(crate) fn new(from: usize) -> io::Result<Self> {
        Ok(Self {
            ring: TapRing::new()?,
            from,
            headers: Box::new([[0; HEADER_LEN]; BATCH_PACKETS]),
            vectors: Vec::with_capacity(BATCH_PIECES),
            noted: Vec::with_capacity(BATCH_PACKETS),
            results: [0; BATCH_PACKETS],
        })
    }

    /// From now on, `from` packets at least go through io_uring.
    pub(crate) fn set_from(&mut self, from: usize) {
        self.from = from;
    }

    /// Nothing is noted.
    pub(crate) fn is_empty(&self) -> bool {
        self.noted.is_empty()
    }

    /// Whether a packet in so many pieces can be noted with the others.
    pub(crate) fn has_room(&self, pieces: usize) -> bool {
        self.noted.len() < BATCH_PACKETS && self.vectors.len() + 1 + pieces <= BATCH_PIECES
    }

    /// Notes a packet, for which there [is room](Self::has_room). Its memory must stay mapped, and
    /// should stay as it is, until [`write`](Self::write).
    pub(crate) fn note(&mut self, header: [u8; HEADER_LEN], packet: &Packet<'_>) {
        let at = self.noted.len();
        let first = self.vectors.len();
        self.headers[at] = header;
        self.vectors.push(vector(self.headers[at].as_mut_ptr(), HEADER_LEN));
        self.vectors.extend(packet.payload.iter().map(|piece| vector(piece.as_ptr(), piece.len())));
        self.noted.push(Noted { first, count: self.vectors.len() - first, len: packet.len });
    }

    /// Writes everything noted, in order, and says of each packet's length what became of it.
    pub(crate) fn write(&mut self, fd: BorrowedFd<'_>, mut done: impl FnMut(u32, io::Result<()>)) {
        let count = self.noted.len();
        match count < self.from {
            true => self.write_one_by_one(fd),
            false => self.write_at_once(fd),
        }
        for (noted, &result) in self.noted.iter().zip(&self.results) {
            let written =
                if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(()) };
            done(noted.len, written);
        }
        self.noted.clear();
        self.vectors.clear();
    }

    fn write_one_by_one(&mut self, fd: BorrowedFd<'_>) {
        for (noted, result) in self.noted.iter().zip(&mut self.results) {
            let vectors = &self.vectors[noted.first..noted.first + noted.count];
            let count = libc::c_int::try_from(noted.count).unwrap_or(0);
            count_system_call();
            // SAFETY: the headers are ours, and the pieces are mapped until after this call (see
            // `note`); the kernel only reads. Memory that a front-end took away gives EFAULT.
            let len = unsafe { libc::writev(fd.as_raw_fd(), vectors.as_ptr(), count) };
            let error = || io::Error::last_os_error().raw_os_error().map_or(-libc::EIO, |why| -why);
            *result = if len < 0 { error() } else { 0 };
        }
    }

    fn write_at_once(&mut self, fd: BorrowedFd<'_>) {
        let to = types::Fd(fd.as_raw_fd());
        let writes = self.noted.iter().map(|noted| {
            let vectors = &self.vectors[noted.first..noted.first + noted.count];
            let count = u32::try_from(noted.count).unwrap_or(0);
            // That the file is non-blocking is not enough for io_uring.
            opcode::Writev::new(to, vectors.as_ptr(), count).rw_flags(libc::RWF_NOWAIT).build()
        });
        // SAFETY: headers, vectors and pieces stay until after this call (see `note`); the kernel
        // only reads, and does not wait. Memory that a front-end took away gives EFAULT.
        let results = unsafe { self.ring.carry_out(writes) };
        self.results[..results.len()].copy_from_slice(results);
        let is_lost = results.contains(&-libc::ECANCELED);
        let is_unsupported = results.contains(&-libc::EOPNOTSUPP);
        if is_lost || is_unsupported {
            self.from = usize::MAX;
        }
        if is_unsupported {
            // The kernel cannot promise not to wait for this file, and has written nothing.
            self.write_one_by_one(fd);
        }
    }
}

/// Why a packet that was not written is lost; `None`: there was no room for it now.
pub(crate) fn drop_reason(why: &io::Error) -> Option<DropReason> {
    match why.raw_os_error() {
        Some(libc::EAGAIN | libc::ENOBUFS | libc::EINTR) => None,
        Some(libc::EINVAL) => Some(DropReason::Malformed),
        // The interface is down, or gone.
        Some(libc::EIO | libc::EBADFD) => Some(DropReason::LinkDown),
        _ => Some(DropReason::Os),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use super::*;

    /// The bytes that arrive in a pipe when packets of these lengths are written to it with `from`,
    /// and whether each was written.
    fn written(lens: &[usize], from: usize) -> Option<(Vec<u8>, Vec<bool>)> {
        let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::NONBLOCK).unwrap();
        let Ok(mut batch) = TapBatch::new(from) else {
            println!("skipped: no io_uring here");
            return None;
        };
        let mut bytes: Vec<u8> = (0..=u8::MAX).collect();
        // SAFETY: the bytes live until the end of this function and are only read.
        let all = unsafe { ringway_virtq::SharedSlice::new(bytes.as_mut_ptr(), bytes.len()) };
        for (at, &len) in (0..).zip(lens) {
            let payload =
                [all.slice(0, len / 2).unwrap(), all.slice(len / 2, len - len / 2).unwrap()];
            let header = ringway_net::NetHeader::default();
            let len = u32::try_from(len).unwrap();
            assert!(batch.has_room(payload.len()));
            batch.note([at; HEADER_LEN], &Packet { header: &header, payload: &payload, len });
        }
        let mut results = Vec::new();
        batch.write(write.as_fd(), |len, result| results.push((len as usize, result.is_ok())));
        assert!(batch.is_empty());
        assert!(results.iter().map(|(len, _)| len).eq(lens), "in order");
        let mut got = Vec::new();
        let _ = std::fs::File::from(read).read_to_end(&mut got);
        Some((got, results.into_iter().map(|(_, is_ok)| is_ok).collect()))
    }

    #[test]
    fn at_once_and_one_by_one_write_the_same() {
        let lens: Vec<usize> = (0..BATCH_PACKETS).map(|at| at * 3 % 255 + 1).collect();
        let (Some(at_once), Some(one_by_one)) = (written(&lens, 0), written(&lens, usize::MAX))
        else {
            return;
        };
        assert_eq!(at_once, one_by_one);
        assert_eq!(at_once.0.len(), lens.iter().sum::<usize>() + lens.len() * HEADER_LEN);
        assert!(at_once.1.iter().all(|&is_ok| is_ok));
    }

    #[test]
    fn failures_are_told() {
        let (read, _write) = rustix::pipe::pipe().unwrap();
        for from in [0, usize::MAX] {
            let Ok(mut batch) = TapBatch::new(from) else {
                return println!("skipped: no io_uring here");
            };
            let header = ringway_net::NetHeader::default();
            (10..13).for_each(|len| {
                batch.note([0; HEADER_LEN], &Packet { header: &header, payload: &[], len });
            });
            let mut errors = Vec::new();
            batch.write(read.as_fd(), |len, result| {
                errors.push((len, result.err().and_then(|why| why.raw_os_error())));
            });
            assert_eq!(errors, [10, 11, 12].map(|len| (len, Some(libc::EBADF))), "read only");
        }
    }

    #[test]
    fn what_has_no_room_is_not_waited_for() {
        let (done, ended) = mpsc::channel();
        thread::spawn(move || {
            let (full, _end) = UnixStream::pair().unwrap();
            full.set_nonblocking(true).unwrap();
            while (&full).write(&[0; 4096]).is_ok() {}
            for from in [0, usize::MAX] {
                let Ok(mut batch) = TapBatch::new(from) else {
                    println!("skipped: no io_uring here");
                    break;
                };
                let header = ringway_net::NetHeader::default();
                let packet = Packet { header: &header, payload: &[], len: 0 };
                (0..4).for_each(|_| batch.note([0; HEADER_LEN], &packet));
                let mut errors = Vec::new();
                batch
                    .write(full.as_fd(), |_, result| errors.push(result.map_err(|why| why.kind())));
                assert_eq!(errors, [Err(io::ErrorKind::WouldBlock); 4]);
            }
            done.send(())
        });
        ended.recv_timeout(Duration::from_secs(20)).expect("it waits, or has failed");
    }

    /// A ring that the kernel takes nothing from, as where it has no memory left.
    #[test]
    fn what_the_kernel_does_not_take_is_lost_and_never_comes_back() {
        let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::NONBLOCK).unwrap();
        let Ok(mut batch) = TapBatch::new(2) else { return println!("skipped: no io_uring here") };
        let null = std::fs::File::open("/dev/null").unwrap();
        // SAFETY: the ring's number is another file's from now on, which the ring closes at its
        // end.
        let replaced = unsafe { libc::dup2(null.as_raw_fd(), batch.ring.fd()) };
        assert!(replaced >= 0);
        for expected in [0, 2, 2] {
            for _ in 0..2 {
                let header = ringway_net::NetHeader::default();
                let packet = Packet { header: &header, payload: &[], len: 0 };
                batch.note([7; HEADER_LEN], &packet);
            }
            let mut written = 0;
            batch.write(write.as_fd(), |_, result| written += usize::from(result.is_ok()));
            assert_eq!(written, expected);
        }
        let mut got = Vec::new();
        let _ = std::fs::File::from(read).read_to_end(&mut got);
        assert_eq!(got.len(), 4 * HEADER_LEN);
    }
}
