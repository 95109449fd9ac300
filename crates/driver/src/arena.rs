//! The memory a driver shares with its device, handed over once and carved up at the start.
//!
//! Limits: parts are never given back; the arena lives as long as the driver.

use ringway_virtq::SharedSlice;

/// Alignment in bytes that an arena's own start must have, at both addresses.
const ARENA_ALIGN: usize = 4096;

/// The arena has not enough bytes left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArenaFull;

/// A contiguous piece of the arena.
#[derive(Debug, Clone, Copy)]
pub struct Part {
    /// Where the driver sees it.
    pub memory: SharedSlice,
    /// Where the device sees it.
    pub device_address: u64,
}

/// Contiguous memory that driver and device both see.
#[derive(Debug)]
pub struct Arena {
    memory: SharedSlice,
    device_address: u64,
    taken: usize,
}

impl Arena {
    /// Takes over `memory`, which the device sees at `device_address`.
    ///
    /// Both addresses must be multiples of 4096, and the range must not overflow.
    pub fn new(memory: SharedSlice, device_address: u64) -> Self {
        assert!((memory.as_ptr() as usize).is_multiple_of(ARENA_ALIGN), "arena not page-aligned");
        assert!(device_address.is_multiple_of(ARENA_ALIGN as u64), "arena not page-aligned");
        assert!(device_address.checked_add(memory.len() as u64).is_some(), "arena overflows");
        Self { memory, device_address, taken: 0 }
    }

    /// Bytes not taken yet.
    pub fn left(&self) -> usize {
        self.memory.len() - self.taken
    }

    /// Takes `len` bytes, aligned to `align` (a power of two up to 4096) for both sides.
    ///
    /// # Errors
    /// [`ArenaFull`]; nothing changed.
    pub fn carve(&mut self, len: usize, align: usize) -> Result<Part, ArenaFull> {
        assert!(align.is_power_of_two() && align <= ARENA_ALIGN, "alignment {align}");
        let start = self.taken.checked_next_multiple_of(align).ok_or(ArenaFull)?;
        let memory = self.memory.slice(start, len).ok_or(ArenaFull)?;
        self.taken = start + len;
        Ok(Part { memory, device_address: self.device_address + start as u64 })
    }
}
