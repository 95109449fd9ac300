//! The counts of workers, for the data plane that comes after this one.
//!
//! How: a key for each slot of each worker says whose a line of counts is. A worker stores into its
//! own lines once a second, and when it is asked for its counters: so what was told never goes
//! back, and what was counted since is lost with the process. Limits: [`LINES_MAX`] lines; slots
//! that find none begin anew with each data plane.
//!
//! Layout of a key: bit 63 is set, then 15 bits of the generation, worker, port and pair (16 bits
//! each); 0: its line is free. Of a line, u64 each: packets, bytes, kicks, calls and 14 kinds of
//! drops, into the end and out of it; kicks and calls of the controlq, refused commands, moved
//! addresses, and 10 kinds of packets that a router has refused.

use std::sync::PoisonError;

use ringway_nat::Refusal;
use ringway_net::{Counters, DropReason};
use ringway_switch::PortId;

use crate::journal::Journal;

/// Slots of all workers that are noted.
pub(super) const LINES_MAX: usize = 2048;
pub(super) const KEY_LEN: usize = 8;

/// Bytes of a line.
pub(super) const COUNTS_LEN: usize = 512;
/// Of each direction: packets, bytes, kicks, calls, and what was dropped by reason.
const WAY_WORDS: usize = 4 + DropReason::ALL.len();
/// Behind them: the controlq's kicks and calls, refused commands, moved addresses, and what a
/// router has refused by reason.
const OTHER_WORDS: usize = 4 + Refusal::ALL.len();
const WORDS: usize = 2 * WAY_WORDS + OTHER_WORDS;
const _: () = assert!(WORDS * 8 <= COUNTS_LEN);

/// Most that a data plane before can have counted. So much more is never counted.
const PAST_MAX: u64 = 1 << 60;

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

/// The counts of one worker at one queue pair of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Counts {
    /// Into the end and out of it; not how many packets were long.
    pub(crate) ways: [Counters; 2],
    /// Kicks and calls of the controlq.
    pub(crate) control: [u64; 2],
    /// Commands of the guest that were answered with an error.
    pub(crate) refused_commands: u64,
    /// Addresses that have moved to the port; of its first pair.
    pub(crate) moved_addresses: u64,
    /// Packets that a router has refused, by reason.
    pub(crate) nat_refused: [u64; Refusal::ALL.len()],
}

impl Counts {
    /// The sum of both.
    pub(crate) fn plus(&self, other: &Self) -> Self {
        let (mine, theirs) = (self.words(), other.words());
        Self::of_words(&std::array::from_fn(|at| mine[at].wrapping_add(theirs[at])))
    }

    fn words(&self) -> [u64; WORDS] {
        let mut words = [0; WORDS];
        let (ways, others) = words.split_at_mut(2 * WAY_WORDS);
        for (words, counters) in ways.chunks_mut(WAY_WORDS).zip(&self.ways) {
            let Counters { packets, bytes, kicks, calls, drops, .. } = counters;
            words[..4].copy_from_slice(&[*packets, *bytes, *kicks, *calls]);
            words[4..].copy_from_slice(drops);
        }
        let [kicks, calls] = self.control;
        others[..4].copy_from_slice(&[kicks, calls, self.refused_commands, self.moved_addresses]);
        others[4..].copy_from_slice(&self.nat_refused);
        words
    }

    fn of_words(words: &[u64; WORDS]) -> Self {
        let way = |at: usize| {
            let drops = std::array::from_fn(|reason| words[at + 4 + reason]);
            let [packets, bytes, kicks, calls] = std::array::from_fn(|word| words[at + word]);
            Counters { packets, bytes, kicks, calls, long_packets: 0, drops }
        };
        let other = |at: usize| words[2 * WAY_WORDS + at];
        Self {
            ways: [way(0), way(WAY_WORDS)],
            control: [other(0), other(1)],
            refused_commands: other(2),
            moved_addresses: other(3),
            nat_refused: std::array::from_fn(|reason| other(4 + reason)),
        }
    }
}

/// The number of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CountsLine(usize);

impl Journal {
    /// The line of a slot, and what data planes before this one have counted there. `None`: all are
    /// taken.
    pub(crate) fn claim_counts(&self, of: CountsOf) -> Option<(CountsLine, Counts)> {
        let _one_at_a_time = self.claiming.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it = |key: u64| key & IN_USE != 0 && key & SLOT == of.word();
        let own = (0..LINES_MAX).find(|at| is_it(self.counts_key(*at)));
        let line = own.or_else(|| (0..LINES_MAX).find(|at| self.counts_key(*at) == 0))?;
        let is_left = own.is_some_and(|at| !self.is_claimed(self.counts_key(at)));
        let past = if is_left { self.counts(line) } else { Counts::default() };
        if own.is_none() {
            self.note_counts(CountsLine(line), &past);
        }
        self.set_counts_key(line, IN_USE | self.generation_bits() | of.word());
        Some((CountsLine(line), past))
    }

    /// Notes the counts in that line.
    pub(crate) fn note_counts(&self, CountsLine(line): CountsLine, counts: &Counts) {
        let words = self.counts_line(line);
        for (at, word) in counts.words().into_iter().enumerate() {
            words.store_u64(8 * at, word);
        }
    }

    fn counts(&self, line: usize) -> Counts {
        let words = self.counts_line(line);
        Counts::of_words(&std::array::from_fn(|at| words.load_u64(8 * at).min(PAST_MAX)))
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
