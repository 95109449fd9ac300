//! The memory of a ring between two workers: of this process, or in the journal, where the next
//! data plane finds what was handed over and not delivered.

use std::ops::Deref;
use std::sync::Arc;

use crate::journal::Journal;
use crate::memory::ring_words::{APART, RING_LEN, RingWords};
use crate::memory::scratch::Scratch;

/// The memory of a ring, which is there for as long as this value is.
#[derive(Debug, Clone)]
pub(crate) struct RingMemory {
    words: RingWords,
    _kept: Kept,
}

/// The allocation that the memory is a part of.
#[derive(Debug, Clone)]
#[expect(dead_code, reason = "kept so that the memory is")]
enum Kept {
    Own(Arc<Scratch>),
    Journal(Arc<Journal>),
}

impl RingMemory {
    /// An empty ring of this process.
    pub(crate) fn own() -> Self {
        let scratch = Scratch::new(RING_LEN + APART);
        let start = scratch.bytes().as_ptr().align_offset(APART);
        let memory = scratch.bytes().slice(start, RING_LEN).expect("longer by as much");
        Self { words: RingWords::new(memory), _kept: Kept::Own(Arc::new(scratch)) }
    }

    /// The ring from a worker to another one, in a journal that has one.
    pub(crate) fn in_journal(journal: &Arc<Journal>, from: u16, to: u16) -> Option<Self> {
        let memory = journal.hand_over_ring(from.into(), to.into())?;
        Some(Self { words: RingWords::new(memory), _kept: Kept::Journal(journal.clone()) })
    }
}

impl Deref for RingMemory {
    type Target = RingWords;

    fn deref(&self) -> &RingWords {
        &self.words
    }
}
