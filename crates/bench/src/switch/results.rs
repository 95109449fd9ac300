//! One table: a row for each packet length, ring format and number of ports.

use super::guests::{Plan, QUEUE_SIZE};
use super::{Found, PACKET_LENS, Row, TURNS, Way, format_name};
use crate::machine::Machine;
use crate::report::{Cell, Group, Plot, Report, Table};
use crate::{Options, Spread};

const HEAD: [&str; 3] = ["bytes", "ring", "daemon"];

/// Columns: name, value, digits.
type Column = (&'static str, fn(usize, &Found) -> f64, usize);

const COLUMNS: [Column; 6] = [
    ("worker, ns/packet", |_, found| found.packet_ns, 1),
    ("Mpps of one worker", |_, found| 1e3 / found.packet_ns, 3),
    ("Gb/s of one worker", |len, found| bits(len) / found.packet_ns, 2),
    ("one copy, ns", |_, found| found.copy_ns, 1),
    ("copy ÷ worker", |_, found| found.copy_ns / found.packet_ns, 2),
    ("system calls per 1,000 packets", |_, found| found.system_calls * 1e3, 1),
];

#[derive(Debug)]
pub(super) struct Results {
    machine: Machine,
    date: String,
    found: Vec<(Row, Found)>,
}

impl Results {
    pub fn new(machine: Machine, date: String) -> Self {
        Self { machine, date, found: Vec::new() }
    }

    pub fn add(&mut self, row: Row, found: Found) {
        self.found.push((row, found));
    }

    pub fn report(self, options: &Options, rows: &[Row]) -> Report {
        let columns = HEAD.into_iter().chain(COLUMNS.iter().map(|(name, ..)| *name));
        let table = Table {
            title: "From guest to guest".into(),
            columns: columns.map(str::to_string).collect(),
            rows: rows.iter().map(|&row| self.cells(row)).collect(),
        };
        let group = |&row: &Row| Group {
            name: row.name(),
            values: vec![self.spread(row, |_, found| found.copy_ns / found.packet_ns)],
        };
        let plot = Plot {
            title: "How much of a worker's time one copy would take".into(),
            unit: "copy ÷ worker".into(),
            series: vec!["from guest to guest".into()],
            groups: rows.iter().map(group).collect(),
        };
        Report {
            title: "ringway bench switch".into(),
            date: self.date,
            command: options.command.clone(),
            machine: self.machine,
            method: method(options),
            left_out: vec![],
            commands: vec![],
            tables: vec![table],
            plots: vec![plot],
        }
    }

    fn cells(&self, row: Row) -> Vec<Cell> {
        let Row { way, format, packet_len } = row;
        let head = [&packet_len.to_string(), format_name(format), way.name()].map(Cell::text);
        let numbers = COLUMNS
            .iter()
            .map(|(_, value, digits)| Cell::number(self.spread(row, *value), *digits));
        head.into_iter().chain(numbers).collect()
    }

    fn spread(&self, row: Row, value: fn(usize, &Found) -> f64) -> Option<Spread> {
        let found = self.found.iter().filter(|(of, _)| *of == row);
        Spread::of(found.map(|(_, found)| value(row.packet_len, found)))
    }
}

/// A packet is far shorter than 2^53 bytes.
#[allow(clippy::cast_precision_loss)]
fn bits(len: usize) -> f64 {
    8.0 * len as f64
}

fn method(options: &Options) -> Vec<String> {
    let (seconds, repeats) = (options.duration.as_secs_f64(), options.repeats);
    let bursts = PACKET_LENS.map(|len| Plan::of(len).burst.to_string()).join(", ");
    let lens = PACKET_LENS.map(|len| len.to_string()).join(", ");
    let [cable, switch, one] = [Way::Cable, Way::Switch, Way::OneProcessor].map(Way::name);
    vec![
        format!(
            "Rounds: {repeats}; in each, every row once, {seconds} s of packets and as long of \
             copies, in {TURNS} turns. Shown: median (lowest–highest)."
        ),
        format!(
            "A daemon with one worker on a processor of its own; two guests in user space on \
             another one, with queues of {QUEUE_SIZE} entries. One sends {bursts} packets of \
             {lens} bytes at once; when the other has received all of them, the next ones follow."
        ),
        "The worker's time is all processor time of the daemon: looking at rings, the copy, \
         notifications, system calls, and a wake-up for each burst. The guests' time does not \
         count. It never polls (`--poll never`): one that does is always busy."
            .into(),
        "Mpps and Gb/s are what one worker's whole processor would move at that cost; with guests \
         that take turns with it, fewer packets are moved."
            .into(),
        "The guests write and read packets only as far as a driver must: long ones lie in shared \
         memory already, and stay where they are received: in buffers of 4,096 bytes, and what does not \
         fit one of these in buffers whose length the driver chooses."
            .into(),
        "One copy is of as many bytes, between places as far apart and over as much memory as \
         the guests' buffers have, on the worker's processor while the worker sleeps."
            .into(),
        format!(
            "{cable}: all packets go to the other one; {switch}: the third one is idle, and the \
             way of each packet is looked up; {one}: the guests are on the worker's, too, so that \
             packets and rings are in its caches: what the worker does, without the way between \
             two processors."
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_virtq::Format;
    use std::time::Duration;

    #[test]
    fn numbers_follow_from_the_cost_of_a_packet() {
        let row = Row { way: Way::Cable, format: Format::Split, packet_len: 64 };
        let mut results = Results::new(Machine::look(), String::new());
        for packet_ns in [40.0, 20.0, 30.0] {
            results.add(row, Found { packet_ns, copy_ns: 3.0, system_calls: 0.004 });
        }
        let options = Options { duration: Duration::ZERO, repeats: 3, command: String::new() };
        let other = Row { packet_len: 1518, ..row };
        let report = results.report(&options, &[row, other]);
        let rows = &report.tables[0].rows;
        assert_eq!(rows[0][3].show(), "30.0 (20.0–40.0)");
        assert_eq!(rows[0][4].show(), "33.333 (25.000–50.000)");
        assert_eq!(rows[0][7].show(), "0.10 (0.07–0.15)");
        assert_eq!(rows[0][8].show(), "4.0");
        assert_eq!(rows[1][3], Cell::Missing);
        assert!(rows.iter().all(|row| row.len() == report.tables[0].columns.len()));
    }
}
