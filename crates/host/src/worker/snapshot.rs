//! Counters of everything a worker owns, at one moment.

use ringway_device::{Queue, QueueId};

use crate::port::queue_mode::running_queues;
use crate::port::{End, GuestEnd, Port};
use crate::worker::Worker;
use crate::worker::command::PortSnapshot;

impl Worker {
    /// Counters of everything it owns.
    pub(crate) fn snapshots(&self) -> Vec<PortSnapshot> {
        let second = self.effort.second();
        self.ports.iter().filter_map(|port| self.snapshot(port, second)).collect()
    }

    fn snapshot(&self, port: &Port, second: u64) -> Option<PortSnapshot> {
        let is_held = self.holds.of(port.id).is_some();
        let moved_addresses = self.switch.moved_to(port.of);
        let snapshot = snapshot(port, is_held, second);
        snapshot.map(|snapshot| PortSnapshot { moved_addresses, ..snapshot })
    }
}

/// What is in a slot, in the second with this number; `None` for nothing.
fn snapshot(port: &Port, is_held: bool, second: u64) -> Option<PortSnapshot> {
    let mut snapshot = match &port.end {
        End::Absent => return None,
        End::Tap(tap) => PortSnapshot {
            port: port.of,
            pair: port.pair.pair,
            to_end: tap.to_tap,
            from_end: tap.from_tap,
            queues: Vec::new(),
            broken: Vec::new(),
            mac: None,
            pacing: Vec::new(),
            refused_commands: 0,
            moved_addresses: 0,
        },
        End::Guest(guest) => guest_snapshot(port, guest, is_held, second),
    };
    for (drops, refused) in snapshot.from_end.drops.iter_mut().zip(port.refused) {
        *drops += refused;
    }
    Some(snapshot)
}

fn guest_snapshot(port: &Port, guest: &GuestEnd, is_held: bool, second: u64) -> PortSnapshot {
    let queues = &guest.queues;
    let [mut to_end, mut from_end] = queues.counters();
    for (counters, queue) in [(&mut to_end, Queue::ToGuest), (&mut from_end, Queue::FromGuest)] {
        counters.kicks = guest.fds[queue as usize].kicks.total();
        counters.calls = guest.fds[queue as usize].calls;
    }
    let pair = port.pair.pair;
    let id = |queue| QueueId { pair, queue };
    let broken =
        Queue::ALL.into_iter().filter_map(|queue| Some((id(queue), queues.broken(queue)?)));
    PortSnapshot {
        port: port.of,
        pair,
        to_end,
        from_end,
        queues: running_queues(port, guest, is_held, second),
        broken: broken.collect(),
        mac: Some(queues.control_state().mac),
        pacing: guest.pace.snapshot(pair, &to_end, &from_end).to_vec(),
        refused_commands: queues.refused_commands(),
        moved_addresses: 0,
    }
}
