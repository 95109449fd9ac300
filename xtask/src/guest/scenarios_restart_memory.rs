//! The data plane is killed while it serves a guest that has touched much memory: the kernel unmaps
//! all of it before it tells of the death, and the next one must not wait for that.
//!
//! Limits: how long it took is told and not judged; a machine that does something else is slow.

use std::thread;
use std::time::Duration;

use anyhow::{Context, ensure};
use ringway_guests::qemu;
use ringway_guests::stage::Stage;
use ringway_guests::traffic::Side;

use super::scenarios_restart;
use super::scene::{GUEST, HERE, MTU, Scene};

/// Names how much memory the guest touches, in MiB: 4096 needs as much, and half a minute.
const MEMORY: &str = "RINGWAY_RESTART_MEMORY_MIB";
const MEMORY_DEFAULT_MIB: u32 = 512;

/// What the guest has beside that, in MiB.
const REST_MIB: u32 = 512;

/// Written by one command, which has a time limit.
const PART_MIB: u32 = 256;

const KILLS: usize = 5;
const PAUSE: Duration = Duration::from_millis(500);

/// In the log, with the time in front of it.
const SERVES: &str = "a new data plane serves, ";

pub fn qemu(stage: &Stage) -> anyhow::Result<()> {
    let named = std::env::var(MEMORY).ok().and_then(|mib| mib.parse().ok());
    let touched_mib: u32 = named.unwrap_or(MEMORY_DEFAULT_MIB);
    let memory = format!("{}M", touched_mib + REST_MIB);
    let machine = qemu::Machine { memory: &memory, ..qemu::Machine::default() };
    let mut scene = Scene::qemu(stage, &machine, "", MTU, &[])?;
    stage.step(&format!("the guest touches {touched_mib} MiB"));
    scene.must(0, &format!("mount -o remount,size={touched_mib}M /tmp"))?;
    for part in 0..touched_mib / PART_MIB {
        let line = format!("dd if=/dev/zero of=/tmp/part{part} bs=1M count={}", PART_MIB - 1);
        scene.must(0, &line)?;
    }
    for _ in 0..KILLS {
        scene.ringway.kill_data_plane()?;
        thread::sleep(PAUSE);
        Side::Here.must(&format!("ping -c 1 -W 5 {GUEST}"))?;
    }
    scene.must(0, &format!("ping -c 3 -i 0.2 {HERE}"))?;
    let printed = scene.ringway.printed();
    let times = printed.lines().filter_map(|line| line.split_once(SERVES));
    let times_ms = times.map(|(_, rest)| rest.split(' ').next().unwrap_or_default());
    let times_ms: Vec<&str> = times_ms.collect();
    ensure!(times_ms.len() == KILLS, "{} data planes were started", times_ms.len());
    stage.note(&format!("the next one served after {} ms", times_ms.join(", ")));
    scenarios_restart::check_stayed(&scene.ringway).context("after all")?;
    scene.finish()
}
