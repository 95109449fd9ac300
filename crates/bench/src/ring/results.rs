//! From single measurements to tables: medians, spreads, and ratios pair by pair.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;

use super::load::AtLoad;
use super::run::{Direction, Row, Throughput, Who};
use super::{Options, ROWS, Task, What, format_name, testpmd};
use crate::machine::Machine;
use crate::report::{Cell, Group, Plot, Report, Table, add_once};
use crate::{Spread, ratios};

const METHOD: [&str; 12] = [
    "A row names driver × device. Two processors, one for each side, both polling; nobody is kicked \
     or called.",
    "The limit is a plain ring between the same two processors: one copy in, one copy out, no \
     descriptors, no header, the lines that will be written fetched ahead.",
    "Packets that are on their way leave the writer's cache for one that both share if there are enough of \
     them, and then both are faster. So the limit is tried with as many as the queues have entries, with \
     512 KiB and with 4 MiB, before each of its rows; it takes the fastest.",
    "Both sides of a row have queues of as many entries as the table says. Without --queue-size these are 1,024 for \
     packets of 1,024 bytes and more whose memory then is 4 MiB at most (packets sent by the guest; buffers of 4 KiB to it), \
     as with the limit, and else 256.",
    "ringway's driver receives packets in buffers of 4,096 bytes, and what does not fit one of these in buffers \
     whose length it chooses itself (`adaptive`, of 8 KiB for each entry); DPDK's in its own, which are shorter.",
    "ringway's sender copies each packet from memory of its own, its receiver copies each packet \
     into memory of its own. DPDK's programs (testpmd txonly and rxonly) write 42 bytes of a packet \
     that they send, and leave what they receive where it is.",
    "In place, ringway's driver does the work of DPDK's, so that this row and DPDK × DPDK differ in \
     the driver only: the packets that it sends lie in the guest's memory, and 42 bytes of each are \
     written (all of those up to 128 bytes); of what it receives it reads the header, and leaves the \
     rest where it is.",
    "CPU ns per packet: how long rounds that moved packets took, by the packets. Of ringway's sides the \
     mean without the slowest of a hundred rounds; of testpmd the mean, which as a sender also counts rounds that find no room.",
    "Round trips: one side sends at half the rate at which packets go there and back at most, the \
     other one sends each packet back at once; the time counts from when a packet was due. How many go \
     at most is measured again afterwards: if the load was more than 0.75 of that, or less than 0.95 of it was \
     achieved, all of it is repeated, twice at most.",
    "Rows are measured one right after the other, and all of it again for each repeat. Numbers are \
     medians (lowest–highest). Ratios are taken between neighbours in time, then their median: the \
     limit is measured anew right before and right after each row, for a quarter of the time or 0.1 s.",
    "Packets are without the virtio header; Gb/s counts their bytes.",
    "DPDK runs with --no-huge: ordinary pages, as ringway's memory here.",
];

/// All measurements of one run.
#[derive(Debug)]
pub(super) struct Results {
    machine: Machine,
    date: String,
    throughput: Vec<(Task, usize, Throughput)>,
    round_trips: Vec<(Task, usize, RoundTrips)>,
    left_out: Vec<String>,
    commands: Vec<String>,
}

#[derive(Debug, Clone, Copy)]
struct RoundTrips {
    per_second: f64,
    /// Share of them that came back in time.
    achieved: f64,
    /// 50 %, 99 % and 99.9 % are not above this, in µs.
    percentiles: [f64; 3],
}

impl Results {
    pub fn new(machine: Machine, date: String) -> Self {
        let (throughput, round_trips) = (Vec::new(), Vec::new());
        let (left_out, commands) = (Vec::new(), Vec::new());
        Self { machine, date, throughput, round_trips, left_out, commands }
    }

    /// Notes what is missing, once.
    pub fn leave_out(&mut self, what: &str) {
        add_once(&mut self.left_out, what);
    }

    pub fn add_throughput(&mut self, task: Task, repeat: usize, found: Throughput) {
        for command in &found.commands {
            // The socket's directory is another one each time.
            let command = command.split_whitespace().map(without_directory);
            let command = command.collect::<Vec<_>>().join(" ");
            add_once(&mut self.commands, &command);
        }
        let versions = &mut self.machine.versions;
        if let Some(version) = &found.version
            && !versions.iter().any(|(name, _)| name == "DPDK")
        {
            versions.push(("DPDK".to_string(), version.clone()));
        }
        self.throughput.push((task, repeat, found));
    }

    pub fn add_round_trips(&mut self, task: Task, repeat: usize, found: &AtLoad<Histogram<u64>>) {
        let percentiles = [50.0, 99.0, 99.9].map(|percentile| {
            // Times are below ten seconds: far below 2^53 ns.
            #[allow(clippy::cast_precision_loss)]
            let ns = found.times.value_at_percentile(percentile) as f64;
            ns / 1000.0
        });
        let round_trips = RoundTrips {
            per_second: found.load,
            achieved: found.achieved / found.load,
            percentiles,
        };
        self.round_trips.push((task, repeat, round_trips));
    }

    pub fn report(mut self, options: &Options) -> Report {
        if options.packet_lens.iter().any(|&len| len > testpmd::PACKET_LEN_MAX) {
            let len = testpmd::PACKET_LEN_MAX;
            self.leave_out(&format!("DPDK above {len} bytes: testpmd gives lengths in 16 bits"));
        }
        if options.latency {
            self.leave_out("round trips of DPDK × DPDK: testpmd does not take times");
        }
        let mut tables = Vec::new();
        let mut plots = Vec::new();
        for &format in &options.formats {
            for direction in [Direction::GuestToHost, Direction::HostToGuest] {
                let title = format!("{}, {} ring", direction.name(), format_name(format));
                let what = What::Throughput(direction);
                let in_this = |task: &Task| task.what == what && task.format == format;
                let queue_size = |packet_len| options.queue_size_for(what, packet_len);
                tables.push(self.throughput_table(&title, options, in_this, queue_size));
                plots.push(self.plot(&title, options, in_this));
            }
            if options.latency {
                tables.push(self.round_trip_table(options, format));
            }
        }
        let seconds = options.duration.as_secs_f64();
        let mut method =
            vec![format!("{} repeats of {seconds} s for each number.", options.repeats)];
        method.extend(METHOD.iter().map(|line| (*line).to_string()));
        method.push(self.limit_depths(options));
        Report {
            title: "ringway bench ring".to_string(),
            date: self.date,
            command: options.command.clone(),
            machine: self.machine,
            method,
            left_out: self.left_out,
            commands: self.commands,
            tables,
            plots,
        }
    }

    /// What was fastest for the limit, and how often.
    fn limit_depths(&self, options: &Options) -> String {
        let of_len = |&packet_len: &usize| {
            let mut times = BTreeMap::new();
            for (task, _, found) in &self.throughput {
                if let Some(depth) = found.limit_depth.filter(|_| task.packet_len == packet_len) {
                    *times.entry(depth).or_insert(0) += 1;
                }
            }
            let times = times.iter().map(|(depth, times)| format!("{depth} ({times} ×)"));
            format!("{packet_len} bytes: {}", times.collect::<Vec<_>>().join(", "))
        };
        let all = options.packet_lens.iter().map(of_len).collect::<Vec<_>>().join("; ");
        format!("Packets on their way at most where the limit was fastest: {all}.")
    }

    fn throughput_table(
        &self,
        title: &str,
        options: &Options,
        in_this: impl Fn(&Task) -> bool,
        queue_size: impl Fn(usize) -> u16,
    ) -> Table {
        let mut rows = Vec::new();
        for &packet_len in &options.packet_lens {
            let found = |row: Row| self.by_repeat(row, packet_len, options, &in_this);
            let dpdk = found(Row::Pair { driver: Who::Dpdk, device: Who::Dpdk });
            for row in ROWS {
                let measured = found(row);
                if measured.iter().any(Option::is_some) {
                    let queue_size = queue_size(packet_len);
                    rows.push(throughput_row(row, packet_len, queue_size, &measured, &dpdk));
                }
            }
        }
        let columns = [
            "bytes",
            "driver × device",
            "entries",
            "Mpps",
            "Gb/s",
            "CPU ns/packet, driver",
            "CPU ns/packet, device",
            "× DPDK × DPDK",
            "× limit",
        ];
        let columns = columns.map(str::to_string).to_vec();
        Table { title: title.to_string(), columns, rows }
    }

    /// One place for each repeat.
    fn by_repeat(
        &self,
        row: Row,
        packet_len: usize,
        options: &Options,
        in_this: impl Fn(&Task) -> bool,
    ) -> Vec<Option<&Throughput>> {
        let mut places = vec![None; options.repeats];
        for (task, repeat, found) in &self.throughput {
            if task.row == row && task.packet_len == packet_len && in_this(task) {
                places[*repeat] = Some(found);
            }
        }
        places
    }

    fn plot(&self, title: &str, options: &Options, in_this: impl Fn(&Task) -> bool) -> Plot {
        let group = |&packet_len: &usize| {
            let gigabits = |row: Row| {
                let measured = self.by_repeat(row, packet_len, options, &in_this);
                let measured = measured.into_iter().flatten();
                Spread::of(measured.map(|found| gigabits(found.packets_per_second, packet_len)))
            };
            Group { name: format!("{packet_len} bytes"), values: ROWS.map(gigabits).to_vec() }
        };
        Plot {
            title: title.to_string(),
            unit: "Gb/s".to_string(),
            series: ROWS.map(|row| row.name().to_string()).to_vec(),
            groups: options.packet_lens.iter().map(group).collect(),
        }
    }

    fn round_trip_table(&self, options: &Options, format: ringway_virtq::Format) -> Table {
        let mut rows = Vec::new();
        for &packet_len in &options.packet_lens {
            for row in ROWS {
                let is_it = |task: &Task| {
                    task.row == row && task.packet_len == packet_len && task.format == format
                };
                let found: Vec<RoundTrips> = self
                    .round_trips
                    .iter()
                    .filter(|(task, ..)| is_it(task))
                    .map(|(.., found)| *found)
                    .collect();
                if found.is_empty() {
                    continue;
                }
                let queue_size = options.queue_size_for(What::RoundTrips, packet_len);
                let column = |value: fn(&RoundTrips) -> f64, digits| {
                    Cell::number(Spread::of(found.iter().map(value)), digits)
                };
                rows.push(vec![
                    Cell::text(packet_len.to_string()),
                    Cell::text(row.name()),
                    Cell::text(queue_size.to_string()),
                    column(|found| found.per_second / 1e6, 3),
                    column(|found| found.achieved, 2),
                    column(|found| found.percentiles[0], 1),
                    column(|found| found.percentiles[1], 1),
                    column(|found| found.percentiles[2], 1),
                ]);
            }
        }
        let columns = [
            "bytes",
            "driver × device",
            "entries",
            "load, Mpps",
            "achieved, × load",
            "p50, µs",
            "p99, µs",
            "p99.9, µs",
        ];
        let title = format!("There and back at half load, {} ring", format_name(format));
        Table { title, columns: columns.map(str::to_string).to_vec(), rows }
    }
}

fn throughput_row(
    row: Row,
    packet_len: usize,
    queue_size: u16,
    measured: &[Option<&Throughput>],
    dpdk: &[Option<&Throughput>],
) -> Vec<Cell> {
    let column = |value: &dyn Fn(&Throughput) -> Option<f64>, digits| {
        let values = measured.iter().flatten().filter_map(|found| value(found));
        Cell::number(Spread::of(values), digits)
    };
    let rates = |of: &[Option<&Throughput>]| -> Vec<Option<f64>> {
        of.iter().map(|found| found.map(|found| found.packets_per_second)).collect()
    };
    let ratio = |by: &[Option<f64>]| Cell::number(Spread::of(ratios(&rates(measured), by)), 2);
    let limits: Vec<Option<f64>> =
        measured.iter().map(|found| found.and_then(|found| found.limit)).collect();
    let gigabits = |found: &Throughput| Some(gigabits(found.packets_per_second, packet_len));
    vec![
        Cell::text(packet_len.to_string()),
        Cell::text(row.name()),
        entries(row, queue_size),
        column(&|found| Some(found.packets_per_second / 1e6), 3),
        column(&gigabits, 2),
        column(&|found| found.cost_ns[0], 1),
        column(&|found| found.cost_ns[1], 1),
        ratio(&rates(dpdk)),
        ratio(&limits),
    ]
}

/// Of each queue. The limit's own are another number in each repeat: see [`Results::limit_depths`].
fn entries(row: Row, queue_size: u16) -> Cell {
    match row {
        Row::Limit => Cell::Missing,
        Row::Pair { .. } => Cell::text(queue_size.to_string()),
    }
}

fn gigabits(packets_per_second: f64, packet_len: usize) -> f64 {
    let len = f64::from(u32::try_from(packet_len).unwrap_or(u32::MAX));
    packets_per_second * len * 8.0 / 1e9
}

/// `…path=/tmp/x/s,…` without the directory.
fn without_directory(word: &str) -> String {
    for key in ["path=", "iface="] {
        if let Some((before, rest)) = word.split_once(key) {
            let (path, after) = rest.split_once(',').unwrap_or((rest, ""));
            let name = path.rsplit('/').next().unwrap_or(path);
            return format!("{before}{key}{name},{after}");
        }
    }
    word.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_virtq::Format;
    use std::time::Duration;

    fn throughput(rate: f64) -> Throughput {
        Throughput { packets_per_second: rate, ..Throughput::default() }
    }

    #[test]
    fn ratios_are_those_of_neighbours_in_time() {
        let mut results = Results::new(Machine::look(), String::new());
        let what = What::Throughput(Direction::GuestToHost);
        let task = |row| Task { what, row, format: Format::Split, packet_len: 64 };
        // The machine was twice as fast the second time.
        for (repeat, speed) in [(0, 1.0), (1, 2.0)] {
            let limit = Throughput { limit_depth: Some(256), ..throughput(8e6 * speed) };
            results.add_throughput(task(ROWS[0]), repeat, limit);
            // Another look at the limit, right beside the row.
            let found = Throughput { limit: Some(9e6 * speed), ..throughput(6e6 * speed) };
            results.add_throughput(task(ROWS[1]), repeat, found);
        }
        let options = Options {
            duration: Duration::from_secs(1),
            repeats: 2,
            packet_lens: vec![64],
            formats: vec![Format::Split],
            queue_size: None,
            latency: false,
            command: String::new(),
        };
        let report = results.report(&options);
        assert!(report.method.iter().any(|line| line.ends_with("64 bytes: 256 (2 ×).")));
        let row = &report.tables[0].rows[1];
        assert_eq!(row[1].show(), "ringway × ringway");
        assert_eq!(row[2].show(), "256");
        assert_eq!(row[3].show(), "9.000 (6.000–12.000)");
        assert_eq!(row[7].show(), "–");
        assert_eq!(row[8].show(), "0.67");
        assert_eq!(report.plots[0].groups[0].values.len(), ROWS.len());
    }

    #[test]
    fn commands_are_the_same_every_time() {
        let word = "net_vhost0,iface=/tmp/ringway-bench1/s,queues=1";
        assert_eq!(without_directory(word), "net_vhost0,iface=s,queues=1");
        assert_eq!(without_directory("--txpkts=64"), "--txpkts=64");
    }
}
