//! The layout of the memory of a ring between two workers.
//!
//! How: three counts on lines of their own, a row of entries, and the bytes of packets. A packet is
//! in the ring for the next data plane as soon as it is staged; it is out when its entry is marked,
//! whatever waits in front of it. Limits: the counts and entries are only believed after
//! [`RingWords::recover`] has checked them.
//!
//! Layout, in bytes:
//!
//! - 0 published, 128 staged, 256 released, u64 each: how many packets since the start.
//! - 4,096: 1,024 entries of 32 bytes. 0 length of the packet (24 bits), generation of the port
//!   (8), pair (16), port (16; 65,535: it has arrived); 8 header (12 bytes); 20 where its bytes
//!   begin (20 bits), and the port that it comes from (12); 24 how many segments have arrived, of
//!   a packet that the receiver gets as segments, u64.
//! - 36,864: 1 MiB of bytes.

use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::atomic::{compiler_fence, fence};

use ringway_net::{HEADER_LEN, HeaderError, NetHeader, PACKET_LEN_MAX};
use ringway_switch::PORTS_MAX;
use ringway_virtq::SharedSlice;

/// Packets in one ring.
pub(crate) const PACKETS_MAX: usize = 1024;
/// Bytes in one ring: sixteen of the largest packets.
pub(crate) const BYTES_MAX: usize = 1 << 20;
/// Where packets begin: each on a cache line of its own.
const ALIGNMENT: usize = 64;

/// Where the counts are, in bytes: apart, because processors fetch lines in pairs.
pub(crate) const APART: usize = 128;
pub(crate) const PUBLISHED_AT: usize = 0;
pub(crate) const STAGED_AT: usize = APART;
pub(crate) const RELEASED_AT: usize = 2 * APART;
/// Where the entries are, and the bytes behind them.
pub(crate) const ENTRIES_AT: usize = 4096;
const ENTRY_LEN: usize = 32;
/// Where an entry says how many segments of its packet have arrived, in bytes.
const SEGMENTS_AT: usize = 24;
const BYTES_AT: usize = (ENTRIES_AT + PACKETS_MAX * ENTRY_LEN).next_multiple_of(4096);
/// Bytes of all of it: whole pages.
pub(crate) const RING_LEN: usize = BYTES_AT + BYTES_MAX;

/// No count of packets gets there.
const COUNT_MAX: usize = 1 << 48;

/// Of the word that says where a packet goes.
const LEN_BITS: u32 = 24;
const _: () = assert!(PACKET_LEN_MAX < 1 << LEN_BITS);

/// Of the word that says where its bytes begin; the port that it comes from is above them.
const AT_BITS: u32 = 20;
const _: () = assert!(BYTES_MAX <= 1 << AT_BITS && PORTS_MAX <= 1 << (u32::BITS - AT_BITS));

/// The port of a packet that has arrived, or was dropped. No port has that number.
const DONE: u16 = u16::MAX;
const _: () = assert!(PORTS_MAX <= DONE as usize);

/// Where a packet goes and comes from, and where its bytes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The port that it comes from.
    pub(crate) from: u16,
    /// The receiving port.
    pub(crate) port: u16,
    /// Its queue pair.
    pub(crate) pair: u16,
    /// The port's generation, among the ports that have had that number.
    pub(crate) generation: u8,
    pub(crate) header: NetHeader,
    /// Its bytes, and where they begin.
    pub(crate) len: u32,
    pub(crate) at: usize,
}

/// How many segments of a packet have arrived, of one that waits for room for the others. The next
/// data plane goes on from there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SegmentsDone(pub(crate) SharedSlice);

impl SegmentsDone {
    pub(crate) fn get(self) -> usize {
        usize::try_from(self.0.load_u64(0)).unwrap_or(usize::MAX)
    }

    /// The receiver has as many, and has kept them.
    pub(crate) fn set(self, count: usize) {
        // PAIRS WITH: the end of this process
        compiler_fence(Release);
        self.0.store_u64(0, count as u64);
    }
}

/// The memory of a ring, in that layout.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RingWords {
    memory: SharedSlice,
}

/// Where the bytes of the next packets go, counted since the start and with gaps at the end.
#[derive(Debug, Clone)]
pub(crate) struct Filled {
    bytes: usize,
    /// The value of `bytes` behind each packet.
    ends: Box<[usize]>,
}

impl RingWords {
    /// Those of a ring in memory of [`RING_LEN`] bytes.
    pub(crate) fn new(memory: SharedSlice) -> Self {
        Self { memory }
    }

    /// One of the counts. What was stored before it was is seen.
    pub(crate) fn count(&self, at: usize) -> usize {
        let count = self.memory.load_u64(at);
        // PAIRS WITH: ring_words.rs::set_count
        fence(Acquire);
        usize::try_from(count).unwrap_or(usize::MAX)
    }

    pub(crate) fn set_count(&self, at: usize, count: usize) {
        // PAIRS WITH: ring_words.rs::count
        fence(Release);
        self.memory.store_u64(at, count as u64);
    }

    /// Sets the number of packets in the ring, for the data plane that comes after this one.
    pub(crate) fn set_staged(&self, count: usize) {
        // PAIRS WITH: the end of this process
        compiler_fence(Release);
        self.memory.store_u64(STAGED_AT, count as u64);
        // PAIRS WITH: the end of this process
        compiler_fence(Release);
    }

    /// Bytes of packets; `None`: there are none.
    pub(crate) fn bytes(&self, at: usize, len: usize) -> Option<SharedSlice> {
        let end = at.checked_add(len).filter(|end| *end <= BYTES_MAX)?;
        self.memory.slice(BYTES_AT + at, end - at)
    }

    fn entry_at(&self, number: usize) -> usize {
        ENTRIES_AT + ENTRY_LEN * (number % PACKETS_MAX)
    }

    pub(crate) fn entry(&self, number: usize) -> Entry {
        let [place, head, rest] =
            [0, 8, 16].map(|at| self.memory.load_u64(self.entry_at(number) + at));
        let [port_high, port_low, pair_high, pair_low, generation, len @ ..] = place.to_be_bytes();
        let [len_high, len_mid, len_low] = len;
        let mut header = [0; HEADER_LEN];
        header[..8].copy_from_slice(&head.to_le_bytes());
        let [a, b, c, d, tail @ ..] = rest.to_le_bytes();
        header[8..].copy_from_slice(&tail);
        let place = u32::from_le_bytes([a, b, c, d]);
        Entry {
            from: (place >> AT_BITS) as u16,
            port: u16::from_be_bytes([port_high, port_low]),
            pair: u16::from_be_bytes([pair_high, pair_low]),
            generation,
            header: NetHeader::decode(&header),
            len: u32::from_be_bytes([0, len_high, len_mid, len_low]),
            at: (place & ((1 << AT_BITS) - 1)) as usize,
        }
    }

    pub(crate) fn set_entry(&self, number: usize, entry: &Entry) {
        let place = u64::from(entry.port) << 48 | u64::from(entry.pair) << 32;
        let place = place | u64::from(entry.generation) << LEN_BITS | u64::from(entry.len);
        let [a, b, c, d, e, f, g, h, i, j, k, l] = entry.header.encode();
        let head = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
        let tail = u64::from(u32::from_le_bytes([i, j, k, l]));
        let rest = tail << 32 | u64::from(entry.from) << AT_BITS | entry.at as u64;
        for (at, word) in [(0, place), (8, head), (16, rest), (SEGMENTS_AT, 0)] {
            self.memory.store_u64(self.entry_at(number) + at, word);
        }
    }

    pub(crate) fn segments_done(&self, number: usize) -> SegmentsDone {
        let word = self.memory.slice(self.entry_at(number) + SEGMENTS_AT, 8);
        SegmentsDone(word.expect("inside, as all entries are"))
    }

    /// Whether the packet has arrived, or was dropped.
    pub(crate) fn is_done(&self, number: usize) -> bool {
        (self.memory.load_u64(self.entry_at(number)) >> 48) as u16 == DONE
    }

    pub(crate) fn set_done(&self, number: usize) {
        let at = self.entry_at(number);
        let place = self.memory.load_u64(at);
        // PAIRS WITH: the end of this process
        compiler_fence(Release);
        self.memory.store_u64(at, place | u64::from(DONE) << 48);
    }

    /// The packets that a worker that has ended left become published ones; none do, if they cannot
    /// be right. Before either side uses the ring.
    pub(crate) fn recover(&self) {
        let [released, published, staged] =
            [RELEASED_AT, PUBLISHED_AT, STAGED_AT].map(|at| self.count(at));
        let is_right = released <= published && published <= staged && staged < COUNT_MAX;
        let is_right = is_right && staged - released <= PACKETS_MAX;
        if is_right && self.are_right(released, staged) {
            self.set_count(PUBLISHED_AT, staged);
        } else {
            [RELEASED_AT, PUBLISHED_AT, STAGED_AT].into_iter().for_each(|at| self.set_count(at, 0));
        }
    }

    /// Whether packets are where they can be, one behind the other, with right headers.
    fn are_right(&self, released: usize, staged: usize) -> bool {
        let is_right = |entry: Entry| {
            let is_inside = self.bytes(entry.at, entry.len as usize).is_some();
            let header = match entry.header.check(entry.len) {
                // Some drivers leave the flag out.
                Ok(()) | Err(HeaderError::GsoWithoutCsum) => true,
                Err(_) => false,
            };
            is_inside && header && entry.at.is_multiple_of(ALIGNMENT) && entry.len <= PACKET_LEN_MAX
        };
        (released..staged).all(|number| is_right(self.entry(number)))
            && Filled::of(self, released, staged).is_some()
    }
}

impl Filled {
    /// The place that is filled by the packets from one to another; `None`: they cannot all be
    /// there.
    pub(crate) fn of(memory: &RingWords, released: usize, staged: usize) -> Option<Self> {
        let mut filled = Self { bytes: 0, ends: vec![0; PACKETS_MAX].into() };
        if released == staged {
            return Some(filled);
        }
        let start = memory.entry(released).at;
        filled.bytes = start;
        if let Some(before) = released.checked_sub(1) {
            filled.ends[before % PACKETS_MAX] = start;
        } else if start > 0 {
            return None;
        }
        for number in released..staged {
            let entry = memory.entry(number);
            filled.add(number, entry.at, entry.len as usize);
        }
        (filled.bytes - start <= BYTES_MAX).then_some(filled)
    }

    /// Where that many bytes fit in one piece, behind packets of which so many are released.
    pub(crate) fn room_for(&self, len: usize, released: usize) -> Option<usize> {
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

    /// The packet of that number has its bytes there.
    pub(crate) fn add(&mut self, number: usize, at: usize, len: usize) {
        self.bytes += at.wrapping_sub(self.bytes % BYTES_MAX) % BYTES_MAX;
        self.bytes += len.next_multiple_of(ALIGNMENT);
        self.ends[number % PACKETS_MAX] = self.bytes;
    }
}
