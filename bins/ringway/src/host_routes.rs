//! Where this machine sends packets: the networks of a router's guests must not be among them, or
//! guests and the machine would mean different hosts by the same address.
//!
//! How: the kernel's lists (proc(5)), without those routes that lead everywhere, or nowhere.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use anyhow::bail;
use ringway_nat::{Plan, Prefix4};

/// Lists of the kernel, where a service sees them that sees only processes (`ProcSubset=pid`), too.
const ROUTES4: &str = "/proc/self/net/route";
const ROUTES6: &str = "/proc/self/net/ipv6_route";

/// Routes to networks larger than that lead everywhere, or are a part of such a one: the halves of
/// IPv4 of a tunnel, or all of IPv6 that is global.
const LEN_MIN: u8 = 8;

/// Of an IPv6 route that leads nowhere (linux/route.h).
const RTF_REJECT: u32 = 0x200;

/// In the place of the interface, of an IPv4 route that leads nowhere.
const NO_INTERFACE: &str = "*";

/// A network, and the interface that leads to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    network: IpAddr,
    len: u8,
    interface: String,
}

/// Whether the networks of guests, such as `10.0.2.0/24`, are free on this machine.
///
/// # Errors
/// One of them is not; the route is named.
pub fn check(ranges: &[String]) -> anyhow::Result<()> {
    match overlapping(ranges, &routes()) {
        Some(why) => bail!("{why}: choose a network that does not overlap"),
        None => Ok(()),
    }
}

/// The first of these networks that is not free, and what is in its way.
pub fn overlapping(ranges: &[String], routes: &[Route]) -> Option<String> {
    ranges.iter().find_map(|range| {
        let Route { network, len, interface } = conflict(range, routes)?;
        Some(format!("range={range}: this machine reaches {network}/{len} by {interface}"))
    })
}

/// A free network for guests that are given none: the first of 10.0.2.0/24, 10.0.3.0/24 and so on,
/// or of 192.168.
pub fn free_network() -> Prefix4 {
    first_free(&routes())
}

fn first_free(routes: &[Route]) -> Prefix4 {
    let tens = (2..=254).map(|third| Ipv4Addr::new(10, 0, third, 0));
    let others = (0..=255).map(|third| Ipv4Addr::new(192, 168, third, 0));
    let is_free = |network: &Ipv4Addr| conflict(&format!("{network}/24"), routes).is_none();
    let found = tens.chain(others).find(is_free).and_then(|it| Prefix4::new(it, 24).ok());
    found.unwrap_or(Plan::default().prefix4)
}

/// Where this machine sends packets now. There may be very many.
pub fn routes() -> Vec<Route> {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let mut routes = routes4(&read(ROUTES4));
    routes.extend(routes6(&read(ROUTES6)));
    routes
}

fn conflict<'a>(range: &str, routes: &'a [Route]) -> Option<&'a Route> {
    let (network, len) = range.split_once('/')?;
    let (network, len): (IpAddr, u8) = (network.parse().ok()?, len.parse().ok()?);
    routes.iter().find(|route| overlap(network, len, route.network, route.len))
}

/// Two networks overlap if they are the same as far as the shorter prefix goes.
pub fn overlap(one: IpAddr, one_len: u8, other: IpAddr, other_len: u8) -> bool {
    let bits = |address: IpAddr| match address {
        IpAddr::V4(address) => u128::from(address.to_bits()) << 96,
        IpAddr::V6(address) => address.to_bits(),
    };
    let len = u32::from(one_len.min(other_len)).min(128);
    let mask = u128::MAX.checked_shl(128 - len).unwrap_or(0);
    one.is_ipv4() == other.is_ipv4() && (bits(one) ^ bits(other)) & mask == 0
}

/// Interface, destination and, as eighth word, mask: numbers as they are in memory.
fn routes4(text: &str) -> Vec<Route> {
    let route = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |at: usize| u32::from_str_radix(words.get(at)?, 16).ok().map(u32::to_ne_bytes);
        let len = u8::try_from(u32::from_be_bytes(number(7)?).leading_ones()).ok()?;
        let network = IpAddr::V4(Ipv4Addr::from(number(1)?));
        let interface = words.first().filter(|name| **name != NO_INTERFACE)?;
        (len >= LEN_MIN).then(|| Route { network, len, interface: (*interface).to_owned() })
    };
    text.lines().skip(1).filter_map(route).collect()
}

/// Destination, length of its prefix, and, as last words, flags and the interface. Not what every
/// interface has: link-local and multicast addresses.
fn routes6(text: &str) -> Vec<Route> {
    let route = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let network = Ipv6Addr::from(u128::from_str_radix(words.first()?, 16).ok()?);
        let len = u8::from_str_radix(words.get(1)?, 16).ok()?;
        let [.., flags, interface] = words[..] else { return None };
        let leads_nowhere = u32::from_str_radix(flags, 16).ok()? & RTF_REJECT != 0;
        let is_everywhere =
            len < LEN_MIN || network.is_multicast() || network.is_unicast_link_local();
        let interface = interface.to_owned();
        let is_one = !is_everywhere && !leads_nowhere;
        is_one.then_some(Route { network: network.into(), len, interface })
    };
    text.lines().filter_map(route).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_are_read() {
        let text = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\n\
                    eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n\
                    br0\t0000090A\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n\
                    short\n";
        let expected = Route { network: [10, 9, 0, 0].into(), len: 16, interface: "br0".into() };
        if cfg!(target_endian = "little") {
            assert_eq!(routes4(text), [expected]);
        }
        let line = |network: &str, len: &str| {
            let rest = "00000000000000000000000000000000 00 00000000000000000000000000000000";
            format!("{network} {len} {rest} 00000100 00000001 00000000 00000001     eth0\n")
        };
        let text = line("fd120000000000000000000000000000", "30")
            + &line("fe800000000000000000000000000000", "40")
            + &line("ff000000000000000000000000000000", "08")
            + &line("00000000000000000000000000000000", "00");
        let expected =
            Route { network: "fd12::".parse().unwrap(), len: 48, interface: "eth0".into() };
        assert_eq!(routes6(&text), [expected]);
    }

    /// A tunnel for everything leaves the default route alone, and is before it by two halves of it
    /// (OpenVPN's `def1`); IPv6 is all that is global. What is unreachable is reached by none.
    #[test]
    fn routes_to_nearly_everything_and_to_nowhere_are_none() {
        let line = |interface: &str, network: &str, flags: &str, mask: &str| {
            format!("{interface}\t{network}\t0\t{flags}\t0\t0\t0\t{mask}\t0\t0\t0\n")
        };
        let text = format!(
            "Iface\n{}{}{}{}{}",
            line("tun0", "00000000", "0003", "00000080"),
            line("tun0", "00000080", "0003", "00000080"),
            line("*", "0000000A", "0001", "000000FF"),
            line("*", "000010AC", "0201", "0000F0FF"),
            line("tun0", "0000080A", "0001", "0000FFFF"),
        );
        let line6 = |network: &str, len: &str, flags: &str| {
            let rest = "00000000000000000000000000000000 00 00000000000000000000000000000000";
            format!("{network} {len} {rest} 00000100 00000001 00000000 {flags}     tun0\n")
        };
        let text6 = line6("20000000000000000000000000000000", "03", "00000001")
            + &line6("fc000000000000000000000000000000", "07", "00200200")
            + &line6("fd120000000000000000000000000000", "30", "00000001");
        let shown = |routes: Vec<Route>| -> Vec<String> {
            routes.iter().map(|it| format!("{}/{}", it.network, it.len)).collect()
        };
        if cfg!(target_endian = "little") {
            assert_eq!(shown(routes4(&text)), ["10.8.0.0/16"]);
        }
        assert_eq!(shown(routes6(&text6)), ["fd12::/48"]);
    }

    #[test]
    fn guests_get_a_network_that_is_free() {
        let route = |network: [u8; 4], len| Route {
            network: network.into(),
            len,
            interface: "eth0".into(),
        };
        let first = |routes: &[Route]| first_free(routes).to_string();
        assert_eq!(first(&[route([10, 1, 0, 0], 16)]), "10.0.2.0/24");
        assert_eq!(first(&[route([10, 0, 2, 0], 24)]), "10.0.3.0/24");
        assert_eq!(first(&[route([10, 0, 2, 64], 26), route([10, 0, 3, 9], 32)]), "10.0.4.0/24");
        assert_eq!(first(&[route([10, 0, 0, 0], 16)]), "192.168.0.0/24");
        assert_eq!(first(&[route([10, 0, 0, 0], 8), route([192, 168, 0, 0], 16)]), "10.0.2.0/24");
    }

    #[test]
    fn overlapping_networks_are_found() {
        let route = |network: &str, len| Route {
            network: network.parse().unwrap(),
            len,
            interface: "eth0".into(),
        };
        let routes = [route("10.9.0.0", 16), route("192.0.2.5", 32), route("fd12::", 48)];
        for (range, found) in [
            ("10.9.3.0/24", Some(0)),
            ("10.0.0.0/8", Some(0)),
            ("192.0.2.0/24", Some(1)),
            ("fd12:0:0:7::/64", Some(2)),
            ("10.0.2.0/24", None),
            ("fd13::/64", None),
            ("a09::/64", None),
        ] {
            assert_eq!(conflict(range, &routes), found.map(|at: usize| &routes[at]), "{range}");
        }
    }
}
