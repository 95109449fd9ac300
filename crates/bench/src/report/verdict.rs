//! The verdict of a report on ringway beside others, in one line for each plot: a pure function.
//!
//! How: rows that are called after ringway are compared with the best of the others that have the
//! same words in front of their names (the same length, say); where there is none, with the limit.
//! Of a table with ringway in its columns these are compared in each row.

use super::{Cell, Plot, Table};
use crate::spread::Spread;

const OURS: &str = "ringway";
const LIMIT: &str = "limit";

/// Whether that is what is measured here.
pub fn is_ours(name: &str) -> bool {
    name.contains(OURS)
}

/// One of the lines; `None`: there is nothing to compare with.
pub fn verdict(table: &Table, plot: &Plot) -> Option<String> {
    let compared: Vec<(bool, f64)> = match plot.columns[..] {
        [only] => table.rows.iter().filter_map(|row| of_row(table, row, only)).collect(),
        _ => of_columns(table, plot),
    };
    let with_peers: Vec<f64> = ratios(&compared, plot.unit, false);
    let with_limit: Vec<f64> = ratios(&compared, plot.unit, true);
    if let Some(Spread { median: times, .. }) = Spread::of(with_peers.iter().copied()) {
        let ahead = with_peers.iter().filter(|ratio| **ratio > 1.0).count();
        return Some(format!(
            "ringway is ahead of the best other in {ahead} of {}; median: {times:.2} times as good",
            with_peers.len()
        ));
    }
    let part = Spread::of(with_limit)?.median;
    Some(format!("ringway reaches {part:.2} of the limit (median)"))
}

/// More is better, but of times, memory and the like.
fn is_more_better(unit: &str) -> bool {
    ["/s", "pps", "÷"].iter().any(|part| unit.contains(part))
}

fn ratios(compared: &[(bool, f64)], unit: &str, of_limit: bool) -> Vec<f64> {
    let wanted = compared.iter().filter(|(is_limit, _)| *is_limit == of_limit);
    wanted.map(|(_, ratio)| if is_more_better(unit) { *ratio } else { ratio.recip() }).collect()
}

/// Ringway's number by the best other one; whether that is the limit.
fn of_row(table: &Table, row: &[Cell], column: usize) -> Option<(bool, f64)> {
    let at = row.iter().position(|cell| matches!(cell, Cell::Text(text) if is_ours(text)))?;
    let ours = row[column].spread()?.median;
    let is_like = |other: &&Vec<Cell>| other[..at] == row[..at] && !is_ours(&other[at].show());
    let others = table.rows.iter().filter(is_like);
    let others =
        others.filter_map(|other| Some((other[at].show(), other[column].spread()?.median)));
    best(ours, &others.collect::<Vec<_>>(), &table.columns[column])
}

fn of_columns(table: &Table, plot: &Plot) -> Vec<(bool, f64)> {
    let name = |column: &usize| table.columns[*column].clone();
    let (ours, others): (Vec<usize>, Vec<usize>) =
        plot.columns.iter().partition(|column| is_ours(&name(column)));
    let Some(ours) = ours.first() else { return Vec::new() };
    let of_row = |row: &Vec<Cell>| {
        let others = others.iter().filter_map(|at| Some((name(at), row[*at].spread()?.median)));
        best(row[*ours].spread()?.median, &others.collect::<Vec<_>>(), plot.unit)
    };
    table.rows.iter().filter_map(of_row).collect()
}

fn best(ours: f64, others: &[(String, f64)], unit: &str) -> Option<(bool, f64)> {
    let peers = others.iter().filter(|(name, _)| !name.starts_with(LIMIT)).map(|(_, it)| *it);
    let pick: fn(f64, f64) -> f64 = if is_more_better(unit) { f64::max } else { f64::min };
    let peer = peers.reduce(pick).map(|it| (false, ours / it));
    let limit = || others.iter().map(|(_, it)| *it).reduce(pick).map(|it| (true, ours / it));
    peer.or_else(limit).filter(|(_, ratio)| ratio.is_finite() && *ratio > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(unit: &'static str, rows: &[(&str, &str, f64)]) -> (Table, Plot) {
        let number = |value: f64| Cell::number(Spread::of([value]), 1);
        let row = |(len, name, value): &(&str, &str, f64)| {
            vec![Cell::text(*len), Cell::text(*name), number(*value)]
        };
        let columns = ["bytes", "what", unit].map(String::from).to_vec();
        let rows = rows.iter().map(row).collect();
        (Table { title: "t".into(), columns, rows, plots: vec![] }, Plot { unit, columns: vec![2] })
    }

    #[test]
    fn the_best_other_of_the_same_kind_is_what_counts() {
        let rows = [
            ("64", "limit: x", 9.0),
            ("64", "ringway", 4.0),
            ("64", "a", 2.0),
            ("64", "b", 1.0),
            ("1500", "a", 3.0),
            ("1500", "ringway nat:", 1.5),
        ];
        let said = |unit| {
            let (table, plot) = table(unit, &rows);
            verdict(&table, &plot).expect("one")
        };
        assert_eq!(
            said("Gb/s"),
            "ringway is ahead of the best other in 1 of 2; median: 1.25 times as good"
        );
        // Of nanoseconds less is better: 1 by 4, and 3 by 1.5.
        assert_eq!(
            said("ns"),
            "ringway is ahead of the best other in 1 of 2; median: 1.12 times as good"
        );
    }

    #[test]
    fn without_others_there_is_the_limit_or_nothing() {
        let (table_, plot) = table("Gb/s", &[("64", "limit: x", 8.0), ("64", "ringway", 4.0)]);
        let said = verdict(&table_, &plot).expect("one");
        assert_eq!(said, "ringway reaches 0.50 of the limit (median)");
        let (table, plot) = table("Gb/s", &[("64", "ringway", 4.0)]);
        assert_eq!(verdict(&table, &plot), None);
    }
}
