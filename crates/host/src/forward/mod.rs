//! For each packet that a source lends, find where it goes, copy it there, take it.
//!
//! Nothing is ever put back: a packet that finds no room stays with its sender (it was only lent),
//! and the port waits a bounded time for the receiver. Floods never wait.

pub(crate) mod budget;
pub(crate) mod completion;
pub(crate) mod delivery;
pub(crate) mod flood;
pub(crate) mod guarded;
pub(crate) mod observed;
pub(crate) mod receivers;
pub(crate) mod rewrite;
pub(crate) mod run;
pub(crate) mod tap_fill;
pub(crate) mod tap_visit;
pub(crate) mod watched;

use ringway_device::Queue;
use ringway_net::{DropReason, ETHERNET_HEADER_LEN, Nanos, Packet, PacketSource, Put};
use ringway_switch::{PortId, Route, Switch};

use crate::forward::budget::{BUDGET_UNITS, units_of_pieces};
use crate::forward::delivery::Delivery;
use crate::forward::observed::forward_observed;
use crate::forward::receivers::Receivers;
use crate::forward::rewrite::Rewriter;
use crate::forward::run::{RouteScope, Run, RunEnd};
use crate::port::pair_map::PairOwner;
use crate::port::queue_pair::{Drops, End, QueuePair};
use crate::port::room::RoomAt;

/// How a visit ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum VisitEnd {
    /// The source had nothing more to lend.
    Idle,
    /// The budget is used up; there may be more.
    More,
    /// The next packet waits for room there.
    Hold(RoomAt),
    /// The next packet waits until then.
    Wait(Nanos),
}

/// Everything a visited queue pair can reach: all others, and the switch that chooses among them.
pub(crate) struct Fabric<'a> {
    pub(crate) receivers: Receivers<'a>,
    /// The port that packets come from.
    pub(crate) from: PortId,
    pub(crate) switch: &'a mut Switch,
    /// With exactly two ports there is nothing to look up: the other end of the cable.
    pub(crate) cable: Option<PortId>,
    pub(crate) now: Nanos,
    pub(crate) now_ms: u64,
    /// Of the port it comes from; otherwise everything is dropped.
    pub(crate) is_link_up: bool,
    /// Of the port it comes from.
    pub(crate) refused: &'a mut Drops,
    pub(crate) rewriter: &'a mut Rewriter,
    /// The last packet that the switch sent to one port, and that port: packets between the same
    /// two stations go there too, for the rest of this visit.
    pub(crate) last_way: Option<([u8; ETHERNET_HEADER_LEN], PortId)>,
    pub(crate) delivery: Delivery<'a>,
}

/// Moves packets from one source until it is idle, the budget is used up, or one must wait.
pub(crate) fn forward<S: PacketSource>(source: &mut S, fabric: &mut Fabric<'_>) -> VisitEnd {
    if fabric.delivery.observers.is_some() {
        return forward_observed(source, fabric);
    }
    while fabric.delivery.work < BUDGET_UNITS {
        let Some(packet) = source.peek() else { return VisitEnd::Idle };
        let open = match fabric.way_of(&packet) {
            Way::Here(slot, scope) => match fabric.forward_run(source, slot, scope) {
                RunEnd::Idle => return VisitEnd::Idle,
                RunEnd::RouteChanged => continue,
                RunEnd::Put(put) => Open::Answered(slot, put),
            },
            Way::Routed(route) => Open::Routed(route),
        };
        if let Some(visit) = fabric.deliver_one(source, open) {
            return visit;
        }
    }
    VisitEnd::More
}

/// Where the packet that is lent goes.
#[derive(Debug, Clone, Copy)]
enum Way {
    /// Into this slot, and so do those behind it within that scope.
    Here(PortId, RouteScope),
    /// As the switch says; `None`: a policy has a say.
    Routed(Option<Route>),
}

/// The work that is left on a packet that is not simply taken.
#[derive(Debug, Clone, Copy)]
enum Open {
    /// The slot has answered something else than that it is done.
    Answered(PortId, Put),
    /// As the switch says; `None`: a policy has a say.
    Routed(Option<Route>),
}

impl Fabric<'_> {
    /// The guest at the other end of the cable, if its queues can be filled directly.
    pub(crate) fn cable_guest(&mut self) -> Option<&mut QueuePair> {
        if self.delivery.observers.is_some() {
            return None;
        }
        let port = self.receivers.port(self.cable?)?;
        // A guest's steering table, or another worker's queue, needs the packet first.
        let pair = port.pairs.steering.pair_unseen(self.delivery.pair)?;
        let PairOwner::Here(slot) = port.owner_of(pair) else { return None };
        let pair = self.receivers.slot(slot)?;
        match &pair.end {
            // Buffers that are not enough for the longest packet may be for others. A read that is
            // not used would have to be marked as well.
            End::Guest(guest)
                if pair.carrier.takes()
                    && guest.queues.is_running(Queue::ToGuest)
                    && !guest.queues.never_fits()
                    && !guest.memory.has_log() =>
            {
                self.delivery.dirty.add(pair.slot);
                self.delivery.note.delivers_into(pair.port);
                Some(pair)
            }
            _ => None,
        }
    }

    #[inline(always)]
    fn way_of(&mut self, packet: &Packet<'_>) -> Way {
        let route = self.route(packet);
        let pair = self.delivery.pair;
        if let Some(Route::One(to)) = route
            && let Some(port) = self.receivers.port(to)
            && let (_, PairOwner::Here(slot)) = port.owner_for(pair, packet)
        {
            let scope = match (port.pairs.steering.pair_unseen(pair), self.cable, self.last_way) {
                (None, ..) | (_, None, None) => RouteScope::OnePacket,
                (_, None, Some((header, _))) => RouteScope::Stations(header),
                (_, Some(_), _) => RouteScope::Always,
            };
            return Way::Here(slot, scope);
        }
        Way::Routed(route)
    }

    /// Packets into a slot, from the one that is lent on.
    #[inline(always)]
    fn forward_run<S: PacketSource>(
        &mut self,
        source: &mut S,
        slot: PortId,
        scope: RouteScope,
    ) -> RunEnd {
        let Some(pair) = self.receivers.slot(slot) else {
            return RunEnd::Put(Put::Refused);
        };
        let delivery = &mut self.delivery;
        delivery.note.delivers_into(pair.port);
        let mut run = Run { scope, work: delivery.work, packets: 0 };
        let ended = run.forward_to(source, pair, delivery.lifetime);
        if run.packets > 0 {
            pair.room.is_stuck = false;
            delivery.dirty.add(pair.slot);
        }
        delivery.work = run.work + pair.take_extra_units();
        delivery.packets += run.packets;
        ended
    }

    /// Delivers the packet that is lent, which may take several steps, and takes it; `Some`: it
    /// must wait.
    #[inline(never)]
    fn deliver_one<S: PacketSource>(&mut self, source: &mut S, open: Open) -> Option<VisitEnd> {
        self.delivery.position = source.segments_done();
        let packet = source.peek()?;
        let (work_before, refused) = (self.delivery.work, self.refused_before());
        let in_pieces = units_of_pieces(&packet);
        if let Some(visit) = self.deliver(&packet, open) {
            source.set_segments_done(self.delivery.position);
            return Some(visit);
        }
        // A packet that goes nowhere costs a unit too.
        self.delivery.work = self.delivery.work.max(work_before + 1) + in_pieces;
        if let Some(before) = refused {
            self.note_taken(&packet, &before);
        }
        if self.delivery.is_read_at_flush {
            source.read_at_flush();
        }
        source.pop();
        self.delivery.packets += 1;
        None
    }

    /// Delivers one packet; `Some`: not yet, it must wait.
    fn deliver(&mut self, packet: &Packet<'_>, open: Open) -> Option<VisitEnd> {
        match open {
            Open::Answered(slot, put) => {
                // It has just answered, so it is there.
                let pair = self.receivers.slot(slot)?;
                return self.delivery.after_put(put, pair, packet, true).err();
            }
            Open::Routed(Some(Route::One(to))) => {
                return self.delivery.put(&mut self.receivers, to, packet, true).err();
            }
            Open::Routed(Some(Route::Flood)) => self.flood(packet),
            Open::Routed(Some(Route::Drop)) => self.refused[DropReason::NoRoute as usize] += 1,
            Open::Routed(None) => return self.deliver_guarded(packet),
        }
        None
    }

    /// `None`: a policy has a say.
    #[inline(always)]
    fn route(&mut self, packet: &Packet<'_>) -> Option<Route> {
        if let Some(to) = self.cable {
            return Some(Route::One(to));
        }
        if !self.is_link_up {
            return Some(Route::Drop);
        }
        // Copied once: the sender may rewrite its memory at any time.
        let Some(header) = packet.ethernet_header() else { return Some(Route::Drop) };
        if let Some((last, to)) = self.last_way
            && last == header
        {
            return Some(Route::One(to));
        }
        self.look_up(header)
    }

    /// Asks the switch, and remembers the way if it leads to one port.
    #[inline(never)]
    fn look_up(&mut self, header: [u8; ETHERNET_HEADER_LEN]) -> Option<Route> {
        let route = self.switch.route_plain(self.from, &header, self.now_ms);
        if let Some(Route::One(to)) = route {
            self.last_way = Some((header, to));
        }
        route
    }
}
