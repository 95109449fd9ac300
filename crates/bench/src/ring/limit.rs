//! The limit: the plainest ring between two threads, one copy in and one copy out.
//!
//! How: slots of one length, a position for each side, each on a line of its own and published
//! once per batch; each side remembers what it last saw of the other. The sender asks for the lines
//! that it will write ahead, as ringway does. No descriptors, no header, no checks: what carries
//! packets between two cores and is faster copies less.
//!
//! Limits: one producer, one consumer; not for use, only to compare with.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use ringway_testkit::TestMemory;
use ringway_virtq::{Broken, SharedSlice, prefetch_distance};

use super::end::{End, Template};

/// Bytes in flight that do not fit a core's second-level cache. What a core has written comes
/// quicker to the other one from the cache that both share than from the writer's own, but not for
/// every length and on every machine.
const BYTES: u64 = 4 * 1024 * 1024;

/// Bytes from one slot to the next: slots begin at lines, so that two packets never share one.
fn slot_len(packet_len: usize) -> u64 {
    (packet_len as u64).next_multiple_of(64)
}

/// The depths to try, in packets, powers of two: that of the rows' queues, and what [`BYTES`] hold.
pub(super) fn depths(packet_len: usize, queue_size: u16) -> [u64; 2] {
    [queue_size.into(), 1 << (BYTES / slot_len(packet_len)).max(2).ilog2()]
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct Line(AtomicU64);

#[derive(Debug)]
struct Lane {
    slots: SharedSlice,
    /// Length of the packet in each slot, 4 bytes each.
    lens: SharedSlice,
    slot_len: usize,
    /// A power of two.
    depth: u64,
    filled: Line,
    emptied: Line,
    /// Keeps the slots mapped. Never locked: it is in a lock because both sides have it.
    _memory: Mutex<TestMemory>,
}

impl Lane {
    fn new(packet_len: usize, depth: u64) -> std::io::Result<Self> {
        assert!(depth.is_power_of_two(), "{depth} slots");
        let slot_len = slot_len(packet_len);
        let page = |len: u64| len.next_multiple_of(4096);
        let memory = TestMemory::new(&[(0, page(depth * slot_len)), (1 << 32, page(depth * 4))])?;
        let (slots, lens) = (memory.region(0), memory.region(1));
        let slot_len = usize::try_from(slot_len).map_err(std::io::Error::other)?;
        let (filled, emptied) = (Line::default(), Line::default());
        Ok(Self { slots, lens, slot_len, depth, filled, emptied, _memory: Mutex::new(memory) })
    }

    fn slot(&self, position: u64) -> usize {
        usize::try_from(position & (self.depth - 1)).unwrap_or(0)
    }
}

/// One end of a lane: one sends and the other receives.
#[derive(Debug)]
pub(super) struct LimitEnd {
    lane: Arc<Lane>,
    /// Packets that this end has sent or received, and the other end as far as is known here.
    own: u64,
    other: u64,
}

impl LimitEnd {
    /// Both ends, for packets of one length, with at most `depth` in flight, a power of two.
    pub fn pair(packet_len: usize, depth: u64) -> std::io::Result<[Self; 2]> {
        let lane = Arc::new(Lane::new(packet_len, depth)?);
        Ok([(); 2].map(|()| Self { lane: Arc::clone(&lane), own: 0, other: 0 }))
    }

    /// Asks for a slot that is written soon; see `prefetch_distance`.
    #[inline]
    fn prefetch(&self) {
        // Of a position that only says how far ahead, the low bits are enough.
        #[allow(clippy::cast_possible_truncation)]
        let soon = self.own + u64::from(prefetch_distance(self.own as u16));
        if soon - self.other < self.lane.depth {
            self.lane.slots.prefetch_to_write(self.lane.slot(soon) * self.lane.slot_len);
        }
    }
}

impl End for LimitEnd {
    #[inline]
    fn send(&mut self, packet: &Template) -> Result<bool, Broken> {
        let lane = &*self.lane;
        if self.own - self.other == lane.depth {
            self.other = lane.emptied.0.load(Ordering::Acquire);
            if self.own - self.other == lane.depth {
                return Ok(false);
            }
        }
        self.prefetch();
        let (slot, bytes) = (lane.slot(self.own), packet.bytes());
        lane.slots.write(slot * lane.slot_len, bytes);
        lane.lens.store_u32(slot * 4, u32::try_from(bytes.len()).unwrap_or(0));
        self.own += 1;
        Ok(true)
    }

    #[inline]
    fn flush_sent(&mut self) {
        self.lane.filled.0.store(self.own, Ordering::Release);
    }

    #[inline]
    fn receive(&mut self, into: &mut [u8]) -> Result<Option<usize>, Broken> {
        let lane = &*self.lane;
        if self.own == self.other {
            self.other = lane.filled.0.load(Ordering::Acquire);
            if self.own == self.other {
                return Ok(None);
            }
        }
        let slot = lane.slot(self.own);
        let len = lane.lens.load_u32(slot * 4) as usize;
        lane.slots.read(slot * lane.slot_len, &mut into[..len]);
        self.own += 1;
        Ok(Some(len))
    }

    #[inline]
    fn flush_received(&mut self) {
        self.lane.emptied.0.store(self.own, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_beyond_a_core_s_cache_are_tried() {
        assert_eq!(depths(64, 256), [256, 65_536]);
        assert_eq!(depths(1518, 256), [256, 2048]);
        assert_eq!(depths(65_536, 256), [256, 64]);
    }

    #[test]
    fn packets_arrive_in_order_and_only_when_published() {
        let [mut one, mut other] = LimitEnd::pair(64, 4).expect("memory");
        let mut packet = Template::new(64).expect("memory");
        let mut into = [0; 64];
        for lap in 0..3 {
            for number in 0..4 {
                packet.set_number(4 * lap + number);
                assert_eq!(one.send(&packet), Ok(true));
            }
            assert_eq!(one.send(&packet), Ok(false), "full");
            assert_eq!(other.receive(&mut into), Ok(None), "not published");
            one.flush_sent();
            for number in 0..4 {
                packet.set_number(4 * lap + number);
                assert_eq!(other.receive(&mut into), Ok(Some(64)));
                assert_eq!(into[..], *packet.bytes());
            }
            assert_eq!(other.receive(&mut into), Ok(None));
            assert_eq!(one.send(&packet), Ok(false), "not given back yet");
            other.flush_received();
        }
    }

    #[test]
    fn two_threads_get_what_was_sent_in_order() {
        const PACKETS: u64 = 3_000;
        for (packet_len, depth) in [(64, 256), (1518, 16), (9000, 64)] {
            let [mut one, mut other] = LimitEnd::pair(packet_len, depth).expect("memory");
            let mut packet = Template::new(packet_len).expect("memory");
            std::thread::scope(|scope| {
                scope.spawn(move || {
                    for number in 0..PACKETS {
                        packet.set_number(number);
                        while !one.send(&packet).expect("never broken") {
                            std::thread::yield_now();
                        }
                        one.flush_sent();
                    }
                });
                let mut expected = Template::new(packet_len).expect("memory");
                let mut into = vec![0; packet_len];
                for number in 0..PACKETS {
                    expected.set_number(number);
                    let len = loop {
                        match other.receive(&mut into).expect("never broken") {
                            Some(len) => break len,
                            None => std::thread::yield_now(),
                        }
                    };
                    assert_eq!((len, &into[..]), (packet_len, expected.bytes()), "{number}");
                    other.flush_received();
                }
            });
        }
    }
}
