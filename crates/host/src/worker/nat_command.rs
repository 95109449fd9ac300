//! What the control thread asks of the worker about routers for guests.

use std::io;
use std::sync::mpsc;

use ringway_nat::{Forward, Note};
use ringway_switch::PortId;

use crate::nat::NatPort;
use crate::nat::listeners::Listener;
use crate::nat::options::NatOptions;
use crate::nat::snapshot::NatLook;

/// What is asked about routers.
#[derive(Debug)]
pub enum NatCommand {
    /// A router joins; only the first worker has one, the others send its packets there.
    Attach {
        /// The port.
        port: PortId,
        /// `None`: another worker has it.
        nat: Option<Box<NatPort>>,
        /// Whether the worker could begin to watch it; if not, it is closed.
        done: mpsc::SyncSender<io::Result<()>>,
    },
    /// Other options of a router.
    Set {
        /// The port.
        port: PortId,
        /// All of them.
        options: Box<NatOptions>,
    },
    /// A router listens where it did for those in `kept`, and elsewhere.
    Listen {
        /// The port.
        port: PortId,
        /// Where it goes on listening; the other listeners are closed.
        kept: Vec<Forward>,
        /// New listeners.
        added: Vec<Listener>,
    },
    /// What there is to see of a router; only the worker that has it answers.
    Look {
        /// The port.
        port: PortId,
        /// Only what is behind the port of this name.
        name: Option<String>,
        /// Where the answer goes.
        done: mpsc::SyncSender<NatLook>,
    },
    /// The stations that a router knows; only the worker that has it answers.
    Notes {
        /// The port.
        port: PortId,
        /// Where the answer goes.
        done: mpsc::SyncSender<Vec<Note>>,
    },
    /// A router goes on with what another one knew of its stations.
    Remember {
        /// The port.
        port: PortId,
        /// All of it.
        notes: Vec<Note>,
    },
    /// What a port is called, which routers tell its guests.
    Name {
        /// The port.
        port: PortId,
        /// Its name.
        name: String,
    },
}
