//! Places as the kernel writes them (`sockaddr`).

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// Bytes of the longer one of both kinds of addresses, `sockaddr_in6`.
pub(crate) const NAME_LEN: usize = 28;

/// The address in a `sockaddr`.
pub(crate) fn address(name: &[u8]) -> Option<SocketAddr> {
    let port = u16::from_be_bytes(*name.get(2..)?.first_chunk()?);
    match i32::from(u16::from_ne_bytes(*name.first_chunk()?)) {
        libc::AF_INET => Some((Ipv4Addr::from(*name.get(4..)?.first_chunk::<4>()?), port).into()),
        libc::AF_INET6 => {
            let address = Ipv6Addr::from(*name.get(8..)?.first_chunk::<16>()?);
            let scope = u32::from_ne_bytes(*name.get(24..)?.first_chunk()?);
            Some(SocketAddrV6::new(address, port, 0, scope).into())
        }
        _ => None,
    }
}
