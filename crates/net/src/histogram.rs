//! How long something has taken, how often: counts within fixed bounds.

/// Up to where a time belongs to a count, in nanoseconds: from 1 µs to 50 ms.
pub const HISTOGRAM_BOUNDS_NS: [u64; 15] = [
    1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000, 2_000_000,
    5_000_000, 10_000_000, 20_000_000, 50_000_000,
];

/// Counts of times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Histogram {
    /// How many were up to each of [`HISTOGRAM_BOUNDS_NS`] and above the one before; the last count
    /// is of those above all.
    pub counts: [u64; HISTOGRAM_BOUNDS_NS.len() + 1],
    /// All times together, in nanoseconds.
    pub sum_ns: u64,
}

impl Histogram {
    /// Once more, and that long.
    pub fn count(&mut self, time_ns: u64) {
        self.counts[HISTOGRAM_BOUNDS_NS.partition_point(|bound| *bound < time_ns)] += 1;
        self.sum_ns = self.sum_ns.saturating_add(time_ns);
    }

    /// Both together.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        let counts = core::array::from_fn(|at| self.counts[at] + other.counts[at]);
        Self { counts, sum_ns: self.sum_ns.saturating_add(other.sum_ns) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_counted_up_to_its_bound() {
        let mut histogram = Histogram::default();
        for time_ns in [0, 1_000, 1_001, 50_000_000, 50_000_001, u64::MAX] {
            histogram.count(time_ns);
        }
        let last = HISTOGRAM_BOUNDS_NS.len();
        let counts = [0, 1, last - 1, last].map(|at| histogram.counts[at]);
        assert_eq!((counts, histogram.sum_ns), ([2, 1, 1, 2], u64::MAX));
    }

    #[test]
    fn two_are_added() {
        let (mut one, mut other) = (Histogram::default(), Histogram::default());
        one.count(3_000);
        other.count(4_000);
        other.count(2_000_000_000);
        let both = one.plus(&other);
        assert_eq!((both.counts[2], both.counts[15], both.sum_ns), (2, 1, 2_000_007_000));
    }
}
