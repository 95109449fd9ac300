//! The reports that the kernel has received of datagrams that did not arrive (ip(7), `IP_RECVERR`).

use std::mem;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd};

use ringway_nat::Problem;

use crate::nat::socket_name::{NAME_LEN, address};
use crate::os::system_calls::count_system_call;

/// Room for the report: its header, itself, and the address of who made it.
const CONTROL_WORDS: usize = 64;

/// The origins of a report.
const ORIGIN_LOCAL: u8 = 1;
const ORIGIN_ICMP: u8 = 2;
const ORIGIN_ICMP6: u8 = 3;

/// A datagram did not arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Report {
    /// The router or host that says so.
    pub(crate) from: Option<IpAddr>,
    pub(crate) problem: Problem,
    /// Where it was to go.
    pub(crate) to: Option<SocketAddr>,
}

/// Takes the oldest report; `None`: there is none. `Some(None)`: one of no interest.
#[expect(clippy::option_option, reason = "an end, and one that is stepped over")]
pub(crate) fn next(fd: BorrowedFd<'_>) -> Option<Option<Report>> {
    let mut name = [0u32; NAME_LEN / 4];
    let mut control = [0u64; CONTROL_WORDS];
    // SAFETY: all-zero bytes are a valid `msghdr`: no address, no data.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_name = name.as_mut_ptr().cast();
    message.msg_namelen = libc::socklen_t::try_from(size_of_val(&name)).unwrap_or(0);
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control) as _;
    count_system_call();
    let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
    // SAFETY: the kernel writes at most as many bytes as the two areas have, which are ours.
    let done = unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut message, flags) };
    if done < 0 {
        return None;
    }
    // SAFETY: the kernel has filled in control data of that length; the walk stays inside it.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(&raw const message);
        while !header.is_null() {
            let kind = ((*header).cmsg_level, (*header).cmsg_type);
            let is_report = kind == (libc::SOL_IP, libc::IP_RECVERR)
                || kind == (libc::SOL_IPV6, libc::IPV6_RECVERR);
            if is_report {
                let len = (*header).cmsg_len as usize - libc::CMSG_LEN(0) as usize;
                let bytes = std::slice::from_raw_parts(libc::CMSG_DATA(header), len);
                let to = address(name.map(u32::to_ne_bytes).as_flattened());
                return Some(parse(bytes).map(|report| Report { to, ..report }));
            }
            header = libc::CMSG_NXTHDR(&raw const message, header);
        }
    }
    Some(None)
}

/// `sock_extended_err`, and behind it the address of who made the report.
fn parse(bytes: &[u8]) -> Option<Report> {
    let errno = i32::from_ne_bytes(*bytes.first_chunk()?);
    let [origin, kind, code] = [*bytes.get(4)?, *bytes.get(5)?, *bytes.get(6)?];
    let mtu = u32::from_ne_bytes(*bytes.get(8..)?.first_chunk()?);
    let mtu = u16::try_from(mtu).unwrap_or(u16::MAX);
    let problem = match origin {
        // This host itself: it is longer than the path's MTU.
        ORIGIN_LOCAL if errno == libc::EMSGSIZE => Problem::TooBig(mtu),
        ORIGIN_ICMP => problem4(kind, code, mtu)?,
        ORIGIN_ICMP6 => problem6(kind, code, mtu)?,
        _ => return None,
    };
    Some(Report { from: offender(bytes.get(16..)?), problem, to: None })
}

fn offender(address: &[u8]) -> Option<IpAddr> {
    let family = i32::from(u16::from_ne_bytes(*address.first_chunk()?));
    match family {
        libc::AF_INET => Some(IpAddr::V4(Ipv4Addr::from(*address.get(4..)?.first_chunk::<4>()?))),
        libc::AF_INET6 => Some(IpAddr::V6(Ipv6Addr::from(*address.get(8..)?.first_chunk::<16>()?))),
        _ => None,
    }
}

/// RFC 792, RFC 1812 §5.2.7.
fn problem4(kind: u8, code: u8, mtu: u16) -> Option<Problem> {
    match (kind, code) {
        (3, 0 | 6 | 11) => Some(Problem::NetworkUnreachable),
        (3, 2 | 3) => Some(Problem::PortUnreachable),
        (3, 4) => Some(Problem::TooBig(mtu)),
        (3, 9 | 10 | 13) => Some(Problem::Prohibited),
        (3, _) => Some(Problem::HostUnreachable),
        (11, 0) => Some(Problem::HopsExceeded),
        _ => None,
    }
}

/// RFC 4443 §3.
fn problem6(kind: u8, code: u8, mtu: u16) -> Option<Problem> {
    match (kind, code) {
        (1, 0) => Some(Problem::NetworkUnreachable),
        (1, 1 | 5) => Some(Problem::Prohibited),
        (1, 4) => Some(Problem::PortUnreachable),
        (1, _) => Some(Problem::HostUnreachable),
        (2, _) => Some(Problem::TooBig(mtu)),
        (3, 0) => Some(Problem::HopsExceeded),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    use super::*;
    use crate::nat::calls::{SocketOption, set_option};

    #[test]
    fn a_closed_port_is_reported() {
        let closed = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        set_option(socket.as_fd(), SocketOption(libc::SOL_IP, libc::IP_RECVERR), 1).unwrap();
        socket.connect(closed).unwrap();
        socket.send(b"?").unwrap();
        let report = Report {
            from: Some([127, 0, 0, 1].into()),
            problem: Problem::PortUnreachable,
            to: Some(closed),
        };
        assert_eq!(next(socket.as_fd()), Some(Some(report)));
        assert_eq!(next(socket.as_fd()), None);
    }

    #[test]
    fn reports_that_are_cut_off_are_none() {
        for len in 0..24 {
            assert!(parse(&[2; 24][..len]).is_none_or(|report| report.from.is_none()), "{len}");
        }
    }
}
