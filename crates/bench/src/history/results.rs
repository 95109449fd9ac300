//! All rows as two tables, as in 2008: throughput, and round trips; each beside the row before it.

use super::run::Found;
use super::technique::ROWS;
use super::{WHATS, What};
use crate::machine::Machine;
use crate::report::{Cell, Group, Plot, Report, Table};
use crate::{Options, Spread, ratios};

/// By row, kind and repeat.
#[derive(Debug)]
pub(super) struct Results {
    machine: Machine,
    date: String,
    found: Vec<[Vec<Option<Found>>; WHATS.len()]>,
    left_out: Vec<String>,
}

impl Results {
    pub fn new(machine: Machine, date: String, repeats: usize) -> Self {
        let found = ROWS.iter().map(|_| std::array::from_fn(|_| vec![None; repeats])).collect();
        Self { machine, date, found, left_out: Vec::new() }
    }

    pub fn leave_out(&mut self, what: &str) {
        self.left_out.push(what.to_string());
    }

    pub fn add(&mut self, row: usize, what: What, repeat: usize, found: Found) {
        self.found[row][what as usize][repeat] = Some(found);
    }

    pub fn report(self, options: &Options) -> Report {
        let seconds = options.duration.as_secs_f64();
        let mut method = vec![
            format!(
                "Rounds: {}; in each, every row once, {seconds} s for each number. Shown: median \
                 (lowest–highest).",
                options.repeats
            ),
            "Each row keeps what the rows above it have switched on, except that timers and ring \
             sizes replace each other. A driver and a device on two processors, which sleep and \
             wake each other through eventfds; the tap is private memory of the host's."
                .into(),
            "After bars are ratios to the row before, round by round.".into(),
        ];
        let abouts = ROWS.iter().map(|row| format!("{}: {}.", row.name, row.about));
        method.extend(abouts);
        let streams = [What::Out, What::Back, What::BackShort];
        let pings = [What::PingOut, What::PingBack];
        let throughput = Table {
            title: "Streams".into(),
            columns: [
                "switched on",
                "guest → host, Gb/s",
                "× before",
                "host → guest, Gb/s",
                "× before",
                "host → guest, 1514 bytes, Gb/s",
                "× before",
            ]
            .map(String::from)
            .to_vec(),
            rows: self.rows(|results, row| {
                let cells = streams.iter().flat_map(|&what| results.stream_cells(row, what));
                cells.collect()
            }),
        };
        let ping_columns = pings.iter().flat_map(|what| {
            let from = if *what == What::PingOut { "from the guest" } else { "from the host" };
            ["min", "mean", "max", "deviation"].map(|name| format!("{from}: {name}, ms"))
        });
        let round_trips = Table {
            title: "Round trips, one packet of 98 bytes at a time".into(),
            columns: std::iter::once("switched on".to_string()).chain(ping_columns).collect(),
            rows: self.rows(|results, row| {
                let cells = pings.iter().flat_map(|&what| {
                    (0..4).map(move |at| Cell::number(results.spread(row, what, at), 3))
                });
                cells.collect()
            }),
        };
        let plots = vec![
            self.plot("Streams", "Gb/s", [What::Out, What::Back], 0),
            self.plot("Mean round trip", "ms", pings, 1),
        ];
        Report {
            title: "ringway bench history".into(),
            date: self.date,
            command: options.command.clone(),
            machine: self.machine,
            method,
            left_out: self.left_out,
            commands: vec![],
            tables: vec![throughput, round_trips],
            plots,
        }
    }

    fn rows(&self, cells: impl Fn(&Self, usize) -> Vec<Cell>) -> Vec<Vec<Cell>> {
        let row = |at: usize| [vec![Cell::text(ROWS[at].name)], cells(self, at)].concat();
        (0..ROWS.len()).map(row).collect()
    }

    /// One value of each repeat.
    fn values(&self, row: usize, what: What, at: usize) -> Vec<Option<f64>> {
        let found = self.found[row][what as usize].iter();
        found.map(|found| found.and_then(|found| found.values().nth(at))).collect()
    }

    fn spread(&self, row: usize, what: What, at: usize) -> Option<Spread> {
        Spread::of(self.values(row, what, at).into_iter().flatten())
    }

    /// The rate, and its ratio to the row before.
    fn stream_cells(&self, row: usize, what: What) -> [Cell; 2] {
        let before = row.checked_sub(1).map(|before| self.values(before, what, 0));
        let ratio =
            before.and_then(|before| Spread::of(ratios(&self.values(row, what, 0), &before)));
        [Cell::number(self.spread(row, what, 0), 2), Cell::number(ratio, 2)]
    }

    fn plot(&self, title: &str, unit: &str, whats: [What; 2], at: usize) -> Plot {
        let group = |row: usize| Group {
            name: (row + 1).to_string(),
            values: whats.map(|what| self.spread(row, what, at)).to_vec(),
        };
        Plot {
            title: format!("{title}, by row of the table"),
            unit: unit.into(),
            series: vec!["from the guest".into(), "from the host".into()],
            groups: (0..ROWS.len()).map(group).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn rows_stand_beside_the_ones_before() {
        let mut results = Results::new(Machine::look(), String::new(), 2);
        for (row, repeat, rate) in [(0, 0, 1.0), (0, 1, 2.0), (1, 0, 3.0), (1, 1, 8.0)] {
            results.add(row, What::Out, repeat, Found::Rate(rate));
        }
        results.add(0, What::PingBack, 0, Found::Times([0.1, 0.2, 0.3, 0.4]));
        let options = Options { duration: Duration::ZERO, repeats: 2, command: String::new() };
        let report = results.report(&options);
        let [streams, pings] = &report.tables[..] else { panic!("two tables") };
        assert_eq!(streams.rows.len(), ROWS.len());
        assert!(streams.rows.iter().all(|row| row.len() == streams.columns.len()));
        assert_eq!(streams.rows[1][1].show(), "5.50 (3.00–8.00)");
        assert_eq!(streams.rows[1][2].show(), "3.50 (3.00–4.00)");
        assert!(pings.rows.iter().all(|row| row.len() == pings.columns.len()));
        assert_eq!(pings.rows[0][8].show(), "0.400");
    }
}
