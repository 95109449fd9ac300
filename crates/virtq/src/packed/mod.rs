//! The packed ring (virtio 1.2 §2.8): one ring of descriptors that both sides write.
//!
//! A descriptor is available when its AVAIL flag equals the driver's wrap counter and USED does
//! not; it is used when both equal the device's wrap counter. Limits: at most 32768 entries.

mod device;
mod driver;

pub use device::PackedDevice;
pub use driver::PackedDriver;

use crate::SharedSlice;
use crate::desc::{AVAIL, PACKED_FLAGS, USED, offset};
use crate::event::RingOffset;
use crate::queue::prefetch_distance;

/// The flags of the descriptor at `at`.
#[inline]
fn load_flags(ring: SharedSlice, at: u16) -> u16 {
    ring.load_u16(offset(at) + PACKED_FLAGS)
}

/// Shows a descriptor to the other side, or hides it.
#[inline]
fn store_flags(ring: SharedSlice, at: u16, flags: u16) {
    ring.store_u16(offset(at) + PACKED_FLAGS, flags);
}

/// What the AVAIL and USED flags are at a descriptor that is made available.
#[inline]
fn available_flags(wrap: bool) -> u16 {
    if wrap { AVAIL } else { USED }
}

/// What the AVAIL and USED flags are at a descriptor that is made used.
#[inline]
fn used_flags(wrap: bool) -> u16 {
    if wrap { AVAIL | USED } else { 0 }
}

#[inline]
fn is_available(ring: SharedSlice, at: RingOffset) -> bool {
    load_flags(ring, at.at) & (AVAIL | USED) == available_flags(at.wrap)
}

#[inline]
fn is_used(ring: SharedSlice, at: RingOffset) -> bool {
    load_flags(ring, at.at) & (AVAIL | USED) == used_flags(at.wrap)
}

/// The place of the entry to fetch now, when the one at `at` is next; `None` in a ring so short that
/// this has gone around it twice.
#[inline(always)]
fn prefetch_at(at: u16, size: u16) -> Option<u16> {
    let soon = at + prefetch_distance(at);
    if soon < size {
        return Some(soon);
    }
    Some(soon - size).filter(|&soon| soon < size)
}

/// An event suppression word (virtio 1.2 §2.8.14).
#[inline]
fn event_word(flags: u16, at: u16) -> u32 {
    u32::from(flags) << 16 | u32::from(at)
}
