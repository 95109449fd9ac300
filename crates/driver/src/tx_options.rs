//! How a transmitq works, what can be sent on it, and what became of a packet.

use ringway_net::{HEADER_LEN, Negotiated, NetHeader, PACKET_LEN_MAX};

/// How packets are laid out, and what may be asked of the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TxOptions {
    /// Longest packet that is copied, in bytes without header. Each entry of the queue has memory
    /// for one of up to 2,048 bytes, or less if this is less; what is longer shares 4 MiB, or less
    /// if that many packets of this length take less.
    pub packet_len_max: u32,
    /// Header in an element of its own (two descriptors per packet, or one indirect table).
    pub header_apart: bool,
    /// Bytes of the header: 12, or 20 with `HASH_REPORT`.
    pub header_len: usize,
    /// Offloads that the device does for the driver; `None`: any offload.
    pub allow: Option<Negotiated>,
}

impl Default for TxOptions {
    fn default() -> Self {
        Self {
            packet_len_max: PACKET_LEN_MAX,
            header_apart: false,
            header_len: HEADER_LEN,
            allow: None,
        }
    }
}

impl TxOptions {
    /// For a device with which this was negotiated.
    pub fn negotiated(negotiated: &Negotiated) -> Self {
        let allow = Some(*negotiated);
        Self { header_len: negotiated.header_len, allow, ..Self::default() }
    }

    /// Whether the device takes a packet with this header.
    #[inline]
    pub(crate) fn may_send(&self, header: &NetHeader) -> bool {
        self.allow.is_none_or(|negotiated| negotiated.may_send(header))
    }

    /// Stops programmer errors.
    pub(crate) fn check(&self) {
        assert!(self.packet_len_max <= PACKET_LEN_MAX, "{} bytes", self.packet_len_max);
        assert!(matches!(self.header_len, 12 | 20), "header of {} bytes", self.header_len);
    }
}

/// A part of a packet that is sent from where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TxFragment {
    /// Where the device sees it.
    pub device_address: u64,
    /// Its bytes, at least 1.
    pub len: u32,
}

/// The result of sending a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Sent {
    /// Staged; the device sees it after the next flush.
    Done,
    /// Every entry is in flight, or the memory for long packets; nothing changed. Flush, and try
    /// again after the device's call.
    NoRoom,
    /// Longer than what is copied may be, or than any packet: counted and dropped.
    TooLong,
    /// Asks the device for what was not negotiated: counted and dropped.
    NotNegotiated,
}
