//! A QEMU guest that talks with this machine through ringway and a tap.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use ringway_guests::console::Console;
use ringway_guests::ringway::Ringway;
use ringway_guests::stage::Stage;
use ringway_guests::traffic::{self, Side};
use ringway_guests::{iperf, net, qemu};

use super::scene::{self, TAP, format_name};

/// Addresses of this side and the guest, through ringway.
const HERE: &str = "10.98.0.1";
const GUEST: &str = "10.98.0.2";

/// An ordinary MTU, and that of jumbo packets, in bytes.
const MTU: u32 = 1500;
const JUMBO: u32 = 9000;

/// Longest time until traffic resumes.
const RESUME_LIMIT: Duration = Duration::from_secs(30);

/// One way to set the device's switches.
#[derive(Debug)]
pub struct QemuCase {
    pub packed: bool,
    pub mergeable: bool,
    /// Event index, or packed event suppression.
    pub event_idx: bool,
}

impl QemuCase {
    pub fn name(&self) -> String {
        let format = format_name(self.packed);
        let mergeable = if self.mergeable { "mergeable" } else { "big" };
        let events = if self.event_idx { "event_idx" } else { "flags" };
        format!("{format}_{mergeable}_{events}")
    }

    fn options(&self) -> String {
        let [packed, mergeable, event_idx] =
            [self.packed, self.mergeable, self.event_idx].map(|on| if on { "on" } else { "off" });
        format!(",packed={packed},mrg_rxbuf={mergeable},event_idx={event_idx}")
    }

    fn negotiated(&self) -> [(&'static str, bool); 7] {
        [
            ("RING_PACKED", self.packed),
            ("MRG_RXBUF", self.mergeable),
            ("EVENT_IDX", self.event_idx),
            ("GUEST_TSO4", true),
            ("HOST_TSO4", true),
            ("CSUM", true),
            ("GUEST_CSUM", true),
        ]
    }
}

/// All traffic at an ordinary MTU, then full packets and TCP at a large one.
pub fn tap(stage: &Stage, case: &QemuCase) -> anyhow::Result<()> {
    let ringway = start_ringway(stage)?;
    scene::set_up_tap(HERE, JUMBO)?;
    let mut guest = boot(stage, &case.options())?;
    let _server = iperf::start_server(stage)?;
    let figures = traffic::carry(stage, &mut Side::Guest(&mut guest), HERE)?;
    stage.note(&figures.to_string());
    scene::check_offloads(stage, (&ringway, "vm0"), &mut guest, HERE)?;
    stage.step("jumbo packets");
    qemu::set_up(&mut guest, qemu::MAC, "10.98.1.2", JUMBO)?;
    traffic::full_packets(&mut Side::Guest(&mut guest), HERE, JUMBO)?;
    traffic::full_packets(&mut Side::Here, GUEST, JUMBO)?;
    traffic::tcp(&mut Side::Guest(&mut guest), HERE, 1, "")?;
    let port = ringway.port("vm0")?;
    port.check_negotiated(format_name(case.packed), &case.negotiated())?;
    port.check_healthy(&["no_room", "link_down"])?;
    drop(guest);
    ringway.finish()?;
    net::wait_exists(TAP, false, RESUME_LIMIT)
}

/// The guest reboots while ringway runs; traffic resumes.
pub fn reboot(stage: &Stage) -> anyhow::Result<()> {
    let ringway = start_ringway(stage)?;
    scene::set_up_tap(HERE, MTU)?;
    let mut guest = boot(stage, "")?;
    let _server = iperf::start_server(stage)?;
    check_short_traffic(&mut guest)?;
    for round in 1..=2 {
        stage.step(&format!("reboot {round}"));
        let mark = guest.mark();
        guest.send("0 reboot -f")?;
        guest.wait_ready(mark, qemu::BOOT_LIMIT)?;
        qemu::set_up(&mut guest, qemu::MAC, GUEST, MTU)?;
        stage.step("traffic");
        check_short_traffic(&mut guest)?;
    }
    ringway.port("vm0")?.check_healthy(&["no_room", "link_down"])?;
    drop(guest);
    ringway.finish()
}

/// Ringway is killed under the guest and started again, twice; traffic resumes.
pub fn reconnect(stage: &Stage) -> anyhow::Result<()> {
    net::create_tap(TAP)?;
    net::set_up(TAP, HERE, MTU)?;
    let mut ringway = start_ringway(stage)?;
    let mut guest = boot(stage, "")?;
    let _server = iperf::start_server(stage)?;
    check_short_traffic(&mut guest)?;
    for round in 1..=2 {
        stage.step(&format!("kill {round}"));
        ringway.kill();
        ringway = start_ringway(stage)?;
        let started = Instant::now();
        wait_for_traffic()?;
        stage.step(&format!("traffic resumed after {:.1} s", started.elapsed().as_secs_f64()));
        check_short_traffic(&mut guest)?;
    }
    let port = ringway.port("vm0")?;
    ensure!(port.is_connected(), "the guest's traffic flows, and its port is not connected");
    port.check_healthy(&["no_room", "link_down"])?;
    drop(guest);
    ringway.finish()?;
    ensure!(net::exists(TAP), "ringway removed a tap that it had not created");
    Ok(())
}

fn start_ringway(stage: &Stage) -> anyhow::Result<Ringway> {
    stage.step("ringway");
    let guest = scene::port(stage, "vm0", &format!(",mac={}", qemu::MAC));
    Ringway::start(stage, &[guest, format!("up=tap:{TAP}")])
}

/// Boots a guest and configures it for an ordinary MTU.
fn boot(stage: &Stage, device_options: &str) -> anyhow::Result<Console> {
    stage.step("guest");
    let machine = qemu::Machine { device_options, ..qemu::Machine::default() };
    let mut guest = qemu::boot(stage, &scene::socket(stage, "vm0"), &machine)?;
    qemu::set_up(&mut guest, qemu::MAC, GUEST, MTU)?;
    Ok(guest)
}

fn check_short_traffic(guest: &mut Console) -> anyhow::Result<()> {
    let mut side = Side::Guest(guest);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_options_follow_from_the_switches() {
        let case = QemuCase { packed: true, mergeable: false, event_idx: true };
        assert_eq!(case.name(), "packed_big_event_idx");
        assert_eq!(case.options(), ",packed=on,mrg_rxbuf=off,event_idx=on");
    }
}
