//! One router with its guest, which has an address and the program that asks.

use std::fs;
use std::time::Duration;

use anyhow::Context;
use ringway_guests::{Console, Side, namespaces, nat_lab};
use ringway_testkit::Usage;

use super::super::pairing::Pairing;
use super::super::processor_time;
use super::super::sides::{Beside, Sides};
use super::Place;
use super::router::Router;
use crate::machine::{keeping_to, processors};
use crate::programs;

const BOOT_LIMIT: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct Rig {
    router: Router,
    /// How the client is started in the guest.
    pub client: String,
    is_qemu: bool,
    guest: Console,
    beside: Beside,
}

impl Rig {
    pub fn boot(router: Router, at: &Place<'_>) -> anyhow::Result<Self> {
        let sides = Sides::of(at.pairing, &processors());
        let directory = at.directory.join(format!("{}{}", at.pairing as u8, router as u8));
        fs::create_dir_all(&directory)?;
        let mut stage = programs::stage(&directory, programs::ringway()?, None);
        stage.guest_programs.push(at.client.into());
        let started = namespaces::within(at.machine.id(), || {
            let beside = keeping_to(&sides.rest, || router.start(&stage, at.pairing))??;
            let guest = sides.guest(0, || router.start_guest(&stage, at.pairing))?;
            anyhow::Ok((beside, guest))
        })?;
        let (beside, guest) = started?;
        guest.wait_ready(0, BOOT_LIMIT)?;
        let is_qemu = at.pairing == Pairing::QemuHost;
        let name = at.client.file_name().filter(|_| is_qemu).unwrap_or(at.client.as_os_str());
        let client = format!("{} nat-client", name.display());
        let mut rig = Self { router, client, is_qemu, guest, beside };
        rig.configure(at.pairing)?;
        Ok(rig)
    }

    fn configure(&mut self, pairing: Pairing) -> anyhow::Result<()> {
        let fixed = self.router.fixed(pairing);
        let mut side = self.side();
        if let Some([address, gateway]) = fixed {
            side.must("ip link set eth0 up").context("the guest has no device")?;
            side.must(&format!("ip addr add {address}/24 dev eth0"))?;
            return side.must(&format!("ip route add default via {gateway}")).map(drop);
        }
        nat_lab::lease(&mut side).map(drop)
    }

    pub fn side(&mut self) -> Side<'_> {
        Side::Guest(&mut self.guest)
    }

    pub fn commands(&self) -> Vec<String> {
        let beside = self.beside.process().map(|(command, _)| command);
        beside.into_iter().chain([self.guest.command()]).map(str::to_string).collect()
    }

    /// A clock of processor time in seconds: of the router, and of the guest.
    pub fn times(&self) -> impl Fn() -> [f64; 2] + use<> {
        let beside: Vec<u32> = self.beside.process().iter().map(|(_, id)| *id).collect();
        let (guest, is_qemu) = (self.guest.id(), self.is_qemu);
        move || {
            let of_network = if is_qemu { processor_time::of_first_thread(guest) } else { 0.0 };
            let all = processor_time::seconds(&[guest]);
            [processor_time::seconds(&beside) + of_network, all - of_network]
        }
    }

    pub fn memory_kib(&self) -> anyhow::Result<f64> {
        let process = self.beside.process().map_or(self.guest.id(), |(_, id)| id);
        Ok(Usage::look(process)?.memory_kib)
    }
}
