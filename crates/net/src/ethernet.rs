//! The first bytes of every packet: the Ethernet header.

use crate::MacAddress;

/// Bytes of an Ethernet header without VLAN tag: destination, source, type.
pub const ETHERNET_HEADER_LEN: usize = 14;

/// Where a packet with that header goes.
#[inline]
pub fn destination(header: &[u8; ETHERNET_HEADER_LEN]) -> MacAddress {
    let [a, b, c, d, e, f, ..] = *header;
    MacAddress([a, b, c, d, e, f])
}

/// Where a packet with that header comes from.
#[inline]
pub fn source(header: &[u8; ETHERNET_HEADER_LEN]) -> MacAddress {
    let [_, _, _, _, _, _, a, b, c, d, e, f, ..] = *header;
    MacAddress([a, b, c, d, e, f])
}
