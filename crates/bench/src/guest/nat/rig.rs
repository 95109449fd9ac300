//! A router with its guests, which have an address and the program that asks; or a router for each.

use std::fs;
use std::time::Duration;

use ringway_guests::{Console, Side, Stage, namespaces};
use ringway_testkit::Usage;

use super::super::pairing::Pairing;
use super::super::processor_time;
use super::super::sides::{Beside, Sides};
use super::RouterBench;
use super::router::Router;
use crate::machine::{keeping_to, processors};
use crate::programs;

const BOOT_LIMIT: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct Rig {
    /// How the client is started in a guest.
    pub client: String,
    is_qemu: bool,
    pub guests: Vec<Console>,
    beside: Vec<Beside>,
}

impl Rig {
    /// Boots so many guests.
    pub fn boot(router: Router, bench: &RouterBench<'_>, count: usize) -> anyhow::Result<Self> {
        let sides = Sides::of(bench.pairing, &processors());
        let stages = (0..count).map(|guest| {
            let name = format!("{}{}{count}{guest}", bench.pairing as u8, router as u8);
            let directory = bench.directory.join(name);
            fs::create_dir_all(&directory)?;
            let mut stage = programs::stage(&directory, programs::ringway()?, None);
            stage.guest_programs.push(bench.client.into());
            Ok(stage)
        });
        let stages: Vec<Stage> = stages.collect::<anyhow::Result<_>>()?;
        let started = namespaces::within(bench.machine.id(), || {
            let beside = keeping_to(&sides.rest, || router.start(&stages, bench.pairing))??;
            let guests = stages.iter().zip(1..).map(|(stage, number)| {
                sides.guest(0, || router.start_guest(stage, bench.pairing, number))
            });
            anyhow::Ok((beside, guests.collect::<anyhow::Result<_>>()?))
        })?;
        let (beside, guests) = started?;
        let is_qemu = bench.pairing == Pairing::QemuHost;
        let name = bench.client.file_name().filter(|_| is_qemu).unwrap_or(bench.client.as_os_str());
        let client = format!("{} nat-client", name.display());
        let mut rig = Self { client, is_qemu, guests, beside };
        for guest in &mut rig.guests {
            guest.wait_ready(0, BOOT_LIMIT)?;
            router.configure(&mut Side::Guest(guest), bench.pairing)?;
        }
        Ok(rig)
    }

    /// The first guest.
    pub fn side(&mut self) -> Side<'_> {
        Side::Guest(&mut self.guests[0])
    }

    pub fn commands(&self) -> Vec<String> {
        let beside = self.beside.iter().filter_map(Beside::process).map(|(command, _)| command);
        beside.chain(self.guests.iter().map(Console::command)).map(str::to_string).collect()
    }

    pub fn routers(&self) -> Vec<u32> {
        self.beside.iter().filter_map(Beside::process).map(|(_, id)| id).collect()
    }

    /// A clock of processor time in seconds: of the router, and of the first guest.
    pub fn times(&self) -> impl Fn() -> [f64; 2] + use<> {
        let (routers, guest, is_qemu) = (self.routers(), self.guests[0].id(), self.is_qemu);
        move || {
            let of_network = if is_qemu { processor_time::of_first_thread(guest) } else { 0.0 };
            let all = processor_time::seconds(&[guest]);
            [processor_time::seconds(&routers) + of_network, all - of_network]
        }
    }

    /// The memory of the routers' own; the guest that is its own router has all of it.
    pub fn memory_kib(&self) -> anyhow::Result<f64> {
        let routers = self.routers();
        let processes = if routers.is_empty() { vec![self.guests[0].id()] } else { routers };
        processes.into_iter().map(|id| Ok(Usage::look(id)?.memory_kib)).sum()
    }
}
