//! A packet that has arrived: lent while it is looked at, or held for longer.
//!
//! How: the first [`LINEAR_LEN_MAX`] bytes are a private copy, so protocol headers are read without
//! fear of the device changing them; the rest stays where the device wrote it, as fragments. A
//! packet of no more than that keeps no memory of the ring at all.
//!
//! Limits: fragments can still be changed by a dishonest device: copy, then check. At most
//! [`FRAGMENTS_MAX`] fragments can be held.

use core::fmt;

use ringway_net::{HEADER_LEN_HASH, NetHeader};
use ringway_virtq::SharedSlice;

use crate::TxFragment;
use crate::rx_memory::{Extent, slice};

/// Bytes of a packet that are copied out, its headers among them.
pub const LINEAR_LEN_MAX: usize = 128;
/// Bytes a copied start is accounted for.
pub(crate) const LINEAR_TRUESIZE: u32 = 128;
/// Most fragments of a packet that is held, as many as Linux's.
pub const FRAGMENTS_MAX: usize = 18;
/// Where the packet starts in the linear area: behind a header, and so that an IP header behind
/// 14 bytes of Ethernet is aligned to 16 bytes.
const PACKET_AT: usize = 66;
const _: () = assert!(PACKET_AT >= HEADER_LEN_HASH && (PACKET_AT + 14).is_multiple_of(16));

/// Room for a header and the start of a packet behind it.
#[derive(Clone)]
#[repr(align(64))]
pub(crate) struct Linear {
    bytes: [u8; PACKET_AT + LINEAR_LEN_MAX],
    len: usize,
}

impl Linear {
    pub const EMPTY: Self = Self { bytes: [0; PACKET_AT + LINEAR_LEN_MAX], len: 0 };

    /// Copies a header of `header_len` bytes and up to [`LINEAR_LEN_MAX`] bytes of the packet
    /// behind it; `written` bytes of the buffer count, at least the header.
    #[inline]
    pub fn copy_from(&mut self, buffer: SharedSlice, header_len: usize, written: usize) {
        let start = PACKET_AT - header_len;
        if buffer.len() >= header_len + LINEAR_LEN_MAX {
            // One length for all packets: the copy becomes a few plain moves.
            buffer.read(0, &mut self.bytes[start..]);
        } else {
            buffer.read(0, &mut self.bytes[start..start + buffer.len()]);
        }
        self.len = (written - header_len).min(LINEAR_LEN_MAX);
    }

    /// The header's bytes.
    #[inline]
    pub fn header<const LEN: usize>(&self, header_len: usize) -> &[u8; LEN] {
        match self.bytes[PACKET_AT - header_len..].first_chunk() {
            Some(header) => header,
            None => unreachable!("a header is shorter than the linear area"),
        }
    }

    /// The start of the packet.
    #[inline]
    pub fn packet(&self) -> &[u8] {
        &self.bytes[PACKET_AT..PACKET_AT + self.len]
    }
}

impl fmt::Debug for Linear {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} linear bytes", self.len)
    }
}

/// Neighbouring bytes of a packet, in one or several buffers.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Fragment {
    pub extent: Extent,
    pub buffers: u32,
}

/// A packet lent by [`NetRx::receive`](crate::NetRx::receive).
#[derive(Debug)]
pub struct Received<'a> {
    /// The header as the device wrote it, checked: what it points at is inside the packet.
    pub header: NetHeader,
    /// Bytes of the packet, without header.
    pub len: u32,
    /// Bytes of memory that the packet holds: its linear area, and all of the buffers it is in.
    pub truesize: u32,
    pub(crate) linear: &'a Linear,
    pub(crate) fragments: &'a [Fragment],
    pub(crate) memory: SharedSlice,
}

impl Received<'_> {
    /// The start of the packet, privately copied: all of it, or [`LINEAR_LEN_MAX`] bytes.
    #[inline]
    pub fn linear(&self) -> &[u8] {
        self.linear.packet()
    }

    /// The rest of the packet, in order.
    #[inline]
    pub fn fragments(&self) -> impl ExactSizeIterator<Item = SharedSlice> {
        self.fragments.iter().map(|fragment| slice(self.memory, fragment.extent))
    }

    /// Copies the packet to the start of `into`, which must be at least `len` bytes long.
    pub fn copy_to(&self, into: &mut [u8]) {
        copy(self.linear(), self.fragments(), into);
    }
}

/// A packet taken out of the ring by [`NetRx::hold`](crate::NetRx::hold): it stays until it is
/// given to [`NetRx::release`](crate::NetRx::release) of the same queue. One that is dropped keeps
/// its memory for ever.
#[derive(Debug)]
#[must_use = "its memory comes back with release()"]
pub struct Held {
    /// As in [`Received`].
    pub header: NetHeader,
    /// Bytes of the packet, without header.
    pub len: u32,
    /// Bytes of memory that the packet holds.
    pub truesize: u32,
    pub(crate) linear: Linear,
    pub(crate) fragments: [Fragment; FRAGMENTS_MAX],
    pub(crate) count: usize,
    pub(crate) memory: SharedSlice,
    pub(crate) device_address: u64,
}

impl Held {
    /// As [`Received::linear`].
    pub fn linear(&self) -> &[u8] {
        self.linear.packet()
    }

    /// As [`Received::fragments`].
    pub fn fragments(&self) -> impl ExactSizeIterator<Item = SharedSlice> {
        self.fragments[..self.count].iter().map(|fragment| slice(self.memory, fragment.extent))
    }

    /// Where the device sees the fragments: to send them on without a copy.
    pub fn tx_fragments(&self) -> impl ExactSizeIterator<Item = TxFragment> {
        self.fragments[..self.count].iter().map(|Fragment { extent, .. }| TxFragment {
            device_address: self.device_address + u64::from(extent.offset),
            len: extent.len,
        })
    }

    /// As [`Received::copy_to`].
    pub fn copy_to(&self, into: &mut [u8]) {
        copy(self.linear(), self.fragments(), into);
    }
}

fn copy(linear: &[u8], fragments: impl Iterator<Item = SharedSlice>, into: &mut [u8]) {
    let (head, mut rest) = into.split_at_mut(linear.len());
    head.copy_from_slice(linear);
    for fragment in fragments {
        let (head, tail) = rest.split_at_mut(fragment.len());
        fragment.read(0, head);
        rest = tail;
    }
}
