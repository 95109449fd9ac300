//! The split ring (virtio 1.2 §2.7): descriptor table, available ring, used ring.
//!
//! Limits: the size is a power of two, at most 32768.

mod device;
mod driver;

pub use device::SplitDevice;
pub use driver::SplitDriver;

use crate::table::Table;

/// Offsets in both the available and the used ring, in bytes.
const FLAGS: usize = 0;
pub(crate) const INDEX: usize = 2;
const RING: usize = 4;

/// The entries of the used ring: id and length.
type UsedRing = Table<8, 4>;

/// Flag in the available ring: no calls, please. In the used ring: no kicks, please.
const NO_NOTIFICATION: u16 = 1;

/// Half the range of an index away: an event there is not reached while anybody waits for it.
const FAR: u16 = 0x8000;

/// An index that runs freely over 16 bits, kept as a whole word.
///
/// Compilers load what is smaller together with what is beside it. A load that takes in more than
/// the last store wrote waits until that store has left the processor, and before it all that was
/// stored for the peer.
#[derive(Debug, Clone, Copy)]
struct Index(u32);

impl Index {
    #[inline(always)]
    fn new(index: u16) -> Self {
        Self(u32::from(index))
    }

    #[inline(always)]
    fn value(self) -> u16 {
        (self.0 & 0xffff) as u16
    }
}

/// The entry that an index means, in a ring of a power of two entries, of which `last` is the last.
#[inline]
fn place(index: u16, last: usize) -> usize {
    usize::from(index) & last
}

/// Entries of a ring whose last one is `last`: at most 2^15 (virtio 1.2 §2.7).
#[inline(always)]
#[allow(clippy::cast_possible_truncation, reason = "at most 2^15")]
fn size_of(last: usize) -> u16 {
    last as u16 + 1
}

/// Offset of an entry of the available ring, in bytes.
#[inline]
fn available_entry(index: u16, last: usize) -> usize {
    RING + 2 * place(index, last)
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
