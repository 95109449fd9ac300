//! The session's knowledge of guest memory: addresses only, nothing is mapped here.
//!
//! It exists to translate ring addresses, which a front-end gives in its own address space, and to
//! refuse tables that cannot be right. Regions may come in any order. QEMU up to 7.2 adds, and
//! removes, each region once for each queue pair: the same again is counted. Limit: the number of
//! slots the device offers.

use crate::message::{MemoryRange, MemoryRegion};
use crate::refusal::Refusal;

/// Bytes of a page of the log.
const PAGE_LEN: u64 = 4096;

/// The ranges of guest memory, sorted by guest-physical address.
#[derive(Debug, Clone, Default)]
pub(crate) struct MemoryTable {
    slots: Vec<Slot>,
}

/// One range, as often as it was added.
#[derive(Debug, Clone, Copy)]
struct Slot {
    range: MemoryRange,
    /// Where in its file it begins, bytes.
    mmap_offset: u64,
    times: u32,
}

/// Whether the request changed the memory; otherwise it was only counted, or there was nothing to
/// do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum Change {
    Memory,
    Nothing,
}

impl MemoryTable {
    /// A table of these regions, and nothing else.
    pub fn new(regions: &[MemoryRegion], slots_max: usize) -> Result<Self, Refusal> {
        let mut table = Self::default();
        for region in regions {
            if table.add(region, slots_max)? == Change::Nothing {
                return Err(Refusal::RegionOverlaps { guest_address: region.guest_address });
            }
        }
        Ok(table)
    }

    /// One more region, if it is possible and shares no guest-physical address with another; or the
    /// same once more.
    pub fn add(&mut self, region: &MemoryRegion, slots_max: usize) -> Result<Change, Refusal> {
        let range = region.range();
        let MemoryRange { guest_address, size, user_address } = range;
        let ends = [guest_address, user_address, region.mmap_offset].map(|at| at.checked_add(size));
        let [Some(_), Some(_), Some(_)] = ends else {
            return Err(Refusal::BadRegion { guest_address, size });
        };
        if size == 0 {
            return Err(Refusal::BadRegion { guest_address, size });
        }
        let mmap_offset = region.mmap_offset;
        let is_same = |slot: &&mut Slot| slot.range == range && slot.mmap_offset == mmap_offset;
        if let Some(slot) = self.slots.iter_mut().find(is_same) {
            slot.times = slot.times.saturating_add(1);
            return Ok(Change::Nothing);
        }
        if self.slots.len() >= slots_max {
            return Err(Refusal::TooManyRegions { limit: slots_max });
        }
        if self.overlaps(&range) {
            return Err(Refusal::RegionOverlaps { guest_address });
        }
        let at = self.slots.partition_point(|other| other.range.guest_address < guest_address);
        self.slots.insert(at, Slot { range, mmap_offset, times: 1 });
        Ok(Change::Memory)
    }

    /// One region less, if it is removed as often as it was added. One that is not there is gone
    /// already; one that is there otherwise is not what the front-end takes it for.
    pub fn remove(&mut self, range: &MemoryRange) -> Result<Change, Refusal> {
        let Some(at) = self.slots.iter().position(|slot| slot.range == *range) else {
            return match self.overlaps(range) {
                true => Err(Refusal::NoSuchRegion { guest_address: range.guest_address }),
                false => Ok(Change::Nothing),
            };
        };
        self.slots[at].times -= 1;
        if self.slots[at].times > 0 {
            return Ok(Change::Nothing);
        }
        self.slots.remove(at);
        Ok(Change::Memory)
    }

    /// Whether the range shares guest-physical addresses with one of the table.
    fn overlaps(&self, range: &MemoryRange) -> bool {
        let end = range.guest_address.saturating_add(range.size);
        self.slots.iter().any(|Slot { range: other, .. }| {
            // Cannot overflow: the sum was checked when that range was added.
            other.guest_address < end && other.guest_address + other.size > range.guest_address
        })
    }

    /// All ranges, and how often each was added.
    pub fn ranges(&self) -> impl Iterator<Item = (MemoryRange, u32)> + '_ {
        self.slots.iter().map(|slot| (slot.range, slot.times))
    }

    /// Bytes of a log that has a bit for each page of 4,096 bytes.
    pub fn log_len(&self) -> u64 {
        // Neither can overflow: ends were checked, and no range is empty.
        let last = self.slots.iter().map(|Slot { range, .. }| range.guest_address + range.size - 1);
        last.max().map_or(0, |last| last / (8 * PAGE_LEN) + 1)
    }

    /// Whether there is no memory.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// The guest-physical address of `len` bytes at an address of the front-end, if they lie inside
    /// one region. Where a front-end lets two regions overlap in its own space, any that fits.
    pub fn translate(&self, user_address: u64, len: u64) -> Option<u64> {
        self.slots.iter().find_map(|Slot { range, .. }| {
            let offset = user_address.checked_sub(range.user_address)?;
            let fits = offset.checked_add(len)? <= range.size;
            fits.then(|| range.guest_address + offset)
        })
    }
}
