//! The counters of a queue, under the names of the specification where it has one (virtio 1.3
//! §5.1.6.5.8.4, seen from the driver), and under our own for what only a driver knows.

use ringway_net::{Counters, DropReason};

/// Statistics of a receiveq.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RxStatistics {
    /// Kicks sent about new buffers.
    pub rx_notifications: u64,
    /// Packets handed up.
    pub rx_packets: u64,
    /// Their bytes, without headers.
    pub rx_bytes: u64,
    /// Packets that arrived and were not handed up.
    pub rx_drops: u64,
    /// Of these: lengths, `num_buffers` or headers that make no sense.
    pub rx_drop_malformed: u64,
    /// Of these: offloads that were not negotiated.
    pub rx_drop_offload: u64,
    /// Buffers whose bytes lie right behind those of the buffer before.
    pub coalesced: u64,
    /// Packets taken out of the ring, and given back.
    pub held: u64,
    /// Packets that were held and came back.
    pub released: u64,
    /// Packets in too many places to be held.
    pub hold_refused: u64,
    /// Times that a slot stayed empty because there was no memory for it.
    pub no_memory: u64,
    /// Buffers that have memory now: posted, or lent.
    pub posted_buffers: u64,
    /// Their bytes.
    pub posted_bytes: u64,
    /// Length of the next buffer, in bytes.
    pub buffer_len: u32,
}

impl RxStatistics {
    pub(crate) fn with(self, counters: &Counters) -> Self {
        let drops = |reason: DropReason| counters.drops[reason as usize];
        Self {
            rx_notifications: counters.kicks,
            rx_packets: counters.packets,
            rx_bytes: counters.bytes,
            rx_drops: counters.drops.iter().sum(),
            rx_drop_malformed: drops(DropReason::Malformed),
            rx_drop_offload: drops(DropReason::Offload),
            ..self
        }
    }
}

/// Statistics of a transmitq.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TxStatistics {
    /// Kicks sent about packets.
    pub tx_notifications: u64,
    /// Packets handed to the device.
    pub tx_packets: u64,
    /// Their bytes, without headers.
    pub tx_bytes: u64,
    /// Packets that were not sent.
    pub tx_drops: u64,
    /// Packets with fragments in place.
    pub in_place: u64,
    /// Times that used slots were taken back; each takes all there are.
    pub reclaims: u64,
}

impl TxStatistics {
    pub(crate) fn with(self, counters: &Counters) -> Self {
        Self {
            tx_notifications: counters.kicks,
            tx_packets: counters.packets,
            tx_bytes: counters.bytes,
            tx_drops: counters.drops.iter().sum(),
            ..self
        }
    }
}
