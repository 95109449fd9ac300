//! Orders to the data plane, as values.

use ringway_switch::PortId;

use super::control_client::ClientId;
use crate::config::PortSpec;

/// Who asked for a change, and what is to be answered beside whether it was done.
#[derive(Debug, Clone, Default)]
pub(super) struct Asked {
    /// `None`: the file, or the command line.
    pub(super) client: Option<ClientId>,
    /// Options that only the next guest will see.
    pub(super) at_next_connection: Vec<&'static str>,
    /// What is probably not meant.
    pub(super) warnings: Vec<String>,
}

/// An order that is not done yet.
#[derive(Debug, Clone)]
pub(super) enum Order {
    /// A port of that name opens.
    Open {
        port: PortId,
        asked: Asked,
    },
    /// A port changes; what it was before.
    Change {
        port: PortId,
        before: Box<PortSpec>,
        from_file: Option<Box<PortSpec>>,
        asked: Asked,
    },
    Remove {
        port: PortId,
        asked: Asked,
    },
    Link {
        port: PortId,
    },
    Unlink {
        port: PortId,
    },
    LinksDown,
}

/// What came of one.
pub(super) struct Finished {
    pub(super) is_told: bool,
    pub(super) is_closing: bool,
    pub(super) refusal: Option<String>,
}
