//! One thing to be measured: guests that are booted and addressed, and what carries their traffic.
//!
//! Limits: each rig has a subnet, a directory and taps of its own, so that all can run at once.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use ringway_guests::testpmd::vhost;
use ringway_guests::{Console, Process, Ringway, Side, Stage, Testpmd, iperf, net, qemu, uml};

use super::history::device::Device;
use super::history::rows::Technique;
use super::pairing::Pairing;
use super::sides::{Beside, Sides};
use crate::machine::{keeping_to, processors};
use crate::programs;

const INTERFACE_LIMIT: Duration = Duration::from_secs(10);

const MTU: u32 = 1500;

/// Options of DPDK's device and of the program: what comes in on one port goes out on the other.
const DPDK_OPTIONS: &str = "--forward-mode=io";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Carrier {
    /// Ringway, with a tap where this machine takes part.
    Ringway,
    /// The network of the guest's own machine: a tap, and a bridge between two of them.
    Own,
    /// DPDK's vhost-user device and its tap.
    Dpdk,
    /// The device of a row of the history, with a tap: one of this program, or ringway itself.
    Row(Technique),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RigPlan {
    pub pairing: Pairing,
    pub carrier: Carrier,
    /// One that no other plan has.
    pub number: u8,
}

impl RigPlan {
    /// All that are compared for one pairing; ringway first.
    pub fn all(pairing: Pairing) -> Vec<Self> {
        let carriers: &[Carrier] = match pairing {
            // User Mode Linux hangs on DPDK's control queue, which is never answered.
            Pairing::QemuHost => &[Carrier::Ringway, Carrier::Own, Carrier::Dpdk],
            Pairing::UmlHost | Pairing::UmlPair => &[Carrier::Ringway, Carrier::Own],
        };
        let plan = |(&carrier, number)| Self { pairing, carrier, number };
        carriers.iter().zip(10 * pairing as u8 + 1..).map(plan).collect()
    }

    pub fn name(self) -> &'static str {
        match (self.carrier, self.pairing) {
            (Carrier::Ringway, Pairing::UmlPair) => "ringway's switch",
            (Carrier::Ringway, _) => "ringway + tap",
            (Carrier::Own, Pairing::QemuHost) => "QEMU's own tap",
            (Carrier::Own, Pairing::UmlHost) => "UML's vector tap",
            (Carrier::Own, Pairing::UmlPair) => "Linux bridge, two vector taps",
            (Carrier::Dpdk, _) => "DPDK vhost + tap",
            (Carrier::Row(_), _) => "row of the history",
        }
    }

    fn tap(self, end: u8) -> String {
        format!("rw{}t{end}", self.number)
    }

    fn address(self, end: u8) -> String {
        format!("10.90.{}.{end}", self.number)
    }
}

/// Running guests, and what carries their traffic.
#[derive(Debug)]
pub(super) struct Rig {
    pub plan: RigPlan,
    /// Where commands run.
    asking: Console,
    /// The other guest, if this machine is not the other side.
    answering: Option<Console>,
    beside: Beside,
    /// Of this machine, where it is the other side.
    _server: Option<Process>,
}

impl Rig {
    pub fn boot(plan: RigPlan, directory: &Path) -> anyhow::Result<Self> {
        let sides = Sides::of(plan.pairing, &processors());
        keeping_to(&sides.rest, || Self::boot_with(plan, &sides, directory))?
    }

    fn boot_with(plan: RigPlan, sides: &Sides, directory: &Path) -> anyhow::Result<Self> {
        let directory = directory.join(plan.number.to_string());
        fs::create_dir_all(&directory)?;
        let dpdk = if plan.carrier == Carrier::Dpdk { Some(programs::dpdk()?) } else { None };
        let stage = programs::stage(&directory, programs::ringway()?, dpdk);
        let beside = plan.carry(&stage)?;
        let mut guests = Vec::new();
        // All start before the first is waited for.
        for (number, &end) in plan.ends().iter().enumerate() {
            guests.push(sides.guest(number, || plan.start_guest(&stage, end))?);
        }
        for (guest, &end) in guests.iter_mut().zip(plan.ends()) {
            plan.set_up_guest(guest, end)?;
        }
        let asking = guests.pop().context("no guest")?;
        let mut answering = guests.pop();
        let server = match &mut answering {
            Some(guest) => uml::must(guest, "iperf3 -s -D").map(|_| None)?,
            None => Some(iperf::start_server_at(&stage, &plan.address(1))?),
        };
        let mut rig = Self { plan, asking, answering, beside, _server: server };
        rig.rest()?;
        Ok(rig)
    }

    /// Where commands run: always in a guest.
    pub fn side(&mut self) -> Side<'_> {
        Side::Guest(&mut self.asking)
    }

    /// The address of the guest that answers pings and iperf3.
    pub fn address(&self) -> String {
        self.plan.address(1)
    }

    /// The guest that asks otherwise.
    pub fn guest_address(&self) -> String {
        self.plan.address(2)
    }

    /// Guests are notified by this policy from now on, as after `notify=`.
    pub fn set_policy(&self, policy: &str) -> anyhow::Result<()> {
        let Beside::Ringway(ringway) = &self.beside else { bail!("only ringway has policies") };
        ensure!(self.answering.is_none(), "only one guest is told a policy");
        ringway.set("vm", &format!("notify={policy}"))
    }

    /// Bytes that have passed this machine's end of the tap: from the guest, and to it.
    pub fn tap_bytes(&self) -> anyhow::Result<[u64; 2]> {
        net::bytes(&self.plan.tap(2))
    }

    fn guests(&self) -> impl Iterator<Item = &Console> {
        [Some(&self.asking), self.answering.as_ref()].into_iter().flatten()
    }

    pub fn commands(&self) -> Vec<String> {
        let beside = self.beside.process().map(|(command, _)| command);
        let commands = beside.into_iter().chain(self.guests().map(Console::command));
        commands.map(str::to_string).collect()
    }

    /// The guests' processes, and those of what runs beside them.
    pub fn processes(&self) -> [Vec<u32>; 2] {
        let beside = self.beside.process().map(|(_, id)| id);
        [self.guests().map(Console::id).collect(), beside.into_iter().collect()]
    }

    pub fn device(&mut self) -> Option<&mut Device> {
        if let Beside::Device(device) = &mut self.beside { Some(device) } else { None }
    }

    /// Its turn begins: packets can move.
    pub fn work(&mut self) -> anyhow::Result<()> {
        match &mut self.beside {
            Beside::Testpmd(testpmd) => testpmd.forward(true),
            Beside::Device(device) => device.check(),
            _ => Ok(()),
        }
    }

    /// Its turn is over: what would take a processor without packets stands still.
    pub fn rest(&mut self) -> anyhow::Result<()> {
        if let Beside::Testpmd(testpmd) = &mut self.beside {
            testpmd.forward(false)?;
        }
        // Packets on their way arrive, so that no turn has the end of another's traffic in it.
        thread::sleep(Duration::from_millis(50));
        Ok(())
    }
}

impl RigPlan {
    /// The guests, by the last number of their addresses; the last one asks.
    fn ends(self) -> &'static [u8] {
        if self.pairing == Pairing::UmlPair { &[1, 2] } else { &[2] }
    }

    fn socket(self, stage: &Stage, end: u8) -> PathBuf {
        stage.file(&format!("vm{end}.sock"))
    }

    fn carry(self, stage: &Stage) -> anyhow::Result<Beside> {
        let (tap, is_pair) = (self.tap(2), self.pairing == Pairing::UmlPair);
        let beside = match self.carrier {
            Carrier::Row(technique) if !technique.is_ringway => {
                Beside::Device(Device::start(&self.socket(stage, 2), &tap, technique)?)
            }
            Carrier::Ringway | Carrier::Row(_) => {
                let port = |&end: &u8| {
                    let name = if is_pair { format!("vm{end}") } else { "vm".into() };
                    let socket = self.socket(stage, end);
                    let mac = match self.pairing {
                        Pairing::QemuHost => format!(",mac={}", qemu::MAC),
                        _ => String::new(),
                    };
                    format!("{name}=vm:{}{mac}", socket.display())
                };
                let mut ports: Vec<String> = self.ends().iter().map(port).collect();
                ports.extend((!is_pair).then(|| format!("up=tap:{tap}")));
                Beside::Ringway(Ringway::start(stage, &ports)?)
            }
            Carrier::Own => {
                for &end in self.ends() {
                    net::create_tap(&self.tap(end))?;
                }
                if is_pair {
                    let bridge = format!("rw{}b", self.number);
                    net::ip(&format!("link add {bridge} type bridge"))?;
                    net::ip(&format!("link set {bridge} up"))?;
                    for &end in self.ends() {
                        net::ip(&format!("link set {} master {bridge} up", self.tap(end)))?;
                    }
                }
                Beside::None
            }
            Carrier::Dpdk => {
                let has_tap = stage.programs.dpdk.as_ref().is_some_and(|dpdk| dpdk.has_tap());
                ensure!(has_tap, "DPDK's driver for taps (librte_net_tap) is not there");
                let net_tap = ["--vdev".to_string(), format!("net_tap0,iface={tap}")];
                let devices = [vhost(0, &self.socket(stage, 2), ""), net_tap].concat();
                Beside::Testpmd(Testpmd::start_with(stage, &devices, DPDK_OPTIONS)?)
            }
        };
        if !is_pair {
            net::wait_exists(&tap, true, INTERFACE_LIMIT)?;
            net::set_up(&tap, &self.address(1), MTU)?;
        }
        Ok(beside)
    }

    fn start_guest(self, stage: &Stage, end: u8) -> anyhow::Result<Console> {
        let (socket, tap) = (self.socket(stage, end), self.tap(end));
        let name = format!("uml{}{end}", self.number);
        match (self.pairing, self.carrier) {
            (Pairing::QemuHost, Carrier::Own) => qemu::boot_on_tap(stage, &tap),
            (Pairing::QemuHost, Carrier::Row(technique)) => {
                let device_options = &technique.qemu_options();
                qemu::boot(stage, &socket, &qemu::Machine { device_options, ..Default::default() })
            }
            (Pairing::QemuHost, _) => qemu::boot(stage, &socket, &qemu::Machine::default()),
            (_, Carrier::Own) => uml::start_on_tap(stage, &name, &tap),
            _ => uml::start(stage, &name, &socket),
        }
    }

    fn set_up_guest(self, guest: &mut Console, end: u8) -> anyhow::Result<()> {
        let address = self.address(end);
        if self.pairing == Pairing::QemuHost {
            return qemu::set_up(guest, qemu::MAC, &address, MTU);
        }
        let device = if self.carrier == Carrier::Own { "vec0" } else { "eth0" };
        uml::wait_booted_with(guest, device, &address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAIRINGS: [Pairing; 3] = [Pairing::QemuHost, Pairing::UmlHost, Pairing::UmlPair];

    #[test]
    fn all_can_be_there_at_once() {
        let plans: Vec<RigPlan> = PAIRINGS.into_iter().flat_map(RigPlan::all).collect();
        for (at, plan) in plans.iter().enumerate() {
            assert!(plan.tap(2).len() < 16, "the name of an interface has at most 15 bytes");
            for other in &plans[..at] {
                assert_ne!(plan.address(1), other.address(1));
                assert_ne!(plan.tap(1), other.tap(1));
                assert!(plan.pairing != other.pairing || plan.name() != other.name());
            }
        }
    }

    #[test]
    fn ringway_is_what_others_are_compared_with() {
        for pairing in PAIRINGS {
            assert_eq!(RigPlan::all(pairing)[0].carrier, Carrier::Ringway);
        }
    }
}
