//! Ours against the best of several rows, without letting chance choose which one that is.
//!
//! Of six rows that are all the same, one looks best by chance: by 9 % where a ratio is known to 7 %.
//! So the rounds are halved, and those of each half are held against the row that looks best in the
//! other half. A row that is really better is chosen by both. A row that stopped is not chosen: few
//! rounds may look good, and then there would be nothing to hold against the rest.
//!
//! Limits: of rows that differ by less than can be told the best is not always chosen, so that a ratio to
//! them looks a little better than it is. What one half has no values for is chosen by all rounds.

use std::ops::Range;

use crate::interval::Estimate;
use crate::ratios;
use crate::verdict::Needed;

/// One value per round, if it was measured.
pub(super) type Rounds = [Option<f64>];

/// A row may lack one value in so many, and always a single one: a slice without any answer is not a row
/// that stopped. That one lacks all that was measured behind it, at least a whole repeat: more than one
/// value in 20, unless there are 20 repeats, and then few enough not to matter.
const LOST: usize = 20;

/// What came out.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct AgainstBest {
    /// The rows that were chosen, one or two, by their places.
    pub(super) chosen: Vec<usize>,
    /// Ours by theirs.
    pub(super) estimate: Estimate,
}

/// Holds `ours` against the best of `others`; `None`: there is nothing to hold it against.
pub(super) fn against_best(
    needed: Needed,
    ours: &Rounds,
    others: &[&Rounds],
) -> Option<AgainstBest> {
    let others = &without_stopped(ours, others)[..];
    let half = ours.len() / 2;
    let halves = [0..half, half..ours.len()];
    let (mut chosen, mut all) = (Vec::new(), Vec::new());
    for (rounds, by) in [(&halves[0], &halves[1]), (&halves[1], &halves[0])] {
        let place = best(needed, part(ours, by), others.iter().map(|other| part(other, by)));
        // One round has no other half, and of a failed half there is nothing.
        let place = place.or_else(|| best(needed, ours, others.iter().copied()))?;
        chosen.push(place);
        all.extend(ratios(part(ours, rounds), part(others[place], rounds)));
    }
    chosen.dedup();
    Some(AgainstBest { chosen, estimate: Estimate::of_ratios(all)? })
}

/// Nothing of a row that stopped, so that it is not chosen; places stay.
pub(super) fn without_stopped<'a>(ours: &Rounds, others: &[&'a Rounds]) -> Vec<&'a Rounds> {
    let count = |other: &Rounds| ratios(ours, other).count();
    let most = others.iter().map(|other| count(other)).max().unwrap_or_default();
    let least = most.saturating_sub(1.max(most / LOST));
    others
        .iter()
        .map(|other| if count(other) < least { Default::default() } else { *other })
        .collect()
}

/// Nothing, of a row that has not so many rounds.
fn part<'a>(row: &'a Rounds, of: &Range<usize>) -> &'a Rounds {
    row.get(of.clone()).unwrap_or_default()
}

/// The place of the row beside which ours looks worst.
pub(super) fn best<'a>(
    needed: Needed,
    ours: &Rounds,
    others: impl Iterator<Item = &'a Rounds>,
) -> Option<usize> {
    let ratio = |other: &Rounds| Some(Estimate::of_ratios(ratios(ours, other))?.middle);
    let known = others.enumerate().filter_map(|(place, other)| Some((place, ratio(other)?)));
    known.min_by(|(_, one), (_, other)| needed.worse(*one, *other)).map(|(place, _)| place)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUNDS: usize = 30;

    /// Values around `middle`, by up to a quarter either way; `state` is the generator's.
    fn noise(state: &mut u64, middle: f64) -> Vec<Option<f64>> {
        let mut next = || {
            *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            f64::from(u32::try_from(*state >> 33).unwrap()) / f64::from(1_u32 << 31)
        };
        (0..ROUNDS).map(|_| Some(middle * (0.75 + next() / 2.0))).collect()
    }

    /// The mean of what comes out against six rows around these, and how often one row was chosen.
    fn mean_of_many(middles: [f64; 6]) -> (f64, usize) {
        const RUNS: u32 = 300;
        let (mut state, mut sum, mut agreed) = (7, 0.0, 0);
        for _ in 0..RUNS {
            let ours = noise(&mut state, 1.0);
            let others = middles.map(|middle| noise(&mut state, middle));
            let others = others.each_ref().map(|other| &other[..]);
            let found = against_best(Needed::AtMost(1.1), &ours, &others).unwrap();
            sum += found.estimate.middle;
            agreed += usize::from(found.chosen.len() == 1);
        }
        (sum / f64::from(RUNS), agreed)
    }

    #[test]
    fn among_equals_nobody_is_ahead() {
        let (mean, agreed) = mean_of_many([1.0; 6]);
        assert!((0.99..1.01).contains(&mean), "{mean}");
        assert!(agreed < 100, "{agreed}: chance does not choose the same row twice");
    }

    #[test]
    fn who_is_ahead_is_found() {
        let (mean, agreed) = mean_of_many([1.0, 1.0, 1.0, 0.8, 1.0, 1.0]);
        assert!((1.24..1.26).contains(&mean), "{mean}");
        assert!(agreed > 290, "{agreed}");
    }

    #[test]
    fn who_stopped_is_not_chosen() {
        let needed = Needed::AtMost(1.1);
        let (ours, steady) = ([Some(1.0); 40], [Some(1.0); 40]);
        for rounds in [10, 22, 37] {
            // It looks best in its few rounds, be they of one half or of both.
            let stopped: [_; 40] = std::array::from_fn(|at| (at < rounds).then_some(0.5));
            let found = against_best(needed, &ours, &[&stopped, &steady]).unwrap();
            assert_eq!((found.chosen, found.estimate.middle), (vec![1], 1.0), "{rounds}");
        }
        let lost: [_; 40] = std::array::from_fn(|at| (at % 20 != 7).then_some(0.5));
        let found = against_best(needed, &ours, &[&lost, &steady]).unwrap();
        assert_eq!((found.chosen, found.estimate.middle), (vec![0], 2.0), "two are lost");
    }

    #[test]
    fn more_is_better_where_so_much_is_needed_at_least() {
        let [low, high] = [[Some(1.0); 6], [Some(2.0); 6]];
        let found = against_best(Needed::AtLeast(0.98), &low, &[&low, &high]).unwrap();
        assert_eq!((found.chosen, found.estimate.middle), (vec![1], 0.5));
    }

    #[test]
    fn little_is_better_than_nothing() {
        let needed = Needed::AtMost(1.1);
        let one = against_best(needed, &[Some(3.0)], &[&[None], &[Some(2.0)]]).unwrap();
        assert_eq!((one.chosen, one.estimate.middle), (vec![1], 1.5));
        assert_eq!(against_best(needed, &[Some(3.0)], &[&[None]]), None);
        assert_eq!(against_best(needed, &[], &[&[]]), None);
        // What the other half has chosen was not measured in this one.
        let gap = [Some(1.0), None];
        let found = against_best(needed, &[Some(1.0), Some(2.0)], &[&gap]).unwrap();
        assert_eq!(found.estimate, Estimate { middle: 1.0, interval: None });
    }
}
