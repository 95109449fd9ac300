//! The packed ring (virtio 1.2 §2.8): one ring of descriptors that both sides write.
//!
//! A descriptor is available when its AVAIL flag equals the driver's wrap counter and USED does
//! not; it is used when both equal the device's wrap counter. Limits: at most 32768 entries.

mod device;
mod driver;

pub use device::PackedDevice;
pub use driver::PackedDriver;

use crate::desc::{AVAIL, USED};
use crate::event::RingOffset;
use crate::queue::prefetch_distance;

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

/// Whether these flags are of a descriptor that is available.
#[inline(always)]
fn are_available(flags: u16, wrap: bool) -> bool {
    flags & (AVAIL | USED) == available_flags(wrap)
}

/// The same for one that is used.
#[inline(always)]
fn are_used(flags: u16, wrap: bool) -> bool {
    flags & (AVAIL | USED) == used_flags(wrap)
}

/// The place of the entry to fetch now, when the one at `at` is next; `None` in a ring so short that
/// this has gone around it twice.
#[inline(always)]
fn prefetch_at(at: RingOffset, size: u16) -> Option<RingOffset> {
    let distance = prefetch_distance(at.at);
    (distance <= size).then(|| at.advanced(distance, size))
}

/// An event suppression word (virtio 1.2 §2.8.14).
#[inline]
fn event_word(flags: u16, at: u16) -> u32 {
    u32::from(flags) << 16 | u32::from(at)
}
