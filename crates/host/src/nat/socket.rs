//! One socket of a flow: made, connected, written to, read from.
//!
//! A stream's data stays in its receive queue until the guest has it: it is peeked, from where the
//! last peek ended (`SO_PEEK_OFF`).

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use ringway_nat::{Client, Close, Emit, Failure, FlowId, Protocol, Read};
use ringway_net::Nanos;
use ringway_virtq::SharedSlice;
use rustix::io::Errno;
use rustix::net::{RecvFlags, connect, recv, shutdown, sockopt};

use crate::nat::calls::{SocketOption, Vectors, send_window, set_option};
use crate::nat::calls::{is_writable, option, queued, read_over, refuse_fds};
use crate::nat::clients::{Name, WayBack};
use crate::nat::listeners::Listener;
use crate::nat::opening::{errno, failure, open, prepare_datagrams, unconnected};
use crate::nat::part::FramePart;
use crate::nat::peek::{Ahead, PEEK_OFF, discard_all};
use crate::nat::queue_len::set_queue_len;
use crate::nat::resolvers::Question;
use crate::nat::shared_fd::SharedFd;

/// SYNs that are sent again: 63 seconds in all.
const SYN_COUNT: libc::c_int = 5;

/// Where the kernel says nothing about the other end's window, in bytes.
const WINDOW_UNKNOWN: u32 = 64 << 10;

/// A flow's socket.
#[derive(Debug)]
pub(crate) struct Socket {
    pub(crate) fd: Arc<SharedFd>,
    pub(crate) flow: FlowId,
    pub(crate) protocol: Protocol,
    pub(crate) is_ipv4: bool,
    /// Its other end is a process of this machine, on a Unix socket.
    is_local: bool,
    pub(crate) is_connecting: bool,
    /// It took less than it was given: the kernel says when it takes more.
    pub(crate) is_blocked: bool,
    /// Where the kernel peeks next; `None`: it always does at the front.
    peek_at: Option<u32>,
    /// Bytes at the front of its receive queue that the guest has acknowledged.
    acknowledged: u32,
    /// A read ended at an urgent byte, and goes on when what is in front of it is taken off.
    is_cut: bool,
    /// Where its datagrams go, if others listen on the same socket.
    pub(crate) way: Option<WayBack>,
    /// Where its datagrams go, if the socket is not connected; and when it was asked last whether
    /// that is this machine itself.
    pub(crate) to: Option<Name>,
    pub(crate) asked_own: Nanos,
    /// The number of its guest's port outside, if it has that in common with others.
    pub(crate) port: Option<usize>,
    /// Others were there before it: how much may wait there is said already.
    joins: bool,
    /// The other end is a resolver.
    pub(crate) question: Option<Question>,
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Socket {
    /// A socket that connects to that address; of a stream it is told later that it has.
    ///
    /// # Errors
    /// It cannot go there.
    pub(crate) fn open(flow: FlowId, protocol: Protocol, to: SocketAddr) -> Result<Self, Failure> {
        let fd = Arc::new(SharedFd::from(open(protocol, to.is_ipv4()).map_err(failure)?));
        let mut socket = Self {
            is_connecting: protocol == Protocol::Tcp,
            ..Self::new(fd, flow, protocol, to.is_ipv4())
        };
        socket.prepare().map_err(|why| failure(errno(&why)))?;
        socket.connect(to)?;
        Ok(socket)
    }

    /// A socket for datagrams to that address, from whichever address the host has.
    ///
    /// # Errors
    /// There is none left.
    pub(crate) fn unconnected(
        flow: FlowId,
        protocol: Protocol,
        to: SocketAddr,
    ) -> Result<Self, Failure> {
        let fd = Arc::new(SharedFd::from(unconnected(protocol, to.is_ipv4())?));
        Ok(Self { to: Some(Name::of(to)), ..Self::new(fd, flow, protocol, to.is_ipv4()) })
    }

    /// A flow that goes through its guest's port outside.
    pub(crate) fn by_port(
        flow: FlowId,
        fd: &Arc<SharedFd>,
        number: usize,
        to: SocketAddr,
        is_first: bool,
    ) -> Self {
        let socket = Self::new(Arc::clone(fd), flow, Protocol::Udp, to.is_ipv4());
        Self { to: Some(Name::of(to)), port: Some(number), joins: !is_first, ..socket }
    }

    /// Whether its datagrams go there, by a socket that is not connected.
    pub(crate) fn goes_to(&self, place: SocketAddr) -> bool {
        let parts = |it: SocketAddr| (it.ip().to_canonical(), it.port());
        let to = self.to.as_ref().map(Name::address);
        to.is_some_and(|to| parts(to) == parts(place))
    }

    /// A socket that was accepted, before its flow has a name.
    ///
    /// # Errors
    /// The operating system refuses something.
    pub(crate) fn accepted(fd: OwnedFd, is_local: bool) -> io::Result<Self> {
        let flow = FlowId::from_u64(u64::MAX);
        let fd = Arc::new(SharedFd::from(fd));
        let mut socket = Self { is_local, ..Self::new(fd, flow, Protocol::Tcp, true) };
        socket.prepare()?;
        Ok(socket)
    }

    /// A client of a socket that listens for datagrams.
    ///
    /// # Errors
    /// No file descriptor is left.
    pub(crate) fn of_client(
        flow: FlowId,
        listener: &Listener,
        client: &Client,
    ) -> io::Result<Self> {
        let bound = listener.forward.at.address().ok_or(Errno::OPNOTSUPP)?;
        let fd = Arc::new(SharedFd::from(listener.fd.try_clone()?));
        let socket = Self::new(fd, flow, Protocol::Udp, client.from.is_ipv4());
        Ok(Self { way: Some(WayBack::to(client, bound)), ..socket })
    }

    fn new(fd: Arc<SharedFd>, flow: FlowId, protocol: Protocol, is_ipv4: bool) -> Self {
        Self {
            fd,
            flow,
            protocol,
            is_ipv4,
            is_local: false,
            is_connecting: false,
            is_blocked: false,
            peek_at: None,
            acknowledged: 0,
            is_cut: false,
            way: None,
            to: None,
            asked_own: Nanos(0),
            port: None,
            joins: false,
            question: None,
        }
    }

    fn prepare(&mut self) -> io::Result<()> {
        let fd = self.fd.as_fd();
        if self.protocol == Protocol::Tcp {
            if self.is_local {
                refuse_fds(fd);
            } else {
                set_option(fd, SocketOption(libc::IPPROTO_TCP, libc::TCP_NODELAY), 1)?;
                set_option(fd, SocketOption(libc::IPPROTO_TCP, libc::TCP_SYNCNT), SYN_COUNT)?;
                // Where this process ends, the other end must not take half of a stream for all.
                sockopt::set_socket_linger(fd, Some(Duration::ZERO))?;
            }
            // Otherwise an urgent byte is left out, and what is behind it is read elsewhere.
            let _ = set_option(fd, SocketOption(libc::SOL_SOCKET, libc::SO_OOBINLINE), 1);
            self.peek_at = set_option(fd, PEEK_OFF, 0).ok().map(|()| 0);
            return Ok(());
        }
        prepare_datagrams(fd, self.protocol, self.is_ipv4)
    }

    fn connect(&self, to: SocketAddr) -> Result<(), Failure> {
        match connect(&self.fd, &to) {
            Ok(()) | Err(Errno::INPROGRESS) => Ok(()),
            Err(why) => Err(failure(why)),
        }
    }

    /// Why it failed, if it did.
    pub(crate) fn take_error(&self) -> Option<Failure> {
        let number = option(self.fd.as_fd(), SocketOption(libc::SOL_SOCKET, libc::SO_ERROR))?;
        (number != 0).then(|| failure(Errno::from_raw_os_error(number)))
    }

    /// How much a stream takes: what the other end does, as far as it fits into the send buffer.
    pub(crate) fn room(&mut self) -> u32 {
        let fd = self.fd.as_fd();
        let window = match self.is_local {
            true => u32::MAX,
            false => send_window(fd).unwrap_or(WINDOW_UNKNOWN),
        };
        let buffer = option(fd, SocketOption(libc::SOL_SOCKET, libc::SO_SNDBUF)).unwrap_or(0);
        let buffer = u32::try_from(buffer).unwrap_or(0) / 4 * 3;
        let free = buffer.saturating_sub(queued(fd));
        if free < window && free < buffer / 2 {
            // The kernel tells of room, and makes the buffer larger, only where it was asked while
            // there was none.
            self.is_blocked |= !is_writable(fd);
        }
        window.min(free)
    }

    /// Sends what lies in `vectors`; how many bytes were taken.
    ///
    /// # Errors
    /// The stream is of no more use.
    pub(crate) fn send(&mut self, vectors: &mut Vectors, len: u32) -> Result<u32, Failure> {
        match vectors.send(self.fd.as_fd(), None, None) {
            Ok(taken) => {
                let taken = u32::try_from(taken).unwrap_or(len);
                self.is_blocked |= taken < len;
                Ok(taken)
            }
            Err(why) if is_later(&why) => {
                self.is_blocked = true;
                Ok(0)
            }
            Err(why) => Err(failure(errno(&why))),
        }
    }

    /// The kernel holds at most so many bytes, of a stream in each direction. Without a limit it
    /// grows the buffers of a stream as the other end is fast.
    pub(crate) fn limit_buffers(&self, len_max: Option<u32>) {
        if self.joins {
            return;
        }
        let len = match (self.protocol, len_max) {
            (Protocol::Tcp, Some(len)) => libc::c_int::try_from(len).unwrap_or(libc::c_int::MAX),
            (Protocol::Udp, len_max) => return set_queue_len(self.fd.as_fd(), len_max),
            _ => return,
        };
        for name in [libc::SO_RCVBUF, libc::SO_SNDBUF] {
            // One that is not taken leaves the kernel's own limit.
            let _ = set_option(self.fd.as_fd(), SocketOption(libc::SOL_SOCKET, name), len);
        }
    }

    /// Reads for a frame into the pieces behind its head.
    ///
    /// # Errors
    /// The socket is of no more use, or has an error to be looked at.
    pub(crate) fn read(
        &mut self,
        emit: &mut Emit,
        pieces: &[SharedSlice],
        vectors: &mut Vectors,
    ) -> Result<Read, Failure> {
        let Some(source) = emit.source else { return Ok(Read::Bytes(0)) };
        let part = FramePart { pieces, skip: emit.head().len(), len: source.len_max as usize };
        if let Some(at) = source.peek_at {
            return self.peek(vectors, at, part);
        }
        let room = vectors.begin().add(part);
        match self.receive_datagram(vectors, room) {
            Ok((received, segment_len)) => {
                let read = u32::try_from(received).unwrap_or(u32::MAX);
                emit.are_several(segment_len);
                // A resolver's answer is looked at first.
                let is_plain = self.question.is_none() && !emit.must_be_cut(read);
                if received <= room && is_plain {
                    return Ok(Read::Bytes(read));
                }
                vectors.gather(FramePart { len: received, ..part });
                Ok(Read::TooLong)
            }
            Err(why) if is_later(&why) => Ok(Read::Empty),
            Err(why) => Err(failure(errno(&why))),
        }
    }

    /// Peeks at a stream from that offset on, into that part of some pieces.
    ///
    /// # Errors
    /// The socket is of no more use.
    pub(crate) fn peek(
        &mut self,
        vectors: &mut Vectors,
        at: u32,
        part: FramePart<'_>,
    ) -> Result<Read, Failure> {
        let at = at.saturating_add(self.acknowledged);
        self.peek_from(at)?;
        let stepped_over = if self.peek_at.is_some() { 0 } else { at };
        let asks = stepped_over > 0;
        let ahead = if asks { Ahead::of(self.fd.as_fd()) } else { Ahead::default() };
        let Some(vectors) = vectors.begin_behind(stepped_over) else { return Ok(Read::Empty) };
        vectors.add(part);
        let received = match vectors.receive(self.fd.as_fd(), libc::MSG_PEEK) {
            Ok(0) => return Ok(Read::End),
            Ok(received) => u32::try_from(received).unwrap_or(u32::MAX),
            Err(why) if is_later(&why) => return Ok(Read::Empty),
            Err(why) => return Err(failure(errno(&why))),
        };
        let received = received.saturating_sub(stepped_over);
        self.is_cut = received == 0 && ahead.has_urgent;
        if received == 0 {
            let is_end = ahead.has_ended && !ahead.has_urgent;
            return Ok(if is_end { Read::End } else { Read::Empty });
        }
        self.peek_at = self.peek_at.map(|at| at.wrapping_add(received));
        Ok(Read::Bytes(received))
    }

    /// As on a kernel that peeks at the front only.
    #[cfg(test)]
    pub(crate) fn forget_offsets(&mut self) {
        if self.peek_at.take().is_some() {
            set_option(self.fd.as_fd(), PEEK_OFF, -1).expect("the kernel has them");
        }
    }

    fn peek_from(&mut self, at: u32) -> Result<(), Failure> {
        if self.peek_at.is_some_and(|known| known != at) {
            let offset = libc::c_int::try_from(at).unwrap_or(libc::c_int::MAX);
            set_option(self.fd.as_fd(), PEEK_OFF, offset).map_err(|why| failure(errno(&why)))?;
            self.peek_at = Some(at);
        }
        Ok(())
    }

    /// The guest has so many bytes more: they may leave the receive queue, which takes a while, in
    /// which the kernel lets the other end send. `true`: they are to be taken off soon.
    pub(crate) fn acknowledge(&mut self, len: u32) -> bool {
        let is_first = self.acknowledged == 0;
        self.acknowledged = self.acknowledged.saturating_add(len);
        // The part that is stepped over has to be short where the kernel peeks at the front only.
        if self.peek_at.is_none() {
            self.take_off();
        }
        is_first && self.acknowledged > 0
    }

    /// Whether there is more to read now that something was taken off.
    pub(crate) fn takes_cut(&mut self) -> bool {
        std::mem::take(&mut self.is_cut)
    }

    /// Takes off the receive queue what the guest has.
    pub(crate) fn take_off(&mut self) {
        let len = std::mem::take(&mut self.acknowledged);
        if len == 0 {
            return;
        }
        // The kernel moves the place where it peeks by as many.
        let taken = match self.is_local {
            true => read_over(self.fd.as_fd(), len as usize),
            false => discard_all(self.fd.as_fd(), len as usize),
        };
        let taken = u32::try_from(taken).unwrap_or(0);
        self.peek_at = self.peek_at.map(|at| at.saturating_sub(taken));
    }

    /// Whether the other end has hung up, and there is nothing to read.
    pub(crate) fn has_hung_up(&mut self) -> bool {
        // Behind what was peeked before there may be the end, and in front of that data.
        if self.peek_from(self.acknowledged).is_err() {
            return false;
        }
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let Ok((_, len)) = recv(&self.fd, &mut [0; 1], flags) else { return false };
        // The kernel has moved the place where it peeks.
        self.peek_at = self.peek_at.map(|at| at.wrapping_add(u32::from(len > 0)));
        len == 0
    }

    pub(crate) fn shut_down(&self) {
        // Where the other end has gone meanwhile, the socket says so itself.
        let _ = shutdown(&self.fd, rustix::net::Shutdown::Write);
    }

    pub(crate) fn close(mut self, how: Close) {
        // Bytes that are left in the receive queue would make it a reset.
        self.take_off();
        if how == Close::Gracefully && self.protocol == Protocol::Tcp && !self.is_local {
            let _ = sockopt::set_socket_linger(&self.fd, None);
        }
    }
}

fn is_later(why: &io::Error) -> bool {
    matches!(errno(why), Errno::AGAIN | Errno::INTR)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Read as _;
    use std::net::{TcpListener, TcpStream, UdpSocket};

    use super::*;

    #[test]
    fn what_the_kernel_holds_of_a_connection_is_limited_both_ways() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut socket = Socket::accepted(near.into(), false).unwrap();
        assert!(socket.room() > 16 << 10);
        socket.limit_buffers(Some(4 << 10));
        for name in [libc::SO_RCVBUF, libc::SO_SNDBUF] {
            let len = option(socket.as_fd(), SocketOption(libc::SOL_SOCKET, name)).unwrap();
            assert!(len <= 8 << 10, "{len}: the kernel doubles it for its own use");
        }
        assert!(socket.room() <= 6 << 10, "the window offered follows");
    }

    #[test]
    fn a_stream_ends_for_the_other_end_only_where_it_was_closed_in_order() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        let ended = |end: fn(Socket)| {
            let opened = Socket::open(FlowId::from_u64(0), Protocol::Tcp, to).unwrap();
            let (mut far, _) = listener.accept().unwrap();
            let near = TcpStream::connect(to).unwrap();
            let accepted = Socket::accepted(listener.accept().unwrap().0.into(), false).unwrap();
            end(opened);
            end(accepted);
            [far.read(&mut [0; 1]), { near }.read(&mut [0; 1])]
        };
        let in_order = ended(|socket| socket.close(Close::Gracefully));
        assert!(in_order.iter().all(|read| matches!(read, Ok(0))), "{in_order:?}");
        // As the kernel closes it for a process that ends.
        for end in [drop::<Socket> as fn(Socket), |socket| socket.close(Close::Reset)] {
            let kinds = ended(end).map(|read| read.map_err(|why| why.kind()));
            assert_eq!(kinds, [Err(io::ErrorKind::ConnectionReset); 2]);
        }
    }

    #[test]
    fn a_socket_for_datagrams_holds_a_burst_and_less_of_a_guest_with_many_flows() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let to = server.local_addr().unwrap();
        let socket = Socket::open(FlowId::from_u64(0), Protocol::Udp, to).unwrap();
        let len =
            || option(socket.as_fd(), SocketOption(libc::SOL_SOCKET, libc::SO_RCVBUF)).unwrap();
        let most: i32 =
            fs::read_to_string("/proc/sys/net/core/rmem_max").unwrap().trim().parse().unwrap();
        socket.limit_buffers(None);
        assert_eq!(len(), 2 * most.min(512 << 10), "the kernel doubles it for its own use");
        socket.limit_buffers(Some(64 << 10));
        assert_eq!(len(), 2 * (64 << 10));
    }
}
