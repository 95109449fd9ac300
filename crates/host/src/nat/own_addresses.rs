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

    /// Addresses of interfaces, as the kernel lists them; those of a link have no meaning without
    /// it, and guests reach none of them.
    fn of_interfaces() -> Vec<IpAddr> {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        let tree = read("/proc/net/fib_trie");
        let lines: Vec<&str> = tree.lines().map(str::trim).collect();
        let is_local = |pair: &&[&str]| pair[1] == "/32 host LOCAL";
        let local = lines.windows(2).filter(is_local);
        let all4 = local.filter_map(|pair| pair[0].strip_prefix("|-- ")?.parse().ok());
        let list = read("/proc/net/if_inet6");
        let words = list.lines().filter_map(|line| line.split_whitespace().next());
        let all6 = words.filter_map(|word| u128::from_str_radix(word, 16).ok());
        let all6 = all6.map(std::net::Ipv6Addr::from_bits);
        all4.chain(all6.filter(|it| !it.is_unicast_link_local()).map(IpAddr::V6)).collect()
    }

    #[test]
    fn each_address_of_this_machine_is_its_own_in_each_form() {
        let (own, all) = (OwnAddresses::new(), of_interfaces());
        assert!(all.contains(&IpAddr::from([127, 0, 0, 1])), "{all:?}");
        for address in all {
            assert!(own.contains(address), "{address}");
            if let IpAddr::V4(address) = address {
                assert!(own.contains(address.to_ipv6_mapped().into()), "{address} as IPv6");
            }
        }
    }
}
