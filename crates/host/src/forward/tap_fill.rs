//! From a tap to a guest, when the two are each other's only peer: no copy in between, except
//! for short packets while many of them wait (see `tap::ahead`).

use ringway_device::{AnyGuestPort, GuestPort};
use ringway_net::DropReason;
use ringway_switch::PortId;
use ringway_virtq::DeviceQueue;

use crate::forward::VisitEnd;
use crate::forward::budget::{BUDGET_UNITS, UNIT_LEN};
use crate::port::queue_pair::{End, QueuePair};
use crate::port::room::RoomAt;
use crate::tap::Tap;

/// The kernel writes into the guest's own buffers.
pub(crate) fn fill(tap: &mut Tap, pair: &mut QueuePair, work: &mut u32) -> VisitEnd {
    let slot = pair.slot;
    let End::Guest(guest) = &mut pair.end else { return VisitEnd::Idle };
    let visit = match &mut guest.queues {
        AnyGuestPort::Split(queues) => fill_queue(tap, queues, slot, work),
        AnyGuestPort::Packed(queues) => fill_queue(tap, queues, slot, work),
    };
    *work += guest.queues.take_extra_units();
    visit
}

fn fill_queue<Q: DeviceQueue>(
    tap: &mut Tap,
    queues: &mut GuestPort<Q>,
    slot: PortId,
    work: &mut u32,
) -> VisitEnd {
    let GuestPort { to_guest: Some(to_guest), control_state, .. } = queues else {
        return VisitEnd::Idle;
    };
    while *work < BUDGET_UNITS {
        let len_max = tap.packet_len_max();
        let Some(room) = to_guest.reserve(len_max) else {
            return match to_guest.broken() {
                Some(_) => VisitEnd::Idle,
                None if to_guest.never_fits() => VisitEnd::More,
                None => VisitEnd::Hold(RoomAt::Slot(slot)),
            };
        };
        *work += match tap.read_into(room) {
            // The guest has just stopped to accept it: the next visit completes it.
            Ok(Some((header, len))) if !to_guest.accepts(&header) => {
                tap.lend(header, len, to_guest.reserved(&header, len).payload);
                return VisitEnd::More;
            }
            Ok(Some((header, len))) if !control_state.wants(&to_guest.reserved(&header, len)) => {
                to_guest.counters.count_drop(DropReason::Filtered);
                1
            }
            Ok(Some((header, len))) => {
                to_guest.commit(header, len);
                1 + len / UNIT_LEN
            }
            // Longer than was to be expected: the next visit copies it.
            Ok(None) if tap.is_lending() => return VisitEnd::More,
            Ok(None) => return VisitEnd::Idle,
            Err(why) if why.raw_os_error() == Some(libc::EBADFD) => return VisitEnd::Idle,
            // Something was lost, and counted; what waits behind it may be fine.
            Err(_) => 1,
        };
    }
    VisitEnd::More
}
