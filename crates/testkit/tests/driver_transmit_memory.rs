//! The memory of a transmitq: slots for short packets, stretches for long ones, which are scarcer
//! than entries and come back with them.

use std::collections::VecDeque;

use ringway_driver::{Arena, NetTx, RxScheme, Sent, TxFragment, TxOptions};
use ringway_net::{NetHeader, PACKET_LEN_MAX};
use ringway_testkit::{DriverPair, PairShape, Ring, Rng, TestMemory};
use ringway_virtq::{
    DeviceQueue, DriverQueue, PackedDevice, PackedDriver, QueueOptions, SplitDevice, SplitDriver,
};

/// Long packets that fit 4 MiB, each with a line for its header.
const LONGEST_IN_FLIGHT: usize = 63;

fn pair<D: DriverQueue, V: DeviceQueue>(size: u16, elements: u16) -> DriverPair<D, V> {
    DriverPair::new(PairShape { elements, ..PairShape::plain(D::FORMAT, size, RxScheme::Page) })
}

fn send<D: DriverQueue, V>(pair: &mut DriverPair<D, V>, packet: &[u8]) -> Sent {
    pair.driver.tx.send(&NetHeader::default(), packet).expect("a right device")
}

/// How many of these packets are taken before there is no room, none of which the device sees.
fn sent_at_once<D: DriverQueue, V>(pair: &mut DriverPair<D, V>, packet: &[u8]) -> usize {
    let sent = std::iter::repeat_with(|| send(pair, packet));
    sent.take_while(|sent| *sent == Sent::Done).count()
}

/// Short and long ones, just at what fits a slot, and as long as can be.
fn packet(rng: &mut Rng) -> Vec<u8> {
    let (least, most) = match rng.below(4) {
        0 => (14, 1518),
        1 => (2047, 2050),
        2 => (2000, 9000),
        _ => (9000, u64::from(PACKET_LEN_MAX)),
    };
    let mut packet = vec![0; usize::try_from(rng.between(least, most)).expect("small")];
    rng.fill(&mut packet);
    packet
}

/// The device takes everything, which must be what was sent.
fn take_all<D: DriverQueue, V: DeviceQueue>(
    pair: &mut DriverPair<D, V>,
    on_their_way: &mut VecDeque<Vec<u8>>,
) {
    let _ = pair.driver.tx.flush();
    pair.take_all();
    for (_, arrived) in pair.in_device.drain(..) {
        assert!(Some(&arrived) == on_their_way.front(), "{} bytes", arrived.len());
        on_their_way.pop_front();
    }
    assert!(on_their_way.is_empty());
}

fn arrive<D: DriverQueue, V: DeviceQueue>(size: u16, elements: u16) {
    let mut rng = Rng::from_environment("transmit memory", u64::from(size + elements));
    let mut pair = pair::<D, V>(size, elements);
    let mut on_their_way = VecDeque::new();
    let mut without_room = 0;
    for _ in 0..2000 {
        let packet = packet(&mut rng);
        let mut sent = send(&mut pair, &packet);
        if sent == Sent::NoRoom {
            without_room += 1;
            take_all(&mut pair, &mut on_their_way);
            sent = send(&mut pair, &packet);
        }
        assert_eq!(sent, Sent::Done, "{} bytes", packet.len());
        on_their_way.push_back(packet);
        if rng.below(256) == 0 {
            take_all(&mut pair, &mut on_their_way);
        }
    }
    assert!(without_room > 0);
}

#[test]
fn long_and_short_packets_arrive_whole() {
    for (size, elements) in [(8, 1), (8, 2), (256, 1), (256, 2)] {
        arrive::<SplitDriver, SplitDevice>(size, elements);
        arrive::<PackedDriver, PackedDevice>(size, elements);
    }
}

#[test]
fn long_packets_wait_for_bytes_and_short_ones_do_not() {
    let mut pair = pair::<SplitDriver, SplitDevice>(256, 1);
    let longest = vec![7; PACKET_LEN_MAX as usize];
    for _ in 0..3 {
        assert_eq!(pair.driver.tx.has_room(), Ok(true));
        assert!(sent_at_once(&mut pair, &longest) >= LONGEST_IN_FLIGHT - 1);
        assert_eq!(pair.driver.tx.has_room(), Ok(false), "the device has not read them");
        assert_eq!(send(&mut pair, &longest[..2048]), Sent::Done);
        let _ = pair.driver.tx.flush();
        pair.take_all();
        pair.in_device.clear();
    }
    assert_eq!(pair.driver.tx.has_room(), Ok(true));
    assert_eq!(sent_at_once(&mut pair, &[7; 60]), 256);
    assert_eq!(pair.driver.tx.has_room(), Ok(false), "no entry");
}

#[test]
fn a_packet_that_found_no_entries_keeps_no_memory() {
    let mut pair = pair::<SplitDriver, SplitDevice>(8, 1);
    let part = [TxFragment { device_address: ringway_testkit::ARENA_AT, len: 10 }; 2];
    let mut sent = Vec::new();
    for token in 0..100 {
        let tx = &mut pair.driver.tx;
        let one = tx.send_fragments(&NetHeader::default(), &[7; 9000], &part, token);
        sent.push(one.expect("a right device"));
    }
    // Three descriptors each.
    assert_eq!(sent[..2], [Sent::Done; 2]);
    assert!(sent[2..].iter().all(|sent| *sent == Sent::NoRoom));
    assert_eq!(send(&mut pair, &[7; PACKET_LEN_MAX as usize]), Sent::Done);
}

#[test]
fn a_transmitq_takes_no_more_memory_than_is_of_use() {
    let taken = |size, packet_len_max| {
        let memory = TestMemory::new(&[(0x10_0000, 16 << 20)]).expect("memory");
        let mut arena = Arena::new(memory.region(0), 0x10_0000);
        let options = QueueOptions::default();
        let ring = Ring::carve(&mut arena, SplitDriver::FORMAT, size, options).expect("room");
        let before = arena.left();
        let options_tx = TxOptions { packet_len_max, ..TxOptions::default() };
        let _ = NetTx::new(ring.start::<SplitDriver>(options), &mut arena, &options_tx);
        before - arena.left()
    };
    let about = |bytes: usize| bytes..bytes + 4096;
    // Slots only, and these no longer than the packets.
    assert!(about(256 * 2112).contains(&taken(256, 2048)));
    assert!(about(256 * 1600).contains(&taken(256, 1518)));
    // Short queues cannot use more, long ones need no more.
    assert!(about(8 * (2112 + 65_664)).contains(&taken(8, PACKET_LEN_MAX)));
    assert!(about(256 * 2112 + (4 << 20)).contains(&taken(256, PACKET_LEN_MAX)));
    assert!(about(1024 * 2112 + (4 << 20)).contains(&taken(1024, PACKET_LEN_MAX)));
}
