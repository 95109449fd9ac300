//! A guest that boots after a data plane, or all of ringway, has ended gets no address that is in
//! use, and the guest that was there goes on.
//!
//! Limits: the one that was there is QEMU's, because User Mode Linux never connects again.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use ringway_extent::Extent;
use ringway_guests::{Console, Ringway, Side, Stage, nat_lab, qemu, uml};

use super::scene::port;

const ENDS: Extent = Extent::new("RINGWAY_BOOTED_ENDS", 3, 21);

/// Until the supervisor knows of the last lease.
const KNOWN_AFTER: Duration = Duration::from_millis(500);

const BOOT_LIMIT: Duration = Duration::from_secs(60);
const RESUME_LIMIT: Duration = Duration::from_secs(20);

pub fn ends(stage: &Stage) -> anyhow::Result<()> {
    let names = ["vm0", "vm1"].map(|name| port(stage, name, ""));
    let ports = [&names[..], &["net=nat:".to_string()]].concat();
    let mut ringway = Ringway::start(stage, &ports)?;
    stage.step("the first guest");
    let mut first = qemu::boot(stage, &stage.socket("vm0"), &qemu::Machine::default())?;
    let its_address = address(&mut first)?;
    for round in 0..ENDS.announced() {
        thread::sleep(KNOWN_AFTER);
        ringway = end(stage, ringway, &ports, round)?;
        let mut next = boot(stage, round)?;
        let address = address(&mut next)?;
        stage.step(&format!("round {round}: {address}"));
        ensure!(address != its_address, "round {round}: two guests have {address}");
        answers(&mut first, "10.0.2.2").context("the router, to the first guest")?;
        answers(&mut next, &its_address).context("the first guest, to the next one")?;
    }
    ringway.finish()
}

/// Kills the data plane, replaces it, or starts all of ringway anew, in turns.
fn end(stage: &Stage, ringway: Ringway, ports: &[String], round: u64) -> anyhow::Result<Ringway> {
    match round % 3 {
        0 => ringway.kill_data_plane()?,
        1 => ringway.upgrade()?,
        _ => {
            ringway.finish()?;
            return Ringway::start(stage, ports);
        }
    }
    Ok(ringway)
}

/// A guest that was never here before.
fn boot(stage: &Stage, round: u64) -> anyhow::Result<Console> {
    let mut guest = uml::start(stage, &format!("vm1-{round}"), &stage.socket("vm1"))?;
    guest.wait_ready(0, BOOT_LIMIT)?;
    let mac = format!("ip link set eth0 address 52:54:00:93:00:{:02x}", round % 256);
    Side::Guest(&mut guest).must(&mac)?;
    Ok(guest)
}

fn address(guest: &mut Console) -> anyhow::Result<String> {
    let given = nat_lab::lease(&mut Side::Guest(guest))?;
    let address = given.split_whitespace().nth(1);
    Ok(address.with_context(|| format!("no lease: {given:?}"))?.to_string())
}

/// A front-end of QEMU's connects again once a second.
fn answers(guest: &mut Console, address: &str) -> anyhow::Result<()> {
    let deadline = Instant::now() + RESUME_LIMIT;
    while Side::Guest(guest).run(&format!("ping -c 1 -W 1 {address}"))?.0 != 0 {
        ensure!(Instant::now() < deadline, "{address} does not answer");
    }
    Ok(())
}
