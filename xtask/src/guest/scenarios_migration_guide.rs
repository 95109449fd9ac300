//! The lines for QEMU's monitor that the guide to migration prints do what it says, as they stand:
//! another host is this one, and files are below the scenario's directory.
//!
//! Limits: `file:` in place of a program is what `scenarios_migration_saved` uses with the newest
//! QEMU, whose programs cannot be started by it here.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::thread;

use anyhow::{Context, ensure};
use ringway_guests::process::LOOK_EVERY;
use ringway_guests::{Stage, net};

use super::migration_scene::{AT_ONCE, Device, MigrationGuest, Scene, set_speed, wait_completed};

const GUIDE: &str = include_str!("../../../docs/guide/migration.md");

const PROMPT: &str = "(qemu) ";

/// In bytes a second and milliseconds: a migration that does not end.
const SLOW: [u64; 2] = [20_000_000, 1];

pub fn guide(stage: &Stage) -> anyhow::Result<()> {
    net::ip("link set lo up")?;
    let scene = Scene::start(stage, Device { options: "", pairs: 1 })?;
    let mut trial = Trial { scene, lines: Lines::of_guide(stage) };
    trial.cancel()?;
    trial.move_once()?;
    trial.save()?;
    let Trial { mut scene, lines } = trial;
    scene.throw_back(["savevm ", "loadvm "].map(|begin| lines.line(begin)))?;
    lines.check_all_used()?;
    scene.finish()
}

/// A guest with which the lines are tried.
struct Trial<'a> {
    scene: Scene<'a>,
    lines: Lines<'a>,
}

/// The words behind QEMU's prompt.
struct Lines<'a> {
    stage: &'a Stage,
    used: RefCell<BTreeSet<String>>,
}

impl<'a> Lines<'a> {
    fn of_guide(stage: &'a Stage) -> Self {
        Self { stage, used: RefCell::default() }
    }

    fn all() -> impl Iterator<Item = &'static str> {
        GUIDE.lines().filter_map(|line| line.strip_prefix(PROMPT))
    }

    /// The line that begins so; empty: there is none.
    fn line(&self, begin: &str) -> String {
        let line = Self::all().find(|line| line.starts_with(begin)).unwrap_or_default();
        self.used.borrow_mut().insert(line.to_owned());
        self.here(line)
    }

    /// The argument of `-incoming` that begins so, without its quotation marks.
    fn incoming(&self, begin: &str) -> anyhow::Result<String> {
        let mut places = GUIDE.split("-incoming ").skip(1);
        let place = places.find_map(|rest| {
            let word = rest.split('`').next().unwrap_or_default().trim_matches('"');
            word.starts_with(begin).then(|| self.here(word))
        });
        place.with_context(|| format!("the guide has no -incoming {begin}"))
    }

    fn here(&self, text: &str) -> String {
        let directory = format!("{}/", self.stage.directory.display());
        text.replace("host2", "127.0.0.1").replace("/var/tmp/", &directory)
    }

    fn check_all_used(&self) -> anyhow::Result<()> {
        let used = self.used.borrow();
        let left = Self::all().find(|line| !used.contains(*line));
        ensure!(left.is_none(), "the guide has a line that was not tried: {left:?}");
        Ok(())
    }
}

impl Trial<'_> {
    /// A migration that is cancelled.
    fn cancel(&mut self) -> anyhow::Result<()> {
        let next = self.start_next("tcp:")?;
        set_speed(&mut self.scene.guest.monitor, SLOW)?;
        self.type_line("migrate -d tcp:")?;
        thread::sleep(10 * LOOK_EVERY);
        self.type_line("migrate_cancel")?;
        let told = self.told_of_migration()?;
        ensure!(told.contains("cancel"), "not cancelled: {told}");
        drop(next);
        set_speed(&mut self.scene.guest.monitor, AT_ONCE)?;
        self.scene.wait_alive().context("cancelled")
    }

    fn move_once(&mut self) -> anyhow::Result<()> {
        let next = self.start_next("tcp:")?;
        let mark = self.scene.bridge.mark();
        for begin in ["migrate_set_parameter", "migrate -d tcp:"] {
            self.type_line(begin)?;
        }
        self.scene.wait_learned(next.host, mark)?;
        wait_completed(&mut self.scene.guest.monitor)?;
        let told = self.told_of_migration()?;
        ensure!(told.contains("completed"), "not completed: {told}");
        // It ends instead of answering.
        let line = self.lines.line("quit");
        let _ = self.scene.guest.monitor.type_line(&line);
        self.arrive(next)
    }

    /// To a file, on where it is, and on from the file at the other host.
    fn save(&mut self) -> anyhow::Result<()> {
        self.type_line("migrate -d \"exec:")?;
        wait_completed(&mut self.scene.guest.monitor)?;
        self.type_line("cont")?;
        self.scene.wait_alive().context("went on where it was saved")?;
        self.type_line("migrate -d \"exec:")?;
        wait_completed(&mut self.scene.guest.monitor)?;
        let next = self.start_next("exec:")?;
        self.arrive(next).context("goes on from the file")
    }

    /// The guest is there from now on.
    fn arrive(&mut self, next: MigrationGuest) -> anyhow::Result<()> {
        self.scene.guest = next;
        self.scene.wait_alive()
    }

    /// A QEMU at the other host, which waits for the guest there.
    fn start_next(&mut self, begin: &str) -> anyhow::Result<MigrationGuest> {
        let place = self.lines.incoming(begin)?;
        self.scene.start_next(&["-incoming", &place])
    }

    fn told_of_migration(&mut self) -> anyhow::Result<String> {
        self.scene.guest.monitor.type_line(&self.lines.line("info migrate"))
    }

    /// Types the line that begins so, to which QEMU says nothing.
    fn type_line(&mut self, begin: &str) -> anyhow::Result<()> {
        let line = self.lines.line(begin);
        self.scene.stage.step(&line);
        ensure!(!line.is_empty(), "the guide has no line {begin}");
        let said = self.scene.guest.monitor.type_line(&line)?;
        ensure!(said.is_empty(), "{line}: {said}");
        Ok(())
    }
}
