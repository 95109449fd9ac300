//! Polling: two guests on two ringways, one of which may poll.
//!
//! Checks that nothing gets lost, that the worker that may poll does so under a flood of pings,
//! within its budget, and the other never, and that an idle one sleeps.
//!
//! Limits: how many looks find something is not judged: none does where the guest, the worker and
//! what pings share what processors there are, and then looking ends by itself.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use ringway_guests::console::Console;
use ringway_guests::ringway::Ringway;
use ringway_guests::stage::Stage;
use ringway_guests::traffic::{self, Side};
use ringway_guests::{iperf, net, uml};
use serde_json::Value;

/// How often an idle second is looked for.
const IDLE_ATTEMPTS: u32 = 8;

/// How many floods the worker that may poll gets to do so.
const FLOOD_ATTEMPTS: u32 = 5;

/// What may be polled for nothing beyond the budget, in nanoseconds: savings, and the look during
/// which they end.
const SAVINGS_NS: u128 = 3_000_000;

struct Row {
    mode: &'static str,
    ringway: Ringway,
    guest: Console,
    /// Of this machine, on the guest's tap.
    here: String,
    started: Instant,
}

/// Lets both guests talk, and looks what the workers did.
pub fn poll(stage: &Stage) -> anyhow::Result<()> {
    let _server = iperf::start_server(stage)?;
    let mut rows = [start(stage, 0, "never")?, start(stage, 1, "auto")?];
    for row in &mut rows {
        row.talk(stage)?;
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
    let name = format!("ringway-{mode}");
    let ringway = Ringway::start_named(stage, &name, &ports, &["--poll", mode])?;
    let [here, there] = [1, 2].map(|end| format!("10.{}.0.{end}", 99 + at));
    net::set_up(&tap, &here, 1500)?;
    let mut guest = uml::start(stage, mode, &socket)?;
    uml::wait_booted(&mut guest, &there)?;
    // It shall not talk unasked.
    Side::Guest(&mut guest).must("echo 1 > /proc/sys/net/ipv6/conf/eth0/disable_ipv6; true")?;
    Ok(Row { mode, ringway, guest, here, started })
}

impl Row {
    fn worker(&self) -> anyhow::Result<Value> {
        Ok(self.ringway.workers()?[0].clone())
    }

    fn flood(&mut self) -> anyhow::Result<f64> {
        traffic::flood(&mut Side::Guest(&mut self.guest), &self.here, traffic::FLOOD_PACKETS)
    }

    fn talk(&mut self, stage: &Stage) -> anyhow::Result<()> {
        let ping_ms = self.flood()?;
        let side = &mut Side::Guest(&mut self.guest);
        let out = traffic::tcp(side, &self.here, 2, "")?.gigabits();
        let back = traffic::tcp(side, &self.here, 2, "-R")?.gigabits();
        let figures = format!("ping -f {ping_ms:.3} ms, out {out:.2} Gb/s, in {back:.2} Gb/s");
        stage.note(&format!("--poll {}: {figures}", self.mode));
        Ok(())
    }

    /// The one that may not poll has not; the other has, and not more for nothing than the budget
    /// says.
    fn check(&mut self, stage: &Stage) -> anyhow::Result<()> {
        let mut worker = self.worker()?;
        if self.mode == "never" {
            let is_right = looks(&worker) == 0 && worker["total"]["polled_ns"] == 0;
            ensure!(is_right, "--poll never: {worker}");
            return Ok(());
        }
        for _ in 1..FLOOD_ATTEMPTS {
            if looks(&worker) > 0 {
                break;
            }
            self.flood()?;
            worker = self.worker()?;
        }
        let number = |key: &str| worker[key].as_u64().map(u128::from);
        let percent = number("poll_budget_percent").context("no budget")?;
        let at_most_ns = self.started.elapsed().as_nanos() * percent / 100 + SAVINGS_NS;
        stage.step(&format!("{}: {} looks", self.mode, looks(&worker)));
        let is_within = number("in_vain_ns").is_some_and(|ns| ns <= at_most_ns);
        ensure!(looks(&worker) > 0 && is_within, "--poll {}: {worker}", self.mode);
        Ok(())
    }

    /// Some second passes without a wake-up and without polling.
    fn check_idle(&self, stage: &Stage) -> anyhow::Result<()> {
        for _ in 0..IDLE_ATTEMPTS {
            sleep(Duration::from_millis(1100));
            let second = &self.worker()?["last_second"];
            if second["wakeups"] == 0 && second["polled_ns"] == 0 {
                stage.step(&format!("{}: idle", self.mode));
                return Ok(());
            }
        }
        bail!("--poll {}: never idle: {}", self.mode, self.worker()?)
    }
}

/// How often a worker has looked before it would have slept, whether it found something or not.
fn looks(worker: &Value) -> u64 {
    ["poll_hits", "poll_misses"].into_iter().filter_map(|key| worker[key].as_u64()).sum()
}
