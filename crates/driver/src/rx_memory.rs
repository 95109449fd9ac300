//! The memory of one receiveq: equal chunks of an arena, from which buffers are cut.
//!
//! How: buffers are cut one behind the other from the current chunk; what would be too short for
//! one more goes to the last one (its *hole*). A chunk counts its buffers and is free again when
//! the last one came back. With one length for all buffers a chunk is one buffer, and nothing is
//! ever cut. Free chunks are numbers in a fixed array: no list node, no allocation.
//!
//! The memory begins in the middle of a cache line, so that the header in front of a packet ends
//! with one and the packet begins with the next: the device writes whole lines then (ADR 23).
//!
//! Limits: 4 GiB; a buffer lies in one chunk.

use alloc::vec;
use alloc::vec::Vec;

use ringway_net::HEADER_LEN;
use ringway_virtq::SharedSlice;

use crate::rx_buffer::BUFFER_ALIGN;
use crate::{Arena, ArenaFull, Part};

/// A piece of receive memory: where it starts in it, and how long it is, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Extent {
    pub offset: u32,
    pub len: u32,
}

/// Chunks, and who uses them.
#[derive(Debug)]
pub(crate) struct RxMemory {
    part: Part,
    chunk_len: u32,
    /// Buffers cut from each chunk that are not back.
    users: Vec<u32>,
    free: Vec<u32>,
    /// The chunk that is being cut, and the offset in it of what is left.
    current: Option<u32>,
    cut: u32,
}

impl RxMemory {
    /// Takes `chunks` chunks of `chunk_len` bytes, a multiple of a cache line, for packets behind
    /// headers of `header_len` bytes.
    pub fn new(
        arena: &mut Arena,
        chunk_len: u32,
        chunks: u32,
        header_len: u32,
    ) -> Result<Self, ArenaFull> {
        assert!(chunk_len > 0 && chunk_len.is_multiple_of(BUFFER_ALIGN), "chunks of {chunk_len}");
        let bytes = chunk_len.checked_mul(chunks).ok_or(ArenaFull)?;
        let lead = BUFFER_ALIGN - header_len % BUFFER_ALIGN;
        let len = lead.checked_add(bytes).ok_or(ArenaFull)?;
        let part = arena.carve(len as usize, BUFFER_ALIGN as usize)?;
        let (_, memory) = part.memory.split_at(lead as usize);
        let device_address = part.device_address + u64::from(lead);
        Ok(Self {
            part: Part { memory, device_address },
            chunk_len,
            users: vec![0; chunks as usize],
            // Reversed, so that chunks are first taken in rising order.
            free: (0..chunks).rev().collect(),
            current: None,
            cut: 0,
        })
    }

    /// All of it.
    pub fn whole(&self) -> SharedSlice {
        self.part.memory
    }

    /// Where the device sees an offset.
    #[inline]
    pub fn device_address(&self, offset: u32) -> u64 {
        self.part.device_address + u64::from(offset)
    }

    /// The bytes of an extent.
    #[inline]
    pub fn bytes(&self, extent: Extent) -> SharedSlice {
        slice(self.part.memory, extent)
    }

    /// The header at the start of an extent, copied, without a hash.
    #[inline]
    pub fn header(&self, extent: Extent) -> [u8; HEADER_LEN] {
        self.part.memory.read_array(extent.offset as usize)
    }

    /// Asks for the header at the start of an extent, which will be read soon, and for the line
    /// behind it, where the packet begins, if that will be read as well.
    #[inline]
    pub fn prefetch(&self, extent: Extent, with_packet: bool) {
        let offset = extent.offset as usize;
        match with_packet {
            true => self.part.memory.prefetch_to_read(offset),
            false => self.part.memory.prefetch_line_to_read(offset),
        }
    }

    /// How many buffers of `len` bytes all chunks together make.
    pub fn buffers_of(&self, len: u32) -> u32 {
        (self.chunk_len / len) * u32::try_from(self.users.len()).unwrap_or(u32::MAX)
    }

    /// Whether two offsets are in the same chunk.
    #[inline]
    pub fn is_one_chunk(&self, one: u32, other: u32) -> bool {
        one / self.chunk_len == other / self.chunk_len
    }

    /// Cuts a buffer of `len` bytes, or a little more. `None`: no memory now.
    pub fn cut(&mut self, len: u32) -> Option<Extent> {
        if self.current.is_none() || self.chunk_len - self.cut < len {
            self.start_chunk()?;
        }
        let chunk = self.current?;
        let left = self.chunk_len - self.cut;
        assert!(len > 0 && len <= left, "{len} bytes from a chunk of {}", self.chunk_len);
        let hole = left - len;
        let len = if hole < len { left } else { len };
        let offset = chunk * self.chunk_len + self.cut;
        self.users[chunk as usize] += 1;
        self.cut += len;
        if self.cut == self.chunk_len {
            self.current = None;
        }
        Some(Extent { offset, len })
    }

    /// Takes back one buffer that starts somewhere in this chunk.
    pub fn give_back(&mut self, offset: u32) {
        let chunk = offset / self.chunk_len;
        let users = &mut self.users[chunk as usize];
        assert!(*users > 0, "chunk {chunk} given back twice");
        *users -= 1;
        if *users > 0 {
            return;
        }
        if self.current == Some(chunk) {
            self.cut = 0;
        } else {
            self.free.push(chunk);
        }
    }

    /// Takes back a fragment of that many buffers.
    pub fn give_back_fragment(&mut self, extent: Extent, buffers: u32) {
        let last = extent.offset + extent.len.max(1) - 1;
        let (first, last) = (extent.offset / self.chunk_len, last / self.chunk_len);
        if first == last {
            (0..buffers).for_each(|_| self.give_back(extent.offset));
        } else {
            // Whole chunks, one buffer each. What comes back last is taken first.
            (first..=last).rev().for_each(|chunk| self.give_back(chunk * self.chunk_len));
        }
    }

    /// Leaves the current chunk for a free one. `None`: there is none, nothing changed.
    fn start_chunk(&mut self) -> Option<()> {
        let next = self.free.pop()?;
        if let Some(left) = self.current.replace(next)
            && self.users[left as usize] == 0
        {
            self.free.push(left);
        }
        self.cut = 0;
        Some(())
    }
}

/// The bytes of an extent that was cut from this memory.
#[inline]
pub(crate) fn slice(memory: SharedSlice, extent: Extent) -> SharedSlice {
    match memory.slice(extent.offset as usize, extent.len as usize) {
        Some(bytes) => bytes,
        None => outside(extent, memory.len()),
    }
}

/// Out of line, and with copies, so that an extent need not be in memory for it.
#[cold]
#[inline(never)]
fn outside(extent: Extent, of: usize) -> ! {
    unreachable!("{extent:?} was cut from {of} bytes")
}

/// Divides `len` bytes at `at` into equal elements; the last one has the rest as well.
pub(crate) fn divide(mut at: u64, len: u32, elements: &mut [(u64, u32)]) {
    let share = len / u32::try_from(elements.len()).unwrap_or(1);
    let mut left = len;
    for element in elements.iter_mut() {
        *element = (at, share);
        at += u64::from(share);
        left -= share;
    }
    if let Some(last) = elements.last_mut() {
        last.1 += left;
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    const CHUNK_LEN: u32 = 65_536;
    const CHUNKS: u32 = 4;
    const HEADER_LEN: u32 = 12;

    /// Memory that is never touched: only its places are looked at.
    fn memory() -> (RxMemory, Vec<u8>) {
        let len = (CHUNK_LEN * CHUNKS + BUFFER_ALIGN) as usize;
        let mut bytes = std::vec![0u8; len + 4096];
        let start = bytes.as_ptr().align_offset(4096);
        // SAFETY: inside the vector, which is returned along and not touched meanwhile.
        #[allow(unsafe_code)]
        let shared = unsafe { SharedSlice::new(bytes.as_mut_ptr().add(start), len) };
        let mut arena = Arena::new(shared, 0x10_0000);
        (RxMemory::new(&mut arena, CHUNK_LEN, CHUNKS, HEADER_LEN).expect("room"), bytes)
    }

    #[test]
    fn neighbours_that_come_back_are_neighbours_again() {
        let (mut memory, _bytes) = memory();
        let all: Vec<Extent> = (0..CHUNKS).map_while(|_| memory.cut(CHUNK_LEN)).collect();
        memory.give_back_fragment(Extent { offset: 0, len: CHUNK_LEN * CHUNKS }, CHUNKS);
        let again: Vec<Extent> = (0..CHUNKS).map_while(|_| memory.cut(CHUNK_LEN)).collect();
        assert_eq!(again, all);
    }

    proptest! {
        /// Whatever is cut and given back in whatever order: buffers are as long as was asked, lie
        /// inside one chunk, and never overlap; and in the end all memory is there again.
        #[test]
        fn buffers_never_overlap(steps in prop::collection::vec((1u32..=1024, 0usize..8), 1..400)) {
            let (mut memory, _bytes) = memory();
            let mut out: Vec<Extent> = Vec::new();
            for (lines, back) in steps {
                let len = lines * BUFFER_ALIGN;
                if let Some(extent) = memory.cut(len) {
                    prop_assert!(extent.len >= len && extent.len < 2 * len);
                    let end = extent.offset + extent.len;
                    prop_assert!(memory.is_one_chunk(extent.offset, end - 1));
                    let packet = memory.device_address(extent.offset + HEADER_LEN);
                    prop_assert!(packet.is_multiple_of(u64::from(BUFFER_ALIGN)), "{extent:?}");
                    let apart = |other: &Extent| {
                        end <= other.offset || other.offset + other.len <= extent.offset
                    };
                    prop_assert!(out.iter().all(apart), "{extent:?} in {out:?}");
                    out.push(extent);
                }
                if back > 3 && back < out.len() {
                    memory.give_back(out.swap_remove(back).offset);
                }
            }
            out.iter().for_each(|extent| memory.give_back(extent.offset));
            for _ in 0..CHUNKS {
                prop_assert!(memory.cut(CHUNK_LEN).is_some());
            }
            prop_assert!(memory.cut(BUFFER_ALIGN).is_none());
        }
    }
}
