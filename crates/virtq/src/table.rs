//! Equal entries one after the other in shared memory, as rings are made of.
//!
//! How: place and alignment are checked once, when the table is made; after that only the number of
//! an entry is. Limits: 1 to 32768 entries, as many as a queue has.

use crate::SharedSlice;

/// Entries of `LEN` bytes at multiples of `ALIGN`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Table<const LEN: usize, const ALIGN: usize> {
    entries: SharedSlice,
    /// The last entry: a whole word, which nothing is loaded together with.
    last: usize,
}

impl<const LEN: usize, const ALIGN: usize> Table<LEN, ALIGN> {
    /// The `count` entries at `offset` of a part of a ring, which were checked to be there.
    pub fn new(part: SharedSlice, offset: usize, count: u16) -> Self {
        let entries = part.slice(offset, LEN * usize::from(count)).expect("inside its part");
        assert!(count > 0 && LEN.is_multiple_of(ALIGN) && entries.is_aligned_to(ALIGN), "a table");
        Self { entries, last: usize::from(count) - 1 }
    }

    /// The last entry, and in a ring of a power of two the mask of a free-running index.
    #[inline(always)]
    pub fn last(&self) -> usize {
        self.last
    }

    /// An entry that the peer has named; `None`: there is no such one.
    #[inline(always)]
    pub fn find(&self, index: u16) -> Option<SharedSlice> {
        (usize::from(index) <= self.last).then(|| self.at(usize::from(index)))
    }

    /// An entry, which must be one (programmer error otherwise).
    #[inline(always)]
    pub fn at(&self, index: usize) -> SharedSlice {
        assert!(index <= self.last, "entry outside its table");
        // SAFETY: `index` is one of the entries, which are all inside and aligned; so `new` found.
        unsafe { self.entries.part(index * LEN, LEN, ALIGN) }
    }

    /// The entries from one to before another; `to` is at most one behind the last one (programmer
    /// error otherwise).
    #[inline(always)]
    #[cfg_attr(loom, allow(dead_code, reason = "a modelled record is no table"))]
    pub fn range(&self, from: usize, to: usize) -> impl Iterator<Item = SharedSlice> {
        let Self { entries, last } = *self;
        assert!(to <= last + 1, "entries outside their table");
        // SAFETY: all of them are before `to`, and so entries, which are inside and aligned.
        (from..to).map(move |index| unsafe { entries.part(index * LEN, LEN, ALIGN) })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn entries_are_where_they_are_and_there_are_no_others() {
        let mut words = [0u64; 4];
        // SAFETY: `words` outlives the slice and is not touched while the slice is used.
        let part = unsafe { SharedSlice::new(words.as_mut_ptr().cast(), 32) };
        let table = Table::<8, 4>::new(part, 4, 3);
        table.at(2).store_u32(4, 7);
        assert_eq!((part.load_u32(24), table.last()), (7, 2));
        assert_eq!(table.find(2).map(|entry| (entry.len(), entry.load_u32(4))), Some((8, 7)));
        assert!(table.find(3).is_none());
    }

    #[test]
    #[should_panic(expected = "inside its part")]
    fn a_table_longer_than_its_part_is_a_mistake_of_the_caller() {
        Table::<8, 4>::new(SharedSlice::EMPTY, 0, 1);
    }
}
