//! Whether a ratio is good enough, as far as measurements can say.
//!
//! Limits: an interval has 95 %, so a verdict is wrong in 2.5 % of cases, if the rounds behind it do
//! not depend on each other.

use std::cmp::Ordering;

use crate::interval::Estimate;

/// What a ratio has to be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Needed {
    /// This at least.
    AtLeast(f64),
    /// This at most.
    AtMost(f64),
}

/// What is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The interval lies wholly on the wrong side.
    No,
    /// The interval is on both sides, or there is none.
    Undecided,
    /// The interval lies wholly on the right side.
    Yes,
}

impl Needed {
    /// What the estimate says.
    pub fn judge(self, estimate: Estimate) -> Verdict {
        let Some((low, high)) = estimate.interval else { return Verdict::Undecided };
        let (is_enough, is_short) = match self {
            Self::AtLeast(limit) => (low >= limit, high < limit),
            Self::AtMost(limit) => (high <= limit, low > limit),
        };
        match (is_enough, is_short) {
            (true, _) => Verdict::Yes,
            (_, true) => Verdict::No,
            (false, false) => Verdict::Undecided,
        }
    }

    /// What is needed to be no worse than the other one at all.
    pub fn level(self) -> Self {
        match self {
            Self::AtLeast(_) => Self::AtLeast(1.0),
            Self::AtMost(_) => Self::AtMost(1.0),
        }
    }

    /// Which of two ratios is worse: that one comes first.
    pub fn worse(self, one: f64, other: f64) -> Ordering {
        match self {
            Self::AtLeast(_) => one.total_cmp(&other),
            Self::AtMost(_) => other.total_cmp(&one),
        }
    }

    /// As shown.
    pub fn show(self) -> String {
        match self {
            Self::AtLeast(limit) => format!("≥ {limit}"),
            Self::AtMost(limit) => format!("≤ {limit}"),
        }
    }
}

impl Verdict {
    /// As shown.
    pub fn name(self) -> &'static str {
        match self {
            Self::No => "no",
            Self::Undecided => "undecided",
            Self::Yes => "yes",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn estimate(low: f64, middle: f64, high: f64) -> Estimate {
        Estimate { middle, interval: Some((low, high)) }
    }

    #[test]
    fn an_interval_on_both_sides_decides_nothing() {
        let judge = |low, high| {
            [Needed::AtLeast(0.98), Needed::AtMost(1.1)]
                .map(|needed| needed.judge(estimate(low, f64::midpoint(low, high), high)))
        };
        use Verdict::{No, Undecided, Yes};
        assert_eq!(judge(0.98, 1.1), [Yes, Yes]);
        assert_eq!(judge(0.97, 1.11), [Undecided, Undecided]);
        assert_eq!(judge(0.90, 0.97), [No, Yes]);
        assert_eq!(judge(1.11, 1.50), [Yes, No]);
        let unknown = Estimate { middle: 2.0, interval: None };
        assert_eq!(Needed::AtLeast(0.98).judge(unknown), Undecided);
    }

    #[test]
    fn the_worse_of_two_depends_on_what_is_needed() {
        assert_eq!(Needed::AtLeast(0.98).worse(0.9, 1.1), Ordering::Less);
        assert_eq!(Needed::AtMost(1.1).worse(0.9, 1.1), Ordering::Greater);
    }
}
