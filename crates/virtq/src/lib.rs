//! Virtqueues: split and packed, driver side and device side.
//!
//! What a buffer lives through, in the order in which the two sides do it:
//!
//! 1. the driver **adds** a buffer: descriptors are written, nobody else may see them yet;
//! 2. the driver **publishes**: everything added since the last time becomes available at once;
//! 3. the driver asks whether it **must kick** the device, and does so, or not;
//! 4. the device **peeks**: it reads the next available buffer into [`Elements`], checked;
//! 5. the device uses the memory of those elements;
//! 6. the device **pops** up to the cursor it has accepted;
//! 7. the device **adds used** entries, still invisible to the driver;
//! 8. the device **publishes** them at once;
//! 9. the device asks whether it **must call** the driver, and does so, or not;
//! 10. the driver **pops used** entries and owns the memory again.
//!
//! Both sides trust only private copies: whatever the peer may write is read once, copied,
//! checked, and only the copy is used.
#![no_std]
extern crate alloc;
#[cfg(test)]
extern crate std;

mod areas;
mod chain;
mod desc;
mod error;
mod event;
mod flight;
mod packed;
mod plan;
mod queue;
mod regions;
#[cfg_attr(loom, path = "shared_loom.rs")]
mod shared;
mod split;

pub use areas::{AreaSizes, INDIRECT_ELEMENTS_MAX, Layout, split_used_index};
pub use chain::{ELEMENTS_MAX, Elements};
pub use error::{Broken, QueueFull, Why};
pub use packed::{PackedDevice, PackedDriver};
pub use queue::{
    Areas, Arm, BufferId, Cursor, DeviceQueue, DriverQueue, Format, Head, Position, QueueOptions,
    QueueSetup, SIZE_MAX, Used,
};
pub use regions::{REGIONS_MAX, Region, RegionError, Regions};
#[cfg(loom)]
pub use shared::ModelledMemory;
pub use shared::SharedSlice;
pub use split::{SplitDevice, SplitDriver};
