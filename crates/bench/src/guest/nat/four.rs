//! Four guests together: behind one ringway, and each behind a passt of its own.
//!
//! How: all four ask at the same time, each another server of iperf3; what they move is added up.
//!
//! Limits: QEMU guests, which passt needs. They share one processor.

use std::thread;

use anyhow::anyhow;
use ringway_guests::iperf::IperfReport;
use ringway_guests::nat_lab::SERVER;
use ringway_guests::{Process, Side, Stage, iperf, traffic};

use super::super::pairing::GuestOptions;
use super::super::processor_time;
use super::super::turns::{Compared, Figures};
use super::RouterBench;
use super::rig::Rig;
use super::router::Router;
use crate::report::Column;

pub(super) const ROUTERS: [Router; 2] = [Router::Nat, Router::PasstVhost];

/// Where each guest's server is.
const PORTS: [u16; 4] = [5211, 5212, 5213, 5214];

pub(super) const RATES: [Column; 2] = [("TCP out, Gb/s", 3), ("TCP in, Gb/s", 3)];

pub(super) const COSTS: [Column; 3] =
    [("routers, out, s/GB", 2), ("routers, in, s/GB", 2), ("memory, KiB", 0)];

pub(super) fn start_servers(stage: &Stage) -> anyhow::Result<Vec<Process>> {
    PORTS.iter().map(|port| iperf::start_server_on(stage, SERVER, *port)).collect()
}

#[derive(Debug)]
pub(super) struct Four(Rig);

impl Four {
    pub fn boot(router: Router, bench: &RouterBench<'_>) -> anyhow::Result<Self> {
        Ok(Self(Rig::boot(router, bench, PORTS.len())?))
    }

    /// The rate of all, and the processor time of the routers per GB.
    fn tcp(&mut self, options: &GuestOptions, option: &str) -> anyhow::Result<(f64, f64)> {
        let (seconds, routers) = (u32::try_from(options.seconds())?, self.0.routers());
        let before = processor_time::seconds(&routers);
        let reports: Vec<IperfReport> = thread::scope(|scope| {
            let ask = |(guest, port)| {
                let words = format!("-p {port} {option}");
                scope.spawn(move || traffic::tcp(&mut Side::Guest(guest), SERVER, seconds, &words))
            };
            let asked: Vec<_> = self.0.guests.iter_mut().zip(PORTS).map(ask).collect();
            let ended = |thread: thread::ScopedJoinHandle<'_, _>| {
                thread.join().map_err(|_| anyhow!("a thread has panicked"))?
            };
            asked.into_iter().map(ended).collect::<anyhow::Result<_>>()
        })?;
        let taken = processor_time::seconds(&routers) - before;
        let moved_gb: f64 = reports.iter().map(|it| it.bits_per_second * it.seconds / 8e9).sum();
        Ok((reports.iter().map(IperfReport::gigabits).sum(), taken / moved_gb))
    }
}

impl Compared for Four {
    fn commands(&self) -> Vec<String> {
        self.0.commands()
    }

    fn take(&mut self, options: &GuestOptions) -> Figures {
        let mut figures = Figures::nothing(&RATES, &COSTS);
        for (way, option) in ["", "-R"].into_iter().enumerate() {
            let stream = self.tcp(options, option);
            if let Some((rate, cost)) = figures.note(&format!("TCP {option}"), stream) {
                (figures.rates[way], figures.costs[way]) = (Some(rate), Some(cost));
            }
        }
        figures.costs[2] = figures.note("memory", self.0.memory_kib());
        figures
    }
}
