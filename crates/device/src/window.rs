//! Receive buffers that were read ahead of the packets that will fill them.
//!
//! A peek is undone by forgetting it, so clearing the window loses nothing. Limits: at most
//! [`ELEMENTS_MAX`] buffers and pieces, as many as one packet may have.

use ringway_net::Negotiated;
use ringway_virtq::{Cursor, ELEMENTS_MAX, Elements, Head, SharedSlice};

/// Buffers that were peeked and are not used yet.
#[derive(Debug)]
pub(crate) struct Window {
    pub buffers: Vec<Buffer>,
    pub pieces: Vec<SharedSlice>,
    /// The first buffer that is not used yet.
    pub first: usize,
    /// Bytes of all buffers that are not used yet.
    pub bytes: u64,
    /// Units of work that buffers of many elements took in addition, since this was last taken.
    pub extra_units: u32,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Buffer {
    pub head: Head,
    /// The ring position behind this buffer.
    pub next: Cursor,
    pub pieces_from: usize,
    pub pieces_to: usize,
    pub bytes: u32,
}

/// The lists of a receiveq, empty. To allocate them takes longer than all else of a start, so a
/// port keeps them while its queue does not run.
#[derive(Debug)]
pub struct ReceiveLists {
    pub(crate) elements: Elements,
    pub(crate) window: Window,
    pub(crate) slot: Vec<SharedSlice>,
}

impl ReceiveLists {
    /// Allocates them.
    pub fn new() -> Self {
        let slot = Vec::with_capacity(ELEMENTS_MAX);
        Self { elements: Elements::new(), window: Window::new(), slot }
    }

    pub(crate) fn clear(&mut self) {
        self.elements.clear();
        self.window.clear();
        self.slot.clear();
    }
}

impl Default for ReceiveLists {
    fn default() -> Self {
        Self::new()
    }
}

impl Window {
    pub fn new() -> Self {
        Self {
            buffers: Vec::with_capacity(ELEMENTS_MAX),
            pieces: Vec::with_capacity(ELEMENTS_MAX),
            first: 0,
            bytes: 0,
            extra_units: 0,
        }
    }

    pub fn clear(&mut self) {
        self.buffers.clear();
        self.pieces.clear();
        self.first = 0;
        self.bytes = 0;
    }

    #[inline]
    pub fn is_used_up(&self) -> bool {
        self.first >= self.buffers.len()
    }

    pub fn unused(&self) -> &[Buffer] {
        &self.buffers[self.first..]
    }

    /// The pieces that the next packet may fill: of one buffer, or with mergeable ones of all.
    #[inline]
    pub fn next_pieces(&self, negotiated: &Negotiated) -> &[SharedSlice] {
        let next = &self.buffers[self.first];
        match negotiated.mergeable {
            true => &self.pieces[next.pieces_from..],
            false => &self.pieces[next.pieces_from..next.pieces_to],
        }
    }

    /// Lists in `slot` what of them is behind the header, up to `len` bytes.
    pub fn lay_out(&self, negotiated: &Negotiated, len: u32, slot: &mut Vec<SharedSlice>) {
        slot.clear();
        let mut skip = negotiated.header_len;
        let mut left = len as usize;
        for &piece in self.next_pieces(negotiated) {
            let (front, rest) = piece.split_at(piece.len().min(skip));
            skip -= front.len();
            let (rest, _) = rest.split_at(rest.len().min(left));
            if !rest.is_empty() {
                slot.push(rest);
                left -= rest.len();
            }
            if left == 0 {
                break;
            }
        }
    }

    /// The next buffer, which from now on is used.
    #[inline]
    pub fn take(&mut self) -> Buffer {
        let buffer = self.buffers[self.first];
        self.first += 1;
        self.bytes -= u64::from(buffer.bytes);
        buffer
    }

    pub fn has_room_for(&self, pieces: usize) -> bool {
        self.buffers.len() < ELEMENTS_MAX && self.pieces.len() + pieces <= ELEMENTS_MAX
    }
}
