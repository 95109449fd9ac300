//! One visit of a tap: what waits there is moved, as far as the budget goes.

use crate::Tap;
use crate::fill::fill;
use crate::forward::{Fabric, Visit, forward};

/// On a cable the kernel writes into the guest's own buffers; else the tap lends packets, as it does
/// those that it lends already.
pub(crate) fn visit_tap(tap: &mut Tap, fabric: &mut Fabric<'_>) -> Visit {
    let is_lending = tap.is_lending();
    let (before, mut work) = (tap.from_tap.packets, fabric.delivery.work);
    let visit = match fabric.cable_guest().filter(|_| !is_lending) {
        Some(guest) => {
            let visit = fill(tap, guest, &mut work);
            fabric.delivery.packets += tap.from_tap.packets - before;
            fabric.delivery.work = work;
            visit
        }
        None => forward(tap, fabric),
    };
    // The poller tells only of what comes from now on.
    if visit == Visit::Idle && tap.take_unread() { Visit::More } else { visit }
}
