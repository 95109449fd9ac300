//! Finds packets that are requests: their sender may wait for an answer.
//!
//! A TCP segment that carries only an acknowledgement is never answered, and a stream brings
//! thousands of them; long packets come in streams themselves. Everything else may be a ping or a
//! request.
//!
//! Limits: what is not IP, or has headers that are not understood, counts as a request; so do
//! acknowledgements inside UDP or a tunnel.

use crate::offload::layout::{Carried, HEADERS_LEN_MAX, TCP, tcp_header_len};
use crate::{LONG_LEN, Packet};

/// Where the flags are in a TCP header, and those by which a segment is more than what it carries
/// (RFC 9293 §3.1).
const FLAGS_AT: usize = 13;
const FIN_SYN_RST: u8 = 0b111;

/// Whether the packet's sender may wait for an answer to it.
///
/// Reads its headers once, for no other use: the sender may change them at any time.
pub fn is_request(packet: &Packet<'_>) -> bool {
    if packet.len >= LONG_LEN {
        return false;
    }
    let mut head = [0; HEADERS_LEN_MAX];
    // The room that it lies in may be longer.
    let len = HEADERS_LEN_MAX.min(packet.len as usize);
    let len = packet.copy_out(&mut head[..len]);
    !only_acknowledges(&head[..len]).unwrap_or(false)
}

/// Of a TCP segment.
fn only_acknowledges(bytes: &[u8]) -> Option<bool> {
    let carried = Carried::find(bytes).filter(|carried| carried.protocol == TCP)?;
    let payload_at = carried.transport_at + tcp_header_len(bytes, carried.transport_at)?;
    let flags = bytes.get(carried.transport_at + FLAGS_AT)?;
    Some(flags & FIN_SYN_RST == 0 && payload_at >= carried.end(bytes)?)
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    const ACK: u8 = 0x10;
    const SYN: u8 = 0x02;
    const TIMESTAMPS: usize = 12;

    /// Ethernet (with a VLAN tag or not), IPv4 or IPv6, TCP with options, and payload.
    fn segment(is_tagged: bool, is_v6: bool, options: usize, flags: u8, payload: usize) -> Vec<u8> {
        let mut bytes = std::vec![0; 12];
        if is_tagged {
            bytes.extend([0x81, 0, 0, 7]);
        }
        let tcp_len = u8::try_from(20 + options + payload).unwrap();
        match is_v6 {
            false => {
                bytes.extend([8, 0, 0x45, 0, 0, 20 + tcp_len, 0, 0, 0, 0, 64, TCP]);
                bytes.extend([0; 10]);
            }
            true => {
                bytes.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, tcp_len, TCP, 64]);
                bytes.extend([0; 32]);
            }
        }
        let words = u8::try_from((20 + options) / 4).unwrap();
        bytes.extend([0; 12]);
        bytes.extend([words << 4, flags]);
        bytes.extend(std::iter::repeat_n(0, 6 + options + payload));
        bytes
    }

    fn acknowledges(bytes: &[u8]) -> bool {
        only_acknowledges(bytes) == Some(true)
    }

    #[test]
    fn acknowledgements_are_no_requests() {
        for (is_tagged, is_v6) in [(false, false), (false, true), (true, false), (true, true)] {
            for options in [0, TIMESTAMPS, 40] {
                let mut bytes = segment(is_tagged, is_v6, options, ACK, 0);
                assert!(acknowledges(&bytes));
                // As short frames are on a wire.
                bytes.extend([0; 6]);
                assert!(acknowledges(&bytes));
                assert!(!acknowledges(&segment(is_tagged, is_v6, options, ACK, 1)));
                assert!(!acknowledges(&segment(is_tagged, is_v6, options, ACK | SYN, 0)));
            }
        }
    }

    #[test]
    fn whatever_is_not_understood_is_a_request() {
        let bytes = segment(false, false, TIMESTAMPS, ACK, 0);
        for len in 0..bytes.len() - TIMESTAMPS {
            assert_eq!(only_acknowledges(&bytes[..len]), None, "cut at {len}");
        }
        let change = |at: usize, value: u8| {
            let mut bytes = bytes.clone();
            bytes[at] = value;
            acknowledges(&bytes)
        };
        assert!(!change(13, 6), "ARP");
        assert!(!change(14 + 9, 1), "a ping");
        assert!(!change(14 + 9, 17), "UDP");
        assert!(!change(14 + 6, 0x20), "a fragment");
        assert!(!change(14 + 20 + 12, 0x40), "a header of four words");
    }
}
