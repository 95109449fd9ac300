//! Nothing is allocated after the start: an allocator that counts watches the driver while it
//! sends, receives, holds, releases and changes buffer lengths.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use ringway_driver::{Held, RxOptions, RxScheme};
use ringway_net::NetHeader;
use ringway_testkit::{DriverPair, PairShape};
use ringway_virtq::{
    DeviceQueue, DriverQueue, PackedDevice, PackedDriver, SplitDevice, SplitDriver,
};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// Counts what this thread allocates.
struct Counting;

// SAFETY: everything is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Allocations while `run` runs.
fn allocations<X>(run: impl FnOnce() -> X) -> (u64, X) {
    let before = ALLOCATIONS.with(Cell::get);
    let result = run();
    (ALLOCATIONS.with(Cell::get) - before, result)
}

#[test]
fn the_allocator_counts() {
    let (count, boxed) = allocations(|| Box::new([1u8; 100]));
    assert_eq!((count, boxed[0]), (1, 1));
}

const ROUNDS: usize = 600;

/// Packets of all kinds through a pair; returns how often the driver allocated.
fn exchange<D: DriverQueue, V: DeviceQueue>(scheme: RxScheme) -> u64 {
    let shape = PairShape::plain(D::FORMAT, 64, scheme);
    let options = RxOptions { spare_len: 1 << 20, ..shape.rx() };
    let mut pair = DriverPair::<D, V>::with(shape, &options);
    let packet = vec![7; 65_226];
    let mut into = vec![0; packet.len()];
    let mut held: Option<Held> = None;
    let (mut count, mut received) = (0, 0);
    for round in 0..ROUNDS {
        let len = [60, 128, 1514, 9014, 65_226][round / 50 % 5];
        let (while_sending, _) = allocations(|| {
            let _ = pair.driver.rx.flush();
            let sent = pair.driver.tx.send(&NetHeader::default(), &packet[..len]);
            assert!(sent.is_ok(), "a right device");
            pair.driver.tx.flush()
        });
        pair.take_all();
        pair.give_all();
        let (while_receiving, _) = allocations(|| {
            while let Some(lent) = pair.driver.rx.receive().expect("a right device") {
                lent.copy_to(&mut into);
                received += 1;
                if held.is_none() {
                    held = pair.driver.rx.hold();
                } else if let Some(held) = held.take() {
                    pair.driver.rx.release(held);
                }
            }
        });
        count += while_sending + while_receiving;
    }
    assert!(received > ROUNDS / 2, "{scheme:?}: {received} packets");
    count
}

#[test]
fn the_data_path_allocates_nothing() {
    for scheme in RxScheme::ALL {
        assert_eq!(exchange::<SplitDriver, SplitDevice>(scheme), 0, "{scheme:?}");
        assert_eq!(exchange::<PackedDriver, PackedDevice>(scheme), 0, "{scheme:?}");
    }
}
