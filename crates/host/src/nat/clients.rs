//! The clients that send datagrams to a socket that listens for a guest, and the way back to each:
//! from the address that the client used (ip(7), `IP_PKTINFO`; ipv6(7), `IPV6_PKTINFO`).

use std::io;
use std::mem;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use ringway_nat::Client;

use crate::nat::calls::{SocketOption, Way, set_option};
use crate::nat::socket_name::{NAME_LEN, address};
use crate::os::system_calls::count_system_call;

const NAME4_LEN: usize = 16;
/// Of `in_pktinfo` and `in6_pktinfo`.
const INFO4_LEN: usize = 12;
const INFO6_LEN: usize = 20;
/// Room for one of them and for the length of segments.
const CONTROL_WORDS: usize = 16;

/// A place, as the kernel reads it (`sockaddr`).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Name {
    bytes: [u8; NAME_LEN],
    len: usize,
    address: SocketAddr,
}

impl Name {
    pub(crate) fn of(address: SocketAddr) -> Self {
        let mut bytes = [0; NAME_LEN];
        bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
        let len = match address {
            SocketAddr::V4(it) => {
                bytes[..2].copy_from_slice(&family(libc::AF_INET));
                bytes[4..8].copy_from_slice(&it.ip().octets());
                NAME4_LEN
            }
            SocketAddr::V6(it) => {
                bytes[..2].copy_from_slice(&family(libc::AF_INET6));
                bytes[8..24].copy_from_slice(&it.ip().octets());
                bytes[24..28].copy_from_slice(&it.scope_id().to_ne_bytes());
                NAME_LEN
            }
        };
        Self { bytes, len, address }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// The way there, from whichever address the kernel takes.
    pub(crate) fn way(&self) -> Way<'_> {
        Way { name: self.bytes(), info: None }
    }
}

/// Where a datagram goes, and from which address.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WayBack {
    name: Name,
    info: [u8; INFO6_LEN],
    info_len: usize,
    bound: SocketAddr,
}

impl WayBack {
    /// Back to the client of a socket bound to `bound`.
    pub(crate) fn to(client: &Client, bound: SocketAddr) -> Self {
        let (info, info_len) = ([0; INFO6_LEN], INFO4_LEN);
        let mut way = Self { name: Name::of(client.from), info, info_len, bound };
        match (client.from, client.at.ip()) {
            (SocketAddr::V4(_), IpAddr::V4(at)) => way.info[4..8].copy_from_slice(&at.octets()),
            (to, at) => {
                way.info_len = INFO6_LEN;
                if let SocketAddr::V6(to) = to {
                    way.info[16..20].copy_from_slice(&to.scope_id().to_ne_bytes());
                }
                way.info[..16].copy_from_slice(&octets6(at));
            }
        }
        way
    }

    /// Where the socket listens.
    pub(crate) fn bound(&self) -> SocketAddr {
        self.bound
    }

    /// Whether it is the way to that client of a socket bound to `bound`.
    pub(crate) fn is_to(&self, client: SocketAddr, bound: SocketAddr) -> bool {
        let parts = |client: SocketAddr| (client.ip(), client.port());
        self.bound == bound && parts(self.name.address()) == parts(client)
    }

    /// Where it goes, and from which address.
    pub(crate) fn parts(&self) -> Way<'_> {
        let SocketOption(level, kind) = info_option(self.info_len == INFO4_LEN);
        let info = Some((level, kind, &self.info[..self.info_len]));
        Way { name: self.name.bytes(), info }
    }
}

fn family(family: libc::c_int) -> [u8; 2] {
    u16::try_from(family).unwrap_or(0).to_ne_bytes()
}

fn octets6(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

fn info_option(is_ipv4: bool) -> SocketOption {
    match is_ipv4 {
        true => SocketOption(libc::SOL_IP, libc::IP_PKTINFO),
        false => SocketOption(libc::SOL_IPV6, libc::IPV6_PKTINFO),
    }
}

/// Makes the kernel tell of each datagram to which address it was sent, and report those that do
/// not arrive.
///
/// # Errors
/// The kernel refuses.
pub fn tell_of_datagrams(fd: impl AsFd, is_ipv4: bool) -> io::Result<()> {
    let options = match is_ipv4 {
        true => [info_option(true), SocketOption(libc::SOL_IP, libc::IP_RECVERR)],
        false => [
            SocketOption(libc::SOL_IPV6, libc::IPV6_RECVPKTINFO),
            SocketOption(libc::SOL_IPV6, libc::IPV6_RECVERR),
        ],
    };
    options.into_iter().try_for_each(|option| set_option(fd.as_fd(), option, 1))
}

/// The client that has sent the datagram that comes next to a socket bound to `bound`; it stays.
/// `None`: there is none.
pub(crate) fn next(fd: BorrowedFd<'_>, bound: SocketAddr) -> Option<Client> {
    let mut name = [0u32; NAME_LEN / 4];
    let mut control = [0u64; CONTROL_WORDS];
    // SAFETY: all-zero bytes are a valid `msghdr`.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_name = name.as_mut_ptr().cast();
    message.msg_namelen = libc::socklen_t::try_from(size_of_val(&name)).unwrap_or(0);
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control) as _;
    let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
    let mut peek = || {
        count_system_call();
        // SAFETY: the kernel writes at most as many bytes as the two areas have, which are ours.
        unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut message, flags) }
    };
    // The error that the kernel has noted of a datagram to some client comes first, once.
    let is_there = peek() >= 0
        || io::Error::last_os_error().kind() != io::ErrorKind::WouldBlock && peek() >= 0;
    if !is_there {
        return None;
    }
    let from = address(name.map(u32::to_ne_bytes).as_flattened())?;
    let mut at = bound;
    // SAFETY: the kernel has filled in control data of that length; the walk stays inside it.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(&raw const message);
        while !header.is_null() {
            let len = (*header).cmsg_len as usize - libc::CMSG_LEN(0) as usize;
            let bytes = std::slice::from_raw_parts(libc::CMSG_DATA(header), len);
            if SocketOption((*header).cmsg_level, (*header).cmsg_type)
                == info_option(bound.is_ipv4())
            {
                at.set_ip(used(bytes, bound.is_ipv4()).unwrap_or(bound.ip()));
            }
            header = libc::CMSG_NXTHDR(&raw const message, header);
        }
    }
    Some(Client { from, at })
}

/// The host's address to which it came.
fn used(info: &[u8], is_ipv4: bool) -> Option<IpAddr> {
    match is_ipv4 {
        true => Some(Ipv4Addr::from(*info.get(4..)?.first_chunk::<4>()?).into()),
        false => Some(Ipv6Addr::from(*info.first_chunk::<16>()?).into()),
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;
    use crate::nat::calls::{Skipped, Vectors};

    #[test]
    fn answers_come_from_the_address_that_was_used() {
        for (everywhere, used) in [("0.0.0.0:0", "127.0.0.9"), ("[::]:0", "::1")] {
            let Ok(listener) = UdpSocket::bind(everywhere) else {
                println!("skipped {everywhere}: this machine has no such addresses");
                continue;
            };
            let bound = listener.local_addr().unwrap();
            tell_of_datagrams(&listener, bound.is_ipv4()).unwrap();
            let at = SocketAddr::new(used.parse().unwrap(), bound.port());
            let from = if bound.is_ipv4() { "127.0.0.1:0" } else { "[::1]:0" };
            let client = UdpSocket::bind(from).unwrap();
            client.connect(at).unwrap();
            client.send(b"").unwrap();
            let found = next(listener.as_fd(), bound).expect("a datagram");
            assert_eq!(found, Client { from: client.local_addr().unwrap(), at });
            assert_eq!(next(listener.as_fd(), bound), Some(found), "it stays");
            let mut vectors = Vectors::new(Skipped::new(true));
            let mut bytes = *b"back";
            vectors.begin().add_own(&mut bytes);
            let way = WayBack::to(&found, bound);
            assert!(way.is_to(found.from, bound) && !way.is_to(at, bound));
            vectors.send(listener.as_fd(), None, Some(way.parts())).unwrap();
            // A connected socket hears only the address that it is connected to.
            let mut got = [0; 9];
            assert_eq!(client.recv(&mut got).unwrap(), 4);
            assert_eq!(&got[..4], b"back");
        }
    }
}
