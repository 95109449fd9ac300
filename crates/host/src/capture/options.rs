//! Options of a capture.

use ringway_switch::{Filter, PortId};

use super::record::CaptureDirection;

/// The packets that are captured.
#[derive(Debug, Clone)]
pub struct CaptureOptions {
    /// Of these ports; a record tells its port by the place in this list.
    pub ports: Vec<PortId>,
    /// Only packets that go in this direction.
    pub direction: Option<CaptureDirection>,
    /// Most bytes of a packet that are copied.
    pub snap: u32,
    /// One packet in so many, on average; 1: all.
    pub sample: u32,
    /// Only packets that pass this filter.
    pub filter: Option<Filter>,
}
