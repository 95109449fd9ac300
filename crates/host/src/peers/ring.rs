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
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, fence};

use ringway_net::{HEADER_LEN, NetHeader, PACKET_LEN_MAX, Packet};
use ringway_switch::PORTS_MAX;
use ringway_virtq::SharedSlice;

use crate::memory::scratch::Scratch;

/// Packets in one ring.
pub(crate) const PACKETS_MAX: usize = 1024;
/// Bytes in one ring: sixteen of the largest packets.
pub(crate) const BYTES_MAX: usize = 1 << 20;

/// Of the word that says where a packet goes.
const LEN_BITS: u32 = 24;
const _: () = assert!(PACKET_LEN_MAX < 1 << LEN_BITS);

/// Of the word that says where its bytes begin; the port that it comes from is above them.
const AT_BITS: u32 = 20;
const _: () = assert!(BYTES_MAX <= 1 << AT_BITS && PORTS_MAX <= 1 << (u32::BITS - AT_BITS));

/// Where packets begin: each on a cache line of its own.
const ALIGNMENT: usize = 64;

/// A value on cache lines of its own: processors fetch lines in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct OwnLine<T>(pub(crate) T);

/// What a packet is, besides its bytes; every word is written by the producer before it publishes.
#[derive(Debug, Default)]
struct Entry {
    /// Port, pair, generation of the port and length, from the highest bits on.
    place: AtomicU64,
    /// The first eight bytes of the header.
    header: AtomicU64,
    /// The other four, then the port that it comes from and where the bytes begin.
    rest: AtomicU64,
}

/// What both sides share. Each line is written by one of them.
#[derive(Debug)]
struct Ring {
    /// Packets published since the start; written by the producer.
    published: OwnLine<AtomicUsize>,
    /// Packets released since the start; written by the consumer.
    released: OwnLine<AtomicUsize>,
    /// The producer waits for room; written by both, only when the ring is full.
    wants_room: OwnLine<AtomicBool>,
    entries: Box<[Entry]>,
    bytes: Scratch,
}

/// A packet for a queue of another worker.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HandedOver {
    /// The port that it comes from.
    pub(crate) from: u16,
    /// The receiving port.
    pub(crate) port: u16,
    /// Its queue pair.
    pub(crate) pair: u16,
    /// Which of the ports that have had that number.
    pub(crate) generation: u8,
    pub(crate) header: NetHeader,
    /// Bytes in `payload`.
    pub(crate) len: u32,
    pub(crate) payload: [SharedSlice; 1],
    /// So many of its segments were delivered before.
    pub(crate) segments_done: usize,
}

/// The producing side.
#[derive(Debug)]
pub(crate) struct Producer {
    ring: Arc<Ring>,
    /// The port that packets come from.
    pub(crate) from: u16,
    /// Packets staged since the start.
    staged: usize,
    published: usize,
    /// Bytes taken since the start, gaps at the end included.
    bytes: usize,
    /// What `bytes` was behind each packet.
    ends: Box<[usize]>,
}

/// The consuming side.
#[derive(Debug)]
pub(crate) struct Consumer {
    ring: Arc<Ring>,
    /// The oldest packet that is not released.
    first: usize,
    /// The next packet to offer.
    next: usize,
    is_done: Box<[bool]>,
    /// Of packets that were left.
    segments_done: Box<[usize]>,
}

/// An empty ring.
pub(crate) fn ring() -> (Producer, Consumer) {
    let ring = Arc::new(Ring {
        published: OwnLine::default(),
        released: OwnLine::default(),
        wants_room: OwnLine::default(),
        entries: (0..PACKETS_MAX).map(|_| Entry::default()).collect(),
        bytes: Scratch::new(BYTES_MAX),
    });
    let producer = Producer {
        ring: ring.clone(),
        from: 0,
        staged: 0,
        published: 0,
        bytes: 0,
        ends: vec![0; PACKETS_MAX].into(),
    };
    let consumer = Consumer {
        ring,
        first: 0,
        next: 0,
        is_done: vec![false; PACKETS_MAX].into(),
        segments_done: vec![0; PACKETS_MAX].into(),
    };
    (producer, consumer)
}

impl Producer {
    /// Copies a packet in; `false`: there is no room for it, and nothing changed.
    pub(crate) fn put(
        &mut self,
        (port, generation): (u16, u8),
        pair: u16,
        packet: &Packet<'_>,
    ) -> bool {
        let Some(at) = self.room_for(packet.len as usize) else { return false };
        let Some(bytes) = self.ring.bytes.bytes().slice(at, packet.len as usize) else {
            return false;
        };
        let mut room = bytes;
        for &piece in packet.payload {
            let copied = piece.copy_to(room);
            room = room.split_at(copied).1;
        }
        let entry = &self.ring.entries[self.staged % PACKETS_MAX];
        let place = u64::from(port) << 48 | u64::from(pair) << 32;
        let place = place | u64::from(generation) << LEN_BITS | u64::from(packet.len);
        entry.place.store(place, Relaxed);
        let [head, tail] = words(packet.header.encode());
        entry.header.store(head, Relaxed);
        let from = u64::from(self.from) << AT_BITS;
        entry.rest.store(tail << 32 | from | at as u64, Relaxed);
        self.bytes += at.wrapping_sub(self.bytes % BYTES_MAX) % BYTES_MAX;
        self.bytes += (packet.len as usize).next_multiple_of(ALIGNMENT);
        self.ends[self.staged % PACKETS_MAX] = self.bytes;
        self.staged += 1;
        true
    }

    /// Where that many bytes fit in one piece.
    fn room_for(&self, len: usize) -> Option<usize> {
        // What the consumer has read before it released is not read again.
        let released = self.ring.released.0.load(Acquire);
        if self.staged - released == PACKETS_MAX {
            return None;
        }
        let free_from = match released {
            0 => 0,
            _ => self.ends[(released - 1) % PACKETS_MAX],
        };
        let len = len.next_multiple_of(ALIGNMENT);
        let at = self.bytes % BYTES_MAX;
        let gap = if BYTES_MAX - at < len { BYTES_MAX - at } else { 0 };
        let is_free = self.bytes + gap + len - free_from <= BYTES_MAX;
        is_free.then_some((at + gap) % BYTES_MAX)
    }

    /// Makes everything put visible; `true`: there was something.
    pub(crate) fn publish(&mut self) -> bool {
        if self.published == self.staged {
            return false;
        }
        self.published = self.staged;
        self.ring.published.0.store(self.staged, Release);
        true
    }

    /// Asks the consumer to wake this worker when there is room again. Whether there is room
    /// already must be checked after a fence; see `WakeFlag`.
    pub(crate) fn ask_for_room(&self) {
        self.ring.wants_room.0.store(true, Relaxed);
    }

    /// Whether there is room for any packet.
    pub(crate) fn has_room(&self) -> bool {
        self.room_for(PACKET_LEN_MAX as usize).is_some()
    }
}

impl Consumer {
    /// The next packet that is not done, if any was published. It must then be either
    /// [`done`](Self::done) or [left](Self::leave).
    pub(crate) fn peek(&mut self) -> Option<HandedOver> {
        let published = self.ring.published.0.load(Acquire);
        while self.next != published && self.is_done[self.next % PACKETS_MAX] {
            self.next += 1;
        }
        if self.next == published {
            return None;
        }
        let entry = &self.ring.entries[self.next % PACKETS_MAX];
        let [port, pair, len_high, len_low] = quarters(entry.place.load(Relaxed));
        let [generation, len_high] = len_high.to_be_bytes();
        let len = u32::from(len_high) << 16 | u32::from(len_low);
        let rest = entry.rest.load(Relaxed);
        let header = header(entry.header.load(Relaxed), rest >> 32);
        let at = usize::try_from(rest & ((1 << AT_BITS) - 1)).ok()?;
        let from = u16::try_from(rest >> AT_BITS & ((1 << (u32::BITS - AT_BITS)) - 1)).ok()?;
        let payload = [self.ring.bytes.bytes().slice(at, len as usize)?];
        let segments_done = self.segments_done[self.next % PACKETS_MAX];
        Some(HandedOver { from, port, pair, generation, header, len, payload, segments_done })
    }

    /// The packet peeked at has arrived, or was dropped.
    pub(crate) fn done(&mut self) {
        self.segments_done[self.next % PACKETS_MAX] = 0;
        self.is_done[self.next % PACKETS_MAX] = true;
        self.next += 1;
    }

    /// The packet peeked at stays for later; so many of its segments were delivered.
    pub(crate) fn leave(&mut self, segments_done: usize) {
        self.segments_done[self.next % PACKETS_MAX] = segments_done;
        self.next += 1;
    }

    /// Packets that were left are offered again.
    pub(crate) fn offer_again(&mut self) {
        self.next = self.first;
    }

    /// Whether something was published and not offered yet.
    pub(crate) fn has_more(&self) -> bool {
        self.next != self.ring.published.0.load(Acquire)
    }

    /// Whether what was left, with everything behind it that was offered, takes up more than half
    /// of the ring.
    pub(crate) fn is_crowded(&self) -> bool {
        let packets = self.next.wrapping_sub(self.first);
        if packets == 0 {
            return false;
        }
        let at = |number: usize| self.ring.entries[number % PACKETS_MAX].rest.load(Relaxed);
        let from = at(self.first) & 0xffff_ffff;
        let bytes = (at(self.next - 1) & 0xffff_ffff).wrapping_sub(from) % BYTES_MAX as u64;
        packets > PACKETS_MAX / 2 || bytes > BYTES_MAX as u64 / 2
    }

    /// Gives back what is done, as far as nothing older was left; `true`: the producer waits for
    /// that, and must be woken if it sleeps.
    pub(crate) fn release(&mut self) -> bool {
        let before = self.first;
        while self.first != self.next && self.is_done[self.first % PACKETS_MAX] {
            self.is_done[self.first % PACKETS_MAX] = false;
            self.first += 1;
        }
        if self.first == before {
            return false;
        }
        self.ring.released.0.store(self.first, Release);
        // A producer that asks for room reads `released` behind a fence of its own: it sees this
        // store, or the load below sees that it asked.
        // PAIRS WITH: wake_flag.rs::going_to_sleep
        fence(SeqCst);
        let wants_room = &self.ring.wants_room.0;
        wants_room.load(Relaxed) && wants_room.swap(false, Relaxed)
    }
}

fn words(header: [u8; HEADER_LEN]) -> [u64; 2] {
    let [a, b, c, d, e, f, g, h, i, j, k, l] = header;
    [u64::from_le_bytes([a, b, c, d, e, f, g, h]), u32::from_le_bytes([i, j, k, l]).into()]
}

fn header(head: u64, tail: u64) -> NetHeader {
    let mut bytes = [0; HEADER_LEN];
    bytes[..8].copy_from_slice(&head.to_le_bytes());
    bytes[8..].copy_from_slice(&tail.to_le_bytes()[..4]);
    NetHeader::decode(&bytes)
}

/// The four 16-bit parts, the highest first.
fn quarters(word: u64) -> [u16; 4] {
    let [a, b, c, d, e, f, g, h] = word.to_be_bytes();
    [[a, b], [c, d], [e, f], [g, h]].map(u16::from_be_bytes)
}

#[cfg(test)]
mod tests;
