//! Checksums and segments that the stack leaves to the device, and those that it must not.
#![cfg(feature = "smoltcp")]

use core::num::NonZeroU16;

use ringway_driver::phy::{is_sound, offload};
use ringway_net::{DATA_VALID, GsoType, NEEDS_CSUM, NetHeader};
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    ETHERNET_HEADER_LEN, EthernetAddress, EthernetFrame, EthernetProtocol, EthernetRepr, IpAddress,
    IpProtocol, IpRepr, TcpControl, TcpPacket, TcpRepr, TcpSeqNumber, UdpPacket, UdpRepr,
};

const PAYLOAD: [u8; 301] = [0x5a; 301];

/// Source and destination, in both versions.
fn addresses() -> [(IpAddress, IpAddress); 2] {
    let v4 = (IpAddress::v4(10, 0, 0, 1), IpAddress::v4(10, 0, 0, 2));
    let v6 =
        (IpAddress::v6(0xfd00, 0, 0, 0, 0, 0, 0, 1), IpAddress::v6(0xfd00, 0, 0, 0, 0, 0, 0, 2));
    [v4, v6]
}

/// A packet with its checksum; returns it and where the transport header starts.
fn packet(protocol: IpProtocol, (source, destination): (IpAddress, IpAddress)) -> (Vec<u8>, usize) {
    let tcp = TcpRepr {
        src_port: 1,
        dst_port: 2,
        control: TcpControl::Psh,
        seq_number: TcpSeqNumber(7),
        ack_number: Some(TcpSeqNumber(9)),
        window_len: 1000,
        window_scale: None,
        max_seg_size: None,
        sack_permitted: false,
        sack_ranges: [None; 3],
        timestamp: None,
        payload: &PAYLOAD,
    };
    let udp = UdpRepr { src_port: 1, dst_port: 2 };
    let len = match protocol {
        IpProtocol::Tcp => tcp.buffer_len(),
        _ => udp.header_len() + PAYLOAD.len(),
    };
    let ip = IpRepr::new(source, destination, protocol, len, 64);
    let start = ETHERNET_HEADER_LEN + ip.header_len();
    let mut bytes = vec![0; start + len];
    let checksums = ChecksumCapabilities::default();
    let is_v4 = matches!(source, IpAddress::Ipv4(_));
    let ethernet = EthernetRepr {
        src_addr: EthernetAddress([2, 0, 0, 0, 0, 1]),
        dst_addr: EthernetAddress([2, 0, 0, 0, 0, 2]),
        ethertype: if is_v4 { EthernetProtocol::Ipv4 } else { EthernetProtocol::Ipv6 },
    };
    ethernet.emit(&mut EthernetFrame::new_unchecked(&mut bytes));
    ip.emit(&mut bytes[ETHERNET_HEADER_LEN..], &checksums);
    let (source, destination) = (&source, &destination);
    match protocol {
        IpProtocol::Tcp => {
            let mut packet = TcpPacket::new_unchecked(&mut bytes[start..]);
            tcp.emit(&mut packet, source, destination, &checksums);
        }
        _ => {
            let mut packet = UdpPacket::new_unchecked(&mut bytes[start..]);
            let fill = |payload: &mut [u8]| payload.copy_from_slice(&PAYLOAD);
            udp.emit(&mut packet, source, destination, PAYLOAD.len(), fill, &checksums);
        }
    }
    (bytes, start)
}

/// Completes a checksum as a device does: over everything from `csum_start` on.
fn complete(bytes: &mut [u8], header: &NetHeader) {
    let (start, offset) = (usize::from(header.csum_start), usize::from(header.csum_offset));
    let mut sum: u32 = 0;
    for word in bytes[start..].chunks(2) {
        sum += u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    let checksum = !u16::try_from(sum).expect("folded");
    bytes[start + offset..][..2].copy_from_slice(&checksum.to_be_bytes());
}

#[test]
fn spec_5_1_6_2_what_is_handed_over_can_be_completed_by_anybody() {
    for protocol in [IpProtocol::Tcp, IpProtocol::Udp] {
        for pair in addresses() {
            let (whole, start) = packet(protocol, pair);
            let mut bytes = whole.clone();
            let at = start + if protocol == IpProtocol::Tcp { 16 } else { 6 };
            bytes[at..at + 2].fill(0);
            let header = offload(&mut bytes, None);
            assert_eq!(header.flags, NEEDS_CSUM);
            assert_eq!(usize::from(header.csum_start), start);
            assert_eq!(header.gso_type, 0);
            assert_ne!(bytes, whole, "the sum is not the checksum");
            complete(&mut bytes, &header);
            assert_eq!(bytes, whole, "{protocol} {pair:?}");
        }
    }
}

#[test]
fn segments_are_described() {
    let segment = NonZeroU16::new(100);
    for (pair, gso) in addresses().into_iter().zip([GsoType::TcpV4, GsoType::TcpV6]) {
        let (mut bytes, start) = packet(IpProtocol::Tcp, pair);
        let header = offload(&mut bytes, segment);
        assert_eq!((header.gso_type, header.gso_size), (gso.raw(), 100));
        assert_eq!(usize::from(header.hdr_len), start + 20);
        let len = u32::try_from(bytes.len()).expect("short");
        assert_eq!(header.check(len), Ok(()));
    }
}

#[test]
fn what_is_neither_tcp_nor_udp_is_left_alone() {
    let (mut bytes, _) = packet(IpProtocol::Tcp, addresses()[0]);
    let change = |bytes: &mut Vec<u8>, at: usize, value: u8| bytes[at] = value;
    // Another protocol, another ethertype, a fragment, an IP header that ends too early or late.
    for (at, value) in [(23, 1), (12, 0x88), (20, 0x20), (21, 1), (14, 0x4f), (14, 0x41)] {
        let mut other = bytes.clone();
        change(&mut other, at, value);
        let before = other.clone();
        let header = offload(&mut other, None);
        assert!(header == NetHeader::default() || at == 14, "{at}");
        assert!(other == before || at == 14, "{at}");
    }
    for len in 0..bytes.len() {
        // Nothing panics, whatever is missing.
        let _ = offload(&mut bytes[..len].to_vec(), None);
        let _ = is_sound(&NetHeader::default(), &bytes[..len]);
    }
    assert_eq!(offload(&mut bytes, None).flags, NEEDS_CSUM, "the packet itself is fine");
}

#[test]
fn packets_without_a_valid_flag_are_checked() {
    for protocol in [IpProtocol::Tcp, IpProtocol::Udp] {
        for pair in addresses() {
            let (mut bytes, start) = packet(protocol, pair);
            let unknown = NetHeader::default();
            assert!(is_sound(&unknown, &bytes));
            let last = bytes.len() - 1;
            bytes[last] ^= 1;
            assert!(!is_sound(&unknown, &bytes), "{protocol} {pair:?}");
            for flags in [NEEDS_CSUM, DATA_VALID] {
                assert!(is_sound(&NetHeader { flags, ..unknown }, &bytes), "the header vouches");
            }
            assert!(start < last);
        }
    }
}

/// The stack steps over hop-by-hop options, so a checksum behind them counts as well.
#[test]
fn checksums_behind_hop_by_hop_options_are_checked_and_left_to_the_device() {
    const IPV6_HEADER_LEN: usize = 40;
    let unknown = NetHeader::default();
    for protocol in [IpProtocol::Tcp, IpProtocol::Udp] {
        let (mut bytes, start) = packet(protocol, addresses()[1]);
        let ip = ETHERNET_HEADER_LEN;
        assert_eq!(start, ip + IPV6_HEADER_LEN);
        // Six bytes of padding.
        bytes.splice(start..start, [protocol.into(), 0, 1, 4, 0, 0, 0, 0]);
        bytes[ip + 6] = IpProtocol::HopByHop.into();
        let len = u16::try_from(bytes.len() - start).unwrap();
        bytes[ip + 4..ip + 6].copy_from_slice(&len.to_be_bytes());
        assert!(is_sound(&unknown, &bytes));
        let header = offload(&mut bytes, None);
        assert_eq!(usize::from(header.csum_start), start + 8);
        complete(&mut bytes, &header);
        assert!(is_sound(&unknown, &bytes));
        *bytes.last_mut().unwrap() ^= 1;
        assert!(!is_sound(&unknown, &bytes), "{protocol}");
        bytes[start + 1] = 0xff;
        assert!(is_sound(&unknown, &bytes), "options that are longer than the packet");
    }
}
