//! The guest's memory: which guest-physical range is at which host address.
//!
//! How: a sorted table, searched only when neither of the two ranges found last holds the address:
//! rings and packets are often in two.
//! Limits: [`REGIONS_MAX`] ranges, which do not overlap; nothing spans two of them.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::Cell;

#[cfg(not(loom))]
use crate::event;
#[cfg(not(loom))]
use crate::fault::{self, Mark};
use crate::{DirtyLog, SharedSlice};

/// Most regions a table may have: the vhost-user limit on memory slots.
pub const REGIONS_MAX: usize = 509;

/// One contiguous range of guest memory.
#[derive(Debug, Clone, Copy)]
pub struct Region {
    /// First guest-physical address.
    pub guest_address: u64,
    /// Where the range is mapped; its length is the region's length.
    pub memory: SharedSlice,
}

/// A region that holds nothing.
const NOWHERE: Region = Region { guest_address: u64::MAX, memory: SharedSlice::EMPTY };

#[expect(clippy::declare_interior_mutable_const, reason = "each use is a new one")]
const NOTHING_FOUND: [Cell<Region>; 2] = [const { Cell::new(NOWHERE) }; 2];

/// Why a table of regions was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegionError {
    /// More than [`REGIONS_MAX`].
    TooMany,
    /// A region of length zero, or one whose end overflows 64 bits.
    BadRange,
    /// Two regions share an address.
    Overlap,
}

/// All of a guest's memory. Cheap to clone; each clone has its own cache of ranges.
#[derive(Debug, Clone)]
pub struct Regions {
    table: Arc<[Region]>,
    /// The ranges found last, the later one first. Copies, so that a hit touches nothing else.
    found: [Cell<Region>; 2],
    /// The pages that are written are marked there, if they have to be.
    log: Option<DirtyLog>,
}

impl Regions {
    /// Takes regions in any order.
    ///
    /// # Errors
    /// See [`RegionError`].
    pub fn new(mut regions: Vec<Region>) -> Result<Self, RegionError> {
        if regions.len() > REGIONS_MAX {
            return Err(RegionError::TooMany);
        }
        regions.sort_unstable_by_key(|region| region.guest_address);
        let mut free_from = 0u64;
        for (at, region) in regions.iter().enumerate() {
            let len = region.memory.len() as u64;
            let end = region.guest_address.checked_add(len).ok_or(RegionError::BadRange)?;
            if len == 0 {
                return Err(RegionError::BadRange);
            }
            if at > 0 && region.guest_address < free_from {
                return Err(RegionError::Overlap);
            }
            free_from = end;
        }
        Ok(Self { table: regions.into(), found: NOTHING_FOUND, log: None })
    }

    /// No memory at all: every lookup fails.
    pub fn empty() -> Self {
        Self { table: Arc::new([]), found: NOTHING_FOUND, log: None }
    }

    /// The same memory with a log of the pages that queues write which start in it, or are bound to
    /// it, from then on; `None`: without.
    #[must_use]
    pub fn with_log(self, log: Option<DirtyLog>) -> Self {
        Self { log, ..self }
    }

    pub(crate) fn log(&self) -> Option<DirtyLog> {
        self.log
    }

    /// Marks memory that was found here and written, and will not become used.
    #[cfg(not(loom))]
    #[cold]
    pub fn mark(&self, written: SharedSlice) {
        let Some(log) = self.log.filter(|_| !fault::is_left_out(Mark::Unused)) else { return };
        event::before_marking();
        let place = written.as_ptr().addr();
        for Region { guest_address, memory } in self.table.iter() {
            match place.checked_sub(memory.as_ptr().addr()) {
                Some(offset) if offset < memory.len() => {
                    return log.mark(guest_address + offset as u64, written.len() as u64);
                }
                _ => {}
            }
        }
    }

    /// The `len` bytes at a guest-physical address, if they lie wholly inside one region.
    #[inline(always)]
    pub fn slice(&self, guest_address: u64, len: u32) -> Option<SharedSlice> {
        if let Some(memory) = self.in_found(guest_address, len) {
            return Some(memory);
        }
        self.search(guest_address);
        within(&self.found[0].get(), guest_address, len)
    }

    /// The byte at a guest-physical address, to fetch it into the cache, and only if it is in the
    /// ranges found last.
    #[inline(always)]
    pub(crate) fn hint(&self, guest_address: u64) -> Option<SharedSlice> {
        self.in_found(guest_address, 1)
    }

    #[inline(always)]
    fn in_found(&self, guest_address: u64, len: u32) -> Option<SharedSlice> {
        within(&self.found[0].get(), guest_address, len)
            .or_else(|| within(&self.found[1].get(), guest_address, len))
    }

    /// Turns to the last range that does not begin behind the address: no other can hold it.
    #[cold]
    fn search(&self, guest_address: u64) {
        let behind = self.table.partition_point(|region| region.guest_address <= guest_address);
        if let Some(region) = behind.checked_sub(1).and_then(|at| self.table.get(at)) {
            self.found[1].set(self.found[0].get());
            self.found[0].set(*region);
        }
    }
}

#[inline(always)]
fn within(region: &Region, guest_address: u64, len: u32) -> Option<SharedSlice> {
    let offset = usize::try_from(guest_address.checked_sub(region.guest_address)?).ok()?;
    region.memory.slice(offset, len as usize)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use alloc::vec;

    const LEN: u32 = 4096;

    #[test]
    fn two_ranges_are_known_at_once() {
        let mut bytes = vec![0u64; 3 * LEN as usize / 8];
        let start = bytes.as_mut_ptr().cast::<u8>();
        let region = |number: usize| {
            // SAFETY: `bytes` outlives the regions, and is not used meanwhile.
            let memory =
                unsafe { SharedSlice::new(start.add(number * LEN as usize), LEN as usize) };
            Region { guest_address: (number as u64 + 1) << 20, memory }
        };
        let regions = Regions::new(vec![region(2), region(0), region(1)]).expect("apart");
        let at = |number: u64| (number + 1) << 20;
        let known = || [0, 1, 2].map(|number| regions.hint(at(number)).is_some());
        assert_eq!(known(), [false; 3], "none was found yet");
        for number in [0, 1, 0, 1] {
            assert!(regions.slice(at(number), LEN).is_some());
        }
        assert_eq!(known(), [true, true, false]);
        assert!(regions.slice(at(2), 1).is_some());
        assert_eq!(known(), [false, true, true], "the one found before the last two is forgotten");
        assert!(regions.slice(at(1) + u64::from(LEN), 1).is_none(), "behind it");
        assert!(regions.slice(at(1), LEN + 1).is_none(), "longer");
        assert!(regions.slice(at(0), LEN).is_some());
    }
}
