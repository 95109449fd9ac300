//! A packet of a tap that was read and not taken yet.

use ringway_net::NetHeader;
use ringway_virtq::SharedSlice;

/// A packet in memory of ours: in `scratch`, or where it was read ahead.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) header: NetHeader,
    pub(crate) bytes: SharedSlice,
    pub(crate) len: u32,
}
