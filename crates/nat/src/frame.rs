//! Frames that the router makes itself: short, whole, with complete checksums.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ringway_net::offload::Sum;
use ringway_net::{ETHERNET_HEADER_LEN, MacAddress};

pub(crate) const IPV4_HEADER_LEN: usize = 20;
pub(crate) const IPV6_HEADER_LEN: usize = 40;
pub(crate) const TCP_HEADER_LEN: usize = 20;
pub(crate) const UDP_HEADER_LEN: usize = 8;

pub(crate) const ICMP: u8 = 1;
pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
pub(crate) const ICMPV6: u8 = 58;
/// The header in front of a part of a datagram of IPv6.
pub(crate) const FRAGMENT: u8 = 44;
pub(crate) const FRAGMENT_HEADER_LEN: usize = 8;

pub(crate) const TYPE_IPV4: u16 = 0x0800;
pub(crate) const TYPE_ARP: u16 = 0x0806;
pub(crate) const TYPE_IPV6: u16 = 0x86dd;

/// Shortest frame; shorter ones are filled up with zeros.
const FRAME_LEN_MIN: usize = 60;

const HOPS: u8 = 64;
/// The hop limit of neighbour discovery, as a proof that no router sent it on (RFC 4861 §7.1).
const HOPS_MAX: u8 = 255;

/// From which station to which.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stations {
    pub from: MacAddress,
    pub to: MacAddress,
}

/// Ethernet header and what follows, filled up.
pub(crate) fn ethernet(stations: Stations, ethertype: u16, payload: &[u8]) -> Vec<u8> {
    let len = (ETHERNET_HEADER_LEN + payload.len()).max(FRAME_LEN_MIN);
    let mut frame = Vec::with_capacity(len);
    frame.extend(stations.to.0);
    frame.extend(stations.from.0);
    frame.extend(ethertype.to_be_bytes());
    frame.extend(payload);
    frame.resize(len, 0);
    frame
}

/// A UDP datagram; its addresses are of one family.
pub(crate) fn udp(stations: Stations, from: SocketAddr, to: SocketAddr, payload: &[u8]) -> Vec<u8> {
    let len = low_word(UDP_HEADER_LEN + payload.len());
    let mut datagram = Vec::with_capacity(usize::from(len));
    for word in [from.port(), to.port(), len, 0] {
        datagram.extend(word.to_be_bytes());
    }
    datagram.extend(payload);
    let sum = pseudo_sum(from.ip(), to.ip(), UDP, datagram.len());
    let sum = !sum.add_bytes(&datagram).fold();
    datagram[6..8].copy_from_slice(&if sum == 0 { 0xffff } else { sum }.to_be_bytes());
    packet(stations, from.ip(), to.ip(), UDP, &datagram)
}

/// An IP packet around that payload; its addresses are of one family.
pub(crate) fn packet(
    stations: Stations,
    from: IpAddr,
    to: IpAddr,
    protocol: u8,
    payload: &[u8],
) -> Vec<u8> {
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let header = ipv4_header(from, to, protocol, payload.len());
            ethernet(stations, TYPE_IPV4, &[&header, payload].concat())
        }
        (from, to) => {
            let mut header = ipv6_header(to_ipv6(from), to_ipv6(to), protocol, payload.len());
            header[7] = if protocol == ICMPV6 { HOPS_MAX } else { HOPS };
            ethernet(stations, TYPE_IPV6, &[&header, payload].concat())
        }
    }
}

/// Bytes of a header without options.
pub(crate) const fn ip_header_len(is_ipv4: bool) -> usize {
    if is_ipv4 { IPV4_HEADER_LEN } else { IPV6_HEADER_LEN }
}

/// As an address of IPv6, which it is already where the other end's is one.
pub(crate) fn to_ipv6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

/// An ICMP message of the family of its addresses, whose checksum is filled in here.
pub(crate) fn icmp(stations: Stations, from: IpAddr, to: IpAddr, mut message: Vec<u8>) -> Vec<u8> {
    let (protocol, sum) = match from {
        IpAddr::V4(_) => (ICMP, Sum::default()),
        IpAddr::V6(_) => (ICMPV6, pseudo_sum(from, to, ICMPV6, message.len())),
    };
    message[2..4].fill(0);
    let sum = !sum.add_bytes(&message).fold();
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    packet(stations, from, to, protocol, &message)
}

/// A header without options, in front of so many bytes.
pub(crate) fn ipv4_header(
    from: Ipv4Addr,
    to: Ipv4Addr,
    protocol: u8,
    payload_len: usize,
) -> [u8; IPV4_HEADER_LEN] {
    let mut header = [0; IPV4_HEADER_LEN];
    header[0] = 0x45;
    header[2..4].copy_from_slice(&low_word(IPV4_HEADER_LEN + payload_len).to_be_bytes());
    // Never cut: so no number is needed to put it together again (RFC 6864).
    header[6] = 0x40;
    header[8] = HOPS;
    header[9] = protocol;
    header[12..16].copy_from_slice(&from.octets());
    header[16..20].copy_from_slice(&to.octets());
    let sum = !Sum::default().add_bytes(&header).fold();
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    header
}

/// A header in front of so many bytes.
pub(crate) fn ipv6_header(
    from: Ipv6Addr,
    to: Ipv6Addr,
    protocol: u8,
    payload_len: usize,
) -> [u8; IPV6_HEADER_LEN] {
    let mut header = [0; IPV6_HEADER_LEN];
    header[0] = 0x60;
    header[4..6].copy_from_slice(&low_word(payload_len).to_be_bytes());
    header[6] = protocol;
    header[7] = HOPS;
    header[8..24].copy_from_slice(&from.octets());
    header[24..40].copy_from_slice(&to.octets());
    header
}

/// Sum of the pseudo header of a packet with so many bytes behind its IP header.
pub(crate) fn pseudo_sum(from: IpAddr, to: IpAddr, protocol: u8, len: usize) -> Sum {
    let sum = match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            Sum::default().add_bytes(&from.octets()).add_bytes(&to.octets())
        }
        (from, to) => {
            let [from, to] = [from, to].map(to_ipv6);
            Sum::default().add_bytes(&from.octets()).add_bytes(&to.octets())
        }
    };
    sum.add_word(u16::from(protocol)).add_word(low_word(len))
}

/// A length that fits, because packets are shorter than 64 KiB.
pub(crate) fn low_word(len: usize) -> u16 {
    u16::try_from(len).unwrap_or(u16::MAX)
}
