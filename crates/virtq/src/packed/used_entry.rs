//! Used entries of a packed ring that wait in its record until they are shown.
//!
//! How: one for each buffer, in order; what the place decides is added when an entry is shown.
//! Limits: entries of one ring take at most one lap together.

use crate::desc::WRITE;
use crate::packed::place::Place;
use crate::{Broken, Head, RingRecord, Why};

/// The entry that the device writes into a descriptor, which is the next one behind those of the
/// entry before. It waits in the ring's record.
#[derive(Debug, Clone, Copy)]
pub(super) struct UsedEntry {
    /// Length, id and flags, as they are in memory, but without what the place decides.
    pub word: u64,
    /// Descriptors of the buffer, and [`IS_READABLE`].
    pub step: u32,
}

/// The buffer cannot be written.
pub(super) const IS_READABLE: u32 = 1 << 16;

impl UsedEntry {
    #[inline(always)]
    pub fn new(Head { id, descriptors, is_writable }: Head, written: u32) -> Self {
        let flags = if written > 0 { WRITE } else { 0 };
        let word = u64::from(written) | u64::from(id) << 32 | u64::from(flags) << 48;
        let readable = if is_writable { 0 } else { IS_READABLE };
        Self { word, step: u32::from(descriptors) | readable }
    }

    #[inline(always)]
    pub fn load(record: &RingRecord, at: usize) -> Self {
        let (word, step) = record.entry(at);
        Self { word, step }
    }

    #[inline(always)]
    pub fn descriptors(self) -> u16 {
        (self.step & 0xffff) as u16
    }

    /// Whether it is an entry of a ring of that size, whatever has written it.
    fn is_one(self, size: u16) -> bool {
        let (id, flags) = ((self.word >> 32 & 0xffff) as u16, (self.word >> 48) as u16);
        id < size && flags & !WRITE == 0 && self.step & !IS_READABLE & !0xffff == 0
    }

    #[inline(always)]
    pub fn word_at(self, place: Place) -> u64 {
        self.word | u64::from(place.used_flags()) << 48
    }
}

/// Where a device was left whose record this is: the place as published, how many entries are kept
/// from there on, and the place behind those.
pub(super) fn left(record: &RingRecord, size: u16) -> Result<(Place, usize, Place), Broken> {
    let [published, kept] = record.load();
    let published = Place::from_untrusted(published, size).ok_or(Broken(Why::BadRecord))?;
    let kept = usize::try_from(kept).unwrap_or(usize::MAX);
    if kept > usize::from(size).min(record.room()) {
        return Err(Broken(Why::BadRecord));
    }
    let mut behind = published;
    let mut left = size;
    for at in 0..kept {
        let entry = UsedEntry::load(record, at);
        let is_one = entry.is_one(size) && entry.descriptors() > 0;
        let rest = left.checked_sub(entry.descriptors()).filter(|_| is_one);
        left = rest.ok_or(Broken(Why::BadRecord))?;
        behind = behind.advanced(entry.descriptors(), size);
    }
    Ok((published, kept, behind))
}
