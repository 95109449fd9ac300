//! Fixed slots of equal length; the slot's number is also the buffer id on the ring.
//!
//! Limits: at most 32768 slots (one per ring entry), all taken from the arena at the start.

use alloc::vec::Vec;

use ringway_virtq::{BufferId, SharedSlice};

use crate::{Arena, ArenaFull, Part};

/// Slots start at cache lines, so that two packets never share one.
const SLOT_ALIGN: usize = 64;

/// A set of equal slots, each free or with somebody.
#[derive(Debug)]
pub(crate) struct Pool {
    slots: Part,
    slot_len: u32,
    stride: usize,
    count: u16,
    free: Vec<u16>,
}

impl Pool {
    /// Carves `count` slots of `slot_len` bytes.
    pub(crate) fn new(arena: &mut Arena, count: u16, slot_len: u32) -> Result<Self, ArenaFull> {
        let stride = (slot_len as usize).next_multiple_of(SLOT_ALIGN);
        let bytes = stride.checked_mul(usize::from(count)).ok_or(ArenaFull)?;
        let slots = arena.carve(bytes, SLOT_ALIGN)?;
        // Reversed, so that slots are first taken in rising order.
        Ok(Self { slots, slot_len, stride, count, free: (0..count).rev().collect() })
    }

    /// Slots nobody has.
    pub(crate) fn free(&self) -> usize {
        self.free.len()
    }

    /// Takes a free slot.
    pub(crate) fn take(&mut self) -> Option<BufferId> {
        self.free.pop().map(BufferId)
    }

    /// Gives a slot back that was taken.
    pub(crate) fn give(&mut self, id: BufferId) {
        // The ring refuses used entries for slots that are not in flight, so the device cannot
        // bring this about; and the list has room for all slots, so it never grows.
        assert!(self.free.len() < usize::from(self.count), "slot {} given twice", id.0);
        self.free.push(id.0);
    }

    /// A slot's bytes.
    pub(crate) fn memory(&self, id: BufferId) -> SharedSlice {
        let start = usize::from(id.0) * self.stride;
        match self.slots.memory.slice(start, self.slot_len as usize) {
            Some(slot) => slot,
            None => unreachable!("the pool gave out slot {}, so it exists", id.0),
        }
    }

    /// Where the device sees a slot.
    pub(crate) fn device_address(&self, id: BufferId) -> u64 {
        self.slots.device_address + (usize::from(id.0) * self.stride) as u64
    }
}
