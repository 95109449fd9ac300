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
//! The worth of the tests: with any one of the four fences of `event.rs` taken out, tests of this
//! file fail. Without `before_asking` or `before_second_look` a sleeper is not woken; without
//! `before_showing` or `after_seeing` a stale descriptor, used entry or payload is read.
#![cfg(loom)]

use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;
use ringway_virtq::{
    Arm, BufferId, DeviceQueue, DriverQueue, Elements, Layout, ModelledMemory, PackedDevice,
    PackedDriver, Position, QueueOptions, QueueSetup, Region, Regions, SharedSlice, SplitDevice,
    SplitDriver,
};

const PREEMPTIONS_MAX: usize = 3;
const SIZE: u16 = 2;
const BASE: u64 = 0x1000;
/// Buffers that go through while both threads run.
const BUFFERS: u16 = 2;

struct Bench<D, V> {
    driver: D,
    device: V,
    regions: Regions,
    elements: Elements,
    payload: SharedSlice,
    payload_address: u64,
    memory: ModelledMemory,
}

impl<D: DriverQueue, V: DeviceQueue> Bench<D, V> {
    /// A ring on which one buffer has gone there and back.
    fn new(event_idx: bool) -> Self {
        let options = QueueOptions { event_idx, ..QueueOptions::default() };
        let ring_len = Layout::of(D::FORMAT, SIZE, options).len as usize;
        let memory = ModelledMemory::new(ring_len + 64);
        let shared = memory.share();
        let region = Region { guest_address: BASE, memory: shared };
        let regions = Regions::new(vec![region]).expect("one region");
        let ring = shared.slice(0, ring_len).expect("inside");
        let driver = D::new(ring, BASE, SIZE, options);
        let position = Position::FRESH;
        let setup = QueueSetup { size: SIZE, areas: driver.areas(), position, options };
        let device = V::start(&setup, &regions).expect("a right setup");
        let payload = shared.slice(ring_len, 64).expect("inside");
        let payload_address = BASE + ring_len as u64;
        let elements = Elements::new();
        let mut bench =
            Self { driver, device, regions, elements, payload, payload_address, memory };
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
