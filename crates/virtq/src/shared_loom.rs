//! Memory that the peer may write at any time, as the model checker sees it.
//!
//! How: the same type with the same methods as in `shared.rs`, but each 16-bit word is one
//! modelled atomic, so that the ring code itself runs in the model. A wider access is several of
//! them, lowest first: the model may tear what the hardware does not. Limits: offsets and lengths
//! are even; nothing here is fast.

use core::fmt;

use alloc::boxed::Box;
use loom::sync::atomic::{AtomicU16, Ordering};

/// Modelled memory, all zero. Made and dropped inside the model.
pub struct ModelledMemory {
    words: Box<[AtomicU16]>,
}

impl ModelledMemory {
    /// `len` bytes, an even number.
    pub fn new(len: usize) -> Self {
        Self { words: (0..len / 2).map(|_| AtomicU16::new(0)).collect() }
    }

    /// Shares all of it. The slice must not be used after the memory is dropped.
    pub fn share(&self) -> SharedSlice {
        SharedSlice { words: self.words.as_ptr(), start: 0, len: self.words.len() * 2 }
    }
}

impl fmt::Debug for ModelledMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} modelled words", self.words.len())
    }
}

/// A contiguous piece of [`ModelledMemory`].
#[derive(Debug, Clone, Copy)]
pub struct SharedSlice {
    words: *const AtomicU16,
    /// Of the first byte, from the first word.
    start: usize,
    len: usize,
}

// SAFETY: only atomics are reached through it, and each model keeps their memory until all of its
// threads are joined.
unsafe impl Send for SharedSlice {}
// SAFETY: as above.
unsafe impl Sync for SharedSlice {}

#[allow(missing_docs, reason = "documented in shared.rs")]
impl SharedSlice {
    pub const EMPTY: Self = Self { words: core::ptr::null(), start: 0, len: 0 };

    pub(crate) fn list<const N: usize>() -> Box<[Self; N]> {
        Box::new([Self::EMPTY; N])
    }

    pub const fn len(self) -> usize {
        self.len
    }

    pub const fn is_empty(self) -> bool {
        self.len == 0
    }

    pub fn is_aligned_to(self, align: usize) -> bool {
        self.start.is_multiple_of(align)
    }

    pub fn slice(self, offset: usize, len: usize) -> Option<Self> {
        let is_inside = offset <= self.len && len <= self.len - offset;
        is_inside.then_some(Self { start: self.start + offset, len, ..self })
    }

    #[allow(unsafe_code, reason = "as in shared.rs")]
    pub(crate) unsafe fn part(self, offset: usize, len: usize, _align: usize) -> Self {
        self.slice(offset, len).expect("a part that is inside")
    }

    pub fn zero(self) {
        for offset in (0..self.len).step_by(2) {
            self.store_u16(offset, 0);
        }
    }

    pub fn read(self, offset: usize, into: &mut [u8]) {
        for (at, pair) in into.chunks_exact_mut(2).enumerate() {
            pair.copy_from_slice(&self.load_u16(offset + 2 * at).to_le_bytes());
        }
    }

    pub fn read_array<const N: usize>(self, offset: usize) -> [u8; N] {
        let mut bytes = [0; N];
        self.read(offset, &mut bytes);
        bytes
    }

    pub fn split_at(self, mid: usize) -> (Self, Self) {
        let start = self.start + mid;
        (Self { len: mid, ..self }, Self { start, len: self.len - mid, ..self })
    }

    pub(crate) fn load_u8(self, offset: usize) -> u8 {
        self.load_u16(offset & !1).to_le_bytes()[offset & 1]
    }

    pub(crate) fn set_bits(self, offset: usize, bits: u8) {
        let bits = u16::from(bits) << (8 * (offset & 1));
        self.word(offset & !1).fetch_or(bits, Ordering::Relaxed);
    }

    /// Takes all bits of a word, as a front-end does that copies pages.
    pub fn take_u16(self, offset: usize) -> u16 {
        self.word(offset).swap(0, Ordering::AcqRel)
    }

    pub fn load_u16(self, offset: usize) -> u16 {
        self.word(offset).load(Ordering::Relaxed)
    }

    pub fn store_u16(self, offset: usize, value: u16) {
        self.word(offset).store(value, Ordering::Relaxed);
    }

    pub fn load_u32(self, offset: usize) -> u32 {
        u32::from(self.load_u16(offset)) | u32::from(self.load_u16(offset + 2)) << 16
    }

    pub fn store_u32(self, offset: usize, value: u32) {
        self.store_u16(offset, (value & 0xffff) as u16);
        self.store_u16(offset + 2, (value >> 16) as u16);
    }

    pub fn load_u64(self, offset: usize) -> u64 {
        u64::from(self.load_u32(offset)) | u64::from(self.load_u32(offset + 4)) << 32
    }

    pub fn store_u64(self, offset: usize, value: u64) {
        self.store_u32(offset, (value & 0xffff_ffff) as u32);
        self.store_u32(offset + 4, (value >> 32) as u32);
    }

    pub fn store_u32_pair(self, offset: usize, values: [u32; 2]) {
        self.store_u32(offset, values[0]);
        self.store_u32(offset + 4, values[1]);
    }

    pub fn load_u32_pair(self, offset: usize) -> [u32; 2] {
        [self.load_u32(offset), self.load_u32(offset + 4)]
    }

    pub fn store_u64_pair(self, offset: usize, values: [u64; 2]) {
        self.store_u64(offset, values[0]);
        self.store_u64(offset + 8, values[1]);
    }

    pub fn load_u64_pair(self, offset: usize) -> [u64; 2] {
        [self.load_u64(offset), self.load_u64(offset + 8)]
    }

    fn word(&self, offset: usize) -> &AtomicU16 {
        assert!(offset + 2 <= self.len && offset.is_multiple_of(2), "{offset} of {}", self.len);
        // SAFETY: inside the words, which outlive every use (see above).
        unsafe { &*self.words.add((self.start + offset) / 2) }
    }
}
