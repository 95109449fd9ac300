//! Polling: two guests on two ringways, one of which may poll, measured in turns.
//!
//! Checks that nothing gets lost, that the worker that may poll does so under a flood of pings, within
//! its budget, and the other never, and that an idle one sleeps. `RINGWAY_ROUNDS` says how often to measure.
//!
//! Limits: figures are printed and not judged. So is how many looks find something: none does where the
//! guest, the worker and whoever pings share what processors there are, and then looking ends by itself.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use serde_json::Value;

use ringway_guests::console::Console;
use ringway_guests::ringway::Ringway;
use ringway_guests::stage::Stage;
use ringway_guests::traffic::{self, Side};
use ringway_guests::uml::{self, must};
use ringway_guests::{iperf, net};

/// Seconds of each TCP measurement.
const TCP_SECONDS: u32 = 2;

/// How often an idle second is looked for.
const IDLE_ATTEMPTS: u32 = 8;

/// How many floods the worker that may poll gets to do so.
const FLOOD_ATTEMPTS: u32 = 5;

/// What may be looked in vain beyond the budget, in nanoseconds: savings, and the look during which they end.
const SAVINGS_NS: u128 = 3_000_000;

/// A guest on a tap of its own.
struct Row {
    name: &'static str,
    ringway: Ringway,
    guest: Console,
    /// Of this machine, on the guest's tap.
    here: String,
    figures: [Vec<f64>; 3],
    /// Before the daemon was.
    started: Instant,
}

/// Measures and compares.
///
/// # Errors
/// What did not work.
pub fn poll(stage: &Stage) -> anyhow::Result<()> {
    let modes = ["never", "auto"];
    let _server = iperf::start_server(stage)?;
    let mut rows = Vec::new();
    for (at, mode) in modes.into_iter().enumerate() {
        rows.push(start(stage, at, mode)?);
    }
    let rounds = std::env::var("RINGWAY_ROUNDS").ok().and_then(|text| text.parse().ok());
    for round in 0..rounds.unwrap_or(1) {
        stage.step(&format!("round {round}"));
        rows.iter_mut().try_for_each(|row| row.measure(stage))?;
    }
    for row in &mut rows {
        stage.note(&row.summary());
        row.check(stage)?;
    }
    for row in &rows {
        row.check_idle(stage)?;
    }
    for row in rows {
        row.ringway.port("vm0")?.check_healthy(&["no_room", "link_down"])?;
        drop(row.guest);
        row.ringway.finish()?;
    }
    Ok(())
}

fn start(stage: &Stage, at: usize, mode: &'static str) -> anyhow::Result<Row> {
    stage.step(&format!("a guest and a tap, --poll {mode}"));
    let started = Instant::now();
    let socket = stage.file(&format!("{mode}.sock"));
    let tap = format!("rw{mode}");
    let ports = [format!("vm0=vm:{}", socket.display()), format!("up=tap:{tap}")];
    let ringway =
        Ringway::start_named(stage, &format!("ringway-{mode}"), &ports, &["--poll", mode])?;
    let [here, there] = [1, 2].map(|end| format!("10.{}.0.{end}", 99 + at));
    net::set_up(&tap, &here, 1500)?;
    let mut guest = uml::start(stage, mode, &socket)?;
    uml::wait_booted(&mut guest, &there)?;
    // Nobody shall talk unasked.
    must(&mut guest, "echo 1 > /proc/sys/net/ipv6/conf/eth0/disable_ipv6; true")?;
    Ok(Row { name: mode, ringway, guest, here, figures: Default::default(), started })
}

impl Row {
    fn measure(&mut self, stage: &Stage) -> anyhow::Result<()> {
        let side = &mut Side::Guest(&mut self.guest);
        let ping_ms = traffic::flood(side, &self.here, traffic::FLOOD_PACKETS)?;
        stage.step(&format!("{} {}", self.name, self.ringway.workers()?[0]));
        let out = traffic::tcp(side, &self.here, TCP_SECONDS, "")?.gigabits();
        stage.step(&format!("{} {}", self.name, self.ringway.workers()?[0]));
        let back = traffic::tcp(side, &self.here, TCP_SECONDS, "-R")?.gigabits();
        stage.step(&format!("{} {}", self.name, self.ringway.workers()?[0]));
        stage.step(&format!("{}: {ping_ms:.3} ms, {out:.2} out, {back:.2} in", self.name));
        for (list, figure) in self.figures.iter_mut().zip([ping_ms * 1000.0, out, back]) {
            list.push(figure);
        }
        Ok(())
    }

    fn summary(&self) -> String {
        let [ping, out, back] = self.figures.each_ref().map(|list| spread(list));
        format!("--poll {}: ping -f {ping} µs, out {out} Gb/s, in {back} Gb/s", self.name)
    }

    /// Who may not poll has not; who may has, and not more in vain than the budget allows.
    fn check(&mut self, stage: &Stage) -> anyhow::Result<()> {
        if self.name == "never" {
            let worker = &self.ringway.workers()?[0];
            let is_right = looks(worker) == 0 && worker["total"]["polled_ns"] == 0;
            ensure!(is_right, "--poll never: {worker}");
            return Ok(());
        }
        for _ in 1..FLOOD_ATTEMPTS {
            if looks(&self.ringway.workers()?[0]) > 0 {
                break;
            }
            traffic::flood(&mut Side::Guest(&mut self.guest), &self.here, traffic::FLOOD_PACKETS)?;
        }
        let worker = self.ringway.workers()?[0].clone();
        let [percent, in_vain_ns] =
            ["poll_budget_percent", "in_vain_ns"].map(|key| worker[key].as_u64().map(u128::from));
        let percent = percent.context("no budget")?;
        let at_most_ns = self.started.elapsed().as_nanos() * percent / 100 + SAVINGS_NS;
        stage.step(&format!("{}: {} looks", self.name, looks(&worker)));
        ensure!(looks(&worker) > 0, "--poll {}: {worker}", self.name);
        ensure!(in_vain_ns.is_some_and(|ns| ns <= at_most_ns), "--poll {}: {worker}", self.name);
        Ok(())
    }

    /// Some second passes without a wake-up and without polling.
    fn check_idle(&self, stage: &Stage) -> anyhow::Result<()> {
        let mut last = None;
        for _ in 0..IDLE_ATTEMPTS {
            sleep(Duration::from_millis(1100));
            let worker = self.ringway.workers()?[0].clone();
            let second = &worker["last_second"];
            if second["wakeups"] == 0 && second["polled_ns"] == 0 {
                stage.step(&format!("{}: idle", self.name));
                return Ok(());
            }
            last = Some(worker);
        }
        bail!("--poll {}: never idle: {last:?}", self.name)
    }
}

/// How often a worker has looked before it would have slept, whether it found something or not.
fn looks(worker: &Value) -> u64 {
    ["poll_hits", "poll_misses"].into_iter().filter_map(|key| worker[key].as_u64()).sum()
}

/// Mean and standard deviation, minimum and maximum.
fn spread(list: &[f64]) -> String {
    let count = f64::from(u32::try_from(list.len()).unwrap_or(1).max(1));
    let mean = list.iter().sum::<f64>() / count;
    let deviation = (list.iter().map(|one| (one - mean).powi(2)).sum::<f64>() / count).sqrt();
    let min = list.iter().copied().fold(f64::INFINITY, f64::min);
    let max = list.iter().copied().fold(0.0, f64::max);
    format!("{mean:.2} ± {deviation:.2} ({min:.2} to {max:.2})")
}
