//! Events that the worker tells the control thread.

use ringway_device::QueueId;
use ringway_switch::{AddressNews, PortId};
use ringway_virtq::Why;

/// An event that the worker has noticed.
#[derive(Debug)]
pub enum WorkerEvent {
    /// A guest broke one of its queues; the queue is stopped.
    Broken {
        /// The port.
        port: PortId,
        /// The queue.
        queue: QueueId,
        /// The rule that it broke.
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
        /// The reason.
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
