//! How often packets of each length came lately: a small histogram that forgets.
//!
//! How: eight bins per doubling from 64 bytes on. Each bin counts, and remembers the longest
//! packet it has seen lately; so lengths that come again and again are known exactly. When the
//! counts reach [`TOTAL_MAX`] all are halved. Limits: lengths below 64 bytes count as 64.

/// Counts are halved at this many packets.
const TOTAL_MAX: u16 = 1024;
/// Lengths below are not told apart.
const LEN_MIN: u32 = 64;
const LEN_MIN_LOG2: u32 = 6;
/// Bins per doubling of the length: eight.
const BINS_LOG2: u32 = 3;
/// From 64 bytes to beyond the longest packet with its header.
const BINS: usize = 96;

/// Packets in one bin.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Bin {
    pub count: u16,
    /// The shortest and the longest lately, in bytes.
    pub shortest: u32,
    pub longest: u32,
    /// The same since counts were halved last; 0: none.
    shortest_since: u32,
    longest_since: u32,
    /// The longest when lengths were compared last; 0: there was none.
    compared: u32,
}

impl Bin {
    const EMPTY: Self = Self {
        count: 0,
        shortest: 0,
        longest: 0,
        shortest_since: 0,
        longest_since: 0,
        compared: 0,
    };

    #[inline]
    fn add(&mut self, len: u32, packets: u16) {
        self.count += packets;
        self.longest = self.longest.max(len);
        self.longest_since = self.longest_since.max(len);
        // 0 means that there was none, and is then above all others.
        self.shortest = (self.shortest.wrapping_sub(1)).min(len - 1) + 1;
        self.shortest_since = (self.shortest_since.wrapping_sub(1)).min(len - 1) + 1;
    }

    /// By how much the longest has grown since the last comparison, in bytes.
    pub fn growth(&self) -> u32 {
        self.longest.saturating_sub(if self.compared == 0 { self.shortest } else { self.compared })
    }

    fn halve(&mut self) {
        self.count /= 2;
        if self.count == 0 {
            *self = Self::EMPTY;
        } else if self.longest_since > 0 {
            (self.shortest, self.longest) = (self.shortest_since, self.longest_since);
            (self.shortest_since, self.longest_since) = (0, 0);
        }
    }
}

/// Lengths of recent packets.
#[derive(Debug, Clone)]
pub(super) struct Histogram {
    bins: [Bin; BINS],
    /// Bit n: bin n is not empty.
    filled: u128,
    total: u16,
}

impl Histogram {
    pub const EMPTY: Self = Self { bins: [Bin::EMPTY; BINS], filled: 0, total: 0 };

    /// How unexpected a packet of `len` bytes is, in sixteenths of a bit: the logarithm of one
    /// over its share, where every bin has one packet for free.
    #[inline]
    pub fn surprise(&self, len: u32) -> u32 {
        let seen = u32::from(self.bins[bin_of(len)].count);
        // A bin never has more than the total.
        log2_sixteenths(u32::from(self.total) + 1) - log2_sixteenths(seen + 1)
    }

    /// Counts packets of `len` bytes, header included; fewer than [`TOTAL_MAX`] of them.
    #[inline]
    pub fn add(&mut self, len: u32, packets: u16) {
        let at = bin_of(len);
        self.bins[at].add(len.max(1), packets);
        self.filled |= 1 << at;
        self.total += packets;
        if self.total >= TOTAL_MAX {
            self.halve();
        }
    }

    /// Bins that are not empty, shortest lengths first.
    #[inline]
    pub fn filled(&self) -> impl Iterator<Item = Bin> {
        let mut left = self.filled;
        core::iter::from_fn(move || {
            let bin = self.bins.get(left.trailing_zeros() as usize)?;
            left &= left - 1;
            Some(*bin)
        })
    }

    /// Lengths have been compared: growth counts from here.
    pub fn mark_compared(&mut self) {
        for bin in &mut self.bins {
            bin.compared = bin.longest;
        }
    }

    fn halve(&mut self) {
        self.total = 0;
        for (at, bin) in self.bins.iter_mut().enumerate() {
            bin.halve();
            self.total += bin.count;
            self.filled &= !(u128::from(bin.count == 0) << at);
        }
    }
}

/// The bin of a length.
#[inline]
fn bin_of(len: u32) -> usize {
    let len = len.max(LEN_MIN);
    let log2 = len.ilog2();
    let fraction = (len >> (log2 - BINS_LOG2)) & ((1 << BINS_LOG2) - 1);
    let bin = ((log2 - LEN_MIN_LOG2) << BINS_LOG2 | fraction) as usize;
    bin.min(BINS - 1)
}

/// The logarithm to base 2 in sixteenths, linear between powers of two. `value` is not 0.
#[inline]
pub(super) fn log2_sixteenths(value: u32) -> u32 {
    let log2 = value.ilog2();
    let fraction = ((u64::from(value) << 4) >> log2) & 15;
    // Below 16.
    (log2 << 4) | (fraction & 15) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_rise_with_the_length_and_hold_an_eighth() {
        assert_eq!((bin_of(0), bin_of(64), bin_of(71), bin_of(72)), (0, 0, 0, 1));
        assert_eq!(bin_of(u32::MAX), BINS - 1);
        for len in 65..80_000 {
            let step = bin_of(len) - bin_of(len - 1);
            assert!(step <= 1, "{len}");
        }
        assert!(bin_of(65_561) < BINS - 1);
    }

    #[test]
    fn logarithms_are_close() {
        assert_eq!([1, 2, 3, 4, 256].map(log2_sixteenths), [0, 16, 24, 32, 128]);
    }

    #[test]
    fn what_no_longer_comes_is_forgotten() {
        let mut histogram = Histogram::EMPTY;
        (0..1000).for_each(|_| histogram.add(1500, 1));
        (0..8000).for_each(|_| histogram.add(80, 1));
        assert_eq!(histogram.filled().count(), 1);
        assert!(histogram.total < TOTAL_MAX);
        assert_eq!(histogram.filled().map(|bin| bin.longest).max(), Some(80));
    }

    #[test]
    fn the_longest_of_a_bin_shrinks_with_its_packets() {
        let mut histogram = Histogram::EMPTY;
        (0..1200).for_each(|_| histogram.add(1530, 1));
        (0..2400).for_each(|_| histogram.add(1440, 1));
        assert_eq!(histogram.filled().map(|bin| bin.longest).collect::<std::vec::Vec<_>>(), [1440]);
    }
}
