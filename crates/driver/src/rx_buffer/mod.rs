//! How long the next receive buffer is: five schemes, one small value each.
//!
//! How: [`RxScheme`] says what is wanted, [`RxBufferSizer`] is its state on one receiveq. It is
//! told the length of every packet and answers with the length of the next buffer; it touches
//! nothing else. Only `ewma` and `adaptive` have anything to remember.
//!
//! Limits: lengths include the header and are multiples of [`BUFFER_ALIGN`] bytes; what is already
//! posted keeps its length.

use alloc::boxed::Box;

mod adaptive;
mod cost;
mod ewma;
mod histogram;

pub use adaptive::Adaptive;
pub use cost::{ENTRY_COST_BYTES, buffers_for, packet_cost};
pub use ewma::{Ewma, EwmaOptions};

/// Buffer lengths are multiples of this many bytes: a cache line.
pub const BUFFER_ALIGN: u32 = 64;
/// Bytes of a page, the longest buffer of `ewma`.
pub const PAGE_LEN: u32 = 4096;
/// Bytes that hold any packet without mergeable buffers (virtio 1.2 §5.1.6.3.1).
pub const BIG_LEN: u32 = 65_562;
/// Longest buffer of `adaptive` in bytes: any packet whole, in whole cache lines.
pub const ADAPTIVE_LEN_MAX: u32 = aligned(BIG_LEN);
/// Bytes of memory for each ring entry with `adaptive`.
pub const ADAPTIVE_LEN_PER_ENTRY: u32 = 8192;
/// Ethernet header with a VLAN tag, in bytes.
const ETHERNET_LEN: u32 = 14 + 4;
/// MTU in bytes below which `ewma` does not go.
const MTU_MIN: u32 = 1500;

/// The lengths of receive buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RxScheme {
    /// Any packet in one buffer: for devices without mergeable buffers.
    Big,
    /// One page each; where they are cut, a cache line more (ADR 23).
    Page,
    /// Header and one packet of this MTU, in bytes.
    Mtu(u16),
    /// A moving average of packet lengths, as in Linux (commit ab7db917 and what followed).
    Ewma(EwmaOptions),
    /// The length that costs least for the packets seen lately (see [`Adaptive`]).
    Adaptive,
}

impl RxScheme {
    /// All schemes with their usual parameters, in the order in which they were invented.
    pub const ALL: [Self; 5] =
        [Self::Big, Self::Page, Self::Mtu(1500), Self::Ewma(EwmaOptions::LINUX), Self::Adaptive];

    /// The name in options and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Big => "big",
            Self::Page => "page",
            Self::Mtu(_) => "mtu",
            Self::Ewma(_) => "ewma",
            Self::Adaptive => "adaptive",
        }
    }

    /// The scheme of that name with its usual parameters.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scheme| scheme.name() == name)
    }

    /// Whether it needs `VIRTIO_NET_F_MRG_RXBUF`.
    pub const fn needs_mergeable(self) -> bool {
        !matches!(self, Self::Big)
    }

    /// Whether every buffer has the same length.
    pub const fn is_fixed(self) -> bool {
        matches!(self, Self::Big | Self::Page | Self::Mtu(_))
    }
}

/// The state of one receiveq's scheme.
#[derive(Debug, Clone)]
pub enum RxBufferSizer {
    /// `big`, `page` and `mtu`: always this many bytes.
    Fixed(u32),
    /// `ewma`
    Ewma(Ewma),
    /// `adaptive`
    Adaptive(Box<Adaptive>),
}

impl RxBufferSizer {
    /// For a receiveq with `ring_size` entries and headers of `header_len` bytes.
    pub fn new(scheme: RxScheme, header_len: u32, ring_size: u16) -> Self {
        match scheme {
            RxScheme::Big => Self::Fixed(aligned(BIG_LEN - 12 + header_len)),
            RxScheme::Page => Self::Fixed(PAGE_LEN),
            RxScheme::Mtu(mtu) => Self::Fixed(aligned(header_len + ETHERNET_LEN + u32::from(mtu))),
            RxScheme::Ewma(options) => Self::Ewma(Ewma::new(options, header_len, ring_size)),
            RxScheme::Adaptive => Self::Adaptive(Box::new(Adaptive::new(header_len, ring_size))),
        }
    }

    /// Bytes of the next buffer, header included.
    #[inline]
    pub fn next_len(&self) -> u32 {
        match self {
            Self::Fixed(len) => *len,
            Self::Ewma(ewma) => ewma.next_len(),
            Self::Adaptive(adaptive) => adaptive.next_len(),
        }
    }

    /// Learns that a packet of `len` bytes (without header) has arrived whole.
    #[inline]
    pub fn on_packet(&mut self, len: u32) {
        match self {
            Self::Fixed(_) => {}
            Self::Ewma(ewma) => ewma.on_packet(len),
            Self::Adaptive(adaptive) => adaptive.on_packet(len),
        }
    }

    /// Longest buffer this value will ever ask for, in bytes.
    pub fn len_max(&self) -> u32 {
        match self {
            Self::Fixed(len) => *len,
            Self::Ewma(_) => PAGE_LEN,
            Self::Adaptive(_) => ADAPTIVE_LEN_MAX,
        }
    }
}

/// Rounded up to whole cache lines.
const fn aligned(len: u32) -> u32 {
    len.next_multiple_of(BUFFER_ALIGN)
}

/// Bytes each ring entry must take so that a full ring holds the longest packet: the lower bound
/// that Linux has had since its rings may be small.
const fn need_per_entry(header_len: u32, ring_size: u16) -> u32 {
    (header_len + ETHERNET_LEN + 65_535).div_ceil(ring_size as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_schemes_are_one_to_one() {
        for scheme in RxScheme::ALL {
            assert_eq!(RxScheme::from_name(scheme.name()), Some(scheme));
        }
        assert_eq!(RxScheme::from_name("huge"), None);
    }

    #[test]
    fn fixed_schemes_have_the_lengths_of_the_specification() {
        let len = |scheme, header| RxBufferSizer::new(scheme, header, 256).next_len();
        assert_eq!(len(RxScheme::Big, 12), 65_600);
        assert_eq!(len(RxScheme::Big, 20), 65_600);
        assert_eq!(len(RxScheme::Page, 12), 4096);
        assert_eq!(len(RxScheme::Mtu(1500), 12), 1536);
        assert_eq!(len(RxScheme::Mtu(9000), 20), 9088);
    }

    #[test]
    fn lengths_stay_within_their_bounds_whatever_arrives() {
        for scheme in RxScheme::ALL {
            for ring_size in [1, 4, 16, 64, 256, 1024, 32_768] {
                let mut sizer = RxBufferSizer::new(scheme, 12, ring_size);
                for at in 0..5000u32 {
                    sizer.on_packet(at.wrapping_mul(2_654_435_761) >> (at % 17));
                    let len = sizer.next_len();
                    assert!(len.is_multiple_of(BUFFER_ALIGN) && len > 20, "{scheme:?} {len}");
                    assert!(len <= sizer.len_max(), "{scheme:?} {len}");
                }
            }
        }
    }
}
