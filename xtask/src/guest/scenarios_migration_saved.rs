//! A QEMU guest is saved to a file and goes on from there at another host, or where it was; and is
//! thrown back to a snapshot of itself.
//!
//! Limits: a guest that is thrown back knows nothing of what came after the snapshot, so its
//! connections end before.

use std::thread;
use std::time::Instant;

use anyhow::{Context, ensure};
use ringway_guests::Stage;
use ringway_guests::monitor::Monitor;
use ringway_guests::process::LOOK_EVERY;
use serde_json::{Value, json};

use super::migration_scene::{AT_ONCE, Device, LIMIT, Scene, set_speed, wait_completed};

/// How a guest is saved and restored: by a program, and from QEMU 8.2 on without one.
pub const BY_PROGRAM: [&str; 2] = ["exec:cat >", "exec:cat "];
pub const BY_QEMU: [&str; 2] = ["file:"; 2];

/// To a file and back to another host, twice; then a snapshot, to which the guest is thrown back.
pub fn saved(stage: &Stage, options: &str, file: [&str; 2]) -> anyhow::Result<()> {
    let mut scene = Scene::start(stage, Device { options, pairs: 1 })?;
    for _ in 0..2 {
        scene.save_and_restore(file)?;
        stage.step("came back from a file at the other host");
    }
    scene.throw_back(["savevm saved", "loadvm saved"].map(str::to_owned))?;
    scene.finish()
}

impl Scene<'_> {
    /// The guest is saved to a file, goes on where it is, is saved again, and goes on from the file
    /// at the other host. In front of the file's name stands what QEMU does with it.
    fn save_and_restore(&mut self, [save, restore]: [&str; 2]) -> anyhow::Result<()> {
        let file = self.stage.file("saved");
        let place = |how: &str| json!({ "uri": format!("{how}{}", file.display()) });
        for is_last in [false, true] {
            set_speed(&mut self.guest.monitor, AT_ONCE)?;
            self.guest.monitor.execute("migrate", &place(save))?;
            wait_completed(&mut self.guest.monitor)?;
            if !is_last {
                self.guest.monitor.execute("cont", &json!({}))?;
                self.wait_alive().context("went on where it was saved")?;
            }
        }
        let mut next = self.start_incoming(&[])?;
        let mark = self.bridge.mark();
        next.monitor.execute("migrate-incoming", &place(restore))?;
        self.wait_learned(next.host, mark)?;
        next.monitor.wait_event("RESUME")?;
        self.guest = next;
        self.wait_alive()
    }

    /// The guest is saved while it goes on, and thrown back to that time: what it knows of its
    /// connections is wrong then, so there are new ones.
    pub fn throw_back(&mut self, lines: [String; 2]) -> anyhow::Result<()> {
        self.add_disk()?;
        for line in lines {
            self.stage.step(&line);
            let said = self.guest.monitor.type_line(&line)?;
            ensure!(said.is_empty(), "{line}: {said}");
            if line.starts_with("savevm") {
                self.wait_alive().context("saved")?;
                self.end_connections()?;
            }
        }
        self.connect().context("thrown back")
    }

    /// A disk that keeps snapshots, and that the guest does not see.
    fn add_disk(&mut self) -> anyhow::Result<()> {
        let file = self.stage.file(&format!("disk{}", self.started));
        let monitor = &mut self.guest.monitor;
        let disk = json!({ "driver": "file", "filename": file, "size": 0 });
        create(monitor, "file", &disk)?;
        let node = json!({ "driver": "file", "filename": file, "node-name": "file" });
        monitor.execute("blockdev-add", &node)?;
        create(monitor, "disk", &json!({ "driver": "qcow2", "file": "file", "size": 1 << 20 }))?;
        let node = json!({ "driver": "qcow2", "file": "file", "node-name": "disk" });
        monitor.execute("blockdev-add", &node).map(drop)
    }
}

/// Creates an image, and waits until it is there.
fn create(monitor: &mut Monitor, job: &str, options: &Value) -> anyhow::Result<()> {
    monitor.execute("blockdev-create", &json!({ "job-id": job, "options": options }))?;
    let deadline = Instant::now() + LIMIT;
    loop {
        let jobs = monitor.execute("query-jobs", &json!({}))?;
        if jobs[0]["status"] == "concluded" {
            ensure!(jobs[0]["error"].is_null(), "{job}: {jobs}");
            return monitor.execute("job-dismiss", &json!({ "id": job })).map(drop);
        }
        ensure!(Instant::now() < deadline, "{job}: {jobs}");
        thread::sleep(LOOK_EVERY);
    }
}
