//! The guest's memory: which guest-physical range is at which host address.
//!
//! How: a sorted table, searched only when the range found last does not hold the address.
//! Limits: [`REGIONS_MAX`] ranges, which do not overlap; nothing spans two of them.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::Cell;

use crate::SharedSlice;

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

/// All of a guest's memory. Cheap to clone; each clone has its own last-hit cache.
#[derive(Debug, Clone)]
pub struct Regions {
    table: Arc<[Region]>,
    /// A copy, so that a hit touches nothing else.
    last_hit: Cell<Region>,
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
        Ok(Self { table: regions.into(), last_hit: Cell::new(NOWHERE) })
    }

    /// No memory at all: every lookup fails.
    pub fn empty() -> Self {
        Self { table: Arc::new([]), last_hit: Cell::new(NOWHERE) }
    }

    /// The `len` bytes at a guest-physical address, if they lie wholly inside one region.
    #[inline(always)]
    pub fn slice(&self, guest_address: u64, len: u32) -> Option<SharedSlice> {
        if let Some(found) = within(&self.last_hit.get(), guest_address, len) {
            return Some(found);
        }
        self.search(guest_address);
        within(&self.last_hit.get(), guest_address, len)
    }

    /// The byte at a guest-physical address, to fetch it into the cache, and only if it is in the
    /// range found last.
    #[inline(always)]
    pub(crate) fn hint(&self, guest_address: u64) -> Option<SharedSlice> {
        within(&self.last_hit.get(), guest_address, 1)
    }

    /// Turns to the last range that does not begin behind the address: no other can hold it.
    #[cold]
    fn search(&self, guest_address: u64) {
        let behind = self.table.partition_point(|region| region.guest_address <= guest_address);
        if let Some(region) = behind.checked_sub(1).and_then(|at| self.table.get(at)) {
            self.last_hit.set(*region);
        }
    }
}

#[inline(always)]
fn within(region: &Region, guest_address: u64, len: u32) -> Option<SharedSlice> {
    let offset = usize::try_from(guest_address.checked_sub(region.guest_address)?).ok()?;
    region.memory.slice(offset, len as usize)
}
