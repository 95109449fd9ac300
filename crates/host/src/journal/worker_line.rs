//! The line of a worker: that it lives, that it moves on, whom it serves, and what it has spent.
//!
//! How: three words, each stored by the worker alone: the lock of `owner.rs`; a number that goes up
//! with each turn and is odd while the worker is awake; the queue pair that is being visited, with
//! the port into which it delivers: a fault is blamed on that one. It stays noted until the next
//! one, or the end of the visit, so that there is one store for a run of packets.
//! Behind them, now and then, what it has counted of itself.
//! Limits: the last visited port may be without fault, so one death says nothing.
//!
//! Layout, in bytes from the start of the line:
//!
//! - 0 owner, u32: a robust futex.
//! - 8 beat, u64: goes up with each turn, odd while the worker is awake.
//! - 16 visited, u64; 0: nothing. Bit 63 is set, the port is in bits 16 to 31, the pair below.
//!   While its packets are delivered into a port, from the first of them on until another port or
//!   the end of the visit, bit 62 is set, and that port is in bits 32 to 47.
//! - 56 effort, u64 each: packets, system calls, wake-ups, time of looks (ns), of those without
//!   finding work (ns), looks that found something, that did not, processor time (ns), time of
//!   sleep (ns).

use std::sync::Arc;

use ringway_switch::PortId;
use ringway_virtq::SharedSlice;

use crate::journal::counts::{Counts, CountsLine, CountsOf};
use crate::journal::owner::OwnerLock;
use crate::journal::{Journal, Unfit, WORKER_LEN};
use crate::worker::effort::Spent;

/// Where the fields of a line are, in bytes.
pub(super) const OWNER_AT: usize = 0;
pub(super) const BEAT_AT: usize = 8;
pub(super) const BUSY_AT: usize = 16;
const SPENT_AT: usize = WORKER_LEN - 8 * Spent::WORDS;
const _: () = assert!(SPENT_AT >= BUSY_AT + 8);

/// A bit that no port has: something is visited.
const IS_BUSY: u64 = 1 << 63;
/// The same of a port that something is delivered into.
const DELIVERS: u64 = 1 << 62;
/// Where the ports are in the word.
const VISITED_SHIFT: u32 = 16;
const INTO_SHIFT: u32 = 32;

/// The port and the queue pair that a worker serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Busy {
    /// The port.
    pub port: PortId,
    /// The number of its queue pair.
    pub pair: u16,
    /// The port that its packets are delivered into, if that has begun.
    pub into: Option<PortId>,
}

impl Busy {
    /// A visit that begins.
    pub(crate) fn of(port: PortId, pair: u16) -> Self {
        Self { port, pair, into: None }
    }

    fn word(self) -> u64 {
        let into = self.into.map_or(0, |into| DELIVERS | u64::from(into.0) << INTO_SHIFT);
        IS_BUSY | into | u64::from(self.port.0) << VISITED_SHIFT | u64::from(self.pair)
    }

    pub(super) fn from_word(word: u64) -> Option<Self> {
        let half = |shift: u32| (word >> shift & 0xffff) as u16;
        let into = (word & DELIVERS != 0).then(|| PortId(half(INTO_SHIFT)));
        let port = PortId(half(VISITED_SHIFT));
        (word & IS_BUSY != 0).then(|| Self { port, pair: half(0), into })
    }

    /// The visit that the data plane before has noted in a worker's line, and not ended; it is
    /// forgotten.
    pub(super) fn take(line: &SharedSlice) -> Option<Self> {
        let busy = Self::from_word(line.load_u64(BUSY_AT));
        line.store_u64(BUSY_AT, 0);
        busy
    }
}

/// Where a visit notes the ports that it delivers into.
#[derive(Debug, Clone, Copy)]
pub(crate) struct VisitNote<'a> {
    line: Option<&'a SharedSlice>,
    /// The word, but for such a port, and what is added with one.
    word: u64,
    delivers: u64,
    shift: u32,
}

impl<'a> VisitNote<'a> {
    /// Of a visit, which is noted from now on.
    pub(crate) fn begin(line: Option<&'a WorkerLine>, visited: Busy) -> Self {
        let note = Self::of(line, Some(visited));
        note.delivers_no_more();
        note
    }

    /// Of a visit that is noted already. `None`: something is delivered that no visit of this
    /// worker brings; then the port is noted as visited.
    pub(crate) fn of(line: Option<&'a WorkerLine>, visited: Option<Busy>) -> Self {
        let (word, delivers, shift) = match visited {
            Some(visited) => (visited.word(), DELIVERS, INTO_SHIFT),
            None => (0, IS_BUSY, VISITED_SHIFT),
        };
        Self { line: line.map(|line| &line.line), word, delivers, shift }
    }

    /// Something is delivered into that port.
    #[inline(always)]
    pub(crate) fn delivers_into(&self, port: PortId) {
        if let Some(line) = self.line {
            line.store_u64(BUSY_AT, self.word | self.delivers | u64::from(port.0) << self.shift);
        }
    }

    /// The visit goes on, or ends, with the visited port alone.
    pub(crate) fn delivers_no_more(&self) {
        if let Some(line) = self.line {
            line.store_u64(BUSY_AT, self.word);
        }
    }
}

/// A worker's own line.
#[derive(Debug)]
pub(crate) struct WorkerLine {
    line: SharedSlice,
    beat: u64,
    number: u16,
    /// The line that each slot's counts are in, and their owner.
    counts: Vec<Option<(CountsOf, CountsLine)>>,
    /// Given back before the journal is unmapped.
    _lock: Option<OwnerLock>,
    pub(crate) journal: Arc<Journal>,
}

impl WorkerLine {
    /// The line of worker `number`, which this thread holds from now on.
    pub(crate) fn take(journal: Arc<Journal>, number: u16) -> Result<Self, Unfit> {
        let mut line = Self::unlocked(journal, number)?;
        line._lock = Some(OwnerLock::take(line.line, OWNER_AT, number)?);
        Ok(line)
    }

    /// The same without holding it.
    pub(crate) fn unlocked(journal: Arc<Journal>, number: u16) -> Result<Self, Unfit> {
        let line = journal.worker_line(number.into()).ok_or(Unfit::NoLine(number))?;
        Ok(Self { line, beat: 0, number, counts: Vec::new(), _lock: None, journal })
    }

    /// A turn begins or goes on.
    pub(crate) fn awake(&mut self) {
        self.beat = self.beat.wrapping_add(2) | 1;
        self.line.store_u64(BEAT_AT, self.beat);
    }

    /// The worker waits until something wakes it.
    pub(crate) fn asleep(&mut self) {
        self.beat = self.beat.wrapping_add(1) & !1;
        self.line.store_u64(BEAT_AT, self.beat);
    }

    /// A visit begins, or ends.
    #[inline]
    pub(crate) fn set_busy(&self, busy: Option<Busy>) {
        self.line.store_u64(BUSY_AT, busy.map_or(0, Busy::word));
    }

    /// Notes what a slot has counted. `Some`: this is the first time, and the data plane before has
    /// counted so much there, which is to be added.
    pub(crate) fn note_counts(
        &mut self,
        slot: usize,
        (port, pair): (PortId, u16),
        counts: &Counts,
    ) -> Option<Counts> {
        if self.counts.len() <= slot {
            self.counts.resize(slot + 1, None);
        }
        let of = CountsOf { worker: self.number, port, pair };
        if let Some((_, line)) = self.counts[slot].filter(|(known, _)| *known == of) {
            self.journal.note_counts(line, counts);
            return None;
        }
        let (line, past) = self.journal.claim_counts(of)?;
        self.counts[slot] = Some((of, line));
        self.journal.note_counts(line, &past.plus(counts));
        Some(past)
    }

    /// Notes the effort that this worker, and those of its number before it, have spent.
    pub(crate) fn note_spent(&self, spent: &Spent) {
        for (at, word) in spent.words().into_iter().enumerate() {
            self.line.store_u64(SPENT_AT + 8 * at, word);
        }
    }

    /// The effort that was noted last.
    pub(crate) fn spent(&self) -> Spent {
        Spent::of_words(std::array::from_fn(|at| self.line.load_u64(SPENT_AT + 8 * at)))
    }

    /// The port is gone.
    pub(crate) fn forget_counts(&mut self, port: PortId) {
        for known in &mut self.counts {
            *known = known.filter(|(of, _)| of.port != port);
        }
        self.journal.forget_counts(self.number, port);
    }
}
