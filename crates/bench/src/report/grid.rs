//! A grid of values that are measured in turns, and the table that it makes.
//!
//! How: every row is measured once in each round. A ratio of two rows is taken within a round,
//! between neighbours in time; only then the median of the ratios is shown.

use super::{Cell, Plot, Table};
use crate::spread::{Spread, ratios};

/// A column: its head, with the unit, and the digits behind the point.
pub(crate) type Column = (&'static str, usize);

#[derive(Debug)]
pub(crate) struct Grid {
    title: String,
    heads: Vec<&'static str>,
    columns: Vec<Column>,
    rows: Vec<Row>,
    plots: Vec<Plot>,
}

#[derive(Debug)]
struct Row {
    name: Vec<String>,
    /// By column, then by round.
    values: Vec<Vec<Option<f64>>>,
}

impl Grid {
    /// Nothing yet; `heads` stand above what names a row.
    pub fn new(title: impl Into<String>, heads: &[&'static str], columns: &[Column]) -> Self {
        let (heads, columns) = (heads.to_vec(), columns.to_vec());
        Self { title: title.into(), heads, columns, rows: Vec::new(), plots: Vec::new() }
    }

    /// Its table has bars of these columns, too.
    pub fn plotted(mut self, unit: &'static str, columns: &[usize]) -> Self {
        let columns = columns.iter().map(|column| self.heads.len() + column).collect();
        self.plots.push(Plot { unit, columns });
        self
    }

    /// The values that a round has found for a row: one for each column.
    pub fn add(&mut self, name: &[String], round: usize, values: &[Option<f64>]) {
        assert_eq!(values.len(), self.columns.len(), "{name:?}");
        let at = self.rows.iter().position(|row| row.name == name).unwrap_or_else(|| {
            let values = vec![Vec::new(); self.columns.len()];
            self.rows.push(Row { name: name.to_vec(), values });
            self.rows.len() - 1
        });
        for (all, value) in self.rows[at].values.iter_mut().zip(values) {
            all.resize(round, None);
            all.push(*value);
        }
    }

    pub fn table(&self) -> Table {
        self.table_with(&[], |_| None)
    }

    /// The table with each number as min/avg/max/sd of all rounds.
    pub fn table_of_runs(&self) -> Table {
        let mut table = self.table();
        for row in &mut table.rows {
            *row = std::mem::take(row).into_iter().map(Cell::whole).collect();
        }
        table
    }

    /// The table with a ratio behind it for each of `ratios`, a head and a column: of a row by the
    /// row that `base` names for it.
    pub fn table_with(
        &self,
        ratios: &[(&'static str, usize)],
        base: impl Fn(&[String]) -> Option<Vec<String>>,
    ) -> Table {
        let heads = self.heads.iter().chain(self.columns.iter().map(|(name, _)| name));
        let heads = heads.chain(ratios.iter().map(|(name, _)| name));
        let cells = |row: &Row| {
            let name = row.name.iter().map(Cell::text);
            let numbers = row.values.iter().zip(&self.columns);
            let numbers = numbers.map(|(all, (_, digits))| Cell::number(spread(all), *digits));
            let base = base(&row.name);
            let base = self.rows.iter().find(|other| Some(&other.name) == base.as_ref());
            let ratio = |column| base.and_then(|base| ratio(row, base, column));
            let ratios = ratios.iter().map(|&(_, column)| Cell::number(ratio(column), 2));
            name.chain(numbers).chain(ratios).collect()
        };
        let columns = heads.map(ToString::to_string).collect();
        let (title, plots) = (self.title.clone(), self.plots.clone());
        Table { title, columns, rows: self.rows.iter().map(cells).collect(), plots }
    }

    /// The first of the rows divided by each other one, in these columns.
    pub fn ratios_of_first(&self, columns: &[usize]) -> Table {
        let heads = columns.iter().map(|&column| self.columns[column].0);
        let rows = self.rows.split_first().map_or(vec![], |(first, others)| {
            let cells = |other: &Row| {
                let ratio = |&column: &usize| Cell::number(ratio(first, other, column), 2);
                let name = format!("{} ÷ {}", first.name.join(", "), other.name.join(", "));
                std::iter::once(Cell::text(name)).chain(columns.iter().map(ratio)).collect()
            };
            others.iter().map(cells).collect()
        });
        let columns = std::iter::once("ratio").chain(heads).map(str::to_string).collect();
        Table { title: format!("{}: ratios", self.title), columns, rows, plots: Vec::new() }
    }
}

fn ratio(of: &Row, by: &Row, column: usize) -> Option<Spread> {
    Spread::of(ratios(&of.values[column], &by.values[column]))
}

fn spread(values: &[Option<f64>]) -> Option<Spread> {
    Spread::of(values.iter().copied().flatten())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_those_of_neighbours_in_time() {
        let grid = Grid::new("t", &["bytes", "what"], &[("Mpps", 1), ("ns", 0)]);
        let mut grid = grid.plotted("Mpps", &[0]);
        let name = |what: &str| vec!["64".to_string(), what.to_string()];
        // The machine was twice as fast the second time, and in the third round one row failed.
        for (round, speed) in [(0, 1.0), (1, 2.0)] {
            grid.add(&name("limit"), round, &[Some(8.0 * speed), None]);
            grid.add(&name("ours"), round, &[Some(6.0 * speed), Some(1.0)]);
        }
        grid.add(&name("limit"), 2, &[Some(1.0), None]);
        let base = |row: &[String]| (row[1] != "limit").then(|| name("limit"));
        let table = grid.table_with(&[("× limit", 0)], base);
        assert_eq!(table.columns, ["bytes", "what", "Mpps", "ns", "× limit"]);
        let shown = |row: usize| table.rows[row].iter().map(Cell::show).collect::<Vec<_>>();
        assert_eq!(shown(0), ["64", "limit", "8.0 (1.0–16.0)", "–", "–"]);
        assert_eq!(shown(1), ["64", "ours", "9.0 (6.0–12.0)", "1", "0.75"]);
        assert_eq!((table.plots[0].unit, &table.plots[0].columns[..]), ("Mpps", &[2][..]));
    }

    #[test]
    fn a_round_that_was_missed_leaves_a_gap() {
        let mut grid = Grid::new("t", &["what"], &[("x", 0)]);
        let [one, other] = ["one", "other"].map(|name| vec![name.to_string()]);
        grid.add(&one, 0, &[Some(1.0)]);
        for round in 0..2 {
            grid.add(&other, round, &[Some(4.0 / (round as f64 + 1.0))]);
        }
        grid.add(&one, 1, &[Some(8.0)]);
        let table = grid.table_with(&[("÷ other", 0)], |_| Some(other.clone()));
        assert_eq!(table.rows[0][2].show(), "2.12 (0.25–4.00)");
        let ratios = grid.ratios_of_first(&[0]);
        assert_eq!(ratios.columns, ["ratio", "x"]);
        assert_eq!(ratios.rows[0][0].show(), "one ÷ other");
        assert_eq!(ratios.rows[0][1], table.rows[0][2]);
    }
}
