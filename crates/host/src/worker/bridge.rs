//! The switch as one worker sees it, and the cable that it is while there are two ports only.
//!
//! A port claims the address that its guest was told is its own for as long as a queue of its first
//! pair runs and its link is up. A guest that is stopped for its migration, or that has gone,
//! claims no address: its address may turn up at another port.

use std::sync::Arc;

use ringway_device::Queue;
use ringway_switch::{PortId, Shared, Switch};

use crate::port::queue_pair::End;
use crate::port::table::PortTable;

/// The switch, and what follows from it.
pub(crate) struct Bridge {
    pub(crate) switch: Switch,
    /// The two ports, if there are exactly two and nothing is to be decided.
    pub(crate) cable: Option<(PortId, PortId)>,
}

/// A switch to try something on.
pub struct SwitchCopy {
    /// With the same ports and policies.
    pub switch: Box<Switch>,
    /// The two ports, if no packet is looked at: they are a cable.
    pub cable: Option<(PortId, PortId)>,
}

impl Bridge {
    pub(crate) fn new(switch: Switch) -> Self {
        Self { switch, cable: None }
    }

    /// With exactly two ports the switch is a cable, unless there is anything to decide. `false`:
    /// it is none.
    pub(crate) fn refresh_cable(&mut self) -> bool {
        let mut ids = self.switch.ports();
        self.cable = match (ids.next(), ids.next(), ids.next()) {
            (Some(one), Some(other), None) if self.switch.is_plain() => Some((one, other)),
            _ => None,
        };
        self.cable.is_some()
    }

    /// With the same ports and policies, over something else that switches have in common.
    pub(crate) fn copy_over(&self, shared: Arc<Shared>) -> SwitchCopy {
        SwitchCopy { switch: Box::new(self.switch.copy_over(shared)), cable: self.cable }
    }

    /// The port at the other end of the cable.
    #[inline]
    pub(crate) fn other_end(&self, of: PortId) -> Option<PortId> {
        let (one, other) = self.cable?;
        Some(if one == of { other } else { one })
    }

    /// Queues of a slot, or its link, are others now.
    pub(crate) fn refresh_claim(&mut self, slot: PortId, ports: &PortTable) {
        let Some(pair) = ports.slots.get(usize::from(slot.0)) else { return };
        // The first pair decides, on its worker.
        if pair.pair.pair != 0 {
            return;
        }
        let End::Guest(guest) = &pair.end else { return };
        let runs = [Queue::ToGuest, Queue::FromGuest].map(|queue| guest.queues.is_running(queue));
        let port = &ports.ports[usize::from(pair.port.0)];
        match port.told_mac {
            // Another port has it already: then this one has none.
            Some(mac) if port.carrier.is_up() && runs.contains(&true) => {
                self.switch.claim(port.id, mac);
            }
            _ => self.switch.release(port.id),
        }
    }
}
