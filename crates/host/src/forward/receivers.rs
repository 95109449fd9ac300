//! The receivers that a visited queue pair can send packets to.

use ringway_net::DropReason;
use ringway_switch::PortId;

use crate::port::Port;
use crate::port::queue_pair::QueuePair;

/// All ports, and the queue pairs in all slots but the one that packets come from.
pub(crate) struct Receivers<'a> {
    pub(crate) ports: &'a [Port],
    /// Slots before the one that packets come from.
    pub(crate) before: &'a mut [QueuePair],
    /// Slots behind it.
    pub(crate) after: &'a mut [QueuePair],
}

impl<'a> Receivers<'a> {
    #[inline(always)]
    pub(crate) fn port(&self, id: PortId) -> Option<&'a Port> {
        self.ports.get(usize::from(id.0))
    }

    #[inline(always)]
    pub(crate) fn slot(&mut self, slot: PortId) -> Option<&mut QueuePair> {
        let at = usize::from(slot.0);
        match at.checked_sub(self.before.len()) {
            None => self.before.get_mut(at),
            // The slot between the two slices is the source itself.
            Some(behind) => self.after.get_mut(behind.checked_sub(1)?),
        }
    }

    /// Counts a packet for that port, which it has not got, at the first of its slots.
    pub(crate) fn count_drop_at(&mut self, to: PortId, reason: DropReason) {
        if let Some(first) = self.slot(to) {
            first.count_drop(reason);
        }
    }
}
