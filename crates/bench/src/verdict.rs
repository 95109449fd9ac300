//! Whether a ratio is good enough, as far as measurements can say.
//!
//! Limits: against each of several rows the interval has 95 %; `yes` needs all of them, so it is
//! wrong in at most 2.5 % of cases, but of six rows one can look too good by chance more often.

use crate::interval::Estimate;

/// What a ratio has to be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Needed {
    /// This at least.
    AtLeast(f64),
    /// This at most.
    AtMost(f64),
}

/// What is known; the worst comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
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

    /// The estimate by which things look worst: the worst verdict, and of several such the worst
    /// ratio.
    pub fn worst<T>(self, estimates: impl IntoIterator<Item = (T, Estimate)>) -> Option<Worst<T>> {
        let judged = estimates.into_iter().map(|(of, estimate)| {
            let verdict = self.judge(estimate);
            Worst { of, estimate, verdict }
        });
        judged.min_by(|one, other| {
            let ratios = one.estimate.middle.total_cmp(&other.estimate.middle);
            let ratios = match self {
                Self::AtLeast(_) => ratios,
                Self::AtMost(_) => ratios.reverse(),
            };
            one.verdict.cmp(&other.verdict).then(ratios)
        })
    }

    /// As shown.
    pub fn show(self) -> String {
        match self {
            Self::AtLeast(limit) => format!("≥ {limit}"),
            Self::AtMost(limit) => format!("≤ {limit}"),
        }
    }
}

/// One of several estimates, and what it says.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Worst<T> {
    /// Whose it is.
    pub of: T,
    /// The estimate.
    pub estimate: Estimate,
    /// What it says.
    pub verdict: Verdict,
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
    fn the_worst_is_by_verdict_and_then_by_ratio() {
        let needed = Needed::AtMost(1.1);
        let wild = ("wild", estimate(0.5, 2.0, 9.0));
        let (bad, worse) = (("bad", estimate(1.2, 1.3, 1.4)), ("worse", estimate(1.2, 1.4, 1.5)));
        let worst = |estimates: &[(&'static str, Estimate)]| {
            needed.worst(estimates.iter().copied()).map(|worst| (worst.of, worst.verdict))
        };
        assert_eq!(worst(&[wild, bad, worse]), Some(("worse", Verdict::No)));
        let fine = ("fine", estimate(0.9, 1.0, 1.05));
        assert_eq!(worst(&[fine, wild]), Some(("wild", Verdict::Undecided)));
        assert_eq!(worst(&[]), None);
        let more = Needed::AtLeast(0.98).worst([fine, ("less", estimate(0.985, 0.99, 1.0))]);
        assert_eq!(more.map(|worst| worst.of), Some("fine"));
    }
}
