//! What the session knows of guest memory: addresses only, nothing is mapped here.
//!
//! It exists to translate ring addresses, which a front-end gives in its own address space, and to
//! refuse tables that cannot be right. Regions may come in any order. Limit: the number of slots
//! the device offers.

use crate::effect::Refusal;
use crate::message::{MemoryRange, MemoryRegion};

/// The ranges of guest memory, sorted by guest-physical address.
#[derive(Debug, Clone, Default)]
pub(crate) struct MemoryTable {
    ranges: Vec<MemoryRange>,
}

impl MemoryTable {
    /// A table of these regions, and nothing else.
    pub fn new(regions: &[MemoryRegion], slots_max: usize) -> Result<Self, Refusal> {
        let mut table = Self::default();
        for region in regions {
            table.add(region, slots_max)?;
        }
        Ok(table)
    }

    /// One more region, if it is possible and shares no guest-physical address with another.
    pub fn add(&mut self, region: &MemoryRegion, slots_max: usize) -> Result<(), Refusal> {
        let range = region.range();
        let MemoryRange { guest_address, size, user_address } = range;
        let ends = [guest_address, user_address, region.mmap_offset].map(|at| at.checked_add(size));
        let [Some(guest_end), Some(_), Some(_)] = ends else {
            return Err(Refusal::BadRegion { guest_address, size });
        };
        if size == 0 {
            return Err(Refusal::BadRegion { guest_address, size });
        }
        if self.ranges.len() >= slots_max {
            return Err(Refusal::TooManyRegions { limit: slots_max });
        }
        let at = self.ranges.partition_point(|other| other.guest_address < guest_address);
        let after = self.ranges.get(at).is_some_and(|next| next.guest_address < guest_end);
        let before = at.checked_sub(1).and_then(|at| self.ranges.get(at));
        // Cannot overflow: the sum was checked when that range was added.
        let before = before.is_some_and(|last| last.guest_address + last.size > guest_address);
        if before || after {
            return Err(Refusal::RegionOverlaps { guest_address });
        }
        self.ranges.insert(at, range);
        Ok(())
    }

    /// One region less; it must be in the table exactly so.
    pub fn remove(&mut self, range: &MemoryRange) -> Result<(), Refusal> {
        let at = self.ranges.iter().position(|other| other == range);
        let at = at.ok_or(Refusal::NoSuchRegion { guest_address: range.guest_address })?;
        self.ranges.remove(at);
        Ok(())
    }

    /// Whether there is no memory.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The guest-physical address of `len` bytes at an address of the front-end, if they lie inside
    /// one region. Where a front-end lets two regions overlap in its own space, any that fits.
    pub fn translate(&self, user_address: u64, len: u64) -> Option<u64> {
        self.ranges.iter().find_map(|range| {
            let offset = user_address.checked_sub(range.user_address)?;
            let fits = offset.checked_add(len)? <= range.size;
            fits.then(|| range.guest_address + offset)
        })
    }
}
