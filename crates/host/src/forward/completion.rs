//! Completing packets on delivery: a receiver never sees an offload that it did not accept.
//!
//! How: a sink that answers [`Put::Unfinished`] gets, one after the other, the segments that
//! [`complete`] makes of a private copy of the packet. If the receiver runs out of room on the way,
//! the packet waits like any other, and its source remembers how many segments were delivered.
//!
//! Limits: the packet is copied anew each time it is offered again, and for each receiver of a
//! flood. A sender that changes a packet while it waits sends a mixture; no other packet is
//! concerned.

use ringway_net::offload::complete;
use ringway_net::{DropReason, PACKET_LEN_MAX, Packet, Put};

use crate::memory::ring_words::SegmentsDone;
use crate::port::queue_pair::{PayloadLifetime, QueuePair};

/// The scratch space of one worker.
#[derive(Debug)]
pub(crate) struct Completion {
    bytes: Box<[u8]>,
}

/// The outcome of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Completed {
    /// As if the receiver had said so about the packet itself; never `Unfinished`.
    pub(crate) put: Put,
    /// How many of its segments the receiver has, while the packet must wait.
    pub(crate) position: usize,
    /// Packets that the receiver got just now.
    pub(crate) packets: usize,
}

impl Completed {
    /// Of a packet that needs nothing done to it.
    fn of(put: Put) -> Self {
        Self { put, position: 0, packets: usize::from(put == Put::Done) }
    }
}

impl Completion {
    pub(crate) fn new() -> Self {
        Self { bytes: vec![0; PACKET_LEN_MAX as usize].into_boxed_slice() }
    }

    /// Hands a packet of another worker to a queue pair; of one that has to be completed, those
    /// segments that have not arrived.
    pub(crate) fn put(
        &mut self,
        pair: &mut QueuePair,
        packet: &Packet<'_>,
        lifetime: PayloadLifetime,
        segments_done: SegmentsDone,
    ) -> Completed {
        match pair.put(packet, lifetime) {
            Put::Unfinished => {
                let note = |count| segments_done.set(count);
                self.deliver(pair, packet, segments_done.get(), note)
            }
            put => Completed::of(put),
        }
    }

    /// Goes on with a packet of which the receiver has said that; of one that has to be completed,
    /// the segments from number `position` on go there.
    pub(crate) fn after(
        &mut self,
        put: Put,
        pair: &mut QueuePair,
        packet: &Packet<'_>,
        position: usize,
    ) -> Completed {
        match put {
            Put::Unfinished => self.deliver(pair, packet, position, |_| ()),
            put => Completed::of(put),
        }
    }

    /// `note` is told how many segments have arrived, after each.
    fn deliver(
        &mut self,
        pair: &mut QueuePair,
        packet: &Packet<'_>,
        position: usize,
        note: impl Fn(usize),
    ) -> Completed {
        let len = packet.copy_out(&mut self.bytes);
        let bytes = &mut self.bytes[..len];
        let Ok(mut segments) = complete(packet.header, bytes, pair.accepts_csum()) else {
            pair.count_drop(DropReason::Offload);
            return Completed { put: Put::Refused, position: 0, packets: 0 };
        };
        segments.skip_to(position);
        let mut packets = 0;
        loop {
            let position = segments.position();
            let Some(segment) = segments.cut() else {
                return Completed { put: Put::Done, position: 0, packets };
            };
            match pair.put_segment(&segment) {
                Put::Done => {
                    packets += 1;
                    note(position + 1);
                }
                // One reason, counted once, stands for the rest of the packet.
                put => return Completed { put, position, packets },
            }
        }
    }
}
