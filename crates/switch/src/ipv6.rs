//! The content of an IPv6 packet, behind its extension headers (RFC 8200 §4).

use crate::frame::{array, word};

/// Extension headers that are stepped over.
const HEADERS_MAX: usize = 4;
const HEADER_LEN: usize = 40;

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DESTINATION: u8 = 60;

/// The content of a packet.
pub(crate) struct Upper<'a> {
    pub protocol: u8,
    /// Its bytes, as far as they were copied.
    pub bytes: &'a [u8],
    /// Where they begin, counted from the start of the IP header.
    pub at: usize,
    /// One of several fragments.
    pub is_fragment: bool,
    /// Begins with the header of the protocol: not a later fragment.
    pub is_first: bool,
}

/// `None`: not IPv6, or its headers go on behind what was copied, or there are too many.
pub(crate) fn upper(ip: &[u8]) -> Option<Upper<'_>> {
    if *ip.first()? >> 4 != 6 {
        return None;
    }
    let mut protocol = *ip.get(6)?;
    // The bytes behind the packet are padding.
    let end = HEADER_LEN + usize::from(word(ip, 4)?);
    let mut bytes = ip.get(HEADER_LEN..end.min(ip.len()))?;
    let end = HEADER_LEN + bytes.len();
    let mut is_fragment = false;
    for _ in 0..=HEADERS_MAX {
        let len = match protocol {
            HOP_BY_HOP | ROUTING | DESTINATION => (usize::from(*bytes.get(1)?) + 1) * 8,
            FRAGMENT => 8,
            _ => {
                let at = end - bytes.len();
                return Some(Upper { protocol, bytes, at, is_fragment, is_first: true });
            }
        };
        let [next, _] = array(bytes, 0)?;
        if protocol == FRAGMENT {
            is_fragment = true;
            if word(bytes, 2)? >> 3 != 0 {
                let bytes = bytes.get(len..)?;
                let at = end - bytes.len();
                return Some(Upper { protocol: next, bytes, at, is_fragment, is_first: false });
            }
        }
        protocol = next;
        bytes = bytes.get(len..)?;
    }
    None
}
