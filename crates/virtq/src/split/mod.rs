//! The split ring (virtio 1.2 §2.7): descriptor table, available ring, used ring.
//!
//! Limits: the size is a power of two, at most 32768.

mod device;
mod driver;

pub use device::SplitDevice;
pub use driver::SplitDriver;

/// Offsets in both the available and the used ring, in bytes.
const FLAGS: usize = 0;
pub(crate) const INDEX: usize = 2;
const RING: usize = 4;

/// Flag in the available ring: no calls, please. In the used ring: no kicks, please.
const NO_NOTIFICATION: u16 = 1;

/// Half the range of an index away: an event there is not reached while anybody waits for it.
const FAR: u16 = 0x8000;

/// Which entry an index that runs freely means; the size is a power of two.
#[inline]
fn place(index: u16, size: u16) -> usize {
    usize::from(index) & (usize::from(size) - 1)
}

/// Offset of an entry of the available ring, in bytes.
#[inline]
fn available_entry(index: u16, size: u16) -> usize {
    RING + 2 * place(index, size)
}

/// Offset of an entry of the used ring, in bytes.
#[inline]
fn used_entry(index: u16, size: u16) -> usize {
    RING + 8 * place(index, size)
}

/// Offset of the word behind the available ring: when the driver wants a call.
#[inline]
fn used_event(size: u16) -> usize {
    RING + 2 * usize::from(size)
}

/// Offset of the word behind the used ring: when the device wants a kick.
#[inline]
fn available_event(size: u16) -> usize {
    RING + 8 * usize::from(size)
}
