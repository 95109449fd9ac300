//! The socket of one connection: whole messages in, bytes and file descriptors out.
//!
//! The only file of this crate, with the listener, that does I/O. A message is read in two steps,
//! header then payload, never beyond its end, so that file descriptors are always those of the
//! message that is being read. Reading never blocks. Writing waits a bounded time: replies are a
//! few bytes, and a peer that does not read them for so long is taken for dead.
//!
//! To close an fd that came along can take as long as its sender likes: see
//! [`Connection::closed_by`].

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use ringway_foreign::{DeferredDrop, Untrusted, UntrustedFd};
use rustix::cmsg_space;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrAny, SocketAddrUnix,
    SocketFlags, SocketType, connect, recvmsg, send, sendmsg, socket_with,
};

use crate::codec::{self, HEADER_LEN, Header, HeaderError};
use crate::message::{Message, WhyMalformed};
use crate::socket_error::{FDS_MAX, SocketError};

/// Longest wait for a peer that does not read what it is sent.
const SEND_TIMEOUT: Duration = Duration::from_secs(2);

/// The kernel passes up to 253 fds at once; room for all, so that none is lost unnoticed.
const KERNEL_FDS_MAX: usize = 253;

/// The result of a read.
#[derive(Debug)]
pub enum Received {
    /// One whole request; it may be malformed, which the session answers.
    Request(Message),
    /// Not yet a whole message; wait until the socket is readable.
    Nothing,
    /// The peer has closed the connection, between two messages.
    Closed,
}

/// The result of a read of a message of either direction.
pub(crate) enum Raw {
    /// Header and payload, and the fds that came along, at most [`FDS_MAX`].
    Message(Vec<u8>, Vec<UntrustedFd>),
    Nothing,
    Closed,
}

/// A part of a stream, as it came.
#[derive(Debug)]
pub struct Piece {
    /// At least one, unless the stream has ended.
    pub bytes: Vec<u8>,
    /// The file descriptors that came with them.
    pub fds: Vec<UntrustedFd>,
    /// The kernel could not give all fds to this process.
    pub has_lost_fds: bool,
}

/// One connection, non-blocking.
#[derive(Debug)]
pub struct Connection {
    stream: Untrusted<UnixStream>,
    /// The bytes that have come of the message that is being read.
    bytes: Vec<u8>,
    fds: Vec<UntrustedFd>,
    /// The kernel could not give all fds of that message to this process.
    has_lost_fds: bool,
    /// The longest wait for a peer that does not read.
    send_timeout: Duration,
}

impl Connection {
    /// Takes over a connected stream, which becomes non-blocking.
    ///
    /// # Errors
    /// The mode cannot be set.
    pub fn new(stream: impl Into<Untrusted<UnixStream>>) -> Result<Self, SocketError> {
        let stream = stream.into();
        stream.set_nonblocking(true)?;
        let (bytes, fds) = (Vec::new(), Vec::new());
        Ok(Self { stream, bytes, fds, has_lost_fds: false, send_timeout: SEND_TIMEOUT })
    }

    /// Does not wait for a peer that does not read, for who has others to serve: the kernel holds
    /// many replies, so such a peer has not read for a long time.
    #[must_use]
    pub fn without_waiting(self) -> Self {
        Self { send_timeout: Duration::ZERO, ..self }
    }

    /// All fds that the peer sends go that way, and the connection itself: it may hold some that
    /// were not read.
    #[must_use]
    pub fn closed_by(mut self, closer: &DeferredDrop) -> Self {
        self.stream.go_to(closer);
        self
    }

    /// Connects to a listener. Waits neither for one to appear nor for one that is busy.
    ///
    /// # Errors
    /// No process listens there, or the path cannot be used; `WouldBlock`: too many other
    /// connections wait there.
    pub fn connect(path: &Path) -> Result<Self, SocketError> {
        let stream = connect_at_once(path).map_err(|errno| SocketError::Path {
            path: path.to_owned(),
            what: "connect",
            source: errno.into(),
            advice: "start the program that listens there, or name another path",
        })?;
        Self::new(UnixStream::from(stream))
    }

    /// Reads until one request is complete or nothing is left to read.
    ///
    /// # Errors
    /// The connection cannot go on.
    pub fn receive(&mut self) -> Result<Received, SocketError> {
        let (bytes, fds) = match self.receive_raw()? {
            Raw::Message(bytes, fds) => (bytes, fds),
            Raw::Nothing => return Ok(Received::Nothing),
            Raw::Closed => return Ok(Received::Closed),
        };
        let message = codec::decode(&bytes, fds)?;
        Ok(Received::Request(match std::mem::take(&mut self.has_lost_fds) {
            // Those that came may not be the first ones, and are closed.
            true => message.refused(WhyMalformed::LostFds),
            false => message,
        }))
    }

    /// Reads at most so many bytes, for who frames messages elsewhere. `None`: nothing is there.
    ///
    /// # Errors
    /// The connection cannot go on.
    pub fn receive_piece(&mut self, at_most: usize) -> Result<Option<Piece>, SocketError> {
        loop {
            return match self.read(at_most) {
                Ok(_) => Ok(Some(Piece {
                    bytes: std::mem::take(&mut self.bytes),
                    fds: std::mem::take(&mut self.fds),
                    has_lost_fds: std::mem::take(&mut self.has_lost_fds),
                })),
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => Ok(None),
                Err(Errno::CONNRESET) => {
                    Ok(Some(Piece { bytes: vec![], fds: vec![], has_lost_fds: false }))
                }
                Err(errno) => Err(errno.into()),
            };
        }
    }

    /// Whether that is the other end of this connection. A process that holds it never sees the
    /// connection end.
    pub fn is_reached_by(&self, fd: BorrowedFd<'_>) -> bool {
        let (ours, theirs) = (ends(self.stream.as_fd()), ends(fd));
        ours.is_some_and(|ours| ours.is_named() && theirs == Some(ours.seen_from_there()))
    }

    /// Whether the peer has closed its end, even if requests of it were not read yet.
    pub fn has_ended(&self) -> bool {
        let (ends, now) = (PollFlags::HUP | PollFlags::RDHUP, Timespec::default());
        let mut fds = [PollFd::new(&self.stream, ends)];
        poll(&mut fds, Some(&now)).is_ok() && fds[0].revents().intersects(ends)
    }

    /// Reads until one message is complete or nothing is left to read.
    pub(crate) fn receive_raw(&mut self) -> Result<Raw, SocketError> {
        // Each turn of the loop reads at least a byte of a message of bounded length.
        loop {
            let missing = self.missing()?;
            if missing == 0 {
                let bytes = std::mem::take(&mut self.bytes);
                let fds = std::mem::take(&mut self.fds);
                return Ok(Raw::Message(bytes, fds));
            }
            match self.read(missing) {
                Ok(0) if self.bytes.is_empty() => return Ok(Raw::Closed),
                Ok(0) => return Err(SocketError::Truncated),
                // Each piece may bring as many as the kernel lets through: the first one too many
                // ends it.
                Ok(_) if self.fds.len() > FDS_MAX => return Err(SocketError::TooManyFds),
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(Raw::Nothing),
                Err(Errno::CONNRESET) => return Ok(Raw::Closed),
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Bytes until the header, or then the message, is complete.
    fn missing(&self) -> Result<usize, HeaderError> {
        match self.bytes.first_chunk::<HEADER_LEN>() {
            None => Ok(HEADER_LEN - self.bytes.len()),
            Some(header) => {
                let payload_len = Header::parse(header)?.payload_len as usize;
                Ok(HEADER_LEN + payload_len - self.bytes.len())
            }
        }
    }

    fn read(&mut self, missing: usize) -> Result<usize, Errno> {
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(KERNEL_FDS_MAX))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let start = self.bytes.len();
        self.bytes.resize(start + missing, 0);
        let mut into = [io::IoSliceMut::new(&mut self.bytes[start..])];
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let received = recvmsg(self.stream.as_fd(), &mut into, &mut ancillary, flags);
        let count = received.as_ref().map_or(0, |received| received.bytes);
        self.bytes.truncate(start + count);
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = message {
                self.fds.extend(fds.map(|fd| self.stream.with(fd)));
            }
        }
        let received = received?;
        self.has_lost_fds |= received.flags.contains(ReturnFlags::CTRUNC);
        Ok(received.bytes)
    }

    /// Sends all of the bytes.
    ///
    /// # Errors
    /// The peer is gone or does not read.
    pub fn send(&mut self, bytes: &[u8]) -> Result<(), SocketError> {
        self.send_with_fds(bytes, &[])
    }

    /// Sends all of the bytes, and with them the fds (at most [`FDS_MAX`]).
    ///
    /// # Errors
    /// The peer is gone or does not read.
    ///
    /// # Panics
    /// More fds than that.
    pub fn send_with_fds(
        &mut self,
        bytes: &[u8],
        fds: &[BorrowedFd<'_>],
    ) -> Result<(), SocketError> {
        assert!(fds.len() <= FDS_MAX, "{} fds in one message", fds.len());
        let deadline = Instant::now() + self.send_timeout;
        let (mut left, mut fds) = (bytes, fds);
        while !left.is_empty() {
            match self.write(left, fds) {
                Ok(count) => {
                    left = left.get(count..).unwrap_or_default();
                    fds = &[];
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    if !wait_for(self.stream.as_fd(), PollFlags::OUT, deadline)? {
                        return Err(SocketError::Stuck);
                    }
                }
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    fn write(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<usize, Errno> {
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(FDS_MAX))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(fds)) {
            return Err(Errno::NOBUFS);
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        sendmsg(self.stream.as_fd(), &[io::IoSlice::new(bytes)], &mut ancillary, flags)
    }

    /// Waits until there is something to read. `false`: not before the deadline.
    ///
    /// # Errors
    /// The kernel refuses to wait.
    pub fn wait_readable(&self, deadline: Instant) -> Result<bool, SocketError> {
        Ok(wait_for(self.stream.as_fd(), PollFlags::IN, deadline)?)
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// Sends a request on the back-end's own channel, which belongs to a front-end that may not read
/// it: never waits.
///
/// # Errors
/// The front-end is gone or its socket is full.
pub fn send_on_channel(channel: impl AsFd, bytes: &[u8]) -> io::Result<()> {
    match send(channel, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)? {
        count if count == bytes.len() => Ok(()),
        _ => Err(io::ErrorKind::WriteZero.into()),
    }
}

/// The names of both ends of a connected Unix socket, as the kernel has them. They are only
/// compared: a front-end may choose any bytes for its own.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ends {
    pub own: SocketAddrAny,
    pub other: SocketAddrAny,
}

impl Ends {
    /// Two ends without names have nothing that tells them from others.
    fn is_named(&self) -> bool {
        let family_len = size_of::<rustix::net::RawAddressFamily>();
        [&self.own, &self.other].iter().any(|end| end.addr_len() as usize > family_len)
    }

    fn seen_from_there(self) -> Self {
        Self { own: self.other, other: self.own }
    }
}

/// `None`: it is no connected Unix socket. Asks the kernel only, whatever kind of file it is.
pub(crate) fn ends(fd: BorrowedFd<'_>) -> Option<Ends> {
    let own = rustix::net::getsockname(fd).ok()?;
    let other = rustix::net::getpeername(fd).ok().flatten()?;
    (own.address_family() == AddressFamily::UNIX).then_some(Ends { own, other })
}

/// Connects without waiting for a listener that is busy.
pub(crate) fn connect_at_once(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

fn wait_for(fd: BorrowedFd<'_>, what: PollFlags, deadline: Instant) -> Result<bool, Errno> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).map_err(|_| Errno::INVAL)?;
        match poll(&mut [PollFd::from_borrowed_fd(fd, what)], Some(&timeout)) {
            Ok(ready) => return Ok(ready > 0),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn pair() -> (UnixStream, Connection) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (ours, Connection::new(theirs).unwrap())
    }

    fn message(payload: &[u8]) -> Vec<u8> {
        let len = u32::try_from(payload.len()).unwrap();
        let mut bytes = Vec::new();
        for word in [2u32, 1, len] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(payload);
        bytes
    }

    #[test]
    fn a_message_that_comes_byte_by_byte_is_one_message() {
        let (mut ours, mut connection) = pair();
        let sent = message(&[7; 8]);
        for byte in &sent {
            assert!(matches!(connection.receive_raw().unwrap(), Raw::Nothing));
            ours.write_all(&[*byte]).unwrap();
        }
        let Raw::Message(bytes, fds) = connection.receive_raw().unwrap() else { panic!() };
        assert_eq!((bytes, fds.len()), (sent, 0));
    }

    #[test]
    fn fds_stay_with_their_message() {
        let (ours, mut connection) = pair();
        let mut ours = Connection::new(ours).unwrap();
        let file = tempfile::tempfile().unwrap();
        let (first, second) = (message(&[1; 8]), message(&[]));
        ours.send_with_fds(&first, &[file.as_fd(), file.as_fd()]).unwrap();
        ours.send_with_fds(&second, &[file.as_fd()]).unwrap();
        ours.send(&second).unwrap();
        for (expected, count) in [(&first, 2), (&second, 1), (&second, 0)] {
            let Raw::Message(bytes, fds) = connection.receive_raw().unwrap() else { panic!() };
            assert_eq!((&bytes, fds.len()), (expected, count));
            for fd in &fds {
                let flags = rustix::io::fcntl_getfd(fd).unwrap();
                assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
            }
        }
        assert!(matches!(connection.receive_raw().unwrap(), Raw::Nothing));
    }

    /// However many pieces it comes in.
    #[test]
    fn a_message_with_more_fds_than_any_has_ends_the_connection() {
        let (ours, mut connection) = pair();
        let mut ours = Connection::new(ours).unwrap();
        let file = tempfile::tempfile().unwrap();
        let fds = [file.as_fd(); FDS_MAX];
        let bytes = message(&[1; 8]);
        ours.send_with_fds(&bytes[..4], &fds).unwrap();
        assert!(matches!(connection.receive_raw().unwrap(), Raw::Nothing));
        ours.send_with_fds(&bytes[4..5], &fds[..1]).unwrap();
        ours.send_with_fds(&bytes[5..], &fds).unwrap();
        assert!(matches!(connection.receive_raw(), Err(SocketError::TooManyFds)));
        assert_eq!(connection.fds.len(), FDS_MAX + 1, "nothing more was read");
    }

    #[test]
    fn its_own_other_end_is_known_to_a_connection_and_to_a_listener() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("vm0.sock");
        let listener = crate::Listener::bind(&path).unwrap();
        let client = Connection::connect(&path).unwrap();
        let accepted = listener.accept().unwrap().unwrap();
        let waiting = Connection::connect(&path).unwrap();
        let (one, other) = UnixStream::pair().unwrap();
        let file = tempfile::tempfile().unwrap();
        let is_known =
            |fd: BorrowedFd<'_>| (accepted.is_reached_by(fd), listener.is_reached_by(fd));
        assert_eq!(is_known(client.as_fd()), (true, true));
        assert_eq!(is_known(waiting.as_fd()), (true, true));
        // As seen by the side that has connected.
        assert!(client.is_reached_by(accepted.as_fd()));
        for stranger in [accepted.as_fd(), listener.as_fd(), one.as_fd(), file.as_fd()] {
            assert_eq!(is_known(stranger), (false, false));
        }
        // A pair has no names: nothing tells it from others.
        assert!(!Connection::new(one).unwrap().is_reached_by(other.as_fd()));
    }

    #[test]
    fn closing_between_messages_is_not_an_error_but_within_one_is() {
        let (ours, mut connection) = pair();
        drop(ours);
        assert!(matches!(connection.receive_raw().unwrap(), Raw::Closed));
        let (mut ours, mut connection) = pair();
        ours.write_all(&message(&[1; 8])[..15]).unwrap();
        drop(ours);
        assert!(matches!(connection.receive(), Err(SocketError::Truncated)));
    }

    #[test]
    fn an_end_is_seen_before_what_was_sent_is_read() {
        let (mut ours, mut connection) = pair();
        assert!(!connection.has_ended());
        ours.write_all(&message(&[1; 8])).unwrap();
        assert!(!connection.has_ended());
        drop(ours);
        assert!(connection.has_ended());
        assert!(matches!(connection.receive_raw().unwrap(), Raw::Message(..)));
        assert!(matches!(connection.receive_raw().unwrap(), Raw::Closed));
    }

    #[test]
    fn a_header_that_cannot_be_right_ends_the_connection() {
        for (flags, len) in [(1u32, u32::MAX), (2, 0), (0, 0)] {
            let (mut ours, mut connection) = pair();
            for word in [1, flags, len] {
                ours.write_all(&word.to_le_bytes()).unwrap();
            }
            assert!(matches!(connection.receive(), Err(SocketError::Header(_))));
        }
    }

    #[test]
    fn a_peer_that_never_reads_is_given_up() {
        let (_ours, mut connection) = pair();
        let bytes = vec![0; 1 << 22];
        assert!(matches!(connection.send(&bytes), Err(SocketError::Stuck)));
        let (mut connection, start) = (connection.without_waiting(), Instant::now());
        assert!(matches!(connection.send(&bytes), Err(SocketError::Stuck)));
        assert!(start.elapsed() < SEND_TIMEOUT);
    }

    #[test]
    fn a_listener_that_does_not_accept_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("busy.sock");
        let flags = SocketFlags::CLOEXEC;
        let busy = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
        rustix::net::bind(&busy, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        rustix::net::listen(&busy, 0).unwrap();
        let _first = Connection::connect(&path).unwrap();
        let second = Connection::connect(&path);
        let Err(SocketError::Path { source, .. }) = second else { panic!("{second:?}") };
        assert_eq!(source.kind(), io::ErrorKind::WouldBlock);
    }
}
