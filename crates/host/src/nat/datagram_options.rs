//! Options of a socket for datagrams, and how it is read under them.

use std::io;
use std::os::fd::AsFd;

use crate::nat::calls::{SocketOption, UDP_GRO, Vectors, option, set_option};
use crate::nat::socket::Socket;

impl Socket {
    /// Whether the kernel may put several datagrams together. One that cannot gives each alone.
    pub(crate) fn take_several(&self, are_taken: bool) {
        let _ = set_option(self.fd.as_fd(), UDP_GRO, are_taken.into());
    }

    /// As [`Vectors::receive_datagram`]. What was put together before it was said that datagrams
    /// come alone may still wait in the socket, and the kernel tells of it only where it may put
    /// them together.
    pub(crate) fn receive_datagram(
        &self,
        vectors: &mut Vectors,
        room: usize,
    ) -> io::Result<(usize, u16)> {
        if !self.fd.comes_alone() {
            return vectors.receive_datagram(self.fd.as_fd(), room);
        }
        self.take_several(true);
        let received = vectors.receive_datagram(self.fd.as_fd(), room);
        self.take_several(false);
        received
    }

    /// Says how datagrams go from now on.
    pub(crate) fn set_way(&self, hops: u8, is_whole_only: bool) {
        // Others use it too.
        if self.way.is_some() {
            return;
        }
        let fd = self.fd.as_fd();
        let [hops_option, mtu_option] = match self.is_ipv4 {
            true => [
                SocketOption(libc::SOL_IP, libc::IP_TTL),
                SocketOption(libc::SOL_IP, libc::IP_MTU_DISCOVER),
            ],
            false => [
                SocketOption(libc::SOL_IPV6, libc::IPV6_UNICAST_HOPS),
                SocketOption(libc::SOL_IPV6, libc::IPV6_MTU_DISCOVER),
            ],
        };
        // One that is not taken leaves the kernel's own way.
        if self.fd.changes_hops(hops) {
            let _ = set_option(fd, hops_option, libc::c_int::from(hops));
        }
        if self.fd.changes_whole_only(is_whole_only) {
            // The names of the two families stand for the same numbers.
            let how = if is_whole_only { libc::IP_PMTUDISC_DO } else { libc::IP_PMTUDISC_DONT };
            let _ = set_option(fd, mtu_option, how);
        }
    }

    /// Most bytes of a packet on its way, as far as the kernel knows.
    pub(crate) fn path_mtu(&self) -> u16 {
        let name = match self.is_ipv4 {
            true => SocketOption(libc::SOL_IP, libc::IP_MTU),
            false => SocketOption(libc::SOL_IPV6, libc::IPV6_MTU),
        };
        let mtu = option(self.fd.as_fd(), name).and_then(|mtu| u16::try_from(mtu).ok());
        mtu.unwrap_or(ringway_nat::MTU_MIN)
    }
}
