//! The first bytes of a packet, taken apart. Nothing here trusts a length that the bytes claim.

use ringway_net::{ETHERNET_HEADER_LEN, MacAddress};

use crate::vlan::{Vlan, VlanId};

/// Bytes of a packet that are copied to judge it; what lies behind them is never looked at.
pub const PEEK_LEN: usize = 256;

/// A customer tag (IEEE 802.1Q).
pub(crate) const TPID: u16 = 0x8100;
/// A service tag (IEEE 802.1ad).
pub(crate) const TPID_SERVICE: u16 = 0x88a8;
pub(crate) const ARP: u16 = 0x0806;
pub(crate) const RARP: u16 = 0x8035;
pub(crate) const IPV4: u16 = 0x0800;
pub(crate) const IPV6: u16 = 0x86dd;

/// Tags that are stepped over to find what a packet carries.
const TAGS_MAX: usize = 2;
const TYPE_AT: usize = 12;
const TAG_LEN: usize = 4;
const VLAN_MASK: u16 = 0x0fff;

/// A packet by its first bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Frame<'a> {
    pub destination: MacAddress,
    pub source: MacAddress,
    /// Priority and VLAN of the first tag, if it is a customer tag.
    pub tci: Option<u16>,
    /// A tag of either kind follows the first tag, or is a service tag itself.
    pub has_more_tags: bool,
    /// The type behind all tags; `None`: too many tags, or cut off.
    pub ethertype: Option<u16>,
    /// The bytes behind it, as far as they were copied.
    pub payload: &'a [u8],
}

impl<'a> Frame<'a> {
    /// `None`: shorter than an Ethernet header.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let header: &[u8; ETHERNET_HEADER_LEN] = bytes.first_chunk()?;
        let first = word(bytes, TYPE_AT)?;
        let tci = if first == TPID { Some(word(bytes, TYPE_AT + 2)?) } else { None };
        let second = word(bytes, TYPE_AT + TAG_LEN);
        let has_more_tags = first == TPID_SERVICE || tci.is_some() && second.is_some_and(is_tag);
        let (ethertype, payload) = carried(bytes);
        Some(Self {
            destination: ringway_net::destination(header),
            source: ringway_net::source(header),
            tci,
            has_more_tags,
            ethertype,
            payload,
        })
    }

    /// The VLAN of the first tag; `None` without one, or if it only carries a priority.
    pub fn vlan(&self) -> Option<VlanId> {
        self.tci.and_then(|tci| VlanId::new(tci & VLAN_MASK))
    }

    /// The number 4095 is reserved.
    pub fn has_bad_tag(&self) -> bool {
        self.tci.is_some_and(|tci| tci & VLAN_MASK > VlanId::MAX)
    }
}

impl Vlan {
    /// The VLAN of a packet from this port; `None`: it may not send such packets.
    pub(crate) fn admit(&self, frame: &Frame<'_>) -> Option<VlanId> {
        // A packet inside a service tag would get past every check.
        let is_service = frame.tci.is_none() && frame.has_more_tags;
        match self {
            Self::None => Some(VlanId::NONE),
            _ if is_service || frame.has_bad_tag() => None,
            // A tag behind one without a VLAN would count, once that one is gone.
            _ if frame.vlan().is_none() && frame.has_more_tags => None,
            Self::Access(vlan) => frame.vlan().is_none().then_some(*vlan),
            Self::Trunk { tagged, native } => match frame.vlan() {
                None => *native,
                Some(vlan) => tagged.contains(vlan).then_some(vlan),
            },
        }
    }
}

/// The type and payload of a packet behind at most [`TAGS_MAX`] tags.
fn carried(bytes: &[u8]) -> (Option<u16>, &[u8]) {
    let mut at = TYPE_AT;
    for _ in 0..=TAGS_MAX {
        match word(bytes, at) {
            Some(tag) if is_tag(tag) => at += TAG_LEN,
            Some(ethertype) => return (Some(ethertype), bytes.get(at + 2..).unwrap_or(&[])),
            None => break,
        }
    }
    (None, &[])
}

fn is_tag(ethertype: u16) -> bool {
    matches!(ethertype, TPID | TPID_SERVICE)
}

/// The big-endian word at that offset.
pub(crate) fn word(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|pair| u16::from_be_bytes(*pair))
}

/// The `N` bytes at that offset.
pub(crate) fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    fn frame(types: &[u16]) -> Vec<u8> {
        let mut bytes = [[2; 6], [4; 6]].concat();
        bytes.extend(types.iter().flat_map(|word| word.to_be_bytes()));
        bytes
    }

    #[test]
    fn tags_are_told_from_what_they_carry() {
        let bytes = frame(&[IPV4, 0x4500]);
        let plain = Frame::parse(&bytes).unwrap();
        assert_eq!((plain.tci, plain.ethertype, plain.payload.len()), (None, Some(IPV4), 2));
        let bytes = frame(&[TPID, 0x2005, IPV6]);
        let tagged = Frame::parse(&bytes).unwrap();
        assert_eq!((tagged.vlan(), tagged.ethertype), (VlanId::new(5), Some(IPV6)));
        assert!(!tagged.has_more_tags && !plain.has_more_tags);
        let bytes = frame(&[TPID, 5, TPID_SERVICE, 6, ARP]);
        let twice = Frame::parse(&bytes).unwrap();
        assert!(twice.has_more_tags && twice.ethertype == Some(ARP));
        let bytes = frame(&[TPID, 5, TPID, 6, TPID, 7, IPV4]);
        assert_eq!(Frame::parse(&bytes).unwrap().ethertype, None);
        let bytes = frame(&[TPID, 0xffff, IPV4]);
        assert!(Frame::parse(&bytes).unwrap().has_bad_tag());
    }

    #[test]
    fn every_cut_is_survived() {
        let bytes = frame(&[TPID, 5, TPID, 6, IPV4, 0x4500]);
        for len in 0..bytes.len() {
            let frame = Frame::parse(&bytes[..len]);
            assert_eq!(frame.is_some(), len >= 16, "{len}");
        }
    }
}
