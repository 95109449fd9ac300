//! A visit of one port: where its packets come from, and what they can reach.

use ringway_device::{AnyGuestPort, FromGuest};
use ringway_net::Nanos;
use ringway_virtq::{Arm, DeviceQueue, SharedSlice};

use crate::forward::tap_visit::visit_tap;
use crate::forward::{BUDGET_UNITS, Delivery, Fabric, VisitEnd, forward};
use crate::os::clock::now;
use crate::port::{End, GuestEnd, PayloadLifetime};
use crate::worker::Worker;
use crate::worker::stalls::visit_watched;

const NS_PER_MS: u64 = 1_000_000;

impl Worker {
    /// How the visit ended, and how many packets were taken.
    pub(crate) fn move_packets(&mut self, at: usize) -> (VisitEnd, u64) {
        let now_ns = now().0;
        self.visit_over(Nanos(now_ns));
        let (before, rest) = self.ports.split_at_mut(at);
        let Some((port, after)) = rest.split_first_mut() else { return (VisitEnd::Idle, 0) };
        let cable = match self.cable {
            _ if !port.is_link_up => None,
            Some((one, other)) if one == port.of => Some(other),
            Some((one, _)) => Some(one),
            None => None,
        };
        let bounce = self.stalls.is_watching().then(|| self.stalls.bounce());
        // While the worker watches, one packet at a time.
        let work = if bounce.is_some() { BUDGET_UNITS - 1 } else { port.debt };
        let mut fabric = Fabric {
            before,
            after,
            from: port.of,
            switch: &mut self.switch,
            cable,
            now_ns,
            now_ms: now_ns / NS_PER_MS,
            is_link_up: port.is_link_up,
            refused: &mut port.refused,
            rewriter: &mut self.rewriter,
            last_way: None,
            delivery: Delivery {
                pair: port.pair,
                peers: &mut self.peers,
                completion: &mut self.completion,
                dirty: &mut self.dirty,
                position: 0,
                work,
                packets: 0,
                // A guest gets its buffers back at the end of the visit; a tap reads into one
                // place.
                lifetime: match &port.end {
                    End::Guest(_) if bounce.is_none() => PayloadLifetime::UntilFlush,
                    End::Guest(_) => PayloadLifetime::CallOnly,
                    End::Tap(_) | End::Absent => PayloadLifetime::CallOnly,
                },
                call_again: false,
            },
        };
        let (visit, stalled_ns) = visit_end(&mut port.end, port.is_read, &mut fabric, bounce);
        port.stalled_ns += stalled_ns;
        let packets = fabric.delivery.packets;
        if fabric.delivery.call_again {
            self.uml_retries.expect(self.turn_at);
        }
        let units = fabric.delivery.work.saturating_sub(work);
        // A port that has nothing more to send owes nothing.
        let is_more = visit == VisitEnd::More;
        port.debt = if is_more { fabric.delivery.work.saturating_sub(BUDGET_UNITS) } else { 0 };
        self.note_stream(now_ns, units, packets);
        (visit, packets)
    }
}

/// Moves packets out of whatever is at the end of a port; and for how long the thread slept in its
/// guest's memory, if it watches.
fn visit_end(
    end: &mut End,
    is_read: bool,
    fabric: &mut Fabric<'_>,
    bounce: Option<SharedSlice>,
) -> (VisitEnd, u64) {
    let visit = match end {
        End::Guest(guest) => return visit_guest(guest, fabric, bounce),
        // Another worker reads what comes from this tap.
        End::Tap(_) if !is_read => VisitEnd::Idle,
        End::Tap(tap) => visit_tap(tap, fabric),
        End::Absent => VisitEnd::Idle,
    };
    (visit, 0)
}

fn visit_guest(
    guest: &mut GuestEnd,
    fabric: &mut Fabric<'_>,
    bounce: Option<SharedSlice>,
) -> (VisitEnd, u64) {
    guest.is_armed = false;
    match &mut guest.queues {
        AnyGuestPort::Split(queues) => visit_queue(queues.from_guest.as_mut(), fabric, bounce),
        AnyGuestPort::Packed(queues) => visit_queue(queues.from_guest.as_mut(), fabric, bounce),
    }
}

/// Visits a transmitq: while it is being looked at, the guest need not kick.
fn visit_queue<Q: DeviceQueue>(
    from_guest: Option<&mut FromGuest<Q>>,
    fabric: &mut Fabric<'_>,
    bounce: Option<SharedSlice>,
) -> (VisitEnd, u64) {
    let Some(from_guest) = from_guest else { return (VisitEnd::Idle, 0) };
    if let Some(bounce) = bounce {
        return visit_watched(from_guest, fabric, bounce);
    }
    from_guest.arm_kicks(Arm::Never);
    (forward(from_guest, fabric), 0)
}
