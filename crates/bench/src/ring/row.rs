//! Rows that can be compared: drivers and devices, and directions; and under which conditions.

use std::time::Duration;

use ringway_guests::DpdkFiles;
use ringway_virtq::Format;

use super::driver::Payload;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Who {
    /// The plain ring, on both sides.
    Limit,
    Ringway,
    /// ringway's device, which marks the pages that it writes, as for a guest that is migrated.
    Logged,
    /// ringway's driver, at the work that DPDK's does: see [`Payload::InPlace`].
    InPlace,
    Dpdk,
}

use Who::{Dpdk, InPlace, Limit, Logged, Ringway};

/// The sides, as indexes.
pub(super) const DRIVER: usize = 0;
pub(super) const DEVICE: usize = 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Row(pub [Who; 2]);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PacketDirection {
    GuestToHost,
    HostToGuest,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Setup<'a> {
    pub row: Row,
    pub direction: PacketDirection,
    pub format: Format,
    pub packet_len: usize,
    pub queue_size: u16,
    /// Packets in flight at most where the limit is measured; a power of two.
    pub limit_depth: u64,
    /// Of the driver and of the device.
    pub processors: [usize; 2],
    pub duration: Duration,
    pub dpdk: Option<&'a DpdkFiles>,
}

pub(super) const LIMIT: Row = Row([Limit, Limit]);

/// In the order in which they are measured and shown: what is compared with DPDK × DPDK is near it,
/// and what does the same work is beside it.
pub(super) const ROWS: [Row; 7] = [
    LIMIT,
    Row([Ringway, Logged]),
    Row([Ringway, Ringway]),
    Row([Dpdk, Ringway]),
    Row([Dpdk, Dpdk]),
    Row([InPlace, Dpdk]),
    Row([Ringway, Dpdk]),
];

/// The name of the row that others are compared with.
pub(super) const PEERS: &str = "DPDK × DPDK";

impl Row {
    pub fn name(self) -> String {
        let [driver, device] = self.0.map(|who| match who {
            Limit => "plain ring",
            Ringway => "ringway",
            Logged => "ringway, logged",
            InPlace => "ringway in place",
            Dpdk => "DPDK",
        });
        if self == LIMIT { format!("limit: {driver}") } else { format!("{driver} × {device}") }
    }

    pub fn has_dpdk(self) -> bool {
        self.0.contains(&Dpdk)
    }

    /// Where its driver has packets of that many bytes.
    pub fn payload(self, len: usize) -> Payload {
        if self.0[DRIVER] == InPlace { Payload::InPlace { len } } else { Payload::Own { len } }
    }
}

impl PacketDirection {
    pub fn name(self) -> &'static str {
        match self {
            Self::GuestToHost => "guest → host",
            Self::HostToGuest => "host → guest",
        }
    }

    pub fn is_sender(self, side: usize) -> bool {
        (side == DRIVER) == (self == Self::GuestToHost)
    }
}
