//! The log of pages that a device writes, for a front-end that copies a guest's memory elsewhere
//! while rings run (live migration).
//!
//! How: each page of [`LOG_PAGE_LEN`] bytes of guest-physical addresses has a bit, `page % 8` of
//! byte `page / 8`. The front-end takes bits and clears them, and copies these pages. So a bit is
//! set behind what it stands for: one that is set before may be taken, and the page copied, without
//! it. The pages of buffers are marked before their used entries are shown, as the process that
//! comes after a killed one knows only of those that are not; the ring's own pages behind that.
//!
//! Limits: pages beyond the log are left out. Bits are set one by one, as others set theirs in the
//! same bytes.

use crate::SharedSlice;

/// Bytes of guest memory that one bit stands for.
#[cfg(not(loom))]
pub const LOG_PAGE_LEN: u64 = 4096;
/// Under the model checker memory is some hundred bytes, and in several pages all the same.
#[cfg(loom)]
pub const LOG_PAGE_LEN: u64 = 64;

/// The bits, in memory that others share.
#[derive(Debug, Clone, Copy)]
pub struct DirtyLog {
    bits: SharedSlice,
}

impl DirtyLog {
    /// All of this memory.
    pub fn new(bits: SharedSlice) -> Self {
        Self { bits }
    }

    /// Marks the pages of so many bytes. A fence must be between them and this.
    #[inline]
    pub(crate) fn mark(&self, guest_address: u64, len: u64) {
        let Some(last) = len.checked_sub(1).map(|more| guest_address.saturating_add(more)) else {
            return;
        };
        let pages = 8 * self.bits.len() as u64;
        for page in guest_address / LOG_PAGE_LEN..=last / LOG_PAGE_LEN {
            if page >= pages {
                return;
            }
            self.mark_page(page);
        }
    }

    /// A bit that is there already is not set: the line stays with all who look at it.
    #[inline]
    fn mark_page(&self, page: u64) {
        // Below the length of a slice.
        let (at, bit) = ((page / 8) as usize, 1 << (page % 8));
        if self.bits.load_u8(at) & bit == 0 {
            self.bits.set_bits(at, bit);
        }
    }
}
