//! A guest that boots after a data plane, or all of ringway, has ended gets no address that is in
//! use, and the guest that was there goes on. Ringway knows of leases from before its own start, as
//! it has a directory for them.
//!
//! Limits: the one that was there is QEMU's, because User Mode Linux never connects again.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use ringway_extent::Extent;
use ringway_guests::{Console, Ringway, Side, Stage, nat_lab, qemu, uml};

use super::scene::port;

const ENDS: Extent = Extent::new("RINGWAY_BOOTED_ENDS", 3, 21);

/// New guests behind one port: a router has eight leases for each.
const GUESTS_PER_PORT: u64 = 7;

/// Until the supervisor knows of the last lease.
const KNOWN_AFTER: Duration = Duration::from_millis(500);

const BOOT_LIMIT: Duration = Duration::from_secs(60);
const RESUME_LIMIT: Duration = Duration::from_secs(20);

/// Ringway as a service manager starts it.
const SERVICE: &str = "#!/bin/sh\nSTATE_DIRECTORY=$(dirname $0)/state exec BINARY \"$@\"\n";

pub fn ends(stage: &Stage) -> anyhow::Result<()> {
    let stage = &as_service(stage)?;
    let rounds = ENDS.announced();
    let names = (0..=rounds.div_ceil(GUESTS_PER_PORT)).map(|number| format!("vm{number}"));
    let mut ports: Vec<String> = names.map(|name| port(stage, &name, "")).collect();
    ports.push("net=nat:".to_string());
    let mut ringway = Ringway::start(stage, &ports)?;
    stage.step("the first guest");
    let mut first = qemu::boot(stage, &stage.socket("vm0"), &qemu::Machine::default())?;
    let its_address = address(&mut first)?;
    for round in 0..rounds {
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

/// The same stage, whose ringway has a directory for what outlives it.
fn as_service(stage: &Stage) -> anyhow::Result<Stage> {
    let mut programs = stage.programs.clone();
    let text = SERVICE.replace("BINARY", &programs.ringway.display().to_string());
    programs.ringway = stage.file("ringway");
    fs::write(&programs.ringway, text)?;
    fs::set_permissions(&programs.ringway, Permissions::from_mode(0o755))?;
    Ok(Stage::new(programs, stage.logs.clone(), &stage.directory))
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
    let port = format!("vm{}", 1 + round / GUESTS_PER_PORT);
    let mut guest = uml::start(stage, &format!("{port}-{round}"), &stage.socket(&port))?;
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
