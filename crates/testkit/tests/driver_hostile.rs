//! A device that lies to the driver: one test per way of lying, each over both ring formats.
//!
//! Whatever it is, the driver counts a drop and goes on, or stops that queue for good; it never
//! panics, and never touches memory that is not its own.

use ringway_driver::{
    ANSWER_LIMIT_US, CommandState, Control, ControlCommand, ControlFailure, RxOptions, RxScheme,
};
use ringway_net::{DropReason, Features, Negotiated, NetHeader};
use ringway_testkit::{DriverPair, PairShape, Ring, Rng};
use ringway_virtq::{
    Arm, DeviceQueue, DriverQueue, Format, PackedDevice, PackedDriver, QueueOptions, SplitDevice,
    SplitDriver, Why,
};

const SIZE: u16 = 8;
const RECEIVEQ: usize = 0;
const TRANSMITQ: usize = 1;

type SplitPair = DriverPair<SplitDriver, SplitDevice>;
type PackedPair = DriverPair<PackedDriver, PackedDevice>;

fn pair<D: DriverQueue, V: DeviceQueue>() -> DriverPair<D, V> {
    let mut pair = DriverPair::new(PairShape::plain(D::FORMAT, SIZE, RxScheme::Page));
    assert!(pair.driver.rx.flush());
    pair
}

fn dropped<D: DriverQueue, V: DeviceQueue>(pair: &DriverPair<D, V>, reason: DropReason) -> u64 {
    pair.driver.rx.counters().drops[reason as usize]
}

fn one_buffer() -> NetHeader {
    NetHeader { num_buffers: 1, ..NetHeader::default() }
}

/// One lie in each packet: each is dropped and counted, and then a right packet gets through.
fn is_dropped_and_the_queue_goes_on<D: DriverQueue, V: DeviceQueue>(lies: &[(NetHeader, u32)]) {
    let mut pair = pair::<D, V>();
    for (count, (header, written)) in lies.iter().enumerate() {
        pair.use_one(header, *written);
        let received = pair.driver.rx.receive().expect("goes on");
        assert!(received.is_none(), "{header:?} with {written} bytes");
        assert_eq!(dropped(&pair, DropReason::Malformed), count as u64 + 1, "{header:?}");
        let _ = pair.driver.rx.flush();
    }
    pair.use_one(&one_buffer(), 112);
    assert_eq!(pair.driver.rx.receive().expect("goes on").expect("a packet").len, 100);
    let _ = pair.driver.rx.flush();
    assert_eq!(pair.driver.rx.statistics().posted_buffers, u64::from(SIZE), "a buffer was lost");
    assert!(pair.memory.guards_intact());
}

fn dropped_in_both_formats(lies: &[(NetHeader, u32)]) {
    is_dropped_and_the_queue_goes_on::<SplitDriver, SplitDevice>(lies);
    is_dropped_and_the_queue_goes_on::<PackedDriver, PackedDevice>(lies);
}

#[test]
fn used_len_shorter_than_a_header_is_dropped() {
    dropped_in_both_formats(&[0, 1, 11, 12].map(|written| (one_buffer(), written)));
}

#[test]
fn num_buffers_that_cannot_be_is_dropped() {
    let lies = [0, SIZE + 1, u16::MAX];
    dropped_in_both_formats(
        &lies.map(|num_buffers| (NetHeader { num_buffers, ..NetHeader::default() }, 100)),
    );
}

#[test]
fn buffers_that_are_announced_and_missing_are_dropped() {
    let lies = [2, 3, SIZE];
    dropped_in_both_formats(
        &lies.map(|num_buffers| (NetHeader { num_buffers, ..NetHeader::default() }, 100)),
    );
}

#[test]
fn a_checksum_outside_the_packet_is_dropped() {
    let lies = [(99, 0), (100, 0), (0, 99), (u16::MAX, u16::MAX), (60, 50)];
    dropped_in_both_formats(&lies.map(|(csum_start, csum_offset)| {
        (NetHeader { flags: 1, csum_start, csum_offset, ..one_buffer() }, 112)
    }));
}

#[test]
fn segmentation_that_makes_no_sense_is_dropped() {
    let header = NetHeader { flags: 1, ..one_buffer() };
    dropped_in_both_formats(&[
        (NetHeader { gso_type: 2, gso_size: 100, ..header }, 112),
        (NetHeader { gso_type: 0x7f, gso_size: 100, ..header }, 112),
        (NetHeader { gso_type: 1, gso_size: 0, ..header }, 112),
        (NetHeader { flags: 0, gso_type: 1, gso_size: 0, ..header }, 112),
        // The ECN bit without TCP.
        (NetHeader { gso_type: 0x85, gso_size: 100, ..header }, 112),
    ]);
}

#[test]
fn a_header_length_that_lies_is_not_believed() {
    fn lies<D: DriverQueue, V: DeviceQueue>() {
        let mut pair = pair::<D, V>();
        for hdr_len in [0, 1, 5000, u16::MAX] {
            pair.use_one(&NetHeader { hdr_len, ..one_buffer() }, 212);
            let lent = pair.driver.rx.receive().expect("goes on").expect("a packet");
            assert_eq!((lent.len, lent.linear().len()), (200, 128));
        }
    }
    lies::<SplitDriver, SplitDevice>();
    lies::<PackedDriver, PackedDevice>();
}

#[test]
fn offloads_that_were_not_negotiated_are_dropped() {
    fn not_negotiated<D: DriverQueue, V: DeviceQueue>() {
        let features = Features::VERSION_1 | Features::MRG_RXBUF | Features::GUEST_CSUM;
        let negotiated = Negotiated::new(features).expect("they fit together");
        let shape = PairShape::plain(D::FORMAT, SIZE, RxScheme::Page);
        let options = RxOptions::negotiated(RxScheme::Page, &negotiated);
        let mut pair = DriverPair::<D, V>::with(shape, &options);
        let _ = pair.driver.rx.flush();
        let header = NetHeader { flags: 1, gso_type: 1, gso_size: 50, ..one_buffer() };
        pair.use_one(&header, 112);
        assert!(pair.driver.rx.receive().expect("goes on").is_none());
        assert_eq!(dropped(&pair, DropReason::Offload), 1);
        pair.use_one(&NetHeader { flags: 1, ..one_buffer() }, 112);
        assert!(pair.driver.rx.receive().expect("goes on").is_some());
    }
    not_negotiated::<SplitDriver, SplitDevice>();
    not_negotiated::<PackedDriver, PackedDevice>();
}

/// Writes one used entry past the device's queue, straight into the ring.
trait Forge {
    fn forge(&self, queue: usize, id: u32, len: u32);
}

impl Forge for SplitPair {
    fn forge(&self, queue: usize, id: u32, len: u32) {
        let used = self.rings[queue].device.memory;
        used.store_u32(4, id);
        used.store_u32(8, len);
        used.store_u16(2, 1);
    }
}

impl Forge for PackedPair {
    fn forge(&self, queue: usize, id: u32, len: u32) {
        let ring = self.rings[queue].descriptor.memory;
        ring.store_u32(8, len);
        ring.store_u16(12, u16::try_from(id).unwrap_or(u16::MAX));
        // Used, on the first lap, and written by the device.
        ring.store_u16(14, 1 << 7 | 1 << 15 | 2);
    }
}

/// The queue stops with this reason, and stays stopped without looking at the ring again.
fn stops<D: DriverQueue, V: DeviceQueue>(id: u32, len: u32, why: Why)
where
    DriverPair<D, V>: Forge,
{
    let mut pair = pair::<D, V>();
    pair.forge(RECEIVEQ, id, len);
    assert_eq!(pair.driver.rx.receive().expect_err("stops").0, why, "id {id} len {len}");
    pair.forge(RECEIVEQ, 0, 100);
    assert_eq!(pair.driver.rx.receive().expect_err("stays").0, why);
    assert!(!pair.driver.rx.flush());
    assert!(pair.driver.rx.hold().is_none());
}

#[test]
fn a_used_id_out_of_range_stops_the_queue() {
    for id in [u32::from(SIZE), 0xffff, 0x1_0000, u32::MAX] {
        stops::<SplitDriver, SplitDevice>(id, 100, Why::BadIndex);
        stops::<PackedDriver, PackedDevice>(id, 100, Why::BadIndex);
    }
}

#[test]
fn a_used_len_longer_than_the_buffer_stops_the_queue() {
    // A buffer is a page and a line.
    for len in [4161, 65_562, u32::MAX] {
        stops::<SplitDriver, SplitDevice>(0, len, Why::UsedTooLong);
        stops::<PackedDriver, PackedDevice>(0, len, Why::UsedTooLong);
    }
}

/// Each buffer's own length counts, not the length that is wanted by now.
#[test]
fn a_used_len_longer_than_an_older_buffer_stops_the_queue() {
    fn older<D: DriverQueue, V: DeviceQueue>() {
        let shape = PairShape::plain(D::FORMAT, 256, RxScheme::Adaptive);
        let mut pair = DriverPair::<D, V>::new(shape);
        let _ = pair.driver.rx.flush();
        let before = pair.available()[0];
        for _ in 0..4 {
            assert!(pair.give(&NetHeader::default(), &[0; 60_000]));
            pair.receiveq.publish();
            assert!(pair.driver.rx.receive().expect("goes on").is_some());
        }
        let wanted = pair.driver.rx.statistics().buffer_len as usize;
        assert!(wanted > before, "{wanted} after {before}");
        // The next buffer is one of those posted at the start.
        assert_eq!(pair.available()[0], before);
        pair.use_one(&one_buffer(), u32::try_from(wanted).expect("small"));
        assert_eq!(pair.driver.rx.receive().expect_err("stops").0, Why::UsedTooLong);
    }
    older::<SplitDriver, SplitDevice>();
    older::<PackedDriver, PackedDevice>();
}

#[test]
fn a_buffer_used_twice_stops_the_queue() {
    let mut pair = pair::<SplitDriver, SplitDevice>();
    let used = pair.rings[RECEIVEQ].device.memory;
    for entry in 0..2 {
        pair.rings[RECEIVEQ].device.memory.store_u32(4 + 8 * entry, 0);
        used.store_u32(8 + 8 * entry, 0);
    }
    used.store_u16(2, 2);
    assert_eq!(pair.driver.rx.receive().expect_err("stops").0, Why::NotInFlight);

    let mut pair = self::pair::<PackedDriver, PackedDevice>();
    let ring = pair.rings[RECEIVEQ].descriptor.memory;
    for entry in 0..2 {
        ring.store_u32(16 * entry + 8, 0);
        ring.store_u16(16 * entry + 12, 0);
        ring.store_u16(16 * entry + 14, 1 << 7 | 1 << 15 | 2);
    }
    assert_eq!(pair.driver.rx.receive().expect_err("stops").0, Why::NotInFlight);
}

#[test]
fn a_packet_that_was_not_sent_is_not_reclaimed() {
    fn forged<D: DriverQueue, V: DeviceQueue>()
    where
        DriverPair<D, V>: Forge,
    {
        let mut pair = pair::<D, V>();
        let _ = pair.driver.tx.send(&NetHeader::default(), &[0; 60]).expect("room");
        let _ = pair.driver.tx.flush();
        pair.forge(TRANSMITQ, 5, 0);
        assert_eq!(pair.driver.tx.reclaim().expect_err("stops").0, Why::NotInFlight);
        assert!(pair.driver.tx.send(&NetHeader::default(), &[0; 60]).is_err(), "stays stopped");
    }
    forged::<SplitDriver, SplitDevice>();
    forged::<PackedDriver, PackedDevice>();
}

#[test]
fn buffers_returned_out_of_order_are_told_apart() {
    fn reversed<D: DriverQueue, V: DeviceQueue>() {
        let mut pair = pair::<D, V>();
        // Three packets in three buffers, completed last to first.
        let mut at = pair.receiveq.cursor();
        let regions = pair.memory.regions();
        let mut heads = Vec::new();
        for byte in 1..=3u8 {
            let mut elements = ringway_virtq::Elements::new();
            let peeked = pair.receiveq.peek(&mut at, &regions, &mut elements);
            let head = peeked.expect("a right driver").expect("a buffer");
            elements.writable()[0].write(0, &one_buffer().encode());
            elements.writable()[0].write(12, &[byte; 64]);
            heads.push(head);
        }
        heads.iter().for_each(|&head| pair.receiveq.pop(head));
        for head in heads.into_iter().rev() {
            pair.receiveq.add_used(head, 76);
        }
        pair.receiveq.publish();
        for byte in [3u8, 2, 1] {
            let lent = pair.driver.rx.receive().expect("goes on").expect("a packet");
            assert_eq!(lent.linear(), [byte; 64]);
        }
    }
    reversed::<SplitDriver, SplitDevice>();
    reversed::<PackedDriver, PackedDevice>();
}

/// Used buffers leave the ring all at once; those that were not looked at yet are not forgotten
/// by a flush in between, and who wants to sleep is told of them.
#[test]
fn what_was_taken_off_the_ring_and_not_looked_at_stays() {
    fn one_by_one<D: DriverQueue, V: DeviceQueue>() {
        let mut pair = pair::<D, V>();
        for lap in 0..3 * SIZE {
            for byte in 1..=3u8 {
                assert!(pair.give(&one_buffer(), &[byte; 64]), "room in lap {lap}");
            }
            pair.receiveq.publish();
            for byte in 1..=3u8 {
                let lent = pair.driver.rx.receive().expect("right").expect("a packet");
                assert_eq!(lent.linear(), [byte; 64], "lap {lap}");
                if byte == 1
                    && let Some(held) = pair.driver.rx.hold()
                {
                    pair.driver.rx.release(held);
                }
                let _ = pair.driver.rx.flush();
                assert_eq!(pair.driver.rx.arm_calls(Arm::Next), byte < 3, "lap {lap}");
                assert!(!pair.driver.rx.arm_calls(Arm::Never));
            }
            assert!(pair.driver.rx.receive().expect("right").is_none());
        }
        assert_eq!(pair.driver.rx.statistics().posted_buffers, u64::from(SIZE));
    }
    one_by_one::<SplitDriver, SplitDevice>();
    one_by_one::<PackedDriver, PackedDevice>();
}

/// A device that writes over a packet after the driver has looked at its start, and over its header
/// at any time: what was looked at stays, in a copy of the packet and in one that is held.
#[test]
fn what_was_looked_at_does_not_change() {
    fn overwritten<D: DriverQueue, V: DeviceQueue>() {
        let mut pair = pair::<D, V>();
        let memory = pair.memory.region(0);
        for len in [100, 128, 200] {
            let packet: Vec<u8> = (1..=len).collect();
            assert!(pair.give(&one_buffer(), &packet), "room");
            pair.receiveq.publish();
            let mut all = vec![0; memory.len()];
            memory.read(0, &mut all);
            let at = all.windows(packet.len()).position(|bytes| bytes == packet).expect("written");
            let lent = pair.driver.rx.receive().expect("right").expect("a packet");
            let seen = lent.linear().to_vec();
            assert_eq!(seen, packet[..packet.len().min(128)]);
            memory.write(at - 12, &vec![0xee; 12 + packet.len()]);
            assert_eq!((lent.linear(), lent.header), (&seen[..], one_buffer()));
            let mut copied = vec![0; packet.len()];
            lent.copy_to(&mut copied);
            assert_eq!(copied[..seen.len()], seen);
            let held = pair.driver.rx.hold().expect("few fragments");
            held.copy_to(&mut copied);
            assert_eq!((held.linear(), held.header), (&seen[..], one_buffer()));
            assert_eq!(copied[..seen.len()], seen);
            pair.driver.rx.release(held);
            let _ = pair.driver.rx.flush();
            memory.write(at, &vec![0; packet.len()]);
        }
    }
    overwritten::<SplitDriver, SplitDevice>();
    overwritten::<PackedDriver, PackedDevice>();
}

/// Free lists and links are not read back from the descriptor table: a device that scribbles all
/// over it, after it has read it, changes nothing for the driver. It must put the table right
/// itself: the driver does not write again what it has written before.
#[test]
fn chains_and_free_lists_are_private() {
    let options = QueueOptions::default();
    let shape =
        PairShape { elements: 2, options, ..PairShape::plain(Format::Split, SIZE, RxScheme::Page) };
    let mut pair = SplitPair::new(shape);
    let _ = pair.driver.rx.flush();
    for lap in 0..20 {
        let mut given = 0;
        while pair.give(&NetHeader::default(), &[lap; 3000]) {
            given += 1;
        }
        assert_eq!(given, SIZE / 2, "two descriptors for each buffer");
        pair.receiveq.publish();
        let table = pair.rings[RECEIVEQ].descriptor.memory;
        let mut right = vec![0; table.len()];
        table.read(0, &mut right);
        table.write(0, &vec![0xff; table.len()]);
        for _ in 0..given {
            let lent = pair.driver.rx.receive().expect("goes on").expect("a packet");
            assert_eq!((lent.len, lent.linear()[0]), (3000, lap));
        }
        table.write(0, &right);
        let _ = pair.driver.rx.flush();
    }
}

/// The sixteen-bit indexes wrap, with event index and without; no kick is lost.
#[test]
fn event_indexes_wrap() {
    fn wraps<D: DriverQueue, V: DeviceQueue>() {
        let options = QueueOptions { event_idx: true, ..QueueOptions::default() };
        let shape = PairShape { options, ..PairShape::plain(D::FORMAT, SIZE, RxScheme::Mtu(1500)) };
        let mut pair = DriverPair::<D, V>::new(shape);
        let _ = pair.driver.rx.flush();
        for at in 0..70_000u32 {
            let _ = pair.transmitq.arm_kicks(ringway_virtq::Arm::Next);
            let _ = pair.driver.tx.send(&NetHeader::default(), &[1; 60]).expect("goes on");
            assert!(pair.driver.tx.flush(), "kick {at} is lost");
            pair.take_all();
            pair.in_device.clear();
        }
    }
    wraps::<SplitDriver, SplitDevice>();
    wraps::<PackedDriver, PackedDevice>();
}

#[test]
fn a_command_that_is_never_answered_can_be_given_up() {
    fn unanswered<D: DriverQueue>() {
        let memory = ringway_testkit::TestMemory::new(&[(0x10_0000, 1 << 20)]).expect("memory");
        let mut arena = ringway_driver::Arena::new(memory.region(0), 0x10_0000);
        let options = QueueOptions::default();
        let ring = Ring::carve(&mut arena, D::FORMAT, 16, options).expect("room");
        let mut control = Control::<D>::new(ring.start(options), &mut arena).expect("room");
        let (command, now) = (ControlCommand::QueuePairs(2), 1000);
        assert_eq!(control.command(&command, Features::MQ, now), Ok(true));
        let until_us = now + ANSWER_LIMIT_US;
        for _ in 0..1000 {
            assert_eq!(control.poll(until_us - 1), Ok(CommandState::Waiting { until_us }));
        }
        assert_eq!(control.poll(until_us), Ok(CommandState::TimedOut));
        let again = control.command(&command, Features::MQ, until_us);
        assert_eq!(again, Err(ControlFailure::InFlight));
    }
    unanswered::<SplitDriver>();
    unanswered::<PackedDriver>();
}

/// Random bytes in everything the device may write: never a panic, never a byte elsewhere.
fn scrambled_device<D: DriverQueue, V: DeviceQueue>(rng: &mut Rng) {
    for round in 0..300 {
        let scheme = RxScheme::ALL[round % RxScheme::ALL.len()];
        let mut pair = DriverPair::<D, V>::new(PairShape::plain(D::FORMAT, SIZE, scheme));
        let _ = pair.driver.rx.flush();
        for _ in 0..20 {
            for ring in pair.rings {
                scramble(&ring, D::FORMAT, rng);
            }
            let _ = pair.driver.tx.send(&NetHeader::default(), &[0; 60]);
            let _ = pair.driver.tx.flush();
            if let Ok(Some(lent)) = pair.driver.rx.receive() {
                let mut bytes = vec![0; lent.len as usize];
                lent.copy_to(&mut bytes);
            }
            if let Some(held) = pair.driver.rx.hold() {
                pair.driver.rx.release(held);
            }
            let _ = pair.driver.rx.flush();
        }
        assert!(pair.memory.guards_intact());
    }
}

fn scramble(ring: &Ring, format: Format, rng: &mut Rng) {
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

#[test]
fn a_scrambled_device_never_panics_the_driver() {
    let mut rng = Rng::from_environment("scrambled device", 0xbad);
    scrambled_device::<SplitDriver, SplitDevice>(&mut rng);
    scrambled_device::<PackedDriver, PackedDevice>(&mut rng);
}
