//! The memory of one transmitq: a slot for each short packet, and one stretch of bytes from which
//! the longer ones get theirs in turn.
//!
//! Limits: what is copied of longer packets is 4 MiB at most, however many entries the queue has:
//! more is no faster, as it does not stay in a cache that both sides share.

use ringway_virtq::{BufferId, SharedSlice};

use crate::slots::Slots;
use crate::stretches::Stretches;
use crate::tx_place::SHORT_LEN_MAX;
use crate::{Arena, ArenaFull, TxOptions};

/// Slots, and stretches for what is too long for them.
#[derive(Debug)]
pub(crate) struct TxMemory {
    slots: Slots,
    stretches: Stretches,
    short_len_max: u32,
}

impl TxMemory {
    /// Takes a slot for each of `queue_size` entries, and stretches if packets may be longer.
    pub(crate) fn new(
        arena: &mut Arena,
        queue_size: u16,
        options: &TxOptions,
    ) -> Result<Self, ArenaFull> {
        // 12 or 20.
        let header_len = u32::try_from(options.header_len).unwrap_or(u32::MAX);
        let short_len_max = options.packet_len_max.min(SHORT_LEN_MAX);
        let slots = Slots::new(arena, queue_size, header_len, short_len_max)?;
        let longest =
            if options.packet_len_max > short_len_max { options.packet_len_max } else { 0 };
        let stretches = Stretches::new(arena, queue_size, header_len, longest)?;
        Ok(Self { slots, stretches, short_len_max })
    }

    /// Whether a packet of which `len` bytes are copied has a slot.
    #[inline]
    pub(crate) fn is_short(&self, len: u32) -> bool {
        len <= self.short_len_max
    }

    /// Whether there is memory for a packet of which `len` bytes are copied.
    pub(crate) fn has_room(&self, len: u32) -> bool {
        self.is_short(len) || self.stretches.next(len).is_some()
    }

    /// Memory of the short packet with this id, and where the device sees it.
    #[inline]
    pub(crate) fn slot(&self, id: BufferId) -> (SharedSlice, u64) {
        self.slots.slot(id)
    }

    /// Memory for a header and `len` bytes of the long packet with this id, and where the device
    /// sees it. `None`: there is none now.
    pub(crate) fn stretch(&mut self, id: BufferId, len: u32) -> Option<(SharedSlice, u64)> {
        self.stretches.take(id, len)
    }

    /// Whether any packet has a stretch.
    pub(crate) fn has_stretches(&self) -> bool {
        self.stretches.has_taken()
    }

    /// Takes back the stretch of the packet with this id, if it has one; slots go with their ids.
    pub(crate) fn give_back(&mut self, id: BufferId) {
        self.stretches.give_back(id);
    }

    /// Asks for the memory of a short packet that will have this id; a hint, for which there need
    /// not be any.
    #[inline]
    pub(crate) fn prefetch(&self, id: BufferId) {
        self.slots.prefetch(id);
    }
}
