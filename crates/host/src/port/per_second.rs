//! How often something happens in each second of the clock.

/// How often something has happened, and how often in the last full second.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PerSecond {
    total: u64,
    /// The second that `at_start` and `last` belong to.
    second: u64,
    /// The total when it began.
    at_start: u64,
    /// How often in the one before.
    last: u64,
}

impl PerSecond {
    /// Once more, in the second with this number.
    #[inline]
    pub(crate) fn count(&mut self, second: u64) {
        if second != self.second {
            self.last = self.last_second(second);
            (self.second, self.at_start) = (second, self.total);
        }
        self.total += 1;
    }

    pub(crate) fn total(self) -> u64 {
        self.total
    }

    /// How often in the second before that one.
    pub(crate) fn last_second(self, second: u64) -> u64 {
        match second.wrapping_sub(self.second) {
            0 => self.last,
            1 => self.total - self.at_start,
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_count_has_the_same_seconds() {
        let mut kicks = PerSecond::default();
        for (second, last) in [(7, 0), (7, 0), (8, 2), (8, 2), (8, 2), (9, 3), (11, 0)] {
            kicks.count(second);
            assert_eq!(kicks.last_second(second), last, "in second {second}");
        }
        assert_eq!([11, 12, 13].map(|second| kicks.last_second(second)), [0, 1, 0]);
        assert_eq!(kicks.total(), 7);
    }
}
