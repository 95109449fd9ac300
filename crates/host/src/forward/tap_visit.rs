//! One visit of a tap: what waits there is moved, as far as the budget goes. An interface that is
//! gone is told of once.

use ringway_switch::PortId;

use crate::Tap;
use crate::forward::tap_fill::fill;
use crate::forward::{Fabric, VisitEnd, forward};
use crate::port::End;
use crate::worker::Worker;
use crate::worker::command::WorkerEvent;

/// On a cable the kernel writes into the guest's own buffers; else the tap lends packets, as it
/// does those that it lends already.
pub(crate) fn visit_tap(tap: &mut Tap, fabric: &mut Fabric<'_>) -> VisitEnd {
    let is_lending = tap.is_lending();
    let (before, mut work) = (tap.from_tap.packets, fabric.delivery.work);
    let visit = match fabric.cable_guest().filter(|_| !is_lending) {
        Some(guest) => {
            let step = guest.step();
            let visit = fill(tap, guest, &mut work);
            guest.step_over(step);
            fabric.delivery.packets += tap.from_tap.packets - before;
            fabric.delivery.work = work;
            visit
        }
        None => forward(tap, fabric),
    };
    // The poller tells only of what comes from now on.
    if visit == VisitEnd::Idle && tap.take_unread() { VisitEnd::More } else { visit }
}

impl Worker {
    /// Tells the control thread if the interface is gone. What was behind it may turn up elsewhere.
    pub(crate) fn report_gone(&mut self, id: PortId) {
        let port = &mut self.ports[usize::from(id.0)];
        let End::Tap(tap) = &mut port.end else { return };
        if tap.take_gone() {
            let port = port.of;
            self.switch.forget(port);
            self.tell(WorkerEvent::TapGone { port });
        }
    }
}
