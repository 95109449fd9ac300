//! The driver against a device queue in the same process: one body for both ring formats, with
//! mergeable buffers and without, and a device that lies.

use std::collections::VecDeque;

use ringway_driver::{Arena, DriverOptions, NetDriver, RxOptions, Sent, TxOptions};
use ringway_net::{DropReason, HEADER_LEN, NetHeader, PACKET_LEN_MAX};
use ringway_testkit::{Ring, Rng, TestMemory};
use ringway_virtq::{
    Cursor, DeviceQueue, DriverQueue, Elements, Format, Head, PackedDevice, PackedDriver, Position,
    QueueOptions, QueueSetup, Regions, SplitDevice, SplitDriver, Why,
};

/// Rounds in which by chance nothing is sent and the device takes nothing.
const STALLED_ROUNDS_MAX: u32 = 1000;

const BASE: u64 = 0x10_0000;

/// A driver and a device over one arena, and the packets on their way through the device.
struct Pair<D, V> {
    driver: NetDriver<D>,
    receiveq: V,
    transmitq: V,
    rings: [Ring; 2],
    elements: Elements,
    in_device: VecDeque<(NetHeader, Vec<u8>)>,
    memory: TestMemory,
    regions: Regions,
}

#[derive(Clone, Copy)]
struct Shape {
    format: Format,
    size: u16,
    mergeable: bool,
    elements: u16,
    options: QueueOptions,
}

impl<D: DriverQueue, V: DeviceQueue> Pair<D, V> {
    fn new(shape: Shape) -> Self {
        let len = usize::from(shape.size) * 2 * 17 * 4096 + (1 << 20);
        let memory = TestMemory::new(&[(BASE, len as u64)]).expect("memory for a test");
        let regions = memory.regions();
        let shared = memory.region(0);
        let mut arena = Arena::new(shared, BASE);
        let rings = [(); 2].map(|()| {
            Ring::carve(&mut arena, shape.format, shape.size, shape.options)
                .expect("room for rings")
        });
        let rx = if shape.mergeable { RxOptions::MERGEABLE } else { RxOptions::BIG };
        let options = DriverOptions {
            rx: RxOptions { elements: shape.elements, ..rx },
            tx: TxOptions { header_apart: shape.elements > 1, ..TxOptions::default() },
        };
        let [receiveq, transmitq] = [&rings[0], &rings[1]].map(|ring| ring.start(shape.options));
        let driver = NetDriver::new(receiveq, transmitq, &mut arena, &options).expect("room");
        let [receiveq, transmitq] = [&rings[0], &rings[1]].map(|ring| {
            let setup = QueueSetup {
                size: shape.size,
                areas: ring.areas(),
                position: Position::FRESH,
                options: shape.options,
            };
            V::start(&setup, &regions).expect("a right setup")
        });
        let elements = Elements::new();
        let in_device = VecDeque::new();
        Self { driver, receiveq, transmitq, rings, elements, in_device, memory, regions }
    }

    /// Device: takes everything the driver has made available.
    fn take_all(&mut self) {
        let mut at = self.transmitq.cursor();
        while let Some(head) = self.peek_transmitq(&mut at) {
            let mut bytes = Vec::new();
            assert!(self.elements.writable().is_empty());
            for piece in self.elements.readable() {
                let start = bytes.len();
                bytes.resize(start + piece.len(), 0);
                piece.read(0, &mut bytes[start..]);
            }
            let packet = bytes.split_off(HEADER_LEN);
            let header = NetHeader::decode(&bytes.try_into().expect("12 bytes"));
            self.in_device.push_back((header, packet));
            self.transmitq.pop_to(at);
            self.transmitq.add_used(head, 0);
        }
        self.transmitq.publish();
    }

    fn peek_transmitq(&mut self, at: &mut Cursor) -> Option<Head> {
        let peeked = self.transmitq.peek(at, &self.regions, &mut self.elements);
        peeked.expect("a right driver")
    }

    /// Device: gives back as many packets as the driver has buffers for.
    fn give_all(&mut self) {
        while let Some((header, packet)) = self.in_device.pop_front() {
            if !self.give(&header, &packet) {
                self.in_device.push_front((header, packet));
                break;
            }
        }
        self.receiveq.publish();
    }

    fn give(&mut self, header: &NetHeader, packet: &[u8]) -> bool {
        let mut at = self.receiveq.cursor();
        let mut bytes = header.encode().to_vec();
        bytes.extend(packet);
        let mut rest = &bytes[..];
        let mut taken = Vec::new();
        let mut first = None;
        while !rest.is_empty() {
            let peeked = self.receiveq.peek(&mut at, &self.regions, &mut self.elements);
            let Some(head) = peeked.expect("a right driver") else { return false };
            assert!(self.elements.readable().is_empty());
            first.get_or_insert(self.elements.writable()[0]);
            let before = rest.len();
            for piece in self.elements.writable() {
                let (now, later) = rest.split_at(piece.len().min(rest.len()));
                piece.write(0, now);
                rest = later;
            }
            taken.push((head, u32::try_from(before - rest.len()).expect("small")));
        }
        let num_buffers = u16::try_from(taken.len()).expect("few");
        first.expect("one").write(0, &NetHeader { num_buffers, ..*header }.encode());
        self.receiveq.pop_to(at);
        for (head, written) in taken {
            self.receiveq.add_used(head, written);
        }
        true
    }
}

fn random_header(rng: &mut Rng) -> NetHeader {
    NetHeader {
        flags: 1,
        gso_type: 1,
        gso_size: rng.word(),
        csum_start: rng.word(),
        ..NetHeader::default()
    }
}

fn random_packet(rng: &mut Rng) -> Vec<u8> {
    let longest = match rng.below(50) {
        0 => u64::from(PACKET_LEN_MAX) - 8,
        1..10 => 9014,
        _ => 1514,
    };
    let mut packet = vec![0; usize::try_from(rng.between(14, longest)).expect("small")];
    rng.fill(&mut packet);
    packet
}

/// Every packet comes back once, in order, with the same header and the same bytes.
fn carry<D: DriverQueue, V: DeviceQueue>(shape: Shape, packets: usize, rng: &mut Rng) {
    let mut pair = Pair::<D, V>::new(shape);
    let mut expected = VecDeque::new();
    let (mut sent, mut received) = (0, 0);
    let mut stalled_rounds = 0;
    while received < packets {
        let before = (sent, received, pair.in_device.len());
        for _ in 0..rng.between(0, u64::from(shape.size)) {
            let (header, packet) = (random_header(rng), random_packet(rng));
            match pair.driver.tx.send(&header, &packet).expect("a right device") {
                Sent::Done => expected.push_back((header, packet)),
                Sent::NoRoom => break,
                Sent::TooLong => panic!("{} bytes fit", packet.len()),
            }
            sent += 1;
        }
        let _ = pair.driver.tx.flush();
        if !rng.one_in(3) {
            pair.take_all();
        }
        pair.give_all();
        while let Some(lent) = pair.driver.rx.receive().expect("a right device") {
            let (header, packet) = expected.pop_front().expect("not more than was sent");
            let mut bytes = vec![0; lent.len as usize];
            lent.copy_to(&mut bytes);
            assert!(bytes == packet, "packet {received}: {} of {}", bytes.len(), packet.len());
            let buffers = lent.header.num_buffers;
            assert_eq!(lent.header, NetHeader { num_buffers: buffers, ..header });
            received += 1;
        }
        let _ = pair.driver.rx.flush();
        let moved = before != (sent, received, pair.in_device.len());
        stalled_rounds = if moved { 0 } else { stalled_rounds + 1 };
        assert!(stalled_rounds < STALLED_ROUNDS_MAX, "nothing moves after {received} packets");
    }
    assert!(pair.memory.guards_intact(), "written outside the shared memory");
    assert_eq!(pair.driver.rx.counters().packets, received as u64);
    assert_eq!(pair.driver.tx.counters().packets, sent as u64);
    assert_eq!(pair.driver.rx.counters().drops, [0; DropReason::ALL.len()]);
}

fn carry_all_shapes<D: DriverQueue, V: DeviceQueue>(format: Format, packets: usize) {
    let mut rng = Rng::from_environment("driver", 0x5eed);
    let sizes: &[u16] = if format == Format::Split { &[64, 256] } else { &[60, 256] };
    for bits in 0..16_u8 {
        let options = QueueOptions {
            event_idx: bits & 1 != 0,
            indirect: bits & 2 != 0,
            in_order: bits & 4 != 0,
            notify_on_empty: false,
        };
        let elements = if rng.one_in(2) { 1 } else { 3 };
        let size = sizes[usize::from(bits & 1)];
        let shape = Shape { format, size, mergeable: bits & 8 != 0, elements, options };
        carry::<D, V>(shape, packets, &mut rng);
    }
}

#[test]
fn split_carries_every_packet() {
    carry_all_shapes::<SplitDriver, SplitDevice>(Format::Split, 3000);
}

#[test]
fn packed_carries_every_packet() {
    carry_all_shapes::<PackedDriver, PackedDevice>(Format::Packed, 3000);
}

#[test]
fn one_entry_is_enough() {
    let mut rng = Rng::from_environment("one entry", 1);
    let options = QueueOptions::default();
    for format in [Format::Split, Format::Packed] {
        let shape = Shape { format, size: 1, mergeable: false, elements: 1, options };
        match format {
            Format::Split => carry::<SplitDriver, SplitDevice>(shape, 200, &mut rng),
            Format::Packed => carry::<PackedDriver, PackedDevice>(shape, 200, &mut rng),
        }
    }
}

const HOSTILE: Shape = Shape {
    format: Format::Split,
    size: 8,
    mergeable: true,
    elements: 1,
    options: QueueOptions {
        event_idx: false,
        indirect: false,
        in_order: false,
        notify_on_empty: false,
    },
};

/// Uses one buffer with `written` bytes and this `num_buffers`, whatever is true.
fn use_one<D: DriverQueue, V: DeviceQueue>(pair: &mut Pair<D, V>, num_buffers: u16, written: u32) {
    let mut at = pair.receiveq.cursor();
    let peeked = pair.receiveq.peek(&mut at, &pair.regions, &mut pair.elements);
    let head = peeked.expect("a right driver").expect("a buffer");
    let header = NetHeader { num_buffers, ..NetHeader::default() };
    pair.elements.writable()[0].write(0, &header.encode());
    pair.receiveq.pop_to(at);
    pair.receiveq.add_used(head, written);
}

/// Lies about lengths and buffer counts are dropped and counted, and the queue goes on.
fn lies_are_counted<D: DriverQueue, V: DeviceQueue>(format: Format) {
    let mut pair = Pair::<D, V>::new(Shape { format, ..HOSTILE });
    let _ = pair.driver.rx.flush();
    let malformed = DropReason::Malformed as usize;
    // (num_buffers, bytes written): none, missing ones, more than the queue has, no header.
    let lies = [(0, 100), (2, 100), (9, 100), (u16::MAX, 100), (1, 0), (1, 11)];
    for (count, (num_buffers, written)) in lies.into_iter().enumerate() {
        use_one(&mut pair, num_buffers, written);
        pair.receiveq.publish();
        assert!(pair.driver.rx.receive().expect("goes on").is_none(), "{num_buffers} {written}");
        assert_eq!(pair.driver.rx.counters().drops[malformed], count as u64 + 1);
        let _ = pair.driver.rx.flush();
    }
    // The same queue still carries a right packet.
    use_one(&mut pair, 1, 112);
    pair.receiveq.publish();
    assert_eq!(pair.driver.rx.receive().expect("goes on").expect("a packet").len, 100);
    assert!(pair.memory.guards_intact());
}

#[test]
fn lies_are_counted_and_the_queue_goes_on() {
    lies_are_counted::<SplitDriver, SplitDevice>(Format::Split);
    lies_are_counted::<PackedDriver, PackedDevice>(Format::Packed);
}

/// Writes a used entry past the device queue, straight into the split ring.
fn forge_split(pair: &Pair<SplitDriver, SplitDevice>, id: u32, len: u32) {
    let used = pair.rings[0].device.memory;
    used.store_u32(4, id);
    used.store_u32(8, len);
    used.store_u16(2, 1);
}

/// Writes a used descriptor past the device queue, straight into the packed ring.
fn forge_packed(pair: &Pair<PackedDriver, PackedDevice>, id: u16, len: u32) {
    let ring = pair.rings[0].descriptor.memory;
    ring.store_u32(8, len);
    ring.store_u16(12, id);
    ring.store_u16(14, 1 << 7 | 1 << 15 | 2);
}

#[test]
fn forged_split_entries_stop_the_queue() {
    let forged = [
        (8, 100, Why::BadIndex),
        (u32::MAX, 100, Why::BadIndex),
        (0x1_0000, 100, Why::BadIndex),
        (0, 4097, Why::UsedTooLong),
        (0, u32::MAX, Why::UsedTooLong),
    ];
    for (id, len, why) in forged {
        let mut pair = Pair::<SplitDriver, SplitDevice>::new(HOSTILE);
        let _ = pair.driver.rx.flush();
        forge_split(&pair, id, len);
        assert_eq!(pair.driver.rx.receive().expect_err("stops").0, why, "id {id} len {len}");
        // It stays stopped, without looking at the ring again.
        forge_split(&pair, 0, 100);
        assert_eq!(pair.driver.rx.receive().expect_err("stays").0, why);
        assert!(!pair.driver.rx.flush());
    }
}

#[test]
fn forged_packed_entries_stop_the_queue() {
    let forged = [
        (8, 100, Why::BadIndex),
        (u16::MAX, 100, Why::BadIndex),
        (0, 4097, Why::UsedTooLong),
        (0, u32::MAX, Why::UsedTooLong),
    ];
    for (id, len, why) in forged {
        let shape = Shape { format: Format::Packed, ..HOSTILE };
        let mut pair = Pair::<PackedDriver, PackedDevice>::new(shape);
        let _ = pair.driver.rx.flush();
        forge_packed(&pair, id, len);
        assert_eq!(pair.driver.rx.receive().expect_err("stops").0, why, "id {id} len {len}");
        assert_eq!(pair.driver.rx.receive().expect_err("stays").0, why);
    }
}

#[test]
fn the_same_buffer_used_twice_stops_the_queue() {
    let mut pair = Pair::<SplitDriver, SplitDevice>::new(HOSTILE);
    let _ = pair.driver.rx.flush();
    let used = pair.rings[0].device.memory;
    for entry in 0..2 {
        used.store_u32(4 + 8 * entry, 0);
        used.store_u32(8 + 8 * entry, 100);
    }
    used.store_u16(2, 2);
    let mut results = (0..3).map(|_| pair.driver.rx.receive().map(|lent| lent.is_some()));
    assert!(results.any(|result| result.is_err_and(|broken| broken.0 == Why::NotInFlight)));
}

/// Random bytes in everything the device may write: never a panic, never a byte elsewhere.
fn scrambled_device<D: DriverQueue, V: DeviceQueue>(format: Format, rng: &mut Rng) {
    for _ in 0..300 {
        let mergeable = rng.one_in(2);
        let mut pair = Pair::<D, V>::new(Shape { format, mergeable, ..HOSTILE });
        let _ = pair.driver.rx.flush();
        for _ in 0..20 {
            for ring in pair.rings {
                let parts = [ring.device.memory, ring.descriptor.memory];
                for part in &parts[..if format == Format::Packed { 2 } else { 1 }] {
                    let mut bytes = vec![0; part.len()];
                    rng.fill(&mut bytes);
                    part.write(0, &bytes);
                }
                if format == Format::Split {
                    ring.device.memory.store_u16(2, rng.word() % 16);
                    ring.device.memory.store_u32(4, rng.double_word() % 9);
                    ring.device.memory.store_u32(8, rng.double_word() % 5000);
                }
            }
            let _ = pair.driver.tx.send(&NetHeader::default(), &[0; 60]);
            let _ = pair.driver.tx.flush();
            if let Ok(Some(lent)) = pair.driver.rx.receive() {
                let mut bytes = vec![0; lent.len as usize];
                lent.copy_to(&mut bytes);
            }
            let _ = pair.driver.rx.flush();
        }
        assert!(pair.memory.guards_intact());
    }
}

#[test]
fn a_scrambled_device_never_panics_the_driver() {
    let mut rng = Rng::from_environment("scrambled device", 0xbad);
    scrambled_device::<SplitDriver, SplitDevice>(Format::Split, &mut rng);
    scrambled_device::<PackedDriver, PackedDevice>(Format::Packed, &mut rng);
}
