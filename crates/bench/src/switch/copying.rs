//! The limit: the bytes of one packet after the other, copied once and nothing else.
//!
//! How: from places as far apart as those of the sender's packets to places as far apart as the
//! receiver's buffers, over as much memory as each of the two has; it is shared memory in pages of
//! the same kind. The copy is the workspace's own, which is the C library's.

use std::hint::black_box;
use std::time::{Duration, Instant};

use ringway_driver::rx_buffer::PAGE_LEN;
use ringway_testkit::TestMemory;
use ringway_virtq::SharedSlice;

use super::guests::{PLACE_ALIGN, PacketLayout, QUEUE_SIZE};

const BATCH: u32 = 64;

/// Memory, and where in it the next packet is.
#[derive(Debug)]
pub(super) struct Copying {
    from: CopyRegion,
    to: CopyRegion,
    packet_len: usize,
    _memory: TestMemory,
}

#[derive(Debug)]
struct CopyRegion {
    memory: SharedSlice,
    stride: usize,
    next: usize,
}

impl CopyRegion {
    fn next(&mut self, len: usize) -> SharedSlice {
        if self.next + len > self.memory.len() {
            self.next = 0;
        }
        let place = self.memory.slice(self.next, len);
        self.next += self.stride;
        place.unwrap_or(SharedSlice::EMPTY)
    }
}

impl Copying {
    pub fn new(layout: &PacketLayout) -> std::io::Result<Self> {
        let from_stride = layout.packet_len.next_multiple_of(PLACE_ALIGN);
        let whole_pages = |len: usize| len.next_multiple_of(PAGE_LEN as usize) as u64;
        let from_len = whole_pages(from_stride * usize::from(QUEUE_SIZE));
        let to_len = whole_pages(layout.buffers_len);
        let memory = TestMemory::new(&[(0, from_len), (1 << 40, to_len)])?;
        let cut = |region, stride| CopyRegion { memory: memory.region(region), stride, next: 0 };
        let (from, to) = (cut(0, from_stride), cut(1, layout.buffer_len));
        Ok(Self { from, to, packet_len: layout.packet_len, _memory: memory })
    }

    /// Copies for so long; how many those were, and how many ns they took.
    pub fn run(&mut self, duration: Duration) -> (f64, f64) {
        let began = Instant::now();
        let mut copies = 0.0;
        loop {
            for _ in 0..BATCH {
                let (from, to) = (self.from.next(self.packet_len), self.to.next(self.packet_len));
                black_box(from.copy_to(to));
            }
            copies += f64::from(BATCH);
            let elapsed = began.elapsed();
            if elapsed >= duration {
                return (copies, elapsed.as_secs_f64() * 1e9);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_copy_is_of_a_whole_packet() {
        for packet_len in [64, 1518, 65_536] {
            let mut copying = Copying::new(&PacketLayout::of(packet_len)).expect("memory");
            for _ in 0..2 * QUEUE_SIZE {
                let (from, to) = (copying.from.next(packet_len), copying.to.next(packet_len));
                assert_eq!((from.len(), to.len()), (packet_len, packet_len));
            }
            assert!(copying.run(Duration::ZERO).0 > 0.0);
        }
    }
}
