//! The next frame of the router for a guest: straight into its buffers, or through memory of the
//! router.

use ringway_device::Queue;
use ringway_nat::{Accepts, Actions, Due, Emit, Event, Guest, Protocol, Read};
use ringway_net::{DropReason, ETHERNET_HEADER_LEN, NetHeader, Packet};
use ringway_switch::PortId;
use ringway_virtq::Arm;

use crate::forward::budget::{BUDGET_UNITS, UNIT_LEN};
use crate::forward::{Fabric, VisitEnd};
use crate::nat::NatPort;
use crate::nat::fill::{FRAME_LEN_MAX, Filled, accepts, fill, read, write};
use crate::pace::Flush;
use crate::port::pair_map::PairOwner;
use crate::port::queue_pair::{End, QueuePair};
use crate::port::room::RoomAt;

/// How often a guest may post too few buffers while it is being asked to say when it has some.
const RACES_MAX: usize = 3;

/// When another worker's ring is tried again, in nanoseconds.
pub(super) const RETRY_NS: u64 = 1_000_000;

/// When a guest without room is tried again although it said nothing, in nanoseconds, and most of
/// it: it may have lost its kick (see `guest_end`).
const SILENT_NS: u64 = 10_000_000;
const SILENT_NS_MAX: u64 = 1_000_000_000;

/// Most bytes of datagrams in one frame: with the longest headers it is below 64 KiB.
const TOGETHER_LEN_MAX: usize = 65_480;

/// The state of a guest's turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// It may have more.
    Goes,
    /// It has nothing, or no room, of which it will tell.
    Over,
    /// The port itself has to wait.
    Waits(VisitEnd),
}

impl NatPort {
    /// One frame for a guest.
    pub(super) fn give(&mut self, guest: Guest, fabric: &mut Fabric<'_>) -> Turn {
        if !self.nat.is_due(guest) {
            return Turn::Over;
        }
        let slot = direct_slot(fabric, guest);
        let takes = slot.and_then(|slot| Some(accepts_of(fabric.receivers.slot(slot)?)));
        // A frame that goes through memory of ours is completed for guests that take less.
        let len_max = FRAME_LEN_MAX;
        let copied = Accepts { tso4: true, tso6: true, uso4: true, uso6: true, len_max };
        match self.nat.due(guest, takes.flatten().unwrap_or(copied)) {
            None => Turn::Over,
            Some(Due::Reply(frame)) => {
                let len = frame.len().min(self.scratch.bytes().len());
                self.scratch.bytes().write(0, &frame[..len]);
                let turn = self.deliver(guest, NetHeader::default(), len, fabric);
                if turn == Turn::Goes {
                    self.nat.replied(guest);
                }
                turn
            }
            Some(Due::Flow(emit)) => match (slot, takes.flatten()) {
                (Some(slot), Some(_)) if is_plain(fabric, emit.head().first_chunk()) => {
                    self.give_direct(guest, slot, emit, fabric)
                }
                _ => self.give_copied(guest, emit, fabric),
            },
        }
    }

    fn give_direct(
        &mut self,
        guest: Guest,
        slot: PortId,
        mut emit: Emit,
        fabric: &mut Fabric<'_>,
    ) -> Turn {
        for _ in 0..RACES_MAX {
            let Some(pair) = fabric.receivers.slot(slot) else { return Turn::Over };
            let step = pair.step();
            let End::Guest(end) = &mut pair.end else { return Turn::Over };
            let flow = emit.flow;
            let filled = fill(end, &mut emit, self.sockets.table.of(flow), &self.nat);
            if pair.faults.step_over(step) {
                fabric.delivery.work = fabric.delivery.work.max(BUDGET_UNITS);
            }
            match filled {
                Filled::Read(read, len) => {
                    if len > 0 {
                        fabric.delivery.dirty.add(slot);
                        fabric.delivery.packets += 1;
                        self.from_nat.count(len);
                        self.silent_ns = 0;
                    }
                    fabric.delivery.work += 1 + len / UNIT_LEN;
                    self.emitted(&emit, read);
                    // Waiting for more packets would only delay its acknowledgement.
                    if len > 0 && self.nat.waits_for_guest(flow) {
                        fabric.delivery.call_again |= pair.flush_to(Flush::short()).call_again;
                    }
                    return Turn::Goes;
                }
                Filled::Long => return self.give_long(guest, emit, fabric),
                Filled::Failed(why) => {
                    self.failed(&emit, Event::Failed(why));
                    return Turn::Goes;
                }
                Filled::NeverFits => return self.give_copied(guest, emit, fabric),
                Filled::NoRoom if ask_for_room(pair, &mut fabric.delivery.call_again) => {
                    self.try_again_later();
                    return Turn::Over;
                }
                // It has posted some meanwhile.
                Filled::NoRoom => {}
            }
        }
        self.try_again_later();
        Turn::Over
    }

    fn give_copied(&mut self, guest: Guest, mut emit: Emit, fabric: &mut Fabric<'_>) -> Turn {
        let pieces = [self.scratch.bytes()];
        let (head_len, flow) = (emit.head().len(), emit.flow);
        let mut socket = self.sockets.table.of(flow);
        let read = match read(&mut emit, &pieces, &mut socket, &self.nat) {
            Ok(Read::TooLong) => return self.give_long(guest, emit, fabric),
            Ok(read) => read,
            Err(why) => {
                self.failed(&emit, Event::Failed(why));
                return Turn::Goes;
            }
        };
        let Read::Bytes(bytes) = read else {
            fabric.delivery.work += 1;
            self.emitted(&emit, read);
            return Turn::Goes;
        };
        let Some(header) = emit.finish(bytes) else {
            self.emitted(&emit, Read::TooLong);
            return Turn::Goes;
        };
        write(&pieces, emit.head());
        let turn = self.deliver(guest, header, head_len + bytes as usize, fabric);
        if turn == Turn::Goes {
            self.emitted(&emit, read);
        } else if emit.source.is_some_and(|source| source.peek_at.is_none()) {
            // It cannot be read again.
            fabric.receivers.count_drop_at(PortId(guest.0), DropReason::NoRoom);
            self.emitted(&emit, Read::TooLong);
        }
        turn
    }

    /// A message that is no frame for its guest as it is. What is longer than a packet goes there
    /// in parts, which are due next; several that are not are one frame, which is completed.
    fn give_long(&mut self, guest: Guest, mut emit: Emit, fabric: &mut Fabric<'_>) -> Turn {
        let message = std::mem::take(&mut self.sockets.table.vectors.gathered);
        let len = u32::try_from(message.len()).unwrap_or(u32::MAX);
        if self.sockets.is_no_answer(emit.flow, &message, self.now) {
            self.sockets.table.vectors.gathered = message;
            self.emitted(&emit, Read::TooLong);
            return Turn::Goes;
        }
        match emit.segment_len().map(usize::from) {
            Some(_) if !emit.is_longer(len) => {
                self.give_several(guest, &mut emit, &message, fabric);
            }
            None => self.nat.cut(&emit, &message),
            Some(each) => {
                message.chunks(each).for_each(|message| self.nat.cut(&emit, message));
                // From now on each waits in the socket for its turn.
                if let Some((socket, _)) = self.sockets.table.of(emit.flow) {
                    socket.fd.come_alone();
                    socket.take_several(false);
                }
            }
        }
        fabric.delivery.work += 1 + len / UNIT_LEN;
        self.sockets.table.vectors.gathered = message;
        self.emitted(&emit, Read::Bytes(len));
        Turn::Goes
    }

    /// Several datagrams of one length, and a last one, as one frame.
    fn give_several(
        &mut self,
        guest: Guest,
        emit: &mut Emit,
        message: &[u8],
        fabric: &mut Fabric<'_>,
    ) {
        let (head_len, bytes) = (emit.head().len(), self.scratch.bytes());
        let each = emit.segment_len().map_or(message.len(), usize::from);
        for several in message.chunks((TOGETHER_LEN_MAX / each * each).max(each)) {
            let len = u32::try_from(several.len()).unwrap_or(u32::MAX);
            let Some(header) = emit.finish(len) else { return };
            write(&[bytes], emit.head());
            bytes.write(head_len, several);
            // Without room the rest is lost, as on any other link.
            if self.deliver(guest, header, head_len + several.len(), fabric) != Turn::Goes {
                return fabric.receivers.count_drop_at(PortId(guest.0), DropReason::NoRoom);
            }
        }
    }

    /// Hands the frame in `scratch` to the port that the guest is behind.
    fn deliver(
        &mut self,
        guest: Guest,
        header: NetHeader,
        len: usize,
        fabric: &mut Fabric<'_>,
    ) -> Turn {
        let (to, bytes) = (PortId(guest.0), self.scratch.bytes());
        let Some(bytes) = bytes.slice(0, len) else { return Turn::Goes };
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        let packet = Packet { header: &header, payload: &[bytes], len };
        fabric.delivery.position = 0;
        let (work, refused) = (fabric.delivery.work, fabric.refused_before());
        let given = match is_plain(fabric, packet.ethernet_header().as_ref()) {
            true => fabric.delivery.put(&mut fabric.receivers, to, &packet, true),
            false => fabric.deliver_guarded(&packet).map_or(Ok(true), Err),
        };
        fabric.delivery.work = fabric.delivery.work.max(work + 1);
        match given {
            Ok(is_taken) => {
                if is_taken {
                    fabric.delivery.packets += 1;
                    self.from_nat.count(len);
                }
                if let Some(before) = refused {
                    fabric.note_taken(&packet, &before);
                }
                Turn::Goes
            }
            Err(VisitEnd::Hold(RoomAt::Slot(slot))) => {
                if let Some(pair) = fabric.receivers.slot(slot)
                    && !ask_for_room(pair, &mut fabric.delivery.call_again)
                {
                    self.retry_at = Some(fabric.now);
                }
                Turn::Over
            }
            Err(VisitEnd::Wait(at)) => Turn::Waits(VisitEnd::Wait(at)),
            Err(_) => {
                self.retry_at = Some(fabric.now.plus(RETRY_NS));
                Turn::Over
            }
        }
    }

    fn try_again_later(&mut self) {
        self.silent_ns = (2 * self.silent_ns).clamp(SILENT_NS, SILENT_NS_MAX);
        self.retry_at.get_or_insert(self.now.plus(self.silent_ns));
    }

    fn emitted(&mut self, emit: &Emit, read: Read) {
        let is_shared =
            self.sockets.table.of(emit.flow).is_some_and(|(socket, _)| socket.way.is_some());
        let mut actions = Actions::new();
        self.nat.emitted(emit, read, self.now, &mut actions);
        self.carry_out(&mut actions, None);
        if is_shared && self.sockets.listeners.forget_flow(|flow| flow == emit.flow) {
            self.look_at_datagrams();
        }
    }

    /// A socket has an error: of one for datagrams the kernel has reports of it.
    fn failed(&mut self, emit: &Emit, event: Event) {
        let is_stream = self
            .sockets
            .table
            .of(emit.flow)
            .is_none_or(|(socket, _)| socket.protocol == Protocol::Tcp);
        if is_stream {
            return self.tell_one(emit.flow, event);
        }
        // It is read again then: there may be more behind the error.
        self.sockets.take_reports(emit.flow, self.now);
        self.tell();
    }
}

/// The slot of the guest's only queue pair, if its buffers can be filled directly.
fn direct_slot(fabric: &mut Fabric<'_>, guest: Guest) -> Option<PortId> {
    // Captures and mirrors have to see each packet.
    if fabric.delivery.observers.is_some() {
        return None;
    }
    let port = fabric.receivers.port(PortId(guest.0))?;
    let pair = port.pairs.steering.pair_unseen(fabric.delivery.pair)?;
    match port.owner_of(pair) {
        PairOwner::Here(slot) => Some(slot),
        PairOwner::There(_) => None,
    }
}

/// The offloads and the frame length that the guest in a slot takes without help; `None`: its
/// frames are completed.
fn accepts_of(pair: &QueuePair) -> Option<Accepts> {
    let End::Guest(guest) = &pair.end else { return None };
    let is_ready = pair.carrier.takes() && guest.queues.is_running(Queue::ToGuest);
    // A read that is not used would have to be marked in a log of pages.
    let is_ready = is_ready && !guest.memory.has_log();
    (is_ready && guest.queues.negotiated().guest_csum).then(|| accepts(guest))
}

/// Asks a guest to say when it has buffers; `false`: it may have some already.
fn ask_for_room(pair: &mut QueuePair, call_again: &mut bool) -> bool {
    // The guest must see the packets that fill the ring before it can make room.
    *call_again |= pair.flush_to(Flush::short()).call_again;
    match &mut pair.end {
        End::Guest(guest) => !guest.queues.arm_kicks(Queue::ToGuest, Arm::Next),
        _ => true,
    }
}

/// Whether no policy has a say in the packet. The switch learns where the router is.
fn is_plain(fabric: &mut Fabric<'_>, header: Option<&[u8; ETHERNET_HEADER_LEN]>) -> bool {
    let (from, now_ms) = (fabric.from, fabric.now_ms);
    let route = |header| fabric.switch.route_plain(from, header, now_ms);
    fabric.cable.is_some() || header.and_then(route).is_some()
}
