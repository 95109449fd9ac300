//! A QEMU guest that talks with this machine through ringway and a tap.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use ringway_extent::Extent;
use ringway_guests::{Side, Stage, iperf, net, qemu, traffic};

use super::scene::{GUEST, HERE, MTU, Scene, TAP, format_name};
use super::switches::Switches;

const JUMBO: u32 = 9000;

/// How often a guest reboots, and ringway is killed under it.
const REBOOTS: Extent = Extent::new("RINGWAY_REBOOTS", 1, 20);
const KILLS: Extent = Extent::new("RINGWAY_KILLS", 1, 20);

/// Longest time until traffic resumes.
const RESUME_LIMIT: Duration = Duration::from_secs(30);

/// Event index is packed event suppression on packed rings.
pub const SWITCHES: Switches = Switches {
    switches: [
        ("RING_PACKED", "packed", ["split", "packed"]),
        ("MRG_RXBUF", "mrg_rxbuf", ["big", "mergeable"]),
        ("EVENT_IDX", "event_idx", ["flags", "event_idx"]),
    ],
    values: ["off", "on"],
};

const ALWAYS: [(&str, bool); 4] =
    [("GUEST_TSO4", true), ("HOST_TSO4", true), ("CSUM", true), ("GUEST_CSUM", true)];

/// All traffic at an ordinary MTU, then full packets and TCP at a large one.
pub fn tap(stage: &Stage, switches: [bool; 3]) -> anyhow::Result<()> {
    let mut scene = boot(stage, &SWITCHES.options(switches), JUMBO)?;
    let _server = iperf::start_server(stage)?;
    scene.carry(0, HERE)?;
    stage.step("jumbo packets");
    qemu::set_up(&mut scene.guests[0], qemu::MAC, "10.98.1.2", JUMBO)?;
    traffic::full_packets(&mut scene.side(0), HERE, JUMBO)?;
    traffic::full_packets(&mut Side::Here, GUEST, JUMBO)?;
    traffic::tcp(&mut scene.side(0), HERE, 1, "")?;
    let negotiated = [&SWITCHES.negotiated(switches)[..], &ALWAYS].concat();
    scene.port(0)?.check_negotiated(format_name(switches[0]), &negotiated)?;
    scene.finish()?;
    net::wait_exists(TAP, false, RESUME_LIMIT)
}

/// The guest reboots while ringway runs; traffic resumes.
pub fn reboot(stage: &Stage) -> anyhow::Result<()> {
    let mut scene = boot(stage, "", MTU)?;
    let _server = iperf::start_server(stage)?;
    check_short_traffic(&mut scene)?;
    for round in 1..=REBOOTS.announced() {
        stage.step(&format!("reboot {round}"));
        let guest = &mut scene.guests[0];
        let mark = guest.mark();
        guest.send("0 reboot -f")?;
        guest.wait_ready(mark, qemu::BOOT_LIMIT)?;
        qemu::set_up(guest, qemu::MAC, GUEST, MTU)?;
        stage.step("traffic");
        check_short_traffic(&mut scene)?;
    }
    scene.finish()
}

/// Ringway is killed under the guest and started again; traffic resumes.
pub fn reconnect(stage: &Stage) -> anyhow::Result<()> {
    net::create_tap(TAP)?;
    let mut scene = boot(stage, "", MTU)?;
    let _server = iperf::start_server(stage)?;
    check_short_traffic(&mut scene)?;
    for round in 1..=KILLS.announced() {
        stage.step(&format!("kill {round}"));
        scene.kill()?;
        let started = Instant::now();
        wait_for_traffic()?;
        stage.step(&format!("traffic resumed after {:.1} s", started.elapsed().as_secs_f64()));
        check_short_traffic(&mut scene)?;
    }
    let is_connected = scene.port(0)?.is_connected();
    ensure!(is_connected, "the guest's traffic flows, and its port is not connected");
    scene.finish()?;
    ensure!(net::exists(TAP), "ringway removed a tap that it had not created");
    Ok(())
}

fn boot<'a>(stage: &'a Stage, device_options: &str, mtu: u32) -> anyhow::Result<Scene<'a>> {
    let machine = qemu::Machine { device_options, ..qemu::Machine::default() };
    Scene::qemu(stage, &machine, "", mtu, &[])
}

fn check_short_traffic(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    let mut side = scene.side(0);
    traffic::flood(&mut side, HERE, 1000)?;
    traffic::tcp(&mut side, HERE, 1, "")?;
    traffic::tcp(&mut side, HERE, 1, "-R")?;
    Ok(())
}

fn wait_for_traffic() -> anyhow::Result<()> {
    let deadline = Instant::now() + RESUME_LIMIT;
    while Side::Here.run(&format!("ping -c 1 -W 1 {GUEST}"))?.0 != 0 {
        if Instant::now() > deadline {
            bail!("no traffic {RESUME_LIMIT:?} after ringway was started again");
        }
        thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}
