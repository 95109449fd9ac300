//! The bare-metal example on every kind of device it can have: our driver, no kernel above it.
//!
//! How: the guest is QEMU's own virtio-net device on a tap, or with user networking, or ringway's
//! device over vhost-user. This side pings it, asks for its page, and moves bytes whose sums both
//! sides compare.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::ensure;
use ringway_guests::{Console, Side, Stage, net, traffic};

use super::scene::{HERE, MTU, OFFLOADED_LEN_MIN, Scene, TAP, format_name};
use super::services::{self, Page};
use crate::paths::Paths;
use crate::unikernel::{self, Device, MAC, MachineType};

const GUEST: Ipv4Addr = Ipv4Addr::new(10, 98, 0, 2);

/// First of the ports that are forwarded with user networking.
const FORWARDED: u16 = 8080;

const BOOT_LIMIT: Duration = Duration::from_secs(30);

const FLOOD_PACKETS: u32 = 2_000;

const REQUESTS: u32 = 100;

/// Bytes of a transfer, and of one through user networking, which computes every checksum.
const TRANSFER_LEN: usize = 64 << 20;
const USER_TRANSFER_LEN: usize = 8 << 20;

#[derive(Debug)]
pub struct UnikernelCase {
    pub machine: MachineType,
    pub device: DeviceCase,
    pub packed: bool,
    /// How long its receive buffers are; `big` ones are not mergeable.
    pub scheme: &'static str,
    /// The device insists on ACCESS_PLATFORM.
    pub iommu_platform: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceCase {
    /// QEMU's own, on a tap.
    Tap,
    /// QEMU's own, with user networking and DHCP.
    User,
    /// Ringway's, and behind it a tap.
    Ringway,
}

impl UnikernelCase {
    /// Whether its device has MSI-X. With user networking on PCI it has none, to show that it is
    /// not needed; and QEMU before version 8 crashes where it has with vhost-user under software
    /// emulation.
    fn has_vectors(&self) -> bool {
        self.machine == MachineType::Q35 && self.device == DeviceCase::Tap
    }

    pub fn name(&self) -> String {
        let machine = if self.machine == MachineType::Q35 { "q35" } else { "microvm" };
        let device = match self.device {
            DeviceCase::Tap => "tap",
            DeviceCase::User => "user",
            DeviceCase::Ringway => "ringway",
        };
        let format = format_name(self.packed);
        let platform = if self.iommu_platform { "_iommu_platform" } else { "" };
        format!("{machine}_{device}_{format}_{}{platform}", self.scheme)
    }

    fn options(&self) -> String {
        let is_pci = self.machine == MachineType::Q35;
        [
            if self.packed { ",packed=on" } else { ",packed=off" },
            if is_pci && !self.has_vectors() { ",vectors=0" } else { "" },
            if self.iommu_platform { ",iommu_platform=on" } else { "" },
            if self.iommu_platform && is_pci { ",disable-legacy=on" } else { "" },
        ]
        .concat()
    }
}

pub fn serve(stage: &Stage, case: &UnikernelCase) -> anyhow::Result<()> {
    match case.device {
        DeviceCase::Tap => {
            net::create_tap(TAP)?;
            net::set_up(TAP, HERE, MTU)?;
            let netdev = format!("tap,id=n0,ifname={TAP},script=no,downscript=no,vnet_hdr=on");
            let _guest = boot(stage, case, &netdev, "")?;
            all_traffic(stage, case)
        }
        DeviceCase::User => {
            let _guest = boot(stage, case, &unikernel::user_netdev(FORWARDED), "")?;
            forwarded_traffic(stage, case)
        }
        DeviceCase::Ringway => {
            let mut scene = Scene::with_tap(stage, &format!(",mac={MAC}"), HERE, MTU)?;
            let socket = stage.socket("vm0");
            let chardev = format!("socket,id=c0,path={}", socket.display());
            let guest = boot(stage, case, "vhost-user,id=n0,chardev=c0", &chardev)?;
            all_traffic(stage, case)?;
            scene.guests.push(guest);
            scene.finish()
        }
    }
}

fn boot(
    stage: &Stage,
    case: &UnikernelCase,
    netdev: &str,
    chardev: &str,
) -> anyhow::Result<Console> {
    stage.step("guest");
    let memory = if chardev.is_empty() { String::new() } else { unikernel::shared_memory() };
    let options = case.options();
    let device = Device { netdev, options: &options, memory: &memory };
    let address = match case.device {
        DeviceCase::User => String::new(),
        _ => format!(" address={GUEST}/24"),
    };
    let words = format!("scheme={}{address}", case.scheme);
    let image = unikernel::image(&Paths::new());
    let mut command = unikernel::qemu(&image, case.machine, &device, &words);
    if !chardev.is_empty() {
        // In front of the device that names it, wherever that is.
        command.args(["-chardev", chardev]);
    }
    let started = Instant::now();
    let guest = Console::start(stage, "guest", command)?;
    if case.device == DeviceCase::User {
        guest.wait_for("first packet", 0, BOOT_LIMIT)?;
        let ms = started.elapsed().as_millis();
        stage.note(&format!("first packet sent {ms} ms after QEMU was started"));
    }
    guest.wait_for("address ", 0, BOOT_LIMIT)?;
    Ok(guest)
}

/// Tests that a tap allows: pings, and the device's offloads.
fn all_traffic(stage: &Stage, case: &UnikernelCase) -> anyhow::Result<()> {
    let at = |port| SocketAddr::from((GUEST, port));
    stage.step("pings");
    let guest = GUEST.to_string();
    let ping_ms = traffic::flood(&mut Side::Here, &guest, FLOOD_PACKETS)?;
    traffic::full_packets(&mut Side::Here, &guest, MTU)?;
    let first = requests(stage, at(80))?;
    services::echo(at(7))?;
    stage.step("sink");
    let (before, started) = (Page::fetch(at(80))?, Instant::now());
    services::fill_sink(at(9), TRANSFER_LEN)?;
    let (between, sink_s) = (Page::fetch(at(80))?, started.elapsed().as_secs_f64());
    stage.step("source");
    let started = Instant::now();
    services::drain_source(at(19), TRANSFER_LEN)?;
    let (after, source_s) = (Page::fetch(at(80))?, started.elapsed().as_secs_f64());
    let rx_len = mean_len(&before, &between, "rx")?;
    let tx_len = mean_len(&between, &after, "tx")?;
    stage.note(&format!(
        "ping {ping_ms:.3} ms, sink {sink_s:.1} s in packets of {rx_len} bytes, \
         source {source_s:.1} s in packets of {tx_len} bytes"
    ));
    ensure!(after.has(&["features", "CSUM", "GUEST_CSUM", "HOST_TSO4", "GUEST_TSO4"]), "{after:?}");
    let is_platform = after.has(&["features", "ACCESS_PLATFORM"]);
    ensure!(is_platform == case.iommu_platform, "ACCESS_PLATFORM: {is_platform}: {after:?}");
    ensure!(after.has(&["receive", &format!("{}:", case.scheme)]), "{after:?}");
    ensure!(rx_len >= OFFLOADED_LEN_MIN, "packets of {rx_len} bytes were received");
    ensure!(tx_len >= OFFLOADED_LEN_MIN, "packets of {tx_len} bytes were sent");
    check_interrupts(case, &first, &after)?;
    check_healthy(&first, &after)
}

/// Where the device has vectors (MSI-X) it interrupts, elsewhere the guest polls.
fn check_interrupts(case: &UnikernelCase, first: &Page, last: &Page) -> anyhow::Result<()> {
    if !case.has_vectors() {
        ensure!(last.has(&["interrupts", "off:"]), "{last:?}");
        return Ok(());
    }
    let [before, after] = [first.number("interrupts")?, last.number("interrupts")?];
    ensure!(after > before, "no interrupt after the first {before}");
    Ok(())
}

/// Tests that user networking allows: forwarded ports.
fn forwarded_traffic(stage: &Stage, case: &UnikernelCase) -> anyhow::Result<()> {
    let at = |behind| SocketAddr::from((Ipv4Addr::LOCALHOST, FORWARDED + behind));
    let first = requests(stage, at(0))?;
    services::echo(at(1))?;
    stage.step("sink and source");
    services::fill_sink(at(2), USER_TRANSFER_LEN)?;
    services::drain_source(at(3), USER_TRANSFER_LEN)?;
    let last = Page::fetch(at(0))?;
    check_interrupts(case, &first, &last)?;
    check_healthy(&first, &last)
}

/// Asks for the page many times, each on a connection of its own.
fn requests(stage: &Stage, address: SocketAddr) -> anyhow::Result<Page> {
    stage.step("requests");
    let first = Page::fetch(address)?;
    for _ in 1..REQUESTS {
        Page::fetch(address)?;
    }
    Ok(first)
}

/// Mean length of the packets of one direction between two pages.
fn mean_len(before: &Page, after: &Page, way: &str) -> anyhow::Result<u64> {
    let grown = |name: &str| {
        let name = format!("{way}_{name}");
        anyhow::Ok(after.number(&name)? - before.number(&name)?)
    };
    Ok(grown("bytes")? / grown("packets")?.max(1))
}

/// Nothing was dropped, and nothing was allocated since the first page.
fn check_healthy(first: &Page, last: &Page) -> anyhow::Result<()> {
    ensure!(last.drops().is_empty(), "drops: {:?}", last.drops());
    let heap = [first.number("heap left")?, last.number("heap left")?];
    ensure!(heap[0] == heap[1], "the heap went from {} to {} bytes", heap[0], heap[1]);
    Ok(())
}
