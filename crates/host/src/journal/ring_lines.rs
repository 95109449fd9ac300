//! The line of each ring: whose record it is, and where its device stands.
//!
//! How: a line belongs to one queue of one port. It is believed only if also the front-end's
//! connection and the setup of the ring are the same, and if it was noted by an earlier data plane:
//! a ring that starts again in the same one starts where it is told. Limits: a line belongs to its
//! queue until the journal ends.
//!
//! Layout, in bytes from the start of the line, u64 each:
//!
//! - 0 word. Of a split ring the used index as published, and with what is kept (u32 each). Of a
//!   packed one the place as published (its offset, and above it the flags with which an entry
//!   becomes available on that lap), and how many entries are kept.
//! - 8 queue: port, pair and queue; 0: the line is free.
//! - 16 setup: a hash of size, areas, format and options.
//! - 24 connection of the front-end, the same in a replay; 32 generation.
//! - 40 of a controlq: bit 63 says which of two places holds what the guest has set, and below it
//!   is how long that is.
//!
//! The room of each ring: used entries of a packed ring, 16 bytes each (0 length, u32; 4 id, u16;
//! 6 flags, u16, WRITE or 0; 8 descriptors, u16; 10 whether the driver did not make it writable,
//! u16). Behind them are two places of 32 KiB for what the guest has set through its controlq, as
//! commands that would set it, each with its length (u16) in front.

use std::collections::BTreeMap;
use std::sync::atomic::{Ordering, compiler_fence};
use std::sync::{MutexGuard, PoisonError};

use ringway_device::QueueId;
use ringway_switch::PortId;
use ringway_virtq::{Format, QueueSetup, RingRecord};

use crate::journal::Journal;

/// Where the fields of a line are, in bytes.
const WORD_AT: usize = 0;
/// The queue that has the line; 0: it is free.
pub(super) const QUEUE_AT: usize = 8;
const SETUP_AT: usize = 16;
const LINK_AT: usize = 24;
const GENERATION_AT: usize = 32;
/// Of a controlq: which of its two places holds what the guest has set (bit 63), and how long that
/// is, in bytes.
const CONTROL_AT: usize = 40;
const WHICH: u64 = 1 << 63;

/// The name of a ring, which has to be the same for its record to be believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RingName {
    pub(crate) port: PortId,
    pub(crate) queue: QueueId,
    /// The connection of its front-end.
    pub(crate) link: u32,
    pub(crate) format: Format,
}

/// The record that there is of a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Past {
    /// Nothing.
    None,
    /// Where the data plane before has left it.
    Left,
    /// The record of another ring of that queue.
    OtherRing,
}

/// A ring that runs and is noted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NotedRing {
    pub(crate) line: RingLine,
    pub(crate) name: RingName,
    pub(crate) setup: QueueSetup,
}

/// A line that a ring has got.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) line: RingLine,
    pub(crate) past: Past,
}

/// The number of a ring's line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RingLine(usize);

/// The lines by the queue that each belongs to, read once: only this process changes them.
#[derive(Debug, Default)]
pub(super) struct Places {
    of_queue: BTreeMap<u64, usize>,
    free: Vec<usize>,
}

impl Journal {
    /// Reads where each queue's line is.
    pub(super) fn find_lines(&self) {
        let mut places = self.places();
        // The first free line is taken first.
        for line in (0..self.sizes.rings).rev() {
            match self.ring_line(line).load_u64(QUEUE_AT) {
                0 => places.free.push(line),
                queue => _ = places.of_queue.insert(queue, line),
            }
        }
    }

    /// The line of a ring that is to start; `None`: all are taken. Unless its past is to be
    /// believed, nothing is in it until [`note_ring`](Self::note_ring).
    pub(crate) fn claim_ring(&self, name: &RingName, setup: &QueueSetup) -> Option<Claim> {
        let queue = queue_word(name);
        let mut places = self.places();
        let own = places.of_queue.get(&queue).copied();
        let line = own.or_else(|| places.free.pop())?;
        places.of_queue.insert(queue, line);
        let words = self.ring_line(line);
        let past = own.map_or(Past::None, |line| self.past_of(line, name, setup));
        if past != Past::Left {
            words.store_u64(GENERATION_AT, self.generation);
            words.store_u64(LINK_AT, u64::MAX);
            words.store_u64(CONTROL_AT, 0);
            words.store_u64(QUEUE_AT, queue);
        }
        Some(Claim { line: RingLine(line), past })
    }

    /// Whether the data plane before has left a ring there.
    pub(crate) fn is_left(&self, name: &RingName, setup: &QueueSetup) -> bool {
        let line = self.places().of_queue.get(&queue_word(name)).copied();
        line.is_some_and(|line| self.past_of(line, name, setup) == Past::Left)
    }

    /// Also keeps others from claiming one.
    fn places(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn past_of(&self, line: usize, name: &RingName, setup: &QueueSetup) -> Past {
        let words = self.ring_line(line);
        let is_same = words.load_u64(LINK_AT) == u64::from(name.link)
            && words.load_u64(SETUP_AT) == setup_word(name, setup);
        match words.load_u64(GENERATION_AT) == self.generation {
            true => Past::None,
            false if is_same => Past::Left,
            false => Past::OtherRing,
        }
    }

    /// The record of a ring, for its device.
    pub(crate) fn record(&self, RingLine(line): RingLine, setup: &QueueSetup) -> RingRecord {
        let word = self.ring_line(line).slice(WORD_AT, RingRecord::WORD_LEN);
        // Of a split ring they are not used, and so take no memory.
        let len = RingRecord::entries_len(Format::Packed, setup.size.clamp(1, 32768));
        let entries = self.ring_entries(line).slice(0, len);
        RingRecord::at(word.expect("in its line"), entries.expect("room for any queue"))
    }

    /// A ring runs with this record, or goes on with another setup.
    pub(crate) fn note_ring(&self, NotedRing { line, name, setup }: &NotedRing) {
        let words = self.ring_line(line.0);
        words.store_u64(SETUP_AT, setup_word(name, setup));
        words.store_u64(LINK_AT, name.link.into());
        words.store_u64(GENERATION_AT, self.generation);
    }

    /// Notes the settings of the guest through the controlq that has this line, as commands. They
    /// are in place before they take the place of what was there.
    pub(crate) fn note_control(&self, RingLine(line): RingLine, commands: &[u8]) {
        let words = self.ring_line(line);
        let other = !words.load_u64(CONTROL_AT) & WHICH;
        let Some(place) = self.ring_control(line, other != 0).slice(0, commands.len()) else {
            return;
        };
        place.write(0, commands);
        // PAIRS WITH: the end of this process
        compiler_fence(Ordering::Release);
        words.store_u64(CONTROL_AT, other | commands.len() as u64);
        // PAIRS WITH: the end of this process
        compiler_fence(Ordering::SeqCst);
    }

    /// The commands that were noted there; none if the note cannot be right.
    pub(crate) fn control(&self, RingLine(line): RingLine) -> Vec<u8> {
        let word = self.ring_line(line).load_u64(CONTROL_AT);
        let len = usize::try_from(word & !WHICH).unwrap_or(usize::MAX);
        let place = self.ring_control(line, word & WHICH != 0);
        let mut commands = vec![0; if len <= place.len() { len } else { 0 }];
        place.read(0, &mut commands);
        commands
    }

    /// All rings that ran have started again, and all ports are there: what is left of the data
    /// plane before counts no more.
    pub fn settle(&self) {
        self.settle_counts();
        let mut places = self.places();
        let Places { of_queue, free } = &mut *places;
        of_queue.retain(|_, &mut line| {
            let words = self.ring_line(line);
            let stays = words.load_u64(GENERATION_AT) == self.generation;
            if !stays {
                words.store_u64(QUEUE_AT, 0);
                free.push(line);
            }
            stays
        });
    }
}

/// Port, pair and queue, never 0.
fn queue_word(name: &RingName) -> u64 {
    let QueueId { pair, queue } = name.queue;
    u64::from(name.port.0) << 32 | u64::from(pair) << 16 | (queue as u64 + 1)
}

/// A hash of all that makes it the same ring.
fn setup_word(name: &RingName, setup: &QueueSetup) -> u64 {
    let QueueSetup { size, areas, options, .. } = setup;
    let flags = [options.event_idx, options.indirect, options.in_order, options.notify_on_empty];
    let flags = flags.iter().fold(0, |bits, flag| bits << 1 | u64::from(*flag));
    let format = u64::from(name.format == Format::Packed);
    let place = [areas.descriptor, areas.driver, areas.device];
    let words = [u64::from(*size), flags, format].into_iter().chain(place);
    words.flat_map(u64::to_le_bytes).fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        // FNV-1a: another binary finds the same.
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
