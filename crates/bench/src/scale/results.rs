//! One table: a row for each size.

use super::{Found, Size};
use crate::machine::Machine;
use crate::report::{Cell, Group, Plot, Report, Table};
use crate::{Options, Spread};

/// Columns: name, value, digits.
type Column = (&'static str, fn(&Found) -> f64, usize);

const COLUMNS: [Column; 6] = [
    ("daemon, ns/packet", |found| found.packet_ns, 0),
    ("Mpps, all together", |found| found.packets_per_second / 1e6, 3),
    ("memory per port, KiB", |found| found.port_kib, 0),
    ("attach, ms", |found| found.attach_ms, 2),
    ("idle, % of a processor", |found| found.idle_percent, 3),
    ("idle, wake-ups/s", |found| found.idle_wakeups, 1),
];

#[derive(Debug)]
pub(super) struct Results {
    machine: Machine,
    date: String,
    found: Vec<(Size, Found)>,
}

impl Results {
    pub fn new(machine: Machine, date: String) -> Self {
        Self { machine, date, found: Vec::new() }
    }

    pub fn add(&mut self, size: Size, found: Found) {
        self.found.push((size, found));
    }

    pub fn report(self, options: &Options, sizes: &[Size]) -> Report {
        let head = ["ports", "queue pairs each"].into_iter();
        let columns = head.chain(COLUMNS.iter().map(|(name, ..)| *name));
        let cells = |size: &Size| {
            let head = [size.ports, size.queue_pairs].map(|count| Cell::text(count.to_string()));
            let numbers = COLUMNS
                .iter()
                .map(|(_, value, digits)| Cell::number(self.spread(*size, *value), *digits));
            head.into_iter().chain(numbers).collect()
        };
        let table = Table {
            title: "Ports and queue pairs".into(),
            columns: columns.map(str::to_string).collect(),
            rows: sizes.iter().map(cells).collect(),
        };
        let group = |size: &Size| Group {
            name: format!("{} × {}", size.ports, size.queue_pairs),
            values: vec![self.spread(*size, |found| found.packet_ns)],
        };
        let plot = Plot {
            title: "Cost of a packet, by ports × queue pairs".into(),
            unit: "ns of the daemon".into(),
            series: vec!["64 bytes, guest to guest".into()],
            groups: sizes.iter().map(group).collect(),
        };
        Report {
            title: "ringway bench scale".into(),
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

    fn spread(&self, size: Size, value: fn(&Found) -> f64) -> Option<Spread> {
        let found = self.found.iter().filter(|(of, _)| *of == size);
        Spread::of(found.map(|(_, found)| value(found)))
    }
}

fn method(options: &Options) -> Vec<String> {
    let (seconds, repeats) = (options.duration.as_secs_f64(), options.repeats);
    vec![
        format!(
            "Rounds: {repeats}; in each, every row once, {seconds} s for each number. Shown: median \
             (lowest–highest)."
        ),
        "A daemon with one worker; guests in user space, two and two of which send packets of 64 bytes to \
         each other, on all of their queue pairs in turn. The daemon's processor time counts whole: \
         system calls and wake-ups, too."
            .into(),
        "Memory is private memory of the daemon after all have attached beyond that before; a \
         guest's own memory is shared and does not count."
            .into(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn every_size_has_a_row() {
        let size = Size { ports: 2, queue_pairs: 1 };
        let found = |packet_ns| Found {
            packet_ns,
            packets_per_second: 2e6,
            port_kib: 30.0,
            attach_ms: 1.0,
            idle_percent: 0.0,
            idle_wakeups: 0.0,
        };
        let mut results = Results::new(Machine::look(), String::new());
        results.add(size, found(100.0));
        results.add(size, found(300.0));
        let options = Options { duration: Duration::ZERO, repeats: 2, command: String::new() };
        let other = Size { ports: 4, ..size };
        let report = results.report(&options, &[size, other]);
        let rows = &report.tables[0].rows;
        assert_eq!(rows[0][2].show(), "200 (100–300)");
        assert_eq!(rows[0][3].show(), "2.000");
        assert_eq!(rows[1][2], Cell::Missing);
        assert!(rows.iter().all(|row| row.len() == report.tables[0].columns.len()));
    }
}
