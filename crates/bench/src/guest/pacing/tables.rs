//! What the turns say: each figure's spread for each policy, and the last policy against the others
//! and against itself.

use super::super::Pairing;
use super::best::{AgainstBest, Rounds, against_best, without_stopped};
use super::figures::{FIGURES, mean};
use super::{POLICIES, SAME, policy_name};
use crate::interval::Estimate;
use crate::report::{Cell, Table};
use crate::verdict::Needed;
use crate::{Spread, ratios};

/// What was found under one policy: for each figure one value per round.
pub(super) type Turn = [Vec<Option<f64>>; FIGURES.len()];

/// The same of all policies, by number.
pub(super) type Turns = [Turn; POLICIES.len()];

/// One policy.
#[derive(Debug, Clone, Copy)]
struct Row<'a> {
    policy: usize,
    turn: &'a Turn,
}

/// Of a sample, with one value less in the divisor; 0 for one value.
#[allow(clippy::cast_precision_loss, reason = "a few")]
fn deviation(values: &[f64]) -> Option<f64> {
    let mean = mean(values)?;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    Some((squares / (values.len() - 1).max(1) as f64).sqrt())
}

impl Row<'_> {
    fn by_round(&self, figure: usize) -> &[Option<f64>] {
        &self.turn[figure]
    }

    fn all(&self, figure: usize) -> Vec<f64> {
        self.turn[figure].iter().copied().flatten().collect()
    }
}

pub(super) fn tables(pairing: Pairing, turns: &Turns) -> Vec<Table> {
    let rows: Vec<Row<'_>> =
        turns.iter().enumerate().map(|(policy, turn)| Row { policy, turn }).collect();
    let rows = &rows[..];
    let mut tables =
        vec![verdicts(pairing, rows), against_each(pairing, rows), against_itself(pairing, rows)];
    for (figure, (name, _)) in FIGURES.iter().enumerate() {
        let cells = |row: &Row<'_>| {
            let all = row.all(figure);
            let low = all.iter().copied().reduce(f64::min);
            let high = all.iter().copied().reduce(f64::max);
            let numbers = [low, mean(&all), high, deviation(&all)].map(number);
            let count = Cell::text(all.len().to_string());
            let name = std::iter::once(Cell::text(policy_name(row.policy)));
            name.chain(numbers).chain([count]).collect()
        };
        tables.push(Table {
            title: format!("{}: {name}", pairing.name()),
            columns: ["policy", "min", "average", "max", "deviation", "rounds"]
                .map(String::from)
                .to_vec(),
            rows: rows.iter().map(cells).collect(),
        });
    }
    tables
}

fn number(value: Option<f64>) -> Cell {
    Cell::number(value.map(|value| Spread { median: value, low: value, high: value }), 3)
}

/// What both turns of the last policy say together, round by round: their geometric mean, or the one there is.
/// Ratios are compared by their logarithms, and the arithmetic mean of two is beyond what either is typically:
/// of 99th percentiles by a twentieth.
fn both(rows: &[Row<'_>], figure: usize) -> Vec<Option<f64>> {
    let turns =
        rows.iter().filter(|row| row.policy >= SAME).map(|row| row.by_round(figure).to_vec());
    let together = |one: Vec<Option<f64>>, other: Vec<Option<f64>>| {
        let pairs = one.into_iter().zip(other);
        pairs
            .map(|(one, other)| one.zip(other).map(|(a, b)| (a * b).sqrt()).or(one).or(other))
            .collect()
    };
    turns.reduce(together).unwrap_or_default()
}

/// All but the last policy and the same once more.
fn others<'a>(rows: &'a [Row<'a>]) -> Vec<&'a Row<'a>> {
    rows.iter().filter(|other| other.policy < SAME).collect()
}

fn by_round<'a>(rows: &[&'a Row<'a>], figure: usize) -> Vec<&'a Rounds> {
    rows.iter().map(|row| row.by_round(figure)).collect()
}

/// The last policy, in both of its turns, against the best other one that did not stop.
fn verdicts(pairing: Pairing, rows: &[Row<'_>]) -> Table {
    let others = others(rows);
    let cells = |(figure, (name, needed)): (usize, &(&str, Needed))| {
        let ours = both(rows, figure);
        let AgainstBest { chosen, estimate } =
            against_best(*needed, &ours, &by_round(&others, figure))?;
        let chosen = chosen.iter().map(|&place| policy_name(others[place].policy));
        let chosen = chosen.collect::<Vec<_>>().join(", ");
        let texts = [needed.show(), needed.judge(estimate).name().to_string()].map(Cell::text);
        let head = [name.to_string(), chosen].map(Cell::text);
        Some(head.into_iter().chain(shown(estimate)).chain(texts).collect())
    };
    let columns = ["figure", "best row", "ratio", "95 % from", "to", "needed", "enough"];
    Table {
        title: format!("{}: {} against the best row", pairing.name(), last_name(rows)),
        columns: columns.map(String::from).to_vec(),
        rows: FIGURES.iter().enumerate().filter_map(cells).collect(),
    }
}

/// The last policy, in both of its turns, against each other one that did not stop. Whether another has the best
/// of two figures is seen here.
fn against_each(pairing: Pairing, rows: &[Row<'_>]) -> Table {
    let others = others(rows);
    let cells = |(figure, (name, _)): (usize, &(&str, Needed))| {
        let ours = both(rows, figure);
        let theirs = by_round(&others, figure);
        let middle = |other: &Rounds| Some(Estimate::of_ratios(ratios(&ours, other))?.middle);
        let middles: Vec<_> = without_stopped(&ours, &theirs).into_iter().map(middle).collect();
        middles.iter().any(Option::is_some).then(|| {
            std::iter::once(Cell::text(*name)).chain(middles.into_iter().map(number)).collect()
        })
    };
    let columns = others.iter().map(|other| policy_name(other.policy));
    Table {
        title: format!("{}: {} against each row", pairing.name(), last_name(rows)),
        columns: std::iter::once("figure").chain(columns).map(String::from).collect(),
        rows: FIGURES.iter().enumerate().filter_map(cells).collect(),
    }
}

/// The last policy against the same once more: what is left is chance.
fn against_itself(pairing: Pairing, rows: &[Row<'_>]) -> Table {
    let cells = |(figure, (name, _)): (usize, &(&str, Needed))| {
        let (ours, others) = rows.split_last()?;
        let same = others.iter().find(|other| other.policy == SAME)?;
        let estimate = Estimate::of_ratios(ratios(ours.by_round(figure), same.by_round(figure)))?;
        Some(std::iter::once(Cell::text(*name)).chain(shown(estimate)).collect())
    };
    Table {
        title: format!("{}: {} against itself", pairing.name(), last_name(rows)),
        columns: ["figure", "ratio", "95 % from", "to"].map(String::from).to_vec(),
        rows: FIGURES.iter().enumerate().filter_map(cells).collect(),
    }
}

fn last_name(rows: &[Row<'_>]) -> &'static str {
    rows.last().map_or("ours", |row| policy_name(row.policy))
}

/// A ratio and its interval.
fn shown(Estimate { middle, interval }: Estimate) -> [Cell; 3] {
    [Some(middle), interval.map(|(low, _)| low), interval.map(|(_, high)| high)].map(number)
}

#[cfg(test)]
mod tests {
    use ringway_testkit::Rng;

    use super::*;

    fn turns(rows: &[(usize, &[f64])]) -> Turns {
        let mut turns = Turns::default();
        for &(policy, values) in rows {
            turns[policy] = std::array::from_fn(|_| values.iter().copied().map(Some).collect());
        }
        turns
    }

    fn shown(table: &Table, at: usize) -> Vec<String> {
        table.rows[at].iter().map(Cell::show).collect()
    }

    #[test]
    fn deviations() {
        assert_eq!(deviation(&[1.0, 3.0]), Some(std::f64::consts::SQRT_2));
        assert_eq!(deviation(&[5.0]), Some(0.0));
    }

    #[test]
    fn the_best_row_is_shown_with_its_interval() {
        let slow = [1.0, 2.0, 3.0, 1.0, 2.0, 3.0];
        let turns = turns(&[
            (0, &slow),
            (3, &slow.map(|value| 2.0 * value)),
            (SAME, &[1.1, 2.0, 3.0, 1.0, 2.0, 3.0]),
            (SAME + 1, &[0.9, 2.0, 3.0, 1.0, 2.0, 3.3]),
        ]);
        let tables = tables(Pairing::UmlHost, &turns);
        let verdicts = &tables[0];
        assert_eq!(shown(verdicts, 0)[1..], ["every", "0.500", "0.497", "0.524", "≥ 0.98", "no"]);
        assert_eq!(
            shown(verdicts, 2)[1..],
            ["timer:50us", "1.000", "0.995", "1.049", "≤ 1.1", "yes"]
        );
        let each = shown(&tables[1], 0);
        assert_eq!(each, ["TCP out, Gb/s", "1.000", "–", "–", "0.500", "–", "–"]);
        assert_eq!(shown(&tables[2], 0), ["TCP out, Gb/s", "1.000", "0.818", "1.100"]);
        assert_eq!(shown(&tables[3], 3), ["every", "2.000", "4.000", "6.000", "1.789", "6"]);
    }

    #[test]
    fn equals_that_vary_much_are_equal() {
        let mut random = Rng::new(7);
        let mut turns = Turns::default();
        for values in turns.iter_mut().flatten() {
            // The highest of them are fifty times the lowest.
            let value = || (4.0 * f64::from(random.word()) / f64::from(u16::MAX)).exp();
            values.extend(std::iter::repeat_with(value).map(Some).take(400));
        }
        let ours: Vec<Row<'_>> =
            turns.iter().enumerate().map(|(policy, turn)| Row { policy, turn }).collect();
        for figure in 0..FIGURES.len() {
            let every = ours[3].by_round(figure);
            let estimate = Estimate::of_ratios(ratios(&both(&ours, figure), every)).unwrap();
            assert!((0.8..1.25).contains(&estimate.middle), "{estimate:?}");
        }
    }

    #[test]
    fn rounds_that_one_of_two_missed_are_left_out_and_few_decide_nothing() {
        let mut turns = turns(&[(0, &[1.0; 6]), (SAME, &[1.0; 6]), (SAME + 1, &[1.0; 6])]);
        turns[0].iter_mut().for_each(|rounds| rounds[2] = None);
        // One of the two that are the same is enough.
        turns[SAME].iter_mut().for_each(|rounds| rounds[3] = None);
        let table = &tables(Pairing::UmlHost, &turns)[0];
        assert_eq!(shown(table, 0)[1..], ["timer:50us", "1.000", "–", "–", "≥ 0.98", "undecided"]);
        assert!(tables(Pairing::UmlHost, &Turns::default())[0].rows.is_empty());
    }
}
