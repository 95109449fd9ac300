//! The figures of one turn of a rig.
//!
//! Limits: a figure that cannot be had is missing, and the reason is kept; the others are taken
//! nevertheless.

use anyhow::{Context, ensure};
use ringway_guests::iperf::Report;
use ringway_guests::traffic;

use super::pairing::Options;
use super::processor_time;
use super::rig::Rig;
use super::turns;
use crate::report::grid::Column;

/// Payload of a UDP packet whose Ethernet frame has 64 bytes.
const UDP_PAYLOAD_LEN: u32 = 22;

const GIB: f64 = (1 << 30) as f64;

/// What iperf3 is told for TCP from the guest that asks and to it, of one stream and of several.
const TCP: [&str; 4] = ["", "-R", "-P 4", "-P 4 -R"];

/// Pings when all is idle: how many, and the seconds in between, in which all goes to sleep.
const COLD_PINGS: &str = "-c 10 -i 0.2";

/// TCP, with what iperf3 is told in [`TCP`]; UDP that the guest's program receives; pings.
pub(super) const RATES: [Column; 10] = [
    ("TCP out, Gb/s", 2),
    ("TCP in, Gb/s", 2),
    ("4 streams out, Gb/s", 2),
    ("4 streams in, Gb/s", 2),
    ("64-byte UDP in, kpps", 1),
    ("flood ping min, ms", 3),
    ("mean, ms", 3),
    ("max, ms", 3),
    ("deviation, ms", 3),
    ("ping after 0.2 s of silence, mean, ms", 3),
];

/// Processor time of the guests and of what is beside them, in the order of [`TCP`].
pub(super) const COSTS: [Column; 8] = [
    ("guest, out, s/GiB", 2),
    ("beside it, out, s/GiB", 2),
    ("guest, in, s/GiB", 2),
    ("beside it, in, s/GiB", 2),
    ("guest, 4 streams out, s/GiB", 2),
    ("beside it, 4 streams out, s/GiB", 2),
    ("guest, 4 streams in, s/GiB", 2),
    ("beside it, 4 streams in, s/GiB", 2),
];

/// What one turn found, in these orders.
pub(super) type Found = turns::Found<{ RATES.len() }, { COSTS.len() }>;

pub(super) fn take(rig: &mut Rig, options: &Options) -> Found {
    let mut found = Found::default();
    // Addresses are resolved and the path is warm.
    let warm_up = format!("ping -c 3 -i 0.1 -W 10 {}", rig.address());
    let ready = rig.work().and_then(|()| rig.side().must(&warm_up));
    if found.note("before anything", ready).is_none() {
        return found;
    }
    for (at, words) in TCP.into_iter().enumerate() {
        let figures = tcp(rig, options, words);
        if let Some((rate, costs)) = found.note(&format!("TCP {words}"), figures) {
            found.rates[at] = Some(rate);
            found.costs[2 * at..][..2].copy_from_slice(&costs);
        }
    }
    let udp = udp(rig, options);
    found.rates[4] = found.note("UDP", udp);
    let flood = flood(rig, options);
    if let Some(times) = found.note("flood", flood) {
        found.rates[5..9].copy_from_slice(&times.map(Some));
    }
    let cold = pings(rig, &format!("-q {COLD_PINGS}"));
    found.rates[9] = found.note("pings", cold).map(|[_, mean, ..]| mean);
    let rest = rig.rest();
    found.note("afterwards", rest);
    found
}

/// The rate, and the processor time of the guests and of what is beside them, per GiB.
fn tcp(rig: &mut Rig, options: &Options, words: &str) -> anyhow::Result<(f64, [Option<f64>; 2])> {
    let (processes, address) = (rig.processes(), rig.address());
    let times = || processes.each_ref().map(|programs| processor_time::seconds(programs));
    let before = times();
    let seconds = u32::try_from(options.seconds())?;
    let report = traffic::tcp(&mut rig.side(), &address, seconds, words)?;
    let after = times();
    let moved_gib = report.bits_per_second * report.seconds / 8.0 / GIB;
    let cost = |side: usize| {
        let is_known = !processes[side].is_empty() && moved_gib > 0.0;
        is_known.then(|| (after[side] - before[side]) / moved_gib)
    };
    Ok((report.gigabits(), [cost(0), cost(1)]))
}

/// Thousands of packets per second that the guest's program gets when the other side sends all it
/// can.
fn udp(rig: &mut Rig, options: &Options) -> anyhow::Result<f64> {
    let (address, seconds) = (rig.address(), options.seconds());
    let line = format!("iperf3 -J -c {address} -u -b 0 -l {UDP_PAYLOAD_LEN} -t {seconds} -R");
    let text = traffic::iperf(&mut rig.side(), &line)?;
    let report = Report::parse(&text)?;
    let packets = report.packets.context("iperf3: no packets")?;
    ensure!(report.seconds > 0.0, "iperf3: no time");
    Ok(packets / report.seconds / 1e3)
}

fn flood(rig: &mut Rig, options: &Options) -> anyhow::Result<[f64; 4]> {
    pings(rig, &format!("-f -q -w 20 -c {}", options.pings()))
}

/// Least, mean, greatest and deviation, in ms.
fn pings(rig: &mut Rig, words: &str) -> anyhow::Result<[f64; 4]> {
    let address = rig.address();
    let (_, text) = rig.side().run(&format!("ping {words} {address}"))?;
    traffic::round_trips_ms(&text).with_context(|| format!("ping: {text}"))
}
