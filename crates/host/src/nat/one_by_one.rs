//! Datagrams in a row that a guest leaves to be cut: the kernel cuts them, or each goes alone.
//!
//! Limits: [`SEGMENTS_MAX`] of one packet go alone.

use std::io;
use std::os::fd::BorrowedFd;

use rustix::io::Errno;

use crate::nat::calls::{Vectors, Way};
use crate::nat::opening::errno;
use crate::nat::part::FramePart;

/// Datagrams of one packet that go alone: a guest must not make a system call of each byte.
const SEGMENTS_MAX: usize = 128;

impl Vectors {
    /// Sends a datagram, or several of `segment_len` bytes, without waiting; `way`: to another
    /// place than where the socket is connected to.
    ///
    /// # Errors
    /// Not all were sent.
    pub(crate) fn send_datagrams(
        &mut self,
        fd: BorrowedFd<'_>,
        part: FramePart<'_>,
        segment_len: Option<u16>,
        way: Option<Way<'_>>,
    ) -> io::Result<usize> {
        self.begin().add(part);
        let sent = self.send_behind_reports(fd, segment_len, way);
        match (segment_len, sent) {
            // The device computes no checksums (before Linux 6.11), they are more than this kernel
            // cuts, or each is longer than the path's MTU.
            (Some(each), Err(why))
                if matches!(errno(&why), Errno::IO | Errno::INVAL | Errno::MSGSIZE) =>
            {
                self.send_each(fd, part, each, way)
            }
            (_, sent) => sent,
        }
    }

    fn send_each(
        &mut self,
        fd: BorrowedFd<'_>,
        part: FramePart<'_>,
        each: u16,
        way: Option<Way<'_>>,
    ) -> io::Result<usize> {
        let (FramePart { pieces, skip, len }, each) = (part, usize::from(each).max(1));
        if len.div_ceil(each) > SEGMENTS_MAX {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        for at in (0..len).step_by(each) {
            self.begin().add(FramePart { pieces, skip: skip + at, len: each.min(len - at) });
            self.send_behind_reports(fd, None, way)?;
        }
        Ok(len)
    }

    /// The first attempt may return an error that the kernel has noted of an earlier datagram;
    /// where clients share the socket, it may be any error.
    fn send_behind_reports(
        &mut self,
        fd: BorrowedFd<'_>,
        segment_len: Option<u16>,
        way: Option<Way<'_>>,
    ) -> io::Result<usize> {
        match self.send(fd, segment_len, way) {
            Err(why) if errno(&why) == Errno::CONNREFUSED || way.is_some() => {
                self.send(fd, segment_len, way)
            }
            sent => sent,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    use super::*;
    use crate::memory::scratch::Scratch;
    use crate::nat::calls::{Skipped, SocketOption, set_option};

    #[test]
    fn what_the_kernel_does_not_cut_goes_one_by_one() {
        let [near, far] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        near.connect(far.local_addr().unwrap()).unwrap();
        far.set_nonblocking(true).unwrap();
        // The kernel cuts nothing whose checksum it is not to compute.
        set_option(near.as_fd(), SocketOption(libc::SOL_SOCKET, libc::SO_NO_CHECK), 1).unwrap();
        let scratch = Scratch::new(1010);
        let bytes: Vec<u8> = (0..=255).cycle().take(1010).collect();
        scratch.bytes().write(0, &bytes);
        let (front, back) = scratch.bytes().split_at(50);
        let pieces = [front, back];
        let mut vectors = Vectors::new(Skipped::new(true));
        let part = |len| FramePart { pieces: &pieces, skip: 10, len };
        let mut send =
            |len, each| vectors.send_datagrams(near.as_fd(), part(len), Some(each), None);
        let mut got = [0; 99];
        assert_eq!(send(100, 30).unwrap(), 100);
        for expected in bytes[10..110].chunks(30) {
            let len = far.recv(&mut got).expect("a datagram");
            assert_eq!(&got[..len], expected);
        }
        assert!(send(1000, 1).is_err(), "too many system calls");
        far.recv(&mut got).unwrap_err();
    }

    #[test]
    fn one_that_is_too_long_alone_is_an_error() {
        let near = UdpSocket::bind("127.0.0.1:0").unwrap();
        near.connect(near.local_addr().unwrap()).unwrap();
        let scratch = Scratch::new(65_530);
        let mut vectors = Vectors::new(Skipped::new(true));
        let all = FramePart { pieces: &[scratch.bytes()], skip: 0, len: 65_530 };
        let sent = vectors.send_datagrams(near.as_fd(), all, Some(65_529), None);
        assert_eq!(errno(&sent.unwrap_err()), Errno::MSGSIZE);
    }
}
