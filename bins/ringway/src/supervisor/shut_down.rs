//! The end: guests read that their links are down, then everything is closed.

use std::time::{Duration, Instant};

use ringway_host::Events;
use ringway_supervisor::wire::ToData;

use super::order::Order;
use super::ports::Port;
use super::vm_port::VmPort;
use super::{EVENTS_MAX, LINK_DOWN_GRACE, LOOK_EVERY, Supervisor};

/// Longest wait for the data plane at the end.
const LAST_WAIT: Duration = Duration::from_secs(2);

impl Supervisor {
    /// Tells guests that the link is down, gives them a moment, and closes everything.
    pub fn shut_down(mut self) {
        self.check = None;
        self.fd_store.tell("STOPPING=1");
        self.fd_store.keep_only(&[]);
        self.fd_store.store_nothing();
        let begun = Instant::now();
        let mut events = Events::with_capacity(EVENTS_MAX);
        let message = |order| ToData::LinksDown { order };
        if self.any_linked() && self.order_now(Order::LinksDown, message, vec![]) {
            let is_over = |this: &Self| {
                let is_waiting = match this.links_down {
                    None => begun.elapsed() < LAST_WAIT,
                    Some(is_told) => is_told && begun.elapsed() < LINK_DOWN_GRACE,
                };
                !is_waiting || !this.any_linked()
            };
            // A second signal means: now.
            while !is_over(&self)
                && matches!(self.turn(&mut events, Some(LOOK_EVERY / 10)), Ok(true))
            {}
        }
        for id in self.ids() {
            self.drop_link(id, None);
        }
        self.take_neighbours_along();
        self.write_stations(true);
        self.planes.finish(LAST_WAIT);
    }

    /// Whether it is of no use any more.
    pub(super) fn is_over(&self) -> bool {
        let vms = self.ports.values().filter(|port| !port.is_leaving());
        vms.filter_map(|port| port.vm.as_ref()).any(VmPort::is_over)
    }

    fn any_linked(&self) -> bool {
        self.ports.values().any(Port::is_linked)
    }
}
