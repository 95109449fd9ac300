//! A list that is noted whole, for the data plane that comes after this one.
//!
//! How: two places, of which a word says which one holds how many words. A list is in place before
//! it takes the place of the other.
//!
//! Layout: a page that begins with the word (bit 63 says which place it is, the count is below),
//! then the two places.

use std::sync::atomic::{Ordering, compiler_fence};

use ringway_virtq::SharedSlice;

use crate::journal::PAGE;

/// The second place holds the list; below it is how many words are in it.
const SECOND: u64 = 1 << 63;

/// See the module.
#[derive(Debug, Clone, Copy)]
pub(super) struct List {
    pub(super) memory: SharedSlice,
}

impl List {
    /// Bytes for a list of at most so many words.
    pub(super) const fn len(words_max: usize) -> usize {
        PAGE + 2 * 8 * words_max
    }

    fn places(self) -> [SharedSlice; 2] {
        let (first, second) = self.memory.split_at(PAGE).1.split_at((self.memory.len() - PAGE) / 2);
        [first, second]
    }

    /// These, and no others; what is too much is left out.
    pub(super) fn note(self, words: impl Iterator<Item = u64>) {
        let other = !self.memory.load_u64(0) & SECOND;
        let place = self.places()[usize::from(other != 0)];
        let mut count = 0;
        for word in words.take(place.len() / 8) {
            place.store_u64(8 * count, word);
            count += 1;
        }
        // PAIRS WITH: the end of this process
        compiler_fence(Ordering::Release);
        self.memory.store_u64(0, other | count as u64);
        // PAIRS WITH: the end of this process
        compiler_fence(Ordering::SeqCst);
    }

    /// The words that were noted last; none if their count cannot be right.
    pub(super) fn noted(self) -> Vec<u64> {
        let word = self.memory.load_u64(0);
        let place = self.places()[usize::from(word & SECOND != 0)];
        let count = usize::try_from(word & !SECOND).unwrap_or(usize::MAX);
        let count = if count <= place.len() / 8 { count } else { 0 };
        (0..count).map(|at| place.load_u64(8 * at)).collect()
    }
}
