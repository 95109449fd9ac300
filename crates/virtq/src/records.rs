//! The records of a driver's buffers, and how one is found that does not come back in its turn.
//!
//! How: see `flight.rs`. Limits: the caller says which of them the device has; to bring one forward
//! takes no more steps than there are records.

use core::ops::Range;

use crate::{Broken, BufferId, Why};

/// A buffer that was given to the device.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Buffer {
    pub id: BufferId,
    /// Ring descriptors it takes.
    pub descriptors: u16,
    /// Bytes the device may write.
    pub writable: u32,
}

/// The record of one descriptor.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Flying {
    /// No other record has it. In a split ring it is the descriptor.
    pub key: u16,
    /// The buffer that begins with the descriptor, or did last. Of no descriptors: it never did, or
    /// belongs to a buffer that began before it.
    pub buffer: Buffer,
    /// The running number of that buffer, modulo 2^32.
    pub number: u32,
}

impl Flying {
    /// Whether a buffer begins here, or did last.
    #[inline(always)]
    pub fn is_first(&self) -> bool {
        self.buffer.descriptors > 0
    }

    /// Whether that is this buffer, of one descriptor, which the device may write.
    #[inline(always)]
    pub fn is_repeatable(&self, key: u16, id: BufferId) -> bool {
        let Buffer { id: last, descriptors, writable } = self.buffer;
        self.key == key && last == id && descriptors == 1 && writable > 0
    }
}

/// Where the record of that descriptor is.
#[inline(always)]
pub(crate) fn place(descriptor: u32, flying: &[Flying]) -> usize {
    descriptor as usize & (flying.len() - 1)
}

/// All records, and where they are by key.
pub(crate) struct Records<'a> {
    pub flying: &'a mut [Flying],
    pub places: &'a mut [u16],
}

impl Records<'_> {
    /// To be handed on by value, so that these can be in registers.
    #[inline(always)]
    pub fn reborrow(&mut self) -> Records<'_> {
        Records { flying: self.flying, places: self.places }
    }

    /// Where the record of the buffer with this key is, if it is in that range: what the device
    /// wrote, checked.
    pub fn find(&self, key: u32, range: Range<u32>) -> Result<usize, Broken> {
        let &at = self.places.get(key as usize).ok_or(Broken(Why::BadIndex))?;
        let at = usize::from(at);
        let is_there = self.behind(at, range.start) < range.end.wrapping_sub(range.start)
            && self.flying[at].is_first();
        is_there.then_some(at).ok_or(Broken(Why::NotInFlight))
    }

    /// How far a record is behind the one of that descriptor.
    #[allow(clippy::cast_possible_truncation, reason = "below 2^15")]
    fn behind(&self, at: usize, from: u32) -> u32 {
        place((at as u32).wrapping_sub(from), self.flying) as u32
    }

    /// Puts the buffer with this key in front of all others in that range, which begins with the
    /// oldest one.
    #[cold]
    pub fn bring_forward(mut self, key: u32, range: Range<u32>) -> Result<(), Broken> {
        let from = range.start;
        let at = self.find(key, range)?;
        let behind = self.behind(at, from);
        let count = u32::from(self.flying[at].buffer.descriptors);
        if count == u32::from(self.flying[place(from, self.flying)].buffer.descriptors) {
            (0..count).for_each(|by| self.exchange(from, by, behind + by));
            return Ok(());
        }
        // Two parts change places: each is reversed, then both together.
        let end = behind + count;
        for (first, end) in [(0, behind), (behind, end), (0, end)] {
            let pairs = (first..end).zip((first..end).rev()).take(((end - first) / 2) as usize);
            pairs.for_each(|(one, other)| self.exchange(from, one, other));
        }
        Ok(())
    }

    /// Exchanges two records, so far behind the one of that descriptor.
    pub fn exchange(&mut self, from: u32, one: u32, other: u32) {
        let place = |behind| place(from.wrapping_add(behind), self.flying);
        self.swap(place(one), place(other));
    }

    /// Exchanges two records.
    #[allow(clippy::cast_possible_truncation, reason = "below 2^15")]
    pub fn swap(&mut self, one: usize, other: usize) {
        self.flying.swap(one, other);
        for at in [one, other] {
            // Of a packed queue there may be more records than keys.
            if let Some(place) = self.places.get_mut(usize::from(self.flying[at].key)) {
                *place = at as u16;
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    /// Eight records, of which those of descriptors 6 to 12 are in flight: buffers of 3, 1, 2 and
    /// 1.
    fn records() -> (Vec<Flying>, Vec<u16>) {
        let of = |key: u16| match key {
            6 => 3,
            1 | 4 => 1,
            2 => 2,
            _ => 0,
        };
        let flying = |key| {
            let buffer = Buffer { id: BufferId(key), descriptors: of(key), writable: 0 };
            Flying { key, buffer, number: 0 }
        };
        ((0..8).map(flying).collect(), (0..8).collect())
    }

    /// The keys of descriptors 6 to 12, once this one was brought forward.
    fn after(key: u32) -> Vec<u16> {
        let (mut flying, mut places) = records();
        let records = Records { flying: &mut flying, places: &mut places };
        records.bring_forward(key, 6..13).expect("in flight");
        for (key, &place) in places.iter().enumerate() {
            assert_eq!(usize::from(flying[usize::from(place)].key), key);
        }
        (6..13).map(|at| flying[at % 8].key).collect()
    }

    #[test]
    fn a_buffer_comes_to_the_front_and_all_stay_in_one_piece() {
        assert_eq!(after(6), [6, 7, 0, 1, 2, 3, 4]);
        assert_eq!(after(1), [1, 6, 7, 0, 2, 3, 4]);
        assert_eq!(after(2), [2, 3, 6, 7, 0, 1, 4]);
        assert_eq!(after(4), [4, 6, 7, 0, 1, 2, 3]);
    }

    #[test]
    fn what_is_no_buffer_of_the_device_is_not_found() {
        let (mut flying, mut places) = records();
        let records = Records { flying: &mut flying, places: &mut places };
        let find = |key| records.find(key, 6..12).map_err(|broken| broken.0);
        assert_eq!(find(2), Ok(2));
        assert_eq!(find(7), Err(Why::NotInFlight), "inside a buffer");
        assert_eq!(find(4), Err(Why::NotInFlight), "beyond the range");
        assert_eq!(find(5), Err(Why::NotInFlight), "free");
        assert_eq!(find(8), Err(Why::BadIndex));
    }
}
