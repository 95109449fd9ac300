//! The other end of a cable: with exactly two ports there is nothing to look up.

use ringway_device::Queue;

use crate::forward::Fabric;
use crate::port::pair_map::PairOwner;
use crate::port::queue_pair::{End, QueuePair};

impl Fabric<'_> {
    /// The guest at the other end of the cable, if its queues can be filled directly.
    pub(crate) fn cable_guest(&mut self) -> Option<&mut QueuePair> {
        if self.delivery.observers.is_some() {
            return None;
        }
        let port = self.receivers.port(self.cable?)?;
        // A guest's steering table, or another worker's queue, needs the packet first.
        let pair = port.pairs.steering.pair_unseen(self.delivery.pair)?;
        let PairOwner::Here(slot) = port.owner_of(pair) else { return None };
        let pair = self.receivers.slot(slot)?;
        match &pair.end {
            // Buffers that are not enough for the longest packet may be for others. A read that is
            // not used would have to be marked as well.
            End::Guest(guest)
                if pair.carrier.takes()
                    && guest.queues.is_running(Queue::ToGuest)
                    && !guest.queues.never_fits()
                    && !guest.memory.has_log() =>
            {
                self.delivery.dirty.add(pair.slot);
                self.delivery.note.delivers_into(pair.port);
                Some(pair)
            }
            _ => None,
        }
    }
}
