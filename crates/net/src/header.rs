//! The header in front of every packet (virtio 1.2 §5.1.6, `struct virtio_net_hdr`).

/// Bytes of the header of a virtio 1.x device without hash report.
pub const HEADER_LEN: usize = 12;

/// `VIRTIO_NET_HDR_F_NEEDS_CSUM`
pub const NEEDS_CSUM: u8 = 1;
/// `VIRTIO_NET_HDR_F_DATA_VALID`
pub const DATA_VALID: u8 = 2;

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

impl NetHeader {
    /// Decodes the 12 bytes of a virtio 1.x header.
    pub fn decode(bytes: &[u8; HEADER_LEN]) -> Self {
        let word = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        Self {
            flags: bytes[0],
            gso_type: bytes[1],
            hdr_len: word(2),
            gso_size: word(4),
            csum_start: word(6),
            csum_offset: word(8),
            num_buffers: word(10),
        }
    }

    /// Encodes to the 12 bytes of a virtio 1.x header.
    pub fn encode(&self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        bytes[0] = self.flags;
        bytes[1] = self.gso_type;
        bytes[2..4].copy_from_slice(&self.hdr_len.to_le_bytes());
        bytes[4..6].copy_from_slice(&self.gso_size.to_le_bytes());
        bytes[6..8].copy_from_slice(&self.csum_start.to_le_bytes());
        bytes[8..10].copy_from_slice(&self.csum_offset.to_le_bytes());
        bytes[10..12].copy_from_slice(&self.num_buffers.to_le_bytes());
        bytes
    }
}
