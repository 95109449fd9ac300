//! A packet in a ring of captures: a head of [`HEAD_LEN`] bytes, then its bytes.

use ringway_net::{DropReason, HEADER_LEN, NetHeader};

/// Bytes in front of each packet.
pub(super) const HEAD_LEN: usize = 40;
/// Records begin at multiples of this.
pub(super) const ALIGNMENT: usize = 8;

const PACKET_LEN_AT: usize = 4;
const KIND_AT: usize = 8;
const PORT_AT: usize = 10;
const PAIR_AT: usize = 12;
const OUTPUT_AT: usize = 14;
const TIME_AT: usize = 16;
const HEADER_AT: usize = 24;
const STANDS_FOR_AT: usize = 36;

/// Bits of the kind.
const FROM_GUEST: u8 = 1;
const BY_RECEIVER: u8 = 2;
/// Of an output: to several ports, and the rest is how many.
const SEVERAL: u16 = 1 << 15;
/// In place of a reason.
const NOT_DROPPED: u8 = 0xff;

/// The direction of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CaptureDirection {
    /// Out of the guest, or out of a tap, into the switch.
    FromGuest,
    /// To the guest, or into a tap.
    ToGuest,
}

/// Where a packet was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DroppedBy {
    /// At the port that is captured.
    Port(DropReason),
    /// At the port that it was for.
    Receiver(DropReason),
}

/// Where a packet went that a port sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CaptureOutput {
    /// Nowhere, or to a port that is not captured.
    Unknown,
    /// To one of the ports that are captured, from 0.
    One(u16),
    /// To so many ports.
    Several(u16),
}

impl CaptureOutput {
    fn encode(self) -> u16 {
        match self {
            Self::Unknown => 0,
            Self::One(place) => place.saturating_add(1) & !SEVERAL,
            Self::Several(count) => count | SEVERAL,
        }
    }

    fn decode(code: u16) -> Self {
        match (code & SEVERAL, code & !SEVERAL) {
            (0, 0) => Self::Unknown,
            (0, number) => Self::One(number - 1),
            (_, count) => Self::Several(count),
        }
    }
}

/// The properties of a packet beside its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CaptureRecord {
    /// The direction in which it went.
    pub direction: CaptureDirection,
    /// The number of the port among those that are captured, from 0.
    pub port: u16,
    /// The number of the queue pair, from 0.
    pub pair: u16,
    /// Where it went, of what was taken from a port.
    pub output: CaptureOutput,
    /// When, in nanoseconds of the monotonic clock.
    pub time_ns: u64,
    /// The work that the sender left undone.
    pub header: NetHeader,
    /// It went no further, and why.
    pub dropped: Option<DroppedBy>,
    /// Packets that it stands for: itself, and those that were left out since the last one.
    pub stands_for: u32,
    /// Its bytes, of which perhaps not all were copied.
    pub packet_len: u32,
}

impl CaptureRecord {
    /// Its head in a ring, with `len` bytes copied.
    pub(super) fn encode(&self, len: u32) -> [u8; HEAD_LEN] {
        let (kind, reason) = match self.dropped {
            None => (0, NOT_DROPPED),
            Some(DroppedBy::Port(reason)) => (0, code(reason)),
            Some(DroppedBy::Receiver(reason)) => (BY_RECEIVER, code(reason)),
        };
        let direction = if self.direction == CaptureDirection::FromGuest { FROM_GUEST } else { 0 };
        let mut head = [0; HEAD_LEN];
        let mut put = |at: usize, bytes: &[u8]| head[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &len.to_le_bytes());
        put(PACKET_LEN_AT, &self.packet_len.to_le_bytes());
        put(KIND_AT, &[kind | direction, reason]);
        put(PORT_AT, &self.port.to_le_bytes());
        put(PAIR_AT, &self.pair.to_le_bytes());
        put(OUTPUT_AT, &self.output.encode().to_le_bytes());
        put(TIME_AT, &self.time_ns.to_le_bytes());
        put(HEADER_AT, &self.header.encode());
        put(STANDS_FOR_AT, &self.stands_for.to_le_bytes());
        head
    }

    /// The record with that head, and how many bytes were copied. Whatever is in it means
    /// something; lengths are checked by the caller.
    pub(super) fn decode(head: &[u8; HEAD_LEN]) -> (Self, u32) {
        let (kind, reason) = (head[KIND_AT], head[KIND_AT + 1]);
        let reason = DropReason::ALL.get(usize::from(reason)).copied();
        let dropped = reason.map(|reason| match kind & BY_RECEIVER {
            0 => DroppedBy::Port(reason),
            _ => DroppedBy::Receiver(reason),
        });
        let direction = match kind & FROM_GUEST {
            0 => CaptureDirection::ToGuest,
            _ => CaptureDirection::FromGuest,
        };
        let record = Self {
            direction,
            port: u16::from_le_bytes(array(head, PORT_AT)),
            pair: u16::from_le_bytes(array(head, PAIR_AT)),
            output: CaptureOutput::decode(u16::from_le_bytes(array(head, OUTPUT_AT))),
            time_ns: u64::from_le_bytes(array(head, TIME_AT)),
            header: NetHeader::decode(&array::<HEADER_LEN>(head, HEADER_AT)),
            dropped,
            stands_for: u32::from_le_bytes(array(head, STANDS_FOR_AT)),
            packet_len: u32::from_le_bytes(array(head, PACKET_LEN_AT)),
        };
        (record, u32::from_le_bytes(array(head, 0)))
    }
}

const _: () = assert!(HEADER_AT + HEADER_LEN <= STANDS_FOR_AT && STANDS_FOR_AT + 4 <= HEAD_LEN);
const _: () = assert!(HEAD_LEN.is_multiple_of(ALIGNMENT));
const _: () = assert!(DropReason::ALL.len() < NOT_DROPPED as usize);

fn code(reason: DropReason) -> u8 {
    u8::try_from(reason as usize).unwrap_or(NOT_DROPPED)
}

fn array<const N: usize>(head: &[u8; HEAD_LEN], at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&head[at..at + N]);
    bytes
}
