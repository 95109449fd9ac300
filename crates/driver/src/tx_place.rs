//! Where a packet to send lies: whole cache lines, of which the header ends with the first.
//!
//! So the packet begins with the second line, and no two packets share one (ADR 23).

use crate::{Arena, ArenaFull, Part};

/// Bytes of a cache line.
const LINE: u32 = 64;

/// Longest packet that has a slot, in bytes. With its header a line more, so that slots do not all
/// begin at the same places of a cache.
pub(crate) const SHORT_LEN_MAX: u32 = 2048;

/// Most bytes for all longer packets together.
pub(crate) const STRETCHES_LEN_MAX: u32 = 4 << 20;

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
