//! The host's end of a tap's cable: a packet socket on the interface, and frames to send.

use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::wait_readable;

/// An EtherType that no protocol of the kernel reacts to (local experiments).
pub const QUIET: u16 = 0x88b5;
/// IPv4.
pub const IPV4: u16 = 0x0800;

/// Bytes of Ethernet, IPv4 and TCP headers.
pub const TCP_HEADERS_LEN: usize = 14 + 20 + 20;

/// A packet socket: what it sends comes out of the tap, what is put into the tap it receives.
pub struct Wire {
    fd: OwnedFd,
}

impl Wire {
    /// On the interface of that name, in the network of this thread; receives one EtherType.
    pub fn new(interface: &str, ether_type: u16) -> Self {
        let protocol = ether_type.to_be();
        // SAFETY: a plain call; what it returns is checked and has no other owner.
        let fd = unsafe {
            let raw = libc::socket(libc::AF_PACKET, libc::SOCK_RAW, i32::from(protocol));
            assert!(raw >= 0, "packet socket: {}", std::io::Error::last_os_error());
            OwnedFd::from_raw_fd(raw)
        };
        // SAFETY: all-zero bytes are a valid address.
        let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = protocol;
        address.sll_ifindex = interface_index(interface) as i32;
        let len = mem::size_of_val(&address) as libc::socklen_t;
        // SAFETY: address and length belong together.
        let bound = unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), len) };
        assert_eq!(bound, 0, "bind: {}", std::io::Error::last_os_error());
        Self { fd }
    }

    /// From now on every frame sent has a 10-byte header in front.
    pub fn send_with_header(&self) {
        let (level, name, on) = (libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1i32);
        let len = mem::size_of_val(&on) as libc::socklen_t;
        // SAFETY: value and length belong together.
        let set = unsafe {
            libc::setsockopt(self.fd.as_raw_fd(), level, name, (&raw const on).cast(), len)
        };
        assert_eq!(set, 0, "PACKET_VNET_HDR: {}", std::io::Error::last_os_error());
    }

    pub fn send(&self, bytes: &[u8]) {
        assert_eq!(rustix::io::write(&self.fd, bytes), Ok(bytes.len()));
    }

    pub fn receive(&self) -> Vec<u8> {
        wait_readable(&self.fd);
        let mut bytes = vec![0; 1 << 17];
        let len = rustix::io::read(&self.fd, &mut bytes).expect("read");
        bytes.truncate(len);
        bytes
    }
}

impl AsFd for Wire {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// 0: there is no such interface.
pub fn interface_index(name: &str) -> u32 {
    let name = std::ffi::CString::new(name).expect("a name");
    // SAFETY: a C string.
    unsafe { libc::if_nametoindex(name.as_ptr()) }
}

/// Makes an interface ioctl, and gives the request that it has read or written.
pub fn interface_call(
    call: libc::Ioctl,
    interface: &str,
    change: impl Fn(&mut libc::ifreq),
) -> libc::ifreq {
    let socket = std::os::unix::net::UnixDatagram::unbound().expect("socket");
    try_ioctl(socket.as_fd(), call, interface, change).expect("ioctl")
}

pub fn try_ioctl(
    fd: BorrowedFd<'_>,
    call: libc::Ioctl,
    interface: &str,
    change: impl Fn(&mut libc::ifreq),
) -> std::io::Result<libc::ifreq> {
    // SAFETY: all-zero bytes are a valid `ifreq`.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(interface.bytes()) {
        *to = from as libc::c_char;
    }
    change(&mut request);
    // SAFETY: all callers pass calls that take an `ifreq`.
    match unsafe { libc::ioctl(fd.as_raw_fd(), call, &mut request) } {
        0 => Ok(request),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Brings an interface up or down.
pub fn set_up(interface: &str, is_up: bool) {
    let flags = if is_up { libc::IFF_UP as i16 } else { 0 };
    interface_call(libc::SIOCSIFFLAGS, interface, |request| request.ifr_ifru.ifru_flags = flags);
}

pub fn set_mtu(interface: &str, mtu: i32) {
    interface_call(libc::SIOCSIFMTU, interface, |request| request.ifr_ifru.ifru_mtu = mtu);
}

/// Whether an interface has a cable (`ETHTOOL_GLINK`).
pub fn has_link(interface: &str) -> bool {
    #[repr(C)]
    struct Value {
        command: u32,
        data: u32,
    }
    let value = std::cell::UnsafeCell::new(Value { command: 0xa, data: 7 });
    interface_call(libc::SIOCETHTOOL as libc::Ioctl, interface, |request| {
        request.ifr_ifru.ifru_data = value.get().cast();
    });
    value.into_inner().data == 1
}

/// An open tap that is not wrapped, as a program that passes one has it.
pub fn raw_tap(name: &str, flags: i32) -> OwnedFd {
    let open = rustix::fs::OFlags::RDWR;
    let fd = rustix::fs::open("/dev/net/tun", open, rustix::fs::Mode::empty()).expect("open");
    let attach = |request: &mut libc::ifreq| request.ifr_ifru.ifru_flags = flags as i16;
    try_ioctl(fd.as_fd(), libc::TUNSETIFF, name, attach).expect("TUNSETIFF");
    fd
}

/// Creates a tap of user 0 that stays, as `ip tuntap add` does. Others may open one that has no
/// owner.
pub fn create_persistent(name: &str, flags: i32) {
    let fd = raw_tap(name, flags);
    for (request, value) in [(libc::TUNSETOWNER, 0), (libc::TUNSETPERSIST, 1)] {
        // SAFETY: both calls take their argument by value.
        assert_eq!(unsafe { libc::ioctl(fd.as_raw_fd(), request, value) }, 0);
    }
}

/// A frame of `len` bytes, different for every seed, that goes to no known station.
pub fn frame(len: usize, seed: u8) -> Vec<u8> {
    let mut frame = vec![0xff; 6];
    frame.extend([2, 0, 0, 0, 0, seed]);
    frame.extend(QUIET.to_be_bytes());
    frame.extend((frame.len()..len).map(|at| (at as u8).wrapping_mul(31) ^ seed));
    frame
}

/// A TCP segment over IPv4 with `payload_len` bytes; its checksum is still to be completed.
pub fn tcp_frame(payload_len: usize) -> Vec<u8> {
    let mut frame = frame(TCP_HEADERS_LEN + payload_len, 9);
    frame[12..14].copy_from_slice(&IPV4.to_be_bytes());
    let ip = &mut frame[14..34];
    let total_len = (40 + payload_len) as u16;
    ip.copy_from_slice(&[0x45, 0, 0, 0, 0, 1, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    ip[2..4].copy_from_slice(&total_len.to_be_bytes());
    let sum: u32 = ip.chunks(2).map(|two| u32::from(u16::from_be_bytes([two[0], two[1]]))).sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    frame[34..54].copy_from_slice(&[
        0x10, 0, 0x20, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 0xff, 0xff, 0, 0, 0, 0,
    ]);
    frame
}
