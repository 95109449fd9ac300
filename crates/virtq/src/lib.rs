//! Virtqueues: split and packed, driver side and device side.
//!
//! The life of a buffer, in the order in which the two sides do it:
//!
//! 1. the driver **adds** a buffer: descriptors are written, the device may not see them yet;
//! 2. the driver **publishes**: everything added since the last time becomes available at once;
//! 3. the driver asks whether it **must kick** the device, and does so, or not;
//! 4. the device **peeks**: it reads the next available buffer into [`Elements`], checked;
//! 5. the device uses the memory of those elements;
//! 6. the device **pops** what it has accepted, one buffer after the other;
//! 7. the device **adds used** entries, still invisible to the driver;
//! 8. the device **publishes** them at once;
//! 9. the device asks whether it **must call** the driver, and does so, or not;
//! 10. the driver **pops used** entries and owns the memory again.
//!
//! Both sides trust only private copies: whatever the peer may write is read once, copied,
//! checked, and only the copy is used.
//!
//! Limits: 32768 entries a queue, [`ELEMENTS_MAX`] elements a buffer, [`REGIONS_MAX`] regions.
//!
//! One buffer there and back:
//!
//! ```
//! use ringway_virtq::*;
//!
//! #[repr(align(64))]
//! struct Memory([u8; 4096]);
//! let mut memory = Memory([0; 4096]);
//! // SAFETY: the memory outlives everything below and is only touched through this slice.
//! let shared = unsafe { SharedSlice::new(memory.0.as_mut_ptr(), 4096) };
//! let regions = Regions::new(vec![Region { guest_address: 0x10000, memory: shared }]).unwrap();
//! let (size, options) = (8, QueueOptions::default());
//! let ring_len = Layout::of(Format::Split, size, options).len as usize;
//! let (ring, data) = shared.split_at(ring_len);
//! let data_address = 0x10000 + ring_len as u64;
//!
//! let mut driver = SplitDriver::new(ring, 0x10000, size, options);
//! let setup = QueueSetup { size, areas: driver.areas(), position: Position::FRESH, options };
//! let mut device = SplitDevice::start(&setup, &regions).unwrap();
//!
//! // The driver asks: 5 bytes to read, 5 bytes to write.
//! data.write(0, b"hello");
//! driver.add(&[(data_address, 5)], &[(data_address + 5, 5)], BufferId(3)).unwrap();
//! driver.publish();
//! assert!(driver.must_kick());
//!
//! // The device answers.
//! let (mut at, mut elements) = (device.cursor(), Elements::new());
//! let head = device.peek(&mut at, &regions, &mut elements).unwrap().unwrap();
//! assert_eq!(elements.readable()[0].copy_to(elements.writable()[0]), 5);
//! device.pop(head);
//! device.add_used(head, 5);
//! device.publish();
//! assert!(device.must_call());
//!
//! // The driver owns the memory again.
//! assert_eq!(driver.pop_used(), Ok(Some(Used { id: BufferId(3), len: 5 })));
//! let mut answer = [0; 5];
//! data.read(5, &mut answer);
//! assert_eq!(&answer, b"hello");
//! assert_eq!(driver.free(), size);
//! ```
#![no_std]
extern crate alloc;
#[cfg(test)]
extern crate std;

mod areas;
mod chain;
mod desc;
mod dirty_log;
mod error;
mod event;
#[cfg_attr(loom, allow(dead_code, reason = "of a model no store is one"))]
mod fault;
mod flight;
mod format;
mod marker;
mod packed;
mod plan;
mod queue;
mod records;
mod regions;
#[cfg_attr(loom, path = "ring_record_loom.rs")]
mod ring_record;
#[cfg_attr(loom, path = "shared_loom.rs")]
mod shared;
mod split;
mod table;
mod written;

pub use areas::{AreaSizes, INDIRECT_ELEMENTS_MAX, Layout};
pub use chain::{ELEMENTS_MAX, Elements};
pub use dirty_log::{DirtyLog, LOG_PAGE_LEN};
pub use error::{Broken, QueueFull, Why};
#[cfg(all(feature = "fault-points", not(loom)))]
pub use fault::{Mark, kill_after, leave_out};
pub use format::Format;
pub use packed::{PackedDevice, PackedDriver, position_by_ring};
pub use queue::{
    Areas, Arm, BufferId, Cursor, DeviceQueue, DriverQueue, Head, One, PREFETCH_AHEAD,
    PREFETCH_SCATTER, Position, QueueOptions, QueueSetup, Returned, SIZE_MAX, Used,
    prefetch_distance,
};
pub use regions::{REGIONS_MAX, Region, RegionError, Regions};
pub use ring_record::RingRecord;
#[cfg(loom)]
pub use shared::ModelledMemory;
pub use shared::SharedSlice;
pub use split::{SplitDevice, SplitDriver};
