//! Rigs that are compared take turns; the figures of each turn go into two tables.

use super::pairing::Options;
use crate::progress::Progress;
use crate::report::Report;
use crate::report::grid::Grid;

/// What one turn found, in the order of the columns of both tables.
#[derive(Debug, Clone)]
pub(super) struct Found<const RATES: usize, const COSTS: usize> {
    pub rates: [Option<f64>; RATES],
    pub costs: [Option<f64>; COSTS],
    pub failures: Vec<String>,
}

impl<const RATES: usize, const COSTS: usize> Default for Found<RATES, COSTS> {
    fn default() -> Self {
        Self { rates: [None; RATES], costs: [None; COSTS], failures: Vec::new() }
    }
}

impl<const RATES: usize, const COSTS: usize> Found<RATES, COSTS> {
    pub fn note<T>(&mut self, what: &str, result: anyhow::Result<T>) -> Option<T> {
        result.map_err(|why| self.failures.push(format!("{what}: {why:#}"))).ok()
    }
}

/// What runs, told and measured.
pub(super) struct Turns<'a> {
    pub name: &'a str,
    pub options: &'a Options,
    pub report: &'a mut Report,
    pub progress: &'a mut Progress,
}

impl Turns<'_> {
    /// A rig that could not be started is left out, and named.
    pub fn leave_out(&mut self, row: &str, why: &anyhow::Error) {
        let why = format!("{}, {row}: {why:#}", self.name);
        self.progress.note(&why);
        self.report.leave_out(&why);
    }

    /// Every rig once in each round. The first one is the first row of the tables, but not always
    /// measured first.
    pub fn take<R, const RATES: usize, const COSTS: usize>(
        &mut self,
        rigs: &mut [R],
        row: impl Fn(&R) -> &'static str,
        measure: impl Fn(&mut R, &Options) -> Found<RATES, COSTS>,
        (rates, costs): (&mut Grid, &mut Grid),
    ) {
        let count = rigs.len();
        for round in 0..self.options.amount.repeats {
            for at in 0..count {
                let rig = &mut rigs[(at + round) % count];
                let row = row(rig);
                self.progress.step(&format!("{}, {row}", self.name));
                let found = measure(rig, self.options);
                for why in &found.failures {
                    self.progress.note(&format!("{row}: {why}"));
                    self.report.leave_out(&format!("{}, {row}: {why}", self.name));
                }
                rates.add(&[row.into()], round, &found.rates);
                costs.add(&[row.into()], round, &found.costs);
            }
        }
    }
}
