//! Packets that the driver hands to a stack that checks no checksums: large packets too, and only
//! with a sum that the device vouches for or that is right. And room for what the stack sends,
//! before it sends it.

use std::mem;

use ringway_driver::RxScheme;
use ringway_driver::phy::SmoltcpDevice;
use ringway_net::{
    DATA_VALID, DropReason, Features, MacAddress, NEEDS_CSUM, Negotiated, NetConfig, NetHeader,
};
use ringway_testkit::frames::{self, Link, Stamp};
use ringway_testkit::{DriverPair, PairShape};
use ringway_virtq::{DeviceQueue, Format, SplitDevice, SplitDriver};
use smoltcp::phy::{Device, RxToken, TxToken};
use smoltcp::time::Instant;

const SIZE: u16 = 64;
const LINK: Link = Link { from: [2, 0, 0, 0, 0, 1], to: [2, 0, 0, 0, 0, 2] };
const LEN: usize = 40_000;
const SEGMENT_LEN: u16 = 1448;
/// The longest packet that the stack may hand over, in bytes.
const SENT_LEN_MAX: usize = 14 + 65_535;

type Pair = DriverPair<SplitDriver, SplitDevice>;

/// A stack's device, and the rest of the pair it was made from.
fn stack() -> (SmoltcpDevice<SplitDriver>, Pair, Pair) {
    let shape = PairShape::plain(Format::Split, SIZE, RxScheme::Page);
    let (mut pair, mut other) = (Pair::new(shape), Pair::new(shape));
    mem::swap(&mut pair.driver, &mut other.driver);
    let features = Features::VERSION_1
        | Features::MRG_RXBUF
        | Features::CSUM
        | Features::GUEST_CSUM
        | Features::GUEST_TSO4;
    let negotiated = Negotiated::new(features).expect("they fit together");
    let config = NetConfig {
        mac: MacAddress(LINK.to),
        link_up: true,
        announce: false,
        max_queue_pairs: 1,
        mtu: 1500,
    };
    let Pair { driver, .. } = other;
    let mut device = SmoltcpDevice::new(driver, &negotiated, &config);
    let _ = device.flush();
    (device, pair, Pair::new(shape))
}

/// A large packet, with the sum of its pseudo-header, and what asks to segment it.
fn large() -> (NetHeader, Vec<u8>) {
    frames::tcp_large(LINK, Stamp { flow: 1, sequence: 2 }, LEN, SEGMENT_LEN)
}

/// The same with its checksum complete.
fn complete(mut packet: Vec<u8>) -> Vec<u8> {
    let sum = frames::checksum(&packet[34..]);
    packet[50..52].copy_from_slice(&sum.to_be_bytes());
    packet
}

/// The bytes that the stack gets, and how many packets were counted as malformed.
fn handed_up(header: &NetHeader, packet: &[u8]) -> (Option<Vec<u8>>, u64) {
    let (mut device, mut pair, _rest) = stack();
    assert!(pair.give(header, packet), "room");
    pair.receiveq.publish();
    let tokens = device.receive(Instant::ZERO);
    let received = tokens.map(|(received, _)| received.consume(<[u8]>::to_vec));
    (received, device.dropped().drops[DropReason::Malformed as usize])
}

#[test]
fn spec_5_1_6_4_large_packets_need_a_sum_like_all_others() {
    let (asks, partial) = large();
    assert_eq!(asks.flags, NEEDS_CSUM);
    let whole = complete(partial.clone());
    let merged = NetHeader { flags: 0, ..asks };
    let checked = NetHeader { flags: DATA_VALID, ..asks };
    // Never left a machine; checked and merged on the way; merged on the way, and right.
    for (header, packet) in [(asks, &partial), (checked, &whole), (merged, &whole)] {
        assert_eq!(handed_up(&header, packet), (Some(packet.clone()), 0), "{header:?}");
    }
    // Merged on the way, and the header does not say whether it is right: it is not.
    let mut wrong = whole;
    wrong[LEN - 1] ^= 1;
    assert_eq!(handed_up(&merged, &wrong), (None, 1));
}

#[test]
fn who_is_given_room_can_send_the_longest_packet() {
    let (mut device, mut pair, _rest) = stack();
    let mut sent = 0;
    for _ in 0..SIZE {
        let Some(room) = device.transmit(Instant::ZERO) else { break };
        room.consume(SENT_LEN_MAX, |packet| packet.fill(7));
        sent += 1;
    }
    // There are more entries than long packets in flight.
    assert!(sent > 1 && sent < SIZE, "{sent}");
    let _ = device.flush();
    pair.take_all();
    assert_eq!(pair.in_device.len(), usize::from(sent), "one was lost");
    assert!(device.transmit(Instant::ZERO).is_some());
}
