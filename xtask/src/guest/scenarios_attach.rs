//! What `ringway attach` prints is what each program takes: it is started with exactly that.

use std::time::Duration;

use anyhow::ensure;

use super::ringway::Ringway;
use super::stage::Stage;
use super::testpmd::Testpmd;
use super::uml::must;
use super::{net, qemu, uml};

/// The host's end and the guest's.
const ADDRESSES: [&str; 2] = ["10.95.0.1", "10.95.0.2"];

const TAP: &str = "tap0";

/// The port's own MAC address, which the guest must have.
const MAC: &str = "52:54:00:95:00:02";

const MTU: u32 = 1400;

/// Longest time until the tap is there.
const TAP_LIMIT: Duration = Duration::from_secs(10);

/// A port and an uplink.
fn start(stage: &Stage) -> anyhow::Result<Ringway> {
    let socket = stage.file("vm0.sock");
    let guest = format!("vm0=vm:{},mac={MAC},mtu={MTU}", socket.display());
    let ringway = Ringway::start(stage, &[guest, format!("up=tap:{TAP},mtu={MTU}")])?;
    net::wait_exists(TAP, true, TAP_LIMIT)?;
    net::set_up(TAP, ADDRESSES[0], MTU)?;
    Ok(ringway)
}

/// A User Mode Linux guest is pinged.
///
/// # Errors
/// What did not work.
pub fn uml(stage: &Stage) -> anyhow::Result<()> {
    let ringway = start(stage)?;
    let words = ringway.attach("vm0", "uml")?;
    stage.step(&words.join(" "));
    let mut guest = uml::start_with(stage, "vm0", &words)?;
    uml::wait_booted(&mut guest, ADDRESSES[1])?;
    let shown = must(&mut guest, "cat /sys/class/net/eth0/address /sys/class/net/eth0/mtu")?;
    ensure!(shown.contains(MAC) && shown.contains(&MTU.to_string()), "not as configured: {shown}");
    must(&mut guest, &format!("ping -c 3 -i 0.2 {}", ADDRESSES[0]))?;
    ringway.port("vm0")?.check_healthy(&["link_down"])?;
    drop(guest);
    ringway.finish()
}

/// A QEMU guest pings.
///
/// # Errors
/// What did not work.
pub fn qemu(stage: &Stage) -> anyhow::Result<()> {
    let ringway = start(stage)?;
    let arguments = ringway.attach("vm0", "qemu")?;
    stage.step(&arguments.join(" "));
    let mut guest = qemu::boot_with(stage, arguments, None)?;
    qemu::set_up(&mut guest, MAC, ADDRESSES[1], MTU)?;
    let ping = format!("ping -c 3 {}", ADDRESSES[0]);
    let (status, text) = guest.run(&ping, Duration::from_secs(20))?;
    ensure!(status == 0, "{ping}: status {status}:\n{text}");
    let port = ringway.port("vm0")?;
    port.check_negotiated("split", &[("MTU", true)])?;
    port.check_healthy(&["link_down"])?;
    drop(guest);
    ringway.finish()
}

/// A DPDK program starts its queues.
///
/// # Errors
/// What did not work.
pub fn dpdk(stage: &Stage) -> anyhow::Result<()> {
    let ringway = start(stage)?;
    let options = ringway.attach("vm0", "dpdk")?;
    stage.step(&options.join(" "));
    let testpmd = Testpmd::start_with(stage, &options, "--forward-mode=5tswap")?;
    ringway.port("vm0")?.check_negotiated("packed", &[("VERSION_1", true)])?;
    testpmd.finish()?;
    ringway.finish()
}
