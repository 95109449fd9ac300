//! The cost of a packet to the receiver, in bytes.
//!
//! How: a packet takes whole buffers, and each buffer takes a ring entry. Memory is counted as it
//! is; an entry is worth [`ENTRY_COST_BYTES`]: posting it, reading its used entry and its record
//! takes about as long as copying so many bytes. Limits: a length, not a time; see ADR 0010.

/// Bytes of memory that one ring entry is worth.
pub const ENTRY_COST_BYTES: u32 = 256;

/// Buffers of `buffer_len` bytes that `len` bytes with their header take; at least one.
#[inline]
pub const fn buffers_for(len: u32, buffer_len: u32) -> u32 {
    if len <= buffer_len { 1 } else { len.div_ceil(buffer_len) }
}

/// The cost of `len` bytes with their header in buffers of `buffer_len` bytes, in bytes.
#[inline]
pub const fn packet_cost(len: u32, buffer_len: u32) -> u64 {
    buffers_for(len, buffer_len) as u64 * (buffer_len + ENTRY_COST_BYTES) as u64
}
