//! How many packets of a tap to read at once, from how many short ones were there in a row.
//!
//! Limits: [`AHEAD_PACKETS`] at a time; what waits in a tap cannot be asked.

use ringway_net::HEADER_LEN;

/// Packets at a time; half the budget of a visit.
pub(crate) const AHEAD_PACKETS: usize = 32;
/// Longer packets, in bytes, are better read straight to their receiver.
const SHORT_LEN: usize = 2048;
/// The most that must be in a row.
const NEEDED_MAX: usize = 256;

/// How many packets to read at once.
///
/// Packets that were there in a row say that more wait. If they do not, more must be in a row the
/// next time.
#[derive(Debug)]
pub(crate) struct ReadBatcher {
    /// Fewer are read one by one.
    from: usize,
    /// Short packets in a row.
    row: usize,
    /// Packets that must be in a row first; `usize::MAX`: never again.
    needed: usize,
}

impl ReadBatcher {
    /// `from`: fewer are read faster one by one.
    pub(crate) fn new(from: usize) -> Self {
        Self { from, row: 0, needed: from }
    }

    /// How many to read at once now; `None`: one by one.
    pub(crate) fn batch_len(&self) -> Option<usize> {
        (self.row >= self.needed).then(|| self.row.clamp(self.from, AHEAD_PACKETS))
    }

    /// Records that `len` bytes were read alone, header included; 0: there was no packet.
    pub(crate) fn record(&mut self, len: usize) {
        let is_short = (1..=HEADER_LEN + SHORT_LEN).contains(&len);
        self.row = if is_short { self.row + 1 } else { 0 };
    }

    /// Records that `found` packets were read at once where `asked` would have been, the longest of
    /// so many bytes.
    pub(crate) fn record_batch(&mut self, asked: usize, found: usize, longest_len: usize) {
        let are_short = longest_len <= HEADER_LEN + SHORT_LEN;
        if found == asked && are_short {
            self.row += found;
            self.needed = self.from.max(self.needed / 2);
            return;
        }
        self.row = 0;
        // A request that finds nothing takes about a third of one that does: with three quarters of
        // them, nothing is lost.
        if found * 4 < asked * 3 || !are_short {
            self.needed = NEEDED_MAX.min(self.needed.saturating_mul(2));
        }
    }

    /// It is not possible: from now on one by one.
    pub(crate) fn give_up(&mut self) {
        self.needed = usize::MAX;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of the longest short packet and its header.
    const SHORT: usize = HEADER_LEN + SHORT_LEN;

    #[test]
    fn several_are_read_only_behind_short_ones_in_a_row() {
        let (short, long) = (SHORT, SHORT + 1);
        let mut row = ReadBatcher::new(4);
        for (lens, batch_len) in [
            (&[short, short, short][..], None),
            (&[short][..], Some(4)),
            (&[short][..], Some(5)),
            (&[long][..], None),
            (&[short, short, short, 0, short][..], None),
            (&[short, short, short][..], Some(4)),
        ] {
            lens.iter().for_each(|&len| row.record(len));
            assert_eq!(row.batch_len(), batch_len, "{row:?}");
        }
        for batch_len in [8, 16, 32, 32] {
            let asked = row.batch_len().unwrap();
            row.record_batch(asked, asked, SHORT);
            assert_eq!(row.batch_len(), Some(batch_len), "more as long as all are there");
        }
    }

    #[test]
    fn a_tap_that_was_asked_in_vain_is_asked_later_the_next_time() {
        /// Short packets in a row until several are read at once.
        fn needed(row: &mut ReadBatcher) -> usize {
            row.record(0);
            let are_several = (1..1000).find(|_| {
                row.record(SHORT);
                row.batch_len().is_some()
            });
            are_several.unwrap()
        }
        let mut row = ReadBatcher::new(4);
        assert_eq!(needed(&mut row), 4);
        for expected in [8, 16, 32, 64, 128, 256, 256] {
            row.record_batch(32, 23, SHORT);
            assert_eq!(needed(&mut row), expected);
        }
        row.record_batch(32, 24, SHORT);
        assert_eq!(needed(&mut row), 256, "three quarters are neither gain nor loss");
        for expected in [128, 64, 32, 16, 8, 4, 4] {
            row.record_batch(32, 32, SHORT);
            assert_eq!(needed(&mut row), expected);
        }
        row.record_batch(32, 32, SHORT + 1);
        assert_eq!(needed(&mut row), 8, "long ones among them");
    }

    #[test]
    fn what_is_not_possible_is_not_tried_again() {
        let mut row = ReadBatcher::new(2);
        row.give_up();
        (0..10_000).for_each(|_| row.record(SHORT));
        assert_eq!(row.batch_len(), None);
    }
}
