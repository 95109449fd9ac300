//! Room at a receiver: how long packets wait for it, and which ones do.

use ringway_net::Nanos;
use ringway_switch::PortId;

use crate::memory::ring_words::{BYTES_MAX, PACKETS_MAX};
use crate::port::hold_credit::HoldCredit;

/// Most packets that may wait for one receiver in the rings to this worker.
const BACKLOG_PACKETS_MAX: usize = PACKETS_MAX / 4;
/// Most bytes of these packets.
const BACKLOG_BYTES_MAX: usize = BYTES_MAX / 4;

/// The place where a packet waits for room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RoomAt {
    /// Buffers of the guest in this slot, or the tap's queue.
    Slot(PortId),
    /// The ring to this worker.
    Worker(u16),
}

/// The state of the room at one receiver.
#[derive(Debug)]
pub(crate) struct ReceiverRoom {
    /// Its guest posted no buffers for a whole hold: no packet waits for it until it does.
    pub(crate) is_stuck: bool,
    /// How long others still wait for it.
    pub(crate) credit: HoldCredit,
    /// Packets from other workers that wait for it.
    pub(crate) backlog: Option<Backlog>,
}

/// Packets that stay in the rings of other workers until there is room.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Backlog {
    /// Then the receiver counts as stuck.
    pub(crate) until: Nanos,
    packets: usize,
    bytes: usize,
}

impl ReceiverRoom {
    pub(crate) fn new() -> Self {
        Self { is_stuck: false, credit: HoldCredit::new(), backlog: None }
    }
}

impl Backlog {
    pub(crate) fn new(until: Nanos) -> Self {
        Self { until, packets: 0, bytes: 0 }
    }

    /// Counts one packet more; `false`: it is too much.
    pub(crate) fn add(&mut self, len: usize) -> bool {
        self.packets += 1;
        self.bytes += len;
        self.packets <= BACKLOG_PACKETS_MAX && self.bytes <= BACKLOG_BYTES_MAX
    }

    /// The packets that stay are counted anew.
    pub(crate) fn recount(&mut self) {
        (self.packets, self.bytes) = (0, 0);
    }
}
