//! No wake-up is lost and no stale content is seen: the real rings under the model checker.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p ringway-virtq --test loom --release`.
//!
//! How: everything in shared memory is modelled, index, flag and event words as well as
//! descriptors and payload, each 16-bit word as one relaxed atomic; only the fences order them.
//! A notification is a counter which the sleeping side takes, like an eventfd. Every interleaving
//! with at most [`PREEMPTIONS_MAX`] preemptions is tried, on a ring of two entries which has been
//! round once, so that the wrap counters change inside the race.
//!
//! The same of the log of written pages: a front-end that takes bits and copies pages while the
//! device writes has, at the end, no page that is older than the memory. Each word of a page is
//! copied by itself, so there is one model for each word that the device stores.
//!
//! The worth of the tests: with any one of the five fences of `event.rs` taken out, tests of this
//! file fail. Without `before_asking` or `before_second_look` a sleeper is not woken; without
//! `before_showing` or `after_seeing` a stale descriptor, used entry or payload is read; without
//! `before_marking`, or with bits that are set in front of the bytes, a copy is stale.
#![cfg(loom)]
#![allow(clippy::cast_possible_truncation, reason = "a small model")]

use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering, fence};
use loom::thread;
use ringway_virtq::{
    AreaSizes, Areas, Arm, BufferId, DeviceQueue, DirtyLog, DriverQueue, Elements, Format,
    LOG_PAGE_LEN, Layout, ModelledMemory, PackedDevice, PackedDriver, Position, QueueOptions,
    QueueSetup, Region, Regions, SharedSlice, SplitDevice, SplitDriver,
};

const PREEMPTIONS_MAX: usize = 3;
const SIZE: u16 = 2;
const BASE: u64 = 0x1000;
/// Buffers that go through while both threads run.
const BUFFERS: u16 = 2;
/// Bytes of the payload, which has a page of its own.
const PAYLOAD_LEN: usize = LOG_PAGE_LEN as usize;
/// Times that a front-end takes bits while the device runs.
const TAKES: u32 = 2;

struct Bench<D, V> {
    driver: D,
    device: V,
    regions: Regions,
    elements: Elements,
    payload: SharedSlice,
    payload_address: u64,
    areas: Areas,
    memory: ModelledMemory,
}

impl<D: DriverQueue, V: DeviceQueue> Bench<D, V> {
    /// A ring on which one buffer has gone there and back.
    fn new(event_idx: bool) -> Self {
        let options = QueueOptions { event_idx, ..QueueOptions::default() };
        let ring_len = Layout::of(D::FORMAT, SIZE, options).len as usize;
        let payload_at = ring_len.next_multiple_of(PAYLOAD_LEN);
        let memory = ModelledMemory::new(payload_at + PAYLOAD_LEN);
        let shared = memory.share();
        let region = Region { guest_address: BASE, memory: shared };
        let regions = Regions::new(vec![region]).expect("one region");
        let ring = shared.slice(0, ring_len).expect("inside");
        let driver = D::new(ring, BASE, SIZE, options);
        let position = Position::FRESH;
        let areas = driver.areas();
        let setup = QueueSetup { size: SIZE, areas, position, options };
        let device = V::start(&setup, &regions).expect("a right setup");
        let payload = shared.slice(payload_at, PAYLOAD_LEN).expect("inside");
        let payload_address = BASE + payload_at as u64;
        let elements = Elements::new();
        let mut bench =
            Self { driver, device, regions, elements, payload, payload_address, areas, memory };
        bench.driver.add(&[(bench.payload_address, 2)], &[], BufferId(0)).expect("room");
        bench.driver.publish();
        bench.driver.must_kick();
        assert_eq!(bench.take_one(|_| ()), Some(()));
        bench.device.publish();
        bench.device.must_call();
        assert_eq!(bench.driver.pop_used().expect("right").map(|used| used.id), Some(BufferId(0)));
        bench
    }

    /// Device: takes the next buffer, shows its only element, and stages it as used.
    fn take_one<T>(&mut self, see: impl FnOnce(SharedSlice) -> T) -> Option<T> {
        let mut at = self.device.cursor();
        let peeked = self.device.peek(&mut at, &self.regions, &mut self.elements);
        let head = peeked.expect("a right driver")?;
        let (read, write) = (self.elements.readable(), self.elements.writable());
        let seen = see(*read.first().or(write.first()).expect("an element"));
        self.device.pop(head);
        self.device.add_used(head, if write.is_empty() { 0 } else { 2 });
        Some(seen)
    }

    /// Driver: the element of a buffer.
    fn element(&self, number: u16) -> (u64, u32) {
        (self.payload_address + 2 * u64::from(number), 2)
    }
}

/// A pending notification, like an eventfd; it orders nothing by itself.
#[derive(Clone)]
struct Notification(Arc<AtomicUsize>);

impl Notification {
    fn new() -> Self {
        Self(Arc::new(AtomicUsize::new(0)))
    }
    fn send(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
    fn take(&self) -> bool {
        self.0.swap(0, Ordering::Relaxed) > 0
    }
}

fn model(run: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS_MAX);
    builder.max_branches = 10_000;
    builder.check(run);
}

/// Two halves of one bench, one for each thread; the memory stays with the model.
fn no_lost_kick<D, V>(event_idx: bool)
where
    D: DriverQueue + Send + 'static,
    V: DeviceQueue + Send + 'static,
{
    model(move || {
        let mut bench = Bench::<D, V>::new(event_idx);
        bench.device.arm_kicks(Arm::Never);
        let elements = [bench.element(0), bench.element(1)];
        let Bench { mut driver, mut device, regions, payload, memory, .. } = bench;
        let kick = Notification::new();
        let kicks = kick.clone();
        let driver_side = thread::spawn(move || {
            for number in 0..BUFFERS {
                payload.store_u16(2 * usize::from(number), 0x100 + number);
                let element = elements[usize::from(number)];
                driver.add(&[element], &[], BufferId(number)).expect("room");
                driver.publish();
                if driver.must_kick() {
                    kicks.send();
                }
            }
        });
        let mut taken = 0;
        let mut elements = Elements::new();
        loop {
            loop {
                let mut at = device.cursor();
                let peeked = device.peek(&mut at, &regions, &mut elements);
                let Some(head) = peeked.expect("a right driver") else { break };
                assert_eq!(elements.readable()[0].load_u16(0), 0x100 + taken, "stale payload");
                device.pop(head);
                device.add_used(head, 0);
                taken += 1;
            }
            if !device.arm_kicks(Arm::Next) && !kick.take() {
                break;
            }
        }
        driver_side.join().expect("the driver");
        assert!(taken == BUFFERS || kick.take(), "asleep after {taken} buffers, never kicked");
        drop(memory);
    });
}

fn no_lost_call<D, V>(event_idx: bool)
where
    D: DriverQueue + Send + 'static,
    V: DeviceQueue + Send + 'static,
{
    model(move || {
        let mut bench = Bench::<D, V>::new(event_idx);
        for number in 0..BUFFERS {
            let element = bench.element(number);
            bench.driver.add(&[], &[element], BufferId(number)).expect("room");
        }
        bench.driver.publish();
        bench.driver.arm_calls(Arm::Never);
        let Bench { mut driver, mut device, regions, payload, memory, .. } = bench;
        let call = Notification::new();
        let calls = call.clone();
        let device_side = thread::spawn(move || {
            let mut elements = Elements::new();
            for number in 0..BUFFERS {
                let mut at = device.cursor();
                let peeked = device.peek(&mut at, &regions, &mut elements);
                let head = peeked.expect("a right driver").expect("published before");
                elements.writable()[0].store_u16(0, 0x200 + number);
                device.pop(head);
                device.add_used(head, 2);
                device.publish();
                if device.must_call() {
                    calls.send();
                }
            }
        });
        let mut popped = 0;
        loop {
            while let Some(used) = driver.pop_used().expect("a right device") {
                assert_eq!((used.id, used.len), (BufferId(popped), 2));
                assert_eq!(payload.load_u16(2 * usize::from(popped)), 0x200 + popped, "stale");
                popped += 1;
            }
            if !driver.arm_calls(Arm::Next) && !call.take() {
                break;
            }
        }
        device_side.join().expect("the device");
        assert!(popped == BUFFERS || call.take(), "asleep after {popped} buffers, never called");
        drop(memory);
    });
}

/// Places in the memory of all words that a device may store.
fn written_places<D: DriverQueue, V: DeviceQueue>(event_idx: bool) -> Vec<usize> {
    let found = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let places = found.clone();
    model(move || {
        let bench = Bench::<D, V>::new(event_idx);
        let sizes = AreaSizes::of(D::FORMAT, SIZE);
        let payload = (bench.payload_address, 2 * u64::from(BUFFERS));
        let ring = match D::FORMAT {
            Format::Split => (bench.areas.device, sizes.device),
            Format::Packed => (bench.areas.descriptor, sizes.descriptor),
        };
        let event = (bench.areas.device, sizes.device);
        let areas = [ring, event].map(|(from, len)| (from, u64::from(len)));
        let words = [payload].into_iter().chain(areas).flat_map(|(from, len)| {
            (from..from + len).step_by(2).map(|address| (address - BASE) as usize)
        });
        let mut places = places.lock().expect("one thread");
        *places = words.collect();
        places.sort_unstable();
        places.dedup();
    });
    let places = found.lock().expect("one thread").clone();
    assert!(!places.is_empty(), "nothing is written");
    places
}

/// A front-end takes bits while a device writes, and copies the word at a place whenever its page
/// is marked: its last copy is the word as it is.
fn no_stale_copy<D, V>(event_idx: bool)
where
    D: DriverQueue + Send + 'static,
    V: DeviceQueue + Send + 'static,
{
    for place in written_places::<D, V>(event_idx) {
        for arms in [false, true] {
            model(move || stale_copy::<D, V>(event_idx, arms, place));
        }
    }
}

/// `arms`: at its end the device stores when it is to be kicked, which marks that page once more.
fn stale_copy<D, V>(event_idx: bool, arms: bool, place: usize)
where
    D: DriverQueue + Send + 'static,
    V: DeviceQueue + Send + 'static,
{
    let mut bench = Bench::<D, V>::new(event_idx);
    for number in 0..BUFFERS {
        let element = bench.element(number);
        bench.driver.add(&[], &[element], BufferId(number)).expect("room");
    }
    bench.driver.publish();
    // Bits of all pages up to the memory's, which are in one word.
    let first_bits = (BASE / LOG_PAGE_LEN / 8) as usize;
    let bits = ModelledMemory::new(first_bits + 2);
    let log = DirtyLog::new(bits.share());
    let regions = bench.regions.clone().with_log(Some(log));
    bench.device.rebind(&bench.areas, &regions).expect("where it was");
    let Bench { mut device, memory, .. } = bench;
    let (memory_words, bits_words) = (memory.share(), bits.share());
    let mut copy = memory_words.load_u16(place);
    let device_side = thread::spawn(move || {
        let mut elements = Elements::new();
        for number in 0..BUFFERS {
            let mut at = device.cursor();
            let peeked = device.peek(&mut at, &regions, &mut elements);
            let head = peeked.expect("a right driver").expect("published before");
            elements.writable()[0].store_u16(0, 0x300 + number);
            device.pop(head);
            device.add_used(head, 2);
            device.publish();
        }
        if arms {
            device.arm_kicks(Arm::Never);
        }
    });
    let bit = 1 << (place / LOG_PAGE_LEN as usize);
    let mut take = || {
        // As QEMU does it, with a full fence in between. That it looks before is left out: behind a
        // look of both sides loom does not see that what they store then is in a race.
        if bits_words.take_u16(first_bits) & bit != 0 {
            fence(Ordering::SeqCst);
            copy = memory_words.load_u16(place);
        }
    };
    (0..TAKES).for_each(|_| take());
    device_side.join().expect("the device");
    take();
    assert_eq!(copy, memory_words.load_u16(place), "the copy of byte {place:#x}");
    drop((memory, bits));
}

#[test]
fn split_flags_leave_no_stale_copy() {
    no_stale_copy::<SplitDriver, SplitDevice>(false);
}

#[test]
fn split_event_idx_leaves_no_stale_copy() {
    no_stale_copy::<SplitDriver, SplitDevice>(true);
}

#[test]
fn packed_flags_leave_no_stale_copy() {
    no_stale_copy::<PackedDriver, PackedDevice>(false);
}

#[test]
fn packed_event_idx_leaves_no_stale_copy() {
    no_stale_copy::<PackedDriver, PackedDevice>(true);
}

#[test]
fn split_flags_lose_no_kick() {
    no_lost_kick::<SplitDriver, SplitDevice>(false);
}

#[test]
fn split_event_idx_loses_no_kick() {
    no_lost_kick::<SplitDriver, SplitDevice>(true);
}

#[test]
fn packed_flags_lose_no_kick() {
    no_lost_kick::<PackedDriver, PackedDevice>(false);
}

#[test]
fn packed_event_idx_loses_no_kick() {
    no_lost_kick::<PackedDriver, PackedDevice>(true);
}

#[test]
fn split_flags_lose_no_call() {
    no_lost_call::<SplitDriver, SplitDevice>(false);
}

#[test]
fn split_event_idx_loses_no_call() {
    no_lost_call::<SplitDriver, SplitDevice>(true);
}

#[test]
fn packed_flags_lose_no_call() {
    no_lost_call::<PackedDriver, PackedDevice>(false);
}

#[test]
fn packed_event_idx_loses_no_call() {
    no_lost_call::<PackedDriver, PackedDevice>(true);
}
