//! `ringway upgrade`: another program becomes the data plane, and the guests see nothing.
//!
//! The next one is started beside the one that serves, and gets all that there is. From then on
//! until it serves nothing is read from front-ends and clients, so what it was given stays true.
//! Then the one that serves stops and says where each ring stands, and the next one goes on there.
//!
//! Whatever fails before that leaves the old one as it is. If the next one fails behind it, or
//! within [`PROVED_AFTER`], the old program is started again, as after a crash.
//!
//! When it has proved itself, the same program takes the place of the supervisor (`replace`).

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::ensure;
use rustix::fs::{Mode, OFlags, open};
use tracing::{info, warn};

use super::Supervisor;
use super::control_client::ClientId;
use super::descriptors::explained;
use super::plane::Stage;
use super::planes::Planes;
use ringway_supervisor::wire::ToData;

use crate::control::refusal;

/// The next one must be ready by then.
const READY_WITHIN: Duration = Duration::from_secs(3);

/// From the stop of the old one until the next one serves.
const GOES_ON_WITHIN: Duration = Duration::from_secs(1);

/// A program that has served for so long works.
const PROVED_AFTER: Duration = Duration::from_secs(1);

/// One that is under way.
pub(super) struct Upgrade {
    /// `None`: the supervisor itself wants another one.
    client: Option<ClientId>,
    /// The new one; the one before, as soon as the next data plane serves.
    program: File,
    begun: Instant,
    step: Step,
}

enum Step {
    /// The next one was started.
    Starting,
    /// It speaks our version; what is outstanding is to be done first.
    Resting,
    Loading,
    /// The old one stops, and the next one goes on.
    Stopped {
        since: Instant,
        has_gone: bool,
    },
    /// The next one serves. For how long packets waited.
    Proving {
        since: Instant,
        stall: Duration,
    },
}

impl Supervisor {
    /// Begins to replace the data plane by that program, or by the one that is now where this
    /// process's own program was.
    pub(super) fn begin_upgrade(
        &mut self,
        client: ClientId,
        program: Option<&str>,
    ) -> Result<(), Vec<String>> {
        let text = |why: anyhow::Error| vec![format!("{why:#}")];
        if self.upgrade.is_some() || self.replacing.is_some() {
            return Err(vec!["the data plane is being replaced: try again".into()]);
        }
        if !self.planes.is_running() {
            return Err(vec!["the data plane is being started anew: try again".into()]);
        }
        if program.is_some() && !self.is_trusted(client) {
            return Err(vec![
                "not permitted: only ringway's own user and root may name one".into(),
            ]);
        }
        let path = match program {
            Some(program) => PathBuf::from(program),
            None => own_program().map_err(|why| text(why.into()))?,
        };
        let opened = open_program(&path);
        let file = opened.map_err(|why| vec![format!("{}: {why:#}", path.display())])?;
        let refused = |why| vec![format!("{}: {}", path.display(), explained(&why))];
        self.start_next_plane(&file).map_err(refused)?;
        info!(program = %path.display(), "upgrading");
        let (begun, step) = (Instant::now(), Step::Starting);
        self.upgrade = Some(Upgrade { client: Some(client), program: file, begun, step });
        Ok(())
    }

    /// Begins to replace the data plane by another one of the same program, which may do what this
    /// one may not.
    ///
    /// # Errors
    /// It is being replaced already, or no other one can be started.
    pub(super) fn renew_plane(&mut self) -> anyhow::Result<()> {
        ensure!(
            self.upgrade.is_none() && self.replacing.is_none() && self.planes.is_running(),
            "the data plane is being replaced: try again"
        );
        let program = self.program.try_clone()?;
        self.start_next_plane(&program)?;
        let (begun, step) = (Instant::now(), Step::Starting);
        self.upgrade = Some(Upgrade { client: None, program, begun, step });
        Ok(())
    }

    /// Another one of the same program is about to be given all that there is.
    pub(super) fn is_renewing(&self) -> bool {
        let is_early = |step: &Step| matches!(step, Step::Starting | Step::Resting);
        self.upgrade.as_ref().is_some_and(|it| it.client.is_none() && is_early(&it.step))
    }

    /// What the next one was started from.
    pub(super) fn upgrade_program(&self) -> Option<&File> {
        self.upgrade.as_ref().map(|upgrade| &upgrade.program)
    }

    /// The next one speaks our version.
    pub(super) fn next_says_hello(&mut self) {
        if let Some(upgrade) = &mut self.upgrade {
            upgrade.step = Step::Resting;
        }
        self.hold(true);
        self.upgrade_goes_on();
    }

    /// Something that was outstanding is done.
    pub(super) fn upgrade_goes_on(&mut self) {
        let is_at_rest = self.is_at_rest();
        let Some(upgrade) = &mut self.upgrade else { return };
        if !matches!(upgrade.step, Step::Resting) || !is_at_rest {
            return;
        }
        upgrade.step = Step::Loading;
        if let Some(number) = self.planes.coming_number() {
            self.load(number);
        }
    }

    /// The next one has everything.
    pub(super) fn next_is_ready(&mut self) {
        let Some(upgrade) = &mut self.upgrade else { return };
        upgrade.step = Step::Stopped { since: Instant::now(), has_gone: false };
        if let Some(plane) = self.planes.coming() {
            plane.enters(Stage::Ready);
        }
        if let Some(plane) = self.planes.serving() {
            plane.enters(Stage::Quiescing);
            plane.tell(&ToData::Quiesce {}, vec![]);
        }
    }

    /// The old one has stopped, and has said where.
    pub(super) fn upgrade_has_positions(&mut self) {
        let Some(plane) = self.planes.serving() else { return };
        self.positions = std::mem::take(&mut plane.export);
        if let Some(Upgrade { step: Step::Stopped { has_gone, .. }, .. }) = &mut self.upgrade {
            *has_gone = true;
        }
        // The old one has said that it uses it no more.
        self.journal.repair(true);
        // It has said what it knows by now.
        let coming = self.planes.coming.take();
        if let Some((number, mut next)) = coming {
            self.tell_of_stations(&mut next);
            self.planes.coming = Some((number, next));
        }
        if let Some(next) = self.planes.coming() {
            Self::go(next, &self.positions, self.journal.file());
        }
    }

    /// The next one serves.
    pub(super) fn next_runs(&mut self) {
        let Some(mut upgrade) = self.upgrade.take() else { return };
        let Step::Stopped { since, .. } = upgrade.step else { return };
        let now = Instant::now();
        self.retire_serving();
        self.planes.succeed();
        self.positions.clear();
        if let Some(plane) = self.planes.serving() {
            plane.enters(Stage::Running);
        }
        self.forget_seen_ips();
        self.counts.upgrades += 1;
        let stall = now - since;
        if upgrade.client.is_some() {
            std::mem::swap(&mut self.program, &mut upgrade.program);
            upgrade.step = Step::Proving { since: now, stall };
            self.upgrade = Some(upgrade);
        } else {
            info!("another data plane serves from now on: packets waited {stall:.1?}");
        }
        self.hold(false);
        self.answer_routers(None);
        self.ask_again();
    }

    /// The next one cannot follow: the old one goes on.
    pub(super) fn upgrade_fails(&mut self, why: &str) {
        let Some(upgrade) = self.upgrade.take() else { return };
        self.retire_coming();
        if let Step::Stopped { has_gone, .. } = upgrade.step {
            // It has stopped. Its program is started again, and goes on where it stood; or where
            // the rings themselves show, if the next one may have used them.
            if has_gone {
                self.positions.clear();
            }
            self.retire_serving();
            if let Err(why) = self.start_plane() {
                tracing::error!("{}", explained(&why));
                self.start_at = Some(Instant::now());
            }
        }
        self.hold(false);
        if upgrade.client.is_none() {
            self.answer_routers(Some(why));
        }
        self.refuse_upgrade(upgrade.client, why);
    }

    fn refuse_upgrade(&mut self, client: Option<ClientId>, why: &str) {
        let why = format!("not upgraded: the new program: {why}: the old one goes on");
        warn!("{why}");
        if let Some(client) = client {
            self.answer_client(client, &refusal(&[why]));
        }
    }

    /// What the next one was given is not true any more.
    pub(super) fn upgrade_is_overtaken(&mut self) {
        if self.upgrade.as_ref().is_some_and(|it| matches!(it.step, Step::Loading)) {
            self.upgrade_fails("a guest changed its rings meanwhile: try again");
        }
    }

    /// The one that served has ended.
    pub(super) fn upgrade_is_void(&mut self) {
        let Some(upgrade) = self.upgrade.take() else { return };
        match upgrade.step {
            Step::Proving { .. } => {
                self.program = upgrade.program;
                self.refuse_upgrade(upgrade.client, "it has ended");
            }
            _ => {
                self.retire_coming();
                self.positions.clear();
                self.hold(false);
                self.refuse_upgrade(upgrade.client, "the old one ended meanwhile: try again");
            }
        }
    }

    /// Ends an upgrade that takes too long, and answers who asked for one that is proved.
    pub(super) fn look_after_upgrade(&mut self, now: Instant) {
        let Some(upgrade) = &self.upgrade else { return };
        match upgrade.step {
            Step::Proving { since, stall, .. } if since + PROVED_AFTER <= now => {
                let client = upgrade.client;
                self.upgrade = None;
                let pid = self.planes.current().map(super::plane::Plane::pid);
                info!(pid, "upgraded: packets waited {stall:.1?}");
                if let Some(client) = client {
                    self.begin_replacing(client, stall);
                }
            }
            Step::Proving { .. } => {}
            Step::Stopped { since, .. } if since + GOES_ON_WITHIN <= now => {
                self.upgrade_fails(&format!("it did not go on within {GOES_ON_WITHIN:?}"));
            }
            _ if upgrade.begun + READY_WITHIN <= now => {
                self.upgrade_fails(&format!("it was not ready within {READY_WITHIN:?}"));
            }
            _ => {}
        }
    }

    fn retire_serving(&mut self) {
        if let Some(number) = self.planes.serving_number() {
            self.end_plane(number, "");
            self.planes.end_serving();
        }
    }

    fn retire_coming(&mut self) {
        if let Some(number) = self.planes.coming_number() {
            self.end_plane(number, "");
            self.planes.end_coming();
        }
    }
}

impl Planes {
    fn coming_number(&self) -> Option<u32> {
        self.coming.as_ref().map(|(number, _)| *number)
    }

    fn serving_number(&self) -> Option<u32> {
        self.serving.as_ref().map(|(number, _)| *number)
    }
}

/// Opens a program, and nothing else: a pipe would keep the supervisor waiting.
fn open_program(path: &Path) -> anyhow::Result<File> {
    let file = open(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())?;
    let file = File::from(file);
    ensure!(file.metadata()?.is_file(), "no program: name a file that can be started");
    Ok(file)
}

/// Where the file of this process's own program is, or was before another one took its place.
fn own_program() -> std::io::Result<PathBuf> {
    let path = std::env::current_exe()?.into_os_string().into_string();
    let path = path.map_err(|_| std::io::Error::other("the path of this program is not UTF-8"))?;
    Ok(PathBuf::from(path.trim_end_matches(" (deleted)")))
}
