//! A packet that has arrived: lent while it is looked at, or held for longer.
//!
//! How: the first [`LINEAR_LEN_MAX`] bytes are a private copy, so protocol headers are read without
//! fear of the device changing them; the rest stays where the device wrote it, as fragments. A
//! packet of no more than that keeps no memory of the ring at all.
//!
//! Limits: fragments can still be changed by a dishonest device: copy, then check. At most
//! [`FRAGMENTS_MAX`] fragments can be held.

use core::fmt;
use core::ops::Range;

use ringway_net::{ETHERNET_HEADER_LEN, HEADER_LEN, HEADER_LEN_HASH, NetHeader};
use ringway_virtq::SharedSlice;

use crate::TxFragment;
use crate::rx_buffer::BUFFER_ALIGN;
use crate::rx_memory::{Extent, RxMemory, slice};

/// Bytes of a packet that are copied out, its headers among them.
pub const LINEAR_LEN_MAX: usize = 128;
/// Bytes a copied start is accounted for.
pub(crate) const LINEAR_TRUESIZE: u32 = 128;
const _: () = assert!(LINEAR_TRUESIZE as usize == LINEAR_LEN_MAX);
/// Most fragments of a packet that is held, as many as Linux's.
pub const FRAGMENTS_MAX: usize = 18;
/// Bytes that are copied at once: a cache line, of which every buffer has a whole number.
const BLOCK: usize = BUFFER_ALIGN as usize;
const BLOCKS: usize = (HEADER_LEN_HASH + LINEAR_LEN_MAX).div_ceil(BLOCK);
/// Bytes in front of the header, so that an IP header behind 14 bytes of Ethernet is aligned to 16
/// bytes; only with headers of [`HEADER_LEN`] bytes, not with shorter or longer ones.
const LEAD: usize = 6;
const _: () = assert!((LEAD + HEADER_LEN + ETHERNET_HEADER_LEN).is_multiple_of(16));

/// Room for a header and the start of a packet behind it.
#[derive(Clone)]
#[repr(C, align(64))]
pub(crate) struct Linear {
    lead: [u8; LEAD],
    blocks: [[u8; BLOCK]; BLOCKS],
    /// The bytes of the blocks that are the packet's.
    packet: Range<u32>,
}

impl Linear {
    pub const EMPTY: Self =
        Self { lead: [0; LEAD], blocks: [[0; BLOCK]; BLOCKS], packet: Range { start: 0, end: 0 } };

    /// Copies a header of `header_len` bytes and up to [`LINEAR_LEN_MAX`] bytes of the packet
    /// behind it, in whole blocks; `written` bytes of the buffer count, at least the header.
    #[inline]
    pub fn copy_from(&mut self, buffer: SharedSlice, header_len: u32, written: u32) {
        let end = written.min(header_len + LINEAR_TRUESIZE);
        let used = (end as usize).div_ceil(BLOCK);
        for (at, block) in self.blocks.iter_mut().enumerate().take(used) {
            *block = buffer.read_array(at * BLOCK);
        }
        self.packet = header_len..end;
    }

    /// The header, without a hash.
    #[inline]
    pub fn header(&self) -> NetHeader {
        match self.blocks[0].first_chunk() {
            Some(header) => NetHeader::decode(header),
            None => unreachable!("a header is shorter than a block"),
        }
    }

    /// Bytes that were copied out of the buffer and count.
    #[inline]
    pub fn end(&self) -> u32 {
        self.packet.end
    }

    /// The start of the packet.
    #[inline]
    pub fn packet(&self) -> &[u8] {
        &self.blocks.as_flattened()[self.packet.start as usize..self.packet.end as usize]
    }
}

impl fmt::Debug for Linear {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} linear bytes", self.packet.len())
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
    pub(crate) memory: &'a RxMemory,
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
        self.fragments.iter().map(|fragment| self.memory.bytes(fragment.extent))
    }

    /// Copies the packet to the start of `into`, which must be at least `len` bytes long.
    #[inline]
    pub fn copy_to(&self, into: &mut [u8]) {
        let rest = copy_linear(self.linear(), into);
        if !self.fragments.is_empty() {
            copy_fragments(self.fragments, self.memory.whole(), rest);
        }
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
        let rest = copy_linear(self.linear(), into);
        copy_fragments(&self.fragments[..self.count], self.memory, rest);
    }
}

/// Returns what there is room for behind it.
#[inline]
fn copy_linear<'a>(linear: &[u8], into: &'a mut [u8]) -> &'a mut [u8] {
    let (head, rest) = into.split_at_mut(linear.len());
    head.copy_from_slice(linear);
    rest
}

#[inline(never)]
fn copy_fragments(fragments: &[Fragment], memory: SharedSlice, into: &mut [u8]) {
    let mut rest = into;
    for fragment in fragments {
        let (head, tail) = rest.split_at_mut(fragment.extent.len as usize);
        slice(memory, fragment.extent).read(0, head);
        rest = tail;
    }
}
