//! Fixed slots of equal length; the slot's number is also the buffer id on the ring.
//!
//! Limits: at most 32768 slots (one per ring entry), all taken from the arena at the start.

use alloc::boxed::Box;
use alloc::vec;

use ringway_virtq::{BufferId, SharedSlice, prefetch_distance};

use crate::{Arena, ArenaFull, Part};

/// Slots start at cache lines, so that two packets never share one.
const SLOT_ALIGN: u32 = 64;

/// A set of equal slots, each free or with somebody.
#[derive(Debug)]
pub(crate) struct Pool {
    slots: Part,
    slot_len: u32,
    stride: u32,
    count: u16,
    /// The free slots, taken in the order in which they came back, so that a slot meets the same
    /// place of the ring lap after lap; its length is a power of two.
    free: Box<[u16]>,
    /// Slots taken and given back so far, modulo 2^16; those that are free at first count as given.
    taken: u16,
    given: u16,
}

impl Pool {
    /// Carves `count` slots of `slot_len` bytes.
    pub(crate) fn new(arena: &mut Arena, count: u16, slot_len: u32) -> Result<Self, ArenaFull> {
        let stride = slot_len.next_multiple_of(SLOT_ALIGN);
        let bytes = stride.checked_mul(u32::from(count)).ok_or(ArenaFull)?;
        let slots = arena.carve(bytes as usize, SLOT_ALIGN as usize)?;
        let mut free = vec![0; usize::from(count).next_power_of_two()];
        free.iter_mut().zip(0..count).for_each(|(place, slot)| *place = slot);
        Ok(Self { slots, slot_len, stride, count, free: free.into(), taken: 0, given: count })
    }

    /// Slots nobody has.
    #[inline]
    pub(crate) fn free(&self) -> u16 {
        self.given.wrapping_sub(self.taken)
    }

    /// Takes the slot that has been free longest.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<BufferId> {
        if self.free() == 0 {
            return None;
        }
        let slot = self.free[self.place(self.taken)];
        self.taken = self.taken.wrapping_add(1);
        Some(BufferId(slot))
    }

    /// Gives a slot back that was taken.
    #[inline]
    pub(crate) fn give(&mut self, id: BufferId) {
        // The ring refuses used entries for slots that are not in flight.
        debug_assert!(self.free() < self.count, "slot {} given twice", id.0);
        let place = self.place(self.given);
        self.free[place] = id.0;
        self.given = self.given.wrapping_add(1);
    }

    /// Gives back the slot that was taken last.
    pub(crate) fn untake(&mut self) {
        assert!(self.free() < self.count, "no slot was taken");
        self.taken = self.taken.wrapping_sub(1);
    }

    /// Where the list has what was or will be taken or given after that many.
    #[inline]
    fn place(&self, number: u16) -> usize {
        usize::from(number) & (self.free.len() - 1)
    }

    /// Asks for the memory of a slot that will be taken soon; a hint, as slots may be few.
    #[inline]
    pub(crate) fn prefetch(&self) {
        let soon = self.taken.wrapping_add(prefetch_distance(self.taken));
        let slot = self.free[self.place(soon)];
        self.slots.memory.prefetch_to_write(self.offset(slot));
    }

    /// Where a slot starts; all of them together are no longer than 32 bits count.
    #[inline]
    fn offset(&self, slot: u16) -> usize {
        usize::from(slot) * self.stride as usize
    }

    /// A slot's bytes, and where the device sees them.
    #[inline]
    pub(crate) fn slot(&self, id: BufferId) -> (SharedSlice, u64) {
        let start = self.offset(id.0);
        match self.slots.memory.slice(start, self.slot_len as usize) {
            Some(slot) => (slot, self.slots.device_address + start as u64),
            None => unreachable!("the pool gave out slot {}, so it exists", id.0),
        }
    }
}
