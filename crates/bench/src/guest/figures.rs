//! The figures of one turn.
//!
//! Limits: a figure that cannot be had is missing, and the reason is kept; the others are taken
//! nevertheless.

use anyhow::{Context, ensure};
use ringway_guests::iperf::Report;
use ringway_guests::traffic;

use super::Options;
use super::processor_time;
use super::rig::Rig;

/// Payload of a UDP packet whose Ethernet frame has 64 bytes.
const UDP_PAYLOAD_LEN: u32 = 22;

/// Parallel streams.
const STREAMS: u32 = 4;

const GIB: f64 = (1 << 30) as f64;

/// One kind of figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub(super) enum Figure {
    /// TCP from the guest that asks, Gb/s.
    Out,
    /// TCP to it.
    Back,
    /// The same with several streams.
    OutMany,
    BackMany,
    /// UDP packets that its program receives, thousands per second.
    Udp,
    Requests,
    PingMin,
    PingMean,
    PingMax,
    PingDeviation,
    /// Processor time while TCP goes out and back, s/GiB.
    GuestOut,
    BackEndOut,
    GuestBack,
    BackEndBack,
    /// The same with several streams.
    GuestOutMany,
    BackEndOutMany,
    GuestBackMany,
    BackEndBackMany,
}

/// How many kinds there are.
pub(super) const FIGURES: usize = Figure::BackEndBackMany as usize + 1;

/// What one turn found.
#[derive(Debug, Clone, Default)]
pub(super) struct Found {
    pub values: [Option<f64>; FIGURES],
    pub failures: Vec<String>,
}

impl Found {
    fn set(&mut self, figure: Figure, value: f64) {
        self.values[figure as usize] = Some(value);
    }
}

/// Takes all figures of a rig.
pub(super) fn take(rig: &mut Rig, options: &Options) -> Found {
    let mut found = Found::default();
    let measure = |rig: &mut Rig, found: &mut Found| {
        rig.work()?;
        // Addresses are resolved and the path is warm.
        let address = rig.address();
        rig.side().must(&format!("ping -c 3 -i 0.1 -W 10 {address}"))?;
        take_all(rig, options, found);
        rig.rest()
    };
    if let Err(why) = measure(rig, &mut found) {
        found.failures.push(format!("{why:#}"));
    }
    found
}

/// What is measured, and how.
type Measure = fn(&mut Rig, &Options, &mut Found) -> anyhow::Result<()>;

fn take_all(rig: &mut Rig, options: &Options, found: &mut Found) {
    let all: [(&str, Measure); 5] = [
        ("TCP", |rig, options, found| {
            let out = [Figure::Out, Figure::GuestOut, Figure::BackEndOut];
            one_way(rig, options, "", out, found)?;
            let back = [Figure::Back, Figure::GuestBack, Figure::BackEndBack];
            one_way(rig, options, "-R", back, found)
        }),
        ("TCP, several streams", |rig, options, found| {
            let out = [Figure::OutMany, Figure::GuestOutMany, Figure::BackEndOutMany];
            one_way(rig, options, &format!("-P {STREAMS}"), out, found)?;
            let back = [Figure::BackMany, Figure::GuestBackMany, Figure::BackEndBackMany];
            one_way(rig, options, &format!("-P {STREAMS} -R"), back, found)
        }),
        ("UDP", |rig, options, found| {
            found.set(Figure::Udp, udp(rig, options)?);
            Ok(())
        }),
        ("flood", flood),
        ("requests", |rig, options, found| {
            found.set(Figure::Requests, rig.requests_per_second(options.seconds)?);
            Ok(())
        }),
    ];
    for (name, measure) in all {
        if let Err(why) = measure(rig, options, found) {
            found.failures.push(format!("{name}: {why:#}"));
        }
    }
}

/// The rate, and the processor time of the guests and of what is beside them, per GiB.
fn one_way(
    rig: &mut Rig,
    options: &Options,
    words: &str,
    figures: [Figure; 3],
    found: &mut Found,
) -> anyhow::Result<()> {
    let processes = rig.processes();
    let before = processes.each_ref().map(|programs| processor_time::seconds(programs));
    let report = tcp(rig, options, words)?;
    let after = processes.each_ref().map(|programs| processor_time::seconds(programs));
    found.set(figures[0], report.gigabits());
    let moved_gib = report.bits_per_second * report.seconds / 8.0 / GIB;
    for side in 0..2 {
        if !processes[side].is_empty() && moved_gib > 0.0 {
            found.set(figures[side + 1], (after[side] - before[side]) / moved_gib);
        }
    }
    Ok(())
}

fn tcp(rig: &mut Rig, options: &Options, words: &str) -> anyhow::Result<Report> {
    let address = rig.address();
    traffic::tcp(&mut rig.side(), &address, options.seconds, words)
}

/// Thousands of packets per second that the guest's program gets when the other side sends all it
/// can.
fn udp(rig: &mut Rig, options: &Options) -> anyhow::Result<f64> {
    let (address, seconds) = (rig.address(), options.seconds);
    let line = format!("iperf3 -J -c {address} -u -b 0 -l {UDP_PAYLOAD_LEN} -t {seconds} -R");
    let text = traffic::iperf(&mut rig.side(), &line)?;
    let report = Report::parse(&text)?;
    let packets = report.packets.context("iperf3: no packets")?;
    ensure!(report.seconds > 0.0, "iperf3: no time");
    Ok(packets / report.seconds / 1e3)
}

fn flood(rig: &mut Rig, options: &Options, found: &mut Found) -> anyhow::Result<()> {
    let (address, pings) = (rig.address(), options.pings);
    let (_, text) = rig.side().run(&format!("ping -f -q -w 20 -c {pings} {address}"))?;
    let times = traffic::round_trips_ms(&text).with_context(|| format!("ping: {text}"))?;
    let figures = [Figure::PingMin, Figure::PingMean, Figure::PingMax, Figure::PingDeviation];
    for (figure, time) in figures.into_iter().zip(times) {
        found.set(figure, time);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_a_place_each() {
        let mut found = Found::default();
        found.set(Figure::BackEndBackMany, 2.0);
        assert_eq!(found.values[Figure::BackEndBackMany as usize], Some(2.0));
        assert_eq!(found.values[Figure::Out as usize], None);
    }
}
