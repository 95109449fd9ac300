//! Memory that the peer may write at any time.
//!
//! The only type through which this workspace touches such memory. No `&[u8]` to it ever exists:
//! bytes are copied in or out, words are read once with relaxed atomic loads, and what was copied
//! is what gets checked and used. Ordering is not here: rings use explicit fences.
//!
//! Limits: an access outside the slice or a misaligned word is a programmer error and panics;
//! callers check first what a peer says. Under `--cfg loom` the type of `shared_loom.rs` takes its
//! place.

use alloc::boxed::Box;
use core::ptr;
use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use crate::fault;

/// Bytes that are moved at once by a copy in blocks; with 64, what is in caches takes a quarter
/// longer.
const BLOCK: usize = 256;
/// Below so many bytes it does not matter.
const LONG: usize = 2 * BLOCK;
/// Addresses that differ by a multiple of this many bytes look the same to the processor's first
/// comparison of loads with stores.
const ALIASES: usize = 4096;
/// As far ahead of a load, in bytes, a store that looks the same holds it up.
const ALIASED_MAX: usize = 255;

/// A contiguous piece of host memory shared with a peer.
///
/// A plain pointer and a length: the code that creates the first one (see [`SharedSlice::new`])
/// promises that the memory stays mapped for as long as any copy of it is in use.
#[derive(Debug, Clone, Copy)]
pub struct SharedSlice {
    start: *mut u8,
    len: usize,
}

// SAFETY: the type gives no reference to the memory, only copies in and out of it, and the
// constructor's contract is independent of threads.
unsafe impl Send for SharedSlice {}
// SAFETY: as above; concurrent copies race only with what a hostile peer could do anyway.
unsafe impl Sync for SharedSlice {}

impl SharedSlice {
    /// A slice of no bytes.
    pub const EMPTY: Self = Self { start: ptr::dangling_mut(), len: 0 };

    /// Slices without bytes, in memory of which no page is touched yet.
    pub(crate) fn list<const N: usize>() -> Box<[Self; N]> {
        // SAFETY: all bits 0 is a value of each field: null, behind which there are 0 bytes.
        unsafe { Box::new_zeroed().assume_init() }
    }

    /// Shares `len` bytes at `start`.
    ///
    /// # Safety
    /// The bytes must be mapped readable and writable, and stay so for as long as this slice or
    /// any slice or queue made from it is used. No Rust reference to them may exist meanwhile.
    pub const unsafe fn new(start: *mut u8, len: usize) -> Self {
        Self { start, len }
    }

    /// Length in bytes.
    #[inline]
    pub const fn len(self) -> usize {
        self.len
    }

    /// Whether there are no bytes.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.len == 0
    }

    /// Host address, for system calls that take one (`readv`, `writev`).
    pub const fn as_ptr(self) -> *mut u8 {
        self.start
    }

    /// The `len` bytes at `offset`, or `None` if they are not all inside.
    #[inline]
    pub fn slice(self, offset: usize, len: usize) -> Option<Self> {
        if offset.checked_add(len)? > self.len {
            return None;
        }
        // SAFETY: offset <= self.len, so the pointer stays inside the shared bytes or one past.
        Some(Self { start: unsafe { self.start.add(offset) }, len })
    }

    /// The same without looking.
    ///
    /// # Safety
    /// They must all be inside, and their host address a multiple of `align`, a power of two.
    #[inline(always)]
    pub(crate) unsafe fn part(self, offset: usize, len: usize, align: usize) -> Self {
        // SAFETY: inside, says the caller.
        let start = unsafe { self.start.add(offset) };
        // SAFETY: aligned, says the caller.
        unsafe { core::hint::assert_unchecked(start.addr() & (align - 1) == 0) };
        Self { start, len }
    }

    /// Cuts in two at `mid`, which must not be larger than the length.
    #[inline]
    pub fn split_at(self, mid: usize) -> (Self, Self) {
        assert!(mid <= self.len, "split at {mid} of {}", self.len);
        // SAFETY: mid <= self.len, so the pointer stays inside the shared bytes or one past.
        let start = unsafe { self.start.add(mid) };
        (Self { start: self.start, len: mid }, Self { start, len: self.len - mid })
    }

    /// Copies the bytes at `offset` out into `into`. The range must be inside.
    #[inline]
    pub fn read(self, offset: usize, into: &mut [u8]) {
        self.check(offset, into.len());
        // SAFETY: checked; `into` is private memory, so the two cannot overlap.
        unsafe { ptr::copy_nonoverlapping(self.start.add(offset), into.as_mut_ptr(), into.len()) }
    }

    /// Copies `N` bytes at `offset` out; a few of them, for which a call would cost more. The
    /// range must be inside.
    ///
    /// Word by word: of an array as a whole, the compiler was seen to make a copy for each use, so
    /// that one thing would be checked and another one used. Words were seen to be kept; nothing
    /// promises it.
    #[inline(always)]
    pub fn read_array<const N: usize>(self, offset: usize) -> [u8; N] {
        self.check(offset, N);
        let mut bytes = [0; N];
        let (longs, rest) = bytes.as_chunks_mut();
        let (words, last) = rest.as_chunks_mut();
        let mut from = self.start.wrapping_add(offset);
        for long in longs {
            // SAFETY: checked; a word may be read at any address.
            *long = unsafe { ptr::read_unaligned(from.cast::<u64>()) }.to_ne_bytes();
            from = from.wrapping_add(8);
        }
        for word in words {
            // SAFETY: as above.
            *word = unsafe { ptr::read_unaligned(from.cast::<u32>()) }.to_ne_bytes();
            from = from.wrapping_add(4);
        }
        for byte in last {
            // SAFETY: as above.
            *byte = unsafe { ptr::read(from) };
            from = from.wrapping_add(1);
        }
        bytes
    }

    /// Copies `N` bytes in at `offset`; the counterpart of [`read_array`](Self::read_array).
    #[inline]
    pub fn write_array<const N: usize>(self, offset: usize, bytes: &[u8; N]) {
        fault::point();
        self.check(offset, N);
        // SAFETY: checked; an array of bytes may be at any address.
        unsafe { ptr::write(self.start.add(offset).cast(), *bytes) }
    }

    /// Copies `from` in at `offset`. The range must be inside.
    #[inline]
    pub fn write(self, offset: usize, from: &[u8]) {
        fault::point();
        self.check(offset, from.len());
        // SAFETY: checked; `from` is private memory, so the two cannot overlap.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), self.start.add(offset), from.len()) }
    }

    /// Sets all bytes to zero.
    pub fn zero(self) {
        // SAFETY: all of the shared bytes are mapped and writable.
        unsafe { ptr::write_bytes(self.start, 0, self.len) }
    }

    /// Whether the host address is a multiple of `align` bytes, a power of two.
    #[inline]
    pub fn is_aligned_to(self, align: usize) -> bool {
        self.start.addr() & (align - 1) == 0
    }

    /// Asks for two cache lines from `offset` on, to be written soon, long before they are: what
    /// another core has read last takes a while. Changes nothing, whatever the offset.
    #[inline]
    pub fn prefetch_to_write(self, offset: usize) {
        #[cfg(target_arch = "x86_64")]
        for line in 0..2 {
            let place = self.start.wrapping_add(offset).wrapping_add(64 * line);
            // SAFETY: a prefetch changes nothing and never faults, wherever it points.
            unsafe {
                core::arch::asm!(
                    "prefetchw [{}]",
                    in(reg) place,
                    options(nostack, readonly, preserves_flags)
                );
            }
        }
    }

    /// The same for what is to be read.
    #[inline]
    pub fn prefetch_to_read(self, offset: usize) {
        self.prefetch_line_to_read(offset);
        self.prefetch_line_to_read(offset.wrapping_add(64));
    }

    /// The same for the first of the two lines only.
    #[inline]
    pub fn prefetch_line_to_read(self, offset: usize) {
        #[cfg(target_arch = "x86_64")]
        {
            use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let place = self.start.wrapping_add(offset);
            // SAFETY: as above.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(place.cast()) }
        }
    }

    /// Copies as many bytes as both hold, starting at both starts; returns how many.
    #[inline]
    pub fn copy_to(self, to: Self) -> usize {
        fault::point();
        let len = self.len.min(to.len);
        if len >= LONG {
            self.copy_long(to, len);
        } else {
            // SAFETY: `len` is inside both; `copy` allows the overlap a hostile guest can arrange.
            unsafe { ptr::copy(self.start, to.start, len) };
        }
        len
    }

    /// Copies `len` bytes, which both have; where it must be, in blocks. What the C library uses
    /// for long copies is one instruction (`rep movsb`), and a processor that compares only the low
    /// 12 bits of addresses takes each of its loads for one of what it has just stored a little
    /// ahead, and waits: ten times as long. Backwards it would not, but then memory is not fetched
    /// ahead. A guest whose two buffers overlap may get bytes twice, in its own memory.
    #[inline(never)]
    fn copy_long(self, to: Self, len: usize) {
        let ahead = to.start.addr().wrapping_sub(self.start.addr()) % ALIASES;
        let is_aliased = (1..=ALIASED_MAX).contains(&ahead);
        let mut copied = 0;
        while is_aliased && len - copied >= BLOCK {
            // SAFETY: `copied + BLOCK` is at most `len`, which is inside both; arrays of bytes may
            // be at any address.
            unsafe {
                let block: [u8; BLOCK] = ptr::read(self.start.add(copied).cast());
                ptr::write(to.start.add(copied).cast(), block);
            }
            copied += BLOCK;
        }
        // SAFETY: the rest is inside both; as above for the overlap.
        unsafe { ptr::copy(self.start.add(copied), to.start.add(copied), len - copied) };
    }

    /// Loads a byte; `offset` must be inside.
    pub(crate) fn load_u8(self, offset: usize) -> u8 {
        self.word::<AtomicU8>(offset).load(Ordering::Relaxed)
    }

    /// Sets bits of a byte, and leaves the others as others set them; `offset` must be inside.
    pub(crate) fn set_bits(self, offset: usize, bits: u8) {
        fault::point();
        self.word::<AtomicU8>(offset).fetch_or(bits, Ordering::Relaxed);
    }

    /// Loads a little-endian word; `offset` must be inside and aligned to 2.
    #[inline]
    pub fn load_u16(self, offset: usize) -> u16 {
        u16::from_le(self.word::<AtomicU16>(offset).load(Ordering::Relaxed))
    }

    /// Stores a little-endian word; `offset` must be inside and aligned to 2.
    #[inline]
    pub fn store_u16(self, offset: usize, value: u16) {
        fault::point();
        self.word::<AtomicU16>(offset).store(value.to_le(), Ordering::Relaxed);
    }

    /// Loads a little-endian word; `offset` must be inside and aligned to 4.
    #[inline]
    pub fn load_u32(self, offset: usize) -> u32 {
        u32::from_le(self.word::<AtomicU32>(offset).load(Ordering::Relaxed))
    }

    /// Stores a little-endian word; `offset` must be inside and aligned to 4.
    #[inline]
    pub fn store_u32(self, offset: usize, value: u32) {
        fault::point();
        self.word::<AtomicU32>(offset).store(value.to_le(), Ordering::Relaxed);
    }

    /// Loads a little-endian word; `offset` must be inside and aligned to 8.
    #[inline]
    pub fn load_u64(self, offset: usize) -> u64 {
        u64::from_le(self.word::<AtomicU64>(offset).load(Ordering::Relaxed))
    }

    /// Stores a little-endian word; `offset` must be inside and aligned to 8.
    #[inline]
    pub fn store_u64(self, offset: usize, value: u64) {
        fault::point();
        self.word::<AtomicU64>(offset).store(value.to_le(), Ordering::Relaxed);
    }

    /// Stores two neighbouring words, the first one first; as [`store_u32`](Self::store_u32).
    #[inline]
    pub fn store_u32_pair(self, offset: usize, values: [u32; 2]) {
        let words = self.word::<[AtomicU32; 2]>(offset);
        fault::point();
        words[0].store(values[0].to_le(), Ordering::Relaxed);
        fault::point();
        words[1].store(values[1].to_le(), Ordering::Relaxed);
    }

    /// Loads two neighbouring words, the first one first; as [`load_u32`](Self::load_u32).
    #[inline]
    pub fn load_u32_pair(self, offset: usize) -> [u32; 2] {
        let words = self.word::<[AtomicU32; 2]>(offset);
        [0, 1].map(|at| u32::from_le(words[at].load(Ordering::Relaxed)))
    }

    /// Stores two neighbouring words, the first one first; as [`store_u64`](Self::store_u64).
    #[inline]
    pub fn store_u64_pair(self, offset: usize, values: [u64; 2]) {
        let words = self.word::<[AtomicU64; 2]>(offset);
        fault::point();
        words[0].store(values[0].to_le(), Ordering::Relaxed);
        fault::point();
        words[1].store(values[1].to_le(), Ordering::Relaxed);
    }

    /// Loads two neighbouring words, the first one first; as [`load_u64`](Self::load_u64).
    #[inline]
    pub fn load_u64_pair(self, offset: usize) -> [u64; 2] {
        let words = self.word::<[AtomicU64; 2]>(offset);
        [0, 1].map(|at| u64::from_le(words[at].load(Ordering::Relaxed)))
    }

    /// One comparison where the compiler knows that the sum does not overflow.
    #[inline(always)]
    fn check(self, offset: usize, len: usize) {
        match offset.checked_add(len) {
            Some(end) if end <= self.len => {}
            _ => outside(offset, len, self.len),
        }
    }

    #[inline(always)]
    fn word<T>(&self, offset: usize) -> &T {
        self.check(offset, size_of::<T>());
        let word = self.start.wrapping_add(offset).cast::<T>();
        assert!(word.is_aligned(), "misaligned shared word");
        // SAFETY: inside the shared bytes and aligned; an atomic tolerates concurrent writers.
        unsafe { &*word }
    }
}

/// Out of line, so that the check itself stays small.
#[cold]
#[inline(never)]
fn outside(offset: usize, len: usize, of: usize) -> ! {
    panic!("shared bytes {offset}+{len} of {of}")
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn a_copy_is_the_same_however_far_apart_the_two_are() {
        const HALF: usize = 3 * ALIASES;
        let mut memory = vec![0u8; 2 * HALF];
        // SAFETY: the vector outlives the slices, and is not touched otherwise while they are used.
        let shared = unsafe { SharedSlice::new(memory.as_mut_ptr(), memory.len()) };
        let (from, to) = shared.split_at(HALF);
        let bytes: Vec<u8> = (0..=250u8).cycle().take(HALF).collect();
        from.write(0, &bytes);
        for ahead in [0, 1, 12, BLOCK, ALIASED_MAX, ALIASED_MAX + 1, ALIASES - 1] {
            for len in [0, 1, 63, LONG - 1, LONG, LONG + 1, 4096, 5001] {
                to.zero();
                let (source, room) = (from.slice(0, len), to.slice(ahead, len));
                assert_eq!(source.expect("inside").copy_to(room.expect("inside")), len);
                let mut copied = vec![0; HALF];
                to.read(0, &mut copied);
                assert_eq!(copied[ahead..ahead + len], bytes[..len], "{ahead} {len}");
                let outside = copied[..ahead].iter().chain(&copied[ahead + len..]);
                assert!(outside.copied().all(|byte| byte == 0), "{ahead} {len}");
            }
        }
    }
}
