//! What the control thread asks to see of a worker's switch.

use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use ringway_switch::{PortId, Shared, Switch};

use crate::worker::bridge::Bridge;

/// A question about the switch; nothing changes.
#[derive(Debug)]
pub enum LookCommand {
    /// A switch like this one, over a copy of what they have in common, to try something on.
    CopySwitch {
        /// The copy.
        shared: Arc<Shared>,
        /// Where to.
        done: SyncSender<SwitchCopy>,
    },
}

/// A switch to try something on.
pub struct SwitchCopy {
    /// With the same ports and policies.
    pub switch: Box<Switch>,
    /// The two ports, if no packet is looked at: they are a cable.
    pub cable: Option<(PortId, PortId)>,
}

impl Bridge {
    /// A dropped answer means the control thread stopped waiting, which is its own business.
    pub(crate) fn look(&self, command: LookCommand) {
        match command {
            LookCommand::CopySwitch { shared, done } => {
                let switch = Box::new(self.switch.copy_over(shared));
                let _ = done.send(SwitchCopy { switch, cable: self.cable });
            }
        }
    }
}
