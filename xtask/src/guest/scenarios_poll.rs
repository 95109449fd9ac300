//! Polling: a guest on a ringway that never polls, and one on a ringway that may.
//!
//! Checks that nothing gets lost, that the worker that may poll does so under a flood of pings,
//! within its budget, and the other never, and that an idle one sleeps.
//!
//! Limits: how many looks find something is not judged: none does where the guest, the worker and
//! what pings share what processors there are, and then looking ends by itself.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use ringway_control::protocol::WorkerStats;
use ringway_guests::{Stage, iperf, traffic};

use super::scene::{GUEST, HERE, MTU, Scene, TAP, port, rates, set_up_tap};

const IDLE_ATTEMPTS: u32 = 8;

const FLOOD_ATTEMPTS: u32 = 5;

/// The longest polling for nothing beyond the budget, in nanoseconds: savings, and the look during
/// which they end.
const SAVINGS_NS: u128 = 3_000_000;

pub fn poll(stage: &Stage) -> anyhow::Result<()> {
    let _server = iperf::start_server(stage)?;
    ["never", "auto"].into_iter().try_for_each(|mode| poll_as(stage, mode))
}

fn poll_as(stage: &Stage, mode: &str) -> anyhow::Result<()> {
    stage.step(&format!("a guest and a tap, --poll {mode}"));
    let started = Instant::now();
    let ports = [port(stage, "vm0", ""), format!("up=tap:{TAP}")];
    let mut scene = Scene::start(stage, &ports, &["--poll", mode])?;
    set_up_tap(HERE, MTU)?;
    scene.boot_uml(&[GUEST])?;
    // It shall not talk unasked.
    scene.must(0, "echo 1 > /proc/sys/net/ipv6/conf/eth0/disable_ipv6; true")?;
    talk(&mut scene, mode)?;
    check(&mut scene, mode, started)?;
    check_idle(&scene, mode)?;
    scene.finish()
}

fn worker(scene: &Scene<'_>) -> anyhow::Result<WorkerStats> {
    Ok(scene.ringway.workers()?.remove(0))
}

fn flood(scene: &mut Scene<'_>) -> anyhow::Result<f64> {
    traffic::flood(&mut scene.side(0), HERE, traffic::FLOOD_PACKETS)
}

fn talk(scene: &mut Scene<'_>, mode: &str) -> anyhow::Result<()> {
    let ping_ms = flood(scene)?;
    let [out, back] = rates(&mut scene.side(0), HERE, 1, "")?;
    let figures = format!("ping -f {ping_ms:.3} ms, out {out:.2} Gb/s, in {back:.2} Gb/s");
    scene.stage.note(&format!("--poll {mode}: {figures}"));
    Ok(())
}

/// The one that may not poll has not; the other has, and not more for nothing than the budget says.
fn check(scene: &mut Scene<'_>, mode: &str, started: Instant) -> anyhow::Result<()> {
    let mut found = worker(scene)?;
    if mode == "never" {
        let is_right = looks(&found) == 0 && found.total.polled_ns == 0;
        ensure!(is_right, "--poll never: {found:?}");
        return Ok(());
    }
    for _ in 1..FLOOD_ATTEMPTS {
        if looks(&found) == 0 {
            flood(scene)?;
            found = worker(scene)?;
        }
    }
    let percent = u128::from(found.poll_budget_percent);
    let at_most_ns = started.elapsed().as_nanos() * percent / 100 + SAVINGS_NS;
    scene.stage.step(&format!("{mode}: {} looks", looks(&found)));
    let is_within = u128::from(found.in_vain_ns) <= at_most_ns;
    ensure!(looks(&found) > 0 && is_within, "--poll {mode}: {found:?}");
    Ok(())
}

/// Some second passes without a wake-up and without polling.
fn check_idle(scene: &Scene<'_>, mode: &str) -> anyhow::Result<()> {
    for _ in 0..IDLE_ATTEMPTS {
        sleep(Duration::from_millis(1100));
        let second = worker(scene)?.last_second;
        if second.wakeups == 0 && second.polled_ns == 0 {
            scene.stage.step(&format!("{mode}: idle"));
            return Ok(());
        }
    }
    bail!("--poll {mode}: never idle: {:?}", worker(scene)?)
}

/// How often a worker has looked before it would have slept, whether it found something or not.
fn looks(worker: &WorkerStats) -> u64 {
    worker.poll_hits + worker.poll_misses
}
