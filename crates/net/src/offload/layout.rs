//! Where the headers of an unsegmented packet are.
//!
//! How: Ethernet, VLAN tags, IPv4 or IPv6 with extension headers, TCP or UDP are walked in private
//! memory, each field checked against the bytes that are there. What the sender says in
//! `csum_start` and `csum_offset` must agree with what is found; `hdr_len` and the lengths in the
//! IP header are not looked at: the packet's own length counts, as in Linux.
//!
//! Limits: [`VLAN_TAGS_MAX`] tags, [`EXTENSIONS_MAX`] extension headers, [`HEADERS_LEN_MAX`] bytes
//! of headers. Tunnels are not looked into.

use crate::{ETHERNET_HEADER_LEN, GsoType, NetHeader};

/// Most bytes of headers in front of a payload: 22 of Ethernet with two VLAN tags, 40 of IPv6,
/// 60 of TCP, and 134 for extension headers.
pub(crate) const HEADERS_LEN_MAX: usize = 256;

/// Most VLAN tags of a packet.
const VLAN_TAGS_MAX: usize = 2;

/// Most extension headers of an IPv6 packet.
const EXTENSIONS_MAX: usize = 8;

const ETHER_TYPE_IPV4: u16 = 0x0800;
const ETHER_TYPE_IPV6: u16 = 0x86dd;
/// IEEE 802.1Q, 802.1ad.
const VLAN_TAGS: [u16; 2] = [0x8100, 0x88a8];
const VLAN_TAG_LEN: usize = 4;

const IPV4_HEADER_LEN_MIN: usize = 20;
const IPV6_HEADER_LEN: usize = 40;
const TCP_HEADER_LEN_MIN: usize = 20;
const UDP_HEADER_LEN: usize = 8;

/// Protocol numbers, which in IPv6 are also those of extension headers.
pub(crate) const TCP: u8 = 6;
const UDP: u8 = 17;
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const DESTINATION_OPTIONS: u8 = 60;

/// Version of the internet protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IpVersion {
    Ipv4,
    Ipv6,
}

/// The transport protocol that is segmented.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    Tcp,
    Udp,
}

impl Transport {
    /// Where in the header the checksum is (RFC 9293 §3.1, RFC 768).
    pub(crate) fn csum_offset(self) -> usize {
        match self {
            Self::Tcp => 16,
            Self::Udp => 6,
        }
    }
}

/// Offsets in bytes from the packet's start. All headers are inside the packet, and the payload
/// begins at most [`HEADERS_LEN_MAX`] bytes behind its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) version: IpVersion,
    pub(crate) transport: Transport,
    pub(crate) network_at: usize,
    pub(crate) transport_at: usize,
    pub(crate) payload_at: usize,
}

impl Layout {
    /// Finds the headers; `None`: they are not there, or not what `header` says.
    pub(crate) fn find(header: &NetHeader, bytes: &[u8]) -> Option<Self> {
        let Carried { version, network_at, protocol, transport_at } = Carried::find(bytes)?;
        let transport = match (header.gso()?, version) {
            (GsoType::TcpV4, IpVersion::Ipv4) | (GsoType::TcpV6, IpVersion::Ipv6) => Transport::Tcp,
            (GsoType::UdpL4, _) => Transport::Udp,
            _ => return None,
        };
        let (expected, transport_len) = match transport {
            Transport::Tcp => (TCP, tcp_header_len(bytes, transport_at)?),
            Transport::Udp => (UDP, UDP_HEADER_LEN),
        };
        let payload_at = transport_at + transport_len;
        let is_told_right = usize::from(header.csum_start) == transport_at
            && usize::from(header.csum_offset) == transport.csum_offset();
        let is_inside = payload_at <= bytes.len() && payload_at <= HEADERS_LEN_MAX;
        if protocol != expected || !is_told_right || !is_inside {
            return None;
        }
        Some(Self { version, transport, network_at, transport_at, payload_at })
    }
}

/// The content of an IP packet, and its place: offsets in bytes from the packet's start. The
/// transport header need not be inside the packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Carried {
    pub(crate) version: IpVersion,
    pub(crate) network_at: usize,
    pub(crate) protocol: u8,
    pub(crate) transport_at: usize,
}

impl Carried {
    /// `None`: no whole header of IPv4 or IPv6, or a fragment.
    pub(crate) fn find(bytes: &[u8]) -> Option<Self> {
        let (ether_type, network_at) = skip_vlan_tags(bytes)?;
        let (version, (protocol, transport_at)) = match ether_type {
            ETHER_TYPE_IPV4 => (IpVersion::Ipv4, skip_ipv4(bytes, network_at)?),
            ETHER_TYPE_IPV6 => (IpVersion::Ipv6, skip_ipv6(bytes, network_at)?),
            _ => return None,
        };
        Some(Self { version, network_at, protocol, transport_at })
    }

    /// Where the packet ends by the length in its IP header: a frame may be padded behind it.
    pub(crate) fn end(&self, bytes: &[u8]) -> Option<usize> {
        let (begins_at, len_at) = match self.version {
            IpVersion::Ipv4 => (self.network_at, 2),
            IpVersion::Ipv6 => (self.network_at + IPV6_HEADER_LEN, 4),
        };
        Some(begins_at + usize::from(word(bytes, self.network_at + len_at)?))
    }
}

fn skip_vlan_tags(bytes: &[u8]) -> Option<(u16, usize)> {
    let mut at = ETHERNET_HEADER_LEN;
    for _ in 0..=VLAN_TAGS_MAX {
        let ether_type = word(bytes, at - 2)?;
        if !VLAN_TAGS.contains(&ether_type) {
            return Some((ether_type, at));
        }
        at += VLAN_TAG_LEN;
    }
    None
}

/// Protocol and end of the header (RFC 791 §3.1). A fragment has no transport header of its own.
fn skip_ipv4(bytes: &[u8], at: usize) -> Option<(u8, usize)> {
    const MORE_FRAGMENTS_OR_OFFSET: u16 = 0x3fff;
    let header: &[u8; IPV4_HEADER_LEN_MIN] = bytes.get(at..)?.first_chunk()?;
    let len = usize::from(header[0] & 0x0f) * 4;
    let is_fragment = u16::from_be_bytes([header[6], header[7]]) & MORE_FRAGMENTS_OR_OFFSET != 0;
    if header[0] >> 4 != 4 || len < IPV4_HEADER_LEN_MIN || is_fragment {
        return None;
    }
    Some((header[9], at + len))
}

/// Protocol and end of the headers (RFC 8200 §4).
fn skip_ipv6(bytes: &[u8], at: usize) -> Option<(u8, usize)> {
    let header: &[u8; IPV6_HEADER_LEN] = bytes.get(at..)?.first_chunk()?;
    if header[0] >> 4 != 6 {
        return None;
    }
    let (mut next, mut at) = (header[6], at + IPV6_HEADER_LEN);
    for _ in 0..=EXTENSIONS_MAX {
        if ![HOP_BY_HOP, ROUTING, DESTINATION_OPTIONS].contains(&next) {
            return Some((next, at));
        }
        let extension: &[u8; 2] = bytes.get(at..)?.first_chunk()?;
        next = extension[0];
        at += (usize::from(extension[1]) + 1) * 8;
    }
    None
}

/// The data offset of RFC 9293 §3.1, in bytes.
pub(crate) fn tcp_header_len(bytes: &[u8], at: usize) -> Option<usize> {
    let header: &[u8; TCP_HEADER_LEN_MIN] = bytes.get(at..)?.first_chunk()?;
    let len = usize::from(header[12] >> 4) * 4;
    (len >= TCP_HEADER_LEN_MIN).then_some(len)
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|word| u16::from_be_bytes(*word))
}
