//! `ringway bench switch`: what a packet from guest to guest costs one worker, beside one copy.
//!
//! How: a real daemon with one worker on a processor of its own, and two guests in user space on
//! another one, driven by one thread: the first sends a burst, the second receives all of it, and
//! so on. What it costs that packets travel between the processors shows beside the same with
//! guests on the worker's own processor. In between, on the worker's processor, memory is copied that
//! is as large and as far apart as the guests' buffers.
//!
//! Limits: two processors; the daemon never polls, for the processor time of one that does says
//! nothing about packets. So a wake-up and its system calls are in the time of each burst.

mod copying;
mod guests;
mod results;

use std::time::Duration;

use anyhow::{Context, bail, ensure};
use ringway_testkit::{BINARY_VARIABLE, RingwayProcess};
use ringway_virtq::Format;

use crate::Options;
use crate::daemon::Usage;
use crate::machine::{Machine, date, keeping_to, processors};
use crate::progress::Progress;
use crate::report::Report;
use copying::Copying;
use guests::{AnyPair, Plan};
use results::Results;

/// Bytes of a packet.
const PACKET_LENS: [usize; 3] = [64, 1518, 65_536];

/// Guests and copies take turns so often within one number.
const TURNS: u32 = 4;

/// How the two guests' ports are connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// They are the daemon's only ports: there is nothing to look up.
    Cable,
    /// There is a third port, so that each packet's way is looked up.
    Switch,
    /// The same, and the guests are on the worker's processor: packets are in its caches.
    OneProcessor,
}

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Row {
    way: Way,
    format: Format,
    packet_len: usize,
}

/// What it costs.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Found {
    /// Processor time of the daemon for each packet, in ns.
    packet_ns: f64,
    /// Of one copy of as many bytes.
    copy_ns: f64,
    /// Of the worker, for each packet.
    system_calls: f64,
}

/// Measures.
///
/// # Errors
/// The options make no sense, the daemon does not come up, or packets do not arrive.
pub fn measure(options: &Options) -> anyhow::Result<Report> {
    options.ensure_measurable()?;
    let [of_guests, of_worker, ..] = processors()[..] else {
        bail!("two processors are needed: one for the worker, one for the guests");
    };
    let mut results = Results::new(Machine::look(), date()?);
    let rows = rows();
    let mut progress = Progress::start(rows.len() * options.repeats);
    for _ in 0..options.repeats {
        for &row in &rows {
            progress.step(&row.name());
            let of_guests = if row.way == Way::OneProcessor { of_worker } else { of_guests };
            let measured = || measure_one(row, of_worker, options.duration);
            let found = keeping_to(&[of_guests], measured)?.with_context(|| row.name())?;
            results.add(row, found);
        }
    }
    progress.end();
    Ok(results.report(options, &rows))
}

/// Packets of a burst in [`carry`].
pub(crate) const BURST: usize = guests::QUEUE_SIZE as usize;

/// Sends bursts of packets of 64 bytes from guest to guest by a switch, through a daemon that begins
/// and ends with it.
///
/// # Errors
/// The daemon does not come up, or packets do not arrive.
pub(crate) fn carry(format: Format, bursts: usize) -> anyhow::Result<()> {
    let mut daemon = start(Way::Switch)?;
    let mut pair = AnyPair::attach(&daemon, format, &Plan::of(PACKET_LENS[0]))?;
    pair.introduce()?;
    pair.bursts(bursts)?;
    daemon.stop()?;
    Ok(())
}

fn start(way: Way) -> anyhow::Result<RingwayProcess> {
    let never_polls = ["--workers", "1", "--poll", "never"];
    let daemon = RingwayProcess::start_with(way.ports(), &never_polls);
    daemon.with_context(|| format!("no daemon: {BINARY_VARIABLE} can name the program"))
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Self::Cable => "two ports",
            Self::Switch => "three ports",
            Self::OneProcessor => "three ports, one processor",
        }
    }

    fn ports(self) -> &'static [(&'static str, &'static str)] {
        let ports = &[("a", ""), ("b", ""), ("c", "")];
        match self {
            Self::Cable => &ports[..2],
            Self::Switch | Self::OneProcessor => ports,
        }
    }
}

impl Row {
    fn name(self) -> String {
        let Self { way, format, packet_len } = self;
        format!("{packet_len} bytes, {}, {}", format_name(format), way.name())
    }
}

fn format_name(format: Format) -> &'static str {
    match format {
        Format::Split => "split",
        Format::Packed => "packed",
    }
}

fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for packet_len in PACKET_LENS {
        for format in [Format::Split, Format::Packed] {
            let ways = [Way::Cable, Way::Switch, Way::OneProcessor];
            rows.extend(ways.map(|way| Row { way, format, packet_len }));
        }
    }
    rows
}

/// On the guests' processor.
fn measure_one(row: Row, of_worker: usize, duration: Duration) -> anyhow::Result<Found> {
    let daemon = keeping_to(&[of_worker], || start(row.way))??;
    let plan = Plan::of(row.packet_len);
    let mut pair = AnyPair::attach(&daemon, row.format, &plan)?;
    pair.introduce()?;
    let mut copying = Copying::new(&plan)?;
    // All of the buffers are touched for the first time.
    pair.exchange(duration / 4)?;
    keeping_to(&[of_worker], || copying.run(duration / 4))?;
    let began = Effort::of(&daemon)?;
    let (mut packets, mut packets_ns, mut copies, mut copies_ns) = (0.0, 0.0, 0.0, 0.0);
    for _ in 0..TURNS {
        let before = Usage::look(daemon.pid())?;
        packets += pair.exchange(duration / TURNS)?;
        packets_ns += Usage::look(daemon.pid())?.since(&before).processor_ns;
        let turn = keeping_to(&[of_worker], || copying.run(duration / TURNS))?;
        copies += turn.copies;
        copies_ns += turn.ns;
    }
    ensure!(packets > 0.0, "nothing arrived");
    let (packet_ns, copy_ns) = (packets_ns / packets, copies_ns / copies);
    let system_calls = Effort::of(&daemon)?.system_calls_per_packet_since(&began);
    Ok(Found { packet_ns, copy_ns, system_calls })
}

/// What the daemon's workers say of themselves.
#[derive(Debug)]
struct Effort {
    packets: f64,
    system_calls: f64,
}

impl Effort {
    fn of(daemon: &RingwayProcess) -> anyhow::Result<Self> {
        let stats = daemon.stats()?;
        let total = &stats["workers"][0]["total"];
        let count = |name: &str| {
            total[name].as_f64().with_context(|| format!("no {name} of a worker: {stats}"))
        };
        Ok(Self { packets: count("packets")?, system_calls: count("system_calls")? })
    }

    fn system_calls_per_packet_since(&self, before: &Self) -> f64 {
        (self.system_calls - before.system_calls) / (self.packets - before.packets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_there_once() {
        let rows = rows();
        assert_eq!(rows.len(), 18);
        for (at, row) in rows.iter().enumerate() {
            assert!(!rows[..at].contains(row), "{row:?}");
        }
        assert_eq!(Way::Cable.ports().len() + 1, Way::Switch.ports().len());
    }
}
