//! Addresses that belong to guests, and what the control thread is told of addresses that move.
//!
//! A port claims the address that its guest was told is its own for as long as a queue of its first
//! pair runs and its link is up. A guest that is stopped for its migration, or that has gone,
//! claims nothing: its address may turn up at another port.

use ringway_device::Queue;
use ringway_net::Nanos;
use ringway_switch::PortId;

use crate::port::End;
use crate::worker::Worker;
use crate::worker::command::WorkerEvent;

/// At most one move is told in this time, in nanoseconds.
const NEWS_PAUSE_NS: u64 = 1_000_000_000;

impl Worker {
    /// Queues of a slot, or its link, are others now.
    pub(crate) fn refresh_claim(&mut self, slot: PortId) {
        let Some(port) = self.ports.get(usize::from(slot.0)) else { return };
        // The first pair decides, on its worker.
        if port.pair.pair != 0 {
            return;
        }
        let (id, is_link_up, told_mac) = (port.of, port.is_link_up, port.told_mac);
        let End::Guest(guest) = &port.end else { return };
        let runs = [Queue::ToGuest, Queue::FromGuest].map(|queue| guest.queues.is_running(queue));
        match told_mac {
            // Another port has it already: then this one has none.
            Some(mac) if is_link_up && runs.contains(&true) => _ = self.switch.claim(id, mac),
            _ => self.switch.release(id),
        }
    }

    /// Tells the control thread of an address that has moved, or was refused, now and then.
    pub(crate) fn tell_address_news(&mut self) {
        if !self.switch.has_news() || self.turn_at.since(self.news_told_at) < NEWS_PAUSE_NS {
            return;
        }
        if let Some(news) = self.switch.take_news() {
            self.news_told_at = self.turn_at.max(Nanos(1));
            self.tell(WorkerEvent::Address(news));
        }
    }
}
