//! The value last stored in each entry of a ring, so that the same is not stored again.
//!
//! How: a private copy of a part that only this side writes. A store takes the cache line away from
//! the other side even when it changes nothing. Buffers that come back in the order in which they
//! went get the same entries lap after lap; so these lines stay with both sides, and what travels
//! is indexes and packets.
//!
//! Limits: not for packed rings, whose flags change with every lap.

use alloc::boxed::Box;
use alloc::vec;

/// The last content of each used entry: id and length.
#[derive(Debug)]
pub(crate) struct Written(Box<[[u32; 2]]>);

impl Written {
    /// All entries have this content, or it is one that is never stored.
    pub fn new(entries: u16, content: [u32; 2]) -> Self {
        Self(vec![content; usize::from(entries)].into())
    }

    /// The content of that entry.
    pub fn entry(&self, entry: usize) -> [u32; 2] {
        self.0[entry]
    }

    /// Whether `content` is not in that entry yet. From now on it counts as stored.
    #[inline]
    pub fn is_new(&mut self, entry: usize, content: [u32; 2]) -> bool {
        let last = &mut self.0[entry];
        let is_new = *last != content;
        if is_new {
            *last = content;
        }
        is_new
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn only_what_differs_is_new() {
        let mut written = Written::new(2, [0, 0]);
        assert!(!written.is_new(1, [0, 0]));
        assert!(written.is_new(1, [0, 5]));
        assert!(!written.is_new(1, [0, 5]));
        assert!(!written.is_new(0, [0, 0]));
        assert!(written.is_new(1, [0, 0]));
    }
}
