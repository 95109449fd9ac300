//! A journal in the place of one that a data plane had which has ended: with what the next one may
//! believe, and in a file that no other process has.
//!
//! How: the kernel copies the pages that are in use, those first that guests would miss most.
//! Limits: [`COPIED_MAX`] bytes at most; a ring that is beyond starts anew, and so does each that
//! leads from one worker to another: half of one would give packets that it has not. A process that
//! still has the old file can change what is copied, which the next data plane checks.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::SeekFrom;
use rustix::io::Errno;

use crate::journal::ring_lines::QUEUE_AT;
use crate::journal::watch::JournalWatch;
use crate::journal::worker_line::{BEAT_AT, OWNER_AT};
use crate::journal::{GENERATION_AT, Journal, ROOM, Sizes};
use crate::memory::ring_words::{ENTRIES_AT, RING_LEN};

/// Bytes that are copied of one journal.
const COPIED_MAX: usize = 256 << 20;

/// The owner of a worker's line and its beat, which are those of threads that have ended.
const OF_THREADS: usize = BEAT_AT + 8 - OWNER_AT;

/// The name of a queue in a ring's line.
const QUEUE_LEN: usize = 8;

impl JournalWatch {
    /// Another journal with what is in this one's file. No worker holds a line of it.
    ///
    /// # Errors
    /// From the operating system.
    pub fn renewed(&self, file: impl AsFd) -> io::Result<OwnedFd> {
        self.renewed_within(file, COPIED_MAX)
    }

    /// The same with so many bytes of it at most.
    pub(crate) fn renewed_within(&self, file: impl AsFd, left: usize) -> io::Result<OwnedFd> {
        let sizes = self.sizes;
        let new = Journal::with(sizes)?;
        let mut copy = Copy { from: file.as_fd(), to: new.as_fd(), left };
        copy.used(GENERATION_AT, sizes.entries_at(0))?;
        for ring in copy.rings_in_use(sizes)? {
            copy.room_of(sizes, ring)?;
        }
        copy.used(sizes.addresses_at(), sizes.hand_over_at(0, 1))?;
        for (from, to) in sizes.worker_pairs() {
            copy.packets(sizes.hand_over_at(from, to))?;
        }
        for worker in 0..sizes.workers {
            copy.zero(Sizes::worker_at(worker) + OWNER_AT, OF_THREADS)?;
        }
        Ok(new)
    }
}

struct Copy<'a> {
    from: BorrowedFd<'a>,
    to: BorrowedFd<'a>,
    left: usize,
}

impl Copy<'_> {
    /// Copies the bytes in use between two places, as far as there is room; `false`: not all.
    /// Each turn copies a page, or comes to the end.
    fn used(&mut self, start: usize, end: usize) -> io::Result<bool> {
        let mut at = start;
        while let Some(from) = self.seek(SeekFrom::Data(at as u64))?.filter(|from| *from < end) {
            at = self.seek(SeekFrom::Hole(from as u64))?.unwrap_or(end).min(end);
            let len = at - from;
            if len > self.left {
                return Ok(false);
            }
            self.left -= len;
            self.bytes(from, len)?;
        }
        Ok(true)
    }

    /// `None`: there is no such place any more.
    fn seek(&self, to: SeekFrom) -> io::Result<Option<usize>> {
        match rustix::fs::seek(self.from, to) {
            Ok(at) => Ok(usize::try_from(at).ok()),
            Err(Errno::NXIO) => Ok(None),
            Err(why) => Err(why.into()),
        }
    }

    fn bytes(&self, at: usize, len: usize) -> io::Result<()> {
        let (mut from, mut to) = (at as u64, at as u64);
        let mut left = len;
        while left > 0 {
            let (from, to) = (Some(&mut from), Some(&mut to));
            match rustix::fs::copy_file_range(self.from, from, self.to, to, left)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                copied => left = left.saturating_sub(copied),
            }
        }
        Ok(())
    }

    /// Those whose line names a queue. All lines are read at once: most are not in use.
    fn rings_in_use(&self, sizes: Sizes) -> io::Result<Vec<usize>> {
        let start = sizes.ring_at(0);
        let mut lines = vec![0; sizes.ring_at(sizes.rings) - start];
        let len = rustix::io::pread(self.to, &mut lines, start as u64)?;
        if len < lines.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let has_queue = |ring: &usize| {
            let queue_at = sizes.ring_at(*ring) - start + QUEUE_AT;
            lines[queue_at..][..QUEUE_LEN] != [0; QUEUE_LEN]
        };
        Ok((0..sizes.rings).filter(has_queue).collect())
    }

    /// The entries of a ring; one that has not all of them is forgotten.
    fn room_of(&mut self, sizes: Sizes, ring: usize) -> io::Result<()> {
        let start = sizes.entries_at(ring);
        if !self.used(start, start + ROOM)? {
            self.zero(sizes.ring_at(ring) + QUEUE_AT, QUEUE_LEN)?;
        }
        Ok(())
    }

    /// Packets on the way from one worker to another: the counts, which say what is there, come
    /// last, and not without everything else.
    fn packets(&mut self, start: usize) -> io::Result<()> {
        if self.used(start + ENTRIES_AT, start + RING_LEN)? {
            self.used(start, start + ENTRIES_AT)?;
        }
        Ok(())
    }

    fn zero(&self, at: usize, len: usize) -> io::Result<()> {
        match rustix::io::pwrite(self.to, &[0; OF_THREADS][..len], at as u64)? {
            written if written == len => Ok(()),
            _ => Err(io::ErrorKind::WriteZero.into()),
        }
    }
}
