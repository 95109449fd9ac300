//! Counters of everything a worker owns, at one moment.

use ringway_device::{Queue, QueueId};
use ringway_switch::Switch;

use crate::port::guest_end::GuestEnd;
use crate::port::queue_mode::running_queues;
use crate::port::queue_pair::{End, QueuePair};
use crate::port::table::Ports;
use crate::worker::command::PortSnapshot;
use crate::worker::holds::Holds;

/// Counters of all slots, in the second with this number.
pub(crate) fn snapshots(
    ports: &Ports,
    holds: &Holds,
    switch: &Switch,
    second: u64,
) -> Vec<PortSnapshot> {
    let snapshots = ports.slots.iter().filter_map(|pair| {
        let moved_addresses = switch.moved_to(pair.port);
        let is_held = holds.of(pair.slot).is_some();
        let snapshot = snapshot(pair, is_held, second)?;
        Some(PortSnapshot { moved_addresses, ..snapshot })
    });
    snapshots.collect()
}

/// What is in a slot, in the second with this number; `None` for nothing.
fn snapshot(pair: &QueuePair, is_held: bool, second: u64) -> Option<PortSnapshot> {
    let mut snapshot = match &pair.end {
        End::Absent => return None,
        End::Tap(tap) => PortSnapshot {
            port: pair.port,
            pair: pair.pair.pair,
            to_end: tap.to_tap,
            from_end: tap.from_tap,
            queues: Vec::new(),
            broken: Vec::new(),
            mac: None,
            pacing: Vec::new(),
            refused_commands: 0,
            moved_addresses: 0,
            nat: None,
        },
        End::Nat(nat) => PortSnapshot {
            port: pair.port,
            pair: pair.pair.pair,
            to_end: nat.to_nat,
            from_end: nat.from_nat,
            queues: Vec::new(),
            broken: Vec::new(),
            mac: Some(nat.nat.plan().mac()),
            pacing: Vec::new(),
            refused_commands: 0,
            moved_addresses: 0,
            nat: Some(Box::new(nat.snapshot())),
        },
        End::Guest(guest) => guest_snapshot(pair, guest, is_held, second),
    };
    for (drops, refused) in snapshot.from_end.drops.iter_mut().zip(pair.refused) {
        *drops += refused;
    }
    Some(snapshot)
}

fn guest_snapshot(pair: &QueuePair, guest: &GuestEnd, is_held: bool, second: u64) -> PortSnapshot {
    let queues = &guest.queues;
    let [mut to_end, mut from_end] = queues.counters();
    for (counters, queue) in [(&mut to_end, Queue::ToGuest), (&mut from_end, Queue::FromGuest)] {
        counters.kicks = guest.fds[queue as usize].kicks.total();
        counters.calls = guest.fds[queue as usize].calls;
    }
    let (port, pair) = (pair.port, pair.pair.pair);
    let id = |queue| QueueId { pair, queue };
    let broken =
        Queue::ALL.into_iter().filter_map(|queue| Some((id(queue), queues.broken(queue)?)));
    PortSnapshot {
        port,
        pair,
        to_end,
        from_end,
        queues: running_queues(pair, guest, is_held, second),
        broken: broken.collect(),
        mac: Some(queues.control_state().mac),
        pacing: guest.pace.snapshot(pair, &to_end, &from_end).to_vec(),
        refused_commands: queues.refused_commands(),
        moved_addresses: 0,
        nat: None,
    }
}
