//! What the control thread asks of a worker about captures and mirrors.

use std::sync::Arc;

use ringway_switch::{Filter, PortId};

use super::CaptureFile;
use super::record::CaptureDirection;

/// What is captured.
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

/// A command about captures, or mirrors.
#[derive(Debug)]
pub enum ObserverCommand {
    /// Copies of packets go to that file from now on.
    Start {
        /// The number of the capture.
        id: u32,
        /// What is copied.
        options: Arc<CaptureOptions>,
        /// Where to: each worker has a ring in it.
        file: Arc<CaptureFile>,
    },
    /// A capture ends.
    End {
        /// Its number.
        id: u32,
    },
    /// These are all mirrors from now on.
    Mirror {
        /// Of which port, and where copies go.
        mirrors: Vec<(PortId, PortId)>,
    },
}
