//! Packets on their way from one worker to another: a bounded ring with one producer and one
//! consumer.
//!
//! Theory of operation: a packet that has to go out of a queue of another worker is copied into the
//! ring, because its buffer goes back to its sender at once. The producer stages and publishes, the
//! consumer peeks and releases, both in batches. A packet whose receiver has no room yet may stay
//! behind while later ones go: the consumer marks what is done, and releases from the front.
//!
//! Limits: at most [`PACKETS_MAX`] packets and [`BYTES_MAX`] bytes at a time, all taken when the
//! ring is made. A packet is never split over the end of the bytes.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, fence};

use ringway_net::{PACKET_LEN_MAX, Packet};
use ringway_virtq::SharedSlice;

use crate::memory::ring_words::{
    BYTES_MAX, Entry, Filled, PACKETS_MAX, PUBLISHED_AT, RELEASED_AT, STAGED_AT, SegmentsDone,
};
use crate::peers::ring_memory::RingMemory;

/// A value on cache lines of its own: processors fetch lines in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct OwnLine<T>(pub(crate) T);

/// A packet for a queue of another worker.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HandedOver {
    pub(crate) entry: Entry,
    pub(crate) payload: [SharedSlice; 1],
    pub(crate) segments_done: SegmentsDone,
}

/// The producer waits for room; written by both, only when the ring is full.
type WantsRoom = Arc<OwnLine<AtomicBool>>;

/// The producing side.
#[derive(Debug)]
pub(crate) struct Producer {
    memory: RingMemory,
    /// The memory that both sides have had at first.
    own: RingMemory,
    wants_room: WantsRoom,
    /// The port that packets come from.
    pub(crate) from: u16,
    /// Packets staged and published since the start.
    staged: usize,
    published: usize,
    filled: Filled,
}

/// The consuming side.
#[derive(Debug)]
pub(crate) struct Consumer {
    memory: RingMemory,
    /// The memory that both sides have had at first.
    own: RingMemory,
    wants_room: WantsRoom,
    /// The oldest packet that is not released.
    first: usize,
    /// The next packet to offer.
    next: usize,
}

/// An empty ring.
pub(crate) fn ring() -> (Producer, Consumer) {
    let (own, wants_room) = (RingMemory::own(), WantsRoom::default());
    let producer = Producer::over(own.clone(), own.clone(), wants_room.clone());
    (producer, Consumer::over(own.clone(), own, wants_room))
}

impl Producer {
    fn over(memory: RingMemory, own: RingMemory, wants_room: WantsRoom) -> Self {
        let [staged, released] = [STAGED_AT, RELEASED_AT].map(|at| memory.count(at));
        let filled = Filled::of(&memory, released, staged).expect("checked, or empty");
        Self { memory, own, wants_room, from: 0, staged, published: staged, filled }
    }

    /// Goes on in that memory, where the ring is empty or recovered; `None`: in the ring's own. The
    /// other side has to do the same.
    pub(crate) fn move_to(&mut self, memory: Option<RingMemory>) {
        let own = self.own.clone();
        *self = Self::over(memory.unwrap_or_else(|| own.clone()), own, self.wants_room.clone());
    }

    /// Copies a packet in; `false`: there is no room for it, and nothing changed.
    pub(crate) fn put(
        &mut self,
        port: u16,
        generation: u8,
        pair: u16,
        packet: &Packet<'_>,
    ) -> bool {
        let len = packet.len as usize;
        let Some(at) = self.room_for(len) else { return false };
        let Some(bytes) = self.memory.bytes(at, len) else { return false };
        let mut room = bytes;
        for &piece in packet.payload {
            let copied = piece.copy_to(room);
            room = room.split_at(copied).1;
        }
        let (from, header, len) = (self.from, *packet.header, packet.len);
        let entry = Entry { from, port, pair, generation, header, len, at };
        self.memory.set_entry(self.staged, &entry);
        self.filled.add(self.staged, at, packet.len as usize);
        self.staged += 1;
        self.memory.set_staged(self.staged);
        true
    }

    /// Where that many bytes fit in one piece.
    fn room_for(&self, len: usize) -> Option<usize> {
        // The consumer does not read again what it has read before it released.
        let released = self.memory.count(RELEASED_AT);
        if self.staged - released == PACKETS_MAX {
            return None;
        }
        self.filled.room_for(len, released)
    }

    /// Makes everything put visible; `true`: there was something.
    pub(crate) fn publish(&mut self) -> bool {
        if self.published == self.staged {
            return false;
        }
        self.published = self.staged;
        self.memory.set_count(PUBLISHED_AT, self.staged);
        true
    }

    /// Asks the consumer to wake this worker when there is room again. Whether there is room
    /// already must be checked after a fence; see `WakeFlag`.
    pub(crate) fn ask_for_room(&self) {
        self.wants_room.0.store(true, Relaxed);
    }

    /// Whether there is room for any packet.
    pub(crate) fn has_room(&self) -> bool {
        self.room_for(PACKET_LEN_MAX as usize).is_some()
    }
}

impl Consumer {
    fn over(memory: RingMemory, own: RingMemory, wants_room: WantsRoom) -> Self {
        let first = memory.count(RELEASED_AT);
        Self { memory, own, wants_room, first, next: first }
    }

    /// Goes on in that memory, where the ring is empty or recovered; `None`: in the ring's own. The
    /// other side has to do the same.
    pub(crate) fn move_to(&mut self, memory: Option<RingMemory>) {
        let own = self.own.clone();
        *self = Self::over(memory.unwrap_or_else(|| own.clone()), own, self.wants_room.clone());
    }

    /// The next packet that is not done, if any was published. It must then be either
    /// [`done`](Self::done) or [left](Self::leave).
    pub(crate) fn peek(&mut self) -> Option<HandedOver> {
        let published = self.memory.count(PUBLISHED_AT);
        while self.next != published && self.memory.is_done(self.next) {
            self.next += 1;
        }
        if self.next == published {
            return None;
        }
        let entry = self.memory.entry(self.next);
        let payload = [self.memory.bytes(entry.at, entry.len as usize)?];
        Some(HandedOver { entry, payload, segments_done: self.memory.segments_done(self.next) })
    }

    /// The packet peeked at has arrived, or was dropped.
    pub(crate) fn done(&mut self) {
        self.memory.set_done(self.next);
        self.next += 1;
    }

    /// The packet peeked at stays for later.
    pub(crate) fn leave(&mut self) {
        self.next += 1;
    }

    /// Packets that were left are offered again.
    pub(crate) fn offer_again(&mut self) {
        self.next = self.first;
    }

    /// Whether something was published and not offered yet.
    pub(crate) fn has_more(&self) -> bool {
        self.next != self.memory.count(PUBLISHED_AT)
    }

    /// Whether the packets that were left, with everything behind them that was offered, take up
    /// more than half of the ring.
    pub(crate) fn is_crowded(&self) -> bool {
        let packets = self.next.wrapping_sub(self.first);
        if packets == 0 {
            return false;
        }
        let [from, to] = [self.first, self.next - 1].map(|number| self.memory.entry(number).at);
        packets > PACKETS_MAX / 2 || to.wrapping_sub(from) % BYTES_MAX > BYTES_MAX / 2
    }

    /// Gives back what is done, as far as nothing older was left; `true`: the producer waits for
    /// that, and must be woken if it sleeps.
    pub(crate) fn release(&mut self) -> bool {
        let before = self.first;
        while self.first != self.next && self.memory.is_done(self.first) {
            self.first += 1;
        }
        if self.first == before {
            return false;
        }
        self.memory.set_count(RELEASED_AT, self.first);
        // A producer that asks for room reads the count behind a fence of its own: it sees this
        // store, or the load below sees that it asked.
        // PAIRS WITH: wake_flag.rs::going_to_sleep
        fence(SeqCst);
        let wants_room = &self.wants_room.0;
        wants_room.load(Relaxed) && wants_room.swap(false, Relaxed)
    }
}

#[cfg(test)]
mod tests;
