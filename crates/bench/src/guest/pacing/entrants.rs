//! Which rows take part in a measure: a fixed policy that is not the best one, as far as can be said,
//! stops, and its time goes to the others.
//!
//! How: behind each round, every fixed row is held against the one that is the best of them so far. The
//! last policy, ours, takes part to the end.
//!
//! Limits: looked at so often, chance may make a good row stop. Ours is then held against one that looked
//! better, never against a worse one that it could beat more easily.

use std::ops::Range;

use super::best::best;
use super::figures::FIGURES;
use super::slices::VISITS;
use super::tables::Turns;
use super::{POLICIES, SAME};
use crate::interval::Estimate;
use crate::ratios;
use crate::verdict::Verdict;

/// Rounds behind which a row may stop: the first two of a measure in slices.
const ROUNDS_MIN: usize = 2 * VISITS;

/// The rows of one measure that still take part.
#[derive(Debug, Clone)]
pub(super) struct Entrants(Vec<usize>);

impl Entrants {
    /// All.
    pub fn all() -> Self {
        Self((0..POLICIES.len()).collect())
    }

    /// How often each has a slice of one stream: the fewer they are, the more often.
    pub fn visits(&self) -> usize {
        VISITS * POLICIES.len() / self.0.len()
    }

    /// All of them, in another order in each round: nobody is always the first, or behind the same one.
    pub fn order(&self, round: usize) -> impl Iterator<Item = usize> {
        // Steps without a common divisor meet all of so many.
        let count = self.0.len();
        let steps: Vec<usize> = (1..count).filter(|step| is_coprime(*step, count)).collect();
        let step = steps[round % steps.len()];
        (0..count).map(move |at| self.0[(round + step * at) % count])
    }

    /// Those stop, and are returned, that are beaten in all of these figures.
    pub fn settle(&mut self, figures: Range<usize>, turns: &Turns) -> Vec<usize> {
        let fixed: Vec<usize> = self.0.iter().copied().filter(|row| *row < SAME).collect();
        let is_beaten =
            |row: usize| figures.clone().all(|figure| is_beaten(row, figure, &fixed, turns));
        let beaten: Vec<usize> = fixed.iter().copied().filter(|row| is_beaten(*row)).collect();
        self.0.retain(|row| !beaten.contains(row));
        beaten
    }
}

fn is_coprime(one: usize, other: usize) -> bool {
    match other {
        0 => one == 1,
        _ => is_coprime(other, one % other),
    }
}

/// Whether the best of the fixed rows is better in this figure, as far as can be said.
fn is_beaten(row: usize, figure: usize, fixed: &[usize], turns: &Turns) -> bool {
    let needed = FIGURES[figure].1;
    let values = |row: usize| &turns[row][figure][..];
    let Some(place) = best(needed, values(SAME), fixed.iter().map(|row| values(*row))) else {
        return false;
    };
    let together: Vec<f64> = ratios(values(row), values(fixed[place])).collect();
    together.len() >= ROUNDS_MIN
        && Estimate::of_ratios(together)
            .is_some_and(|estimate| needed.level().judge(estimate) == Verdict::No)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_has_a_turn_behind_everybody_else() {
        let entrants = Entrants::all();
        let mut behind = std::collections::BTreeSet::new();
        for round in 0..POLICIES.len() / 2 {
            let order: Vec<usize> = entrants.order(round).collect();
            behind.extend(order.windows(2).map(|two| (two[0], two[1])));
            let mut all = order;
            all.sort_unstable();
            assert_eq!(all, (0..POLICIES.len()).collect::<Vec<_>>());
        }
        for policy in 0..POLICIES.len() {
            assert!(behind.iter().filter(|(_, second)| *second == policy).count() >= 3);
        }
    }

    #[test]
    fn any_number_of_rows_is_met() {
        for count in 2..=POLICIES.len() {
            let entrants = Entrants((0..count).map(|row| 10 + row).collect());
            for round in 0..20 {
                let mut all: Vec<usize> = entrants.order(round).collect();
                all.sort_unstable();
                assert_eq!(all, entrants.0, "{count}, {round}");
            }
            assert!(entrants.visits() * count <= VISITS * POLICIES.len());
        }
    }

    /// A figure of which row `at` has a value around `middles[at]` in each round.
    fn turns(figure: usize, middles: [f64; POLICIES.len()], rounds: usize) -> Turns {
        let mut turns = Turns::default();
        for (turn, middle) in turns.iter_mut().zip(middles) {
            let value = |round: usize| if round.is_multiple_of(2) { 0.99 } else { 1.01 } * middle;
            turn[figure] = (0..rounds).map(|round| Some(value(round))).collect();
        }
        turns
    }

    const MIDDLES: [f64; POLICIES.len()] = [3.0, 3.0, 2.0, 3.0, 3.0, 1.0, 0.1, 9.0];

    #[test]
    fn rows_that_are_beaten_stop_and_ours_goes_on() {
        // Less is better of times, more of throughput.
        for (figure, left) in [(2, vec![5, 6, 7]), (0, vec![0, 1, 3, 4, 6, 7])] {
            let mut entrants = Entrants::all();
            let early = turns(figure, MIDDLES, ROUNDS_MIN - 1);
            assert!(entrants.settle(figure..figure + 1, &early).is_empty(), "too early");
            entrants.settle(figure..figure + 1, &turns(figure, MIDDLES, ROUNDS_MIN));
            assert_eq!(entrants.0, left);
            assert_eq!(entrants.visits(), VISITS * POLICIES.len() / left.len());
        }
    }

    #[test]
    fn who_is_the_best_in_one_figure_goes_on() {
        let mut turns = turns(2, MIDDLES, ROUNDS_MIN);
        let other = MIDDLES.map(|middle| 10.0 - middle);
        for (turn, values) in turns.iter_mut().zip(self::turns(3, other, ROUNDS_MIN)) {
            turn[3].clone_from(&values[3]);
        }
        let mut entrants = Entrants::all();
        assert_eq!(entrants.settle(2..4, &turns), [2], "only this one is beaten in both");
    }

    #[test]
    fn what_was_not_measured_beats_nobody() {
        let mut entrants = Entrants::all();
        assert!(entrants.settle(0..1, &Turns::default()).is_empty());
    }
}
