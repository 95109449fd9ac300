//! The record of a ring under the model checker: the same as in `ring_record.rs`, private.
//!
//! How: only the device touches it, so its words are no part of what is modelled. Limits: it is
//! never given a place.

use alloc::vec;
use alloc::vec::Vec;
use core::cell::Cell;

use crate::{Format, SharedSlice};

#[derive(Debug)]
#[allow(missing_docs, reason = "documented in ring_record.rs")]
pub struct RingRecord {
    word: Cell<[u32; 2]>,
    entries: Vec<Cell<(u64, u32)>>,
}

#[allow(missing_docs, reason = "documented in ring_record.rs")]
impl RingRecord {
    pub fn at(_word: SharedSlice, _entries: SharedSlice) -> Self {
        unreachable!("a model has no record that outlives it")
    }

    pub(crate) fn own(_format: Format, size: u16) -> Self {
        Self { word: Cell::default(), entries: vec![Cell::default(); usize::from(size)] }
    }

    pub(crate) fn load(&self) -> [u32; 2] {
        self.word.get()
    }

    pub(crate) fn store(&self, word: [u32; 2]) {
        self.word.set(word);
    }

    pub(crate) fn store_kept(&self, kept: u32) {
        self.word.set([self.word.get()[0], kept]);
    }

    pub(crate) fn hold(&mut self) {}

    pub(crate) fn release(&mut self) {}

    pub(crate) fn entry(&self, at: usize) -> (u64, u32) {
        self.entries[at].get()
    }

    pub(crate) fn entries(&self, from: usize, to: usize) -> impl Iterator<Item = (u64, u32)> {
        self.entries[from..to].iter().map(Cell::get)
    }

    pub(crate) fn store_entry(&self, at: usize, word: u64, step: u32) {
        self.entries[at].set((word, step));
    }

    pub(crate) fn room(&self) -> usize {
        self.entries.len()
    }
}
