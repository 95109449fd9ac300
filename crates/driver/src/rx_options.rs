//! How a receiveq works: chosen once, when it starts.

use ringway_net::{HEADER_LEN, Negotiated, NetHeader};

use crate::rx_buffer::{ADAPTIVE_LEN_MAX, ADAPTIVE_LEN_PER_ENTRY, BUFFER_ALIGN, PAGE_LEN};
use crate::{RxBufferSizer, RxScheme};

/// Most elements one posted buffer is divided into.
pub const ELEMENTS_PER_BUFFER_MAX: usize = 32;

/// Bytes of the chunks that `ewma` cuts its buffers from, as Linux does.
const EWMA_CHUNK_LEN: u32 = 32_768;
/// Fewest chunks that leave room to change lengths.
const CHUNKS_MIN: u32 = 4;

/// How buffers are posted, and what the device may send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RxOptions {
    /// `VIRTIO_NET_F_MRG_RXBUF` was negotiated.
    pub mergeable: bool,
    /// How long buffers are.
    pub scheme: RxScheme,
    /// Elements each buffer is divided into, 1 to [`ELEMENTS_PER_BUFFER_MAX`].
    pub elements: u16,
    /// Bytes of the header: 12, or 20 with `HASH_REPORT`.
    pub header_len: usize,
    /// Bytes of memory beyond what fills the ring, for packets that are held.
    pub spare_len: u32,
    /// Offloads that the device may ask of the driver; `None`: any offload.
    pub accept: Option<Negotiated>,
}

impl RxOptions {
    /// One page and a cache line each: packets are spread over as many as they need.
    pub const MERGEABLE: Self = Self::of(RxScheme::Page);

    /// The least that holds any packet when the device may send large ones (virtio 1.2 §5.1.6.3.1).
    pub const BIG: Self = Self::of(RxScheme::Big);

    /// This scheme, with mergeable buffers if it needs them.
    pub const fn of(scheme: RxScheme) -> Self {
        Self {
            mergeable: scheme.needs_mergeable(),
            scheme,
            elements: 1,
            header_len: HEADER_LEN,
            spare_len: 0,
            accept: None,
        }
    }

    /// This scheme on a device with which this was negotiated; [`RxScheme::Big`] if it does not
    /// merge buffers.
    pub fn negotiated(scheme: RxScheme, negotiated: &Negotiated) -> Self {
        let mergeable = negotiated.mergeable;
        Self {
            mergeable,
            header_len: negotiated.header_len,
            accept: Some(*negotiated),
            ..Self::of(if mergeable { scheme } else { RxScheme::Big })
        }
    }

    /// Whether the device may send a packet with this header.
    #[inline]
    pub(crate) fn accepts(&self, header: NetHeader) -> bool {
        self.accept.as_ref().is_none_or(|negotiated| negotiated.expects(&header))
    }

    /// Stops programmer errors.
    pub(crate) fn check(&self) {
        let elements = usize::from(self.elements);
        assert!((1..=ELEMENTS_PER_BUFFER_MAX).contains(&elements), "{elements} elements");
        assert!(matches!(self.header_len, 12 | 20), "header of {} bytes", self.header_len);
        assert!(self.mergeable || !self.scheme.needs_mergeable(), "{:?} merges", self.scheme);
    }

    /// Length and number of the chunks of memory for a ring of this size.
    pub(crate) fn chunks(&self, sizer: &RxBufferSizer, ring_size: u16) -> (u32, u32) {
        let size = u32::from(ring_size);
        let (chunk_len, ring_len) = match sizer {
            RxBufferSizer::Fixed(len) => {
                let chunk_len = apart(*len);
                (chunk_len, chunk_len.saturating_mul(size))
            }
            // A quarter more: when lengths change, chunks are left half cut.
            RxBufferSizer::Ewma(_) => (EWMA_CHUNK_LEN, (PAGE_LEN + PAGE_LEN / 4) * size),
            RxBufferSizer::Adaptive(_) => (ADAPTIVE_LEN_MAX, ADAPTIVE_LEN_PER_ENTRY * size),
        };
        let chunks_min = if self.scheme.is_fixed() { 1 } else { CHUNKS_MIN };
        let spare = self.spare_len.div_ceil(chunk_len);
        (chunk_len, ring_len.div_ceil(chunk_len).max(chunks_min) + spare)
    }
}

/// From one buffer of `len` bytes to the next. Whole pages get a line more: buffers that begin at
/// the same place of a page would all meet in the same few places of a cache (ADR 23).
const fn apart(len: u32) -> u32 {
    if len.is_multiple_of(PAGE_LEN) { len + BUFFER_ALIGN } else { len }
}
