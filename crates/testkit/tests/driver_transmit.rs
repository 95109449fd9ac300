//! Transmission in parts: what is copied, what is sent from where it is, when its owner gets it
//! back, and what may be asked of the device.

use ringway_driver::{
    Arena, DriverOptions, NetDriver, NetTx, Part, RxOptions, RxScheme, Sent, TX_FRAGMENTS_MAX,
    TxFragment, TxOptions,
};
use ringway_net::{DropReason, Features, HEADER_LEN, Negotiated, NetHeader, PACKET_LEN_MAX};
use ringway_testkit::{DriverPair, PairShape, Ring, Rng, TestMemory};
use ringway_virtq::{
    DeviceQueue, DriverQueue, Elements, PackedDevice, PackedDriver, Position, QueueOptions,
    QueueSetup, SplitDevice, SplitDriver,
};

const SIZE: u16 = 64;

fn pair<D: DriverQueue, V: DeviceQueue>(indirect: bool) -> DriverPair<D, V> {
    let options = QueueOptions { indirect, ..QueueOptions::default() };
    let shape = PairShape { options, ..PairShape::plain(D::FORMAT, SIZE, RxScheme::Page) };
    let mut pair = DriverPair::new(shape);
    let _ = pair.driver.rx.flush();
    pair
}

fn nothing() -> NetHeader {
    NetHeader::default()
}

/// Packets that arrive are held and sent on from where they are; the bytes survive, and the memory
/// comes back to the ring only after the device has read it.
fn forwards_without_a_copy<D: DriverQueue, V: DeviceQueue>(indirect: bool) {
    let mut rng = Rng::from_environment("forward", 7);
    let mut pair = pair::<D, V>(indirect);
    for round in 0..200u64 {
        let mut packet = vec![0; usize::try_from(rng.between(14, 40_000)).expect("small")];
        rng.fill(&mut packet);
        assert!(pair.give(&nothing(), &packet));
        pair.receiveq.publish();
        assert!(pair.driver.rx.receive().expect("a right device").is_some());
        let held = pair.driver.rx.hold().expect("few fragments");
        let fragments: Vec<TxFragment> = held.tx_fragments().collect();
        let sent = pair.driver.tx.send_fragments(&nothing(), held.linear(), &fragments, round);
        assert_eq!(sent, Ok(Sent::Done));
        let _ = pair.driver.tx.flush();
        assert_eq!(pair.driver.tx.next_done(), None, "the device has not read it");
        pair.take_all();
        let (_, arrived) = pair.in_device.pop_front().expect("one packet");
        assert!(arrived == packet, "{} bytes in {fragments:?}", packet.len());
        assert_eq!(pair.driver.tx.reclaim(), Ok(1));
        assert_eq!(pair.driver.tx.next_done(), Some(round));
        pair.driver.rx.release(held);
        let _ = pair.driver.rx.flush();
    }
    let statistics = pair.driver.tx.statistics();
    assert_eq!((statistics.tx_packets, statistics.in_place), (200, 200));
}

#[test]
fn held_packets_are_forwarded_without_a_copy() {
    for indirect in [false, true] {
        forwards_without_a_copy::<SplitDriver, SplitDevice>(indirect);
        forwards_without_a_copy::<PackedDriver, PackedDevice>(indirect);
    }
}

#[test]
fn every_token_comes_back_once_and_no_more_are_taken_than_there_is_room_for() {
    let mut pair = pair::<SplitDriver, SplitDevice>(true);
    let part = [TxFragment { device_address: ringway_testkit::ARENA_AT, len: 10 }];
    let mut taken = 0..;
    let mut next = taken.next();
    while let Some(token) = next
        && pair.driver.tx.send_fragments(&nothing(), &[0; 14], &part, token) == Ok(Sent::Done)
    {
        next = taken.next();
    }
    assert_eq!(next, Some(u64::from(SIZE)));
    let _ = pair.driver.tx.flush();
    pair.take_all();
    // They are done, but the driver has not asked for them: still no room for another one.
    assert_eq!(pair.driver.tx.reclaim(), Ok(SIZE));
    let sent = pair.driver.tx.send_fragments(&nothing(), &[0; 14], &part, 0);
    assert_eq!(sent, Ok(Sent::NoRoom));
    let mut done: Vec<u64> = std::iter::from_fn(|| pair.driver.tx.next_done()).collect();
    done.sort_unstable();
    assert!(done.into_iter().eq(0..u64::from(SIZE)));
}

/// With what is before and behind it: nothing else changes.
fn sends_whole_packets<D: DriverQueue, V: DeviceQueue>(indirect: bool) {
    let mut pair = pair::<D, V>(indirect);
    let (header_len, len) = (HEADER_LEN, 1_500);
    let region = pair.memory.region(0);
    // Behind all that the driver has carved.
    let at = region.len() - 4096;
    let all = region.slice(at, 4096).expect("inside");
    let packet: Vec<u8> = (0..len).map(|at: usize| at.to_le_bytes()[0]).collect();
    let memory = all.slice(52, header_len + len).expect("inside");
    all.write(0, &[0xff; 64]);
    memory.write(header_len, &packet);
    let place = Part { memory, device_address: ringway_testkit::ARENA_AT + at as u64 + 52 };
    for round in 0..3 * u64::from(SIZE) {
        assert_eq!(pair.driver.tx.send_whole(&nothing(), place, round), Ok(Sent::Done));
        assert_eq!(pair.driver.tx.queue().free(), SIZE - 1, "one descriptor");
        let _ = pair.driver.tx.flush();
        assert_eq!(pair.driver.tx.next_done(), None, "the device has not read it");
        pair.take_all();
        let (header, arrived) = pair.in_device.pop_front().expect("one packet");
        assert!(header == nothing() && arrived == packet);
        assert_eq!(pair.driver.tx.reclaim(), Ok(1));
        assert_eq!(pair.driver.tx.next_done(), Some(round));
    }
    let mut before = [0; 52];
    all.read(0, &mut before);
    assert_eq!(before, [0xff; 52]);
}

#[test]
fn whole_packets_are_sent_from_where_they_are_with_one_descriptor() {
    for indirect in [false, true] {
        sends_whole_packets::<SplitDriver, SplitDevice>(indirect);
        sends_whole_packets::<PackedDriver, PackedDevice>(indirect);
    }
}

#[test]
fn used_slots_are_taken_back_in_batches() {
    let mut pair = pair::<SplitDriver, SplitDevice>(false);
    for _ in 0..10 * SIZE {
        assert_eq!(pair.driver.tx.send(&nothing(), &[0; 60]), Ok(Sent::Done));
        let _ = pair.driver.tx.flush();
        pair.take_all();
    }
    // Three quarters of the ring at a time.
    let reclaims = pair.driver.tx.statistics().reclaims;
    assert!(reclaims <= 10 * 64 / 48 + 1, "{reclaims} times");
}

#[test]
fn fragments_take_one_entry_with_tables_and_a_chain_without() {
    let parts = [TxFragment { device_address: ringway_testkit::ARENA_AT, len: 10 }; 4];
    for (indirect, entries) in [(true, 1), (false, 5)] {
        let mut pair = pair::<SplitDriver, SplitDevice>(indirect);
        let sent = pair.driver.tx.send_fragments(&nothing(), &[0; 14], &parts, 0);
        assert_eq!(sent, Ok(Sent::Done));
        assert_eq!(pair.driver.tx.queue().free(), SIZE - entries);
        // In one piece there is nothing to put into a table.
        assert_eq!(pair.driver.tx.send(&nothing(), &[0; 60]), Ok(Sent::Done));
        assert_eq!(pair.driver.tx.queue().free(), SIZE - entries - 1);
    }
}

#[test]
fn packets_that_are_too_long_in_all_are_dropped() {
    let mut pair = pair::<SplitDriver, SplitDevice>(true);
    let part = TxFragment { device_address: ringway_testkit::ARENA_AT, len: PACKET_LEN_MAX / 4 };
    for (count, expected) in
        [(3, Sent::Done), (4, Sent::TooLong), (TX_FRAGMENTS_MAX, Sent::TooLong)]
    {
        let parts = vec![part; count];
        let sent = pair.driver.tx.send_fragments(&nothing(), &[0; 14], &parts, 0);
        assert_eq!(sent, Ok(expected), "{count}");
    }
    let endless = TxFragment { len: u32::MAX, ..part };
    let sent = pair.driver.tx.send_fragments(&nothing(), &[0; 14], &[endless; 2], 0);
    assert_eq!(sent, Ok(Sent::TooLong));
}

fn sent_with(features: Features, header: &NetHeader) -> Sent {
    let memory = TestMemory::new(&[(0x10_0000, 1 << 20)]).expect("memory");
    let mut arena = Arena::new(memory.region(0), 0x10_0000);
    let negotiated = Negotiated::new(Features::VERSION_1 | features).expect("they fit together");
    let options = TxOptions { packet_len_max: 9000, ..TxOptions::negotiated(&negotiated) };
    let ring = Ring::carve(&mut arena, SplitDriver::FORMAT, 8, negotiated.options).expect("room");
    let queue: SplitDriver = ring.start(negotiated.options);
    let mut tx = NetTx::new(queue, &mut arena, &options).expect("room");
    let sent = tx.send(header, &[0; 4000]).expect("no device");
    let drops = tx.counters().drops[DropReason::Offload as usize];
    assert_eq!(drops, u64::from(sent == Sent::NotNegotiated));
    sent
}

#[test]
fn only_what_was_negotiated_is_handed_to_the_device() {
    let csum = NetHeader { flags: 1, csum_start: 34, csum_offset: 16, ..nothing() };
    let gso = |gso_type| NetHeader { gso_type, gso_size: 1448, hdr_len: 54, ..csum };
    let rows = [
        (Features::CSUM, csum),
        (Features::CSUM | Features::HOST_TSO4, gso(1)),
        (Features::CSUM | Features::HOST_TSO6, gso(4)),
        (Features::CSUM | Features::HOST_TSO4 | Features::HOST_ECN, gso(0x81)),
        (Features::CSUM | Features::HOST_USO, gso(5)),
    ];
    for (needed, header) in rows {
        assert_eq!(sent_with(needed, &header), Sent::Done, "{needed}");
        for missing in needed.iter() {
            let left = (Features::VERSION_1 | (needed - missing)).drop_unmet();
            assert_eq!(sent_with(left, &header), Sent::NotNegotiated, "{needed} - {missing}");
        }
    }
    assert_eq!(sent_with(Features::empty(), &nothing()), Sent::Done);
}

/// Queue pairs have one owner each and share nothing: two threads, one pair each, one arena.
#[test]
fn each_queue_pair_can_have_a_thread_of_its_own() {
    let memory = TestMemory::new(&[(0x10_0000, 8 << 20)]).expect("memory");
    let mut arena = Arena::new(memory.region(0), 0x10_0000);
    let options = QueueOptions::default();
    let mut queue = || {
        let ring = Ring::carve(&mut arena, SplitDriver::FORMAT, 16, options).expect("room");
        (ring, ring.start::<SplitDriver>(options))
    };
    let queues = [(); 4].map(|()| queue());
    let rings = queues.each_ref().map(|(ring, _)| *ring);
    let [(_, r0), (_, t0), (_, r1), (_, t1)] = queues;
    let driver = DriverOptions { rx: RxOptions::MERGEABLE, tx: TxOptions::default() };
    let pairs = NetDriver::pairs([(r0, t0), (r1, t1)], &mut arena, &driver).expect("room");
    std::thread::scope(|scope| {
        for (mut pair, byte) in pairs.into_iter().zip([1, 2]) {
            scope.spawn(move || {
                for _ in 0..16 {
                    assert_eq!(pair.tx.send(&nothing(), &[byte; 60]), Ok(Sent::Done));
                }
                assert!(pair.tx.flush() && pair.rx.flush());
            });
        }
    });
    for (ring, byte) in [(rings[1], 1), (rings[3], 2)] {
        let setup =
            QueueSetup { size: 16, areas: ring.areas(), position: Position::FRESH, options };
        let mut device = SplitDevice::start(&setup, &memory.regions()).expect("a right setup");
        let (mut at, mut elements) = (device.cursor(), Elements::new());
        for _ in 0..16 {
            let head = device.peek(&mut at, &memory.regions(), &mut elements);
            assert!(head.expect("a right driver").is_some());
            let mut packet = [0; 72];
            elements.readable()[0].read(0, &mut packet);
            assert_eq!(packet[12..], [byte; 60]);
        }
    }
}
