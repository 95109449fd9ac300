//! Buffers that a device has used and not shown yet, in a place that may outlive the device.
//!
//! A process that is killed ends between two instructions. Where the record of a ring lies in
//! memory that another process has as well, that one continues from there: it shows every buffer
//! that was *kept*, and reads again what was not. So nothing is lost.
//!
//! How: one word says which used entries are shown, and how far those reach that are kept. It is
//! stored as a whole with each publish, and its second half alone whenever something is kept. Used
//! entries of a split ring are in the ring's own memory already; those of a packed ring wait in the
//! record until they are shown, [`ENTRY_LEN`] bytes each. Limits: only the compiler is told the
//! order of stores. That is enough where a process ends, and not where a machine does.

use alloc::vec;
use alloc::vec::Vec;
use core::sync::atomic::{Ordering, compiler_fence};

use crate::table::Table;
use crate::{Format, SharedSlice};

/// Bytes of an entry.
pub(crate) const ENTRY_LEN: usize = 16;

/// The record of one ring: in memory that was given, or in the device's own.
#[derive(Debug)]
pub struct RingRecord {
    word: Table<8, 8>,
    /// Where the second half of the word is stored: there, or in the spare one.
    kept: Table<4, 4>,
    /// Of a split ring the spare words, which are not used as one.
    entries: Table<ENTRY_LEN, 8>,
    spare: Table<8, 8>,
    /// Spare words, and behind them the record where no place was given.
    _own: Vec<u64>,
}

/// Spare words: as many as an entry has.
const SPARE: usize = ENTRY_LEN / 8;

impl RingRecord {
    /// Bytes of the word.
    pub const WORD_LEN: usize = 8;

    /// Bytes of the entries of a ring; none of a split ring.
    pub const fn entries_len(format: Format, size: u16) -> usize {
        match format {
            Format::Split => 0,
            Format::Packed => ENTRY_LEN * size as usize,
        }
    }

    /// In this memory, as it is: [`WORD_LEN`](Self::WORD_LEN) bytes and
    /// [`entries_len`](Self::entries_len) bytes, aligned to 8 (programmer error otherwise).
    pub fn at(word: SharedSlice, entries: SharedSlice) -> Self {
        Self::with(word, entries, vec![0; SPARE])
    }

    /// In memory of its own, which ends with it.
    pub(crate) fn own(format: Format, size: u16) -> Self {
        let len = Self::WORD_LEN + Self::entries_len(format, size);
        let mut own = vec![0; SPARE + len / 8];
        let (_, memory) = share(&mut own).split_at(ENTRY_LEN);
        let (word, entries) = memory.split_at(Self::WORD_LEN);
        Self::with(word, entries, own)
    }

    fn with(word: SharedSlice, entries: SharedSlice, mut own: Vec<u64>) -> Self {
        let (spare, _) = share(&mut own).split_at(ENTRY_LEN);
        let count = u16::try_from(entries.len() / ENTRY_LEN).expect("as many as a queue has");
        let entries = if count > 0 { entries } else { spare };
        Self {
            word: Table::new(word, 0, 1),
            kept: Table::new(word, 4, 1),
            entries: Table::new(entries, 0, count.max(1)),
            spare: Table::new(spare, 0, 1),
            _own: own,
        }
    }

    /// How far used entries are shown, and how far they are kept, as it stands there.
    pub(crate) fn load(&self) -> [u32; 2] {
        let word = self.word.at(0).load_u64(0);
        [(word & 0xffff_ffff) as u32, (word >> 32) as u32]
    }

    /// Stores both at once.
    #[inline(always)]
    pub(crate) fn store(&self, [shown, kept]: [u32; 2]) {
        before_noting();
        self.word.at(0).store_u64(0, u64::from(kept) << 32 | u64::from(shown));
        after_noting();
    }

    /// Stores how far what is kept reaches.
    #[inline(always)]
    pub(crate) fn store_kept(&self, kept: u32) {
        before_noting();
        self.kept.at(0).store_u32(0, kept);
        after_noting();
    }

    /// From now on that is not stored.
    pub(crate) fn hold(&mut self) {
        self.kept = Table::new(self.spare.at(0), 4, 1);
    }

    /// From now on it is again.
    #[inline(always)]
    pub(crate) fn release(&mut self) {
        self.kept = Table::new(self.word.at(0), 4, 1);
    }

    /// An entry, of which there must be so many (programmer error otherwise): what it puts into the
    /// ring, and how far it leads.
    #[inline(always)]
    pub(crate) fn entry(&self, at: usize) -> (u64, u32) {
        let entry = self.entries.at(at);
        (entry.load_u64(0), entry.load_u32(8))
    }

    /// The entries from one to before another; the same holds.
    #[inline(always)]
    pub(crate) fn entries(&self, from: usize, to: usize) -> impl Iterator<Item = (u64, u32)> {
        self.entries.range(from, to).map(|entry| (entry.load_u64(0), entry.load_u32(8)))
    }

    /// Stores an entry; the same holds.
    #[inline(always)]
    pub(crate) fn store_entry(&self, at: usize, word: u64, step: u32) {
        let entry = self.entries.at(at);
        entry.store_u64(0, word);
        entry.store_u32(8, step);
    }

    /// For how many entries there is room.
    pub(crate) fn room(&self) -> usize {
        self.entries.last() + 1
    }
}

fn share(own: &mut [u64]) -> SharedSlice {
    // SAFETY: the words stay where they are for as long as the record lives that has them, and
    // nothing else refers to them.
    unsafe { SharedSlice::new(own.as_mut_ptr().cast(), 8 * own.len()) }
}

/// After what a record's word tells of is stored, and before the word is: the process that comes
/// next could count what is not there.
///
/// PAIRS WITH: the end of this process
#[inline(always)]
fn before_noting() {
    compiler_fence(Ordering::Release);
}

/// After a record's word is stored, and before something is stored over that the word before told
/// of.
///
/// PAIRS WITH: the end of this process
#[inline(always)]
fn after_noting() {
    compiler_fence(Ordering::SeqCst);
}
