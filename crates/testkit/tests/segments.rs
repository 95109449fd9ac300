//! Completed packets, judged by another implementation of the protocols (smoltcp): every length
//! and checksum holds, and the payloads put together are the sender's.
#![allow(clippy::cast_possible_truncation, reason = "small numbers that the tests choose")]

use ringway_net::offload::{Incomplete, SEGMENTS_MAX, complete};
use ringway_net::{GsoType, NEEDS_CSUM, NetHeader};
use ringway_testkit::Rng;
use ringway_testkit::unsegmented::{CWR, FIN, PSH, Unsegmented};
use smoltcp::wire::{
    IpAddress, IpProtocol, Ipv4Packet, Ipv6ExtHeader, Ipv6Packet, TcpPacket, UdpPacket,
};

const PACKETS: u32 = 2000;

fn segments(packet: &Unsegmented) -> Vec<Vec<u8>> {
    let (header, mut bytes) = packet.build();
    let mut segments = complete(&header, &mut bytes, false).expect("a good packet");
    let mut all = Vec::with_capacity(segments.count());
    while let Some(segment) = segments.cut() {
        assert_eq!(segment.header, NetHeader::default(), "nothing is left to do");
        all.push(segment.bytes.to_vec());
    }
    assert_eq!(all.len(), segments.count());
    all
}

/// The bytes that smoltcp finds behind the IP headers, with the addresses and the identification.
fn open_network(packet: &Unsegmented, bytes: &[u8]) -> (IpAddress, IpAddress, Vec<u8>, u16) {
    let network = &bytes[14 + 4 * packet.vlan_tags.len()..];
    if !packet.is_ipv6 {
        let ip = Ipv4Packet::new_checked(network).expect("lengths of IPv4");
        assert_eq!(usize::from(ip.total_len()), network.len());
        assert!(ip.verify_checksum(), "checksum of the IPv4 header");
        return (ip.src_addr().into(), ip.dst_addr().into(), ip.payload().to_vec(), ip.ident());
    }
    let ip = Ipv6Packet::new_checked(network).expect("lengths of IPv6");
    assert_eq!(ip.total_len(), network.len());
    let (mut next, mut rest) = (ip.next_header(), ip.payload());
    while next == IpProtocol::Ipv6Opts {
        let extension = Ipv6ExtHeader::new_checked(rest).expect("an extension header");
        next = extension.next_header();
        rest = &rest[8 + 8 * usize::from(extension.header_len())..];
    }
    (ip.src_addr().into(), ip.dst_addr().into(), rest.to_vec(), 0)
}

fn check_tcp(packet: &Unsegmented, number: usize, bytes: &[u8]) -> Vec<u8> {
    let (source, destination, transport, id) = open_network(packet, bytes);
    let tcp = TcpPacket::new_checked(&transport[..]).expect("lengths of TCP");
    assert!(tcp.verify_checksum(&source, &destination), "checksum of segment {number}");
    let offset = number as u32 * u32::from(packet.gso_size);
    assert_eq!(tcp.seq_number().0 as u32, packet.sequence.wrapping_add(offset));
    let is_last = number + 1 == packet.segments();
    assert_eq!(tcp.fin(), packet.flags & FIN != 0 && is_last);
    assert_eq!(tcp.psh(), packet.flags & PSH != 0 && is_last);
    assert_eq!(tcp.cwr(), packet.flags & CWR != 0 && number == 0);
    check_id(packet, number, id);
    tcp.payload().to_vec()
}

fn check_udp(packet: &Unsegmented, number: usize, bytes: &[u8]) -> Vec<u8> {
    let (source, destination, transport, id) = open_network(packet, bytes);
    let udp = UdpPacket::new_checked(&transport[..]).expect("lengths of UDP");
    assert_eq!(usize::from(udp.len()), transport.len());
    assert_ne!(udp.checksum(), 0, "no checksum");
    assert!(udp.verify_checksum(&source, &destination), "checksum of segment {number}");
    check_id(packet, number, id);
    udp.payload().to_vec()
}

fn check_id(packet: &Unsegmented, number: usize, id: u16) {
    let expected = packet.id.wrapping_add(number as u16);
    assert_eq!(id, if packet.is_ipv6 { 0 } else { expected });
}

#[test]
fn any_packet_becomes_right_segments_that_hold_all_of_it() {
    let mut rng = Rng::from_environment("segments", 0x5e9);
    for _ in 0..PACKETS {
        let packet = Unsegmented::random(&mut rng, 40);
        let mut payload = Vec::new();
        for (number, bytes) in segments(&packet).iter().enumerate() {
            let check = if packet.is_udp { check_udp } else { check_tcp };
            let part = check(&packet, number, bytes);
            assert!(part.len() <= usize::from(packet.gso_size));
            payload.extend(part);
        }
        assert!(payload == packet.payload, "{packet:?}");
    }
}

#[test]
fn segments_that_were_delivered_are_left_out() {
    let packet = Unsegmented::new(10_000, 1000);
    let all = segments(&packet);
    for position in 0..=all.len() {
        let (header, mut bytes) = packet.build();
        let mut rest = complete(&header, &mut bytes, false).expect("a good packet");
        rest.skip_to(position);
        for expected in &all[position..] {
            assert_eq!(rest.cut().map(|segment| segment.bytes.to_vec()).as_ref(), Some(expected));
        }
        assert!(rest.cut().is_none());
    }
}

#[test]
fn every_lie_about_a_packet_is_noticed() {
    let packet = Unsegmented::new(5000, 1000);
    let (header, bytes) = packet.build();
    let result = |header: NetHeader, bytes: &[u8]| {
        complete(&header, &mut bytes.to_vec(), false).map(|segments| segments.count())
    };
    assert_eq!(result(header, &bytes), Ok(5));
    let headers = Err(Incomplete::Headers);
    // Fields of the virtio-net header.
    assert_eq!(result(NetHeader { gso_size: 0, ..header }, &bytes), headers);
    assert_eq!(result(NetHeader { gso_size: u16::MAX, ..header }, &bytes), Ok(1));
    assert_eq!(
        result(NetHeader { gso_size: 4, ..header }, &bytes),
        Err(Incomplete::TooManySegments)
    );
    assert_eq!(result(NetHeader { hdr_len: u16::MAX, ..header }, &bytes), Ok(5), "a hint only");
    assert_eq!(result(NetHeader { flags: 0, ..header }, &bytes), headers);
    for csum_start in [0, 14, 33, 35, 54] {
        assert_eq!(result(NetHeader { csum_start, ..header }, &bytes), headers);
    }
    assert_eq!(result(NetHeader { csum_offset: 6, ..header }, &bytes), headers);
    for (csum_start, csum_offset) in [(u16::MAX, u16::MAX), (5053, 0), (34, 5019)] {
        let lie = NetHeader { csum_start, csum_offset, ..header };
        assert_eq!(result(lie, &bytes), Err(Incomplete::CsumOutside));
    }
    for gso in [GsoType::TcpV6, GsoType::UdpL4, GsoType::Ufo] {
        assert_eq!(result(NetHeader { gso_type: gso.raw(), ..header }, &bytes), headers);
    }
    assert_eq!(result(NetHeader { gso_type: 0x7f, ..header }, &bytes), headers);
    // Bytes of the packet: EtherType, version, header length, fragment, protocol, data offset.
    for (at, value) in [(12, 0x86), (14, 0x65), (14, 0x44), (14, 0x4f), (20, 0x20), (21, 1)] {
        let mut bytes = bytes.clone();
        bytes[at] = value;
        assert_eq!(result(header, &bytes), headers, "byte {at}");
    }
    for (at, value) in [(23, 17), (46, 0x40), (46, 0x00)] {
        let mut bytes = bytes.clone();
        bytes[at] = value;
        assert_eq!(result(header, &bytes), headers, "byte {at}");
    }
}

#[test]
fn a_packet_cut_off_anywhere_is_no_danger() {
    for packet in [
        Unsegmented { vlan_tags: vec![0x88a8, 0x8100], ..Unsegmented::new(100, 10) },
        Unsegmented { is_ipv6: true, network_options: 3, ..Unsegmented::new(100, 10) },
        Unsegmented { is_udp: true, is_ipv6: true, ..Unsegmented::new(100, 10) },
    ] {
        let (header, bytes) = packet.build();
        let headers_len = bytes.len() - packet.payload.len();
        for len in 0..bytes.len() {
            let mut bytes = bytes[..len].to_vec();
            let result = complete(&header, &mut bytes, false).map(|segments| segments.count());
            assert_eq!(result.is_ok(), len >= headers_len, "{len} of {headers_len} bytes");
        }
    }
}

#[test]
fn too_many_headers_are_not_walked() {
    let tags = |count| Unsegmented { vlan_tags: vec![0x8100; count], ..Unsegmented::new(100, 10) };
    let extensions = |network_options| Unsegmented {
        is_ipv6: true,
        network_options,
        ..Unsegmented::new(100, 10)
    };
    for (packet, is_fine) in
        [(tags(2), true), (tags(3), false), (extensions(8), true), (extensions(9), false)]
    {
        let (header, mut bytes) = packet.build();
        assert_eq!(complete(&header, &mut bytes, false).is_ok(), is_fine);
    }
}

#[test]
fn a_packet_has_at_most_so_many_segments() {
    for (segments, is_fine) in [(SEGMENTS_MAX, true), (SEGMENTS_MAX + 1, false)] {
        let (header, mut bytes) = Unsegmented::new(segments * 60, 60).build();
        let count = complete(&header, &mut bytes, false).map(|segments| segments.count());
        assert_eq!(count, if is_fine { Ok(segments) } else { Err(Incomplete::TooManySegments) });
    }
}

#[test]
fn any_bytes_with_any_header_are_completed_or_refused() {
    let mut rng = Rng::from_environment("hostile segments", 0xbad);
    for _ in 0..20_000 {
        let (mut header, mut bytes) = Unsegmented::random(&mut rng, 8).build();
        for _ in 0..rng.below(4) {
            let at = rng.below(bytes.len().min(100) as u64) as usize;
            bytes[at] = rng.word() as u8;
        }
        if rng.one_in(2) {
            header.csum_start = rng.word() % 100;
            header.csum_offset = rng.word() % 40;
            header.gso_size = [1, 2, 536, u16::MAX][rng.below(4) as usize];
            header.flags = NEEDS_CSUM;
        }
        let len = bytes.len();
        let Ok(mut segments) = complete(&header, &mut bytes, rng.one_in(2)) else { continue };
        assert!((1..=SEGMENTS_MAX).contains(&segments.count()));
        let mut cut = 0;
        while let Some(segment) = segments.cut() {
            cut += 1;
            assert!(segment.bytes.len() <= len && segment.header.gso_type == 0);
        }
        assert_eq!(cut, segments.count());
    }
}
