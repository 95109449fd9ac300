//! Four guests together: behind one ringway, and each behind a passt of its own.
//!
//! How: all four ask at the same time, each another server of iperf3; what they move is added up.
//!
//! Limits: QEMU guests, which passt needs. They share one processor.

use std::fs;
use std::thread;

use anyhow::anyhow;
use ringway_guests::iperf::Report;
use ringway_guests::nat_lab::SERVER;
use ringway_guests::{Console, Process, Side, Stage, iperf, namespaces, nat_lab, qemu, traffic};
use ringway_testkit::Usage;

use super::super::pairing::Options;
use super::super::processor_time;
use super::super::sides::{Beside, Sides};
use super::super::turns::{Compared, Found};
use super::Place;
use super::router::{Router, socket};
use crate::machine::{keeping_to, processors};
use crate::programs;
use crate::report::Column;

pub(super) const ROUTERS: [Router; 2] = [Router::Nat, Router::PasstVhost];

/// Where each guest's server is.
const PORTS: [u16; 4] = [5211, 5212, 5213, 5214];

const MEMORY: &str = "128M";

pub(super) const RATES: [Column; 2] = [("TCP out, Gb/s", 3), ("TCP in, Gb/s", 3)];

pub(super) const COSTS: [Column; 3] =
    [("routers, out, s/GB", 2), ("routers, in, s/GB", 2), ("memory, KiB", 0)];

pub(super) fn start_servers(stage: &Stage) -> anyhow::Result<Vec<Process>> {
    PORTS.iter().map(|port| iperf::start_server_on(stage, SERVER, *port)).collect()
}

#[derive(Debug)]
pub(super) struct Four {
    guests: Vec<Console>,
    beside: Vec<Beside>,
}

impl Four {
    pub fn boot(router: Router, at: &Place<'_>) -> anyhow::Result<Self> {
        let sides = Sides::of(at.pairing, &processors());
        let stages: Vec<Stage> = (0..PORTS.len())
            .map(|guest| {
                let directory = at.directory.join(format!("four{}{guest}", router as u8));
                fs::create_dir_all(&directory)?;
                Ok(programs::stage(&directory, programs::ringway()?, None))
            })
            .collect::<anyhow::Result<_>>()?;
        let started = namespaces::within(at.machine.id(), || {
            let beside = keeping_to(&sides.rest, || router.start_for(&stages))??;
            let guests = stages
                .iter()
                .zip(1..)
                .map(|(stage, number)| sides.guest(0, || boot(stage, number)));
            let guests = guests.collect::<anyhow::Result<_>>()?;
            anyhow::Ok((beside, guests))
        })?;
        let (beside, guests) = started?;
        let mut four = Self { guests, beside };
        let leases = four.guests.iter_mut().map(|guest| nat_lab::lease(&mut Side::Guest(guest)));
        leases.collect::<anyhow::Result<Vec<_>>>()?;
        Ok(four)
    }

    fn routers(&self) -> Vec<u32> {
        self.beside.iter().filter_map(Beside::process).map(|(_, id)| id).collect()
    }

    /// The rate of all, and the processor time of the routers per GB.
    fn tcp(&mut self, options: &Options, option: &str) -> anyhow::Result<(f64, f64)> {
        let (seconds, routers) = (u32::try_from(options.seconds())?, self.routers());
        let before = processor_time::seconds(&routers);
        let reports: Vec<Report> = thread::scope(|scope| {
            let ask = |(guest, port)| {
                let words = format!("-p {port} {option}");
                scope.spawn(move || traffic::tcp(&mut Side::Guest(guest), SERVER, seconds, &words))
            };
            let asked: Vec<_> = self.guests.iter_mut().zip(PORTS).map(ask).collect();
            let ended = |thread: thread::ScopedJoinHandle<'_, _>| {
                thread.join().map_err(|_| anyhow!("a thread has panicked"))?
            };
            asked.into_iter().map(ended).collect::<anyhow::Result<_>>()
        })?;
        let taken = processor_time::seconds(&routers) - before;
        let moved_gb: f64 = reports.iter().map(|it| it.bits_per_second * it.seconds / 8e9).sum();
        Ok((reports.iter().map(Report::gigabits).sum(), taken / moved_gb))
    }

    /// Memory that the routers have for themselves.
    fn memory_kib(&self) -> anyhow::Result<f64> {
        let each = |id| Ok(Usage::look(id)?.memory_kib);
        self.routers().into_iter().map(each).sum()
    }
}

/// Each has an address of its own: those of ringway are on one switch.
fn boot(stage: &Stage, number: u32) -> anyhow::Result<Console> {
    let device_options = format!(",mac=52:54:00:12:35:0{number}");
    let machine = qemu::Machine {
        device_options: &device_options,
        memory: MEMORY,
        ..qemu::Machine::default()
    };
    qemu::boot(stage, &socket(stage), &machine)
}

impl Compared for Four {
    fn commands(&self) -> Vec<String> {
        let beside = self.beside.iter().filter_map(Beside::process).map(|(command, _)| command);
        beside.chain(self.guests.iter().map(Console::command)).map(str::to_string).collect()
    }

    fn take(&mut self, options: &Options) -> Found {
        let mut found = Found::nothing(&RATES, &COSTS);
        for (way, option) in ["", "-R"].into_iter().enumerate() {
            let figures = self.tcp(options, option);
            if let Some((rate, cost)) = found.note(&format!("TCP {option}"), figures) {
                (found.rates[way], found.costs[way]) = (Some(rate), Some(cost));
            }
        }
        found.costs[2] = found.note("memory", self.memory_kib());
        found
    }
}
