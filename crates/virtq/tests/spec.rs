//! The rules of the specification, one test for each rule, with rings written word by word.
//!
//! How: a hand-written driver or device on the one side, ours on the other; so a mistake which
//! both of our sides share is seen here.

mod common;

use common::{Memory, Rng};
use ringway_virtq::{
    AreaSizes, Areas, Arm, Broken, BufferId, DeviceQueue, DriverQueue, ELEMENTS_MAX, Elements,
    Format, Head, INDIRECT_ELEMENTS_MAX, Layout, One, PackedDevice, PackedDriver, Position,
    QueueFull, QueueOptions, QueueSetup, REGIONS_MAX, Region, RegionError, Regions, Returned,
    SharedSlice, SplitDevice, SplitDriver, Used, Why, position_by_ring,
};

const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;
const AVAIL: u16 = 1 << 7;
const USED: u16 = 1 << 15;
const BASE: u64 = Memory::BASE;
/// Offsets in the test memory; the rest is data.
const DRIVER_AREA: usize = 0x10_0000;
const DEVICE_AREA: usize = 0x11_0000;
const TABLE: usize = 0x20_0000;
const DATA: usize = 0x21_0000;
const MEMORY_LEN: usize = 0x22_0000;

const NO_OPTIONS: QueueOptions =
    QueueOptions { event_idx: false, indirect: false, in_order: false, notify_on_empty: false };
const INDIRECT_ALLOWED: QueueOptions = QueueOptions { indirect: true, ..NO_OPTIONS };
const EVENT_IDX: QueueOptions = QueueOptions { event_idx: true, ..NO_OPTIONS };
const IN_ORDER: QueueOptions = QueueOptions { in_order: true, ..NO_OPTIONS };

fn data() -> u64 {
    BASE + DATA as u64
}

/// A device under a driver that the test writes by hand.
struct ByHand<V> {
    device: V,
    memory: SharedSlice,
    regions: Regions,
    elements: Elements,
    size: u16,
    _pages: Memory,
}

impl<V: DeviceQueue> ByHand<V> {
    fn new(size: u16, options: QueueOptions) -> Self {
        let mut pages = Memory::new(MEMORY_LEN);
        let (memory, regions) = (pages.share(), pages.regions());
        let position = Position::FRESH;
        let setup = QueueSetup { size, areas: areas(), position, options };
        let device = V::start(&setup, &regions).expect("a right setup");
        Self { device, memory, regions, elements: Elements::new(), size, _pages: pages }
    }

    /// (address, length, flags) at an index of any table; `extra` is next or the buffer id.
    fn describe(&self, table: usize, at: u16, element: (u64, u32, u16), extra: u16) {
        let (address, len, flags) = element;
        let offset = table + 16 * usize::from(at);
        self.memory.store_u64(offset, address);
        self.memory.store_u32(offset + 8, len);
        let (third, fourth) = match V::FORMAT {
            Format::Split => (flags, extra),
            Format::Packed => (extra, flags),
        };
        self.memory.store_u16(offset + 12, third);
        self.memory.store_u16(offset + 14, fourth);
    }

    /// Makes available what starts at descriptor 0, with these elements behind each other.
    fn offer(&self, elements: &[(u64, u32, u16)]) {
        let wrap = if V::FORMAT == Format::Packed { AVAIL } else { 0 };
        for (at, &(address, len, flags)) in elements.iter().enumerate() {
            let at = u16::try_from(at).expect("few");
            let extra = if V::FORMAT == Format::Packed { 0 } else { at + 1 };
            self.describe(0, at, (address, len, flags | wrap), extra);
        }
        self.show_split(0, &[0]);
    }

    /// Split: puts heads into the available ring from `index` on.
    fn show_split(&self, index: u16, heads: &[u16]) {
        if V::FORMAT == Format::Packed {
            return;
        }
        let mut index = index;
        for &head in heads {
            let entry = usize::from(index % self.size);
            self.memory.store_u16(DRIVER_AREA + 4 + 2 * entry, head);
            index = index.wrapping_add(1);
        }
        self.memory.store_u16(DRIVER_AREA + 2, index);
    }

    fn peek(&mut self) -> Result<Option<Head>, Broken> {
        let mut at = self.device.cursor();
        let one = self.device.peek_one(at, &self.regions);
        let peeked = self.device.peek(&mut at, &self.regions, &mut self.elements);
        // The buffer that is found in fewer steps is the same.
        if let Some(One { head, memory }) = one {
            assert_eq!(peeked, Ok(Some(head)));
            let all = [self.elements.readable(), self.elements.writable()].concat();
            let place = |slice: &SharedSlice| (slice.as_ptr(), slice.len());
            assert_eq!(all.iter().map(place).collect::<Vec<_>>(), [place(&memory)]);
        }
        peeked
    }

    fn use_next(&mut self, written: u32) {
        let mut at = self.device.cursor();
        let peeked = self.device.peek(&mut at, &self.regions, &mut self.elements);
        let head = peeked.expect("right").expect("a buffer");
        self.device.pop(head);
        self.device.add_used(head, written);
    }
}

fn areas() -> Areas {
    let at = |offset: usize| BASE + offset as u64;
    Areas::new(BASE, at(DRIVER_AREA), at(DEVICE_AREA))
}

/// The answer of a device to one offered chain.
fn verdict<V: DeviceQueue>(options: QueueOptions, chain: &[(u64, u32, u16)]) -> Option<Why> {
    let mut ring = ByHand::<V>::new(8, options);
    ring.offer(chain);
    ring.peek().err().map(|broken| broken.0)
}

/// The same verdict from both formats.
fn both(options: QueueOptions, chain: &[(u64, u32, u16)], why: Option<Why>) {
    assert_eq!(verdict::<SplitDevice>(options, chain), why, "split");
    assert_eq!(verdict::<PackedDevice>(options, chain), why, "packed");
}

#[test]
fn spec_2_7_4_2_readable_elements_come_before_writable_ones() {
    both(NO_OPTIONS, &[(data(), 1, NEXT), (data(), 1, NEXT | WRITE), (data(), 1, WRITE)], None);
    let wrong = [(data(), 1, NEXT | WRITE), (data(), 1, 0)];
    both(NO_OPTIONS, &wrong, Some(Why::ReadableAfterWritable));
}

#[test]
fn an_element_of_length_zero_is_refused_in_every_position() {
    for zero in 0..3 {
        let mut chain = [(data(), 1, NEXT), (data(), 1, NEXT), (data(), 1, 0)];
        chain[zero].1 = 0;
        both(NO_OPTIONS, &chain, Some(Why::ZeroLength));
    }
}

#[test]
fn an_element_is_wholly_inside_one_region() {
    let end = BASE + MEMORY_LEN as u64;
    both(NO_OPTIONS, &[(end - 8, 8, 0)], None);
    let outside = [(end - 8, 9), (end, 1), (BASE - 1, 2), (0, 1), (u64::MAX, 1), (u64::MAX, 2)];
    for (address, len) in outside.into_iter().chain([(BASE, u32::MAX)]) {
        both(NO_OPTIONS, &[(address, len, 0)], Some(Why::OutsideMemory));
        both(NO_OPTIONS, &[(data(), 1, NEXT), (address, len, 0)], Some(Why::OutsideMemory));
    }
}

#[test]
fn an_element_does_not_cross_from_one_region_into_the_next() {
    let mut pages = Memory::new(MEMORY_LEN);
    let (low, high) = pages.share().split_at(DATA);
    // Adjacent for the guest and on the host, and still two regions.
    let low = Region { guest_address: BASE, memory: low };
    let high = Region { guest_address: data(), memory: high };
    let regions = Regions::new(vec![high, low]).expect("apart");
    for (len, fits) in [(16, true), (17, false)] {
        assert_eq!(regions.slice(data() - 16, len).is_some(), fits, "{len}");
    }
    assert!(regions.slice(data(), 16).is_some());
    let setup =
        QueueSetup { size: 8, areas: areas(), position: Position::FRESH, options: NO_OPTIONS };
    let mut ring = ByHand::<SplitDevice>::new(8, NO_OPTIONS);
    ring.memory = pages.share();
    ring.device = SplitDevice::start(&setup, &regions).expect("all in the first region");
    ring.regions = regions;
    ring.offer(&[(data() - 16, 17, 0)]);
    assert_eq!(ring.peek(), Err(Broken(Why::OutsideMemory)));
}

#[test]
fn regions_come_in_any_order_up_to_509() {
    const LEN: usize = 64;
    let mut pages = Memory::new(LEN * (REGIONS_MAX + 1));
    let memory = pages.share();
    let region = |at: usize| Region {
        guest_address: 0x1000 * (at as u64 + 1),
        memory: memory.slice(at * LEN, LEN).expect("inside"),
    };
    let mut table: Vec<Region> = (0..REGIONS_MAX).map(region).collect();
    let mut rng = Rng::new(1);
    for at in (1..table.len()).rev() {
        table.swap(at, rng.index(at + 1));
    }
    assert_eq!(REGIONS_MAX, 509);
    let regions = Regions::new(table.clone()).expect("apart");
    for _ in 0..20_000 {
        let (at, offset) = (rng.index(REGIONS_MAX), rng.index(2 * LEN));
        let len = 1 + rng.index(LEN);
        let found = regions
            .slice(0x1000 * (at as u64 + 1) + offset as u64, u32::try_from(len).expect("small"));
        let expected = region(at).memory.slice(offset, len);
        assert_eq!(found.map(SharedSlice::as_ptr), expected.map(SharedSlice::as_ptr));
    }
    table.push(region(REGIONS_MAX));
    assert!(matches!(Regions::new(table), Err(RegionError::TooMany)));
    let overlapping = Region { guest_address: 0x1000 + 63, ..region(3) };
    let refused = Regions::new(vec![overlapping, region(0)]);
    assert!(matches!(refused, Err(RegionError::Overlap)));
    let too_high = Region { guest_address: u64::MAX - 62, ..region(0) };
    assert!(matches!(Regions::new(vec![too_high]), Err(RegionError::BadRange)));
    let empty = Region { memory: SharedSlice::EMPTY, ..region(0) };
    assert!(matches!(Regions::new(vec![empty]), Err(RegionError::BadRange)));
}

#[test]
fn spec_2_7_5_2_a_chain_is_not_longer_than_the_queue() {
    let mut chain = [(data(), 1, NEXT); 8];
    chain[7].2 = 0;
    both(NO_OPTIONS, &chain, None);
    // In the split ring the last one points at itself, in the packed ring one lap is over.
    let mut split = ByHand::<SplitDevice>::new(8, NO_OPTIONS);
    split.offer(&chain);
    split.describe(0, 7, (data(), 1, NEXT), 7);
    assert_eq!(split.peek(), Err(Broken(Why::ChainTooLong)));
    chain[7].2 = NEXT;
    assert_eq!(verdict::<PackedDevice>(NO_OPTIONS, &chain), Some(Why::ChainTooLong));
}

#[test]
fn a_buffer_has_at_most_1024_elements() {
    for (count, why) in [(ELEMENTS_MAX, None), (ELEMENTS_MAX + 1, Some(Why::ChainTooLong))] {
        let chain: Vec<_> =
            (1..=count).map(|at| (data(), 1, if at < count { NEXT } else { 0 })).collect();
        let mut split = ByHand::<SplitDevice>::new(2048, NO_OPTIONS);
        split.offer(&chain);
        assert_eq!(split.peek().err().map(|broken| broken.0), why);
        let mut packed = ByHand::<PackedDevice>::new(2048, NO_OPTIONS);
        packed.offer(&chain);
        assert_eq!(packed.peek().err().map(|broken| broken.0), why);
    }
}

#[test]
fn indexes_and_ids_outside_the_queue_are_refused() {
    let mut ring = ByHand::<SplitDevice>::new(8, NO_OPTIONS);
    ring.show_split(0, &[8]);
    assert_eq!(ring.peek(), Err(Broken(Why::BadIndex)));
    ring.describe(0, 0, (data(), 1, NEXT), 8);
    ring.show_split(0, &[0]);
    assert_eq!(ring.peek(), Err(Broken(Why::BadIndex)));
    let mut ring = ByHand::<PackedDevice>::new(8, NO_OPTIONS);
    ring.describe(0, 0, (data(), 1, AVAIL), 8);
    assert_eq!(ring.peek(), Err(Broken(Why::BadIndex)));
}

#[test]
fn the_available_index_never_jumps_further_than_the_queue_is_long() {
    for (index, why) in [(8, None), (9, Some(Why::IndexJump)), (u16::MAX, Some(Why::IndexJump))] {
        let mut ring = ByHand::<SplitDevice>::new(8, NO_OPTIONS);
        ring.offer(&[(data(), 1, 0)]);
        ring.memory.store_u16(DRIVER_AREA + 2, index);
        assert_eq!(ring.peek().err().map(|broken| broken.0), why, "index {index}");
    }
}

#[test]
fn the_available_index_never_goes_back() {
    let mut ring = ByHand::<SplitDevice>::new(8, NO_OPTIONS);
    ring.offer(&[(data(), 1, 0)]);
    ring.show_split(0, &[0, 0]);
    let mut at = ring.device.cursor();
    for _ in 0..2 {
        assert!(
            ring.device.peek(&mut at, &ring.regions, &mut ring.elements).expect("ok").is_some()
        );
    }
    ring.memory.store_u16(DRIVER_AREA + 2, 1);
    let peeked = ring.device.peek(&mut at, &ring.regions, &mut ring.elements);
    assert_eq!(peeked, Err(Broken(Why::IndexJump)));
}

#[test]
fn a_packed_ring_is_never_available_for_more_than_one_lap() {
    let mut ring = ByHand::<PackedDevice>::new(2, NO_OPTIONS);
    ring.offer(&[(data(), 1, 0), (data(), 1, 0)]);
    let mut at = ring.device.cursor();
    for _ in 0..2 {
        assert!(
            ring.device.peek(&mut at, &ring.regions, &mut ring.elements).expect("ok").is_some()
        );
    }
    // Nothing was used yet, and the driver says that the next lap is available.
    ring.describe(0, 0, (data(), 1, USED), 0);
    let peeked = ring.device.peek(&mut at, &ring.regions, &mut ring.elements);
    assert_eq!(peeked, Err(Broken(Why::IndexJump)));
}

#[test]
fn a_packed_driver_that_does_not_wait_for_its_buffers_is_stopped() {
    let mut ring = ByHand::<PackedDevice>::new(2, NO_OPTIONS);
    ring.offer(&[(data(), 1, 0), (data(), 1, 0)]);
    ring.use_next(0);
    ring.use_next(0);
    // All are popped and none is published, and the driver says that the next lap is available.
    ring.describe(0, 0, (data(), 1, USED), 0);
    assert_eq!(ring.peek(), Err(Broken(Why::IndexJump)));
    ring.device.publish();
    assert_eq!(ring.peek(), Ok(None));
    ring.describe(0, 0, (data(), 1, USED), 0);
    assert!(ring.peek().expect("right").is_some());
}

#[test]
fn a_packed_chain_does_not_reach_into_what_is_not_published() {
    let mut ring = ByHand::<PackedDevice>::new(3, NO_OPTIONS);
    ring.offer(&[(data(), 1, 0), (data(), 1, 0), (data(), 1, NEXT)]);
    ring.use_next(0);
    ring.use_next(0);
    // Popped and not published is the first entry, in which the chain goes on.
    ring.describe(0, 0, (data(), 1, USED), 2);
    assert_eq!(ring.peek(), Err(Broken(Why::ChainTooLong)));
    ring.device.publish();
    ring.describe(0, 0, (data(), 1, USED), 2);
    assert!(ring.peek().expect("right").is_some(), "there is room for it now");
}

/// Offers one indirect descriptor for a table with these descriptors.
fn table_verdict<V: DeviceQueue>(table: &[(u64, u32, u16)], len: u32) -> Option<Why> {
    let mut ring = ByHand::<V>::new(8, INDIRECT_ALLOWED);
    for (at, &element) in table.iter().enumerate() {
        let at = u16::try_from(at).expect("few");
        ring.describe(TABLE, at, element, at + 1);
    }
    ring.offer(&[(BASE + TABLE as u64, len, INDIRECT)]);
    let verdict = ring.peek().err().map(|broken| broken.0);
    if verdict.is_none() {
        let count = ring.elements.readable().len() + ring.elements.writable().len();
        assert_eq!(count, table.len());
    }
    verdict
}

#[test]
fn spec_2_7_5_3_indirect_tables() {
    let one = [(data(), 1, 0)];
    let two = [(data(), 1, NEXT), (data(), 1, WRITE)];
    let nested = [(data(), 1, NEXT), (data(), 1, INDIRECT)];
    for verdict in [table_verdict::<SplitDevice>, table_verdict::<PackedDevice>] {
        assert_eq!(verdict(&one, 16), None);
        assert_eq!(verdict(&two, 32), None);
        assert_eq!(verdict(&nested, 32), Some(Why::BadIndirect));
        let too_long = u32::try_from(16 * ELEMENTS_MAX + 16).expect("small");
        for len in [0, 1, 15, 17, 33, too_long, u32::MAX, u32::MAX - 15] {
            assert_eq!(verdict(&two, len), Some(Why::BadIndirectLength), "{len}");
        }
    }
}

#[test]
fn spec_2_7_5_3_1_indirect_is_negotiated_and_has_no_next() {
    let table = (BASE + TABLE as u64, 16, INDIRECT);
    both(NO_OPTIONS, &[table], Some(Why::BadIndirect));
    let with_next = (table.0, table.1, INDIRECT | NEXT);
    both(INDIRECT_ALLOWED, &[with_next, (data(), 1, 0)], Some(Why::BadIndirect));
    let outside = (BASE + MEMORY_LEN as u64 - 16, 32, INDIRECT);
    both(INDIRECT_ALLOWED, &[outside], Some(Why::OutsideMemory));
}

#[test]
fn spec_2_7_5_3_2_a_table_may_end_a_chain_and_its_write_flag_means_nothing() {
    for flags in [INDIRECT, INDIRECT | WRITE] {
        let mut ring = ByHand::<SplitDevice>::new(8, INDIRECT_ALLOWED);
        ring.describe(TABLE, 0, (data(), 3, NEXT), 1);
        ring.describe(TABLE, 1, (data(), 5, WRITE), 0);
        ring.offer(&[(data(), 1, NEXT), (BASE + TABLE as u64, 32, flags)]);
        assert_eq!(ring.peek(), Ok(Some(Head { id: 0, descriptors: 1, is_writable: true })));
        let lens = |elements: &[SharedSlice]| elements.iter().map(|e| e.len()).collect::<Vec<_>>();
        assert_eq!(lens(ring.elements.readable()), [1, 3]);
        assert_eq!(lens(ring.elements.writable()), [5]);
    }
}

#[test]
fn a_linked_table_neither_loops_nor_leaves_itself() {
    for (next, why) in [(0, Why::ChainTooLong), (2, Why::BadIndex), (u16::MAX, Why::BadIndex)] {
        let mut ring = ByHand::<SplitDevice>::new(8, INDIRECT_ALLOWED);
        ring.describe(TABLE, 0, (data(), 1, NEXT), 1);
        ring.describe(TABLE, 1, (data(), 1, NEXT), next);
        ring.offer(&[(BASE + TABLE as u64, 32, INDIRECT)]);
        assert_eq!(ring.peek(), Err(Broken(why)), "next {next}");
    }
}

#[test]
fn a_table_may_be_at_any_address() {
    for shift in 0..16 {
        let mut ring = ByHand::<SplitDevice>::new(8, INDIRECT_ALLOWED);
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&data().to_le_bytes());
        bytes[8] = 7;
        ring.memory.write(TABLE + shift, &bytes);
        ring.offer(&[(BASE + (TABLE + shift) as u64, 16, INDIRECT)]);
        assert!(ring.peek().is_ok());
        assert_eq!(ring.elements.readable()[0].len(), 7);
    }
}

#[test]
fn areas_are_aligned_and_inside_one_region() {
    fn start<V: DeviceQueue>(areas: Areas, size: u16) -> Option<Why> {
        let mut pages = Memory::new(MEMORY_LEN);
        let position = Position::FRESH;
        let setup = QueueSetup { size, areas, position, options: EVENT_IDX };
        V::start(&setup, &pages.regions()).err().map(|broken| broken.0)
    }
    let right = areas();
    for start in [start::<SplitDevice>, start::<PackedDevice>] {
        assert_eq!(start(right, 8), None);
        for shift in [1, 2, 4, 8] {
            let wrong = Areas { descriptor: right.descriptor + shift, ..right };
            assert_eq!(start(wrong, 8), Some(Why::BadArea), "descriptor + {shift}");
        }
        assert_eq!(start(Areas { driver: right.driver + 1, ..right }, 8), Some(Why::BadArea));
        assert_eq!(start(Areas { device: right.device + 2, ..right }, 8), Some(Why::BadArea));
        assert_eq!(start(Areas { device: u64::MAX - 3, ..right }, 8), Some(Why::BadArea));
        assert_eq!(start(right, 0), Some(Why::BadIndex));
        assert_eq!(start(right, 32769), Some(Why::BadIndex));
    }
    assert_eq!(start::<SplitDevice>(right, 12), Some(Why::BadIndex));
    assert_eq!(start::<PackedDevice>(right, 12), None);
    // The last byte of the event word is the last byte of memory, or one past it.
    for format in [Format::Split, Format::Packed] {
        let len = u64::from(AreaSizes::of(format, 8).device);
        let last = BASE + MEMORY_LEN as u64 - len.next_multiple_of(4);
        let start =
            if format == Format::Split { start::<SplitDevice> } else { start::<PackedDevice> };
        assert_eq!(start(Areas { device: last, ..right }, 8), None);
        assert_eq!(start(Areas { device: last + 4, ..right }, 8), Some(Why::BadArea));
    }
}

#[test]
fn areas_are_aligned_on_the_host_too() {
    let mut pages = Memory::new(MEMORY_LEN);
    let memory = pages.share().slice(2, MEMORY_LEN - 4096).expect("inside");
    let regions = Regions::new(vec![Region { guest_address: BASE, memory }]).expect("one");
    let areas = Areas::new(BASE, BASE + 0x8000, BASE + 0x9000);
    let position = Position::FRESH;
    let setup = QueueSetup { size: 8, areas, position, options: NO_OPTIONS };
    assert_eq!(SplitDevice::start(&setup, &regions).err(), Some(Broken(Why::BadArea)));
    assert_eq!(PackedDevice::start(&setup, &regions).err(), Some(Broken(Why::BadArea)));
}

#[test]
fn a_packed_position_is_inside_the_ring_and_at_most_one_lap_is_in_flight() {
    let mut pages = Memory::new(MEMORY_LEN);
    let regions = pages.regions();
    let start = |available, available_wrap, used, used_wrap| {
        let position = Position { available, available_wrap, used, used_wrap };
        let setup = QueueSetup { size: 4, areas: areas(), position, options: NO_OPTIONS };
        PackedDevice::start(&setup, &regions).map(|device| device.position() == position)
    };
    assert_eq!(start(2, false, 2, true), Ok(true));
    assert_eq!(start(1, false, 3, true), Ok(true));
    assert_eq!(start(3, false, 2, true), Err(Broken(Why::BadIndex)));
    assert_eq!(start(1, true, 2, true), Err(Broken(Why::BadIndex)));
    assert_eq!(start(4, true, 0, true), Err(Broken(Why::BadIndex)));
    assert_eq!(start(0, true, 4, true), Err(Broken(Why::BadIndex)));
}

#[test]
fn spec_2_7_8_split_used_entries_appear_at_once() {
    let mut ring = ByHand::<SplitDevice>::new(4, NO_OPTIONS);
    for at in 0..2 {
        ring.describe(0, at, (data(), 100, WRITE), 0);
    }
    ring.show_split(0, &[0, 1]);
    ring.use_next(10);
    ring.use_next(20);
    assert_eq!(ring.memory.load_u16(DEVICE_AREA + 2), 0, "staged only");
    assert_eq!(ring.device.position().used, 0);
    ring.device.publish();
    let words = [4, 8, 12, 16].map(|at| ring.memory.load_u32(DEVICE_AREA + at));
    assert_eq!((ring.memory.load_u16(DEVICE_AREA + 2), words), (2, [0, 10, 1, 20]));
    let position = Position { available: 2, used: 2, ..Position::FRESH };
    assert_eq!(ring.device.position(), position);
}

#[test]
fn spec_2_8_packed_used_entries_appear_at_once_and_skip_chains() {
    let mut ring = ByHand::<PackedDevice>::new(4, NO_OPTIONS);
    let flags = |at: usize| ring.memory.load_u16(16 * at + 14);
    ring.describe(0, 0, (data(), 1, AVAIL | NEXT), 9);
    ring.describe(0, 1, (data(), 1, AVAIL | WRITE), 3);
    ring.describe(0, 2, (data(), 1, AVAIL), 2);
    let before = [flags(0), flags(2)];
    let mut at = ring.device.cursor();
    let (regions, elements) = (&ring.regions, &mut ring.elements);
    let first = ring.device.peek(&mut at, regions, elements).expect("ok").expect("a buffer");
    let second = ring.device.peek(&mut at, regions, elements).expect("ok").expect("a buffer");
    // The id of the last descriptor of a chain counts (§2.8.6).
    assert_eq!(first, Head { id: 3, descriptors: 2, is_writable: true });
    assert_eq!(second, Head { id: 2, descriptors: 1, is_writable: false });
    for (head, written) in [(first, 1), (second, 0)] {
        ring.device.pop(head);
        ring.device.add_used(head, written);
    }
    assert_eq!([flags(0), flags(2)], before, "staged only");
    ring.device.publish();
    assert_eq!([flags(0), flags(2)], [AVAIL | USED | WRITE, AVAIL | USED]);
    assert_eq!((ring.memory.load_u32(8), ring.memory.load_u16(12)), (1, 3));
    let end = Position { available: 3, used: 3, ..Position::FRESH };
    assert_eq!(ring.device.position(), end);
    // Over the wrap: two descriptors from offset 3, of which the second is in the next lap.
    ring.describe(0, 3, (data(), 1, AVAIL | NEXT), 0);
    ring.describe(0, 0, (data(), 1, USED), 1);
    ring.use_next(0);
    ring.device.publish();
    let position = Position { available: 1, available_wrap: false, used: 1, used_wrap: false };
    assert_eq!(ring.device.position(), position);
}

#[test]
fn spec_2_7_7_split_suppression_by_flags() {
    let mut ring = ByHand::<SplitDevice>::new(4, NO_OPTIONS);
    ring.describe(0, 0, (data(), 1, 0), 0);
    ring.show_split(0, &[0, 0, 0]);
    assert!(!ring.device.must_call(), "nothing published");
    for (flags, must) in [(0, true), (1, false), (0xfffe, true)] {
        ring.memory.store_u16(DRIVER_AREA, flags);
        assert_eq!(ring.device.driver_event(), flags.into());
        ring.use_next(0);
        assert!(!ring.device.must_call(), "staged only");
        ring.device.publish();
        assert_eq!(ring.device.must_call(), must, "flags {flags}");
        assert!(!ring.device.must_call(), "asked already");
    }
    for (arm, flags) in [(Arm::Never, 1), (Arm::Next, 0), (Arm::Never, 1), (Arm::After(9), 0)] {
        assert!(!ring.device.arm_kicks(arm));
        assert_eq!(ring.memory.load_u16(DEVICE_AREA), flags, "{arm:?}");
    }
}

#[test]
fn spec_2_7_10_split_suppression_by_event_index() {
    let mut ring = ByHand::<SplitDevice>::new(4, EVENT_IDX);
    ring.describe(0, 0, (data(), 1, 0), 0);
    ring.show_split(0, &[0; 4]);
    let used_event = DRIVER_AREA + 4 + 2 * 4;
    ring.memory.store_u16(used_event, 100);
    ring.use_next(0);
    ring.device.publish();
    assert!(ring.device.must_call(), "what the driver has seen is not known yet");
    for (event, must) in [(2, false), (2, true), (2, false)] {
        ring.memory.store_u16(used_event, event);
        assert_eq!(ring.device.driver_event(), event.into());
        ring.use_next(0);
        ring.device.publish();
        assert_eq!(ring.device.must_call(), must, "{:?}", ring.device.position());
    }
    let available_event = DEVICE_AREA + 4 + 8 * 4;
    for (arm, event) in [(Arm::Next, 4), (Arm::After(1), 4), (Arm::After(3), 6)] {
        assert!(!ring.device.arm_kicks(arm));
        assert_eq!(ring.memory.load_u16(available_event), event, "{arm:?}");
    }
    assert!(!ring.device.arm_kicks(Arm::Never));
    assert_eq!(ring.memory.load_u16(available_event), 0x8004, "far away");
    assert_eq!(ring.memory.load_u16(DEVICE_AREA), 0, "flags stay 0 with EVENT_IDX");
    ring.show_split(4, &[0]);
    assert!(ring.device.arm_kicks(Arm::Next), "raced in");
    let mut behind = ring.device.cursor();
    let peeked = ring.device.peek(&mut behind, &ring.regions, &mut ring.elements);
    assert!(peeked.expect("ok").is_some());
    assert!(!ring.device.arm_kicks_behind(behind), "what was peeked does not count");
    assert_eq!(ring.memory.load_u16(available_event), 5);
}

#[test]
fn a_rebound_queue_keeps_its_position_and_calls_again() {
    let mut ring = ByHand::<SplitDevice>::new(4, EVENT_IDX);
    ring.describe(0, 0, (data(), 1, 0), 0);
    ring.show_split(0, &[0; 4]);
    let used_event = DRIVER_AREA + 4 + 2 * 4;
    for (rebind, must) in [(false, true), (false, false), (true, true), (false, false)] {
        ring.memory.store_u16(used_event, 100);
        if rebind {
            ring.device.rebind(&areas(), &ring.regions).expect("the same areas");
        }
        ring.use_next(0);
        ring.device.publish();
        assert_eq!(ring.device.must_call(), must);
    }
    let outside = Areas { driver: 0, ..areas() };
    let moved = ring.device.rebind(&outside, &ring.regions);
    assert_eq!(moved, Err(Broken(Why::BadArea)));
    let position = Position { available: 4, used: 4, ..Position::FRESH };
    assert_eq!(ring.device.position(), position);
}

/// Whatever position is told: one front-end tells 0 after a device before this one was killed,
/// another the available index.
#[test]
fn a_split_queue_starts_at_the_used_index_that_stands_in_the_ring() {
    for told in [0u16, 5, 37, 300, u16::MAX] {
        for (used, available) in [(3u16, 5u16), (3, 3), (0xffff, 1), (0, 0)] {
            let mut ring = ByHand::<SplitDevice>::new(8, NO_OPTIONS);
            (0..8).for_each(|at| ring.describe(0, at, (data(), 100, 0), 0));
            ring.show_split(0, &[0, 1, 2, 3, 4, 5, 6, 7]);
            ring.memory.store_u16(DRIVER_AREA + 2, available);
            ring.memory.store_u16(DEVICE_AREA + 2, used);
            let position = Position { available: told, used: told, ..Position::FRESH };
            let setup = QueueSetup { size: 8, areas: areas(), position, options: NO_OPTIONS };
            ring.device = SplitDevice::start(&setup, &ring.regions).expect("a right setup");
            // Buffers that were available and not used are taken up again, the next used entry
            // follows.
            let in_flight = available.wrapping_sub(used);
            for at in 0..in_flight {
                let head = ring.peek().expect("ok").expect("a buffer").id;
                assert_eq!(head, used.wrapping_add(at) % 8, "{told}: {used}, {available}");
                ring.use_next(0);
            }
            assert_eq!(ring.peek(), Ok(None));
            ring.device.publish();
            let position = Position { available, used: available, ..Position::FRESH };
            assert_eq!(ring.device.position(), position);
            assert_eq!(ring.memory.load_u16(DEVICE_AREA + 2), available);
        }
    }
}

#[test]
fn a_split_queue_with_an_impossible_used_index_breaks_at_the_first_look() {
    let mut ring = ByHand::<SplitDevice>::new(8, NO_OPTIONS);
    ring.memory.store_u16(DEVICE_AREA + 2, 100);
    let position = Position::FRESH;
    let setup = QueueSetup { size: 8, areas: areas(), position, options: NO_OPTIONS };
    ring.device = SplitDevice::start(&setup, &ring.regions).expect("a right setup");
    assert_eq!(ring.peek(), Err(Broken(Why::IndexJump)));
}

/// A device that was killed has told no position, and its front-end tells a fresh one.
#[test]
fn a_packed_ring_without_chains_shows_its_position() {
    const SIZE: u16 = 5;
    let setup =
        QueueSetup { size: SIZE, areas: areas(), position: Position::FRESH, options: NO_OPTIONS };
    for used in 0..4 * SIZE {
        for ahead in 0..=SIZE {
            let mut ring = ByHand::<PackedDevice>::new(SIZE, NO_OPTIONS);
            let flags = |lap: u16| if lap.is_multiple_of(2) { AVAIL } else { USED };
            for at in 0..used + ahead {
                ring.describe(0, at % SIZE, (data(), 100, flags(at / SIZE)), at % SIZE);
                if at < used {
                    ring.use_next(0);
                    ring.device.publish();
                }
            }
            // Whatever is told: a fresh position, an old one.
            for told in 0..SIZE {
                let position = Position { available: told, used: told, ..Position::FRESH };
                let setup = QueueSetup { position, ..setup };
                let shown = position_by_ring(&setup, &ring.regions);
                assert_eq!(shown, Ok(ring.device.position()), "{used} used, {ahead} more");
            }
        }
    }
}

#[test]
fn a_packed_ring_with_used_chains_does_not_show_its_position() {
    let mut ring = ByHand::<PackedDevice>::new(4, NO_OPTIONS);
    // Two chains of two descriptors: nothing is written into the second ones.
    for (at, next) in [(0, NEXT), (1, 0), (2, NEXT), (3, 0)] {
        ring.describe(0, at, (data(), 100, AVAIL | next), 0);
    }
    (0..2).for_each(|_| ring.use_next(0));
    ring.device.publish();
    let position = Position::FRESH;
    let setup = QueueSetup { size: 4, areas: areas(), position, options: NO_OPTIONS };
    assert_eq!(position_by_ring(&setup, &ring.regions), Err(Broken(Why::PositionLost)));
    // Another one is believed.
    let position = ring.device.position();
    let told = QueueSetup { position, ..setup };
    assert_eq!(position_by_ring(&told, &ring.regions), Ok(position));
    let setup = QueueSetup { size: 0, ..setup };
    assert_eq!(position_by_ring(&setup, &ring.regions), Err(Broken(Why::BadIndex)));
}

#[test]
fn a_rebound_queue_believes_only_the_new_memory() {
    let mut ring = ByHand::<SplitDevice>::new(4, NO_OPTIONS);
    ring.describe(0, 0, (data(), 1, 0), 0);
    ring.show_split(0, &[0, 0]);
    assert!(ring.peek().expect("ok").is_some(), "the index 2 is known");
    // Elsewhere nothing is available, and an old cursor does not change that.
    let elsewhere = Areas { driver: BASE + TABLE as u64, ..areas() };
    ring.device.rebind(&elsewhere, &ring.regions).expect("right areas");
    assert_eq!(ring.peek(), Ok(None));
    ring.device.rebind(&areas(), &ring.regions).expect("right areas");
    let mut at = ring.device.cursor();
    let peeked = ring.device.peek(&mut at, &ring.regions, &mut ring.elements);
    ring.device.rebind(&areas(), &ring.regions).expect("right areas");
    ring.memory.store_u16(DRIVER_AREA + 2, 1);
    ring.device.pop(peeked.expect("ok").expect("a buffer"));
    assert_eq!(ring.peek(), Ok(None), "popped after the rebind, peeked before");
}

#[test]
fn notify_on_empty_calls_although_suppressed() {
    let options = QueueOptions { notify_on_empty: true, ..NO_OPTIONS };
    let mut ring = ByHand::<SplitDevice>::new(4, options);
    ring.describe(0, 0, (data(), 1, 0), 0);
    ring.show_split(0, &[0, 0]);
    ring.memory.store_u16(DRIVER_AREA, 1);
    for must in [false, true] {
        ring.use_next(0);
        ring.device.publish();
        assert_eq!(ring.device.must_call(), must);
    }
}

#[test]
fn spec_2_8_14_packed_suppression() {
    let mut ring = ByHand::<PackedDevice>::new(4, EVENT_IDX);
    let word = |flags: u32, wrap: u32, at: u32| flags << 16 | wrap << 15 | at;
    ring.offer(&[(data(), 1, 0); 4]);
    let cases = [
        (word(1, 0, 0), false),
        (word(0, 0, 0), true),
        (word(2, 1, 9), true),
        (word(2, 0, 0), false),
    ];
    for (word, must) in cases {
        ring.memory.store_u32(DRIVER_AREA, word);
        assert_eq!(ring.device.driver_event(), word);
        ring.use_next(0);
        ring.device.publish();
        assert_eq!(ring.device.must_call(), must, "{word:#x}");
    }
    for (arm, expected) in
        [(Arm::Next, word(2, 0, 0)), (Arm::After(3), word(2, 0, 2)), (Arm::Never, word(1, 0, 0))]
    {
        assert!(!ring.device.arm_kicks(arm));
        assert_eq!(ring.memory.load_u32(DEVICE_AREA), expected, "{arm:?}");
    }
    ring.describe(0, 0, (data(), 1, USED), 0);
    assert!(ring.device.arm_kicks(Arm::Next), "raced in");
}

/// A driver over a device that the test writes by hand.
struct DriverByHand<D> {
    driver: D,
    memory: SharedSlice,
    layout: Layout,
    _pages: Memory,
}

impl<D: DriverQueue> DriverByHand<D> {
    fn new(size: u16, options: QueueOptions) -> Self {
        let layout = Layout::of(D::FORMAT, size, options);
        let mut pages = Memory::new(layout.len as usize);
        let memory = pages.share();
        memory.write(0, &vec![0xa5; memory.len()]);
        Self { driver: D::new(memory, BASE, size, options), memory, layout, _pages: pages }
    }

    /// Publishes `count` buffers of `len` writable bytes with ids 0, 1, …
    fn post(&mut self, count: u16, len: u32) {
        for id in 0..count {
            self.driver.add(&[], &[(0x1000, len)], BufferId(id)).expect("room");
        }
        self.driver.publish();
    }

    fn use_split(&self, entry: usize, id: u32, len: u32, index: u16) {
        let device = self.layout.device as usize;
        self.memory.store_u32(device + 4 + 8 * entry, id);
        self.memory.store_u32(device + 8 + 8 * entry, len);
        self.memory.store_u16(device + 2, index);
    }

    fn use_packed(&self, at: usize, id: u16, len: u32, flags: u16) {
        self.memory.store_u32(16 * at + 8, len);
        self.memory.store_u16(16 * at + 12, id);
        self.memory.store_u16(16 * at + 14, flags);
    }

    fn pop_all(&mut self) -> Vec<(u16, u32)> {
        let pop = || self.driver.pop_used().expect("a right device");
        std::iter::from_fn(pop).map(|Used { id, len }| (id.0, len)).collect()
    }
}

#[test]
fn spec_2_7_the_split_driver_writes_what_the_specification_says() {
    let mut ring = DriverByHand::<SplitDriver>::new(4, INDIRECT_ALLOWED);
    let areas = ring.driver.areas();
    let at = |offset: u32| BASE + u64::from(offset);
    let Layout { driver, device, indirect, len, .. } = ring.layout;
    assert_eq!(areas, Areas::new(BASE, at(driver), at(device)));
    let tables = 4 * 16 * INDIRECT_ELEMENTS_MAX;
    assert_eq!((len - indirect) as usize, tables);
    let readable = [(0x1111, 1)];
    ring.driver.add(&readable, &[], BufferId(3)).expect("room");
    ring.driver.add(&readable, &[(0x2222, 2)], BufferId(2)).expect("room");
    assert_eq!((ring.driver.free(), ring.memory.load_u16(driver as usize + 2)), (2, 0));
    ring.driver.publish();
    let descriptor = |offset: usize| {
        let rest = [12, 14].map(|at| ring.memory.load_u16(offset + at));
        (ring.memory.load_u64(offset), ring.memory.load_u32(offset + 8), rest[0], rest[1])
    };
    assert_eq!(descriptor(0), (0x1111, 1, 0, 0));
    let table = indirect as usize + 16 * INDIRECT_ELEMENTS_MAX;
    assert_eq!(descriptor(16), (BASE + table as u64, 32, INDIRECT, 0));
    assert_eq!(descriptor(table), (0x1111, 1, NEXT, 1));
    assert_eq!(descriptor(table + 16), (0x2222, 2, WRITE, 0));
    let available = [0, 2, 4, 6].map(|at| ring.memory.load_u16(driver as usize + at));
    assert_eq!(available, [0, 2, 0, 1]);
}

#[test]
fn spec_2_8_the_packed_driver_writes_what_the_specification_says() {
    let mut ring = DriverByHand::<PackedDriver>::new(3, NO_OPTIONS);
    ring.driver.add(&[(0x1111, 1)], &[(0x2222, 2)], BufferId(2)).expect("room");
    let flags = |at: usize| ring.memory.load_u16(16 * at + 14);
    assert_eq!(flags(0), 0, "staged only");
    ring.driver.publish();
    assert_eq!((flags(0), flags(1)), (AVAIL | NEXT, AVAIL | WRITE));
    let rest = (ring.memory.load_u64(16), ring.memory.load_u32(24), ring.memory.load_u16(28));
    assert_eq!(rest, (0x2222, 2, 2));
    ring.use_packed(0, 2, 2, AVAIL | USED | WRITE);
    assert_eq!(ring.pop_all(), [(2, 2)]);
    // Over the wrap.
    ring.driver.add(&[(1, 1), (2, 2)], &[], BufferId(0)).expect("room");
    ring.driver.publish();
    let flags = |at: usize| ring.memory.load_u16(16 * at + 14);
    assert_eq!((flags(2), flags(0)), (AVAIL | NEXT, USED));
    ring.use_packed(2, 0, 77, AVAIL | USED);
    assert_eq!(ring.pop_all(), [(0, 0)], "without WRITE the length means nothing");
    assert_eq!(ring.driver.free(), 3);
}

#[test]
fn a_packed_device_that_never_sets_write_is_understood() {
    // QEMU's own devices are like this.
    for (written, expected) in [(5, 5), (6, 6), (7, 6), (u32::MAX, 6)] {
        let mut ring = DriverByHand::<PackedDriver>::new(3, NO_OPTIONS);
        ring.driver.add(&[], &[(0x2222, 6)], BufferId(1)).expect("room");
        ring.driver.publish();
        ring.use_packed(0, 1, written, AVAIL | USED);
        assert_eq!(ring.pop_all(), [(1, expected)]);
    }
}

#[test]
fn a_buffer_that_does_not_fit_changes_nothing() {
    fn refuse<D: DriverQueue>(options: QueueOptions) {
        let mut ring = DriverByHand::<D>::new(4, options);
        let elements = [(1, 1); 5];
        assert_eq!(ring.driver.add(&elements, &[], BufferId(0)), Err(QueueFull));
        ring.driver.add(&elements[..3], &[], BufferId(0)).expect("room");
        let free = if options.indirect { 3 } else { 1 };
        assert_eq!(ring.driver.free(), free);
        let second = ring.driver.add(&elements[..2], &[], BufferId(1));
        assert_eq!(second.is_ok(), options.indirect);
    }
    for options in [NO_OPTIONS, INDIRECT_ALLOWED] {
        refuse::<SplitDriver>(options);
        refuse::<PackedDriver>(options);
    }
    let mut ring = DriverByHand::<SplitDriver>::new(64, INDIRECT_ALLOWED);
    let elements = [(1, 1); INDIRECT_ELEMENTS_MAX + 1];
    ring.driver.add(&elements[1..], &[], BufferId(0)).expect("in a table");
    ring.driver.add(&elements, &[], BufferId(1)).expect("chained in the ring");
    assert_eq!(ring.driver.free(), 64 - 1 - 33);
}

#[test]
fn the_driver_checks_every_used_entry() {
    let cases: [(u32, u32, Why); 5] = [
        (4, 1, Why::BadIndex),
        (u32::MAX, 1, Why::BadIndex),
        (3, 1, Why::NotInFlight),
        (1, 11, Why::UsedTooLong),
        (1, u32::MAX, Why::UsedTooLong),
    ];
    for (id, len, why) in cases {
        let mut split = DriverByHand::<SplitDriver>::new(4, NO_OPTIONS);
        split.post(3, 10);
        split.use_split(0, id, len, 1);
        assert_eq!(split.driver.pop_used(), Err(Broken(why)), "split {id} {len}");
        let mut packed = DriverByHand::<PackedDriver>::new(4, NO_OPTIONS);
        packed.post(3, 10);
        packed.use_packed(0, (id & 0xffff) as u16, len, AVAIL | USED | WRITE);
        assert_eq!(packed.driver.pop_used(), Err(Broken(why)), "packed {id} {len}");
    }
}

#[test]
fn the_driver_takes_each_buffer_back_once_and_only_after_publishing() {
    let mut split = DriverByHand::<SplitDriver>::new(4, NO_OPTIONS);
    split.post(2, 10);
    split.use_split(0, 1, 10, 1);
    assert_eq!(split.pop_all(), [(1, 10)]);
    split.use_split(1, 1, 10, 2);
    assert_eq!(split.driver.pop_used(), Err(Broken(Why::NotInFlight)));
    split.use_split(1, 0, 10, 2);
    assert_eq!(split.pop_all(), [(0, 10)]);
    split.post(2, 10);
    split.use_split(2, 0, 10, 5);
    assert_eq!(split.driver.pop_used(), Err(Broken(Why::NotInFlight)), "more than in flight");
    let mut packed = DriverByHand::<PackedDriver>::new(4, NO_OPTIONS);
    packed.post(2, 10);
    packed.use_packed(0, 1, 10, AVAIL | USED | WRITE);
    packed.use_packed(1, 1, 10, AVAIL | USED | WRITE);
    assert_eq!(packed.driver.pop_used().map(|used| used.map(|used| used.id.0)), Ok(Some(1)));
    assert_eq!(packed.driver.pop_used(), Err(Broken(Why::NotInFlight)));
    packed.driver.add(&[], &[(1, 1)], BufferId(3)).expect("room");
    packed.use_packed(1, 3, 1, AVAIL | USED | WRITE);
    assert_eq!(packed.driver.pop_used(), Err(Broken(Why::NotInFlight)), "only staged");
}

#[test]
fn buffers_before_a_wrong_entry_are_returned_first() {
    let mut split = DriverByHand::<SplitDriver>::new(4, NO_OPTIONS);
    split.post(3, 10);
    split.use_split(0, 1, 10, 1);
    split.use_split(1, 2, 11, 2);
    let mut packed = DriverByHand::<PackedDriver>::new(4, NO_OPTIONS);
    packed.post(3, 10);
    packed.use_packed(0, 1, 10, AVAIL | USED | WRITE);
    packed.use_packed(1, 2, 11, AVAIL | USED | WRITE);
    fn check(driver: &mut impl DriverQueue) {
        let mut ids = Vec::new();
        assert_eq!(driver.take_used(4, |used| ids.push(used.id.0)), Ok(()));
        assert_eq!(ids, [1]);
        let wrong = Err(Broken(Why::UsedTooLong));
        assert_eq!(driver.take_used(4, |used| ids.push(used.id.0)), wrong);
        assert_eq!((ids.len(), driver.free()), (1, 2));
    }
    check(&mut split.driver);
    check(&mut packed.driver);
}

/// All that came back, to be staged again.
fn returned(driver: &mut impl DriverQueue) -> Vec<Returned> {
    let mut returned = Vec::new();
    driver.take_used(driver.size(), |buffer| returned.push(buffer)).expect("a right device");
    returned
}

#[test]
fn what_a_split_ring_has_already_is_not_written_again() {
    let mut ring = DriverByHand::<SplitDriver>::new(4, NO_OPTIONS);
    ring.post(4, 10);
    ring.use_split(0, 2, 1, 0);
    ring.use_split(1, 0, 1, 2);
    let back = returned(&mut ring.driver);
    // A driver that wrote descriptor 2 again would write over this.
    ring.memory.store_u64(16 * 2, 7);
    assert_eq!(ring.driver.add_again(&back, |_| true), 2);
    ring.driver.publish();
    assert_eq!((ring.memory.load_u64(16 * 2), ring.driver.free()), (7, 0));
    let available = |at: usize| ring.memory.load_u16(ring.layout.driver as usize + 2 + 2 * at);
    assert_eq!([0, 1, 2, 3, 4].map(available), [6, 2, 0, 2, 3]);
    ring.use_split(2, 1, 1, 0);
    ring.use_split(3, 3, 1, 4);
    let back = returned(&mut ring.driver);
    assert_eq!(ring.driver.add_again(&back[1..], |_| true), 0, "descriptor 1 comes first");
    assert_eq!(ring.driver.add_again(&back, |id| id != BufferId(3)), 1);
    // Both are there for the device, and each only once.
    ring.driver.publish();
    ring.use_split(0, 1, 10, 5);
    assert_eq!(ring.pop_all(), [(1, 10)]);
    ring.use_split(1, 3, 10, 6);
    assert_eq!(ring.driver.pop_used(), Err(Broken(Why::NotInFlight)), "not staged again");
}

#[test]
fn a_descriptor_that_another_buffer_had_is_written_again() {
    for others in [&[(0x2000, 2)][..], &[(0x2000, 2), (0x3000, 3)][..]] {
        let mut ring = DriverByHand::<SplitDriver>::new(4, NO_OPTIONS);
        ring.post(4, 10);
        ring.use_split(0, 0, 0, 0);
        ring.use_split(1, 1, 0, 2);
        let back = returned(&mut ring.driver);
        let kept = usize::from(others.len() == 2);
        let other = BufferId(u16::from(kept == 0));
        // Takes descriptor 0 and maybe 1, both of which come back.
        ring.driver.add(&[], others, other).expect("room");
        ring.driver.publish();
        ring.use_split(2, 0, 0, 3);
        assert_eq!(ring.pop_all(), [(other.0, 0)]);
        // The next free descriptor is the one that had a part of it.
        ring.driver.add(&[], &[(0x4000, 4)], other).expect("room");
        assert_eq!(ring.driver.add_again(&back[kept..=kept], |_| true), 0, "{others:?}");
    }
}

#[test]
fn a_packed_ring_gets_the_same_descriptors_again() {
    let mut ring = DriverByHand::<PackedDriver>::new(4, NO_OPTIONS);
    for id in 0..3 {
        ring.driver.add(&[], &[(0x1000 * u64::from(id), 10)], BufferId(id)).expect("room");
    }
    ring.driver.add(&[(0x5000, 5)], &[], BufferId(3)).expect("room");
    ring.driver.publish();
    for (at, id) in [2, 0, 3, 1].into_iter().enumerate() {
        ring.use_packed(at, id, 0, AVAIL | USED | WRITE);
    }
    let back = returned(&mut ring.driver);
    assert_eq!(ring.driver.add_again(&back, |_| true), 2, "3 is not for the device to write");
    ring.driver.publish();
    for (at, id) in [2u16, 0].into_iter().enumerate() {
        let words = [8, 12, 14].map(|behind| ring.memory.load_u16(16 * at + behind));
        assert_eq!(ring.memory.load_u64(16 * at), 0x1000 * u64::from(id));
        assert_eq!(words, [10, id, USED | WRITE], "available on the next lap");
    }
    assert_eq!(ring.driver.free(), 2);
    ring.use_packed(0, 3, 0, WRITE);
    assert_eq!(ring.driver.pop_used(), Err(Broken(Why::NotInFlight)), "not staged again");
}

#[test]
fn a_ring_of_any_size_names_the_same_ids_lap_after_lap() {
    let mut ring = DriverByHand::<PackedDriver>::new(5, NO_OPTIONS);
    for lap in 0..4 {
        let wrap = if lap % 2 == 0 { AVAIL | USED } else { 0 };
        for at in 0..5u16 {
            assert_eq!(ring.driver.next_id(), Some(BufferId(at)), "lap {lap}");
            ring.driver.add(&[], &[(0x1000, 10)], BufferId(at)).expect("room");
        }
        assert_eq!((ring.driver.next_id(), ring.driver.in_flight()), (None, 5));
        ring.driver.publish();
        (0..5).for_each(|at| ring.use_packed(usize::from(at), at, 0, wrap | WRITE));
        let back = returned(&mut ring.driver);
        assert_eq!((back.len(), ring.driver.in_flight()), (5, 0));
    }
}

#[test]
fn spec_2_7_9_one_used_entry_stands_for_a_batch() {
    let mut ring = DriverByHand::<SplitDriver>::new(4, IN_ORDER);
    ring.post(4, 10);
    // The entry is at the place of the first buffer, the id is that of the last.
    ring.use_split(0, 2, 7, 3);
    assert_eq!(ring.driver.pop_used().map(|used| used.map(|used| used.id.0)), Ok(Some(0)));
    assert!(ring.driver.arm_calls(Arm::Next), "the rest of the batch is waiting");
    assert_eq!(ring.pop_all(), [(1, 10), (2, 7)], "skipped ones were used completely");
    assert_eq!(ring.driver.free(), 3);
    ring.use_split(3, 3, 1, 4);
    assert_eq!(ring.pop_all(), [(3, 1)]);
    // A batch that is longer than the index says, and one that goes back.
    ring.post(4, 10);
    ring.use_split(0, 2, 7, 5);
    assert_eq!(ring.driver.pop_used(), Err(Broken(Why::NotInFlight)));
}

#[test]
fn spec_2_8_10_one_used_entry_for_all_before_it_that_cannot_be_written() {
    let mut ring = ByHand::<PackedDevice>::new(8, IN_ORDER);
    for (at, flags) in [(0, 0), (1, 0), (2, WRITE), (3, WRITE), (4, 0)] {
        ring.describe(0, at, (data(), 9, flags | AVAIL), at);
    }
    for written in [0, 0, 0, 9, 0] {
        ring.use_next(written);
    }
    ring.device.publish();
    let entry = |at: usize| {
        let words = [0, 2].map(|behind| ring.memory.load_u16(16 * at + 12 + behind));
        (ring.memory.load_u32(16 * at + 8), words[0], words[1])
    };
    assert_eq!(entry(0), (0, 2, AVAIL | USED), "for 0 and 1 as well");
    assert_eq!([entry(1), entry(2)], [(9, 1, AVAIL), (9, 2, AVAIL | WRITE)], "left out");
    assert_eq!(entry(3), (9, 3, AVAIL | USED | WRITE), "what was written counts");
    assert_eq!(entry(4), (0, 4, AVAIL | USED));
    let end = Position { available: 5, used: 5, ..Position::FRESH };
    assert_eq!(ring.device.position(), end);
}

#[test]
fn spec_2_8_packed_batches_are_in_order_too() {
    let mut ring = DriverByHand::<PackedDriver>::new(4, IN_ORDER);
    ring.driver.add(&[(1, 1), (2, 1)], &[], BufferId(3)).expect("room");
    ring.driver.add(&[], &[(3, 9)], BufferId(1)).expect("room");
    ring.driver.add(&[], &[(3, 9)], BufferId(0)).expect("room");
    ring.driver.publish();
    ring.use_packed(0, 1, 5, AVAIL | USED | WRITE);
    assert_eq!(ring.pop_all(), [(3, 0), (1, 5)]);
    assert_eq!(ring.driver.free(), 3);
    // The next entry is behind the batch.
    ring.use_packed(3, 0, 9, AVAIL | USED | WRITE);
    assert_eq!(ring.pop_all(), [(0, 9)]);
    assert_eq!(ring.driver.free(), 4);
}

#[test]
fn spec_2_7_5_2_with_in_order_descriptors_are_used_in_ring_order() {
    let mut ring = DriverByHand::<SplitDriver>::new(4, IN_ORDER);
    for round in 0..8u16 {
        ring.driver.add(&[(1, 1), (2, 2), (3, 3)], &[], BufferId(0)).expect("room");
        ring.driver.publish();
        let first = round * 3 % 4;
        for step in 0..2 {
            let at = (first + step) % 4;
            let next = ring.memory.load_u16(16 * usize::from(at) + 14);
            assert_eq!(next, (at + 1) % 4, "round {round}");
        }
        ring.use_split(usize::from(round % 4), u32::from(first), 0, round + 1);
        assert_eq!(ring.pop_all(), [(0, 0)]);
    }
}

#[test]
fn spec_2_7_7_the_driver_asks_for_calls_and_kicks_when_wanted() {
    let mut ring = DriverByHand::<SplitDriver>::new(4, NO_OPTIONS);
    let (driver, device) = (ring.layout.driver as usize, ring.layout.device as usize);
    for (arm, flags) in [(Arm::Never, 1), (Arm::Next, 0)] {
        assert!(!ring.driver.arm_calls(arm));
        assert_eq!(ring.memory.load_u16(driver), flags);
    }
    assert!(!ring.driver.must_kick(), "nothing published");
    ring.memory.store_u16(device, 1);
    ring.post(1, 1);
    assert!(!ring.driver.must_kick());
    let mut ring = DriverByHand::<SplitDriver>::new(4, EVENT_IDX);
    ring.post(3, 1);
    ring.memory.store_u16(device + 4 + 8 * 4, 3);
    assert!(!ring.driver.must_kick());
    ring.driver.add(&[(1, 1)], &[], BufferId(3)).expect("room");
    ring.driver.publish();
    assert!(ring.driver.must_kick());
    for (arm, event) in [(Arm::Next, 0), (Arm::After(3), 2), (Arm::After(99), 3)] {
        assert!(!ring.driver.arm_calls(arm));
        assert_eq!(ring.memory.load_u16(driver + 4 + 2 * 4), event, "{arm:?}");
    }
}
