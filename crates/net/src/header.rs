//! The header in front of every packet (virtio 1.2 §5.1.6, `struct virtio_net_hdr`).
//!
//! Three lengths: 10 bytes (legacy without mergeable buffers), 12 bytes (the usual one) and
//! 20 bytes (with a hash). Fields are little-endian; the guest-endian fields of legacy big-endian
//! guests are not supported. [`NetHeader::check`] is the gate for headers from outside: behind it,
//! offsets are inside the packet.

use core::fmt;

/// Bytes of the header of a virtio 1.x device without hash report.
pub const HEADER_LEN: usize = 12;
/// Bytes of the header of a legacy device without mergeable buffers: no `num_buffers`.
pub const HEADER_LEN_LEGACY: usize = 10;
/// Bytes of the header with `HASH_REPORT`.
pub const HEADER_LEN_HASH: usize = 20;

/// `VIRTIO_NET_HDR_F_NEEDS_CSUM`: the checksum at `csum_start + csum_offset` is to be completed.
pub const NEEDS_CSUM: u8 = 1;
/// `VIRTIO_NET_HDR_F_DATA_VALID`: the device has checked the checksum.
pub const DATA_VALID: u8 = 2;
/// `VIRTIO_NET_HDR_GSO_ECN`: the bit of `gso_type` for TCP with ECN.
pub const GSO_ECN: u8 = 0x80;

/// Values of `gso_type` without the ECN bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GsoType {
    /// Not segmented later.
    None,
    /// TCP over IPv4.
    TcpV4,
    /// UDP fragmentation (never offered by us).
    Ufo,
    /// TCP over IPv6.
    TcpV6,
    /// UDP segmentation (`USO`).
    UdpL4,
}

impl GsoType {
    /// All types.
    pub const ALL: [Self; 5] = [Self::None, Self::TcpV4, Self::Ufo, Self::TcpV6, Self::UdpL4];

    /// The type with that raw value (without the ECN bit), or `None` if there is no such type.
    pub const fn from_raw(raw: u8) -> Option<Self> {
        match raw {
            0 => Some(Self::None),
            1 => Some(Self::TcpV4),
            3 => Some(Self::Ufo),
            4 => Some(Self::TcpV6),
            5 => Some(Self::UdpL4),
            _ => None,
        }
    }

    /// The value on the wire.
    pub const fn raw(self) -> u8 {
        match self {
            Self::None => 0,
            Self::TcpV4 => 1,
            Self::Ufo => 3,
            Self::TcpV6 => 4,
            Self::UdpL4 => 5,
        }
    }
}

/// The header, in host byte order, `num_buffers` included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[doc(alias = "virtio_net_hdr")]
pub struct NetHeader {
    /// `NEEDS_CSUM`, `DATA_VALID`
    pub flags: u8,
    /// Raw value, with the ECN bit 0x80.
    pub gso_type: u8,
    /// Bytes of headers in front of the payload (a hint).
    pub hdr_len: u16,
    /// Payload bytes per segment.
    pub gso_size: u16,
    /// Where the checksummed bytes start.
    pub csum_start: u16,
    /// Where, counted from there, the checksum goes.
    pub csum_offset: u16,
    /// Buffers this packet takes (towards the driver).
    pub num_buffers: u16,
}

/// A header that says nothing, to be lent where a packet has none: it is known by its place, so
/// that it need not be read.
pub static SAYS_NOTHING: NetHeader = NetHeader::ZERO;

/// The fields that `HASH_REPORT` puts behind the 12 bytes (virtio 1.2 §5.1.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[doc(alias = "virtio_net_hdr_v1_hash")]
pub struct HeaderHash {
    /// The hash; meaningless if `report` is 0.
    pub value: u32,
    /// The kind of hash: `VIRTIO_NET_HASH_REPORT_*`, 0 for none.
    pub report: u16,
}

impl NetHeader {
    /// A header that says nothing, as of most packets.
    pub const ZERO: Self = Self {
        flags: 0,
        gso_type: 0,
        hdr_len: 0,
        gso_size: 0,
        csum_start: 0,
        csum_offset: 0,
        num_buffers: 0,
    };

    /// Decodes the 12 bytes of a virtio 1.x header.
    #[inline]
    pub fn decode(bytes: &[u8; HEADER_LEN]) -> Self {
        // Words, and fields out of registers: a load of what lies across two stores that have just
        // been done would wait for both.
        let (words, _) = bytes.as_chunks();
        let [first, second, third] = [0, 1, 2].map(|at| u32::from_le_bytes(words[at]));
        Self {
            flags: (first & 0xff) as u8,
            gso_type: (first >> 8 & 0xff) as u8,
            hdr_len: (first >> 16) as u16,
            gso_size: (second & 0xffff) as u16,
            csum_start: (second >> 16) as u16,
            csum_offset: (third & 0xffff) as u16,
            num_buffers: (third >> 16) as u16,
        }
    }

    /// Whether a driver that wrote these bytes has said nothing: all is 0 but the flags that it
    /// must not set, and `num_buffers`, which means nothing in its direction.
    #[inline]
    pub fn says_nothing(bytes: &[u8; HEADER_LEN]) -> bool {
        let (words, _) = bytes.as_chunks();
        let [first, second, third] = [0, 1, 2].map(|at| u32::from_le_bytes(words[at]));
        let front = u64::from(first) | u64::from(second) << 32;
        let flags = !u64::from(u8::MAX) | u64::from(NEEDS_CSUM);
        (front & flags) | u64::from(third & 0xffff) == 0
    }

    /// Whether all of it is 0, as of most packets.
    #[inline(always)]
    pub fn is_zero(&self) -> bool {
        core::ptr::eq(self, &SAYS_NOTHING) || *self == Self::ZERO
    }

    /// Encodes to the 12 bytes of a virtio 1.x header.
    #[inline]
    pub fn encode(&self) -> [u8; HEADER_LEN] {
        let word = |value: u16, shift: u32| u64::from(value) << shift;
        let front = u64::from(self.flags)
            | u64::from(self.gso_type) << 8
            | word(self.hdr_len, 16)
            | word(self.gso_size, 32)
            | word(self.csum_start, 48);
        let back = u32::from(self.csum_offset) | u32::from(self.num_buffers) << 16;
        let mut bytes = [0; HEADER_LEN];
        bytes[..8].copy_from_slice(&front.to_le_bytes());
        bytes[8..].copy_from_slice(&back.to_le_bytes());
        bytes
    }

    /// Decodes the 10 bytes of a legacy header; `num_buffers` is 1, as such a packet always takes
    /// one buffer.
    pub fn decode_legacy(bytes: &[u8; HEADER_LEN_LEGACY]) -> Self {
        let mut long = [0; HEADER_LEN];
        long[..HEADER_LEN_LEGACY].copy_from_slice(bytes);
        Self { num_buffers: 1, ..Self::decode(&long) }
    }

    /// Decodes the 20 bytes of a header with hash.
    pub fn decode_hash(bytes: &[u8; HEADER_LEN_HASH]) -> (Self, HeaderHash) {
        let mut short = [0; HEADER_LEN];
        short.copy_from_slice(&bytes[..HEADER_LEN]);
        let hash = HeaderHash {
            value: u32::from_le_bytes([bytes[12], bytes[13], bytes[14], bytes[15]]),
            report: u16::from_le_bytes([bytes[16], bytes[17]]),
        };
        (Self::decode(&short), hash)
    }

    /// Encodes to the 20 bytes of a header with hash; the padding is 0.
    pub fn encode_hash(&self, hash: HeaderHash) -> [u8; HEADER_LEN_HASH] {
        let mut bytes = [0; HEADER_LEN_HASH];
        bytes[..HEADER_LEN].copy_from_slice(&self.encode());
        bytes[12..16].copy_from_slice(&hash.value.to_le_bytes());
        bytes[16..18].copy_from_slice(&hash.report.to_le_bytes());
        bytes
    }

    /// Encodes to 20 bytes without a hash. The first 10 or 12 of them are the shorter headers, so
    /// the first [`header_len`](crate::Negotiated::header_len) bytes are right for every peer.
    #[inline]
    pub fn encode_any(&self) -> [u8; HEADER_LEN_HASH] {
        self.encode_hash(HeaderHash::default())
    }

    /// Type of segmentation, without the ECN bit; `None` if the value is not known.
    #[inline]
    pub fn gso(&self) -> Option<GsoType> {
        GsoType::from_raw(self.gso_type & !GSO_ECN)
    }

    /// Whether the ECN bit is set.
    #[inline]
    pub fn ecn(&self) -> bool {
        self.gso_type & GSO_ECN != 0
    }

    /// Whether the checksum has to be completed.
    #[inline]
    pub fn needs_csum(&self) -> bool {
        self.flags & NEEDS_CSUM != 0
    }

    /// Whether nothing is left to do about the packet. Then all other fields mean nothing.
    #[inline]
    pub fn is_plain(&self) -> bool {
        self.gso_type == 0 && !self.needs_csum()
    }

    /// Checks a header from outside against its packet of `packet_len` bytes (without header).
    ///
    /// `hdr_len` is a hint which drivers fill as they like, unknown flags are to be ignored, and
    /// fields that no flag announces mean nothing: none of them is checked.
    ///
    /// # Errors
    /// The first [`HeaderError`] found; the packet must not be passed on.
    #[inline]
    pub fn check(&self, packet_len: u32) -> Result<(), HeaderError> {
        if self.is_plain() {
            return Ok(());
        }
        self.check_offloads(packet_len)
    }

    #[inline(never)]
    fn check_offloads(self, packet_len: u32) -> Result<(), HeaderError> {
        let gso = self.gso().ok_or(HeaderError::GsoType)?;
        if self.ecn() && !matches!(gso, GsoType::TcpV4 | GsoType::TcpV6) {
            return Err(HeaderError::Ecn);
        }
        // In 32 bits: the sum of two 16-bit fields that the peer chose must not wrap.
        let csum_end = u32::from(self.csum_start) + u32::from(self.csum_offset) + CSUM_LEN;
        if self.needs_csum() && csum_end > packet_len {
            return Err(HeaderError::CsumOutside);
        }
        if gso == GsoType::None {
            return Ok(());
        }
        if self.gso_size == 0 {
            return Err(HeaderError::GsoSizeZero);
        }
        // virtio 1.2 §5.1.6.2.1: a driver that asks for segmentation also asks for the checksum.
        // Last, so that a caller that forgives this knows that nothing else is wrong.
        if !self.needs_csum() {
            return Err(HeaderError::GsoWithoutCsum);
        }
        Ok(())
    }
}

/// Bytes of an internet checksum.
const CSUM_LEN: u32 = 2;

/// The fault of a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeaderError {
    /// `gso_type` has no known value.
    GsoType,
    /// The ECN bit without TCP.
    Ecn,
    /// The checksum does not lie inside the packet.
    CsumOutside,
    /// Segmentation without `NEEDS_CSUM`.
    GsoWithoutCsum,
    /// Segmentation into segments of 0 bytes.
    GsoSizeZero,
}

impl fmt::Display for HeaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::GsoType => "gso_type has an unknown value",
            Self::Ecn => "gso_type has the ECN bit without TCP",
            Self::CsumOutside => "csum_start and csum_offset point outside the packet",
            Self::GsoWithoutCsum => "gso_type is set without NEEDS_CSUM",
            Self::GsoSizeZero => "gso_type is set with gso_size 0",
        })
    }
}

impl core::error::Error for HeaderError {}
