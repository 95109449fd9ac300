//! The results of a measurement, as plain values; [`text`] and [`html`] show them.
//!
//! How: a report has tables; a table knows the units of its columns, and which of them are drawn as
//! bars, too. Every number keeps its spread. JSON is the report itself.

mod grid;
pub mod html;
mod plot;
pub mod text;
pub(crate) mod verdict;

use serde::Serialize;

use crate::machine::{Machine, date, processors};
use crate::options::typed;
use crate::spread::Spread;

pub(crate) use grid::{Column, Grid};

#[derive(Debug, Clone, Serialize)]
pub struct Report {
    pub title: String,
    pub date: String,
    /// The command that leads to such a report.
    pub command: String,
    pub machine: Machine,
    /// How it was measured, one sentence each.
    pub method: Vec<String>,
    /// Measurements that failed and why, one sentence each.
    pub left_out: Vec<String>,
    /// The commands that were run for it, each once.
    pub commands: Vec<String>,
    pub tables: Vec<Table>,
}

impl Report {
    pub(crate) fn begin(kind: &str, method: &[String]) -> anyhow::Result<Self> {
        Ok(Self {
            title: format!("ringway bench {kind}"),
            date: date()?,
            command: typed(),
            machine: Machine::look(),
            method: method.to_vec(),
            left_out: Vec::new(),
            commands: Vec::new(),
            tables: Vec::new(),
        })
    }

    /// A processor for each of two sides.
    pub(crate) fn two_processors(&mut self) -> [usize; 2] {
        match processors()[..] {
            [one, other, ..] => [one, other],
            ref few => {
                self.leave_out("two processors: there is one, so both sides take turns on it");
                [few.first().copied().unwrap_or(0); 2]
            }
        }
    }

    /// Says, once, what was not measured. Of a console's end the first line says what happened.
    pub(crate) fn leave_out(&mut self, what: &str) {
        add_once(&mut self.left_out, what.lines().next().unwrap_or_default());
    }

    pub(crate) fn add_command(&mut self, command: &str) {
        add_once(&mut self.commands, command);
    }
}

fn add_once(lines: &mut Vec<String>, line: &str) {
    if !lines.iter().any(|known| known == line) {
        lines.push(line.to_string());
    }
}

#[derive(Debug, Clone, Serialize)]
pub struct Table {
    pub title: String,
    /// The head of each column, with its unit.
    pub columns: Vec<String>,
    /// As many cells each as there are columns.
    pub rows: Vec<Vec<Cell>>,
    pub plots: Vec<Plot>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Cell {
    /// The subject of the row.
    Text(String),
    Number {
        #[serde(flatten)]
        spread: Spread,
        /// Digits behind the point when shown.
        #[serde(skip)]
        digits: usize,
        /// Shown as min/avg/max/sd.
        #[serde(skip)]
        is_whole: bool,
    },
    Missing,
}

impl Cell {
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    pub fn number(spread: Option<Spread>, digits: usize) -> Self {
        spread.map_or(Self::Missing, |spread| Self::Number { spread, digits, is_whole: false })
    }

    pub fn spread(&self) -> Option<Spread> {
        if let Self::Number { spread, .. } = self { Some(*spread) } else { None }
    }

    pub fn whole(self) -> Self {
        match self {
            Self::Number { spread, digits, .. } => Self::Number { spread, digits, is_whole: true },
            other => other,
        }
    }

    /// As shown: the median, and the spread if there is one.
    pub fn show(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Number { spread, digits, is_whole } => show(spread, *digits, *is_whole),
            Self::Missing => "–".to_string(),
        }
    }
}

fn show(spread: &Spread, digits: usize, is_whole: bool) -> String {
    let Spread { median, low, high, mean, deviation } = spread;
    if is_whole {
        format!("{low:.digits$}/{mean:.digits$}/{high:.digits$}/{deviation:.digits$}")
    } else if low == high {
        format!("{median:.digits$}")
    } else {
        format!("{median:.digits$} ({low:.digits$}–{high:.digits$})")
    }
}

/// Bars of these columns of a table, which have the same unit: a group for each row.
#[derive(Debug, Clone, Serialize)]
pub struct Plot {
    pub unit: &'static str,
    pub columns: Vec<usize>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_show_their_spread_if_there_is_one() {
        let number = |values: &[f64]| Cell::number(Spread::of(values.iter().copied()), 1);
        assert_eq!(number(&[2.25]).show(), "2.2");
        assert_eq!(number(&[1.0, 2.25, 3.0]).show(), "2.2 (1.0–3.0)");
        assert_eq!(number(&[1.0, 2.0, 6.0]).whole().show(), "1.0/3.0/6.0/2.2");
        assert_eq!(Cell::number(None, 1).show(), "–");
    }

    #[test]
    fn a_number_is_a_number_in_json() {
        let cell = Cell::number(Spread::of([1.0, 3.0]), 1);
        let json = serde_json::to_value(cell).expect("JSON");
        let [median, low, high, mean, deviation] = [2.0, 1.0, 3.0, 2.0, 1.0];
        let expected = serde_json::json!({
            "median": median, "low": low, "high": high, "mean": mean, "deviation": deviation,
        });
        assert_eq!(json, expected);
    }
}
