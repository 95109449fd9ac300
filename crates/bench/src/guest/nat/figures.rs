//! The figures of one turn of a router.
//!
//! Limits: a figure that cannot be had is missing, and the reason is kept; the others are taken
//! nevertheless.

use anyhow::Context;
use ringway_guests::iperf::Report;
use ringway_guests::nat_lab::SERVER;
use ringway_guests::traffic;

use super::super::pairing::Options;
use super::super::turns;
use super::rig::Rig;
use crate::report::grid::Column;

/// Connections that are open at once for a look at the router's memory.
pub(super) const FLOWS: u32 = 400;

/// UDP as routers are asked for it.
const UDP: &str = "-u -b 0 -l 1400";

/// TCP, connections and UDP from the guest's point of view; pings.
pub(super) const RATES: [Column; 10] = [
    ("TCP out, Gb/s", 3),
    ("TCP in, Gb/s", 3),
    ("connections/s", 0),
    ("TCP round trip, µs", 0),
    ("UDP out, kpps", 1),
    ("UDP in, kpps", 1),
    ("flood ping min, ms", 3),
    ("mean, ms", 3),
    ("max, ms", 3),
    ("deviation, ms", 3),
];

pub(super) const COSTS: [Column; 6] = [
    ("router, out, s/GB", 2),
    ("guest, out, s/GB", 2),
    ("router, in, s/GB", 2),
    ("guest, in, s/GB", 2),
    ("memory, KiB", 0),
    ("memory per idle flow, KiB", 2),
];

/// What one turn found, in these orders.
pub(super) type Found = turns::Found<{ RATES.len() }, { COSTS.len() }>;

pub(super) fn take(rig: &mut Rig, options: &Options) -> Found {
    let mut found = Found::default();
    let warm_up = rig.side().must(&format!("ping -c 2 -i 0.1 -W 10 {SERVER}"));
    if found.note("before anything", warm_up).is_none() {
        return found;
    }
    for (way, option) in ["", "-R"].into_iter().enumerate() {
        let figures = tcp(rig, options, option);
        if let Some((rate, costs)) = found.note(&format!("TCP {option}"), figures) {
            found.rates[way] = Some(rate);
            found.costs[2 * way..][..2].copy_from_slice(&costs.map(Some));
        }
    }
    let memory = idle_flows(rig);
    if let Some(memory) = found.note("flows", memory) {
        found.costs[4..].copy_from_slice(&memory.map(Some));
    }
    for (way, option) in ["", "-R"].into_iter().enumerate() {
        let rate = udp(rig, options, option);
        found.rates[4 + way] = found.note(&format!("UDP {option}"), rate);
    }
    for (at, what) in [(2, "connections"), (3, "round-trips")] {
        let number = ask(rig, what, options.seconds());
        found.rates[at] = found.note(what, number);
    }
    let flood = flood(rig, options);
    if let Some(times) = found.note("flood", flood) {
        found.rates[6..].copy_from_slice(&times.map(Some));
    }
    found
}

/// The rate, and the processor time of router and guest per GB.
fn tcp(rig: &mut Rig, options: &Options, option: &str) -> anyhow::Result<(f64, [f64; 2])> {
    let before = rig.seconds();
    let seconds = u32::try_from(options.seconds())?;
    let report = traffic::tcp(&mut rig.side(), SERVER, seconds, option)?;
    let after = rig.seconds();
    let moved_gb = report.bits_per_second * report.seconds / 8e9;
    Ok((report.gigabits(), [0, 1].map(|of| (after[of] - before[of]) / moved_gb)))
}

/// Thousands of packets per second that arrive.
fn udp(rig: &mut Rig, options: &Options, option: &str) -> anyhow::Result<f64> {
    let seconds = options.seconds();
    let line = format!("iperf3 -J -c {SERVER} {UDP} -t {seconds} {option}");
    let report = Report::parse(&traffic::iperf(&mut rig.side(), &line)?)?;
    Ok(report.packets.context("iperf3: no packets")? / report.seconds / 1e3)
}

fn ask(rig: &mut Rig, what: &str, amount: u64) -> anyhow::Result<f64> {
    let line = format!("{} {what} {amount}", rig.client);
    let text = rig.side().must(&line)?;
    text.trim().parse().with_context(|| text.clone())
}

/// The router's memory in KiB, and how much more there is for each of many idle connections.
fn idle_flows(rig: &mut Rig) -> anyhow::Result<[f64; 2]> {
    let before = rig.memory_kib()?;
    let client = rig.client.clone();
    let open = format!("rm -f flows; {{ {client} flows {FLOWS} >flows 2>&1; }} &");
    // It prints when all are open, and keeps them open for a while.
    let opened =
        rig.side().must(&format!("{open} until [ -s flows ]; do sleep 0.1; done; cat flows"))?;
    let after = rig.memory_kib()?;
    rig.side().must("wait $!").with_context(|| opened)?;
    Ok([before, (after - before) / f64::from(FLOWS)])
}

/// Least, mean, greatest and deviation, in ms.
fn flood(rig: &mut Rig, options: &Options) -> anyhow::Result<[f64; 4]> {
    let (_, text) = rig.side().run(&format!("ping -f -q -w 20 -c {} {SERVER}", options.pings()))?;
    traffic::round_trips_ms(&text).with_context(|| format!("ping: {text}"))
}
