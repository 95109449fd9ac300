//! Where guests may go.

use std::net::{IpAddr, Ipv4Addr};

use crate::addresses::Plan;
use crate::networks::Network;

/// The rule for packets of a guest to an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    Allowed,
    /// Not for one host: such packets are dropped without an answer.
    Many,
    Denied,
}

/// The host's loopback, link-local addresses, what is reserved, addresses of IPv6 that hold one of
/// IPv4, and where clouds tell machines their settings and credentials.
const DENIED: [Network; 14] = [
    Network::v4(0, 0, 0, 0, 8),
    Network::v4(127, 0, 0, 0, 8),
    Network::v4(169, 254, 0, 0, 16),
    Network::v4(240, 0, 0, 0, 4),
    // Alibaba's, Azure's, Oracle's of old.
    Network::v4(100, 100, 100, 200, 32),
    Network::v4(168, 63, 129, 16, 32),
    Network::v4(192, 0, 0, 192, 32),
    Network::v6([0; 8], 96),
    Network::v6([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10),
    // Amazon's, Google's, Oracle's, Scaleway's, Alibaba's.
    Network::v6([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0], 32),
    Network::v6([0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254], 128),
    Network::v6([0xfd00, 0xc1, 0, 0, 0, 0, 0xa9fe, 0xa9fe], 128),
    Network::v6([0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42], 128),
    Network::v6([0xfd00, 0x100, 0, 0, 0, 0, 0x100, 0x200], 128),
];

/// Translators reach addresses of IPv4 behind these (RFC 6052, RFC 8215); behind the second one
/// there are prefixes of several lengths.
const TRANSLATED: Network = Network::v6([0x64, 0xff9b, 0, 0, 0, 0, 0, 0], 96);
const TRANSLATED_HERE: Network = Network::v6([0x64, 0xff9b, 1, 0, 0, 0, 0, 0], 48);

/// Bits of an address without those that the translation leaves unused (64 to 71), and lengths of
/// prefixes in front of an address of IPv4.
const USED_BITS: u32 = 120;
const PREFIX_LENS: [u32; 3] = [48, 56, 64];

/// The addresses for which one stands: itself, or those of IPv4 to which a translator may send what
/// goes there (RFC 6052 §2.2).
pub fn meant(address: IpAddr) -> impl Iterator<Item = IpAddr> {
    let address = address.to_canonical();
    let bits = match address {
        IpAddr::V6(it) if TRANSLATED.contains(address) || TRANSLATED_HERE.contains(address) => {
            Some(it.to_bits())
        }
        _ => None,
    };
    let [.., a, b, c, d] = bits.unwrap_or(0).to_be_bytes();
    let last = bits.map(|_| Ipv4Addr::new(a, b, c, d));
    let is_here = TRANSLATED_HERE.contains(address);
    let used = bits.map(|bits| (bits >> 64) << 56 | bits & (u128::MAX >> 72));
    let others = PREFIX_LENS.into_iter().filter_map(move |len| {
        let (used, behind) = (used.filter(|_| is_here)?, USED_BITS - 32 - len);
        // Nothing is behind the address.
        let is_one = used & ((1 << behind) - 1) == 0;
        let four = u32::try_from(used >> behind & u128::from(u32::MAX)).ok()?;
        Some(Ipv4Addr::from_bits(four)).filter(|it| is_one && !it.is_unspecified())
    });
    // All that is left of a shorter prefix would look like an address without a host.
    let is_last = last.is_some_and(|it| !it.is_unspecified()) || others.clone().next().is_none();
    let last = last.filter(|_| is_last).map(IpAddr::V4);
    let itself = Some(address).filter(|_| bits.is_none());
    itself.into_iter().chain(last).chain(others.map(IpAddr::V4))
}

/// Decides by the address alone; whether it is one of the host's own, the host has to find out.
pub(crate) fn reach(plan: &Plan, to: IpAddr) -> Reach {
    let to = to.to_canonical();
    let is_many = match to {
        IpAddr::V4(to) => to.is_multicast() || to.is_broadcast() || to == plan.prefix4.broadcast(),
        IpAddr::V6(to) => to.is_multicast(),
    };
    match () {
        () if is_many => Reach::Many,
        // Loopback is opened by `Plan::host` alone.
        () if plan.is_inside(to) || meant(to).any(|meant| meant.is_loopback()) => Reach::Denied,
        () if is_allowed(plan, to) && meant(to).all(|meant| is_allowed(plan, meant)) => {
            Reach::Allowed
        }
        () => Reach::Denied,
    }
}

impl Plan {
    /// Whether guests do not reach an address outside of their own networks. Those of the host are
    /// not known here.
    pub fn denies(&self, to: IpAddr) -> bool {
        !self.is_inside(to) && reach(self, to) == Reach::Denied
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
            "168.63.129.16",
            "192.0.0.192",
            "fd00:ec2::254",
            "fd00:ec2::23",
            "fd20:ce::254",
            "fd00:c1::a9fe:a9fe",
            "fd00:42::42",
            "fd00:100::100:200",
            "64:ff9b::169.254.169.254",
            "64:ff9b::127.0.0.1",
            "64:ff9b:1::169.254.169.254",
            "64:ff9b:1:2:3:4:127.0.0.1",
            "64:ff9b:1:a9fe:a9:fe00::",
            "64:ff9b:1:a9:fe:a9fe::",
            "64:ff9b:1:0:a9:fea9:fe00:0",
            "64:ff9b:1::",
            &guest.to_string(),
        ] {
            assert_eq!(of(denied), Reach::Denied, "{denied}");
        }
        for many in ["255.255.255.255", "224.0.0.1", "10.0.2.255", "ff02::1"] {
            assert_eq!(of(many), Reach::Many, "{many}");
        }
        for fine in [
            "8.8.8.8",
            "10.0.3.1",
            "192.168.1.1",
            "168.63.129.17",
            "2001:db8::1",
            "fd00:42::43",
            "fd20:ce::253",
            "64:ff9b::808:808",
            "64:ff9b:1::808:808",
            "64:ff9b:1:808:8:800::",
            "64:ff9b:1:8:8:808::",
            "64:ff9b:1:0:8:808:800:0",
        ] {
            assert_eq!(of(fine), Reach::Allowed, "{fine}");
        }
    }

    #[test]
    fn addresses_that_stand_for_others_are_known() {
        let of = |text: &str| -> Vec<String> {
            meant(text.parse().unwrap()).map(|it| it.to_string()).collect()
        };
        assert_eq!(of("2001:db8::1"), ["2001:db8::1"]);
        assert_eq!(of("::ffff:192.0.2.1"), ["192.0.2.1"]);
        assert_eq!(of("64:ff9b::192.0.2.1"), ["192.0.2.1"]);
        assert_eq!(of("64:ff9b:1::192.0.2.1"), ["192.0.2.1"]);
        for (text, golden) in [
            ("64:ff9b:1:c000:2:100::", "192.0.2.1"),
            ("64:ff9b:1:c0:0:201::", "192.0.2.1"),
            ("64:ff9b:1:0:c0:2:100:0", "192.0.2.1"),
        ] {
            assert!(of(text).contains(&golden.to_owned()), "{text}: {:?}", of(text));
        }
    }

    #[test]
    fn the_longest_network_that_is_named_decides() {
        let networks = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        let plan = Plan {
            allow: networks(&[
                "10.1.0.0/16",
                "169.254.169.254",
                "168.63.129.16",
                "fd20:ce::/64",
                "fd00:ec2::/32",
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
            ("168.63.129.16", Reach::Allowed),
            ("192.0.0.192", Reach::Denied),
            ("fd00:42::42", Reach::Denied),
            ("fd20:ce::254", Reach::Denied),
            ("fd00:ec2::254", Reach::Allowed),
            ("::ffff:8.8.8.8", Reach::Denied),
        ] {
            assert_eq!(reach(&plan, to.parse().unwrap()), reached, "{to}");
        }
        let plan = Plan { deny: networks(&["8.8.8.8"]), ..Plan::default() };
        assert_eq!(reach(&plan, "64:ff9b::808:808".parse().unwrap()), Reach::Denied);
    }
}
