//! The mode of a queue: how its owner attends to it at this moment, for statistics.
//!
//! Limits: of a transmitq whose worker has something to do, this is how it was left: what is being
//! visited is not known to be idle.

use ringway_device::{Queue, QueueId};

use crate::port::guest_end::GuestEnd;

/// The way in which the owner of a queue attends to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueMode {
    /// Nothing, until a kick, or a packet for it, wakes the owner.
    Sleeping,
    /// The owner polls it; the guest need not kick.
    Polling,
    /// The owner visits it, or notifies the guest, when a timer ends or its next packet finds room.
    Held,
}

impl QueueMode {
    /// As statistics show it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sleeping => "sleeping",
            Self::Polling => "polling",
            Self::Held => "held",
        }
    }
}

/// One queue that runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueSnapshot {
    /// The queue's place in the port.
    pub queue: QueueId,
    /// The way in which its owner attends to it.
    pub mode: QueueMode,
    /// Packets so far; none for the controlq.
    pub packets: u64,
    /// How often its kicks have woken or interrupted the owner.
    pub kicks: u64,
    /// Of these, in the last full second.
    pub kicks_last_second: u64,
    /// Calls so far.
    pub calls: u64,
}

/// The queues of a guest's pair that run, the next packet of which may be held, in the second with
/// this number.
pub(crate) fn running_queues(
    pair: u16,
    guest: &GuestEnd,
    is_held: bool,
    second: u64,
) -> Vec<QueueSnapshot> {
    let [to, from] = guest.counters();
    let [control_kicks, control_calls] = guest.control_counts();
    let counts = [
        (to.packets, to.kicks, to.calls),
        (from.packets, from.kicks, from.calls),
        (0, control_kicks, control_calls),
    ];
    let running = Queue::ALL.into_iter().filter(|&queue| guest.queues.is_running(queue));
    let snapshots = running.map(|queue| {
        let (packets, kicks, calls) = counts[queue as usize];
        QueueSnapshot {
            queue: QueueId { pair, queue },
            mode: mode(guest, queue, is_held),
            packets,
            kicks,
            kicks_last_second: guest.fds[queue as usize].kicks.last_second(second),
            calls,
        }
    });
    snapshots.collect()
}

fn mode(guest: &GuestEnd, queue: Queue, is_held: bool) -> QueueMode {
    let is_from_guest = queue == Queue::FromGuest;
    if is_from_guest && is_held {
        return QueueMode::Held;
    }
    if guest.is_polled(queue) || is_from_guest && !guest.is_armed {
        return QueueMode::Polling;
    }
    if guest.pace.waits(queue) { QueueMode::Held } else { QueueMode::Sleeping }
}
