//! A guest's writes into its rings: descriptors, indexes, tables, in memory it may change.

use std::cell::{Cell, RefCell};

use ringway_device::FromGuest;
use ringway_net::{Counters, Features, Negotiated, PacketSource};
use ringway_testkit::TestMemory;
use ringway_virtq::{
    Areas, Broken, DeviceQueue, Elements, Format, PackedDevice, Position, QueueSetup, Regions,
    RingRecord, SharedSlice, SplitDevice,
};

const BASE: u64 = 0x4000;
const SIZE: u16 = 16;
/// Small, so that random addresses are inside now and then.
const MEMORY_LEN: usize = 0x4000;
/// First, so that short inputs make something available.
const DRIVER_AT: u64 = BASE;
const DESCRIPTOR_AT: u64 = BASE + 0x40;
/// Runs between two looks at the guards, which are long.
const GUARDS_EVERY: u32 = 64;
const DEVICE_AT: u64 = BASE + 0x400;
/// Where the record of a ring is, from the start of the memory: its word, then its entries.
const RECORD_AT: usize = 0x140;
/// As much of it as comes from the beginning of an input: short ones would not reach it.
const RECORD_LEN: usize = RingRecord::WORD_LEN + 2 * 16;

thread_local! {
    static MEMORY: RefCell<Option<TestMemory>> = const { RefCell::new(None) };
    static RUNS: Cell<u32> = const { Cell::new(0) };
}

/// Split: the input fills the memory in which the ring lies.
pub(crate) fn split_chain(data: &[u8]) {
    chain::<SplitDevice>(data);
}

/// Packed: the same.
pub(crate) fn packed_chain(data: &[u8]) {
    chain::<PackedDevice>(data);
}

/// A whole transmitq on such a ring, until it idles or breaks.
pub(crate) fn transmitq(data: &[u8]) {
    with_memory(data, |memory| {
        let Ok(negotiated) = Negotiated::new(Features::OFFERED - Features::RING_PACKED) else {
            return;
        };
        let Ok(queue) = SplitDevice::start(&setup(&negotiated), &memory.regions()) else { return };
        let mut source = FromGuest::new(
            queue,
            memory.regions(),
            negotiated,
            Counters::default(),
            Elements::readable_only(),
        );
        for _ in 0..2 * SIZE {
            match source.peek() {
                Some(packet) => {
                    assert!(packet.payload.iter().all(|piece| is_inside(memory, *piece)))
                }
                None => break,
            }
            source.pop();
        }
        source.flush();
    });
}

/// Split: the input begins with the record of which a device continues.
pub(crate) fn record_split(data: &[u8]) {
    record::<SplitDevice>(data);
}

/// Packed: the same.
pub(crate) fn record_packed(data: &[u8]) {
    record::<PackedDevice>(data);
}

fn chain<Q: DeviceQueue>(data: &[u8]) {
    with_memory(data, |memory| run(memory, Q::start));
}

fn record<Q: DeviceQueue>(data: &[u8]) {
    let (record, data) = data.split_at(data.len().min(RECORD_LEN));
    with_memory(data, |memory| {
        memory.region(0).write(RECORD_AT, record);
        let part = |at, len| memory.region(0).slice(at, len).unwrap_or(SharedSlice::EMPTY);
        let word = part(RECORD_AT, RingRecord::WORD_LEN);
        let entries_len = RingRecord::entries_len(Q::FORMAT, SIZE);
        let entries = part(RECORD_AT + RingRecord::WORD_LEN, entries_len);
        run(memory, |setup, regions| Q::recover(setup, regions, RingRecord::at(word, entries)));
    });
}

/// Takes and gives back whatever is in the ring.
fn run<Q: DeviceQueue>(
    memory: &TestMemory,
    start: impl FnOnce(&QueueSetup, &Regions) -> Result<Q, Broken>,
) {
    let Ok(negotiated) = Negotiated::new(Features::OFFERED) else { return };
    let regions = memory.regions();
    let Ok(mut queue) = start(&setup(&negotiated), &regions) else { return };
    if Q::FORMAT == Format::Packed {
        let Position { available, used, .. } = queue.position();
        assert!(available < SIZE && used < SIZE, "outside the ring");
    }
    let mut elements = Elements::new();
    for _ in 0..2 * SIZE {
        let mut at = queue.cursor();
        match queue.peek(&mut at, &regions, &mut elements) {
            Ok(Some(head)) => {
                let all = elements.readable().iter().chain(elements.writable());
                assert!(all.into_iter().all(|piece| is_inside(memory, *piece)));
                queue.pop(head);
                queue.add_used(head, 0);
            }
            Ok(None) | Err(_) => break,
        }
    }
    queue.keep();
    queue.publish();
    let _ = queue.must_call();
}

fn setup(negotiated: &Negotiated) -> QueueSetup {
    QueueSetup {
        size: SIZE,
        areas: Areas::new(DESCRIPTOR_AT, DRIVER_AT, DEVICE_AT),
        position: Position::FRESH,
        options: negotiated.options,
    }
}

fn with_memory(data: &[u8], run: impl FnOnce(&TestMemory)) {
    MEMORY.with_borrow_mut(|memory| {
        if memory.is_none() {
            *memory = TestMemory::new(&[(BASE, MEMORY_LEN as u64)]).ok();
        }
        let Some(memory) = memory else { return };
        let whole = memory.region(0);
        whole.write(0, &[0; MEMORY_LEN]);
        whole.write(0, &data[..data.len().min(whole.len())]);
        run(memory);
        RUNS.set(RUNS.get().wrapping_add(1));
        if RUNS.get().is_multiple_of(GUARDS_EVERY) {
            assert!(memory.guards_intact(), "memory outside the guest's was written");
        }
    });
}

fn is_inside(memory: &TestMemory, piece: SharedSlice) -> bool {
    let whole = memory.region(0);
    let start = whole.as_ptr().addr();
    let at = piece.as_ptr().addr();
    at >= start && at + piece.len() <= start + whole.len() && !piece.is_empty()
}
