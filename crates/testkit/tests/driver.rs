//! The driver against a device queue in the same process: one body for both ring formats and all
//! schemes of receive buffers, with packets lent and packets held.

use std::collections::VecDeque;

use ringway_driver::{Held, RxScheme, Sent};
use ringway_net::{DropReason, NetHeader, PACKET_LEN_MAX};
use ringway_testkit::{DriverPair, PairShape, Rng};
use ringway_virtq::{
    DeviceQueue, DriverQueue, Format, PackedDevice, PackedDriver, QueueOptions, SplitDevice,
    SplitDriver,
};

/// Rounds in which by chance nothing is sent and the device takes nothing.
const STALLED_ROUNDS_MAX: u32 = 1000;
/// Packets in the device beyond which it takes no more.
const IN_DEVICE_MAX: usize = 512;
/// Most packets held at a time.
const HELD_MAX: usize = 8;

/// A header that fits any packet from 14 bytes on.
fn random_header(rng: &mut Rng) -> NetHeader {
    NetHeader {
        flags: 1,
        gso_type: 1,
        gso_size: rng.word().max(1),
        csum_start: rng.word() % 12,
        ..NetHeader::default()
    }
}

fn random_packet(rng: &mut Rng) -> Vec<u8> {
    let longest = match rng.below(50) {
        0 => u64::from(PACKET_LEN_MAX) - 8,
        1..10 => 9014,
        10..20 => 140,
        _ => 1514,
    };
    let mut packet = vec![0; usize::try_from(rng.between(14, longest)).expect("small")];
    rng.fill(&mut packet);
    packet
}

/// The packets that were sent and have not come back, and those that are held.
struct Carried<'a> {
    rng: &'a mut Rng,
    expected: VecDeque<(NetHeader, Vec<u8>)>,
    held: VecDeque<(Held, Vec<u8>)>,
    sent: u64,
    received: u64,
}

impl Carried<'_> {
    fn send<D: DriverQueue, V: DeviceQueue>(&mut self, pair: &mut DriverPair<D, V>, packets: u64) {
        for _ in 0..packets {
            let (header, packet) = (random_header(self.rng), random_packet(self.rng));
            match pair.driver.tx.send(&header, &packet).expect("a right device") {
                Sent::Done => self.expected.push_back((header, packet)),
                Sent::NoRoom => break,
                sent => panic!("{} bytes fit: {sent:?}", packet.len()),
            }
            self.sent += 1;
        }
        let _ = pair.driver.tx.flush();
    }

    fn receive<D: DriverQueue, V: DeviceQueue>(&mut self, pair: &mut DriverPair<D, V>) {
        while let Some(lent) = pair.driver.rx.receive().expect("a right device") {
            let (header, packet) = self.expected.pop_front().expect("not more than was sent");
            let mut bytes = vec![0; lent.len as usize];
            lent.copy_to(&mut bytes);
            let at = self.received;
            assert!(bytes == packet, "packet {at}: {} of {}", bytes.len(), packet.len());
            let buffers = lent.header.num_buffers;
            assert_eq!(lent.header, NetHeader { num_buffers: buffers, ..header });
            let in_place: usize = lent.fragments().map(|fragment| fragment.len()).sum();
            assert_eq!(lent.linear().len() + in_place, packet.len());
            assert!(lent.truesize >= lent.len.max(128), "{} of {}", lent.truesize, lent.len);
            assert_eq!(lent.truesize == 128, packet.len() <= 128);
            self.received += 1;
            if self.rng.one_in(4)
                && self.held.len() < HELD_MAX
                && let Some(held) = pair.driver.rx.hold()
            {
                self.held.push_back((held, packet));
            }
            if self.rng.one_in(4) {
                self.release(pair);
            }
        }
        let _ = pair.driver.rx.flush();
    }

    fn release<D: DriverQueue, V: DeviceQueue>(&mut self, pair: &mut DriverPair<D, V>) {
        let Some((held, packet)) = self.held.pop_front() else { return };
        let mut bytes = vec![0; held.len as usize];
        held.copy_to(&mut bytes);
        assert!(bytes == packet, "a held packet changed");
        pair.driver.rx.release(held);
    }
}

/// Every packet comes back once, in order, with the same header and the same bytes.
fn carry<D: DriverQueue, V: DeviceQueue>(shape: PairShape, packets: u64, rng: &mut Rng) {
    let rx = ringway_driver::RxOptions { spare_len: 1 << 20, ..shape.rx() };
    let mut pair = DriverPair::<D, V>::with(shape, &rx);
    let (expected, held) = Default::default();
    let mut carried = Carried { rng, expected, held, sent: 0, received: 0 };
    let mut stalled_rounds = 0;
    while carried.received < packets {
        let before = carried.received;
        let count = carried.rng.between(0, u64::from(shape.size));
        carried.send(&mut pair, count);
        if !carried.rng.one_in(3) && pair.in_device.len() < IN_DEVICE_MAX {
            pair.take_all();
        }
        pair.give_all();
        carried.receive(&mut pair);
        if carried.rng.one_in(8) {
            carried.release(&mut pair);
        }
        stalled_rounds = if before < carried.received { 0 } else { stalled_rounds + 1 };
        let received = carried.received;
        assert!(stalled_rounds < STALLED_ROUNDS_MAX, "{shape:?} stalls after {received} packets");
    }
    while !carried.held.is_empty() {
        carried.release(&mut pair);
    }
    assert!(pair.memory.guards_intact(), "written outside the shared memory");
    assert_eq!(pair.driver.rx.counters().packets, carried.received);
    assert_eq!(pair.driver.tx.counters().packets, carried.sent);
    assert_eq!(pair.driver.rx.counters().drops, [0; DropReason::ALL.len()]);
    // Nothing is lost: the ring is as full as at the start.
    let _ = pair.driver.rx.flush();
    let statistics = pair.driver.rx.statistics();
    assert_eq!(statistics.held, statistics.released);
    assert!(statistics.posted_buffers > 0);
}

fn carry_all_shapes<D: DriverQueue, V: DeviceQueue>(format: Format, packets: u64) {
    let mut rng = Rng::from_environment("driver", 0x5eed);
    let sizes: &[u16] = if format == Format::Split { &[64, 256] } else { &[60, 256] };
    for scheme in RxScheme::ALL {
        for bits in 0..8_u8 {
            let options = QueueOptions {
                event_idx: bits & 1 != 0,
                indirect: bits & 2 != 0,
                in_order: bits & 4 != 0,
                notify_on_empty: false,
            };
            // In parts and without tables, a short ring of short buffers holds no long packet.
            let elements = if options.indirect && rng.one_in(2) { 3 } else { 1 };
            let size = sizes[usize::from(bits & 1)];
            let shape = PairShape { format, size, scheme, elements, options };
            carry::<D, V>(shape, packets, &mut rng);
        }
    }
}

#[test]
fn split_carries_every_packet() {
    carry_all_shapes::<SplitDriver, SplitDevice>(Format::Split, 1200);
}

#[test]
fn packed_carries_every_packet() {
    carry_all_shapes::<PackedDriver, PackedDevice>(Format::Packed, 1200);
}

#[test]
fn one_entry_is_enough() {
    let mut rng = Rng::from_environment("one entry", 1);
    for format in [Format::Split, Format::Packed] {
        let shape = PairShape::plain(format, 1, RxScheme::Big);
        match format {
            Format::Split => carry::<SplitDriver, SplitDevice>(shape, 200, &mut rng),
            Format::Packed => carry::<PackedDriver, PackedDevice>(shape, 200, &mut rng),
        }
    }
}
