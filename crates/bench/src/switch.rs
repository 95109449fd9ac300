//! `ringway bench switch`: what a packet from guest to guest costs one worker, beside one copy.
//!
//! How: [`method`]. What it costs that packets travel between processors shows beside the same with
//! guests on the worker's own. DPDK's testpmd takes the daemon's place in other rows ([`peer`]);
//! all other switches stand beside ringway's in a loop of their own ([`closed`]).
//!
//! Limits: two processors; the daemon never polls, for the processor time of one that does says
//! nothing about packets. So a wake-up and its system calls are in the time of each burst.

mod closed;
mod copying;
mod ends;
mod guests;
mod ovs;
mod peer;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use ringway_testkit::{RingwayProcess, Usage};
use ringway_virtq::{DriverQueue, Format, PackedDriver, SplitDriver};

use crate::machine::{keeping_to, processors};
use crate::options::{Options, format_name};
use crate::programs::{self, NO_DAEMON};
use crate::progress::in_turns;
use crate::report::{Column, Grid, Report};
use crate::ring::driver::DriverEnd;
use copying::Copying;
use guests::{PacketLayout, Pair};

const PACKET_LENS: [u32; 3] = [64, 1518, 65_536];

/// Guests and copies take turns so often within one number.
const TURNS: u32 = 4;

const TOPOLOGIES: [(Topology, &str); 6] = [
    (Topology::Cable, "two ports"),
    (Topology::Switch, "three ports"),
    (Topology::InTwo, "three ports, in two pieces"),
    (Topology::OneProcessor, "three ports, one processor"),
    (Topology::Testpmd, "DPDK testpmd, two ports"),
    (Topology::Ovs, "Open vSwitch with DPDK, three ports"),
];

const HEADS: [&str; 3] = ["bytes", "ring", "daemon"];

const COLUMNS: [Column; 6] = [
    ("worker, ns/packet", 1),
    ("Mpps of one worker", 3),
    ("Gb/s of one worker", 2),
    ("one copy, ns", 1),
    ("copy ÷ worker", 2),
    ("system calls per 1,000 packets", 1),
];

/// How the two guests' ports are connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Topology {
    /// They are the daemon's only ports: there is nothing to look up.
    Cable,
    /// There is a third port, so that each packet's way is looked up.
    Switch,
    /// The same, and packets are in two pieces behind an indirect table.
    InTwo,
    /// With a third port, and the guests are on the worker's processor: packets are in its caches.
    OneProcessor,
    /// DPDK's program instead of the daemon, with two vhost-user devices.
    Testpmd,
    Ovs,
}

impl Topology {
    fn is_peer(self) -> bool {
        matches!(self, Self::Testpmd | Self::Ovs)
    }
}

const ELSEWHERE: &str = "guest to host: `ringway bench guest` has QEMU's own, User Mode Linux's \
                         own and DPDK's, `ringway bench nat` passt and gvproxy";

/// Peers whose versions the report has, and their packages.
const PEERS: [(&str, &str); 2] = [("ovs", "openvswitch-switch-dpdk"), ("vde_switch", "vde-switch")];

#[derive(Debug, Clone, Copy)]
struct Row {
    topology: Topology,
    format: Format,
    packet_len: u32,
}

/// The worker's processor, and for how long each number is measured.
#[derive(Debug, Clone, Copy)]
struct At {
    of_worker: usize,
    duration: Duration,
}

/// A value for each column.
type Values = [Option<f64>; COLUMNS.len()];

/// `has_taps`: this process is the first of namespaces of its own.
pub fn measure(options: &Options, has_taps: bool) -> anyhow::Result<Report> {
    options.ensure_measurable()?;
    let [of_guests, of_worker, ..] = processors()[..] else {
        bail!("two processors are needed: one for the worker, one for the guests");
    };
    let mut report = Report::begin("switch", &method(options))?;
    report.machine.versions.extend(programs::peer_versions(&PEERS));
    report.leave_out(ELSEWHERE);
    let grid = Grid::new("From guest to guest", &HEADS, &COLUMNS);
    let mut grid = grid.plotted("copy ÷ worker", &[4]);
    in_turns(options.repeats, &rows(), |round, name, row, _| {
        let of_guests = if row.topology == Topology::OneProcessor { of_worker } else { of_guests };
        let measure_one = match row.format {
            Format::Split if row.topology == Topology::Testpmd => peer::measure::<SplitDriver>,
            Format::Packed if row.topology == Topology::Testpmd => peer::measure::<PackedDriver>,
            Format::Split if row.topology == Topology::Ovs => ovs::measure,
            Format::Split => measure_one::<SplitDriver>,
            Format::Packed => measure_one::<PackedDriver>,
        };
        let measured = || measure_one(*row, At { of_worker, duration: options.duration });
        match keeping_to(&[of_guests], measured)? {
            Ok(values) => grid.add(name, round, &values),
            // It may not be installed.
            Err(why) if row.topology.is_peer() => {
                report.leave_out(&format!("missing: {}: {why:#}", name[2]))
            }
            Err(why) => return Err(why),
        }
        Ok(())
    })?;
    report.tables.push(grid.table());
    closed::measure(options, [of_guests, of_worker], has_taps, &mut report)?;
    Ok(report)
}

pub(crate) const BURST: usize = guests::QUEUE_SIZE as usize;

/// Sends packets of 64 bytes from guest to guest by a switch, through a daemon that begins and ends
/// with it. `load`: its workers, and bursts of packets.
pub(crate) fn carry<Q: DriverQueue>(load: (usize, usize), in_two: bool) -> anyhow::Result<()> {
    let (workers, bursts) = load;
    let mut daemon = start(Topology::Switch, workers, &["--sandbox", "off"])?;
    let layout = PacketLayout { in_two, ..PacketLayout::of(PACKET_LENS[0] as usize) };
    let mut pair = Pair::<DriverEnd<Q>>::attach(sockets(&daemon), &layout)?;
    (0..bursts).try_for_each(|_| pair.burst(layout.burst))?;
    daemon.stop()?;
    Ok(())
}

fn sockets(daemon: &RingwayProcess) -> [PathBuf; 2] {
    ["a", "b"].map(|port| daemon.socket(port))
}

fn start(topology: Topology, workers: usize, more: &[&str]) -> anyhow::Result<RingwayProcess> {
    let ports = &[("a", ""), ("b", ""), ("c", "")];
    let ports = if topology == Topology::Cable { &ports[..2] } else { ports };
    let workers = workers.to_string();
    let never_polls = ["--workers", &workers, "--poll", "never"];
    RingwayProcess::start_with(ports, &[&never_polls, more].concat()).context(NO_DAEMON)
}

/// Each with its cells under [`HEADS`].
fn rows() -> Vec<(Vec<String>, Row)> {
    let mut rows = Vec::new();
    for packet_len in PACKET_LENS {
        for format in [Format::Split, Format::Packed] {
            for (topology, name) in TOPOLOGIES {
                let is_short = packet_len <= peer::PACKET_LEN_MAX;
                // It takes seconds to start, and is measured with the usual rings.
                let is_usual = topology != Topology::Ovs || format == Format::Split;
                if topology.is_peer() && !(is_short && is_usual) {
                    continue;
                }
                let name = [&packet_len.to_string(), format_name(format), name].map(String::from);
                rows.push((name.to_vec(), Row { topology, format, packet_len }));
            }
        }
    }
    rows
}

/// On the guests' processor: a value for each column.
fn measure_one<Q: DriverQueue>(row: Row, At { of_worker, duration }: At) -> anyhow::Result<Values> {
    let daemon = keeping_to(&[of_worker], || start(row.topology, 1, &[]))??;
    let layout = PacketLayout {
        in_two: row.topology == Topology::InTwo,
        ..PacketLayout::of(row.packet_len as usize)
    };
    let mut pair = Pair::<DriverEnd<Q>>::attach(sockets(&daemon), &layout)?;
    let mut copying = Copying::new(&layout)?;
    // All of the buffers are touched for the first time.
    pair.exchange(layout.burst, duration / 4)?;
    keeping_to(&[of_worker], || copying.run(duration / 4))?;
    let began = effort(&daemon)?;
    let (mut packets, mut packets_ns, mut copies, mut copies_ns) = (0.0, 0.0, 0.0, 0.0);
    for _ in 0..TURNS {
        let before = Usage::look(daemon.pid())?;
        packets += pair.exchange(layout.burst, duration / TURNS)?;
        packets_ns += Usage::look(daemon.pid())?.since(&before).processor_ns;
        let (turns, ns) = keeping_to(&[of_worker], || copying.run(duration / TURNS))?;
        copies += turns;
        copies_ns += ns;
    }
    ensure!(packets > 0.0, "nothing arrived");
    let (packet_ns, copy_ns) = (packets_ns / packets, copies_ns / copies);
    let ended = effort(&daemon)?;
    let system_calls = (ended[1] - began[1]) / (ended[0] - began[0]);
    Ok(values(row.packet_len, packet_ns, copy_ns, Some(system_calls * 1e3)))
}

fn values(packet_len: u32, packet_ns: f64, copy_ns: f64, system_calls: Option<f64>) -> Values {
    let gigabits = 8.0 * f64::from(packet_len) / packet_ns;
    let share = copy_ns / packet_ns;
    let [packet, rate, gigabits, copy, share] =
        [packet_ns, 1e3 / packet_ns, gigabits, copy_ns, share].map(Some);
    [packet, rate, gigabits, copy, share, system_calls]
}

/// Packets and system calls of the worker so far, as it says.
fn effort(daemon: &RingwayProcess) -> anyhow::Result<[f64; 2]> {
    let stats = daemon.stats()?;
    let total = stats.workers.first().context("no worker")?.total;
    Ok([total.packets, total.system_calls].map(|count| count as f64))
}

fn method(options: &Options) -> [String; 7] {
    let bursts = PACKET_LENS.map(|len| PacketLayout::of(len as usize).burst.to_string()).join(", ");
    [
        options.rounds(),
        format!(
            "A daemon with one worker on a processor of its own, which never polls; two guests in \
             user space on another one, with queues of {BURST} entries. One sends {bursts} packets \
             at once; when the other has received all of them, the next ones follow."
        ),
        "The worker's time is all processor time of the daemon; Mpps and Gb/s are what its whole \
         processor would move at that cost. The guests touch packets only as far as a driver must."
            .into(),
        "One copy is of as many bytes, between places as far apart and over as much memory as \
         the guests' buffers have, on the worker's processor while the worker sleeps."
            .into(),
        "testpmd passes on what comes at one port to the other. It and Open vSwitch always poll: \
         their time is what they count themselves for rounds with packets, and what other programs \
         took meanwhile."
            .into(),
        "Three ports: the third is idle, and the way of each packet is looked up. In two pieces: \
         the first 42 bytes and the rest, behind an indirect table, as Linux sends long ones. One \
         processor: the guests are on the worker's, so that packets and rings are in its caches."
            .into(),
        closed::METHOD.into(),
    ]
}
