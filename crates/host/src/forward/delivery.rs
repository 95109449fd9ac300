//! One packet into one port: its queue pair here, or the worker that has it.

use ringway_net::{DropReason, FromPair, Packet, Put};
use ringway_switch::PortId;

use crate::capture::observers::Observers;
use crate::forward::VisitEnd;
use crate::forward::budget::{BUDGET_UNITS, UNIT_LEN};
use crate::forward::completion::Completion;
use crate::forward::receivers::Receivers;
use crate::forward::rewrite::Rewriter;
use crate::journal::worker_line::VisitNote;
use crate::pace::Flush;
use crate::peers::{RemoteSlot, WorkerPeers};
use crate::port::pair_map::PairOwner;
use crate::port::queue_pair::{End, PayloadLifetime, QueuePair};
use crate::port::room::RoomAt;
use crate::port::slot_list::SlotList;

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

    pub(super) fn put_unseen(
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
                let slot = RemoteSlot { port: to, generation: port.generation, pair };
                match self.peers.hand_over(worker, slot, packet) {
                    Put::Done => {
                        self.work += 1 + packet.len / UNIT_LEN;
                        Ok(true)
                    }
                    Put::NoRoom if may_hold => {
                        self.position = 0;
                        Err(VisitEnd::Hold(RoomAt::Worker(worker)))
                    }
                    Put::NoRoom | Put::Refused | Put::Unfinished => {
                        receivers.count_drop_at(to, DropReason::NoRoom);
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
    pub(super) fn after_put(
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

    /// Hands over the packet that was laid out last, as [`put`](Self::put) does.
    pub(super) fn put_laid_out(
        &mut self,
        receivers: &mut Receivers<'_>,
        to: PortId,
        rewriter: &Rewriter,
        may_hold: bool,
    ) -> Result<bool, VisitEnd> {
        let packet = rewriter.packet();
        // The next one is laid out in the same place.
        let lifetime = std::mem::replace(&mut self.lifetime, PayloadLifetime::CallOnly);
        let put = self.put(receivers, to, &packet, may_hold);
        self.lifetime = lifetime;
        put
    }
}
