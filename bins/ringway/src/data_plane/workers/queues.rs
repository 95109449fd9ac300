//! Jobs about one queue, for the worker that owns its pair.

use anyhow::{Context, anyhow};
use ringway_device::QueueId;
use ringway_host::{CallFd, Discarded, QueueFds, Worker};
use ringway_switch::PortId;
use ringway_virtq::{Broken, Position, QueueSetup};

use super::handle::Promise;
use super::{NO_ANSWER, Workers};

impl Workers {
    /// Starts a queue.
    pub fn start_queue(
        &self,
        port: PortId,
        queue: QueueId,
        setup: QueueSetup,
        fds: QueueFds,
    ) -> Promise<Result<(), Broken>> {
        self.owner(queue.pair).begin(move |worker| worker.start_queue(port, queue, &setup, fds))
    }

    /// Stops a queue: where it stood, if it ran.
    pub fn stop_queue(&self, port: PortId, queue: QueueId) -> Promise<Option<Position>> {
        self.owner(queue.pair).begin(move |worker| worker.stop_queue(port, queue))
    }

    /// Where a packed ring stands, as it shows itself.
    pub fn position_by_ring(
        &self,
        port: PortId,
        queue: QueueId,
        setup: QueueSetup,
    ) -> Promise<Result<Position, Broken>> {
        self.owner(queue.pair).begin(move |worker| worker.position_by_ring(port, queue, &setup))
    }

    /// Empties a transmitq that does not run; `None`: it cannot be emptied.
    pub fn discard_packets(
        &self,
        port: PortId,
        queue: QueueId,
        setup: QueueSetup,
        call: Option<CallFd>,
    ) -> Option<Discarded> {
        let discard = move |worker: &mut Worker| worker.discard_packets(port, queue, &setup, call);
        self.owner(queue.pair).ask(discard).flatten()
    }
}

impl<T> Promise<Result<T, Broken>> {
    /// The same for messages about a queue.
    pub fn of(self, queue: QueueId) -> anyhow::Result<T> {
        self.wait().context(NO_ANSWER)?.map_err(|why| anyhow!("{queue}: {}", why.0))
    }
}
