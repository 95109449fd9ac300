//! The memory of one transmitq: a slot for each short packet, and one stretch of bytes from which
//! the longer ones get theirs in turn.
//!
//! Every packet takes whole cache lines. The header ends with the first of them, so that the packet
//! begins with the second, and no two packets share one (ADR 23).
//!
//! Limits: what is copied of longer packets is 4 MiB at most, however many entries the queue has:
//! more is no faster, as it does not stay in a cache that both sides share.

use ringway_virtq::{BufferId, SharedSlice};

use crate::slots::Slots;
use crate::stretches::Stretches;
use crate::{Arena, ArenaFull, Part, TxOptions};

/// Bytes of a cache line.
const LINE: u32 = 64;

/// Longest packet that has a slot, in bytes. With its header a line more, so that slots do not all
/// begin at the same places of a cache.
pub(crate) const SHORT_LEN_MAX: u32 = 2048;

/// Most bytes for all longer packets together.
pub(crate) const STRETCHES_LEN_MAX: u32 = 4 << 20;

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
        let slots = Slots::new(arena, queue_size, (header_len, short_len_max))?;
        let longest =
            if options.packet_len_max > short_len_max { options.packet_len_max } else { 0 };
        let stretches = Stretches::new(arena, queue_size, (header_len, longest))?;
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

    /// Memory for a header and `len` bytes of the long packet with this id, and where the device sees it.
    /// `None`: there is none now.
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

    /// Asks for the memory of a short packet that will have this id; a hint, for which there need not be
    /// any.
    #[inline]
    pub(crate) fn prefetch(&self, id: BufferId) {
        self.slots.prefetch(id);
    }
}

/// Bytes that a packet takes together with its header, whole lines.
pub(crate) fn place_len(packet_len: u32) -> u32 {
    LINE + packet_len.next_multiple_of(LINE)
}

/// Takes `len` bytes, of which the first headers' end is the end of the first line.
pub(crate) fn carve(arena: &mut Arena, len: u32, header_len: u32) -> Result<Part, ArenaFull> {
    let lead = (LINE - header_len).min(len);
    let part = arena.carve(len as usize, LINE as usize)?;
    let (_, memory) = part.memory.split_at(lead as usize);
    Ok(Part { memory, device_address: part.device_address + u64::from(lead) })
}
