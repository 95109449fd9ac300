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
