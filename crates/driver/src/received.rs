//! A packet that has arrived: lent while it is looked at, or held for longer.
//!
//! How: all but the header stays where the device wrote it. The first [`LINEAR_LEN_MAX`] bytes are
//! copied once, when the caller looks at them, so protocol headers are read without fear of the
//! device changing them; the rest is lent as fragments. A packet of no more than that keeps no
//! memory of the ring.
//!
//! Limits: what was not looked at can still be changed by a dishonest device: copy, then check. At
//! most [`FRAGMENTS_MAX`] fragments can be held.

use core::cell::{Cell, OnceCell};
use core::fmt;

use ringway_net::{ETHERNET_HEADER_LEN, NetHeader};
use ringway_virtq::SharedSlice;

use crate::TxFragment;
use crate::rx_memory::{Extent, RxMemory, slice};

/// Bytes of a packet that are copied when it is looked at, its headers among them.
pub const LINEAR_LEN_MAX: usize = 128;
/// Bytes a copied start is accounted for.
pub(crate) const LINEAR_TRUESIZE: u32 = 128;
const _: () = assert!(LINEAR_TRUESIZE as usize == LINEAR_LEN_MAX);
/// Most fragments of a packet that is held, as many as Linux's.
pub const FRAGMENTS_MAX: usize = 18;
/// Bytes in front of the packet, so that an IP header behind 14 bytes of Ethernet is aligned to 16.
const LEAD: usize = 2;
const _: () = assert!((LEAD + ETHERNET_HEADER_LEN).is_multiple_of(16));

/// A private copy of the start of a packet.
#[derive(Clone)]
#[repr(C, align(16))]
pub(crate) struct Linear {
    lead: [u8; LEAD],
    bytes: [u8; LINEAR_LEN_MAX],
    len: u32,
}

impl Linear {
    fn copy_of(start: SharedSlice, len: u32) -> Self {
        let mut linear = Self { lead: [0; LEAD], bytes: [0; LINEAR_LEN_MAX], len };
        start.read(0, &mut linear.bytes[..len as usize]);
        linear
    }

    fn packet(&self) -> &[u8] {
        &self.bytes[..self.len as usize]
    }
}

impl fmt::Debug for Linear {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} linear bytes", self.len)
    }
}

/// The start of the packet that is lent: where it is, and its copy once the caller has looked at
/// it.
#[derive(Debug, Default)]
pub(crate) struct Start {
    /// At most [`LINEAR_LEN_MAX`] bytes, behind the header.
    extent: Extent,
    copy: OnceCell<Linear>,
    is_read: Cell<bool>,
}

impl Start {
    /// Of another packet, that begins at `offset` with `len` bytes in one piece.
    #[inline]
    pub fn begin(&mut self, offset: u32, len: u32) {
        self.extent = Extent { offset, len: len.min(LINEAR_TRUESIZE) };
        self.copy = OnceCell::new();
        self.is_read.set(false);
    }

    /// Whether the caller has read it, in one way or the other.
    #[inline]
    pub fn is_read(&self) -> bool {
        self.is_read.get()
    }

    /// The copy, made now unless it was before: what was looked at never changes.
    pub fn linear(&self, memory: &RxMemory) -> &Linear {
        self.is_read.set(true);
        self.copy.get_or_init(|| Linear::copy_of(memory.bytes(self.extent), self.extent.len))
    }

    /// Its bytes.
    #[inline]
    pub fn len(&self) -> u32 {
        self.extent.len
    }

    /// Copies it to the start of `into`; returns what there is room for behind it.
    #[inline]
    fn copy_to<'a>(&self, memory: &RxMemory, into: &'a mut [u8]) -> &'a mut [u8] {
        if let Some(linear) = self.copy.get() {
            return copy_linear(linear.packet(), into);
        }
        self.is_read.set(true);
        let (head, rest) = into.split_at_mut(self.extent.len as usize);
        memory.whole().read(self.extent.offset as usize, head);
        rest
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
    pub(crate) start: &'a Start,
    pub(crate) fragments: &'a [Fragment],
    pub(crate) memory: &'a RxMemory,
}

impl Received<'_> {
    /// The start of the packet: all of it, or [`LINEAR_LEN_MAX`] bytes. The first call copies it;
    /// from then on it is what every call returns, [`hold`](crate::NetRx::hold) included.
    #[inline]
    pub fn linear(&self) -> &[u8] {
        self.start.linear(self.memory).packet()
    }

    /// The rest of the packet, in order.
    #[inline]
    pub fn fragments(&self) -> impl ExactSizeIterator<Item = SharedSlice> {
        self.fragments.iter().map(|fragment| self.memory.bytes(fragment.extent))
    }

    /// Copies the packet to the start of `into`, which must be at least `len` bytes long. Whatever
    /// was not copied by [`linear`](Self::linear) is read from where the device wrote it: what
    /// counts is in `into`, another call may bring something else.
    #[inline]
    pub fn copy_to(&self, into: &mut [u8]) {
        let rest = self.start.copy_to(self.memory, into);
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
