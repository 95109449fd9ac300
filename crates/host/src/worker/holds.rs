//! Packets that wait where they are: for room at a receiver, or for their time to come.
//!
//! How: a packet that waits is the next one of its slot. [`Holds`] lists the slots, and says all
//! that follows from it: which receivers and which rings to other workers are waited for, and until
//! when.

use ringway_net::Nanos;
use ringway_switch::{PORTS_MAX, PortId};

use crate::port::room::RoomAt;

/// A packet that waits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hold {
    /// For room there; `None`: only for its time to come.
    pub(crate) to: Option<RoomAt>,
    /// Then the receiver counts as stuck; `None`: it waits as long as it takes.
    pub(crate) until: Option<Nanos>,
}

/// The slots whose next packet waits, in the order in which they began to.
#[derive(Debug)]
pub(crate) struct Holds(Vec<(PortId, Hold)>);

impl Holds {
    pub(crate) fn new() -> Self {
        Self(Vec::with_capacity(PORTS_MAX))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The hold on the next packet of this slot.
    #[inline]
    pub(crate) fn of(&self, slot: PortId) -> Option<Hold> {
        self.0.iter().find(|(waiting, _)| *waiting == slot).map(|(_, hold)| *hold)
    }

    /// The workers whose rings are waited for, each once for every packet.
    pub(crate) fn workers(&self) -> impl Iterator<Item = u16> + Clone + '_ {
        self.0.iter().filter_map(|(_, hold)| match hold.to {
            Some(RoomAt::Worker(worker)) => Some(worker),
            _ => None,
        })
    }

    /// When the first wait ends that has an end.
    pub(crate) fn first_end(&self) -> Option<Nanos> {
        self.0.iter().filter_map(|(_, hold)| hold.until).min()
    }

    pub(crate) fn is_waited_for(&self, at: RoomAt) -> bool {
        self.0.iter().any(|(_, hold)| hold.to == Some(at))
    }

    /// The first slot for which that is so waits no longer.
    pub(crate) fn take(&mut self, is_it: impl Fn(PortId, &Hold) -> bool) -> Option<(PortId, Hold)> {
        let at = self.0.iter().position(|(slot, hold)| is_it(*slot, hold))?;
        Some(self.0.remove(at))
    }

    /// The next packet of a slot that does not wait yet waits from now on.
    pub(crate) fn add(&mut self, slot: PortId, hold: Hold) {
        assert!(self.of(slot).is_none(), "a slot that waits is not visited");
        self.0.push((slot, hold));
    }
}
