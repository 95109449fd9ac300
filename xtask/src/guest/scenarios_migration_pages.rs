//! No page is missing in the copy of a guest that has moved: both memories are compared while both
//! QEMU stand still.
//!
//! How: with big receive buffers there are pages that only the device writes; a guest with
//! mergeable buffers writes into each page that it gets, and hides pages that were not marked. One
//! scenario runs without marks, and has to find pages that differ.
//!
//! Limits: ringway is built with debug assertions, as only these builds can be told not to mark.
//! QEMU is the newest one: 7.2 misses pages by itself that an emulated processor writes while
//! memory is copied round after round, also those of a guest without any network device.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, anyhow, bail, ensure};
use ringway_extent::Extent;
use ringway_guests::monitor::Monitor;
use ringway_guests::numbered::{Numbered, Pace};
use ringway_guests::{Ringway, Stage};

use serde_json::Value;

use super::migration_scene::{Device, MigrationGuest, Scene, set_speed, wait_completed};

/// How often a guest moves in each scenario.
const ROUNDS: Extent = Extent::new("RINGWAY_MIGRATIONS_COMPARED", 2, 20);

const BIG_BUFFERS: &str = ",mrg_rxbuf=off,rx_queue_size=256";

/// Towards the guest: 60 MB/s at most.
const FLOOD: Pace = Pace { chunk_len: 300_000, pause: Duration::from_millis(5) };

/// In bytes a second and milliseconds: so slow that it does not end; round after round, as a guest
/// under traffic never stands still for so short a time; and to the end.
const SLOW: [u64; 2] = [30_000_000, 1];
const ROUND_AFTER_ROUND: [u64; 2] = [2_000_000_000, 1];
const TO_THE_END: [u64; 2] = [2_000_000_000, 5000];

/// How long memory is copied slowly, and round after round.
const SLOW_TIME: Duration = Duration::from_secs(2);
/// Between two deaths, and between two upgrades; of either there is one at least.
const DEATH_PAUSE: Duration = Duration::from_millis(200);
const UPGRADE_PAUSE: Duration = Duration::from_millis(500);
const HAPPENED_MIN: u32 = 1;

/// Pages that have to differ where nothing is marked.
const UNMARKED_MIN: usize = 10;

const PAGE_LEN: usize = 4096;

/// The log of ringway says so of a front-end that has left, or was disconnected.
const GONE: &str = "front-end gone";

/// The memory of a QEMU among its files.
const MEMORY_FILE: &str = "memfd:memory-backend-memfd";

const NO_MARKS: &str = "RINGWAY_TEST_NO_MARKS";

/// The fate of the source's ringway while memory is copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disturbance {
    Nothing,
    Kills,
    Upgrades,
}

/// No page differs.
pub fn marked(stage: &Stage, options: &str, disturbance: Disturbance) -> anyhow::Result<()> {
    let options = format!("{BIG_BUFFERS}{options}");
    let mut scene = Scene::start(stage, Device { options: &options, pairs: 1 })?;
    let flood = flood(&mut scene)?;
    let rounds = ROUNDS.announced();
    for _ in 0..rounds {
        let (next, differ) = move_paused(&mut scene, &flood, disturbance)?;
        ensure!(differ.is_empty(), "{} pages differ: {differ:?}", differ.len());
        scene.go_on_at(next)?;
        flood.wait_for_more().context("towards the guest")?;
    }
    stage.note(&format!("{rounds} times no page differs"));
    flood.finish()?;
    scene.finish()
}

/// The same without marks: the comparison finds pages that are missing.
pub fn unmarked(stage: &Stage) -> anyhow::Result<()> {
    let stage = without_marks(stage)?;
    let mut scene = Scene::start(&stage, Device { options: BIG_BUFFERS, pairs: 1 })?;
    let flood = flood(&mut scene)?;
    let (_, differ) = move_paused(&mut scene, &flood, Disturbance::Nothing)?;
    let text = format!("{} pages differ without marks", differ.len());
    stage.note(&text);
    ensure!(differ.len() > UNMARKED_MIN, "{text}: the comparison proves nothing");
    Ok(())
}

/// The guest is sent as much as it takes, and reads it.
fn flood(scene: &mut Scene<'_>) -> anyhow::Result<Numbered> {
    let stream = scene.accept("</dev/null >/dev/null 2>&1 &")?;
    let flood = Numbered::swallowed(stream, FLOOD)?;
    flood.wait_for_more()?;
    Ok(flood)
}

/// The guest moves, and stays paused: its new place, and the pages that differ there.
fn move_paused(
    scene: &mut Scene<'_>,
    flood: &Numbered,
    disturbance: Disturbance,
) -> anyhow::Result<(MigrationGuest, Vec<usize>)> {
    let mut next = scene.start_incoming(&["-S"])?;
    set_speed(&mut scene.guest.monitor, SLOW)?;
    scene.begin(&mut next)?;
    let before = flood.moved();
    let gone = |ringway: &Ringway| ringway.printed().matches(GONE).count();
    let is_over = AtomicBool::new(false);
    let (stage, host) = (scene.stage, scene.guest.host);
    let (ringway, monitor) = (&scene.ringways[host], &mut scene.guest.monitor);
    let gone_before = gone(ringway);
    let (happened, told) = thread::scope(|scope| {
        let disturber = scope.spawn(|| disturb(ringway, disturbance, &is_over));
        let told = complete(monitor, &mut next.monitor);
        is_over.store(true, Ordering::Relaxed);
        let happened = disturber.join().map_err(|_| anyhow!("it panicked"))?;
        anyhow::Ok((happened?, told?))
    })?;
    ensure!(gone(ringway) == gone_before, "QEMU lost its connection to ringway");
    let megabytes = (flood.moved() - before) / 1_000_000;
    let differ = differing([scene.guest.console.id(), next.console.id()])?;
    stage.step(&format!(
        "{happened} {disturbance:?}: {} pages differ, {megabytes} MB came in {} rounds of copying",
        differ.len(),
        told["ram"]["dirty-sync-count"]
    ));
    Ok((next, differ))
}

/// Memory is copied slowly, round after round, and to the end; what the source tells of that.
fn complete(from: &mut Monitor, to: &mut Monitor) -> anyhow::Result<Value> {
    for speed in [ROUND_AFTER_ROUND, TO_THE_END] {
        thread::sleep(SLOW_TIME);
        set_speed(from, speed)?;
    }
    let told = wait_completed(from)?;
    wait_completed(to)?;
    Ok(told)
}

/// Until all is over; how often it happened.
fn disturb(
    ringway: &Ringway,
    disturbance: Disturbance,
    is_over: &AtomicBool,
) -> anyhow::Result<u32> {
    let mut count = 0;
    while disturbance != Disturbance::Nothing && !is_over.load(Ordering::Relaxed) {
        match disturbance {
            Disturbance::Upgrades => {
                thread::sleep(UPGRADE_PAUSE);
                ringway.upgrade()?;
                count += 1;
            }
            _ => {
                thread::sleep(DEATH_PAUSE);
                // The next one may not have begun yet.
                count += u32::from(ringway.kill_data_plane().is_ok());
            }
        }
    }
    let wanted = if disturbance == Disturbance::Nothing { 0 } else { HAPPENED_MIN };
    ensure!(count >= wanted, "{disturbance:?}: {count} times only");
    Ok(count)
}

/// The numbers of pages that are not the same in the memory of both processes.
fn differing(processes: [u32; 2]) -> anyhow::Result<Vec<usize>> {
    let [one, other] = [memory(processes[0])?, memory(processes[1])?];
    let len = usize::try_from(one.metadata()?.len())?;
    ensure!(len as u64 == other.metadata()?.len() && len > 0, "memories of different sizes");
    let mut differ = Vec::new();
    let [mut here, mut there] = [[0; PAGE_LEN]; 2];
    for page in 0..len / PAGE_LEN {
        let at = (page * PAGE_LEN) as u64;
        one.read_exact_at(&mut here, at)?;
        other.read_exact_at(&mut there, at)?;
        differ.extend((here != there).then_some(page));
    }
    Ok(differ)
}

/// The file that is the memory of a guest.
fn memory(process: u32) -> anyhow::Result<File> {
    for entry in fs::read_dir(format!("/proc/{process}/fd"))? {
        let path = entry?.path();
        let name = fs::read_link(&path).unwrap_or_default();
        if name.to_string_lossy().contains(MEMORY_FILE) {
            return File::open(&path).with_context(|| path.display().to_string());
        }
    }
    bail!("QEMU {process}: no {MEMORY_FILE}")
}

/// The same stage, where ringway marks nothing.
fn without_marks(stage: &Stage) -> anyhow::Result<Stage> {
    let wrapper = stage.file("ringway-without-marks");
    let binary = stage.programs.ringway.display();
    fs::write(&wrapper, format!("#!/bin/sh\n{NO_MARKS}=1 exec {binary} \"$@\"\n"))?;
    fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755))?;
    let mut programs = stage.programs.clone();
    programs.ringway = wrapper;
    Ok(Stage::new(programs, stage.logs.clone(), &stage.directory))
}
