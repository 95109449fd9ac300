//! What the control thread asks of the worker, and what the worker tells the control thread.
//!
//! Commands are carried out between visits, so nothing on the data path needs a lock.

use std::sync::mpsc;

use ringway_device::QueueId;
use ringway_foreign::UntrustedFd;
use ringway_switch::{AddressNews, PortId};
use ringway_virtq::{Position, Why};

use crate::capture::ObserverCommand;
use crate::os::eventfd::{CallFd, Callee, KickFd};
use crate::worker::look_command::LookCommand;
use crate::worker::nat_command::NatCommand;

/// Where the answer to a command goes.
pub type Answer<T> = mpsc::SyncSender<T>;

/// The file descriptors a queue notifies through; a missing one means polling or no notification.
#[derive(Debug, Default)]
pub struct QueueFds {
    /// Guest → device.
    pub kick: Option<KickFd>,
    /// Device → guest.
    pub call: Option<CallFd>,
    /// Device → front-end: the queue is broken.
    pub error: Option<CallFd>,
    /// The guest is called as soon as the queue runs: the data plane before may have shown
    /// something and not said so.
    pub calls_at_start: bool,
}

/// One request to the worker.
#[derive(Debug)]
pub enum Command {
    /// About a router.
    Nat(NatCommand),
    /// About the switch.
    Look(LookCommand),
    /// About captures and mirrors.
    Observe(ObserverCommand),
}

/// How far a transmitq was emptied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Discarded {
    /// Where it stands.
    pub position: Position,
    /// There is more in it already: the next kick may be one that was sent.
    pub has_more: bool,
}

/// One notification fd of a running queue.
#[derive(Debug)]
pub enum NotifyFd {
    /// Guest → device.
    Kick(Option<KickFd>),
    /// Device → guest.
    Call(Option<CallFd>),
    /// Device → front-end.
    Error(Option<CallFd>),
}

/// What the worker noticed.
#[derive(Debug)]
pub enum WorkerEvent {
    /// A guest broke one of its queues; the queue is stopped.
    Broken {
        /// The port.
        port: PortId,
        /// The queue.
        queue: QueueId,
        /// What it did.
        why: Why,
    },
    /// The interface of a tap is gone; packets for it are dropped and counted.
    TapGone {
        /// The port.
        port: PortId,
    },
    /// A guest has set something that the other workers must know, or has announced itself.
    ControlChanged {
        /// The port.
        port: PortId,
    },
    /// The worker slept in page faults of a guest's memory, again and again, and uses nothing of
    /// the guest any more.
    Stalled {
        /// The port.
        port: PortId,
    },
    /// A queue that its guest had broken goes on: memory has come that it needed.
    GoesOn {
        /// The port.
        port: PortId,
        /// The queue.
        queue: QueueId,
    },
    /// A queue did not continue where the journal says that it was left: it has started anew.
    StartedAnew {
        /// The port.
        port: PortId,
        /// The queue.
        queue: QueueId,
        /// What is wrong.
        why: Why,
    },
    /// The switch has learned addresses, or has forgotten some; told now and then.
    Learned,
    /// A router knows something else of its stations; told once, until it is asked.
    Stations {
        /// The port.
        router: PortId,
    },
    /// An address has moved from one port to another, or belongs to another one; not all are told.
    Address(AddressNews),
}

impl QueueFds {
    /// Takes over the fds a front-end sent.
    ///
    /// # Errors
    /// One of them is neither an eventfd nor a socket.
    pub fn new(
        callee: &Callee,
        kick: Option<UntrustedFd>,
        call: Option<UntrustedFd>,
        error: Option<UntrustedFd>,
    ) -> std::io::Result<Self> {
        let call_fd = |fd| CallFd::new(fd, callee);
        Ok(Self {
            kick: kick.map(KickFd::new).transpose()?,
            call: call.map(call_fd).transpose()?,
            error: error.map(call_fd).transpose()?,
            calls_at_start: false,
        })
    }
}
