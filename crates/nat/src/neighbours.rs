//! ARP and neighbour discovery: answers for the router's own addresses, and advertisements.
//!
//! It answers for no other address: other guests are on the same link and answer themselves.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ringway_net::MacAddress;
use smoltcp::time::Duration;
use smoltcp::wire::{ArpOperation, ArpPacket, ArpRepr, EthernetAddress, Icmpv6Packet};
use smoltcp::wire::{NdiscNeighborFlags, NdiscPrefixInfoFlags, NdiscPrefixInformation, NdiscRepr};
use smoltcp::wire::{NdiscRouterFlags, RawHardwareAddress};

use crate::addresses::{Plan, Prefix6};
use crate::dhcp;
use crate::frame::{self, Stations};

/// All nodes of a link, and their Ethernet address.
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const ALL_NODES_MAC: MacAddress = MacAddress([0x33, 0x33, 0, 0, 0, 1]);

/// How long guests use the router after one advertisement, and how long its DNS servers.
const ROUTER_LIFETIME_S: u64 = 1800;
const DNS_LIFETIME_S: u32 = 1800;
const PREFIX_VALID_S: u64 = 86_400;
const PREFIX_PREFERRED_S: u64 = 14_400;

/// A network (RFC 4861 §4.6.2); the library writes one of them.
const PREFIX: u8 = 3;
const ON_LINK_AND_FOR_ADDRESSES: u8 = 0xc0;

/// Options that the library does not have (RFC 8106 §5).
const RDNSS: u8 = 25;
const DNSSL: u8 = 31;

/// Most bytes of domains in an advertisement.
const DNSSL_NAMES_LEN_MAX: usize = 512;

/// The answer to an ARP packet; `None`: silence.
pub(crate) fn arp(plan: &Plan, bytes: &[u8]) -> Option<Vec<u8>> {
    let packet = ArpPacket::new_checked(bytes).ok()?;
    let ArpRepr::EthernetIpv4 {
        operation: ArpOperation::Request,
        source_hardware_addr: asker,
        source_protocol_addr: asker_address,
        target_protocol_addr: wanted,
        ..
    } = ArpRepr::parse(&packet).ok()?
    else {
        return None;
    };
    let to = MacAddress(asker.0);
    if !plan.is_ours(IpAddr::V4(wanted)) || !to.is_station() {
        return None;
    }
    let reply = ArpRepr::EthernetIpv4 {
        operation: ArpOperation::Reply,
        source_hardware_addr: EthernetAddress(plan.mac().0),
        source_protocol_addr: wanted,
        target_hardware_addr: asker,
        target_protocol_addr: asker_address,
    };
    let mut bytes = vec![0; reply.buffer_len()];
    reply.emit(&mut ArpPacket::new_unchecked(&mut bytes));
    let stations = Stations { from: plan.mac(), to };
    Some(frame::ethernet(stations, frame::TYPE_ARP, &bytes))
}

/// The question which station has that address.
pub(crate) fn who_has(plan: &Plan, address: Ipv4Addr) -> Vec<u8> {
    let request = ArpRepr::EthernetIpv4 {
        operation: ArpOperation::Request,
        source_hardware_addr: EthernetAddress(plan.mac().0),
        source_protocol_addr: plan.gateway4(),
        target_hardware_addr: EthernetAddress([0; 6]),
        target_protocol_addr: address,
    };
    let mut bytes = vec![0; request.buffer_len()];
    request.emit(&mut ArpPacket::new_unchecked(&mut bytes));
    let stations = Stations { from: plan.mac(), to: MacAddress::BROADCAST };
    frame::ethernet(stations, frame::TYPE_ARP, &bytes)
}

/// The address that the sender of an ARP packet says that it has; `None`: it has none yet.
pub(crate) fn sender(bytes: &[u8]) -> Option<Ipv4Addr> {
    let packet = ArpPacket::new_checked(bytes).ok()?;
    let ArpRepr::EthernetIpv4 { source_protocol_addr, .. } = ArpRepr::parse(&packet).ok()? else {
        return None;
    };
    Some(source_protocol_addr).filter(|address| !address.is_unspecified())
}

/// The sender of a message of neighbour discovery.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sender {
    pub mac: MacAddress,
    pub address: Ipv6Addr,
}

/// The answer to a message of neighbour discovery; `None`: silence.
pub(crate) fn discovery(
    plan: &Plan,
    retired: Option<Prefix6>,
    sender: Sender,
    message: &[u8],
) -> Option<Vec<u8>> {
    let packet = Icmpv6Packet::new_checked(message).ok()?;
    if packet.msg_code() != 0 || !packet.msg_type().is_ndisc() {
        return None;
    }
    match NdiscRepr::parse(&packet).ok()? {
        NdiscRepr::RouterSolicit { .. } => advertisement(plan, retired),
        NdiscRepr::NeighborSolicit { target_addr, .. } => neighbour(plan, sender, target_addr),
        _ => None,
    }
}

fn neighbour(plan: &Plan, sender: Sender, wanted: Ipv6Addr) -> Option<Vec<u8>> {
    if !plan.is_ours(IpAddr::V6(wanted)) {
        return None;
    }
    // A guest that tries whether the address is free has none yet (RFC 4862 §5.4).
    let is_trial = sender.address.is_unspecified();
    let to = if is_trial { ALL_NODES } else { sender.address };
    let to_mac = if is_trial { ALL_NODES_MAC } else { sender.mac };
    let solicited =
        if is_trial { NdiscNeighborFlags::empty() } else { NdiscNeighborFlags::SOLICITED };
    let reply = NdiscRepr::NeighborAdvert {
        flags: NdiscNeighborFlags::ROUTER | NdiscNeighborFlags::OVERRIDE | solicited,
        target_addr: wanted,
        lladdr: Some(link_layer(plan)),
    };
    let stations = Stations { from: plan.mac(), to: to_mac };
    Some(frame::icmp(stations, wanted.into(), to.into(), emit(&reply)))
}

/// The router's advertisement to all; `None`: there is no IPv6. `retired`: a network that it had
/// before, from which no station is to begin anything any more (RFC 9096 §3.5).
pub(crate) fn advertisement(plan: &Plan, retired: Option<Prefix6>) -> Option<Vec<u8>> {
    let prefix = plan.prefix6.or(retired)?;
    let is_used = plan.prefix6.is_some();
    let lifetime = |seconds| Duration::from_secs(if is_used { seconds } else { 0 });
    let routes = is_used && plan.routes6;
    let advert = NdiscRepr::RouterAdvert {
        hop_limit: 64,
        // DHCP has an address and the names, too.
        flags: NdiscRouterFlags::MANAGED | NdiscRouterFlags::OTHER,
        router_lifetime: Duration::from_secs(if routes { ROUTER_LIFETIME_S } else { 0 }),
        reachable_time: Duration::ZERO,
        retrans_time: Duration::ZERO,
        lladdr: Some(link_layer(plan)),
        mtu: Some(u32::from(plan.mtu)),
        prefix_info: Some(NdiscPrefixInformation {
            prefix_len: 64,
            flags: NdiscPrefixInfoFlags::ON_LINK | NdiscPrefixInfoFlags::ADDRCONF,
            valid_lifetime: lifetime(PREFIX_VALID_S),
            preferred_lifetime: lifetime(PREFIX_PREFERRED_S),
            prefix: prefix.network(),
        }),
    };
    let mut message = emit(&advert);
    if let Some(retired) = retired.filter(|_| is_used) {
        message.extend([PREFIX, 4, 64, ON_LINK_AND_FOR_ADDRESSES]);
        // It is valid and preferred for no time.
        message.extend([0; 12]);
        message.extend(retired.network().octets());
    }
    if let Some(dns) = plan.dns6().filter(|_| plan.has_dns) {
        put_option(&mut message, RDNSS, &dns.octets());
    }
    let names = dhcp::names(&plan.domains);
    if !names.is_empty() && names.len() <= DNSSL_NAMES_LEN_MAX {
        put_option(&mut message, DNSSL, &names);
    }
    let stations = Stations { from: plan.mac(), to: ALL_NODES_MAC };
    let from = Plan::GATEWAY_LINK_LOCAL.into();
    Some(frame::icmp(stations, from, ALL_NODES.into(), message))
}

fn emit(repr: &NdiscRepr<'_>) -> Vec<u8> {
    let mut bytes = vec![0; repr.buffer_len()];
    repr.emit(&mut Icmpv6Packet::new_unchecked(&mut bytes[..]));
    bytes
}

fn link_layer(plan: &Plan) -> RawHardwareAddress {
    RawHardwareAddress::from_bytes(&plan.mac().0)
}

/// Kind, length in units of 8 bytes, two bytes that mean nothing, lifetime, and a value that is
/// filled up with zeros.
fn put_option(message: &mut Vec<u8>, kind: u8, value: &[u8]) {
    let units = 1 + value.len().div_ceil(8);
    let end = message.len() + units * 8;
    message.push(kind);
    message.extend(u8::try_from(units));
    message.extend([0, 0]);
    message.extend(DNS_LIFETIME_S.to_be_bytes());
    message.extend(value);
    message.resize(end, 0);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use smoltcp::phy::ChecksumCapabilities;
    use smoltcp::wire::{Icmpv6Repr, Ipv6Packet};

    use super::*;
    use crate::addresses::Prefix6;

    const GUEST: MacAddress = MacAddress([2, 0, 0, 0, 0, 9]);

    fn plan() -> Plan {
        let domains = vec!["lab.test".to_owned()];
        Plan { prefix6: Some(Prefix6::local(5)), routes6: true, domains, ..Plan::default() }
    }

    fn request(wanted: [u8; 4]) -> Vec<u8> {
        let request = ArpRepr::EthernetIpv4 {
            operation: ArpOperation::Request,
            source_hardware_addr: EthernetAddress(GUEST.0),
            source_protocol_addr: [10, 0, 2, 15].into(),
            target_hardware_addr: EthernetAddress([0; 6]),
            target_protocol_addr: wanted.into(),
        };
        let mut bytes = vec![0; request.buffer_len()];
        request.emit(&mut ArpPacket::new_unchecked(&mut bytes));
        bytes
    }

    #[test]
    fn arp_is_answered_for_the_router_only() {
        let reply = arp(&plan(), &request([10, 0, 2, 2])).unwrap();
        let golden = [
            &[2, 0, 0, 0, 0, 9, 0x52, 0x55, 10, 0, 2, 2, 8, 6][..],
            &[0, 1, 8, 0, 6, 4, 0, 2, 0x52, 0x55, 10, 0, 2, 2, 10, 0, 2, 2],
            &[2, 0, 0, 0, 0, 9, 10, 0, 2, 15],
            &[0; 18],
        ]
        .concat();
        assert_eq!(reply, golden);
        assert!(arp(&plan(), &request([10, 0, 2, 3])).is_some());
        for other in [[10, 0, 2, 15], [10, 0, 2, 16], [10, 0, 2, 255], [8, 8, 8, 8]] {
            assert_eq!(arp(&plan(), &request(other)), None);
        }
    }

    fn solicit(plan: &Plan, from: Ipv6Addr, wanted: Ipv6Addr) -> Option<Vec<u8>> {
        let repr = NdiscRepr::NeighborSolicit { target_addr: wanted, lladdr: None };
        discovery(plan, None, Sender { mac: GUEST, address: from }, &emit(&repr))
    }

    /// Checks the checksum too.
    fn message(frame: &[u8]) -> (Ipv6Addr, Vec<u8>) {
        let ip = Ipv6Packet::new_checked(&frame[14..]).unwrap();
        assert_eq!(ip.hop_limit(), 255);
        let packet = Icmpv6Packet::new_checked(ip.payload()).unwrap();
        let caps = ChecksumCapabilities::default();
        Icmpv6Repr::parse(&ip.src_addr(), &ip.dst_addr(), &packet, &caps).unwrap();
        (ip.dst_addr(), ip.payload().to_vec())
    }

    #[test]
    fn neighbours_are_answered_for_the_router_only() {
        let plan = plan();
        let guest: Ipv6Addr = "fe80::9".parse().unwrap();
        for ours in [Plan::GATEWAY_LINK_LOCAL, plan.gateway6().unwrap(), plan.dns6().unwrap()] {
            let (to, bytes) = message(&solicit(&plan, guest, ours).unwrap());
            assert_eq!((to, bytes[0], bytes[4]), (guest, 136, 0xe0));
            let (to, bytes) = message(&solicit(&plan, Ipv6Addr::UNSPECIFIED, ours).unwrap());
            assert_eq!((to, bytes[4]), (ALL_NODES, 0xa0), "address detection");
        }
        assert_eq!(solicit(&plan, guest, "fe80::7".parse().unwrap()), None);
        assert_eq!(solicit(&Plan::default(), guest, Plan::GATEWAY_LINK_LOCAL), None);
    }

    #[test]
    fn routers_are_advertised() {
        let mut plan = plan();
        let sender = Sender { mac: GUEST, address: Ipv6Addr::UNSPECIFIED };
        let solicit = emit(&NdiscRepr::RouterSolicit { lladdr: None });
        let (to, bytes) = message(&discovery(&plan, None, sender, &solicit).unwrap());
        assert_eq!(to, ALL_NODES);
        let packet = Icmpv6Packet::new_checked(&bytes[..]).unwrap();
        let NdiscRepr::RouterAdvert { mtu, prefix_info, router_lifetime, .. } =
            NdiscRepr::parse(&packet).unwrap()
        else {
            panic!("no advertisement");
        };
        assert_eq!(bytes[5], 0xc0, "managed, other");
        assert_eq!((mtu, router_lifetime), (Some(1500), Duration::from_secs(1800)));
        assert_eq!(prefix_info.unwrap().prefix, plan.prefix6.unwrap().network());
        let dns = [&[25, 3, 0, 0, 0, 0, 7, 8][..], &plan.dns6().unwrap().octets()].concat();
        assert!(bytes.windows(24).any(|part| part == dns), "RDNSS");
        let search = b"\x1f\x03\0\0\0\0\x07\x08\x03lab\x04test\0\0\0\0\0\0\0";
        assert!(bytes.ends_with(search), "DNSSL {bytes:?}");
        plan.routes6 = false;
        let (_, bytes) = message(&advertisement(&plan, None).unwrap());
        assert_eq!(&bytes[6..8], [0, 0], "no router");
        assert_eq!(advertisement(&Plan::default(), None), None);
    }

    proptest! {
        #[test]
        fn anything_is_survived(
            kind in 130..140u8, mut bytes in proptest::collection::vec(any::<u8>(), 0..120),
        ) {
            let plan = plan();
            arp(&plan, &bytes);
            let mut like_arp = request([10, 0, 2, 2]);
            like_arp.iter_mut().zip(&bytes).skip(8).for_each(|(to, from)| *to = *from);
            arp(&plan, &like_arp);
            let sender = Sender { mac: GUEST, address: Ipv6Addr::UNSPECIFIED };
            discovery(&plan, None, sender, &bytes);
            bytes.iter_mut().zip([kind, 0]).for_each(|(to, from)| *to = from);
            discovery(&plan, None, sender, &bytes);
        }
    }
}
