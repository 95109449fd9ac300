//! Offload completion: what a sender left undone is done for a receiver that did not accept it.
//!
//! A packet is copied once into private memory; [`complete`] checks it there and cuts it into
//! [`Segments`], each with headers and checksum of its own, in place: the headers of a segment are
//! written in front of its payload, over bytes of segments that were cut before. The result is bit
//! by bit what Linux makes of the same packet (`tcp_gso_segment`, `__udp_gso_segment`,
//! `inet_gso_segment`, `ipv6_gso_segment`, `skb_checksum_help`).
//!
//! Limits: [`SEGMENTS_MAX`] segments per packet; the headers that `layout.rs` knows. Segments are
//! as long as the sender says, whatever the receiver's MTU is: only the sender knows what its peer
//! agreed to. Checksums are completed, never verified.

mod checksum;
pub(crate) mod layout;
mod segment;

use core::fmt;

pub use checksum::Sum;
pub use segment::{Segment, Segments};

use crate::{GsoType, NetHeader};
use layout::Layout;

/// Most segments of one packet: payload of 64 KiB in segments of 64 bytes. A sender that asks for
/// more wants to waste the worker's time.
pub const SEGMENTS_MAX: usize = 1024;

/// Why a packet cannot be completed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Incomplete {
    /// The checksum does not lie inside the packet.
    CsumOutside,
    /// The headers are not what the virtio-net header says, or not known.
    Headers,
    /// More than [`SEGMENTS_MAX`] segments.
    TooManySegments,
}

impl fmt::Display for Incomplete {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CsumOutside => f.write_str("the checksum lies outside the packet"),
            Self::Headers => f.write_str("the headers do not fit gso_type and csum_start"),
            Self::TooManySegments => write!(f, "more than {SEGMENTS_MAX} segments"),
        }
    }
}

impl core::error::Error for Incomplete {}

/// Completes the packet in `bytes`, a private copy without its virtio-net header.
///
/// `accepts_csum`: the receiver takes partial checksums, so segments keep theirs partial.
/// `bytes` is scratch space from here on: segments are made in it, one after the other.
///
/// ```
/// use ringway_net::{NEEDS_CSUM, NetHeader, offload};
///
/// // Ethernet, IPv4 and UDP headers, and the bytes "hello"; the checksum field at 40 holds the
/// // sum of the pseudo header.
/// let mut packet = [0; 47];
/// packet[40..42].copy_from_slice(&0x1434u16.to_be_bytes());
/// packet[42..].copy_from_slice(b"hello");
/// let header =
///     NetHeader { flags: NEEDS_CSUM, csum_start: 34, csum_offset: 6, ..NetHeader::default() };
/// let mut segments = offload::complete(&header, &mut packet, false)?;
/// let segment = segments.cut().unwrap();
/// assert_eq!(segment.header, NetHeader::default());
/// let sum = offload::Sum::default().add_word(0x1434).add_bytes(&segment.bytes[34..]);
/// assert_eq!(sum.fold(), 0xffff, "a right checksum");
/// assert!(segments.cut().is_none());
/// # Ok::<(), offload::Incomplete>(())
/// ```
///
/// # Errors
/// [`Incomplete`]: no receiver without these offloads can have this packet.
pub fn complete<'a>(
    header: &NetHeader,
    bytes: &'a mut [u8],
    accepts_csum: bool,
) -> Result<Segments<'a>, Incomplete> {
    let csum_end = usize::from(header.csum_start) + usize::from(header.csum_offset) + 2;
    if header.needs_csum() && csum_end > bytes.len() {
        return Err(Incomplete::CsumOutside);
    }
    if header.gso() == Some(GsoType::None) {
        return Ok(Segments::whole(header, bytes, accepts_csum));
    }
    let layout = Layout::find(header, bytes).ok_or(Incomplete::Headers)?;
    let payload_len = bytes.len() - layout.payload_at;
    let gso_size = usize::from(header.gso_size);
    if gso_size == 0 || !header.needs_csum() {
        return Err(Incomplete::Headers);
    }
    match payload_len.div_ceil(gso_size) {
        // Linux: too small a packet is not really an unsegmented one.
        0 | 1 => Ok(Segments::whole(header, bytes, accepts_csum)),
        2..=SEGMENTS_MAX => Ok(Segments::of(header, layout, bytes, accepts_csum)),
        _ => Err(Incomplete::TooManySegments),
    }
}
