//! Counters of everything a worker owns, at one moment.

use ringway_device::{Queue, QueueId};
use ringway_net::{Counters, MacAddress};
use ringway_switch::{PortId, Switch};
use ringway_virtq::Why;

use crate::journal::worker_line::WorkerLine;
use crate::nat::snapshot::NatSnapshot;
use crate::pace::PaceSnapshot;
use crate::port::guest_end::GuestEnd;
use crate::port::queue_mode::{QueueSnapshot, running_queues};
use crate::port::queue_pair::{End, QueuePair};
use crate::port::table::PortTable;
use crate::port::waits::WaitCounts;
use crate::worker::holds::Holds;

/// Counters of one queue pair of a port, at one moment. A worker that owns no pair of a port has
/// counters for it nevertheless: what it could not hand over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortSnapshot {
    /// The port of the pair.
    pub port: PortId,
    /// The number of the pair.
    pub pair: u16,
    /// Into the end: to the guest, or to the tap.
    pub to_end: Counters,
    /// Out of the end.
    pub from_end: Counters,
    /// Queues that run; none of a tap.
    pub queues: Vec<QueueSnapshot>,
    /// Queues that the guest broke.
    pub broken: Vec<(QueueId, Why)>,
    /// The MAC address the guest uses, as far as it told.
    pub mac: Option<MacAddress>,
    /// How its queues are paced; empty for a tap.
    pub pacing: Vec<PaceSnapshot>,
    /// Commands of the guest that were answered with an error.
    pub refused_commands: u64,
    /// Addresses that have moved to the port from another one.
    pub moved_addresses: u64,
    /// How long packets of a guest wait, if that is counted.
    pub waits: Option<Box<WaitCounts>>,
    /// A router's flows, leases, sockets and refusals.
    pub nat: Option<Box<NatSnapshot>>,
}

/// Counters of all slots, in the second with this number.
pub(crate) fn snapshots(
    ports: &PortTable,
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

/// Notes in the journal what all slots have counted. What has just come goes on from what was
/// counted there before.
pub(crate) fn note_counts(ports: &mut PortTable, switch: &Switch, line: &mut WorkerLine) {
    for (slot, pair) in ports.slots.iter_mut().enumerate() {
        let Some(mut counts) = pair.counts() else { continue };
        if pair.pair.pair == 0 {
            counts.moved_addresses = switch.moved_to(pair.port);
        }
        if let Some(past) = line.note_counts(slot, (pair.port, pair.pair.pair), &counts) {
            pair.add_counts(&past);
            switch.have_moved_to(pair.port, past.moved_addresses);
        }
    }
}

/// The counters of a slot, in the second with this number; `None`: the slot is empty.
fn snapshot(pair: &QueuePair, is_held: bool, second: u64) -> Option<PortSnapshot> {
    let [to_end, from_end] = pair.counts()?.ways;
    Some(match &pair.end {
        End::Absent => return None,
        End::Tap(_) => PortSnapshot {
            port: pair.port,
            pair: pair.pair.pair,
            to_end,
            from_end,
            queues: Vec::new(),
            broken: Vec::new(),
            mac: None,
            pacing: Vec::new(),
            refused_commands: 0,
            moved_addresses: 0,
            waits: None,
            nat: None,
        },
        End::Nat(nat) => PortSnapshot {
            port: pair.port,
            pair: pair.pair.pair,
            to_end,
            from_end,
            queues: Vec::new(),
            broken: Vec::new(),
            mac: Some(nat.nat.plan().mac()),
            pacing: Vec::new(),
            refused_commands: 0,
            moved_addresses: 0,
            waits: None,
            nat: Some(Box::new(nat.snapshot())),
        },
        End::Guest(guest) => guest_snapshot(pair, guest, (to_end, from_end), is_held, second),
    })
}

fn guest_snapshot(
    pair: &QueuePair,
    guest: &GuestEnd,
    (to_end, from_end): (Counters, Counters),
    is_held: bool,
    second: u64,
) -> PortSnapshot {
    let queues = &guest.queues;
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
        waits: guest.waits.as_ref().map(|waits| Box::new(waits.counts)),
        nat: None,
    }
}
