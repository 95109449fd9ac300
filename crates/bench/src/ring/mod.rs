//! `ringway bench ring`: drivers and devices, ringway's and DPDK's, in all four pairs, beside the
//! plainest ring that there can be. ringway's driver is measured twice on DPDK's device: once with
//! copies, once at the work that DPDK's driver does.
//!
//! How: everything that shares a ring format, a direction and a packet length is measured one right
//! after the other, then the next length; then all of it again. The limit is measured again right
//! before and right after each row, because a machine that is shared can be twice as fast a few
//! seconds later; how deep its ring is, is tried before its own row ([`depth`]), and then stays so for the
//! rows that are compared with it. A ratio is taken between two neighbours in time, and only then the median of the
//! ratios.
//!
//! Limits: one queue pair, two cores, both sides polling; one packet length at a time.

mod depth;
mod device;
pub(crate) mod driver;
pub(crate) mod end;
mod limit;
mod load;
mod results;
mod run;
mod testpmd;

use std::time::Duration;

use anyhow::{Context, bail};
use ringway_driver::rx_buffer::PAGE_LEN;
use ringway_virtq::Format;

use crate::machine::{Machine, date, processors};
use crate::progress::Progress;
use crate::report::Report;
use results::Results;
use run::{Direction, Row, Setup, Who};

/// Packet lengths in bytes, if nothing else is asked for.
pub const PACKET_LENS: [usize; 5] = [64, 256, 1518, 9000, 65_536];

/// Shortest and longest packet in bytes.
const PACKET_LEN_RANGE: std::ops::RangeInclusive<usize> = 64..=65_536;

/// Entries of each queue, if nothing else is asked for: as many as drivers have by default.
const QUEUE_SIZE: u16 = 256;

/// The same for long packets, as long as they lie in at most [`QUEUE_BYTES`]. Of fewer of these most would stay in the
/// cache of the core that writes them, from which the other core gets them slowly.
const LONG_QUEUE_SIZE: u16 = 1024;

/// From how many bytes on a packet is long.
const LONG_MIN: usize = 1024;

/// Bytes that took part where long packets were fastest here, at most; 64 MiB are three times slower.
const QUEUE_BYTES: usize = 4 * 1024 * 1024;

/// Bytes of a buffer into which the device writes; for what does not fit one the driver chooses the length.
const RECEIVE_BUFFER: usize = PAGE_LEN as usize;

/// Shortest look at the limit beside a row, unless the row itself is shorter: some turns of whoever
/// else wants the processors.
const LIMIT_BESIDE_MIN: Duration = Duration::from_millis(100);

/// How much is measured.
#[derive(Debug, Clone)]
pub struct Options {
    /// How long each number is measured.
    pub duration: Duration,
    /// How often everything is measured.
    pub repeats: usize,
    /// Packet lengths in bytes: 64 to 65536.
    pub packet_lens: Vec<usize>,
    /// Ring formats.
    pub formats: Vec<Format>,
    /// Entries of each queue, a power of two from 8 to 1024; without, as many as suit the packet's length.
    pub queue_size: Option<u16>,
    /// Whether round trips are measured too.
    pub latency: bool,
    /// The command line, for the report.
    pub command: String,
}

impl Options {
    /// Entries of each queue for packets of that many bytes, whoever its driver and its device are.
    fn queue_size_for(&self, what: What, packet_len: usize) -> u16 {
        let buffer_len = match what {
            What::Throughput(Direction::HostToGuest) => packet_len.min(RECEIVE_BUFFER),
            What::Throughput(Direction::GuestToHost) | What::RoundTrips => packet_len,
        };
        let all = usize::from(LONG_QUEUE_SIZE) * buffer_len;
        let suits_long = packet_len >= LONG_MIN && all <= QUEUE_BYTES;
        self.queue_size.unwrap_or(if suits_long { LONG_QUEUE_SIZE } else { QUEUE_SIZE })
    }
}

/// One number that is to be measured, again and again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Task {
    what: What,
    row: Row,
    format: Format,
    packet_len: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Throughput(Direction),
    RoundTrips,
}

/// In the order in which they are shown.
const ROWS: [Row; 6] = [
    Row::Limit,
    Row::Pair { driver: Who::Ringway, device: Who::Ringway },
    Row::Pair { driver: Who::Dpdk, device: Who::Ringway },
    Row::Pair { driver: Who::Ringway, device: Who::Dpdk },
    Row::Pair { driver: Who::InPlace, device: Who::Dpdk },
    Row::Pair { driver: Who::Dpdk, device: Who::Dpdk },
];

/// In the order in which they are measured: what is compared with DPDK × DPDK is near it, and what
/// does the same work is beside it.
const TURNS: [Row; 6] = [ROWS[0], ROWS[1], ROWS[2], ROWS[5], ROWS[4], ROWS[3]];

impl Row {
    fn name(self) -> &'static str {
        match self {
            Self::Limit => "limit: plain ring",
            Self::Pair { driver, device: Who::Dpdk } => match driver {
                Who::Ringway => "ringway × DPDK",
                Who::InPlace => "ringway in place × DPDK",
                Who::Dpdk => "DPDK × DPDK",
            },
            Self::Pair { driver, device: _ } => match driver {
                Who::Ringway => "ringway × ringway",
                Who::InPlace => "ringway in place × ringway",
                Who::Dpdk => "DPDK × ringway",
            },
        }
    }

    fn has_dpdk(self) -> bool {
        matches!(self, Self::Pair { driver: Who::Dpdk, .. } | Self::Pair { device: Who::Dpdk, .. })
    }

    /// Whether somebody on it can write the time into a packet, and read it there.
    fn has_clock(self) -> bool {
        !matches!(self, Self::Pair { driver: Who::Dpdk | Who::InPlace, device: Who::Dpdk })
    }
}

/// Measures.
///
/// # Errors
/// The options make no sense, or ringway itself fails; a peer that is missing is left out instead.
pub fn measure(options: &Options) -> anyhow::Result<Report> {
    check(options)?;
    let mut results = Results::new(Machine::look(), date()?);
    let processors = two_processors(&mut results);
    let dpdk = match crate::programs::dpdk() {
        Ok(dpdk) => Some(dpdk),
        Err(why) => {
            results.leave_out(&format!("all pairs with DPDK: {why:#}"));
            None
        }
    };
    let tasks = plan(options, dpdk.is_some());
    let mut progress = Progress::start(tasks.len() * options.repeats);
    let mut limit_depth = u64::from(QUEUE_SIZE);
    for repeat in 0..options.repeats {
        for task in &tasks {
            progress.step(&task.name());
            let mut setup = Setup {
                limit_depth,
                row: task.row,
                format: task.format,
                packet_len: task.packet_len,
                queue_size: options.queue_size_for(task.what, task.packet_len),
                processors,
                duration: options.duration,
                dpdk: dpdk.as_ref(),
            };
            if let (Row::Limit, What::Throughput(direction)) = (task.row, task.what) {
                limit_depth = depth::fastest(&beside(&setup), direction)?;
                setup.limit_depth = limit_depth;
            }
            if let Err(why) = measure_one(*task, &setup, repeat, &mut results) {
                // What the peer cannot do is no reason to stop; what we cannot do is.
                if !task.row.has_dpdk() {
                    return Err(why.context(task.name()));
                }
                progress.note(&format!("{}: {why:#}", task.name()));
                results.leave_out(&format!("{}: {why:#}", task.name()));
            }
        }
    }
    progress.end();
    Ok(results.report(options))
}

fn measure_one(
    task: Task,
    setup: &Setup<'_>,
    repeat: usize,
    results: &mut Results,
) -> anyhow::Result<()> {
    match task.what {
        What::Throughput(direction) => {
            let before = limit_beside(setup, direction)?;
            let mut found = setup.throughput(direction)?;
            let after = limit_beside(setup, direction)?;
            found.limit = before.zip(after).map(|(before, after)| f64::midpoint(before, after));
            found.limit_depth = (setup.row == Row::Limit).then_some(setup.limit_depth);
            results.add_throughput(task, repeat, found);
        }
        What::RoundTrips => {
            let setup = Setup { limit_depth: setup.queue_size.into(), ..*setup };
            let found = load::at_half_load(
                || Ok(setup.round_trips(None)?.0),
                |load| {
                    let (achieved, times) = setup.round_trips(Some(load))?;
                    Ok((achieved, times.context("nobody took times")?))
                },
            )?;
            match found {
                Some(found) => results.add_round_trips(task, repeat, &found),
                None => results.leave_out(&format!(
                    "{}, some repeats: what was half the load at first was too much soon after",
                    task.name()
                )),
            }
        }
    }
    Ok(())
}

/// The limit beside a row that is not the limit itself, in packets per second.
fn limit_beside(setup: &Setup<'_>, direction: Direction) -> anyhow::Result<Option<f64>> {
    if setup.row == Row::Limit {
        return Ok(None);
    }
    Ok(Some(beside(setup).throughput(direction)?.packets_per_second))
}

/// A shorter look at the limit under the same conditions.
fn beside<'a>(setup: &Setup<'a>) -> Setup<'a> {
    let duration = (setup.duration / 4).max(setup.duration.min(LIMIT_BESIDE_MIN));
    Setup { row: Row::Limit, duration, ..*setup }
}

fn check(options: &Options) -> anyhow::Result<()> {
    if let Some(len) = options.packet_lens.iter().find(|len| !PACKET_LEN_RANGE.contains(*len)) {
        bail!("{len}: a packet has 64 to 65536 bytes");
    }
    if let Some(size) = options.queue_size
        && !(size.is_power_of_two() && (8..=1024).contains(&size))
    {
        bail!("{size}: a queue has 8, 16, 32, … 1024 entries");
    }
    if options.repeats == 0 || options.packet_lens.is_empty() || options.formats.is_empty() {
        bail!("nothing to measure");
    }
    if options.duration < Duration::from_millis(10) {
        bail!("{:?}: at least 10 ms for each number", options.duration);
    }
    Ok(())
}

fn two_processors(results: &mut Results) -> [usize; 2] {
    match processors()[..] {
        [one, other, ..] => [one, other],
        [one] => {
            results.leave_out("two processors: there is one, so both sides take turns on it");
            [one, one]
        }
        [] => [0, 0],
    }
}

/// Everything once, in the order in which it is measured. Rows change fastest.
fn plan(options: &Options, has_dpdk: bool) -> Vec<Task> {
    let mut whats =
        vec![What::Throughput(Direction::GuestToHost), What::Throughput(Direction::HostToGuest)];
    if options.latency {
        whats.push(What::RoundTrips);
    }
    let mut tasks = Vec::new();
    for &format in &options.formats {
        for &what in &whats {
            for &packet_len in &options.packet_lens {
                let dpdk = has_dpdk && packet_len <= testpmd::PACKET_LEN_MAX;
                let rows = TURNS.into_iter().filter(|row| dpdk || !row.has_dpdk());
                let rows = rows.filter(|row| what != What::RoundTrips || row.has_clock());
                tasks.extend(rows.map(|row| Task { what, row, format, packet_len }));
            }
        }
    }
    tasks
}

impl Task {
    fn name(self) -> String {
        let what = match self.what {
            What::Throughput(direction) => direction.name(),
            What::RoundTrips => "there and back",
        };
        let format = format_name(self.format);
        format!("{}, {what}, {format}, {} bytes", self.row.name(), self.packet_len)
    }
}

impl Direction {
    fn name(self) -> &'static str {
        match self {
            Self::GuestToHost => "guest → host",
            Self::HostToGuest => "host → guest",
        }
    }
}

fn format_name(format: Format) -> &'static str {
    match format {
        Format::Split => "split",
        Format::Packed => "packed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> Options {
        Options {
            duration: Duration::from_millis(20),
            repeats: 2,
            packet_lens: vec![64, 65_536],
            formats: vec![Format::Split, Format::Packed],
            queue_size: None,
            latency: true,
            command: "ringway bench ring".into(),
        }
    }

    #[test]
    fn neighbours_in_time_differ_in_the_row_only() {
        let tasks = plan(&options(), true);
        for (pair, other) in tasks.iter().zip(tasks.iter().skip(1)) {
            let same_rest = pair.what == other.what
                && pair.format == other.format
                && pair.packet_len == other.packet_len;
            assert!(same_rest || other.row == Row::Limit, "{pair:?} {other:?}");
        }
        assert_eq!(tasks.len(), 2 * ((2 * (6 + 2)) + (4 + 2)));
    }

    #[test]
    fn who_does_the_same_work_as_dpdk_is_measured_beside_it() {
        let beside = TURNS.windows(2).any(|pair| {
            pair.iter().map(|row| row.name()).eq(["DPDK × DPDK", "ringway in place × DPDK"])
        });
        assert!(beside);
    }

    #[test]
    fn without_dpdk_its_rows_are_not_planned() {
        assert!(plan(&options(), false).iter().all(|task| !task.row.has_dpdk()));
    }

    #[test]
    fn queues_are_long_for_long_packets_that_fit_the_shared_cache() {
        let sizes = |options: &Options, direction| {
            let what = What::Throughput(direction);
            PACKET_LENS.map(|len| options.queue_size_for(what, len))
        };
        let usual = options();
        assert_eq!(sizes(&usual, Direction::GuestToHost), [256, 256, 1024, 256, 256]);
        assert_eq!(sizes(&usual, Direction::HostToGuest), [256, 256, 1024, 1024, 1024]);
        let asked = Options { queue_size: Some(512), ..usual };
        assert_eq!(sizes(&asked, Direction::GuestToHost), [512; 5]);
    }

    #[test]
    fn options_that_make_no_sense_are_refused() {
        assert!(check(&options()).is_ok());
        let wrong = |change: fn(&mut Options)| {
            let mut options = options();
            change(&mut options);
            check(&options).is_err()
        };
        assert!(wrong(|options| options.packet_lens.push(63)));
        assert!(wrong(|options| options.queue_size = Some(100)));
        assert!(wrong(|options| options.repeats = 0));
        assert!(wrong(|options| options.duration = Duration::ZERO));
    }
}
