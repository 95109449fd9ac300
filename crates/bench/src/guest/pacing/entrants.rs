//! Which rows take part in a measure: a fixed policy that is clearly not the best one stops, and its
//! time goes to the others, where that is time of slices; there are as many floods as before.
//!
//! How: behind each round, every fixed row is held against the one that is the best of them so far. The
//! last policy, ours, takes part to the end.
//!
//! Limits: who stops is chosen by rounds that are judged as well. If chance stops the best row, which the
//! bound makes rare ([`STRETCH`]), ours is held against the second best and looks better than it is. Those
//! that are left were rather lucky so far: beside them ours looks a little worse.

use std::ops::Range;

use super::best::best;
use super::figures::FIGURES;
use super::orders::orders;
use super::slices::VISITS;
use super::tables::Turns;
use super::{POLICIES, SAME};
use crate::interval::Estimate;
use crate::ratios;
use crate::verdict::Verdict;

/// Rounds behind which a row may stop: the first two of a measure in slices.
const ROUNDS_MIN: usize = 2 * VISITS;

/// How many times as wide as usual the interval is that makes a row stop. The usual one errs once in 40
/// times on this side, but is asked again behind each round, about each row, beside the one that looks
/// best: within a dozen rounds, 30 of 100 equal rows would stop; twice as wide, one of 100 (in the test
/// below). A limit in percent instead would be no bound where values vary by more than that.
const STRETCH: i32 = 2;

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

    /// In which order they take turns in so many visits; `stream`: how many such were before.
    pub fn orders(&self, stream: usize, visits: usize) -> Vec<Vec<usize>> {
        orders(&self.0, stream, visits)
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

/// Whether the best of the fixed rows is clearly better in this figure.
fn is_beaten(row: usize, figure: usize, fixed: &[usize], turns: &Turns) -> bool {
    let needed = FIGURES[figure].1;
    let values = |row: usize| &turns[row][figure][..];
    let Some(place) = best(needed, values(SAME), fixed.iter().map(|row| values(*row))) else {
        return false;
    };
    let together: Vec<f64> = ratios(values(row), values(fixed[place])).collect();
    together.len() >= ROUNDS_MIN
        && Estimate::of_ratios(together)
            .is_some_and(|estimate| needed.level().judge(stretched(estimate)) == Verdict::No)
}

/// With an interval that reaches [`STRETCH`] times as far, as a ratio.
fn stretched(Estimate { middle, interval }: Estimate) -> Estimate {
    let far = |end: f64| middle * (end / middle).powi(STRETCH);
    Estimate { middle, interval: interval.map(|(low, high)| (far(low), far(high))) }
}

#[cfg(test)]
mod tests {
    use ringway_testkit::Rng;

    use super::*;

    #[test]
    fn the_fewer_they_are_the_more_often_each_has_a_slice() {
        let visits = |count: usize| Entrants((0..count).collect()).visits();
        assert_eq!([3, 4, 5, 6, 7, 8].map(visits), [13, 10, 8, 6, 5, 5]);
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

    /// How many fixed rows around these stop within a dozen looks, in so many runs, and how often row 3.
    fn stopped(middles: [f64; POLICIES.len()], runs: usize) -> (usize, usize) {
        let mut random = Rng::new(7);
        let (mut all, mut ahead) = (0, 0);
        for _ in 0..runs {
            let (mut turns, mut entrants) = (Turns::default(), Entrants::all());
            for round in 0..12 * VISITS {
                for (turn, middle) in turns.iter_mut().zip(middles) {
                    let noise = f64::from(random.word()) / f64::from(u16::MAX) - 0.5;
                    turn[2].push(Some(middle * (1.0 + noise / 2.0)));
                }
                if round % VISITS == VISITS - 1 {
                    let stopped = entrants.settle(2..3, &turns);
                    all += stopped.len();
                    ahead += usize::from(stopped.contains(&3));
                }
            }
        }
        (all, ahead)
    }

    #[test]
    fn chance_stops_hardly_anybody_and_differences_stop_most() {
        const RUNS: usize = 60;
        let (all, _) = stopped([1.0; POLICIES.len()], RUNS);
        assert!(all <= RUNS * SAME / 50, "{all} of equals");
        let mut one_is_ahead = [1.0; POLICIES.len()];
        one_is_ahead[3] = 0.8;
        let (all, ahead) = stopped(one_is_ahead, RUNS);
        assert!(all > RUNS * SAME / 2, "{all}");
        assert_eq!(ahead, 0, "the best one");
    }

    #[test]
    fn what_was_not_measured_beats_nobody() {
        let mut entrants = Entrants::all();
        assert!(entrants.settle(0..1, &Turns::default()).is_empty());
    }
}
