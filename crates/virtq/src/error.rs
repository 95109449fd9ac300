//! The two failures a ring knows: no room (expected), and a peer that broke the rules.
//!
//! How: [`QueueFull`] is an answer, [`Broken`] ends the queue. Limits: what it says is for logs and
//! counters; nothing is repaired.

use core::fmt;

/// There are not enough free descriptors for this buffer; nothing changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueFull;

/// The peer violated the specification: the queue must stop until it is set up again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Broken(pub Why);

/// The rule that the peer broke.
///
/// As wide as what is found instead, such as the index of a buffer: where a result has either, the
/// compiler would otherwise store halves and load bytes across them, which takes as long as a
/// cache miss of the first level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[repr(u16)]
pub enum Why {
    /// The available index moved further than the queue is long.
    IndexJump,
    /// A descriptor index, or a buffer id, outside the queue.
    BadIndex,
    /// A chain with more descriptors than the queue has (a loop), or than [`crate::ELEMENTS_MAX`].
    ChainTooLong,
    /// An element of length zero.
    ZeroLength,
    /// An element that is not wholly inside one region of the guest's memory.
    OutsideMemory,
    /// A device-readable element after a device-writable one.
    ReadableAfterWritable,
    /// An indirect descriptor inside an indirect table, or together with NEXT, or not negotiated.
    BadIndirect,
    /// An indirect table whose length is not a positive multiple of 16, or is too long.
    BadIndirectLength,
    /// A ring area that is outside memory or not aligned.
    BadArea,
    /// The ring was used before, not from the position that was told, and does not show from which.
    PositionLost,
    /// The record of the ring says what cannot be.
    BadRecord,
    /// The ring is not where its record says that it was left.
    OtherRing,
    /// A used entry for a buffer that was not in flight.
    NotInFlight,
    /// A used length larger than the writable part of the buffer.
    UsedTooLong,
    /// A packet header or a buffer in a direction that this queue does not allow.
    WrongDirection,
    /// A buffer too short to hold the packet header.
    NoHeader,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Why::IndexJump => "available index moved further than the queue is long",
            Why::BadIndex => "descriptor index or buffer id outside the queue",
            Why::ChainTooLong => "descriptor chain too long or looping",
            Why::ZeroLength => "element of length zero",
            Why::OutsideMemory => "element outside the guest's memory",
            Why::ReadableAfterWritable => "device-readable element after a device-writable one",
            Why::BadIndirect => "indirect descriptor not allowed here",
            Why::BadIndirectLength => "length of an indirect table",
            Why::BadArea => "ring area outside the guest's memory or not aligned",
            Why::PositionLost => {
                "position in the ring was lost: the guest's driver has to be reset"
            }
            Why::BadRecord => "record of the ring says what cannot be",
            Why::OtherRing => "ring is not where its record says that it was left",
            Why::NotInFlight => "used entry for a buffer that was not in flight",
            Why::UsedTooLong => "used length larger than the buffer",
            Why::WrongDirection => "buffer in a direction this queue does not allow",
            Why::NoHeader => "buffer too short for the packet header",
        })
    }
}
