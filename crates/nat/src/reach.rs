//! Where guests may go.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::addresses::Plan;

/// What an address is to a guest's packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    Allowed,
    /// Not for one host: such packets are dropped without an answer.
    Many,
    Denied,
}

/// Decides by the address alone; whether it is one of the host's own, the host has to find out.
pub(crate) fn reach(plan: &Plan, to: IpAddr) -> Reach {
    let to = to.to_canonical();
    let is_many = match to {
        IpAddr::V4(to) => to.is_multicast() || to.is_broadcast() || to == plan.prefix4.broadcast(),
        IpAddr::V6(to) => to.is_multicast(),
    };
    let is_denied = match to {
        IpAddr::V4(to) => is_denied4(to),
        IpAddr::V6(to) => is_denied6(to),
    };
    match () {
        () if is_many => Reach::Many,
        () if is_denied || plan.is_inside(to) => Reach::Denied,
        () => Reach::Allowed,
    }
}

/// The host's loopback, link-local addresses with the metadata of clouds, and what is reserved.
fn is_denied4(to: Ipv4Addr) -> bool {
    const CLOUD_METADATA: Ipv4Addr = Ipv4Addr::new(100, 100, 100, 200);
    let first = to.octets()[0];
    let is_local = first == 0 || to.is_loopback() || to.is_link_local();
    is_local || first >= 240 || to == CLOUD_METADATA
}

fn is_denied6(to: Ipv6Addr) -> bool {
    const CLOUD_METADATA: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);
    let is_local = to.is_unspecified() || to.is_loopback() || to.is_unicast_link_local();
    // Addresses that hold an IPv4 address: ::/96, and those that translators use (RFC 6052).
    const TRANSLATED: u128 = 0x0064_ff9b << 64;
    let is_compatible = to.to_bits() >> 32 == 0;
    let [.., a, b, c, d] = to.octets();
    let is_translated = to.to_bits() >> 32 == TRANSLATED && is_denied4(Ipv4Addr::new(a, b, c, d));
    is_local || is_compatible || is_translated || to == CLOUD_METADATA
}

#[cfg(test)]
mod tests {
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
}
