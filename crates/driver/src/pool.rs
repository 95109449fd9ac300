//! Fixed slots of equal length; the slot's number is also the buffer id on the ring.
//!
//! Limits: at most 32768 slots (one per ring entry), all taken from the arena at the start.

use alloc::boxed::Box;

use ringway_virtq::{BufferId, SharedSlice, prefetch_distance};

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
    /// The free slots, from `first` on and around the end: taken in the order in which they came
    /// back, so that a slot meets the same place of the ring lap after lap.
    free: Box<[u16]>,
    first: u16,
    free_count: u16,
}

impl Pool {
    /// Carves `count` slots of `slot_len` bytes.
    pub(crate) fn new(arena: &mut Arena, count: u16, slot_len: u32) -> Result<Self, ArenaFull> {
        let stride = (slot_len as usize).next_multiple_of(SLOT_ALIGN);
        let bytes = stride.checked_mul(usize::from(count)).ok_or(ArenaFull)?;
        let slots = arena.carve(bytes, SLOT_ALIGN)?;
        let free = (0..count).collect();
        Ok(Self { slots, slot_len, stride, count, free, first: 0, free_count: count })
    }

    /// Slots nobody has.
    #[inline]
    pub(crate) fn free(&self) -> u16 {
        self.free_count
    }

    /// Takes the slot that has been free longest.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<BufferId> {
        self.free_count = self.free_count.checked_sub(1)?;
        let slot = self.free[usize::from(self.first)];
        self.first = self.place(1);
        Some(BufferId(slot))
    }

    /// Gives a slot back that was taken.
    #[inline]
    pub(crate) fn give(&mut self, id: BufferId) {
        // The ring refuses used entries for slots that are not in flight, so the device cannot
        // bring this about.
        assert!(self.free_count < self.count, "slot {} given twice", id.0);
        let place = self.place(self.free_count);
        self.free[usize::from(place)] = id.0;
        self.free_count += 1;
    }

    /// Gives back the slot that was taken last.
    pub(crate) fn untake(&mut self) {
        assert!(self.free_count < self.count, "no slot was taken");
        self.first = self.place(self.count - 1);
        self.free_count += 1;
    }

    /// The place `ahead` of the first one, less than a lap.
    #[inline]
    fn place(&self, ahead: u16) -> u16 {
        // At most 32768 slots: no overflow.
        let place = self.first + ahead;
        if place < self.count { place } else { place - self.count }
    }

    /// Asks for the memory of a slot that will be taken soon.
    #[inline]
    pub(crate) fn prefetch(&self) {
        let ahead = self.place(prefetch_distance(self.first).min(self.count - 1));
        self.memory(BufferId(self.free[usize::from(ahead)])).prefetch_to_write();
    }

    /// A slot's bytes.
    #[inline]
    pub(crate) fn memory(&self, id: BufferId) -> SharedSlice {
        let start = usize::from(id.0) * self.stride;
        match self.slots.memory.slice(start, self.slot_len as usize) {
            Some(slot) => slot,
            None => unreachable!("the pool gave out slot {}, so it exists", id.0),
        }
    }

    /// Where the device sees a slot.
    #[inline]
    pub(crate) fn device_address(&self, id: BufferId) -> u64 {
        self.slots.device_address + (usize::from(id.0) * self.stride) as u64
    }
}
