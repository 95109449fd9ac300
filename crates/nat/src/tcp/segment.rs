//! A guest's segment, by the copied head of its packet.

use smoltcp::wire::{TcpOption, TcpPacket};

use super::seq::Seq;

pub(crate) const FIN: u8 = 0x01;
pub(crate) const SYN: u8 = 0x02;
pub(crate) const RST: u8 = 0x04;
pub(crate) const PSH: u8 = 0x08;
pub(crate) const ACK: u8 = 0x10;

/// The MSS of guests that do not say theirs (RFC 9293 §3.7.1), and the least that is believed.
pub(super) const MSS_DEFAULT: u16 = 536;
const MSS_MIN: u16 = 88;

/// Options that are looked at: all that fit into 40 bytes.
const OPTIONS_MAX: usize = 40;

/// Largest shift (RFC 7323 §2.3).
const SCALE_MAX: u8 = 14;

/// A segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Segment {
    pub seq: Seq,
    pub ack: Seq,
    pub flags: u8,
    pub window: u16,
    /// Where its data begins, counted from the TCP header, and how much there is.
    pub data_at: u32,
    pub data_len: u32,
}

/// The options of a SYN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SynOptions {
    pub mss: u16,
    /// `None`: windows are not scaled in either direction.
    pub scale: Option<u8>,
}

impl Segment {
    /// `payload`: the copied part of what the IP packet carries, `len`: all of it, in bytes.
    pub fn parse(payload: &[u8], len: usize) -> Option<Self> {
        let packet = TcpPacket::new_checked(payload).ok()?;
        let data_at = u32::from(packet.header_len());
        Some(Self {
            seq: Seq(packet.seq_number().0.cast_unsigned()),
            ack: Seq(packet.ack_number().0.cast_unsigned()),
            flags: payload[13],
            window: packet.window_len(),
            data_at,
            data_len: u32::try_from(len).ok()?.checked_sub(data_at)?,
        })
    }

    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Whether it opens a connection.
    pub fn begins(&self) -> bool {
        self.flags & (SYN | ACK | RST) == SYN
    }

    /// Sequence numbers that it takes.
    pub fn len(&self) -> u32 {
        self.data_len + u32::from(self.has(FIN)) + u32::from(self.has(SYN))
    }
}

impl SynOptions {
    /// The options of a SYN whose head was copied; a malformed option ends the list.
    pub fn parse(payload: &[u8]) -> Self {
        let mut found = Self { mss: MSS_DEFAULT, scale: None };
        let Ok(packet) = TcpPacket::new_checked(payload) else { return found };
        let mut options = packet.options();
        for _ in 0..OPTIONS_MAX {
            let Ok((rest, option)) = TcpOption::parse(options) else { break };
            match option {
                TcpOption::MaxSegmentSize(mss) => found.mss = mss.max(MSS_MIN),
                TcpOption::WindowScale(scale) => found.scale = Some(scale.min(SCALE_MAX)),
                TcpOption::EndOfList => break,
                _ => {}
            }
            options = rest;
        }
        found
    }
}
