//! Where ports come from.

use serde::{Deserialize, Serialize};

/// Where a port comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum PortSource {
    /// The file, or the command line.
    #[default]
    Configuration,
    /// It was added, and is there again after a restart.
    Added,
    /// It was added until then.
    UntilRestart,
}
