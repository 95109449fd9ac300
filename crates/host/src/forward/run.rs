//! Packets that go the same way, one after the other: what is the same for all is asked once.
//!
//! How: [`Run::forward_run`] is compiled for each kind of source and of sink, so that between two
//! packets nothing is looked up, chosen or called that need not be. Limits: it ends with the first
//! packet that goes another way, or that its sink does not simply take.

use ringway_device::AnyGuestPort;
use ringway_net::{DropReason, ETHERNET_HEADER_LEN, Packet, PacketSink, PacketSource, Put};

use crate::forward::budget::{BUDGET_UNITS, units};
use crate::port::queue_pair::{End, PayloadLifetime, QueuePair};
use crate::tap::Tap;

/// The packets behind the first one that go the same way.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RouteScope {
    /// Something in each packet decides.
    OnePacket,
    /// As long as they are between the same two stations, and so begin with these bytes.
    Stations([u8; ETHERNET_HEADER_LEN]),
    /// There is no other way.
    Always,
}

/// Why a run has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunEnd {
    /// The source has nothing more to lend.
    Idle,
    /// The next packet may go another way, or the budget is used up.
    RouteChanged,
    /// Its sink has answered this, which is not that it is done, about the packet that is lent.
    Put(Put),
}

/// A run of packets that go the same way, and what it has moved.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) scope: RouteScope,
    /// Done in this visit, in units.
    pub(crate) work: u32,
    /// Packets that the sink has.
    pub(crate) packets: u64,
}

impl Run {
    /// Hands what a source lends to the end of a queue pair. Which kind of end that is is asked
    /// once for all of the run.
    #[inline(always)]
    pub(crate) fn forward_to(
        &mut self,
        source: &mut impl PacketSource,
        pair: &mut QueuePair,
        lifetime: PayloadLifetime,
    ) -> RunEnd {
        if !pair.carrier.takes() {
            pair.count_drop(DropReason::LinkDown);
            return RunEnd::Put(Put::Refused);
        }
        let step = pair.step();
        if step.is_some() {
            self.scope = RouteScope::OnePacket;
        }
        let ended = match &mut pair.end {
            End::Guest(guest) => match &mut guest.queues {
                AnyGuestPort::Split(queues) => self.forward_run(source, queues),
                AnyGuestPort::Packed(queues) => self.forward_run(source, queues),
            },
            End::Tap(tap) if lifetime == PayloadLifetime::UntilFlush => {
                source.read_at_flush();
                self.forward_run(source, &mut Staging(tap))
            }
            End::Tap(tap) => self.forward_run(source, &mut **tap),
            End::Nat(nat) => self.forward_run(source, &mut **nat),
            End::Absent => RunEnd::Put(Put::Refused),
        };
        if pair.faults.step_over(step) {
            // Others have waited for as long as for a whole visit.
            self.work = self.work.max(BUDGET_UNITS);
        }
        ended
    }

    /// Hands the packet that is lent to the sink, and those behind it, for as long as all is as
    /// with the first.
    #[inline(never)]
    pub(crate) fn forward_run(
        &mut self,
        source: &mut impl PacketSource,
        sink: &mut impl PacketSink,
    ) -> RunEnd {
        // Not counted in place: that would be stored for each packet.
        let (mut work, mut packets) = (self.work, 0);
        let ended = loop {
            let Some(packet) = source.peek() else { break RunEnd::Idle };
            // The way of the first one has been found; what it begins with now does not matter.
            if packets > 0 && !self.scope.for_packet(&packet) {
                break RunEnd::RouteChanged;
            }
            let units = units(&packet);
            match sink.put(&packet) {
                Put::Done => source.pop(),
                put => break RunEnd::Put(put),
            }
            packets += 1;
            work += units;
            if work >= BUDGET_UNITS {
                break RunEnd::RouteChanged;
            }
        };
        self.work = work;
        self.packets += packets;
        ended
    }
}

impl RouteScope {
    #[inline(always)]
    fn for_packet(&self, packet: &Packet<'_>) -> bool {
        match self {
            Self::OnePacket => false,
            Self::Stations(header) => packet.begins_with(header),
            Self::Always => true,
        }
    }
}

/// A tap that gets packets which stay until it is flushed.
struct Staging<'a>(&'a mut Tap);

impl PacketSink for Staging<'_> {
    fn put(&mut self, packet: &Packet<'_>) -> Put {
        self.0.stage(packet)
    }
}
