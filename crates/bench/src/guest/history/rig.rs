//! A guest on a device that does as a row says, or on ringway itself, with a tap behind it.
//!
//! Limits: each rig has a subnet, a directory and a tap of its own, so that all can run at once.

use std::fs;
use std::path::Path;

use anyhow::Context;
use ringway_guests::console::Console;
use ringway_guests::process::Process;
use ringway_guests::ringway::Ringway;
use ringway_guests::stage::Stage;
use ringway_guests::traffic::{self, Side};
use ringway_guests::{iperf, net, qemu, uml};
use ringway_net::Features;

use super::super::pairing::{Options, Pairing};
use super::super::sides::Sides;
use super::device::{Device, Found};
use super::rows::Technique;
use crate::machine::{keeping_to, processors};
use crate::programs;

const MTU: u32 = 1500;

/// What QEMU offers its guest by itself, whatever the device does.
const OF_THE_MACHINE: Features = Features::MAC.union(Features::STATUS);

/// TCP out and in; pings from the guest and to it, with least, mean, greatest and deviation.
pub(super) type Figures = ([Option<f64>; 2], [Option<f64>; 8]);

#[derive(Debug)]
pub(super) struct Rig {
    pub name: &'static str,
    /// MTU-sized packets that the receive ring held when nothing had been received.
    pub capacity: Option<f64>,
    /// Features that were offered for the row and not accepted.
    pub refused: Features,
    number: usize,
    beside: Beside,
    guest: Console,
    _server: Process,
}

#[derive(Debug)]
enum Beside {
    Device(Device),
    Ringway(Ringway),
}

impl Rig {
    pub fn boot(
        (number, name, technique): (usize, &'static str, Technique),
        pairing: Pairing,
        directory: &Path,
    ) -> anyhow::Result<Self> {
        let sides = Sides::of(pairing, &processors());
        let directory = directory.join(format!("h{number}"));
        fs::create_dir_all(&directory)?;
        let stage = programs::stage(&directory, programs::ringway()?, None);
        let start = || start(&stage, number, technique, pairing);
        let (beside, server) = keeping_to(&sides.rest, start)??;
        let guest = sides.guest(0, || boot_guest(&stage, number, technique, pairing))?;
        let (capacity, refused) = (None, Features::empty());
        let mut rig = Self { name, capacity, refused, number, beside, guest, _server: server };
        if let Beside::Device(device) = &mut rig.beside {
            let Found { capacity, accepted } = device.found()?;
            rig.capacity = Some(f64::from(capacity));
            rig.refused = technique.features - accepted - OF_THE_MACHINE;
        }
        Ok(rig)
    }

    pub fn commands(&self) -> Vec<String> {
        let of_ringway = match &self.beside {
            Beside::Device(_) => None,
            Beside::Ringway(ringway) => Some(ringway.command()),
        };
        of_ringway.into_iter().chain([self.guest.command()]).map(str::to_string).collect()
    }

    pub fn take(&mut self, options: &Options) -> anyhow::Result<Figures> {
        let (seconds, pings) = (u32::try_from(options.seconds())?, options.pings / 10);
        let [here, there] = addresses(self.number);
        self.check()?;
        let mut guest = Side::Guest(&mut self.guest);
        guest.must(&format!("ping -c 2 -i 0.1 -W 10 {here}"))?;
        let rate = |guest: &mut Side<'_>, option| {
            anyhow::Ok(Some(traffic::tcp(guest, &here, seconds, option)?.gigabits()))
        };
        let rates = [rate(&mut guest, "")?, rate(&mut guest, "-R")?];
        let flood = |side: &mut Side<'_>, to: &str| {
            let text = side.run(&format!("ping -f -q -w 20 -c {pings} {to}"))?.1;
            traffic::round_trips_ms(&text).with_context(|| format!("ping: {text}"))
        };
        let times = [flood(&mut guest, &here)?, flood(&mut Side::Here, &there)?].concat();
        let mut pings = [None; 8];
        pings.iter_mut().zip(times).for_each(|(to, time)| *to = Some(time));
        self.check()?;
        Ok((rates, pings))
    }

    fn check(&mut self) -> anyhow::Result<()> {
        match &mut self.beside {
            Beside::Device(device) => device.check(),
            Beside::Ringway(_) => Ok(()),
        }
    }
}

fn addresses(number: usize) -> [String; 2] {
    [1, 2].map(|end| format!("10.91.{number}.{end}"))
}

fn start(
    stage: &Stage,
    number: usize,
    technique: Technique,
    pairing: Pairing,
) -> anyhow::Result<(Beside, Process)> {
    let (socket, tap) = (stage.file("vm.sock"), format!("rwh{number}"));
    let beside = if technique.is_ringway {
        let is_qemu = pairing == Pairing::QemuHost;
        let mac = if is_qemu { format!(",mac={}", qemu::MAC) } else { String::new() };
        let ports = [format!("vm=vm:{}{mac}", socket.display()), format!("up=tap:{tap}")];
        Beside::Ringway(Ringway::start(stage, &ports)?)
    } else {
        Beside::Device(Device::start(&socket, &tap, technique)?)
    };
    let [here, _] = addresses(number);
    net::set_up(&tap, &here, MTU)?;
    Ok((beside, iperf::start_server_at(stage, &here)?))
}

fn boot_guest(
    stage: &Stage,
    number: usize,
    technique: Technique,
    pairing: Pairing,
) -> anyhow::Result<Console> {
    let socket = stage.file("vm.sock");
    let [_, address] = addresses(number);
    if pairing == Pairing::UmlHost {
        let mut guest = uml::start(stage, &format!("umlh{number}"), &socket)?;
        uml::wait_booted(&mut guest, &address)?;
        return Ok(guest);
    }
    let size = technique.queue_size;
    let is_packed = technique.is_ringway || technique.features.contains(Features::RING_PACKED);
    let packed = if is_packed { ",packed=on" } else { "" };
    let device_options = format!(",rx_queue_size={size},tx_queue_size={size}{packed}");
    let machine = qemu::Machine { device_options: &device_options, ..Default::default() };
    let mut guest = qemu::boot(stage, &socket, &machine)?;
    qemu::set_up(&mut guest, qemu::MAC, &address, MTU)?;
    Ok(guest)
}
