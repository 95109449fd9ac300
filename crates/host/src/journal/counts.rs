//! What workers have counted, for the data plane that comes after this one.
//!
//! How: a key for each slot of each worker says whose a line of counts is. A worker stores into its
//! own lines once a second, and when it is asked for its counters: so what was told never goes
//! back, and what was counted since is lost with the process. Limits: [`LINES_MAX`] lines; slots
//! that find none begin anew with each data plane.

use std::sync::PoisonError;

use ringway_net::{Counters, DropReason};
use ringway_switch::PortId;

use crate::journal::Journal;

/// Slots of all workers that are noted.
pub(super) const LINES_MAX: usize = 2048;
pub(super) const KEY_LEN: usize = 8;

/// Bytes of a line: words of both directions.
pub(super) const COUNTS_LEN: usize = 512;
/// Packets, bytes, kicks, calls, and what was dropped by reason.
const WORDS: usize = 4 + DropReason::ALL.len();
const _: () = assert!(2 * WORDS * 8 <= COUNTS_LEN);

/// A key is in use; above the slot are the lowest bits of the generation that has claimed it last.
const IN_USE: u64 = 1 << 63;
const SLOT_BITS: u32 = 48;
const SLOT: u64 = (1 << SLOT_BITS) - 1;

/// A queue pair of a port as one worker counts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CountsOf {
    pub(crate) worker: u16,
    pub(crate) port: PortId,
    pub(crate) pair: u16,
}

impl CountsOf {
    fn word(self) -> u64 {
        u64::from(self.worker) << 32 | u64::from(self.port.0) << 16 | u64::from(self.pair)
    }
}

/// The number of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CountsLine(usize);

impl Journal {
    /// The line of a slot, and what data planes before this one have counted there. `None`: all are
    /// taken.
    pub(crate) fn claim_counts(&self, of: CountsOf) -> Option<(CountsLine, [Counters; 2])> {
        let _one_at_a_time = self.claiming.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it = |key: u64| key & IN_USE != 0 && key & SLOT == of.word();
        let own = (0..LINES_MAX).find(|at| is_it(self.counts_key(*at)));
        let line = own.or_else(|| (0..LINES_MAX).find(|at| self.counts_key(*at) == 0))?;
        let is_left = own.is_some_and(|at| !self.is_claimed(self.counts_key(at)));
        let past = if is_left { self.counts(line) } else { Default::default() };
        if own.is_none() {
            self.note_counts(CountsLine(line), &past);
        }
        self.set_counts_key(line, IN_USE | self.generation_bits() | of.word());
        Some((CountsLine(line), past))
    }

    /// What was counted in both directions; not how many packets were long.
    pub(crate) fn note_counts(&self, CountsLine(line): CountsLine, counts: &[Counters; 2]) {
        let words = self.counts_line(line);
        for (at, word) in counts.iter().flat_map(words_of).enumerate() {
            words.store_u64(8 * at, word);
        }
    }

    fn counts(&self, line: usize) -> [Counters; 2] {
        let words = self.counts_line(line);
        std::array::from_fn(|direction| {
            let word = |at: usize| words.load_u64(8 * (direction * WORDS + at));
            let drops = std::array::from_fn(|reason| word(4 + reason));
            let [packets, bytes, kicks, calls] = [0, 1, 2, 3].map(word);
            Counters { packets, bytes, kicks, calls, long_packets: 0, drops }
        })
    }

    /// The port is gone: another one of its number begins anew.
    pub(crate) fn forget_counts(&self, worker: u16, port: PortId) {
        let gone = CountsOf { worker, port, pair: 0 }.word() >> 16;
        self.remove_counts(|key| (key & SLOT) >> 16 == gone);
    }

    /// All ports are there again: what is left of others counts no more.
    pub(super) fn settle_counts(&self) {
        self.remove_counts(|key| !self.is_claimed(key));
    }

    fn remove_counts(&self, is_gone: impl Fn(u64) -> bool) {
        let _one_at_a_time = self.claiming.lock().unwrap_or_else(PoisonError::into_inner);
        for line in 0..LINES_MAX {
            let key = self.counts_key(line);
            if key != 0 && is_gone(key) {
                self.set_counts_key(line, 0);
            }
        }
    }

    fn generation_bits(&self) -> u64 {
        self.generation << SLOT_BITS & !IN_USE
    }

    fn is_claimed(&self, key: u64) -> bool {
        key & !SLOT & !IN_USE == self.generation_bits()
    }
}

fn words_of(counters: &Counters) -> impl Iterator<Item = u64> {
    let Counters { packets, bytes, kicks, calls, drops, .. } = *counters;
    [packets, bytes, kicks, calls].into_iter().chain(drops)
}
