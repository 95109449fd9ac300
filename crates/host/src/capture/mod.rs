//! Captures: copies of packets, on their way through the workers, for another process.
//!
//! Theory of operation: a file in memory has a ring for each worker. The supervisor makes it and
//! gives it to the data plane and to the process that asked. A worker copies what passes the filter
//! into its own ring, and never waits: without room it counts. The reader takes the records out,
//! and gives back the room.
//!
//! Neither side believes the other: the worker believes no count that would be more than the ring,
//! the reader no length that would be outside. Limits: [`RING_LEN`] bytes for each worker.

pub(crate) mod observers;
mod options;
mod reader;
mod record;
mod sampler;
mod writer;

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use ringway_virtq::SharedSlice;
use rustix::fs::{MemfdFlags, SealFlags};

use crate::journal::Mapped;

pub use observers::CAPTURES_MAX;
pub use options::CaptureOptions;
pub use reader::{CaptureReader, Impossible};
pub use record::{CaptureDirection, CaptureOutput, CaptureRecord, DroppedBy};
pub(crate) use writer::CaptureWriter;

/// The number that a file of captures begins with.
const MAGIC: u64 = u64::from_le_bytes(*b"ringwayC");
/// How many rings there are, in the head.
const RINGS_AT: usize = 8;
/// Most rings: as many as there can be workers, and more.
const RINGS_MAX: u32 = 1024;
const PAGE: usize = 4096;

/// Bytes of records that a ring holds.
pub const RING_LEN: usize = 4 << 20;

/// Where the counts of a ring are, in its first page. The worker writes the first two, the reader
/// the last one.
const WRITTEN_AT: usize = 0;
const LOST_AT: usize = 8;
const READ_AT: usize = 128;

/// A file of captures, mapped.
#[derive(Debug)]
pub struct CaptureFile {
    mapped: Mapped,
    rings: usize,
}

/// One ring of it.
#[derive(Debug, Clone, Copy)]
struct RingMemory {
    counts: SharedSlice,
    records: SharedSlice,
}

impl CaptureFile {
    /// Makes a file for the captures of so many workers, and seals it.
    ///
    /// # Errors
    /// From the operating system.
    pub fn create(workers: u16) -> io::Result<OwnedFd> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("ringway-capture", flags)?;
        rustix::fs::ftruncate(&file, len_for(workers.into()) as u64)?;
        let mut head = [0; RINGS_AT + 4];
        head[..RINGS_AT].copy_from_slice(&MAGIC.to_le_bytes());
        head[RINGS_AT..].copy_from_slice(&u32::from(workers).to_le_bytes());
        rustix::io::pwrite(&file, &head, 0)?;
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok(file)
    }

    /// Maps a file of captures.
    ///
    /// # Errors
    /// It is not one, or the operating system refuses.
    pub fn open(file: impl AsFd) -> io::Result<Self> {
        let mut head = [0; RINGS_AT + 4];
        let read = rustix::io::pread(&file, &mut head, 0)?;
        let (magic, rings) = head.split_at(RINGS_AT);
        let rings = rings.first_chunk().map_or(0, |rings| u32::from_le_bytes(*rings));
        let is_one = read == head.len()
            && magic == MAGIC.to_le_bytes()
            && (1..=RINGS_MAX).contains(&rings)
            && rustix::fs::fcntl_get_seals(&file)?.contains(SealFlags::SHRINK);
        let rings = rings as usize;
        let len = u64::try_from(rustix::fs::fstat(&file)?.st_size).unwrap_or(0);
        if !is_one || len != len_for(rings) as u64 {
            return Err(io::Error::other("not a file of captures"));
        }
        Ok(Self { mapped: Mapped::new(file, len_for(rings))?, rings })
    }

    fn ring(&self, number: usize) -> Option<RingMemory> {
        let at = len_for(number);
        (number < self.rings).then(|| RingMemory {
            counts: self.mapped.part(at, PAGE),
            records: self.mapped.part(at + PAGE, RING_LEN),
        })
    }
}

/// Bytes of a file with so many rings.
const fn len_for(rings: usize) -> usize {
    PAGE + rings * (PAGE + RING_LEN)
}

#[cfg(test)]
mod tests;
