//! The log in which the pages of a guest's memory are marked that its queues write.
//!
//! How: one more mapping of its front-end, which counts, is guarded and is closed as those of its
//! memory are. A table with another log is another table: queues that are bound to it mark there,
//! and nowhere else, before the old one is dropped. Limits: as of memory.

use ringway_foreign::UntrustedFd;

use crate::memory::{GuestMemory, Mapping, MemoryError, MemoryRequest};

/// Most bytes of a log that are walked to count its bits: those of 32 GiB of memory.
pub const COUNTED_LEN_MAX: usize = 1 << 20;
const PIECE_LEN: usize = 4096;

/// A log as a front-end describes it (vhost-user, `SET_LOG_BASE`).
#[derive(Debug)]
pub struct LogRequest {
    /// Length in bytes.
    pub size: u64,
    /// Where it starts in the file, in bytes; need not be page aligned.
    pub offset: u64,
    /// The file.
    pub fd: UntrustedFd,
}

impl GuestMemory {
    /// This table with that log, in the place of the one before.
    ///
    /// # Errors
    /// See [`MemoryError`], where the log is a region at address 0; this table stays as it is.
    pub fn with_log(&self, request: LogRequest) -> Result<Self, MemoryError> {
        let LogRequest { size, offset: mmap_offset, fd } = request;
        let request = MemoryRequest { guest_address: 0, size, mmap_offset, fd };
        let log = Some(Mapping::new(&request, &self.account)?);
        Self { log, ..self.clone() }.with_mappings(self.mappings.clone())
    }

    /// This table without a log.
    #[must_use]
    pub fn without_log(&self) -> Self {
        let regions = self.regions.clone().with_log(None);
        Self { log: None, regions, ..self.clone() }
    }

    /// Bits of the log; `None`: there is none.
    pub fn log_pages(&self) -> Option<u64> {
        self.log.as_ref().map(|log| 8 * log.region.memory.len() as u64)
    }

    /// How many pages are marked at this moment, and whether that is of the whole log: it walks
    /// [`COUNTED_LEN_MAX`] bytes at most. `None`: there is no log, or it is in a file on a disk,
    /// where each page may have to be read first.
    pub fn marked_pages(&self) -> Option<(u64, bool)> {
        let log = self.log.as_ref().filter(|log| !log.is_on_disk)?;
        let bits = log.region.memory;
        let (mut count, mut piece) = (0, [0; PIECE_LEN]);
        let len = bits.len().min(COUNTED_LEN_MAX);
        for at in (0..len).step_by(PIECE_LEN) {
            let piece = &mut piece[..PIECE_LEN.min(len - at)];
            bits.read(at, piece);
            count += piece.iter().map(|byte| u64::from(byte.count_ones())).sum::<u64>();
        }
        Some((count, len == bits.len()))
    }

    /// Whether written pages are marked.
    pub(crate) fn has_log(&self) -> bool {
        self.log.is_some()
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    use rustix::io::pwrite;

    use super::*;

    /// A guest whose log has so many bytes, and is in that file from byte 100 on.
    fn logged(len: usize, file: &OwnedFd) -> GuestMemory {
        let fd = file.try_clone().expect("a descriptor").into();
        let request = LogRequest { size: len as u64, offset: 100, fd };
        GuestMemory::empty().with_log(request).expect("a good log")
    }

    #[test]
    fn marked_pages_are_counted_up_to_a_bound() {
        let memfd = || memfd_create("log", MemfdFlags::CLOEXEC).expect("a file");
        for (len, is_all) in [(PIECE_LEN + 7, true), (COUNTED_LEN_MAX + 1, false)] {
            let file = memfd();
            ftruncate(&file, 100 + len as u64).expect("room");
            let memory = logged(len, &file);
            assert_eq!(memory.marked_pages(), Some((0, is_all)));
            let counted_len = len.min(COUNTED_LEN_MAX) as u64;
            for at in [99, 100, 100 + PIECE_LEN as u64, 99 + counted_len, 100 + counted_len] {
                pwrite(&file, &[0b1010_0001], at).expect("room");
            }
            // In front of the log, and behind what is counted, are none.
            assert_eq!(memory.marked_pages(), Some((9, is_all)), "{len}");
            assert_eq!(memory.log_pages(), Some(8 * len as u64));
            assert_eq!(memory.without_log().marked_pages(), None);
        }
    }
}
