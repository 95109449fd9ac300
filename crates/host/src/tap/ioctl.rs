//! The system calls a tap needs that have no safe wrapper: interface ioctls, `readv`, `writev`.
//!
//! Each function makes one call and says what the kernel answered; decisions are in the folder's
//! other files.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};

use ringway_net::HEADER_LEN;
use ringway_virtq::SharedSlice;

use crate::os::system_calls::count_system_call;

/// Most pieces of a packet that one call can take: `IOV_MAX` without the header and the spill.
pub(crate) const PIECES_MAX: usize = 1024 - 2;

/// `TUNSETIFF`: attaches an open `/dev/net/tun` to the interface of that name.
pub(crate) fn attach(fd: BorrowedFd<'_>, name: &str, flags: libc::c_int) -> io::Result<String> {
    let mut request = interface_request(name);
    request.ifr_ifru.ifru_flags = low_half(flags);
    interface_call(fd, libc::TUNSETIFF, &mut request)?;
    Ok(name_of(&request))
}

/// `TUNGETIFF`: name and flags (`IFF_TAP`, `IFF_VNET_HDR`, …) of what the fd is attached to.
pub(crate) fn attached(fd: BorrowedFd<'_>) -> io::Result<(String, libc::c_int)> {
    let mut request = interface_request("");
    interface_call(fd, libc::TUNGETIFF, &mut request)?;
    // SAFETY: the kernel has filled in the flags; the request was zeroed before.
    let flags = unsafe { request.ifr_ifru.ifru_flags };
    Ok((name_of(&request), libc::c_int::from(flags.cast_unsigned())))
}

/// `TUNSETVNETHDRSZ`: bytes of the header in front of every packet.
pub(crate) fn set_header_len(fd: BorrowedFd<'_>, len: usize) -> io::Result<()> {
    set_int(fd, libc::TUNSETVNETHDRSZ, libc::c_int::try_from(len).unwrap_or(libc::c_int::MAX))
}

/// `TUNSETVNETLE`: fields of the header are little-endian on every machine.
pub(crate) fn set_header_little_endian(fd: BorrowedFd<'_>) -> io::Result<()> {
    set_int(fd, libc::TUNSETVNETLE, 1)
}

/// `TUNSETSNDBUF`: bytes on their way into the kernel before a write gives `EAGAIN`.
pub(crate) fn set_send_buffer_len(fd: BorrowedFd<'_>, len: libc::c_int) -> io::Result<()> {
    set_int(fd, libc::TUNSETSNDBUF, len)
}

/// `TUNSETCARRIER`: whether the interface has a cable.
pub(crate) fn set_carrier(fd: BorrowedFd<'_>, is_up: bool) -> io::Result<()> {
    set_int(fd, libc::TUNSETCARRIER, libc::c_int::from(is_up))
}

/// `TUNSETOFFLOAD`: which unfinished packets (`TUN_F_…`) the kernel may hand us.
pub(crate) fn set_offload(fd: BorrowedFd<'_>, flags: libc::c_uint) -> io::Result<()> {
    // SAFETY: this call takes its argument by value and touches no memory of ours.
    let done =
        unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETOFFLOAD, libc::c_ulong::from(flags)) };
    check(done)
}

/// `SIOCGIFFLAGS`: `IFF_UP` and others; an error if there is no such interface here.
pub(crate) fn interface_flags(socket: BorrowedFd<'_>, name: &str) -> io::Result<libc::c_int> {
    let mut request = interface_request(name);
    interface_call(socket, libc::SIOCGIFFLAGS, &mut request)?;
    // SAFETY: the kernel has filled in the flags; the request was zeroed before.
    Ok(libc::c_int::from(unsafe { request.ifr_ifru.ifru_flags }.cast_unsigned()))
}

/// `SIOCSIFFLAGS`
pub(crate) fn set_interface_flags(
    socket: BorrowedFd<'_>,
    name: &str,
    flags: libc::c_int,
) -> io::Result<()> {
    let mut request = interface_request(name);
    request.ifr_ifru.ifru_flags = low_half(flags);
    interface_call(socket, libc::SIOCSIFFLAGS, &mut request)
}

/// `SIOCGIFMTU`, in bytes.
pub(crate) fn interface_mtu(socket: BorrowedFd<'_>, name: &str) -> io::Result<u32> {
    let mut request = interface_request(name);
    interface_call(socket, libc::SIOCGIFMTU, &mut request)?;
    // SAFETY: the kernel has filled in the MTU; the request was zeroed before.
    Ok(u32::try_from(unsafe { request.ifr_ifru.ifru_mtu }).unwrap_or(u32::MAX))
}

/// `SIOCSIFMTU`, in bytes.
pub(crate) fn set_interface_mtu(socket: BorrowedFd<'_>, name: &str, mtu: u16) -> io::Result<()> {
    let mut request = interface_request(name);
    request.ifr_ifru.ifru_mtu = libc::c_int::from(mtu);
    interface_call(socket, libc::SIOCSIFMTU, &mut request)
}

/// `SIOCGIFHWADDR`: the MAC address; of the tap itself if `fd` is a tap, else of the named
/// interface in the namespace of the socket `fd`.
pub(crate) fn interface_address(fd: BorrowedFd<'_>, name: &str) -> io::Result<[u8; 6]> {
    let mut request = interface_request(name);
    interface_call(fd, libc::SIOCGIFHWADDR, &mut request)?;
    // SAFETY: the kernel has filled in the address; the request was zeroed before.
    let address = unsafe { request.ifr_ifru.ifru_hwaddr.sa_data };
    Ok(std::array::from_fn(|at| address[at].to_ne_bytes()[0]))
}

/// `ETHTOOL_GDRVINFO`: whether an interface is a tap; `None`: the kernel does not say.
pub(crate) fn is_tap(socket: BorrowedFd<'_>, name: &str) -> Option<bool> {
    const GET_DRIVER_INFO: u32 = 3;
    let mut info = DriverInfo { command: GET_DRIVER_INFO, ..DriverInfo::default() };
    let mut request = interface_request(name);
    request.ifr_ifru.ifru_data = (&raw mut info).cast();
    match interface_call(socket, libc::SIOCETHTOOL, &mut request) {
        Ok(()) => Some(info.driver.starts_with(b"tun\0") && info.bus.starts_with(b"tap\0")),
        // It has no driver, such as the loopback.
        Err(why) if why.raw_os_error() == Some(libc::EOPNOTSUPP) => Some(false),
        Err(_) => None,
    }
}

/// `struct ethtool_drvinfo`
#[repr(C)]
#[derive(Default)]
struct DriverInfo {
    command: u32,
    driver: [u8; 32],
    versions: [[u8; 32]; 2],
    bus: [u8; 32],
    others: [[u8; 32]; 2],
}
const _: () = assert!(mem::size_of::<DriverInfo>() == 196);

/// Copies of an fd, by number, that this process was started with.
pub(crate) fn duplicate(number: RawFd) -> io::Result<OwnedFd> {
    if number < 0 {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    // SAFETY: not -1, and borrowed for this one call only; a number that is not open gives EBADF.
    let inherited = unsafe { BorrowedFd::borrow_raw(number) };
    Ok(rustix::io::fcntl_dupfd_cloexec(inherited, 3)?)
}

/// Where one packet is read to or written from. Its memory is taken once.
#[derive(Debug)]
pub(crate) struct Vectors {
    list: Vec<libc::iovec>,
}

// SAFETY: the addresses in the list are used only inside the call that fills it in.
unsafe impl Send for Vectors {}

impl Vectors {
    pub(crate) fn new() -> Self {
        Self { list: Vec::with_capacity(PIECES_MAX + 2) }
    }

    /// Reads one packet into header, pieces and, what is longer than those, `spill`. `None`: there
    /// is no packet. At most [`PIECES_MAX`] pieces.
    pub(crate) fn read(
        &mut self,
        fd: BorrowedFd<'_>,
        header: &mut [u8; HEADER_LEN],
        pieces: &[SharedSlice],
        spill: SharedSlice,
    ) -> io::Result<Option<usize>> {
        assert!(pieces.len() <= PIECES_MAX, "{} pieces", pieces.len());
        self.list.clear();
        self.list.push(vector(header.as_mut_ptr(), header.len()));
        self.list.extend(pieces.iter().map(|piece| vector(piece.as_ptr(), piece.len())));
        self.list.push(vector(spill.as_ptr(), spill.len()));
        let count = libc::c_int::try_from(self.list.len()).unwrap_or(0);
        count_system_call();
        // SAFETY: the header is exclusively ours, and the slices are memory that may be written at
        // any time, mapped for as long as they are used. Memory that a front-end took away gives
        // EFAULT.
        let len = unsafe { libc::readv(fd.as_raw_fd(), self.list.as_ptr(), count) };
        self.list.clear();
        match usize::try_from(len) {
            Ok(len) => Ok(Some(len)),
            Err(_) => none_if_empty(io::Error::last_os_error()),
        }
    }

    /// Writes one packet. At most [`PIECES_MAX`] pieces.
    pub(crate) fn write(
        &mut self,
        fd: BorrowedFd<'_>,
        header: &[u8; HEADER_LEN],
        pieces: &[SharedSlice],
    ) -> io::Result<()> {
        assert!(pieces.len() <= PIECES_MAX, "{} pieces", pieces.len());
        self.list.clear();
        self.list.push(vector(header.as_ptr().cast_mut(), header.len()));
        self.list.extend(pieces.iter().map(|piece| vector(piece.as_ptr(), piece.len())));
        let count = libc::c_int::try_from(self.list.len()).unwrap_or(0);
        count_system_call();
        // SAFETY: the kernel only reads; the slices are mapped for as long as they are used, and
        // may change at any time. Memory that a front-end took away gives EFAULT.
        let len = unsafe { libc::writev(fd.as_raw_fd(), self.list.as_ptr(), count) };
        self.list.clear();
        if len < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

/// A call that was interrupted says nothing about what is there.
fn none_if_empty(error: io::Error) -> io::Result<Option<usize>> {
    match error.kind() {
        io::ErrorKind::WouldBlock => Ok(None),
        _ => Err(error),
    }
}

/// One piece of memory.
pub(crate) fn vector(start: *mut u8, len: usize) -> libc::iovec {
    libc::iovec { iov_base: start.cast(), iov_len: len }
}

/// `name` must be shorter than `IFNAMSIZ`; what is longer is cut off.
fn interface_request(name: &str) -> libc::ifreq {
    // SAFETY: all-zero bytes are a valid `ifreq`.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    for (to, from) in request.ifr_name[..libc::IFNAMSIZ - 1].iter_mut().zip(name.bytes()) {
        *to = libc::c_char::from_ne_bytes([from]);
    }
    request
}

fn name_of(request: &libc::ifreq) -> String {
    let bytes = request.ifr_name.iter().map(|byte| byte.to_ne_bytes()[0]);
    let bytes: Vec<u8> = bytes.take_while(|&byte| byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Interface flags are passed in 16 bits; all of ours fit.
#[allow(clippy::cast_possible_truncation)]
fn low_half(flags: libc::c_int) -> libc::c_short {
    flags as libc::c_short
}

fn interface_call(
    fd: BorrowedFd<'_>,
    call: libc::Ioctl,
    request: &mut libc::ifreq,
) -> io::Result<()> {
    // SAFETY: all callers pass calls that read and write exactly one `ifreq`, and what it points to
    // if anything: a value of theirs, as long as the kernel writes.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), call, request) })
}

fn set_int(fd: BorrowedFd<'_>, call: libc::Ioctl, value: libc::c_int) -> io::Result<()> {
    // SAFETY: all callers pass calls that read exactly one `int`.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), call, &value) })
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_empty_file_has_no_packet() {
        let none = |number| none_if_empty(io::Error::from_raw_os_error(number)).map_err(|_| number);
        assert_eq!(none(libc::EAGAIN), Ok(None));
        for number in [libc::EINTR, libc::EBADFD, libc::EFAULT] {
            assert_eq!(none(number), Err(number));
        }
    }
}
