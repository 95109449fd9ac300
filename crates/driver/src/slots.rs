//! Fixed slots of equal length, one for each buffer id of a ring: whose id is free, its slot is.
//!
//! Limits: at most 32768 slots, all taken from the arena at the start.

use ringway_virtq::{BufferId, SharedSlice};

use crate::tx_place::{carve, place_len};
use crate::{Arena, ArenaFull, Part};

/// The slots of a ring.
#[derive(Debug)]
pub(crate) struct Slots {
    slots: Part,
    slot_len: u32,
    stride: u32,
}

impl Slots {
    /// Carves `count` slots, each for a header and a packet of that many bytes.
    pub(crate) fn new(
        arena: &mut Arena,
        count: u16,
        header_len: u32,
        packet_len: u32,
    ) -> Result<Self, ArenaFull> {
        let stride = place_len(packet_len);
        let bytes = stride.checked_mul(u32::from(count)).ok_or(ArenaFull)?;
        let slots = carve(arena, bytes, header_len)?;
        Ok(Self { slots, slot_len: header_len + packet_len, stride })
    }

    /// Asks for the memory of a slot that will be written soon; a hint, for which there need not be
    /// one.
    #[inline]
    pub(crate) fn prefetch(&self, id: BufferId) {
        self.slots.memory.prefetch_to_write(self.offset(id));
    }

    /// Where a slot starts; all of them together are no longer than 32 bits count.
    #[inline]
    fn offset(&self, id: BufferId) -> usize {
        usize::from(id.0) * self.stride as usize
    }

    /// A slot's bytes, and where the device sees them.
    #[inline]
    pub(crate) fn slot(&self, id: BufferId) -> (SharedSlice, u64) {
        let start = self.offset(id);
        match self.slots.memory.slice(start, self.slot_len as usize) {
            Some(slot) => (slot, self.slots.device_address + start as u64),
            None => unreachable!("slot {} of a ring with fewer ids", id.0),
        }
    }
}
