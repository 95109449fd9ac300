//! What some measurements say about the value behind them: an estimate and its 95 % interval.
//!
//! Theory of operation: of all pairs of values, each with itself too, the averages are taken and
//! sorted. The one in the middle is the estimate (Hodges and Lehmann, 1963); the interval ends
//! where the signed-rank test (Wilcoxon, 1945) would reject a value with a probability of error of
//! 2.5 % on each side. A single wild value hardly moves either.
//!
//! Limits: values on both sides of the true one are taken as equally likely, but nothing else
//! about how they are distributed; fewer than six values have no such interval.

/// Probability of error on each side of an interval.
const TAIL: f64 = 0.025;

/// An estimate with its interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Estimate {
    /// The most plausible value.
    pub middle: f64,
    /// The 95 % interval, both ends included; `None`: too few values for one.
    pub interval: Option<(f64, f64)>,
}

impl Estimate {
    /// Of values that vary by addition; `None`: there are no values.
    fn of(values: &[f64]) -> Option<Self> {
        let mut averages = Vec::with_capacity(values.len() * (values.len() + 1) / 2);
        for (at, &one) in values.iter().enumerate() {
            averages.extend(values[..=at].iter().map(|&other| f64::midpoint(one, other)));
        }
        averages.sort_by(f64::total_cmp);
        let count = averages.len();
        let lower = averages.get(count.checked_sub(1)? / 2)?;
        let middle = f64::midpoint(*lower, averages[count / 2]);
        let outside = rejected(values.len());
        let interval = outside.checked_sub(1).map(|at| (averages[at], averages[count - 1 - at]));
        Some(Self { middle, interval })
    }

    /// Of ratios, which vary by multiplication; those that are not above zero are left out.
    pub fn of_ratios(ratios: impl IntoIterator<Item = f64>) -> Option<Self> {
        let usable = ratios.into_iter().filter(|ratio| ratio.is_finite() && *ratio > 0.0);
        let logarithms: Vec<f64> = usable.map(f64::ln).collect();
        let Self { middle, interval } = Self::of(&logarithms)?;
        let interval = interval.map(|(low, high)| (low.exp(), high.exp()));
        Some(Self { middle: middle.exp(), interval })
    }
}

/// How many of the lowest rank sums of `count` values the test rejects.
fn rejected(count: usize) -> usize {
    // The probability of each sum of ranks with a positive sign, when signs are tossed.
    let mut probabilities = vec![0.0; count * (count + 1) / 2 + 1];
    probabilities[0] = 1.0;
    for rank in 1..=count {
        for sum in (0..probabilities.len()).rev() {
            let with_rank = sum.checked_sub(rank).map_or(0.0, |sum| probabilities[sum]);
            probabilities[sum] = f64::midpoint(probabilities[sum], with_rank);
        }
    }
    let mut total = 0.0;
    let is_rare = |&probability: &f64| {
        total += probability;
        total <= TAIL
    };
    probabilities.iter().copied().take_while(is_rare).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_sums_are_rejected_as_tables_say() {
        // Wilcoxon's table, 5 % on both sides together: the highest sum that is rejected.
        let table =
            [(6, 0), (7, 2), (8, 3), (9, 5), (10, 8), (12, 13), (15, 25), (20, 52), (25, 89)];
        for (count, highest) in table {
            assert_eq!(rejected(count), highest + 1, "{count} values");
        }
        assert_eq!([0, 1, 4, 5].map(rejected), [0; 4]);
    }

    #[test]
    fn a_published_example_comes_out() {
        // Hollander and Wolfe, Nonparametric Statistical Methods, table 3.1: nine patients before
        // and after treatment; estimate -0.46, interval from -0.786 to -0.010.
        let before = [1830, 500, 1620, 2480, 1680, 1880, 1550, 3060, 1300];
        let after = [878, 647, 598, 2050, 1060, 1290, 1060, 3140, 1290];
        let changes = before.iter().zip(after).map(|(before, after)| f64::from(after - before));
        let changes: Vec<f64> = changes.map(|thousandths| thousandths / 1000.0).collect();
        let Some(Estimate { middle, interval: Some((low, high)) }) = Estimate::of(&changes) else {
            panic!("nine values have an interval");
        };
        for (found, published) in [(middle, -0.46), (low, -0.786), (high, -0.010)] {
            assert!((found - published).abs() < 1e-9, "{found}, not {published}");
        }
    }

    #[test]
    fn ratios_and_their_inverses_mirror_each_other() {
        let ratios = [0.9, 1.0, 1.2, 1.1, 0.8, 1.3, 4.0];
        let one = Estimate::of_ratios(ratios).expect("values");
        let other = Estimate::of_ratios(ratios.map(|ratio| 1.0 / ratio)).expect("values");
        assert!((one.middle * other.middle - 1.0).abs() < 1e-12);
        let ((low, high), (inverse_low, inverse_high)) =
            (one.interval.expect("seven"), other.interval.expect("seven"));
        assert!((low * inverse_high - 1.0).abs() < 1e-12 && low < high);
        assert!((high * inverse_low - 1.0).abs() < 1e-12);
    }

    #[test]
    fn few_values_have_no_interval() {
        assert_eq!(Estimate::of_ratios([]), None);
        assert_eq!(Estimate::of_ratios([0.0, f64::INFINITY, f64::NAN]), None);
        let five = Estimate::of_ratios([1.0; 5]).expect("values");
        assert_eq!(five, Estimate { middle: 1.0, interval: None });
        let six = Estimate::of_ratios([1.0; 6]).expect("values");
        assert_eq!(six.interval, Some((1.0, 1.0)));
    }
}
