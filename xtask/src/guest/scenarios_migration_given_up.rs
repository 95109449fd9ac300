//! A migration of a QEMU guest that is cancelled while memory is copied, one whose destination
//! dies, and one that the destination refuses at the very end: the guest goes on where it is, and
//! can be migrated again.
//!
//! How: pages are marked only while memory is copied, and no queue stops: the port's state says
//! the one, and the guest's connections and the log of ringway the other. How long the guest was
//! silent is told and not judged.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use ringway_extent::Extent;
use ringway_guests::Stage;
use ringway_guests::process::LOOK_EVERY;
use serde_json::json;

use super::migration_scene::{AT_ONCE, Device, LIMIT, Scene, check_format, set_speed};

/// How often a migration is given up each way, before one that succeeds.
const ROUNDS: Extent = Extent::new("RINGWAY_MIGRATIONS_GIVEN_UP", 2, 20);

/// In bytes a second and milliseconds: a migration that does not end.
const SLOW: [u64; 2] = [20_000_000, 1];

/// How long memory is copied before it is given up.
const COPY_TIME: Duration = Duration::from_millis(700);

/// The log of ringway says so of a front-end that has left, or was disconnected.
const GONE: &str = "front-end gone";

#[derive(Debug, Clone, Copy)]
enum End {
    Cancelled,
    DestinationKilled,
    /// The source sends its device's state, and the destination's port has none.
    Refused,
}

/// Given up twice, and then not.
pub fn given_up(stage: &Stage, options: &str) -> anyhow::Result<()> {
    given_up_by(stage, options, &[End::Cancelled, End::DestinationKilled])
}

/// Refused at the very end, when all queues have stopped, and then not.
pub fn refused(stage: &Stage, options: &str) -> anyhow::Result<()> {
    given_up_by(stage, options, &[End::Refused])
}

fn given_up_by(stage: &Stage, options: &str, ends: &[End]) -> anyhow::Result<()> {
    let mut scene = Scene::start(stage, Device { options, pairs: 1 })?;
    let rounds = ROUNDS.announced();
    let mut longest_ms: f64 = 0.0;
    for _ in 0..rounds {
        for &end in ends {
            let silence_ms = scene.give_up(end).with_context(|| format!("{end:?}"))?;
            stage.step(&format!("{end:?}: silent for {silence_ms:.0} ms at most"));
            longest_ms = longest_ms.max(silence_ms);
        }
        scene.migrate().context("after others that were given up")?;
        check_format(&scene, options.contains("packed=on"))?;
    }
    let quiet_ms = scene.quiet_ms;
    stage.note(&format!(
        "{} migrations given up: silent for {longest_ms:.0} ms at most, {quiet_ms:.0} ms without",
        rounds * ends.len() as u64
    ));
    scene.finish()
}

impl Scene<'_> {
    /// Memory is copied for a while; longest time without an answer to a ping, in milliseconds.
    fn give_up(&mut self, end: End) -> anyhow::Result<f64> {
        let is_refused = matches!(end, End::Refused);
        if is_refused {
            self.set_device_state("off")?;
        }
        let mut next = self.start_incoming(&[])?;
        let gone_before = self.gone();
        let pings = self.pings();
        set_speed(&mut self.guest.monitor, if is_refused { AT_ONCE } else { SLOW })?;
        self.set_return_path(is_refused)?;
        self.begin(&mut next)?;
        if !is_refused {
            self.wait_state("migrating")?;
            thread::sleep(COPY_TIME);
            self.wait_alive().context("while memory is copied")?;
        }
        let status = match end {
            End::Cancelled => {
                self.guest.monitor.execute("migrate_cancel", &json!({}))?;
                "cancelled"
            }
            End::DestinationKilled => {
                drop(next);
                "failed"
            }
            End::Refused => "failed",
        };
        self.wait_status(status)?;
        if is_refused {
            self.set_device_state("on")?;
            self.set_return_path(false)?;
        }
        self.wait_state("running")?;
        self.wait_alive().context("goes on where it was")?;
        ensure!(self.gone() == gone_before, "the source lost its connection to ringway");
        self.silence_ms(pings)
    }

    /// Whether the destination's port has a device's state, from the next front-end on.
    fn set_device_state(&self, value: &str) -> anyhow::Result<()> {
        let (ringway, port) = self.place(1 - self.guest.host);
        ringway.told(&["port", "set", &port, &format!("device_state={value}")]).map(drop)
    }

    /// Whether the source hears what became of its guest at the destination. Otherwise it takes
    /// all that was sent for done, and stays paused.
    fn set_return_path(&mut self, is_on: bool) -> anyhow::Result<()> {
        let capability = json!({ "capability": "return-path", "state": is_on });
        let capabilities = json!({ "capabilities": [capability] });
        self.guest.monitor.execute("migrate-set-capabilities", &capabilities).map(drop)
    }

    /// How often the source's ringway has lost a front-end.
    fn gone(&self) -> usize {
        self.ringways[self.guest.host].printed().matches(GONE).count()
    }

    /// Waits until the source's port has that state.
    fn wait_state(&self, state: &str) -> anyhow::Result<()> {
        let (ringway, port) = self.place(self.guest.host);
        let deadline = Instant::now() + LIMIT;
        loop {
            let shown = ringway.port(&port)?;
            if shown.state() == state {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "never {state}: {shown}");
            thread::sleep(LOOK_EVERY);
        }
    }

    /// Waits until QEMU says so of the migration.
    fn wait_status(&mut self, status: &str) -> anyhow::Result<()> {
        let deadline = Instant::now() + LIMIT;
        loop {
            let told = self.guest.monitor.execute("query-migrate", &json!({}))?;
            if told["status"] == status {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "never {status}: {told}");
            thread::sleep(LOOK_EVERY);
        }
    }
}
