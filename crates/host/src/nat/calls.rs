//! System calls of the router's sockets: those that take memory of guests, and options that have no
//! safe wrapper.

use std::io;
use std::mem;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::nat::connection_info::{ConnectionInfo, INFO_LEN};
use crate::nat::part::FramePart;
use crate::nat::socket_name::{NAME_LEN, address};
use crate::os::system_calls::count_system_call;
use crate::tap::ioctl::vector;

/// Pieces of one message; the kernel takes 1024.
const VECTORS_MAX: usize = 1000;

/// Room for the length of segments, and for the address that a datagram comes from.
const CONTROL_WORDS: usize = 10;

/// An option of a socket: its level, and its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SocketOption(pub libc::c_int, pub libc::c_int);

/// Several datagrams from one other end may come in one message (udp(7)).
pub(crate) const UDP_GRO: SocketOption = SocketOption(libc::SOL_UDP, libc::UDP_GRO);

/// Bytes of an option that is a number.
const NUMBER_LEN: libc::socklen_t = 4;
const _: () = assert!(size_of::<libc::c_int>() == NUMBER_LEN as usize);

/// Bytes of a Unix socket that are taken at once.
const READ_OVER_LEN: usize = 16 << 10;

/// Most bytes that are stepped over.
pub(crate) const SKIPPED_LEN_MAX: u32 = 256 << 10;

/// Where bytes go that are stepped over.
#[derive(Debug, Default)]
pub(crate) struct Skipped(Vec<u8>);

impl Skipped {
    /// `has_offsets`: it is not needed.
    pub(crate) fn new(has_offsets: bool) -> Self {
        Self(vec![0; if has_offsets { 0 } else { SKIPPED_LEN_MAX as usize }])
    }

    /// The first `len` of them; `None`: more than there can be.
    pub(crate) fn first(&mut self, len: u32) -> Option<&mut [u8]> {
        self.0.get_mut(..len as usize)
    }
}

/// Where a message lies, piece by piece.
#[derive(Debug)]
pub(crate) struct Vectors {
    pieces: Vec<libc::iovec>,
    skipped: Skipped,
    /// The rest of a datagram that did not fit into the pieces, and how much that was.
    overflow: Vec<u8>,
    overflow_len: usize,
    /// Where the datagram came from that was received last.
    pub(crate) from: Option<SocketAddr>,
    /// A message that was put together.
    pub(crate) gathered: Vec<u8>,
}

/// Longest datagram, in bytes.
const DATAGRAM_LEN_MAX: usize = 65_535;

// SAFETY: the addresses are used between `begin` and the system call that follows only, which is
// one call of one worker.
unsafe impl Send for Vectors {}

impl Vectors {
    pub(crate) fn new(skipped: Skipped) -> Self {
        let overflow = vec![0; DATAGRAM_LEN_MAX];
        let pieces = Vec::with_capacity(VECTORS_MAX);
        Self { pieces, skipped, overflow, overflow_len: 0, from: None, gathered: Vec::new() }
    }

    /// Begins a message anew, behind so many bytes that are of no interest. `None`: too many.
    pub(crate) fn begin_behind(&mut self, len: u32) -> Option<&mut Self> {
        self.pieces.clear();
        let skipped = self.skipped.first(len)?;
        if len > 0 {
            self.pieces.push(vector(skipped.as_mut_ptr(), skipped.len()));
        }
        Some(self)
    }

    /// Begins a message anew.
    pub(crate) fn begin(&mut self) -> &mut Self {
        self.pieces.clear();
        self
    }

    /// Adds private memory, which must stay until the call.
    #[cfg(test)]
    pub(crate) fn add_own(&mut self, bytes: &mut [u8]) -> &mut Self {
        if !bytes.is_empty() {
            self.pieces.push(vector(bytes.as_mut_ptr(), bytes.len()));
        }
        self
    }

    /// Adds a part of a frame, as far as it goes; says how many bytes.
    pub(crate) fn add(&mut self, part: FramePart<'_>) -> usize {
        let mut added = 0;
        for taken in part.slices().take(VECTORS_MAX.saturating_sub(self.pieces.len())) {
            self.pieces.push(vector(taken.as_ptr(), taken.len()));
            added += taken.len();
        }
        added
    }

    fn message(&mut self) -> libc::msghdr {
        // SAFETY: all-zero bytes are a valid `msghdr`: no address, no control data.
        let mut message: libc::msghdr = unsafe { mem::zeroed() };
        message.msg_iov = self.pieces.as_mut_ptr();
        message.msg_iovlen = self.pieces.len() as _;
        message
    }

    /// Sends the message without waiting; `segment_len`: as datagrams of so many bytes; `way`: to
    /// another place than where the socket is connected to.
    ///
    /// # Errors
    /// Nothing was sent.
    pub(crate) fn send(
        &mut self,
        fd: BorrowedFd<'_>,
        segment_len: Option<u16>,
        way: Option<Way<'_>>,
    ) -> io::Result<usize> {
        let mut message = self.message();
        let mut control = Control::default();
        if let Some(len) = segment_len {
            control.put((libc::SOL_UDP, libc::UDP_SEGMENT, &len.to_ne_bytes()));
        }
        if let Some(way) = way {
            message.msg_name = way.name.as_ptr().cast_mut().cast();
            message.msg_namelen = libc::socklen_t::try_from(way.name.len()).unwrap_or(0);
            if let Some(info) = way.info {
                control.put(info);
            }
        }
        if control.len > 0 {
            message.msg_control = control.bytes.as_mut_ptr().cast();
            message.msg_controllen = control.len as _;
        }
        count_system_call();
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: vectors point into memory that stays mapped until after this call; the kernel
        // only reads, these and the address and control data, which are borrowed or ours. Memory
        // that a front-end took away gives EFAULT.
        length(unsafe { libc::sendmsg(fd.as_raw_fd(), &raw const message, flags) })
    }

    /// Receives a datagram into the pieces, which hold so many bytes, without waiting; what does
    /// not fit is kept. Its whole length; and where the kernel has put several together
    /// (`UDP_GRO`), that of each but the last one, else 0.
    ///
    /// # Errors
    /// Nothing was received.
    pub(crate) fn receive_datagram(
        &mut self,
        fd: BorrowedFd<'_>,
        room: usize,
    ) -> io::Result<(usize, u16)> {
        let vector = vector(self.overflow.as_mut_ptr(), self.overflow.len());
        self.pieces.push(vector);
        let mut message = self.message();
        let mut control = Control::default();
        let mut name = [0u32; NAME_LEN / 4];
        message.msg_name = name.as_mut_ptr().cast();
        message.msg_namelen = libc::socklen_t::try_from(size_of_val(&name)).unwrap_or(0);
        message.msg_control = control.bytes.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control.bytes) as _;
        count_system_call();
        let flags = libc::MSG_DONTWAIT | libc::MSG_TRUNC;
        // SAFETY: vectors point into memory as in `receive`, the last one into ours, and the
        // address and the control data are ours.
        let received = length(unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut message, flags) })?;
        self.overflow_len = received.saturating_sub(room).min(self.overflow.len());
        self.from = address(name.map(u32::to_ne_bytes).as_flattened());
        let is_told = message.msg_controllen > 0;
        Ok((received, if is_told { control.segment_len() } else { 0 }))
    }

    /// Puts together the message that was received last: that part of the frame, and what did not
    /// fit, of which the part's length tells too.
    pub(crate) fn gather(&mut self, part: FramePart<'_>) {
        self.gathered.clear();
        FramePart { len: part.len - self.overflow_len, ..part }.copy_to(&mut self.gathered);
        self.gathered.extend(&self.overflow[..self.overflow_len]);
    }

    /// Receives into the pieces without waiting; a datagram's whole length, also of what did not
    /// fit.
    ///
    /// # Errors
    /// Nothing was received.
    pub(crate) fn receive(&mut self, fd: BorrowedFd<'_>, flags: libc::c_int) -> io::Result<usize> {
        let mut message = self.message();
        count_system_call();
        let flags = flags | libc::MSG_DONTWAIT;
        // SAFETY: vectors point into memory that stays mapped until after this call, and that is
        // written to by none but us and the guest that owns it.
        length(unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut message, flags) })
    }
}

/// Where a datagram goes to, a `sockaddr`, and what goes with it: from which address, if the kernel
/// is not to choose one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Way<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) info: Option<ControlData<'a>>,
}

/// Level, kind and value.
pub(crate) type ControlData<'a> = (libc::c_int, libc::c_int, &'a [u8]);

/// The control data that goes with a message beside its bytes (cmsg(3)).
#[derive(Debug, Default)]
struct Control {
    bytes: [u64; CONTROL_WORDS],
    len: usize,
}

impl Control {
    /// Adds one thing; the room is that of all that there can be.
    fn put(&mut self, (level, kind, value): ControlData<'_>) {
        let len = libc::c_uint::try_from(value.len()).unwrap_or(0);
        // SAFETY: only compute.
        let (space, len) = unsafe { (libc::CMSG_SPACE(len), libc::CMSG_LEN(len)) };
        let end = self.len + space as usize;
        assert!(end <= size_of_val(&self.bytes), "there is room for both kinds");
        // SAFETY: the place is inside `bytes`, as was just checked, and aligned like them: spaces
        // are whole words.
        unsafe {
            let header: *mut libc::cmsghdr =
                self.bytes.as_mut_ptr().cast::<u8>().add(self.len).cast();
            (*header).cmsg_level = level;
            (*header).cmsg_type = kind;
            (*header).cmsg_len = len as _;
            libc::CMSG_DATA(header).copy_from_nonoverlapping(value.as_ptr(), value.len());
        }
        self.len = end;
    }

    /// The length of each datagram, if the kernel has put several into one message; else 0.
    fn segment_len(&self) -> u16 {
        // It is the first one: sockets of flows are told of nothing else.
        let header: *const libc::cmsghdr = self.bytes.as_ptr().cast();
        // SAFETY: there is room for a header and a number; words are aligned like the header.
        let (kind, len) = unsafe {
            let len = libc::CMSG_DATA(header).cast::<libc::c_int>().read_unaligned();
            (SocketOption((*header).cmsg_level, (*header).cmsg_type), len)
        };
        if kind == UDP_GRO { u16::try_from(len).unwrap_or(0) } else { 0 }
    }
}

/// Takes bytes off the receive queue without looking at them.
///
/// # Errors
/// There are none.
pub(crate) fn discard(fd: BorrowedFd<'_>, len: usize) -> io::Result<usize> {
    count_system_call();
    let flags = libc::MSG_DONTWAIT | libc::MSG_TRUNC;
    // SAFETY: with MSG_TRUNC a stream's bytes are counted and not written anywhere (tcp(7)).
    length(unsafe { libc::recv(fd.as_raw_fd(), std::ptr::null_mut(), len, flags) })
}

/// Takes bytes off the receive queue of a Unix socket, where the kernel steps over none; how many.
pub(crate) fn read_over(fd: BorrowedFd<'_>, len: usize) -> usize {
    let (mut bytes, mut taken) = ([0; READ_OVER_LEN], 0);
    // Each turn takes a byte at least.
    while taken < len {
        let room = bytes.len().min(len - taken);
        count_system_call();
        match rustix::io::read(fd, &mut bytes[..room]) {
            Ok(0) | Err(_) => break,
            Ok(read) => taken += read,
        }
    }
    taken
}

/// Nothing that takes long to close comes by a Unix socket. Kernels before 6.16 take it along and
/// drop it.
pub(crate) fn refuse_fds(fd: BorrowedFd<'_>) {
    const PASS_RIGHTS: libc::c_int = 83;
    let _ = set_option(fd, SocketOption(libc::SOL_SOCKET, PASS_RIGHTS), 0);
}

fn length(len: isize) -> io::Result<usize> {
    usize::try_from(len).map_err(|_| io::Error::last_os_error())
}

/// Sets an option that is a number.
///
/// # Errors
/// The kernel does not take it.
pub(crate) fn set_option(
    fd: BorrowedFd<'_>,
    SocketOption(level, name): SocketOption,
    value: libc::c_int,
) -> io::Result<()> {
    count_system_call();
    // SAFETY: the kernel reads a number of this length.
    let done = unsafe {
        libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const value).cast(), NUMBER_LEN)
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// An option that is a number; `None`: the kernel does not have it.
pub(crate) fn option(
    fd: BorrowedFd<'_>,
    SocketOption(level, name): SocketOption,
) -> Option<libc::c_int> {
    let mut value: libc::c_int = 0;
    let mut len = NUMBER_LEN;
    count_system_call();
    // SAFETY: the kernel writes a number of at most this length.
    let done = unsafe {
        libc::getsockopt(fd.as_raw_fd(), level, name, (&raw mut value).cast(), &raw mut len)
    };
    (done == 0).then_some(value)
}

/// The kernel's knowledge of a connection; `None`: it does not say.
pub(crate) fn connection_info(fd: BorrowedFd<'_>) -> Option<ConnectionInfo> {
    let mut info = [0u8; INFO_LEN as usize];
    let mut len = INFO_LEN;
    count_system_call();
    // SAFETY: the kernel writes at most so many bytes.
    let done = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    (done == 0 && len == INFO_LEN).then_some(ConnectionInfo(info))
}

/// The window that the other end has told, in bytes; `None`: the kernel does not say.
pub(crate) fn send_window(fd: BorrowedFd<'_>) -> Option<u32> {
    connection_info(fd).map(|info| info.send_window())
}

/// Bytes in the send queue that the other end has not acknowledged.
pub(crate) fn queued(fd: BorrowedFd<'_>) -> u32 {
    let mut len: libc::c_int = 0;
    count_system_call();
    // SAFETY: the kernel writes one number.
    let done = unsafe { libc::ioctl(fd.as_raw_fd(), libc::TIOCOUTQ, &raw mut len) };
    if done == 0 { u32::try_from(len).unwrap_or(0) } else { 0 }
}

/// Whether the socket takes much more. If not, a poller that watches it is told when it does.
pub(crate) fn is_writable(fd: BorrowedFd<'_>) -> bool {
    const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
    count_system_call();
    let found = poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::OUT)], Some(&AT_ONCE));
    found.is_ok_and(|found| found > 0)
}
