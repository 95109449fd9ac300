//! The packets that one real guest sent, those that another one received, and those that the kernel
//! makes of the former: the latter two are the same, byte for byte.
//!
//! How: both captures are files (`sent.pcap`, `received.pcap`) in the directory that
//! `RINGWAY_CAPTURES` names. The first has packets as a guest hands them to its device: without
//! checksums, and not segmented. The kernel completes them on the way through a tap.
//!
//! Limits: TCP over IPv4, little-endian captures.

mod common;

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use common::{in_namespace, kernel};
use ringway_host::{Tap, TapOptions};
use ringway_net::{GsoType, NEEDS_CSUM, NetHeader};

/// Where the captures are.
const DIRECTORY_VARIABLE: &str = "RINGWAY_CAPTURES";

/// Packets that had to be segmented, at least; fewer prove nothing.
const LARGE_MIN: usize = 20;

/// Of a capture, and of each packet in it (pcap-savefile(5)).
const FILE_HEADER_LEN: usize = 24;
const RECORD_HEADER_LEN: usize = 16;
const MAGIC: [u32; 2] = [0xa1b2_c3d4, 0xa1b2_3c4d];

const CSUM_OFFSET: u16 = 16;

/// The packets of a capture.
fn read(path: &Path) -> Vec<Vec<u8>> {
    let bytes = fs::read(path).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
    assert!(MAGIC.contains(&word(0)), "{}: no capture", path.display());
    let (mut packets, mut at) = (Vec::new(), FILE_HEADER_LEN);
    while at < bytes.len() {
        let (captured, sent) = (word(at + 8), word(at + 12));
        assert_eq!(captured, sent, "cut off");
        let start = at + RECORD_HEADER_LEN;
        at = start + captured as usize;
        packets.push(bytes[start..at].to_vec());
    }
    packets
}

/// Where TCP begins, and where what it carries.
fn layout(packet: &[u8]) -> (usize, usize) {
    let tcp = 14 + usize::from(packet[14] & 0xf) * 4;
    (tcp, tcp + usize::from(packet[tcp + 12] >> 4) * 4)
}

/// Bytes of payload; padding does not count.
fn payload_len(packet: &[u8]) -> usize {
    let total = usize::from(u16::from_be_bytes([packet[16], packet[17]]));
    14 + total - layout(packet).1
}

/// The header with which the guest handed its packet to the device.
fn header(packet: &[u8], segment_len: usize) -> NetHeader {
    let (tcp, payload) = layout(packet);
    let small = |len: usize| u16::try_from(len).expect("small");
    let plain = NetHeader {
        flags: NEEDS_CSUM,
        csum_start: small(tcp),
        csum_offset: CSUM_OFFSET,
        ..NetHeader::default()
    };
    match payload_len(packet) > segment_len {
        false => plain,
        true => NetHeader {
            gso_type: GsoType::TcpV4.raw(),
            gso_size: small(segment_len),
            hdr_len: small(payload),
            ..plain
        },
    }
}

/// The sequence number, and the bytes of payload.
fn sequence(packet: &[u8]) -> (u32, usize) {
    let (tcp, _) = layout(packet);
    let bytes = packet[tcp + 4..tcp + 8].try_into().expect("4 bytes");
    (u32::from_be_bytes(bytes), payload_len(packet))
}

/// How a received packet differs from whatever was sent with its first byte of payload.
fn difference(packet: &[u8], sent: &[Vec<u8>]) -> String {
    let (first, len) = sequence(packet);
    let payload = &packet[layout(packet).1..][..len];
    let mut found = String::new();
    for (number, candidate) in sent.iter().enumerate() {
        let (from, whole) = sequence(candidate);
        let offset = first.wrapping_sub(from) as usize;
        if offset >= whole.max(1) {
            continue;
        }
        let behind = &candidate[layout(candidate).1..][offset..whole];
        let same = payload.iter().zip(behind).take_while(|(one, other)| one == other).count();
        found += &format!(
            "{len} bytes, from byte {offset} of the {whole} of sent {number}, of which {} follow: \
             the first {same} are the same; headers {:02x?} and {:02x?}; ",
            behind.len(),
            &packet[14..layout(packet).1],
            &candidate[14..layout(candidate).1],
        );
    }
    if found.is_empty() { format!("no packet sent has byte {first} ({len} bytes)") } else { found }
}

fn compare(directory: &Path, tap: &mut Tap) {
    let sent = read(&directory.join("sent.pcap"));
    let received = read(&directory.join("received.pcap"));
    let segment_len = received.iter().map(|packet| payload_len(packet)).max().expect("packets");
    let (mut large, mut segments, mut cut) = (0, 0, 0);
    // How often each packet may arrive.
    let mut expected: HashMap<Vec<u8>, usize> = HashMap::new();
    for packet in &sent {
        let completed = kernel::completed(tap, &header(packet, segment_len), packet);
        segments += completed.len();
        if completed.len() > 1 {
            (large, cut) = (large + 1, cut + completed.len());
        }
        for (_, bytes) in completed {
            *expected.entry(bytes).or_default() += 1;
        }
    }
    for (number, packet) in received.iter().enumerate() {
        let left = expected.get_mut(packet).filter(|left| **left > 0);
        let left = left.unwrap_or_else(|| {
            panic!("received {number} is not what was sent: {}", difference(packet, &sent))
        });
        *left -= 1;
    }
    assert!(large >= LARGE_MIN, "only {large} packets were segmented");
    // The others were dropped by a guest that a busy machine emulates slowly, and sent again.
    assert!(received.len() * 2 >= segments, "{} of {segments} arrived", received.len());
    let (sent, received) = (sent.len(), received.len());
    println!(
        "verified: {sent} packets sent, {large} of them cut into {cut}, are {received} of the \
         {segments} that the kernel makes of them, byte for byte"
    );
}

#[test]
fn what_was_received_is_what_the_kernel_makes_of_what_was_sent() {
    let directory = std::env::var_os(DIRECTORY_VARIABLE);
    let directory = directory.expect("RINGWAY_CAPTURES: the scenario guest::captures sets it");
    in_namespace(move || {
        let options = TapOptions { name: "tap0".to_owned(), mtu: Some(9500) };
        let mut tap = Tap::open(&options).expect("a tap");
        compare(Path::new(&directory), &mut tap);
    });
}
