//! Whether an address is one of this machine's own: services that listen on all of its addresses
//! are as exposed by those as by loopback, and guests reach neither unless they are allowed to.
//!
//! How: a socket for datagrams that is connected there gets that address as its own, or one of
//! loopback, where it is this machine's. Nothing is sent.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;

use rustix::net::{
    AddressFamily, SocketFlags, SocketType, connect, connect_unspec, getsockname, socket_with,
};

/// Discard; no packet goes there.
const PORT: u16 = 9;

/// Asks the kernel.
#[derive(Debug)]
pub(crate) struct OwnAddresses {
    probes: [Option<OwnedFd>; 2],
}

impl OwnAddresses {
    pub(crate) fn new() -> Self {
        Self { probes: [AddressFamily::INET, AddressFamily::INET6].map(probe) }
    }

    /// Whether the address is this machine's. What cannot be found out counts as such.
    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        let [probe4, probe6] = &self.probes;
        let Some(probe) = (if address.is_ipv4() { probe4 } else { probe6 }) else { return true };
        // Otherwise the address that it had for the last question stays its own.
        let _ = connect_unspec(probe);
        match connect(probe, &SocketAddr::new(address, PORT)) {
            Ok(()) => {
                let name = getsockname(probe).and_then(SocketAddr::try_from);
                name.is_ok_and(|name| {
                    let own = name.ip().to_canonical();
                    own == address || own.is_loopback()
                }) || name.is_err()
            }
            // It cannot be reached at all, which the flow's own socket will say.
            Err(_) => false,
        }
    }
}

fn probe(family: AddressFamily) -> Option<OwnedFd> {
    socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_and_what_stands_for_it_is_this_machine() {
        let own = OwnAddresses::new();
        for address in ["127.0.0.1", "127.5.5.5", "0.0.0.0", "::ffff:127.0.0.1"] {
            assert!(own.contains(address.parse().unwrap()), "{address}");
        }
        // Documentation (RFC 5737): no machine has it.
        assert!(!own.contains("192.0.2.1".parse().unwrap()));
        assert!(own.contains("127.0.0.1".parse().unwrap()), "also behind another one");
    }
}
