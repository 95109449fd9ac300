//! Descriptors: 16 bytes in both formats, read once, as two words, into a private copy.
//!
//! Split (virtio 1.2 §2.7.5): address, length, flags, next. Packed (§2.8.13): address, length,
//! buffer id, flags. Limits: what the fields say is not checked here.

use crate::SharedSlice;
use crate::table::Table;

/// Another descriptor of the same buffer follows.
pub(crate) const NEXT: u16 = 1;
/// The device may write the element, and not read it.
pub(crate) const WRITE: u16 = 1 << 1;
/// The element is a table of descriptors.
pub(crate) const INDIRECT: u16 = 1 << 2;
/// Packed: equal to the driver's wrap counter once available.
pub(crate) const AVAIL: u16 = 1 << 7;
/// Packed: equal to the device's wrap counter once used, different while available.
pub(crate) const USED: u16 = 1 << 15;

/// Offsets of the fields of a packed descriptor, in bytes.
pub(crate) const PACKED_LEN: usize = 8;
pub(crate) const PACKED_ID: usize = 12;
pub(crate) const PACKED_FLAGS: usize = 14;

/// Bytes of one descriptor, in both formats.
pub(crate) const DESCRIPTOR_LEN: u32 = 16;
const BYTES: usize = DESCRIPTOR_LEN as usize;

/// The descriptors of a ring, to reach them one by one.
pub(crate) type Descriptors = Table<BYTES, BYTES>;

/// Offset of a descriptor in its table, in bytes.
#[inline]
pub(crate) fn offset(index: u16) -> usize {
    usize::from(index) * BYTES
}

/// The private copy of a descriptor. `third` and `fourth` are flags and next in a split ring,
/// buffer id and flags in a packed one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Descriptor {
    pub address: u64,
    pub len: u32,
    pub third: u16,
    pub fourth: u16,
}

impl Descriptor {
    /// Reads a descriptor of the ring, which is aligned. The index must be inside.
    #[inline(always)]
    pub fn load(table: SharedSlice, index: u16) -> Self {
        let [address, rest] = table.load_u64_pair(offset(index));
        Self::from_words([address, rest])
    }

    /// Reads a descriptor of an indirect table, which a driver may put at any address.
    #[inline]
    pub fn copy(table: SharedSlice, index: u16) -> Self {
        if table.is_aligned_to(8) {
            return Self::load(table, index);
        }
        let mut bytes = [0; BYTES];
        table.read(offset(index), &mut bytes);
        let (words, _) = bytes.as_chunks();
        Self::from_words([0, 1].map(|at| u64::from_le_bytes(words[at])))
    }

    /// Writes all of it. The index must be inside.
    #[inline]
    pub fn store(self, table: SharedSlice, index: u16) {
        table.store_u64_pair(offset(index), self.words());
    }

    /// The two words that are in memory.
    #[inline]
    pub fn words(self) -> [u64; 2] {
        let flags = u64::from(self.third) << 32 | u64::from(self.fourth) << 48;
        [self.address, u64::from(self.len) | flags]
    }

    /// Where the second of them has the flags of a packed descriptor.
    #[inline]
    pub fn flags_word(flags: u16) -> u64 {
        u64::from(flags) << 48
    }

    /// The reverse of [`words`](Self::words).
    #[inline]
    pub fn from_words([address, rest]: [u64; 2]) -> Self {
        Self {
            address,
            len: (rest & 0xffff_ffff) as u32,
            third: (rest >> 32 & 0xffff) as u16,
            fourth: (rest >> 48) as u16,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_is_the_same_at_any_alignment() {
        let mut words = [0u64; 8];
        // SAFETY: `words` outlives the slice and is not touched while the slice is used.
        let memory = unsafe { SharedSlice::new(words.as_mut_ptr().cast(), 64) };
        let stored = Descriptor { address: 0x0102_0304_0506_0708, len: 9, third: 10, fourth: 11 };
        stored.store(memory, 1);
        assert_eq!(Descriptor::load(memory, 1), stored);
        let mut bytes = [0; BYTES];
        memory.read(BYTES, &mut bytes);
        for shift in 0..8 {
            let table = memory.slice(shift, 48).expect("inside");
            table.write(BYTES, &bytes);
            assert_eq!(Descriptor::copy(table, 1), stored, "shift {shift}");
        }
    }
}
