//! The figures of one turn of a router.
//!
//! Limits: a figure that cannot be had is missing, and the reason is kept; the others are taken
//! nevertheless.

use anyhow::Context;
use ringway_guests::nat_lab::SERVER;

use super::super::figures::{flood_of, pings, tcp, udp};
use super::super::pairing::GuestOptions;
use super::super::turns::{Compared, Figures};
use super::rig::Rig;
use crate::report::Column;

/// Connections that are open at once for a look at the router's memory.
pub(super) const FLOWS: u32 = 400;

const UDP_PAYLOAD_LEN: u32 = 1400;

const GB: f64 = 1e9;

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

impl Compared for Rig {
    fn commands(&self) -> Vec<String> {
        self.commands()
    }

    fn take(&mut self, options: &GuestOptions) -> Figures {
        let (mut figures, seconds) = (Figures::nothing(&RATES, &COSTS), options.seconds());
        let warm_up = self.side().must(&format!("ping -c 2 -i 0.1 -W 10 {SERVER}"));
        if figures.note("before anything", warm_up).is_none() {
            return figures;
        }
        for (way, option) in ["", "-R"].into_iter().enumerate() {
            let times = self.times();
            let stream = tcp(&mut self.side(), SERVER, seconds, option, times);
            if let Some((rate, seconds, moved)) = figures.note(&format!("TCP {option}"), stream) {
                figures.rates[way] = Some(rate);
                let costs = seconds.map(|seconds| Some(seconds / (moved / GB)));
                figures.costs[2 * way..][..2].copy_from_slice(&costs);
            }
        }
        let memory = idle_flows(self);
        if let Some(memory) = figures.note("flows", memory) {
            figures.costs[4..].copy_from_slice(&memory.map(Some));
        }
        for (way, option) in ["", "-R"].into_iter().enumerate() {
            let words = format!("-l {UDP_PAYLOAD_LEN} {option}");
            let rate = udp(&mut self.side(), SERVER, seconds, &words);
            figures.rates[4 + way] = figures.note(&format!("UDP {option}"), rate);
        }
        for (at, what) in [(2, "connections"), (3, "round-trips")] {
            let number = ask(self, what, seconds);
            figures.rates[at] = figures.note(what, number);
        }
        let flood = pings(&mut self.side(), &flood_of(options.pings()), SERVER);
        if let Some(times) = figures.note("flood", flood) {
            figures.rates[6..].copy_from_slice(&times.map(Some));
        }
        figures
    }
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
