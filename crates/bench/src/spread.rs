//! Several measurements of the same thing, as one number with its spread.
//!
//! Limits: few values; no assumption about how they are distributed.

use serde::Serialize;

/// The median of some measurements, with the lowest and the highest, their mean, and their standard
/// deviation.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    /// Half of the values are not above it.
    pub median: f64,
    pub low: f64,
    pub high: f64,
    pub mean: f64,
    pub deviation: f64,
}

impl Spread {
    /// `None`: there are no values. Values that are not numbers are left out.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        let (&low, &high) = (values.first()?, values.last()?);
        let upper = values.len() / 2;
        let lower = (values.len() - 1) / 2;
        let median = f64::midpoint(values[lower], values[upper]);
        let count = f64::from(u32::try_from(values.len()).ok()?);
        let mean = values.iter().sum::<f64>() / count;
        let squares = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
        Some(Self { median, low, high, mean, deviation: (squares / count).sqrt() })
    }
}

/// Measurement by measurement, `of` divided by `by`. Pairs of which one is missing are left out:
/// a ratio is only taken of what was measured one right after the other.
pub(crate) fn ratios<'a>(
    of: &'a [Option<f64>],
    by: &'a [Option<f64>],
) -> impl Iterator<Item = f64> + 'a {
    of.iter().zip(by).filter_map(|(of, by)| match (of, by) {
        (Some(of), Some(by)) if *by > 0.0 => Some(of / by),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_in_the_middle() {
        let of = |values: &[f64]| {
            let spread = Spread::of(values.iter().copied()).expect("values");
            [spread.median, spread.low, spread.high, spread.mean, spread.deviation]
        };
        assert_eq!(of(&[6.0, 1.0, 2.0]), [2.0, 1.0, 6.0, 3.0, (14.0_f64 / 3.0).sqrt()]);
        assert_eq!(of(&[4.0, 1.0]), [2.5, 1.0, 4.0, 2.5, 1.5]);
        assert_eq!(Spread::of([f64::NAN]), None);
        assert_eq!(Spread::of([]), None);
    }

    #[test]
    fn ratios_are_taken_pair_by_pair() {
        let of = [Some(1.0), None, Some(6.0), Some(1.0)];
        let by = [Some(2.0), Some(1.0), Some(3.0), Some(0.0)];
        assert_eq!(ratios(&of, &by).collect::<Vec<_>>(), [0.5, 2.0]);
    }
}
