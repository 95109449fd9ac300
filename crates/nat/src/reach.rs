//! Where guests may go.

use std::net::{IpAddr, Ipv4Addr};

use crate::addresses::Plan;
use crate::networks::Network;

/// What an address is to a guest's packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    Allowed,
    /// Not for one host: such packets are dropped without an answer.
    Many,
    Denied,
}

/// The host's loopback, link-local addresses with the metadata of clouds, what is reserved, and
/// addresses of IPv6 that hold one of IPv4.
const DENIED: [Network; 8] = [
    Network::v4(0, 0, 0, 0, 8),
    Network::v4(127, 0, 0, 0, 8),
    Network::v4(169, 254, 0, 0, 16),
    Network::v4(240, 0, 0, 0, 4),
    Network::v4(100, 100, 100, 200, 32),
    Network::v6(0, 0, 96),
    Network::v6(0xfe80_0000, 0, 10),
    Network::v6(0xfd00_0ec2, 0x254, 128),
];

/// Translators reach addresses of IPv4 behind this one (RFC 6052).
const TRANSLATED: Network = Network::v6(0x0064_ff9b, 0, 96);

/// Decides by the address alone; whether it is one of the host's own, the host has to find out.
pub(crate) fn reach(plan: &Plan, to: IpAddr) -> Reach {
    let to = to.to_canonical();
    let is_many = match to {
        IpAddr::V4(to) => to.is_multicast() || to.is_broadcast() || to == plan.prefix4.broadcast(),
        IpAddr::V6(to) => to.is_multicast(),
    };
    let is_translated = TRANSLATED.contains(to);
    let meant = match to {
        IpAddr::V6(to) if is_translated => {
            let [.., a, b, c, d] = to.octets();
            IpAddr::V4(Ipv4Addr::new(a, b, c, d))
        }
        _ => to,
    };
    match () {
        () if is_many => Reach::Many,
        // Loopback is opened by `Plan::host` alone.
        () if plan.is_inside(to) || meant.is_loopback() => Reach::Denied,
        () if is_allowed(plan, to) && is_allowed(plan, meant) => Reach::Allowed,
        () => Reach::Denied,
    }
}

/// The longest network decides that the address lies in; of two alike, what is said, and what is
/// denied.
fn is_allowed(plan: &Plan, to: IpAddr) -> bool {
    let of = |networks: &[Network], rank: u8| {
        let those = networks.iter().filter(|network| network.contains(to));
        those.map(|network| network.len).max().map(|len| (len, rank))
    };
    let [allowed, denied] = [of(&plan.allow, 1), of(&plan.deny, 2).max(of(&DENIED, 0))];
    allowed >= denied
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use super::*;
    use crate::addresses::Prefix6;

    #[test]
    fn the_host_and_other_guests_are_out_of_reach() {
        let plan = Plan { prefix6: Some(Prefix6::local(3)), ..Plan::default() };
        let guest = Ipv6Addr::from_bits(plan.prefix6.unwrap().network().to_bits() | 99);
        let of = |text: &str| reach(&plan, text.parse().unwrap());
        for denied in [
            "0.0.0.0",
            "127.5.5.5",
            "169.254.169.254",
            "100.100.100.200",
            "255.1.1.1",
            "10.0.2.16",
            "10.0.2.2",
            "::",
            "::1",
            "fe80::1",
            "::ffff:127.0.0.1",
            "::7f00:1",
            "fd00:ec2::254",
            "64:ff9b::169.254.169.254",
            "64:ff9b::127.0.0.1",
            &guest.to_string(),
        ] {
            assert_eq!(of(denied), Reach::Denied, "{denied}");
        }
        for many in ["255.255.255.255", "224.0.0.1", "10.0.2.255", "ff02::1"] {
            assert_eq!(of(many), Reach::Many, "{many}");
        }
        for fine in ["8.8.8.8", "10.0.3.1", "192.168.1.1", "2001:db8::1", "64:ff9b::808:808"] {
            assert_eq!(of(fine), Reach::Allowed, "{fine}");
        }
    }

    #[test]
    fn the_longest_network_that_is_named_decides() {
        let networks = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        let plan = Plan {
            allow: networks(&[
                "10.1.0.0/16",
                "169.254.169.254",
                "0.0.0.0/0",
                "fd01::/16",
                "8.8.4.4",
                "127.0.0.0/8",
                "::1",
                "64:ff9b::/96",
            ]),
            deny: networks(&["10.0.0.0/8", "10.1.2.0/24", "8.8.8.8/32", "::/0", "8.8.4.4"]),
            ..Plan::default()
        };
        for (to, reached) in [
            ("10.9.0.1", Reach::Denied),
            ("10.1.9.1", Reach::Allowed),
            ("10.1.2.9", Reach::Denied),
            ("8.8.8.8", Reach::Denied),
            ("8.8.4.4", Reach::Denied),
            ("9.9.9.9", Reach::Allowed),
            ("169.254.169.254", Reach::Allowed),
            ("169.254.169.253", Reach::Denied),
            ("127.0.0.1", Reach::Denied),
            ("::1", Reach::Denied),
            ("64:ff9b::7f00:1", Reach::Denied),
            ("64:ff9b::909:909", Reach::Allowed),
            ("255.255.255.255", Reach::Many),
            ("10.0.2.16", Reach::Denied),
            ("2001:db8::1", Reach::Denied),
            ("fd01::1", Reach::Allowed),
            ("fd00:ec2::254", Reach::Denied),
            ("::ffff:8.8.8.8", Reach::Denied),
        ] {
            assert_eq!(reach(&plan, to.parse().unwrap()), reached, "{to}");
        }
        let plan = Plan { deny: networks(&["8.8.8.8"]), ..Plan::default() };
        assert_eq!(reach(&plan, "64:ff9b::808:808".parse().unwrap()), Reach::Denied);
    }
}
