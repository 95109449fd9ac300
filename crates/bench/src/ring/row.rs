//! What can be compared: drivers and devices, and directions.

use super::driver::Payload;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Who {
    Ringway,
    /// ringway's driver, at the work that DPDK's does: see [`Payload::InPlace`].
    InPlace,
    Dpdk,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Row {
    Limit,
    Pair { driver: Who, device: Who },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    GuestToHost,
    HostToGuest,
}

/// In the order in which they are measured and shown: what is compared with DPDK × DPDK is near it,
/// and what does the same work is beside it.
pub(super) const ROWS: [Row; 6] = [
    Row::Limit,
    Row::Pair { driver: Who::Ringway, device: Who::Ringway },
    Row::Pair { driver: Who::Dpdk, device: Who::Ringway },
    Row::Pair { driver: Who::Dpdk, device: Who::Dpdk },
    Row::Pair { driver: Who::InPlace, device: Who::Dpdk },
    Row::Pair { driver: Who::Ringway, device: Who::Dpdk },
];

/// The name of the row that others are compared with.
pub(super) const PEERS: &str = "DPDK × DPDK";

impl Row {
    pub fn name(self) -> String {
        let name = |who| match who {
            Who::Ringway => "ringway",
            Who::InPlace => "ringway in place",
            Who::Dpdk => "DPDK",
        };
        match self {
            Self::Limit => "limit: plain ring".into(),
            Self::Pair { driver, device } => format!("{} × {}", name(driver), name(device)),
        }
    }

    pub fn has_dpdk(self) -> bool {
        matches!(self, Self::Pair { driver: Who::Dpdk, .. } | Self::Pair { device: Who::Dpdk, .. })
    }
}

impl Who {
    /// Where its driver has packets of that many bytes.
    pub fn payload(self, len: usize) -> Payload {
        if self == Self::InPlace { Payload::InPlace { len } } else { Payload::Own { len } }
    }
}

impl Direction {
    pub fn name(self) -> &'static str {
        match self {
            Self::GuestToHost => "guest → host",
            Self::HostToGuest => "host → guest",
        }
    }
}
