//! Descriptors of sockets for flows, and what the kernel's errors mean to them.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ringway_nat::{Failure, Problem, Protocol};
use rustix::io::Errno;
use rustix::net::sockopt::set_ipv6_v6only;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, ipproto, socket_with};

use crate::nat::calls::{SocketOption, UDP_GRO, set_option};

pub(crate) fn open(protocol: Protocol, is_ipv4: bool) -> Result<OwnedFd, Errno> {
    let family = if is_ipv4 { AddressFamily::INET } else { AddressFamily::INET6 };
    let (kind, number) = match protocol {
        Protocol::Tcp => (SocketType::STREAM, None),
        Protocol::Udp => (SocketType::DGRAM, None),
        Protocol::Echo if is_ipv4 => (SocketType::DGRAM, Some(ipproto::ICMP)),
        Protocol::Echo => (SocketType::DGRAM, Some(ipproto::ICMPV6)),
    };
    socket_with(family, kind, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC, number)
}

/// A socket for datagrams that is not connected, and has a port.
///
/// # Errors
/// There is none left.
pub(crate) fn unconnected(protocol: Protocol, is_ipv4: bool) -> Result<OwnedFd, Failure> {
    let fd = open(protocol, is_ipv4).map_err(failure)?;
    prepare_datagrams(fd.as_fd(), protocol, is_ipv4).map_err(|why| failure(errno(&why)))?;
    let any = match is_ipv4 {
        true => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        false => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    };
    if protocol == Protocol::Udp {
        if !is_ipv4 {
            // Otherwise it has the port of IPv4 with that number, too.
            set_ipv6_v6only(&fd, true).map_err(failure)?;
        }
        bind(&fd, &any).map_err(failure)?;
    }
    Ok(fd)
}

/// Datagrams may come together, and what becomes of those that do not arrive is heard.
pub(crate) fn prepare_datagrams(
    fd: BorrowedFd<'_>,
    protocol: Protocol,
    is_ipv4: bool,
) -> io::Result<()> {
    let is_heard = match is_ipv4 {
        true => SocketOption(libc::SOL_IP, libc::IP_RECVERR),
        false => SocketOption(libc::SOL_IPV6, libc::IPV6_RECVERR),
    };
    if protocol == Protocol::Udp {
        let _ = set_option(fd, UDP_GRO, 1);
    }
    set_option(fd, is_heard, 1)
}

pub(crate) fn errno(why: &io::Error) -> Errno {
    Errno::from_io_error(why).unwrap_or(Errno::IO)
}

/// The failure of a flow that an error of its socket stands for.
pub(crate) fn failure(why: Errno) -> Failure {
    match why {
        Errno::NETUNREACH => Failure::Unreachable(Problem::NetworkUnreachable),
        Errno::HOSTUNREACH => Failure::Unreachable(Problem::HostUnreachable),
        Errno::ACCESS | Errno::PERM => Failure::Unreachable(Problem::Prohibited),
        Errno::TIMEDOUT => Failure::TimedOut,
        Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM => Failure::NoRoom,
        // The last one of sockets for datagrams.
        Errno::ADDRNOTAVAIL | Errno::ADDRINUSE | Errno::AGAIN => Failure::NoPort,
        _ => Failure::Reset,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_of_ipv6_is_none_of_ipv4() {
        let Ok(fd) = unconnected(Protocol::Udp, false) else {
            return println!("skipped: this machine has no IPv6");
        };
        assert!(rustix::net::sockopt::ipv6_v6only(&fd).unwrap());
    }
}
