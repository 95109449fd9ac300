//! Packets are lent, never owned: the two ends of every port.

use ringway_virtq::SharedSlice;

use crate::NetHeader;

/// Longest packet without its header: 64 KiB of IP payload with Ethernet and VLAN headers.
pub const PACKET_LEN_MAX: u32 = 65_550 + 8;

/// An Ethernet frame that still lies in its sender's memory.
#[derive(Debug, Clone, Copy)]
pub struct Packet<'a> {
    /// Decoded header; already checked against the packet's length.
    pub header: NetHeader,
    /// The bytes after the header, in order; no piece is empty.
    pub payload: &'a [SharedSlice],
    /// Sum of the pieces' lengths in bytes.
    pub len: u32,
}

/// What became of a packet that was handed to a sink.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Put {
    /// Taken; visible to the other side after the next flush.
    Done,
    /// No room now; nothing changed. The same packet may be offered again later.
    NoRoom,
    /// Will never be taken (and was counted as dropped by the sink).
    Refused,
}

/// Where packets come from.
pub trait PacketSource {
    /// The next packet, without taking it. Calling again lends the same packet again.
    fn peek(&mut self) -> Option<Packet<'_>>;

    /// Takes the packet last lent by [`peek`](Self::peek); its memory goes back with the next flush.
    fn pop(&mut self);
}

/// Where packets go.
pub trait PacketSink {
    /// Copies one packet in.
    fn put(&mut self, packet: &Packet<'_>) -> Put;
}
