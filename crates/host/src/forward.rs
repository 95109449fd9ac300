//! The heart: for each packet that a source lends, find where it goes, copy it there, take it.
//!
//! Nothing is ever put back: a packet that finds no room stays with its sender (it was only lent),
//! and the port waits a bounded time for the receiver. Floods never wait.

use ringway_device::{AnyGuestPort, GuestPort};
use ringway_net::{DropReason, Packet, PacketSource, Put, destination, source};
use ringway_switch::{PortId, Route, Switch};
use ringway_virtq::DeviceQueue;

use crate::Tap;
use crate::completion::Completion;
use crate::port::{End, Port};

/// Packets per visit of one port.
pub(crate) const BUDGET_PACKETS: usize = 64;

/// How a visit ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Visit {
    /// The source had nothing more to lend.
    Idle,
    /// The budget is used up; there may be more.
    More,
    /// The next packet waits for room at this port.
    Hold(PortId),
}

/// A packet that is not delivered yet, or not all of its segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Wait {
    /// Where room is missing.
    room_at: PortId,
    segments_done: usize,
}

/// Everything a visited port can reach: all other ports, and the switch that chooses among them.
pub(crate) struct Fabric<'a> {
    pub(crate) before: &'a mut [Port],
    pub(crate) after: &'a mut [Port],
    pub(crate) from: PortId,
    pub(crate) switch: &'a mut Switch,
    /// With exactly two ports there is nothing to look up: the other end of the cable.
    pub(crate) cable: Option<PortId>,
    pub(crate) dirty: &'a mut Vec<PortId>,
    pub(crate) completion: &'a mut Completion,
    /// Packets that this visit may still move.
    pub(crate) budget: usize,
    pub(crate) now_ms: u64,
    /// Of the port it comes from; otherwise everything is dropped.
    pub(crate) is_link_up: bool,
    pub(crate) no_route: &'a mut u64,
}

/// Moves packets from one source until it is idle, the budget is used up, or one must wait.
pub(crate) fn forward<S: PacketSource>(source: &mut S, fabric: &mut Fabric<'_>) -> Visit {
    while fabric.budget > 0 {
        fabric.budget -= 1;
        let done = source.segments_done();
        let Some(packet) = source.peek() else { return Visit::Idle };
        if let Some(Wait { room_at, segments_done }) = fabric.deliver(&packet, done) {
            source.set_segments_done(segments_done);
            return Visit::Hold(room_at);
        }
        source.pop();
    }
    Visit::More
}

impl Fabric<'_> {
    /// Delivers one packet, of which the receiver may have some segments already; `Some`: not yet,
    /// it must wait for room.
    #[inline]
    fn deliver(&mut self, packet: &Packet<'_>, segments_done: usize) -> Option<Wait> {
        match self.route(packet) {
            Route::One(to) => self.put(to, packet, segments_done),
            Route::Flood => {
                self.flood(packet);
                None
            }
            Route::Drop => {
                *self.no_route += 1;
                None
            }
        }
    }

    #[inline]
    fn route(&mut self, packet: &Packet<'_>) -> Route {
        if let Some(to) = self.cable {
            return Route::One(to);
        }
        if !self.is_link_up {
            return Route::Drop;
        }
        // Copied once: the sender may rewrite its memory at any time.
        let Some(header) = packet.ethernet_header() else { return Route::Drop };
        self.switch.learn(self.from, source(&header), self.now_ms);
        self.switch.route(self.from, destination(&header))
    }

    fn put(&mut self, to: PortId, packet: &Packet<'_>, done: usize) -> Option<Wait> {
        let port = port_of(self.before, self.after, to)?;
        let completed = self.completion.put(port, packet, done);
        if completed.packets > 0 {
            mark_dirty(port, self.dirty);
            self.budget = self.budget.saturating_sub(completed.packets - 1);
        }
        match completed.put {
            Put::Done => port.is_stuck = false,
            Put::NoRoom if port.is_stuck => port.count_drop(DropReason::NoRoom),
            Put::NoRoom => {
                // What fills the ring must be seen by the guest before it can make room.
                port.flush_to();
                return Some(Wait { room_at: to, segments_done: completed.position });
            }
            Put::Refused | Put::Unfinished => {}
        }
        None
    }

    fn flood(&mut self, packet: &Packet<'_>) {
        for port in self.before.iter_mut().chain(self.after.iter_mut()) {
            let completed = self.completion.put(port, packet, 0);
            if completed.packets > 0 {
                mark_dirty(port, self.dirty);
                self.budget = self.budget.saturating_sub(completed.packets - 1);
            }
            if completed.put == Put::NoRoom {
                port.count_drop(DropReason::NoRoom);
            }
        }
    }

    /// The guest at the other end of the cable, if its queues can be filled directly.
    pub(crate) fn cable_guest(&mut self) -> Option<&mut Port> {
        let port = port_of(self.before, self.after, self.cable?)?;
        match &port.end {
            End::Guest(guest)
                if port.is_link_up && guest.queues.is_running(ringway_device::Queue::ToGuest) =>
            {
                mark_dirty(port, self.dirty);
                Some(port)
            }
            _ => None,
        }
    }
}

/// Tap → guest without a copy in between: the kernel writes into the guest's own buffers.
pub(crate) fn fill(tap: &mut Tap, port: &mut Port) -> Visit {
    let id = port.id;
    let End::Guest(guest) = &mut port.end else { return Visit::Idle };
    match &mut guest.queues {
        AnyGuestPort::Split(queues) => fill_queue(tap, queues, id),
        AnyGuestPort::Packed(queues) => fill_queue(tap, queues, id),
    }
}

fn fill_queue<Q: DeviceQueue>(tap: &mut Tap, queues: &mut GuestPort<Q>, id: PortId) -> Visit {
    let GuestPort { to_guest: Some(to_guest), control_state, .. } = queues else {
        return Visit::Idle;
    };
    for _ in 0..BUDGET_PACKETS {
        let len_max = tap.packet_len_max();
        let Some(room) = to_guest.reserve(len_max) else {
            return match to_guest.broken() {
                Some(_) => Visit::Idle,
                None => Visit::Hold(id),
            };
        };
        match tap.read_into(room) {
            // The guest has just stopped to accept it: the next visit completes it.
            Ok(Some((header, len))) if !to_guest.accepts(&header) => {
                tap.lend(header, len, to_guest.reserved(header, len).payload);
                return Visit::More;
            }
            Ok(Some((header, len))) if !control_state.wants(&to_guest.reserved(header, len)) => {
                to_guest.counters.count_drop(DropReason::Filtered);
            }
            Ok(Some((header, len))) => to_guest.commit(header, len),
            Ok(None) => return Visit::Idle,
            Err(why) if why.raw_os_error() == Some(libc::EBADFD) => return Visit::Idle,
            // One packet was lost, and counted; what waits behind it may be fine.
            Err(_) => {}
        }
    }
    Visit::More
}

fn port_of<'a>(before: &'a mut [Port], after: &'a mut [Port], id: PortId) -> Option<&'a mut Port> {
    let at = usize::from(id.0);
    match at.checked_sub(before.len()) {
        None => before.get_mut(at),
        // The port between the two slices is the source itself.
        Some(behind) => after.get_mut(behind.checked_sub(1)?),
    }
}

fn mark_dirty(port: &mut Port, dirty: &mut Vec<PortId>) {
    if !port.is_dirty {
        port.is_dirty = true;
        dirty.push(port.id);
    }
}
