//! The IP address that a station says is its own: in ARP (RFC 826) and in neighbour discovery (RFC
//! 4861).
//!
//! Limits: ICMPv6 right behind the header of IPv6, and the first option of a message.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ringway_net::MacAddress;

use crate::frame::{ARP, Frame, IPV6, array};

const ETHERNET_IPV4: [u8; 6] = [0, 1, 8, 0, 6, 4];

const IPV6_HEADER_LEN: usize = 40;
const ICMPV6: u8 = 58;
/// The hop limit, which is lower behind a router.
const HOPS: u8 = 255;
const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
/// Where options begin, in both.
const OPTIONS_AT: usize = 24;
/// Of an advertisement.
const FLAGS_AT: usize = 4;
const SOLICITED: u8 = 0x40;
const OVERRIDE: u8 = 0x20;
const SOURCE_LINK_ADDRESS: u8 = 1;
const TARGET_LINK_ADDRESS: u8 = 2;

/// An address that a station says is its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OwnIp {
    pub ip: IpAddr,
    /// It tells everybody, unasked: gratuitous ARP, or an advertisement that overrides what others
    /// know.
    pub is_announced: bool,
}

/// The address; `None`: it says nothing of itself, or something else.
pub(crate) fn own_ip(frame: &Frame<'_>) -> Option<OwnIp> {
    let ip = match frame.ethertype? {
        ARP => sender(frame.payload, frame.source).map(IpAddr::V4),
        IPV6 => neighbour(frame.payload, frame.source).map(IpAddr::V6),
        _ => None,
    }?;
    let is_unasked = match ip {
        IpAddr::V4(ip) => array::<4>(frame.payload, 24) == Some(ip.octets()),
        IpAddr::V6(_) => frame.payload.get(IPV6_HEADER_LEN..).is_some_and(overrides),
    };
    Some(OwnIp { ip, is_announced: is_unasked && frame.destination.is_multicast() })
}

fn overrides(message: &[u8]) -> bool {
    let flags = message.get(FLAGS_AT).copied().unwrap_or(0);
    message.first() == Some(&ADVERTISEMENT) && flags & (SOLICITED | OVERRIDE) == OVERRIDE
}

fn sender(arp: &[u8], source: MacAddress) -> Option<Ipv4Addr> {
    let is_own = arp.starts_with(&ETHERNET_IPV4) && array(arp, 8)? == source.0;
    let ip = Ipv4Addr::from(array::<4>(arp, 14)?);
    let is_none = ip.is_unspecified() || ip.is_broadcast();
    (is_own && !is_none && !ip.is_multicast() && !ip.is_loopback()).then_some(ip)
}

fn neighbour(packet: &[u8], source: MacAddress) -> Option<Ipv6Addr> {
    let [protocol, hops] = array(packet, 6)?;
    let message = packet.get(IPV6_HEADER_LEN..).filter(|_| (protocol, hops) == (ICMPV6, HOPS))?;
    let ip = match *message.first()? {
        SOLICITATION => Ipv6Addr::from(array::<16>(packet, 8)?),
        ADVERTISEMENT => Ipv6Addr::from(array::<16>(message, 8)?),
        _ => return None,
    };
    let is_own = match array::<8>(message, OPTIONS_AT) {
        Some([SOURCE_LINK_ADDRESS | TARGET_LINK_ADDRESS, 1, mac @ ..]) => mac == source.0,
        _ => true,
    };
    let is_none = ip.is_unspecified() || ip.is_loopback() || ip.to_ipv4_mapped().is_some();
    (is_own && !is_none && !ip.is_multicast()).then_some(ip)
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    const SOURCE: [u8; 6] = [2, 0, 0, 0, 0, 1];
    const OTHER: [u8; 6] = [2, 0, 0, 0, 0, 2];

    fn found(ethertype: [u8; 2], payload: &[u8]) -> Option<IpAddr> {
        let bytes = [&[0xff; 6][..], &SOURCE, &ethertype, payload].concat();
        Some(own_ip(&Frame::parse(&bytes)?)?.ip)
    }

    #[test]
    fn what_is_told_to_all_unasked_is_an_announcement() {
        let own = |destination: [u8; 6], ethertype: [u8; 2], payload: &[u8]| {
            let bytes = [&destination[..], &SOURCE, &ethertype, payload].concat();
            own_ip(&Frame::parse(&bytes).expect("a frame")).expect("an address").is_announced
        };
        let (all, one, arp) = ([0xff; 6], OTHER, [8, 6]);
        let about = |target: [u8; 4]| {
            [&ETHERNET_IPV4[..], &[0, 1], &SOURCE, &[10, 0, 0, 1], &[0; 6], &target].concat()
        };
        assert!(own(all, arp, &about([10, 0, 0, 1])));
        assert!(!own(all, arp, &about([10, 0, 0, 2])), "it asks for another one");
        assert!(!own(one, arp, &about([10, 0, 0, 1])), "it tells one station");
        let (all, one) = ([0x33, 0x33, 0, 0, 0, 1], OTHER);
        let tells = |flags: u8| {
            let mut packet = packet(ADVERTISEMENT, ip(1), ip(2), SOURCE);
            packet[IPV6_HEADER_LEN + FLAGS_AT] = flags;
            packet
        };
        let six = [0x86, 0xdd];
        assert!(own(all, six, &tells(OVERRIDE)) && !own(one, six, &tells(OVERRIDE)));
        assert!(!own(all, six, &tells(0)) && !own(all, six, &tells(OVERRIDE | SOLICITED)));
        assert!(!own(all, six, &packet(SOLICITATION, ip(1), ip(2), SOURCE)));
    }

    fn arp(mac: [u8; 6], ip: [u8; 4]) -> Option<IpAddr> {
        let payload = [&ETHERNET_IPV4[..], &[0, 2], &mac, &ip, &[0; 10]].concat();
        (0..18).for_each(|len| assert_eq!(found([8, 6], &payload[..len]), None));
        found([8, 6], &payload)
    }

    fn ip(last: u8) -> [u8; 16] {
        [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]
    }

    fn packet(kind: u8, source: [u8; 16], target: [u8; 16], mac: [u8; 6]) -> Vec<u8> {
        let head = [0x60, 0, 0, 0, 0, 32, ICMPV6, HOPS];
        let message = [kind, 0, 0, 0, 0, 0, 0, 0];
        let option = [TARGET_LINK_ADDRESS, 1];
        [&head[..], &source, &[0xff; 16], &message, &target, &option, &mac].concat()
    }

    #[test]
    fn a_sender_of_arp_names_itself() {
        assert_eq!(arp(SOURCE, [10, 0, 0, 1]), Some([10, 0, 0, 1].into()));
        assert_eq!(arp(OTHER, [10, 0, 0, 1]), None, "in another's name");
        for none in [[0; 4], [255; 4], [224, 0, 0, 1], [127, 0, 0, 1]] {
            assert_eq!(arp(SOURCE, none), None, "{none:?}");
        }
    }

    #[test]
    fn neighbours_name_themselves() {
        let found = |packet: &[u8]| found([0x86, 0xdd], packet);
        let asks = packet(SOLICITATION, ip(1), ip(2), SOURCE);
        assert_eq!(found(&asks), Some(ip(1).into()));
        let tells = packet(ADVERTISEMENT, ip(1), ip(2), SOURCE);
        assert_eq!(found(&tells), Some(ip(2).into()));
        assert_eq!(found(&packet(ADVERTISEMENT, ip(1), ip(2), OTHER)), None);
        assert_eq!(found(&packet(SOLICITATION, [0; 16], ip(2), SOURCE)), None, "it only asks");
        let mapped = Ipv4Addr::LOCALHOST.to_ipv6_mapped().octets();
        for none in [[0; 16], [0xff; 16], mapped, Ipv6Addr::LOCALHOST.octets()] {
            assert_eq!(found(&packet(ADVERTISEMENT, ip(1), none, SOURCE)), None, "{none:?}");
        }
        let mut routed = tells.clone();
        routed[7] = HOPS - 1;
        assert_eq!((found(&routed), found(&packet(134, ip(1), ip(2), SOURCE))), (None, None));
        (0..64).for_each(|len| assert_eq!(found(&tells[..len]), None));
    }
}
