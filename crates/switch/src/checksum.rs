//! Whether the checksum that a sender leaves to its receivers can change what was judged.
//!
//! A partial checksum (virtio 1.2 §5.1.6.2) is written into the packet after everything has been
//! decided about it, to a place of the sender's choice, with a value that the sender can choose
//! too. So that place must be where no judgement looks: in a TCP or UDP header, or behind the
//! outermost transport header, where tunnels have theirs.
//!
//! Limits: what is not in the first [`PEEK_LEN`] bytes was not judged, so it may be anything.

use ringway_net::NetHeader;

use crate::PEEK_LEN;
use crate::frame::{ARP, Frame, IPV4, IPV6, RARP, word};
use crate::ipv6;

const ICMP: u8 = 1;
const IGMP: u8 = 2;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;

const IPV4_HEADER_LEN_MIN: usize = 20;
/// Where the two have their checksum (RFC 9293 §3.1, RFC 768).
const TCP_CSUM_OFFSET: usize = 16;
const UDP_CSUM_OFFSET: usize = 6;
const UDP_HEADER_LEN: usize = 8;

/// Whether the checksum that `header` asks for, if any, leaves alone what was judged. `head` is a
/// copy of the packet's first [`PEEK_LEN`] bytes, or of all if it is shorter.
pub fn spares_judged(head: &[u8], header: &NetHeader) -> bool {
    if !header.needs_csum() {
        return true;
    }
    let (start, offset) = (usize::from(header.csum_start), usize::from(header.csum_offset));
    start >= PEEK_LEN || is_in_transport(head, start, offset).unwrap_or(false)
}

/// `None`: the headers are not there.
fn is_in_transport(head: &[u8], start: usize, offset: usize) -> Option<bool> {
    let frame = Frame::parse(head)?;
    let payload_at = head.len() - frame.payload.len();
    let (protocol, header_len) = match frame.ethertype? {
        ARP | RARP => return None,
        IPV4 => behind_ipv4(frame.payload)?,
        IPV6 => behind_ipv6(frame.payload)?,
        // Nothing behind the tags was looked at.
        _ => return Some(start >= payload_at),
    };
    let transport_at = payload_at + header_len;
    Some(match protocol {
        TCP => start == transport_at && offset == TCP_CSUM_OFFSET,
        UDP if start == transport_at => offset == UDP_CSUM_OFFSET,
        UDP => start >= transport_at + UDP_HEADER_LEN,
        // Snooping and locked addresses read these, and their senders complete them.
        ICMP | IGMP | ICMPV6 => false,
        _ => start >= transport_at,
    })
}

/// Protocol, and bytes in front of its header. A fragment has no checksum to be completed.
fn behind_ipv4(ip: &[u8]) -> Option<(u8, usize)> {
    const MORE_FRAGMENTS_OR_OFFSET: u16 = 0x3fff;
    let version_and_len = *ip.first()?;
    let header_len = usize::from(version_and_len & 0xf) * 4;
    let is_whole = word(ip, 6)? & MORE_FRAGMENTS_OR_OFFSET == 0;
    let is_right = version_and_len >> 4 == 4 && header_len >= IPV4_HEADER_LEN_MIN && is_whole;
    Some((*ip.get(9)?, header_len)).filter(|_| is_right)
}

fn behind_ipv6(ip: &[u8]) -> Option<(u8, usize)> {
    let upper = ipv6::upper(ip)?;
    (!upper.is_fragment).then_some((upper.protocol, upper.at))
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use ringway_net::NEEDS_CSUM;

    use super::*;
    use crate::frame::TPID;

    /// Where among the first 120 bytes a checksum may be, with each of the two offsets.
    fn places(packet: &[u8]) -> [Vec<u16>; 2] {
        [16, 6].map(|csum_offset| {
            let header = |csum_start| NetHeader {
                flags: NEEDS_CSUM,
                csum_start,
                csum_offset,
                ..NetHeader::default()
            };
            (0..120).filter(|start| spares_judged(packet, &header(*start))).collect()
        })
    }

    fn packet(types: &[u16], rest: &[u8]) -> Vec<u8> {
        let mut bytes = std::vec![2; 12];
        bytes.extend(types.iter().flat_map(|word| word.to_be_bytes()));
        bytes.extend(rest);
        bytes.resize(200, 0);
        bytes
    }

    fn ipv4(protocol: u8, fragment: u8) -> [u8; 24] {
        let mut header = [0; 24];
        (header[0], header[6], header[9]) = (0x46, fragment, protocol);
        header
    }

    fn ipv6(next: &[u8]) -> Vec<u8> {
        let mut header = std::vec![0; 40];
        (header[0], header[5], header[6]) = (0x60, 146, next[0]);
        for following in &next[1..] {
            header.extend([*following, 0, 0, 0, 0, 0, 0, 0]);
        }
        header
    }

    #[test]
    fn a_checksum_is_completed_only_where_it_was_not_judged() {
        let from = |at: u16| (at..120).collect::<Vec<u16>>();
        let nowhere = || [Vec::new(), Vec::new()];
        assert_eq!(places(&packet(&[IPV4], &ipv4(TCP, 0))), [std::vec![38], Vec::new()]);
        assert_eq!(places(&packet(&[TPID, 5, IPV4], &ipv4(TCP, 0)))[0], [42]);
        let tunnel = from(46);
        let udp = [&[38][..], &tunnel].concat();
        assert_eq!(places(&packet(&[IPV4], &ipv4(UDP, 0))), [tunnel, udp]);
        let gre = 47;
        assert_eq!(places(&packet(&[IPV4], &ipv4(gre, 0))), [from(38), from(38)]);
        assert_eq!(places(&packet(&[IPV6], &ipv6(&[0, TCP]))), [std::vec![62], Vec::new()]);
        for refused in [
            packet(&[ARP], &[]),
            packet(&[IPV4], &ipv4(TCP, 0x20)),
            packet(&[IPV4], &ipv4(ICMP, 0)),
            packet(&[IPV4], &ipv4(IGMP, 0)),
            packet(&[IPV4], &ipv6(&[TCP])),
            packet(&[IPV6], &ipv6(&[44, TCP])),
            packet(&[IPV6], &ipv6(&[60, ICMPV6])),
            packet(&[TPID, 5, TPID, 6, TPID, 7, IPV4], &ipv4(TCP, 0)),
        ] {
            assert_eq!(places(&refused), nowhere(), "{:?}", &refused[12..24]);
        }
        // Unknown to every judgement but for its Ethernet header.
        assert_eq!(places(&packet(&[0x8864], &[]))[0], from(14));
        let far = NetHeader { flags: NEEDS_CSUM, csum_start: 256, ..NetHeader::default() };
        assert!(spares_judged(&packet(&[ARP], &[]), &far));
        assert!(spares_judged(&packet(&[ARP], &[]), &NetHeader::default()));
    }
}
