//! A place in a packed ring, and on which lap: all that the device has to know of an entry's flags.
//!
//! How: one word, which is loaded as it was stored (see `Index` of split rings); the upper half is
//! what the AVAIL and USED flags of entries are that become available on this lap. Limits: a longer
//! step than a lap leads out of the ring.

use crate::desc::{AVAIL, Descriptors, NEXT, PACKED_FLAGS, USED};
use crate::event::RingOffset;
use crate::packed::available_flags;

/// An offset with the wrap counter of its lap, which is 1 on the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place(u32);

/// The bits that differ between a lap and the next one.
const LAP: u32 = ((AVAIL | USED) as u32) << 16;

impl Place {
    /// The place that [`word`](Self::word) was taken of.
    #[inline(always)]
    pub fn from_word(word: u32) -> Self {
        Self(word)
    }

    /// To be kept where the ring's format is not known.
    #[inline(always)]
    pub fn word(self) -> u32 {
        self.0
    }

    /// The place of a word that anything may have been written into; `None`: it is none of a ring
    /// of that size.
    pub fn from_untrusted(word: u32, size: u16) -> Option<Self> {
        let places = [true, false].map(|wrap| u32::from(available_flags(wrap)) << 16);
        let is_one = places.contains(&(word & !0xffff)) && word & 0xffff < u32::from(size);
        is_one.then_some(Self(word))
    }

    pub fn new(offset: RingOffset) -> Self {
        Self(u32::from(available_flags(offset.wrap)) << 16 | u32::from(offset.at))
    }

    #[inline]
    pub fn offset(self) -> RingOffset {
        RingOffset { at: self.at(), wrap: self.available_flags() == available_flags(true) }
    }

    /// The number of the entry.
    #[inline(always)]
    pub fn at(self) -> u16 {
        (self.0 & 0xffff) as u16
    }

    /// Whether these are the flags of an entry that is available.
    #[inline(always)]
    pub fn is_available(self, flags: u16) -> bool {
        flags & (AVAIL | USED) == self.available_flags()
    }

    /// The AVAIL and USED flags with which the entry becomes used.
    #[inline(always)]
    pub fn used_flags(self) -> u16 {
        self.available_flags() ^ USED
    }

    /// Whether these are the flags of an entry that was available there, and is used since.
    pub fn is_used_since(self, flags: u16) -> bool {
        (flags ^ self.used_flags()) & USED == 0
    }

    #[inline(always)]
    fn available_flags(self) -> u16 {
        (self.0 >> 16) as u16
    }

    /// `by` entries further; not in the ring if that is more than `size`.
    #[inline(always)]
    pub fn advanced(self, by: u16, size: u16) -> Self {
        // Both at most 2^15, so the sum does not reach the upper half.
        let further = self.0 + u32::from(by);
        if further & 0xffff < u32::from(size) { Self(further) } else { Self::around(further, size) }
    }

    /// On the next lap. Out of line, so that the usual step is a jump that is not taken.
    #[cold]
    fn around(further: u32, size: u16) -> Self {
        Self((further - u32::from(size)) ^ LAP)
    }

    /// The same place on the next lap.
    #[inline(always)]
    pub fn a_lap_on(self) -> Self {
        Self(self.0 ^ LAP)
    }

    /// Entries from `from` to here, counted modulo twice the size: two laps look different.
    #[inline]
    pub fn distance(self, from: Self, size: u16) -> u32 {
        self.offset().distance(from.offset(), size)
    }
}

/// The place behind all buffers that are available from there on: of a chain, the first descriptor
/// says whether it is. At most a lap further, however far a driver says that it has come.
pub(super) fn behind_available(ring: &Descriptors, from: Place) -> Place {
    let (mut at, mut is_inside) = (from, false);
    for _ in 0..=ring.last() {
        let flags = ring.at(usize::from(at.at())).load_u16(PACKED_FLAGS);
        if !is_inside && !at.is_available(flags) {
            break;
        }
        is_inside = flags & NEXT != 0;
        at = at.advanced(1, size_of(ring));
    }
    at
}

/// Entries of a ring: at most 2^15.
#[allow(clippy::cast_possible_truncation, reason = "at most 2^15")]
fn size_of(ring: &Descriptors) -> u16 {
    ring.last() as u16 + 1
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::packed::used_flags;

    #[test]
    fn a_place_goes_around_as_an_offset_does() {
        for size in [1u16, 2, 3, 7, 255, 32768] {
            let mut offset = RingOffset::FRESH;
            for by in [1, size / 2, 0, size, size - 1, 1, size] {
                let place = Place::new(offset);
                assert_eq!((place.offset(), place.at()), (offset, offset.at));
                let a_lap_on = RingOffset { wrap: !offset.wrap, ..offset };
                assert_eq!(place.a_lap_on().offset(), a_lap_on);
                assert_eq!(place.used_flags(), used_flags(offset.wrap));
                offset = offset.advanced(by, size);
                assert_eq!(place.advanced(by, size), Place::new(offset), "{size} {by}");
                assert_eq!(Place::new(offset).distance(place, size), u32::from(by));
            }
        }
    }

    #[test]
    fn spec_2_8_1_available_is_avail_of_this_lap_and_used_of_the_last() {
        let first = Place::new(RingOffset::FRESH);
        for flags in [0, AVAIL, USED, AVAIL | USED] {
            assert_eq!(first.is_available(flags | 1), flags == AVAIL);
            assert_eq!(first.a_lap_on().is_available(flags | 1), flags == USED);
        }
    }
}
