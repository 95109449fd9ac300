//! The head of a guest's packet, taken apart. Nothing here trusts a length that the bytes claim.
//!
//! Limits: untagged frames; IPv6 extension headers are stepped over as far as they were copied.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ringway_net::{ETHERNET_HEADER_LEN, MacAddress, Nanos, destination, source};

use crate::frame::{FRAGMENT, FRAGMENT_HEADER_LEN, IPV4_HEADER_LEN, IPV6_HEADER_LEN};
use crate::frame::{TYPE_ARP, TYPE_IPV4, TYPE_IPV6};
use crate::table::{FlowKey, Guest, Protocol};

/// Bytes of a packet that are copied to judge it.
pub const HEAD_LEN: usize = 256;

/// IPv6 extension headers that are stepped over.
const EXTENSIONS_MAX: usize = 4;

/// The content of a frame.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Carried<'a> {
    Arp(&'a [u8]),
    Ip(Ip<'a>),
}

/// A frame by its head.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Frame<'a> {
    pub destination: MacAddress,
    pub source: MacAddress,
    pub carried: Carried<'a>,
}

/// An IP packet by its head.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ip<'a> {
    pub from: IpAddr,
    pub to: IpAddr,
    pub hops: u8,
    /// It must not be cut on its way (always so in IPv6).
    pub is_whole_only: bool,
    /// It carries only a fragment of a datagram.
    pub fragment: Option<Fragment>,
    pub protocol: u8,
    /// From the IP header on, as far as it was copied.
    pub bytes: &'a [u8],
    /// The payload that it carries, as far as it was copied.
    pub payload: &'a [u8],
    /// Where that begins in the frame, and its length without padding, in bytes.
    pub payload_at: usize,
    pub payload_len: usize,
}

impl<'a> Frame<'a> {
    /// `head`: the first bytes of a packet of `len` bytes. `None`: malformed, or of no interest.
    pub fn parse(head: &'a [u8], len: usize) -> Option<Self> {
        let header: &[u8; ETHERNET_HEADER_LEN] = head.first_chunk()?;
        let head = head.get(..len.min(head.len()))?;
        let inside = head.get(ETHERNET_HEADER_LEN..)?;
        let inside_len = len.checked_sub(ETHERNET_HEADER_LEN)?;
        let carried = match word(header, 12)? {
            TYPE_ARP => Carried::Arp(inside),
            TYPE_IPV4 => Carried::Ip(ipv4(inside, inside_len)?),
            TYPE_IPV6 => Carried::Ip(ipv6(inside, inside_len)?),
            _ => return None,
        };
        Some(Self { destination: destination(header), source: source(header), carried })
    }
}

/// The fragment of a datagram that a packet carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fragment {
    /// The number by which the fragments of one datagram are known.
    pub id: u32,
    /// Where it begins, in bytes.
    pub offset: usize,
    pub has_more: bool,
    /// The datagram's protocol.
    pub protocol: u8,
}

impl Ip<'_> {
    /// Whether all of what it carries was copied.
    pub fn is_all_here(&self) -> bool {
        self.payload.len() == self.payload_len
    }
}

/// An IP packet that came from a guest.
#[derive(Clone, Copy)]
pub(crate) struct Incoming<'a> {
    pub guest: Guest,
    pub mac: MacAddress,
    pub ip: Ip<'a>,
    pub now: Nanos,
}

impl Incoming<'_> {
    /// The key of its flow, by the ports that it names.
    pub fn key(&self, protocol: Protocol, from: u16, to: u16) -> FlowKey {
        let from = SocketAddr::new(self.ip.from, from);
        let to = SocketAddr::new(self.ip.to, to);
        FlowKey { guest: self.guest, protocol, from, to }
    }
}

fn ipv4(bytes: &[u8], len: usize) -> Option<Ip<'_>> {
    const DONT_FRAGMENT: u16 = 0x4000;
    const MORE_FRAGMENTS: u16 = 0x2000;
    const OFFSET: u16 = 0x1fff;
    let version_and_len = *bytes.first()?;
    let header_len = usize::from(version_and_len & 0xf) * 4;
    let total_len = usize::from(word(bytes, 2)?);
    let is_right = version_and_len >> 4 == 4 && header_len >= IPV4_HEADER_LEN;
    if !is_right || total_len < header_len || total_len > len {
        return None;
    }
    let bytes = &bytes[..total_len.min(bytes.len())];
    let (offset, protocol) = (word(bytes, 6)?, *bytes.get(9)?);
    let fragment = Fragment {
        id: word(bytes, 4)?.into(),
        offset: usize::from(offset & OFFSET) * 8,
        has_more: offset & MORE_FRAGMENTS != 0,
        protocol,
    };
    Some(Ip {
        from: Ipv4Addr::from(array::<4>(bytes, 12)?).into(),
        to: Ipv4Addr::from(array::<4>(bytes, 16)?).into(),
        hops: *bytes.get(8)?,
        is_whole_only: offset & DONT_FRAGMENT != 0,
        fragment: Some(fragment).filter(|fragment| fragment.offset > 0 || fragment.has_more),
        protocol,
        bytes,
        payload: bytes.get(header_len..)?,
        payload_at: ETHERNET_HEADER_LEN + header_len,
        payload_len: total_len - header_len,
    })
}

fn ipv6(bytes: &[u8], len: usize) -> Option<Ip<'_>> {
    let total_len = IPV6_HEADER_LEN + usize::from(word(bytes, 4)?);
    if *bytes.first()? >> 4 != 6 || total_len > len {
        return None;
    }
    let bytes = &bytes[..total_len.min(bytes.len())];
    let (mut protocol, mut at) = (*bytes.get(6)?, IPV6_HEADER_LEN);
    let (mut is_whole_only, mut fragment) = (true, None);
    for _ in 0..EXTENSIONS_MAX {
        if protocol == FRAGMENT && fragment.is_none() {
            let found = fragment6(bytes, at)?;
            // A datagram that may be cut, and was not, is one as any other (RFC 6946).
            (is_whole_only, fragment) = (false, Some(found));
            (protocol, at) = (found.protocol, at + FRAGMENT_HEADER_LEN);
            if found.offset > 0 || found.has_more {
                break;
            }
            continue;
        }
        // Hop by hop, routing, destination options.
        if !matches!(protocol, 0 | 43 | 60) {
            break;
        }
        let [next, units] = array(bytes, at)?;
        (protocol, at) = (next, at + (usize::from(units) + 1) * 8);
    }
    Some(Ip {
        from: Ipv6Addr::from(array::<16>(bytes, 8)?).into(),
        to: Ipv6Addr::from(array::<16>(bytes, 24)?).into(),
        hops: *bytes.get(7)?,
        is_whole_only,
        fragment: fragment.filter(|fragment| fragment.offset > 0 || fragment.has_more),
        protocol,
        bytes,
        payload: bytes.get(at..)?,
        payload_at: ETHERNET_HEADER_LEN + at,
        payload_len: total_len.checked_sub(at)?,
    })
}

/// The fragment that its header describes (RFC 8200 §4.5).
fn fragment6(bytes: &[u8], at: usize) -> Option<Fragment> {
    const OFFSET: u16 = 0xfff8;
    let offset = word(bytes, at + 2)?;
    Some(Fragment {
        id: array(bytes, at + 4).map(u32::from_be_bytes)?,
        offset: usize::from(offset & OFFSET),
        has_more: offset & 1 != 0,
        protocol: *bytes.get(at)?,
    })
}

/// A datagram or segment whose beginning an ICMP error quotes: from where to where, and its bytes.
pub(crate) fn quoted(protocol: u8, quote: &[u8]) -> Option<(SocketAddr, SocketAddr, &[u8])> {
    const WITHOUT_OFFSET: u16 = 0x1fff;
    let (from, to, at): (IpAddr, IpAddr, usize) = if *quote.first()? >> 4 == 4 {
        let is_first = word(quote, 6)? & WITHOUT_OFFSET == 0;
        let [from, to] = [array::<4>(quote, 12)?, array(quote, 16)?].map(Ipv4Addr::from);
        let at = usize::from(quote[0] & 0xf) * 4;
        (*quote.get(9)? == protocol && is_first).then_some((from.into(), to.into(), at))?
    } else {
        let [from, to] = [array::<16>(quote, 8)?, array(quote, 24)?].map(Ipv6Addr::from);
        (*quote.get(6)? == protocol).then_some((from.into(), to.into(), IPV6_HEADER_LEN))?
    };
    let ports = (word(quote, at)?, word(quote, at + 2)?);
    Some((SocketAddr::new(from, ports.0), SocketAddr::new(to, ports.1), quote.get(at..)?))
}

/// The big-endian word at that offset.
pub(crate) fn word(bytes: &[u8], at: usize) -> Option<u16> {
    array(bytes, at).map(u16::from_be_bytes)
}

/// The `N` bytes at that offset.
pub(crate) fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}
