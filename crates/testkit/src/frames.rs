//! Test packets: real Ethernet, ARP, IPv4, ICMP, UDP and TCP headers around contents that can be
//! verified by their receiver.
//!
//! How: the payload of a stamped packet starts with a flow number and a sequence number; every
//! further byte follows from these two. A receiver that calls [`read_stamp`] therefore proves that
//! every byte arrived as it was sent.
//!
//! Limits: IPv4 only; lengths up to 65549 bytes (64 KiB of IP packet behind an Ethernet header).

use ringway_net::NetHeader;

use crate::rng::Rng;

/// A hardware address.
pub type Mac = [u8; 6];

/// The address all hardware addresses listen to.
pub const BROADCAST: Mac = [0xff; 6];

const ETHERNET_LEN: usize = 14;
const IPV4_LEN: usize = 20;
const UDP_LEN: usize = 8;
const TCP_LEN: usize = 20;
const STAMP_LEN: usize = 16;

/// Shortest stamped packet in bytes.
pub const STAMPED_LEN_MIN: usize = ETHERNET_LEN + IPV4_LEN + TCP_LEN + STAMP_LEN;
/// Longest stamped packet in bytes.
pub const STAMPED_LEN_MAX: usize = ETHERNET_LEN + 65_535;

/// The sender and the receiver of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    /// Sender.
    pub from: Mac,
    /// Receiver.
    pub to: Mac,
}

/// The flow and number that a stamped packet carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// The stream of packets.
    pub flow: u64,
    /// The number of the packet in it.
    pub sequence: u64,
}

/// A stamped UDP packet of `len` bytes in all, with its checksum left out (0, as UDP allows).
pub fn udp(link: Link, stamp: Stamp, len: usize) -> Vec<u8> {
    assert!((STAMPED_LEN_MIN..=STAMPED_LEN_MAX).contains(&len), "{len} bytes");
    let mut packet = ethernet(link, 0x0800);
    packet.extend(ipv4(17, len - ETHERNET_LEN));
    // Each flow is a conversation of its own, for a receiver that spreads packets by that.
    packet.extend(7_u16.wrapping_add(stamp.flow.to_le_bytes()[0].into()).to_be_bytes());
    packet.extend(9_u16.to_be_bytes());
    packet.extend(be16(len - ETHERNET_LEN - IPV4_LEN));
    packet.extend([0, 0]);
    write_payload(&mut packet, stamp, len);
    packet
}

/// A stamped TCP packet of `len` bytes in all that the receiver, or a hop on the way, has to cut
/// into segments of `segment_len` bytes of payload; with the header that says so.
pub fn tcp_large(link: Link, stamp: Stamp, len: usize, segment_len: u16) -> (NetHeader, Vec<u8>) {
    assert!((STAMPED_LEN_MIN..=STAMPED_LEN_MAX).contains(&len), "{len} bytes");
    let mut packet = ethernet(link, 0x0800);
    packet.extend(ipv4(6, len - ETHERNET_LEN));
    let mut tcp = [0; TCP_LEN];
    tcp[..4].copy_from_slice(&[0, 7, 0, 9]);
    tcp[12] = 5 << 4;
    tcp[13] = 0x10; // ACK
    tcp[14..16].copy_from_slice(&0xffff_u16.to_be_bytes());
    let pseudo = pseudo_header(&packet[ETHERNET_LEN..], 6, len - ETHERNET_LEN - IPV4_LEN);
    tcp[16..18].copy_from_slice(&(!checksum(&pseudo)).to_be_bytes());
    packet.extend(tcp);
    write_payload(&mut packet, stamp, len);
    let header = NetHeader {
        flags: 1,    // NEEDS_CSUM
        gso_type: 1, // TCPV4
        hdr_len: 54,
        gso_size: segment_len,
        csum_start: 34,
        csum_offset: 16,
        num_buffers: 0,
    };
    (header, packet)
}

/// Reads the stamp of a packet made by [`udp`] or [`tcp_large`] and checks every payload byte.
pub fn read_stamp(packet: &[u8]) -> Option<Stamp> {
    let protocol = *packet.get(ETHERNET_LEN + 9)?;
    let transport_len = if protocol == 6 { TCP_LEN } else { UDP_LEN };
    let payload = packet.get(ETHERNET_LEN + IPV4_LEN + transport_len..)?;
    let word = |at: usize| Some(u64::from_le_bytes(payload.get(at..at + 8)?.try_into().ok()?));
    let stamp = Stamp { flow: word(0)?, sequence: word(8)? };
    let rest = &payload[STAMP_LEN..];
    let mut expected = vec![0; rest.len()];
    contents(stamp).fill(&mut expected);
    let total_len = packet.get(ETHERNET_LEN + 2..ETHERNET_LEN + 4)?;
    (rest == expected && total_len == be16(packet.len() - ETHERNET_LEN)).then_some(stamp)
}

/// An ARP request: who has `wanted`, tell `sender`.
pub fn arp_request(from: Mac, sender: [u8; 4], wanted: [u8; 4]) -> Vec<u8> {
    let mut packet = ethernet(Link { from, to: BROADCAST }, 0x0806);
    packet.extend([0, 1, 8, 0, 6, 4, 0, 1]);
    packet.extend(from);
    packet.extend(sender);
    packet.extend([0; 6]);
    packet.extend(wanted);
    packet
}

/// The internet checksum (RFC 1071) of some bytes.
pub fn checksum(bytes: &[u8]) -> u16 {
    let mut sum = 0_u64;
    for pair in bytes.chunks(2) {
        sum += u64::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap_or(0)
}

fn ethernet(link: Link, kind: u16) -> Vec<u8> {
    let mut packet = Vec::with_capacity(64);
    packet.extend(link.to);
    packet.extend(link.from);
    packet.extend(kind.to_be_bytes());
    packet
}

fn ipv4(protocol: u8, total_len: usize) -> [u8; IPV4_LEN] {
    let mut header = [0; IPV4_LEN];
    header[0] = 0x45;
    header[2..4].copy_from_slice(&be16(total_len));
    header[8] = 64;
    header[9] = protocol;
    header[12..16].copy_from_slice(&[10, 0, 0, 1]);
    header[16..20].copy_from_slice(&[10, 0, 0, 2]);
    let sum = checksum(&header).to_be_bytes();
    header[10..12].copy_from_slice(&sum);
    header
}

fn pseudo_header(ipv4: &[u8], protocol: u8, len: usize) -> Vec<u8> {
    let mut pseudo = ipv4[12..20].to_vec();
    pseudo.extend([0, protocol]);
    pseudo.extend(be16(len));
    pseudo
}

fn write_payload(packet: &mut Vec<u8>, stamp: Stamp, len: usize) {
    packet.extend(stamp.flow.to_le_bytes());
    packet.extend(stamp.sequence.to_le_bytes());
    let start = packet.len();
    packet.resize(len, 0);
    contents(stamp).fill(&mut packet[start..]);
}

/// The generator of all bytes behind a stamp.
fn contents(stamp: Stamp) -> Rng {
    Rng::new(stamp.flow.rotate_left(32) ^ stamp.sequence)
}

fn be16(len: usize) -> [u8; 2] {
    let len = u16::try_from(len);
    assert!(len.is_ok(), "an IP packet is at most 65535 bytes long");
    len.unwrap_or(0).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINK: Link = Link { from: [2, 0, 0, 0, 0, 1], to: [2, 0, 0, 0, 0, 2] };

    #[test]
    fn stamped_packets_read_back_at_every_length() {
        for len in [STAMPED_LEN_MIN, 71, 1514, 9014, STAMPED_LEN_MAX] {
            let stamp = Stamp { flow: 7, sequence: len as u64 };
            let packet = udp(LINK, stamp, len);
            assert_eq!(packet.len(), len);
            assert_eq!(read_stamp(&packet), Some(stamp));
            let (_, packet) = tcp_large(LINK, stamp, len, 1448);
            assert_eq!(packet.len(), len);
            assert_eq!(read_stamp(&packet), Some(stamp));
        }
    }

    #[test]
    fn any_changed_or_missing_payload_byte_is_noticed() {
        let stamp = Stamp { flow: 1, sequence: 2 };
        let good = udp(LINK, stamp, 100);
        for at in ETHERNET_LEN + IPV4_LEN + UDP_LEN..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            assert_ne!(read_stamp(&bad), Some(stamp), "byte {at}");
        }
        assert_eq!(read_stamp(&good[..99]), None);
        assert_eq!(read_stamp(&good[..20]), None);
        assert_eq!(read_stamp(&[]), None);
    }

    #[test]
    fn headers_carry_right_checksums() {
        let packet = udp(LINK, Stamp { flow: 1, sequence: 2 }, 100);
        // A checksummed area sums to zero with its checksum in place.
        assert_eq!(checksum(&packet[14..34]), 0);
    }
}
