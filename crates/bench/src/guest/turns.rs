//! Rows that are compared are booted first, and take turns; the figures of each turn go into two
//! tables.

use super::pairing::GuestOptions;
use crate::progress::Progress;
use crate::report::{Column, Grid, Report};

/// The figures of one turn, in the order of the columns of both tables.
#[derive(Debug, Clone)]
pub(super) struct Figures {
    pub rates: Vec<Option<f64>>,
    pub costs: Vec<Option<f64>>,
    failures: Vec<String>,
}

impl Figures {
    pub fn nothing(rates: &[Column], costs: &[Column]) -> Self {
        let [rates, costs] = [rates, costs].map(|columns| vec![None; columns.len()]);
        Self { rates, costs, failures: Vec::new() }
    }

    pub fn note<T>(&mut self, what: &str, result: anyhow::Result<T>) -> Option<T> {
        result.map_err(|why| self.failures.push(format!("{what}: {why:#}"))).ok()
    }
}

/// Running guests, and what carries their traffic.
pub(super) trait Compared {
    fn commands(&self) -> Vec<String>;

    fn take(&mut self, options: &GuestOptions) -> Figures;
}

pub(super) struct Turns<'a> {
    pub name: &'a str,
    pub options: &'a GuestOptions,
    pub report: &'a mut Report,
    pub progress: &'a mut Progress,
}

impl Turns<'_> {
    pub fn leave_out(&mut self, row: &str, why: &str) {
        let why = format!("{}, {row}: {why}", self.name);
        self.progress.note(&why);
        self.report.leave_out(&why);
    }

    /// Boots all of these, each behind the name of its row; but what cannot be started.
    pub fn boot<P, C: Compared>(
        &mut self,
        all: impl IntoIterator<Item = (&'static str, P)>,
        boot: impl Fn(P) -> anyhow::Result<C>,
    ) -> Vec<(&'static str, C)> {
        let mut booted = Vec::new();
        for (row, plan) in all {
            self.progress.note(&format!("booting: {}, {row}", self.name));
            match boot(plan) {
                Ok(rig) => {
                    rig.commands().iter().for_each(|command| self.report.add_command(command));
                    booted.push((row, rig));
                }
                Err(why) => self.leave_out(row, &format!("{why:#}")),
            }
        }
        booted
    }

    /// Every rig once in each round. The first one is the first row of the tables, but not always
    /// measured first.
    pub fn take<C: Compared>(
        &mut self,
        rigs: &mut [(&'static str, C)],
        [rates, costs]: [&mut Grid; 2],
    ) {
        let count = rigs.len();
        for round in 0..self.options.amount.repeats {
            for at in 0..count {
                let (row, rig) = &mut rigs[(at + round) % count];
                self.progress.step(&format!("{}, {row}", self.name));
                let figures = rig.take(self.options);
                figures.failures.iter().for_each(|why| self.leave_out(row, why));
                rates.add(&[(*row).into()], round, &figures.rates);
                costs.add(&[(*row).into()], round, &figures.costs);
            }
        }
    }

    /// Measures all, and makes the tables: rates, those of the first row by the others in these
    /// columns, and costs.
    pub fn compare<C: Compared>(
        &mut self,
        mut rigs: Vec<(&'static str, C)>,
        [mut rates, mut costs]: [Grid; 2],
        ratios: &[usize],
    ) {
        self.take(&mut rigs, [&mut rates, &mut costs]);
        self.report.tables.extend([rates.table(), rates.ratios_of_first(ratios), costs.table()]);
    }
}
