//! One visit of a tap: what waits there is moved, as far as the budget goes.

use crate::forward::budget::BUDGET_UNITS;
use crate::forward::tap_fill::fill;
use crate::forward::{Fabric, VisitEnd, forward};
use crate::tap::Tap;

/// On a cable the kernel writes into the guest's own buffers; else the tap lends packets, as it
/// does those that it lends already.
pub(crate) fn visit_tap(tap: &mut Tap, fabric: &mut Fabric<'_>) -> VisitEnd {
    let is_lending = tap.is_lending();
    let (before, mut work) = (tap.from_tap.packets, fabric.delivery.work);
    let visit = match fabric.cable_guest().filter(|_| !is_lending) {
        Some(guest) => {
            let step = guest.step();
            if step.is_some() {
                // One packet at a time, as in a visit of such a guest.
                work = work.max(BUDGET_UNITS - 1);
            }
            let visit = fill(tap, guest, &mut work);
            guest.faults.step_over(step);
            fabric.delivery.packets += tap.from_tap.packets - before;
            fabric.delivery.work = work;
            visit
        }
        None => forward(tap, fabric),
    };
    // The poller tells only of what comes from now on.
    if visit == VisitEnd::Idle && tap.take_unread() { VisitEnd::More } else { visit }
}
