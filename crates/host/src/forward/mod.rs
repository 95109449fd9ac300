//! For each packet that a source lends, find where it goes, copy it there, take it.
//!
//! Nothing is ever put back: a packet that finds no room stays with its sender (it was only lent),
//! and the port waits a bounded time for the receiver. Floods never wait.

pub(crate) mod budget;
mod cable;
pub(crate) mod completion;
pub(crate) mod flood;
pub(crate) mod guarded;
pub(crate) mod observed;
pub(crate) mod receivers;
pub(crate) mod rewrite;
pub(crate) mod run;
pub(crate) mod tap_fill;
pub(crate) mod tap_visit;
pub(crate) mod watched;

use ringway_net::{DropReason, ETHERNET_HEADER_LEN, FromPair, Nanos, Packet, PacketSource, Put};
use ringway_switch::{PortId, Route, Switch};

use crate::capture::observers::Observers;
use crate::forward::budget::{BUDGET_UNITS, UNIT_LEN, units_of_pieces};
use crate::forward::completion::Completion;
use crate::forward::observed::forward_observed;
use crate::forward::receivers::Receivers;
use crate::forward::rewrite::Rewriter;
use crate::forward::run::{RouteScope, Run, RunEnd};
use crate::journal::worker_line::VisitNote;
use crate::pace::Flush;
use crate::peers::WorkerPeers;
use crate::port::pair_map::PairOwner;
use crate::port::queue_pair::{Drops, End, PayloadLifetime, QueuePair};
use crate::port::room::RoomAt;
use crate::port::slot_list::SlotList;

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

/// Handing packets over, and what came of it in this visit.
pub(crate) struct Delivery<'a> {
    /// The pair that the packets come from.
    pub(crate) pair: FromPair,
    pub(crate) note: VisitNote<'a>,
    /// The way to queue pairs of other workers.
    pub(crate) peers: &'a mut WorkerPeers,
    pub(crate) completion: &'a mut Completion,
    pub(crate) dirty: &'a mut SlotList,
    /// Segments of the packet that its receiver has already.
    pub(crate) position: usize,
    /// Done in this visit, in units.
    pub(crate) work: u32,
    /// Taken in this visit.
    pub(crate) packets: u64,
    /// How long the packets stay.
    pub(crate) lifetime: PayloadLifetime,
    /// A tap has got packets in this visit that it reads only at the end.
    pub(crate) is_read_at_flush: bool,
    /// A guest that was called meanwhile may sleep through it (see `uml`).
    pub(crate) call_again: bool,
    /// Captures and mirrors, if there are any: then each packet goes the long way.
    pub(crate) observers: Option<&'a mut Observers>,
}

impl Delivery<'_> {
    /// Whether the packet was taken; or else what it waits for.
    pub(crate) fn put(
        &mut self,
        receivers: &mut Receivers<'_>,
        to: PortId,
        packet: &Packet<'_>,
        may_hold: bool,
    ) -> Result<bool, VisitEnd> {
        match self.observers {
            None => self.put_unseen(receivers, to, packet, may_hold),
            Some(_) => self.put_observed(receivers, to, packet, may_hold),
        }
    }

    fn put_unseen(
        &mut self,
        receivers: &mut Receivers<'_>,
        to: PortId,
        packet: &Packet<'_>,
        may_hold: bool,
    ) -> Result<bool, VisitEnd> {
        let Some(port) = receivers.port(to) else { return Ok(false) };
        match port.owner_for(self.pair, packet) {
            (_, PairOwner::Here(slot)) => match receivers.slot(slot) {
                Some(pair) => self.put_here(pair, packet, may_hold),
                None => Ok(false),
            },
            (pair, PairOwner::There(worker)) => {
                match self.peers.hand_over(worker, (to, port.generation, pair), packet) {
                    Put::Done => {
                        self.work += 1 + packet.len / UNIT_LEN;
                        Ok(true)
                    }
                    Put::NoRoom if may_hold => {
                        self.position = 0;
                        Err(VisitEnd::Hold(RoomAt::Worker(worker)))
                    }
                    Put::NoRoom | Put::Refused | Put::Unfinished => {
                        if let Some(first) = receivers.slot(to) {
                            first.count_drop(DropReason::NoRoom);
                        }
                        Ok(false)
                    }
                }
            }
        }
    }

    fn put_here(
        &mut self,
        pair: &mut QueuePair,
        packet: &Packet<'_>,
        may_hold: bool,
    ) -> Result<bool, VisitEnd> {
        self.note.delivers_into(pair.port);
        let is_staged = self.lifetime == PayloadLifetime::UntilFlush;
        self.is_read_at_flush |= is_staged && matches!(pair.end, End::Tap(_));
        match pair.put(packet, self.lifetime) {
            Put::Done => {
                self.count(pair, 1, packet);
                pair.room.is_stuck = false;
                Ok(true)
            }
            put => self.after_put(put, pair, packet, may_hold),
        }
    }

    /// The receiver has packets now that it did not have before.
    #[inline(always)]
    fn count(&mut self, pair: &mut QueuePair, packets: u32, of: &Packet<'_>) {
        self.work += packets + of.len / UNIT_LEN + pair.take_extra_units();
        self.dirty.add(pair.slot);
    }

    /// The receiver has answered something else than that it is done.
    #[inline(never)]
    fn after_put(
        &mut self,
        put: Put,
        pair: &mut QueuePair,
        packet: &Packet<'_>,
        may_hold: bool,
    ) -> Result<bool, VisitEnd> {
        let completed = self.completion.after(put, pair, packet, self.position);
        if put == Put::Unfinished {
            // Copied and parsed as a whole, even if it is refused then.
            self.work += 1 + packet.len / UNIT_LEN;
        }
        if completed.packets > 0 {
            let packets = u32::try_from(completed.packets).unwrap_or(BUDGET_UNITS);
            self.count(pair, packets, packet);
        }
        match completed.put {
            Put::Done => {
                pair.room.is_stuck = false;
                return Ok(true);
            }
            Put::NoRoom if pair.room.is_stuck || !may_hold => pair.count_drop(DropReason::NoRoom),
            Put::NoRoom => {
                // The guest must see the packets that fill the ring before it can make room.
                self.call_again |= pair.flush_to(Flush::short()).call_again;
                self.position = completed.position;
                return Err(VisitEnd::Hold(RoomAt::Slot(pair.slot)));
            }
            Put::Refused | Put::Unfinished => self.work += pair.take_extra_units(),
        }
        Ok(false)
    }
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
            Open::Routed(Some(Route::Drop)) => self.refuse(DropReason::NoRoute),
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

    /// The same for the packet that was laid out last.
    pub(crate) fn put_laid_out(&mut self, to: PortId, may_hold: bool) -> Result<bool, VisitEnd> {
        let packet = self.rewriter.packet();
        // The next one is laid out in the same place.
        let lifetime = std::mem::replace(&mut self.delivery.lifetime, PayloadLifetime::CallOnly);
        let put = self.delivery.put(&mut self.receivers, to, &packet, may_hold);
        self.delivery.lifetime = lifetime;
        put
    }

    pub(crate) fn refuse(&mut self, reason: DropReason) {
        self.refused[reason as usize] += 1;
    }

    pub(crate) fn count_drop_at(&mut self, to: PortId, reason: DropReason) {
        if let Some(first) = self.receivers.slot(to) {
            first.count_drop(reason);
        }
    }
}
