//! Counters of everything a worker owns, at one moment.

use ringway_device::{Queue, QueueId};

use crate::command::PortSnapshot;
use crate::port::{End, GuestEnd, Port};

/// What is in a slot; `None` for nothing.
pub(crate) fn snapshot(port: &Port) -> Option<PortSnapshot> {
    let mut snapshot = match &port.end {
        End::Absent => return None,
        End::Tap(tap) => PortSnapshot {
            port: port.of,
            pair: port.pair.pair,
            to_end: tap.to_tap,
            from_end: tap.from_tap,
            running: Vec::new(),
            broken: Vec::new(),
            mac: None,
            pacing: Vec::new(),
            refused_commands: 0,
        },
        End::Guest(guest) => guest_snapshot(port, guest),
    };
    for (drops, refused) in snapshot.from_end.drops.iter_mut().zip(port.refused) {
        *drops += refused;
    }
    Some(snapshot)
}

fn guest_snapshot(port: &Port, guest: &GuestEnd) -> PortSnapshot {
    let queues = &guest.queues;
    let [mut to_end, mut from_end] = queues.counters();
    for (counters, queue) in [(&mut to_end, Queue::ToGuest), (&mut from_end, Queue::FromGuest)] {
        counters.kicks = guest.wires[queue as usize].kicks;
        counters.calls = guest.wires[queue as usize].calls;
    }
    let pair = port.pair.pair;
    let id = |queue| QueueId { pair, queue };
    let running = Queue::ALL.into_iter().filter(|&queue| queues.is_running(queue)).map(id);
    let broken =
        Queue::ALL.into_iter().filter_map(|queue| Some((id(queue), queues.broken(queue)?)));
    PortSnapshot {
        port: port.of,
        pair,
        to_end,
        from_end,
        running: running.collect(),
        broken: broken.collect(),
        mac: Some(queues.control_state().mac),
        pacing: guest.pace.snapshot(pair, &to_end, &from_end).to_vec(),
        refused_commands: queues.refused_commands(),
    }
}
