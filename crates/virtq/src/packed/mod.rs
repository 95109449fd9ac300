//! The packed ring (virtio 1.2 §2.8): one ring of descriptors that both sides write.
//!
//! A descriptor is available when its AVAIL flag equals the driver's wrap counter and USED does
//! not; it is used when both equal the device's wrap counter. Limits: at most 32768 entries.

mod device;
mod driver;
mod place;
mod start;
mod used_entry;

pub use device::PackedDevice;
pub use driver::PackedDriver;
pub use start::position_by_ring;

use crate::desc::{AVAIL, USED};

/// The AVAIL and USED flags of a descriptor that is made available.
#[inline]
fn available_flags(wrap: bool) -> u16 {
    if wrap { AVAIL } else { USED }
}

/// The AVAIL and USED flags of a descriptor that is made used.
#[inline]
fn used_flags(wrap: bool) -> u16 {
    if wrap { AVAIL | USED } else { 0 }
}

/// Whether these flags are of a descriptor that is used.
#[inline(always)]
fn are_used(flags: u16, wrap: bool) -> bool {
    flags & (AVAIL | USED) == used_flags(wrap)
}

/// An event suppression word (virtio 1.2 §2.8.14).
#[inline]
fn event_word(flags: u16, at: u16) -> u32 {
    u32::from(flags) << 16 | u32::from(at)
}
