//! The journal: where workers note what the process that comes after them has to know.
//!
//! A supervisor makes it, a sealed file in memory, and gives it to each data plane in turn: the
//! same file in an upgrade, and after a death another one with the pages that were in use
//! (`renewed.rs`). When a data plane is killed, whatever it was doing, the next one finds in it
//! where each ring stands, and which port was being served. docs/supervisor.md tells the story
//! around it.
//!
//! Limits: numbers in it are only believed where they are checked; the order of stores is that of
//! one process that ends, so it is no use after the machine has stopped.
//!
//! # Layout 4
//!
//! All numbers are little-endian. Only what is used takes memory. A file without this head, or of
//! another size, is refused. Each part is laid out in the module that is named with it.
//!
//! - At 0: the head, 64 bytes. 0 `ringwayJ`; 8 layout, u32; 12 workers, u32, at most 64; 16 rings,
//!   u32, at most 65,536; 24 generation, u64, which goes up with each data plane.
//! - At 64: two lines for each worker, 128 bytes (`worker_line.rs`).
//! - Behind: a line for each ring, 64 bytes (`ring_lines.rs`).
//! - Next page: 576 KiB for each ring, for used entries and for what a guest has set
//!   (`ring_lines.rs`).
//! - Next page: learned addresses, a list (`list.rs`) of 64 KiB twice; on the page behind them
//!   multicast groups, a list of 132 KiB twice (`learned.rs`).
//! - Behind: 2,048 keys, u64, and as many lines of counters, 512 bytes each (`counts.rs`).
//! - Next page: 1 MiB and 36 KiB from each worker to each other one, for the packets that the first
//!   has handed over to the second (`memory/ring_words.rs`).
//!
//! # The order of stores
//!
//! Used entries are *kept* once the journal notes how many there are: the next data plane publishes
//! them if this one has not. A packet from guest to guest: copy and header, the receiver's used
//! entries, the receiver's *kept*, the sender's used entry, the sender's *kept*; at the end of the
//! visit receivers publish, then senders. So a kept packet comes through, in whichever instruction
//! the process ended, and at most one packet of each worker is delivered twice
//! ([`Journal::interrupted`]).
//!
//! To a tap packets go at the end of the visit, from the sender's memory: they are kept only then,
//! and may be sent twice (64 at most). To another worker: copy and entry, *staged*, the sender's
//! used entry and *kept*; there the receiver's *kept*, then the entry is marked, or says how many
//! segments have arrived. From a tap: a packet that was just read and is in no ring is lost.
//!
//! # Recovery of a ring
//!
//! A split ring shows the index as published, which is then published again, or the index with what
//! is kept. Of a packed ring the USED flag at the published place says which it is. Anything else:
//! the ring starts anew, as without a journal, and the log says why. Then the ring is looked at
//! once, the guest is called once without being asked whether it wants it, and kicks are armed.

pub(crate) mod counts;
pub(crate) mod learned;
mod list;
pub(crate) mod owner;
mod renewed;
pub(crate) mod ring_lines;
pub(crate) mod watch;
pub(crate) mod worker_line;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr;
use std::sync::Mutex;

use ringway_net::control_record;
use ringway_virtq::{Format, RingRecord, SIZE_MAX, SharedSlice};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

use crate::journal::counts::{COUNTS_LEN, KEY_LEN, LINES_MAX};
use crate::journal::learned::{ADDRESS_WORDS_MAX, GROUP_WORDS_MAX};
use crate::journal::list::List;
use crate::journal::ring_lines::Places;
use crate::journal::worker_line::Busy;
use crate::memory::Span;
use crate::memory::ring_words::{RING_LEN, RingWords};

/// The number that it begins with.
const MAGIC: u64 = u64::from_le_bytes(*b"ringwayJ");
/// The version of the layout that is described above.
pub const JOURNAL_LAYOUT: u16 = 4;
/// Most workers, and most rings.
const WORKERS_MAX: u32 = 64;
const RINGS_MAX: u32 = 1 << 16;

/// Bytes of the head and of each ring's line, and of each worker's.
const LINE: usize = 64;
const WORKER_LEN: usize = 2 * LINE;
/// Where the fields of the head are, in bytes.
const LAYOUT_AT: usize = 8;
const WORKERS_AT: usize = 12;
const RINGS_AT: usize = 16;
const GENERATION_AT: usize = 24;
/// Bytes for the used entries of one ring: whole pages, so that unused ones take no memory.
const ENTRIES_LEN: usize = RingRecord::entries_len(Format::Packed, SIZE_MAX);
/// Bytes behind them, twice, for what a guest has set.
const CONTROL_LEN: usize = control_record::COMMANDS_LEN_MAX;
const ROOM: usize = ENTRIES_LEN + 2 * CONTROL_LEN;
const PAGE: usize = 4096;

/// Why a file cannot be used as a journal.
#[derive(Debug, thiserror::Error)]
pub enum Unfit {
    /// It does not begin as one, or has not the size that it says.
    #[error("the file is not a journal")]
    NoJournal,
    /// Of a version that is not known here.
    #[error("the journal has layout {0}, {JOURNAL_LAYOUT} is known")]
    Layout(u32),
    /// It may become shorter while it is used.
    #[error("the journal is not sealed")]
    Unsealed,
    /// Another process, which has not ended, uses it.
    #[error("worker {0} of another data plane still holds its line of the journal")]
    Held(u16),
    /// Too few lines.
    #[error("the journal has no line for worker {0}")]
    NoLine(u16),
    /// The operating system refused something.
    #[error("journal: {0}")]
    Os(#[from] io::Error),
}

impl From<rustix::io::Errno> for Unfit {
    fn from(error: rustix::io::Errno) -> Self {
        Self::Os(error.into())
    }
}

/// How much is in a journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sizes {
    workers: usize,
    rings: usize,
}

impl Sizes {
    fn new(workers: u32, rings: u32) -> Option<Self> {
        let is_possible = (1..=WORKERS_MAX).contains(&workers) && (1..=RINGS_MAX).contains(&rings);
        let sizes = Self { workers: workers.try_into().ok()?, rings: rings.try_into().ok()? };
        is_possible.then_some(sizes)
    }

    fn worker_at(number: usize) -> usize {
        LINE + WORKER_LEN * number
    }

    fn ring_at(self, number: usize) -> usize {
        Self::worker_at(self.workers) + LINE * number
    }

    fn entries_at(self, number: usize) -> usize {
        self.ring_at(self.rings).next_multiple_of(PAGE) + ROOM * number
    }

    fn addresses_at(self) -> usize {
        self.entries_at(self.rings)
    }

    fn groups_at(self) -> usize {
        self.addresses_at() + List::len(ADDRESS_WORDS_MAX)
    }

    /// Keys, and the lines behind them.
    fn counts_at(self) -> usize {
        self.groups_at() + List::len(GROUP_WORDS_MAX)
    }

    /// The ring from a worker to another one; there is none to itself.
    fn hand_over_at(self, from: usize, to: usize) -> usize {
        let before = from * (self.workers - 1) + to - usize::from(to > from);
        let counts_end = self.counts_at() + (KEY_LEN + COUNTS_LEN) * LINES_MAX;
        counts_end.next_multiple_of(PAGE) + RING_LEN * before
    }

    fn len(self) -> usize {
        self.hand_over_at(self.workers, 0)
    }

    /// Each worker and each other one.
    fn worker_pairs(self) -> impl Iterator<Item = (usize, usize)> {
        let all =
            (0..self.workers).flat_map(move |from| (0..self.workers).map(move |to| (from, to)));
        all.filter(|(from, to)| from != to)
    }

    /// The beginning of a file of these sizes.
    fn head(self) -> [u8; GENERATION_AT] {
        let mut head = [0; GENERATION_AT];
        head[..LAYOUT_AT].copy_from_slice(&MAGIC.to_le_bytes());
        let words = [
            (LAYOUT_AT, JOURNAL_LAYOUT.into()),
            (WORKERS_AT, self.workers as u64),
            (RINGS_AT, self.rings as u64),
        ];
        for (at, word) in words {
            head[at..at + 4].copy_from_slice(&word.to_le_bytes()[..4]);
        }
        head
    }

    /// The sizes that the head of a file says, if it is the head of a journal.
    fn of(file: impl AsFd) -> Result<Self, Unfit> {
        let mut head = [0; LINE];
        if rustix::io::pread(&file, &mut head, 0)? < LINE {
            return Err(Unfit::NoJournal);
        }
        let word = |at: usize| {
            head[at..].first_chunk().map_or(0, |bytes: &[u8; 4]| u32::from_le_bytes(*bytes))
        };
        if head[..LAYOUT_AT] != MAGIC.to_le_bytes() {
            return Err(Unfit::NoJournal);
        }
        if word(LAYOUT_AT) != u32::from(JOURNAL_LAYOUT) {
            return Err(Unfit::Layout(word(LAYOUT_AT)));
        }
        let sizes = Self::new(word(WORKERS_AT), word(RINGS_AT)).ok_or(Unfit::NoJournal)?;
        sizes.checked(file)
    }

    /// Whether a file has the length of a journal of these sizes, and keeps it.
    fn checked(self, file: impl AsFd) -> Result<Self, Unfit> {
        if u64::try_from(rustix::fs::fstat(&file)?.st_size).ok() != Some(self.len() as u64) {
            return Err(Unfit::NoJournal);
        }
        match rustix::fs::fcntl_get_seals(&file)?.contains(SealFlags::SHRINK) {
            true => Ok(self),
            false => Err(Unfit::Unsealed),
        }
    }
}

/// Pages of a file in memory, mapped.
#[derive(Debug)]
pub(crate) struct Mapped {
    memory: SharedSlice,
    _span: Span,
}

impl Mapped {
    /// The first `len` bytes of a file that was checked to have them.
    pub(crate) fn new(file: impl AsFd, len: usize) -> io::Result<Self> {
        let (flags, protection) =
            (MapFlags::SHARED | MapFlags::NORESERVE, ProtFlags::READ | ProtFlags::WRITE);
        let len = len.next_multiple_of(PAGE);
        // SAFETY: a new mapping at an address of the kernel's choice disturbs no other.
        let base = unsafe { rustix::mm::mmap(ptr::null_mut(), len, protection, flags, file, 0)? };
        let span = Span { start: base as usize, len };
        // SAFETY: readable and writable, also in the future, because the file is sealed; unmapped
        // with this value, which those outlive who are lent the slice. No reference is ever made.
        let memory = unsafe { SharedSlice::new(base.cast(), len) };
        Ok(Self { memory, _span: span })
    }

    pub(crate) fn part(&self, at: usize, len: usize) -> SharedSlice {
        self.memory.slice(at, len).expect("inside, as its sizes say")
    }
}

/// The journal as a data plane has it.
#[derive(Debug)]
pub struct Journal {
    sizes: Sizes,
    mapped: Mapped,
    /// Of this data plane: one more than that of the one before.
    generation: u64,
    /// Workers that were in the midst of a visit when the data plane before ended.
    interrupted: usize,
    /// While counters get a line.
    claiming: Mutex<()>,
    places: Mutex<Places>,
}

impl Journal {
    /// Makes a journal for so many workers and rings: a sealed file in memory.
    ///
    /// # Errors
    /// From the operating system, or no such journal is possible.
    pub fn create(workers: u16, rings: u32) -> io::Result<OwnedFd> {
        let impossible = || io::Error::other("no journal can have so many workers or rings");
        Self::with(Sizes::new(workers.into(), rings).ok_or_else(impossible)?)
    }

    fn with(sizes: Sizes) -> io::Result<OwnedFd> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("ringway-journal", flags)?;
        rustix::fs::ftruncate(&file, sizes.len() as u64)?;
        if rustix::io::pwrite(&file, &sizes.head(), 0)? < GENERATION_AT {
            return Err(io::Error::other("the head of a new journal was cut"));
        }
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok(file)
    }

    /// Takes over a journal. The data plane before must have ended, or have said that it uses it no
    /// more.
    ///
    /// # Errors
    /// See [`Unfit`]: then it is of no use, and all rings start anew.
    pub fn open(file: impl AsFd) -> Result<Self, Unfit> {
        let sizes = Sizes::of(&file)?;
        let mapped = Mapped::new(&file, sizes.len())?;
        let generation = mapped.memory.load_u64(GENERATION_AT).wrapping_add(1);
        mapped.memory.store_u64(GENERATION_AT, generation);
        let (claiming, places) = (Mutex::default(), Mutex::default());
        let mut journal = Self { sizes, mapped, generation, interrupted: 0, claiming, places };
        journal.find_lines();
        let lines = (0..sizes.workers).filter_map(|at| journal.worker_line(at));
        journal.interrupted = lines.filter_map(|line| Busy::take(&line)).count();
        let hand_overs = sizes.worker_pairs().filter_map(|(a, b)| journal.hand_over_ring(a, b));
        hand_overs.for_each(|memory| RingWords::new(memory).recover());
        Ok(journal)
    }

    /// How many workers were in the midst of a visit when the data plane before ended. Each may
    /// have delivered one packet that comes again.
    pub fn interrupted(&self) -> usize {
        self.interrupted
    }

    fn worker_line(&self, number: usize) -> Option<SharedSlice> {
        let is_there = number < self.sizes.workers;
        is_there.then(|| self.mapped.part(Sizes::worker_at(number), WORKER_LEN))
    }

    fn ring_line(&self, number: usize) -> SharedSlice {
        self.mapped.part(self.sizes.ring_at(number), LINE)
    }

    fn ring_entries(&self, number: usize) -> SharedSlice {
        self.mapped.part(self.sizes.entries_at(number), ENTRIES_LEN)
    }

    fn addresses_list(&self) -> List {
        let at = self.sizes.addresses_at();
        List { memory: self.mapped.part(at, List::len(ADDRESS_WORDS_MAX)) }
    }

    fn groups_list(&self) -> List {
        List { memory: self.mapped.part(self.sizes.groups_at(), List::len(GROUP_WORDS_MAX)) }
    }

    fn counts_key(&self, line: usize) -> u64 {
        self.mapped.part(self.sizes.counts_at() + KEY_LEN * line, KEY_LEN).load_u64(0)
    }

    fn set_counts_key(&self, line: usize, key: u64) {
        self.mapped.part(self.sizes.counts_at() + KEY_LEN * line, KEY_LEN).store_u64(0, key);
    }

    fn counts_line(&self, line: usize) -> SharedSlice {
        let behind = KEY_LEN * LINES_MAX + COUNTS_LEN * line;
        self.mapped.part(self.sizes.counts_at() + behind, COUNTS_LEN)
    }

    /// The ring from a worker to another one, if there are such.
    pub(crate) fn hand_over_ring(&self, from: usize, to: usize) -> Option<SharedSlice> {
        let is_there = from.max(to) < self.sizes.workers && from != to;
        is_there.then(|| self.mapped.part(self.sizes.hand_over_at(from, to), RING_LEN))
    }

    /// One of the two places for what a guest has set.
    fn ring_control(&self, number: usize, second: bool) -> SharedSlice {
        let behind = ENTRIES_LEN + if second { CONTROL_LEN } else { 0 };
        self.mapped.part(self.sizes.entries_at(number) + behind, CONTROL_LEN)
    }
}

#[cfg(test)]
mod tests;
