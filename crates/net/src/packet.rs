//! Packets are lent, never owned: the two ends of every port.

use ringway_virtq::SharedSlice;

use crate::{DropReason, ETHERNET_HEADER_LEN, NetHeader};

/// Longest packet without its header: 64 KiB of IP payload with Ethernet and VLAN headers.
pub const PACKET_LEN_MAX: u32 = 65_550 + 8;

/// An Ethernet frame that still lies in its sender's memory.
#[derive(Debug, Clone, Copy)]
pub struct Packet<'a> {
    /// Decoded header; already checked against the packet's length.
    pub header: &'a NetHeader,
    /// The bytes after the header, in order; no piece is empty.
    pub payload: &'a [SharedSlice],
    /// Sum of the pieces' lengths in bytes.
    pub len: u32,
}

impl Packet<'_> {
    /// The Ethernet header, copied out of the first pieces, or `None` if the packet is shorter.
    #[inline]
    pub fn ethernet_header(&self) -> Option<[u8; ETHERNET_HEADER_LEN]> {
        if let Some(first) = self.payload.first()
            && first.len() >= ETHERNET_HEADER_LEN
        {
            return Some(first.read_array(0));
        }
        let mut header = [0; ETHERNET_HEADER_LEN];
        (self.copy_out(&mut header) == ETHERNET_HEADER_LEN).then_some(header)
    }

    /// Whether it begins with that Ethernet header. What it begins with later is another request.
    #[inline]
    pub fn begins_with(&self, header: &[u8; ETHERNET_HEADER_LEN]) -> bool {
        if let Some(first) = self.payload.first()
            && first.len() >= ETHERNET_HEADER_LEN
        {
            // In two words, which have two bytes in common.
            let [front, back] = [0, ETHERNET_HEADER_LEN - 8].map(|at| first.read_array::<8>(at));
            return header.first_chunk() == Some(&front) && header.last_chunk() == Some(&back);
        }
        self.ethernet_header().as_ref() == Some(header)
    }

    /// Copies the packet's first bytes into `into`; returns how many, which is the smaller of the
    /// packet's and the slice's length.
    ///
    /// The sender may change its memory at any time: two copies may differ.
    pub fn copy_out(&self, into: &mut [u8]) -> usize {
        let mut copied = 0;
        for piece in self.payload {
            let len = piece.len().min(into.len() - copied);
            if len == 0 {
                break;
            }
            piece.read(0, &mut into[copied..copied + len]);
            copied += len;
        }
        copied
    }
}

/// The result for a packet that was handed to a sink.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Put {
    /// Taken; visible to the other side after the next flush.
    Done,
    /// No room now; nothing changed. The same packet may be offered again later.
    NoRoom,
    /// Will never be taken (and was counted as dropped by the sink).
    Refused,
    /// The receiver does not accept an offload of it; nothing changed and nothing was counted. It
    /// will take what [`complete`](crate::offload::complete) makes of the packet.
    Unfinished,
}

/// Where packets come from.
pub trait PacketSource {
    /// The next packet, without taking it. Calling again lends the same packet again.
    fn peek(&mut self) -> Option<Packet<'_>>;

    /// How many segments of the packet that is lent its receiver has already; 0 if none is lent.
    fn segments_done(&self) -> usize;

    /// Remembers that number for as long as the packet is lent.
    fn set_segments_done(&mut self, count: usize);

    /// Packets that made no sense, or were too long, and so were never lent: how often so far, by
    /// reason.
    fn dropped(&self) -> [u64; DropReason::ALL.len()];

    /// Packets taken from now on until the next flush are read only then. If this process ends
    /// before, it has to be there again.
    fn read_at_flush(&mut self) {}

    /// Takes the packet last lent by [`peek`](Self::peek); its memory goes back with the next
    /// flush.
    fn pop(&mut self);
}

/// Where packets go.
pub trait PacketSink {
    /// Copies one packet in.
    fn put(&mut self, packet: &Packet<'_>) -> Put;
}
