//! Contiguous stretches of one piece of memory, for packets that are too long for slots.
//!
//! How: stretches are taken one behind the other, and from the start again where the end is too
//! near, so that all of the memory takes its turn. They may come back in any order; memory is free
//! again when everything taken before it is back.
//!
//! Limits: 4 MiB, and one stretch for each packet in flight; one that does not come back keeps what
//! was taken after it.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use ringway_virtq::{BufferId, SharedSlice};

use crate::tx_place::{SHORT_LEN_MAX, STRETCHES_LEN_MAX, carve, place_len};
use crate::{Arena, ArenaFull, Part};

/// One packet's memory.
#[derive(Debug, Clone, Copy)]
struct Stretch {
    /// Offset of its first byte.
    start: u32,
    is_back: bool,
}

/// Memory, and which of it is taken.
#[derive(Debug)]
pub(crate) struct Stretches {
    part: Part,
    header_len: u32,
    len: u32,
    /// The offset behind the newest stretch.
    end: u32,
    /// In the order in which they were taken, without those at the front that are back.
    taken: VecDeque<Stretch>,
    /// The number of the first of these; they are counted on and on.
    first: u32,
    /// By buffer id: the number of its stretch.
    number_of: Vec<Option<u32>>,
}

impl Stretches {
    /// Takes memory for `count` packets of the longest length, but no more than is useful; for
    /// a longest length of 0 none.
    pub(crate) fn new(
        arena: &mut Arena,
        count: u16,
        header_len: u32,
        longest: u32,
    ) -> Result<Self, ArenaFull> {
        let count = if longest == 0 { 0 } else { count };
        let bytes = place_len(longest).saturating_mul(u32::from(count));
        let len = bytes.min(STRETCHES_LEN_MAX);
        // All of them are longer than what has a slot.
        let most = len / place_len(SHORT_LEN_MAX + 1);
        Ok(Self {
            part: carve(arena, len, header_len)?,
            header_len,
            len,
            end: 0,
            taken: VecDeque::with_capacity(most as usize),
            first: 0,
            number_of: vec![None; usize::from(count)],
        })
    }

    /// Where the next stretch starts, for a header and so many bytes. `None`: no room now.
    pub(crate) fn next(&self, packet_len: u32) -> Option<u32> {
        let len = place_len(packet_len);
        let oldest = self.taken.front().map(|oldest| oldest.start);
        // The free memory ends there, or it goes on from the start of the memory up to there.
        let (limit, again) = match oldest {
            Some(oldest) if self.end <= oldest => (oldest, 0),
            oldest => (self.len, oldest.unwrap_or(self.len)),
        };
        if self.end + len <= limit {
            return Some(self.end);
        }
        (len <= again).then_some(0)
    }

    /// Takes a stretch for the packet with this id; its bytes, and where the device sees them.
    pub(crate) fn take(&mut self, id: BufferId, packet_len: u32) -> Option<(SharedSlice, u64)> {
        let start = self.next(packet_len)?;
        let len = self.header_len + packet_len;
        let bytes = self.part.memory.slice(start as usize, len as usize)?;
        // There are never more than there is capacity for: each has its own bytes.
        let number = self.first.wrapping_add(u32::try_from(self.taken.len()).unwrap_or(u32::MAX));
        self.taken.push_back(Stretch { start, is_back: false });
        self.number_of[usize::from(id.0)] = Some(number);
        self.end = start + place_len(packet_len);
        Some((bytes, self.part.device_address + u64::from(start)))
    }

    /// Whether one is taken.
    pub(crate) fn has_taken(&self) -> bool {
        !self.taken.is_empty()
    }

    /// Takes back the stretch of the packet with this id, if it has one.
    #[inline(never)]
    pub(crate) fn give_back(&mut self, id: BufferId) {
        let number = self.number_of.get_mut(usize::from(id.0)).and_then(Option::take);
        let Some(number) = number else { return };
        self.taken[number.wrapping_sub(self.first) as usize].is_back = true;
        while self.taken.front().is_some_and(|oldest| oldest.is_back) {
            self.taken.pop_front();
            self.first = self.first.wrapping_add(1);
        }
        // One that was hardly taken, as there was no entry for it.
        while let Some(newest) = self.taken.back().filter(|newest| newest.is_back) {
            self.end = newest.start;
            self.taken.pop_back();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    const HEADER_LEN: u32 = 12;
    const LONGEST: u32 = 9000;
    const COUNT: u16 = 8;

    /// Memory that is never touched: only its places are looked at.
    fn stretches(longest: u32) -> (Stretches, usize, Vec<u8>) {
        let len = 1 << 17;
        let mut bytes = std::vec![0u8; len + 4096];
        let start = bytes.as_ptr().align_offset(4096);
        // SAFETY: inside the vector, which is returned along and not touched meanwhile.
        #[allow(unsafe_code)]
        let shared = unsafe { SharedSlice::new(bytes.as_mut_ptr().add(start), len) };
        let mut arena = Arena::new(shared, 0x10_0000);
        let made = Stretches::new(&mut arena, COUNT, HEADER_LEN, longest).expect("room");
        (made, len - arena.left(), bytes)
    }

    #[test]
    fn who_sends_nothing_long_has_no_memory_for_it() {
        let (stretches, taken, _bytes) = stretches(0);
        assert_eq!((taken, stretches.next(SHORT_LEN_MAX + 1)), (0, None));
        let (_, taken, _bytes) = super::tests::stretches(LONGEST);
        assert_eq!(taken, 8 * (9024 + 64));
    }

    proptest! {
        /// Whatever is taken and given back in whatever order: stretches are whole, packets begin
        /// with a line, none overlap, nothing is allocated, and in the end all memory is there
        /// again.
        #[test]
        fn stretches_never_overlap(
            steps in prop::collection::vec((SHORT_LEN_MAX + 1..=LONGEST, 0usize..12), 1..400),
        ) {
            let (mut stretches, _, _bytes) = stretches(LONGEST);
            let capacity = stretches.taken.capacity();
            let mut free: Vec<BufferId> = (0..COUNT).map(BufferId).collect();
            let mut out: Vec<(BufferId, u64, u64)> = Vec::new();
            for (len, back) in steps {
                let id = free.last().copied();
                let found = id.and_then(|id| Some((id, stretches.take(id, len)?)));
                if let Some((id, (bytes, at))) = found {
                    free.pop();
                    let end = at + bytes.len() as u64;
                    prop_assert_eq!(bytes.len() as u64, u64::from(HEADER_LEN + len));
                    prop_assert!((at + u64::from(HEADER_LEN)).is_multiple_of(64));
                    prop_assert!(0x10_0000 <= at && end <= 0x10_0000 + u64::from(stretches.len));
                    let apart = |other: &(BufferId, u64, u64)| end <= other.1 || other.2 <= at;
                    prop_assert!(out.iter().all(apart), "{at} to {end} in {out:?}");
                    out.push((id, at, end));
                }
                if back < out.len() {
                    let (id, ..) = out.swap_remove(back);
                    stretches.give_back(id);
                    free.push(id);
                }
            }
            out.iter().for_each(|(id, ..)| stretches.give_back(*id));
            prop_assert!(!stretches.has_taken());
            stretches.end = 0;
            for id in (0..COUNT).map(BufferId) {
                prop_assert!(stretches.take(id, LONGEST).is_some());
            }
            prop_assert_eq!(stretches.next(SHORT_LEN_MAX + 1), None);
            prop_assert_eq!(stretches.taken.capacity(), capacity);
        }
    }
}
