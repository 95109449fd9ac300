//! Whether an address is one of this machine's own: services that listen on all of its addresses
//! are as exposed by those as by loopback, and guests reach neither unless they are allowed to.
//!
//! How: a socket for datagrams that is connected there gets that address as its own, or one of
//! loopback, where it is this machine's. A network that routes give to this machine
//! (`ip route add local`) may have another address as its source: the way there is as wide as
//! loopback is. Nothing is sent.
//!
//! Limits: such a network is not known where loopback was made narrower, or the route is.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};

use ringway_nat::meant;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketFlags, SocketType, connect, connect_unspec, getsockname, socket_with,
};

use crate::nat::calls::{SocketOption, option};

/// Discard; no packet goes there.
const PORT: u16 = 9;

/// How wide loopback is at least, in bytes, and nothing else: an Ethernet frame of 64 KiB has a
/// header as well.
const LOOPBACK_MTU_MIN: libc::c_int = 65_535;

/// Asks the kernel.
#[derive(Debug)]
pub(crate) struct OwnAddresses {
    probes: [Option<OwnedFd>; 2],
}

impl OwnAddresses {
    pub(crate) fn new() -> Self {
        Self { probes: [AddressFamily::INET, AddressFamily::INET6].map(probe) }
    }

    /// Whether the address is this machine's, or one for which it stands is. What cannot be found
    /// out counts as such.
    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        std::iter::once(address).chain(meant(address)).any(|it| self.is_own(it))
    }

    fn is_own(&self, address: IpAddr) -> bool {
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
                    || is_as_wide_as_loopback(probe, address)
            }
            Err(why) => !is_out_of_reach(why),
        }
    }
}

/// The kernel knows no way there, which the flow's own socket will say. Anything else, as that
/// there is no port or no memory left, says nothing of the address.
fn is_out_of_reach(why: Errno) -> bool {
    matches!(why, Errno::NETUNREACH | Errno::HOSTUNREACH | Errno::ACCESS)
}

fn is_as_wide_as_loopback(probe: &OwnedFd, address: IpAddr) -> bool {
    let name = match address {
        IpAddr::V4(_) => SocketOption(libc::SOL_IP, libc::IP_MTU),
        IpAddr::V6(_) => SocketOption(libc::SOL_IPV6, libc::IPV6_MTU),
    };
    option(probe.as_fd(), name).is_none_or(|mtu| mtu >= LOOPBACK_MTU_MIN)
}

fn probe(family: AddressFamily) -> Option<OwnedFd> {
    socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None).ok()
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};
    use std::thread;

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

    #[test]
    fn what_says_nothing_of_an_address_does_not_make_it_anothers() {
        for why in [Errno::NETUNREACH, Errno::HOSTUNREACH, Errno::ACCESS] {
            assert!(is_out_of_reach(why), "{why}");
        }
        for why in [Errno::AGAIN, Errno::ADDRNOTAVAIL, Errno::NOBUFS, Errno::NOMEM, Errno::INVAL] {
            assert!(!is_out_of_reach(why), "{why}");
        }
    }

    #[test]
    fn an_address_behind_a_translator_is_the_one_that_is_meant() {
        let own = OwnAddresses::new();
        assert!(own.contains("64:ff9b::127.0.0.1".parse().unwrap()));
        assert!(own.contains("64:ff9b:1::127.0.0.1".parse().unwrap()));
        let all4 = of_interfaces().into_iter().filter_map(|address| match address {
            IpAddr::V4(address) => Some(address),
            IpAddr::V6(_) => None,
        });
        for address in all4 {
            let behind = format!("64:ff9b::{address}").parse().unwrap();
            assert!(own.contains(behind), "{behind}");
        }
    }

    /// In a network namespace of its own, where that may be made.
    #[test]
    fn a_network_that_routes_give_to_this_machine_is_its_own() {
        let run = |words: &str| {
            let words: Vec<&str> = words.split(' ').collect();
            let done = Command::new("ip").args(&words).stderr(Stdio::null()).status();
            done.is_ok_and(|status| status.success())
        };
        let found = thread::spawn(move || {
            // SAFETY: this thread alone gets another network, and ends here.
            if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 || !run("link set lo up") {
                return None;
            }
            let is_made = run("link add up0 type veth peer name up1")
                && run("link set up1 up")
                && run("addr add 192.0.2.1/24 dev up0")
                && run("-6 addr add 2001:db8::1/64 dev up0 nodad")
                && run("link set up0 up")
                && run("route add default via 192.0.2.2")
                && run("-6 route add default via 2001:db8::2")
                && run("route add local 198.18.5.0/24 dev lo src 192.0.2.1")
                && run("route add local 198.18.6.0/24 dev up0 src 192.0.2.1")
                && run("-6 route add local 2001:db8:5::/64 dev lo");
            let own = OwnAddresses::new();
            let all = ["198.18.5.5", "198.18.6.5", "2001:db8:5::5", "198.18.7.5", "2001:db8:6::5"];
            is_made.then(|| all.map(|address| own.contains(address.parse().unwrap())))
        });
        match found.join().expect("no panic") {
            Some(found) => assert_eq!(found, [true, true, true, false, false]),
            None => println!("skipped: no network namespace, or no link in it, can be made here"),
        }
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
