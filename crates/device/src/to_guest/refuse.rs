//! Packets that the guest does not get.

use ringway_net::{DropReason, Put};
use ringway_virtq::DeviceQueue;

use super::ToGuest;

impl<Q: DeviceQueue> ToGuest<Q> {
    pub(super) fn no_room(&mut self) -> Put {
        match self.ring.broken {
            Some(_) => self.refuse(DropReason::LinkDown),
            // Waiting would not help.
            None if self.never_fits => self.refuse(DropReason::TooLong),
            None => Put::NoRoom,
        }
    }

    /// The packet is longer than the buffers, in which its beginning is now.
    #[cold]
    pub(super) fn refuse_written(&mut self) -> Put {
        let written = self.lists.window.next_pieces(&self.negotiated);
        written.iter().for_each(|&piece| self.ring.regions.mark(piece));
        self.refuse(DropReason::TooLong)
    }

    pub(super) fn refuse(&mut self, reason: DropReason) -> Put {
        self.counters.count_drop(reason);
        Put::Refused
    }
}
