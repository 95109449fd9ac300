//! `ringway upgrade`: another program becomes the data plane, and the guests see nothing.
//!
//! The next one is started beside the one that serves, and gets all that there is. From then on
//! until it serves nothing is read from front-ends and clients, so what it was given stays true.
//! Then the one that serves stops and says where each ring stands, and the next one goes on there.
//!
//! Whatever fails before that leaves the old one as it is. If the next one fails behind it, or
//! before it has proved itself, the old program is started again, as after a crash.
//!
//! How: [`succession`](ringway_supervisor::succession) decides, and here is what it needs.
//!
//! When it has proved itself, the same program takes the place of the supervisor (`replace`).

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::ensure;
use ringway_supervisor::succession::Event;
use rustix::fs::{Mode, OFlags, open};
use tracing::{info, warn};

use super::Supervisor;
use super::control_client::ClientId;
use crate::control::refusal;

impl Supervisor {
    /// Begins to replace the data plane by that program, or by the one that is now where this
    /// process's own program was.
    pub(super) fn begin_upgrade(
        &mut self,
        client: ClientId,
        program: Option<&str>,
    ) -> Result<(), Vec<String>> {
        let text = |why: anyhow::Error| vec![format!("{why:#}")];
        self.planes.succession.may_hand_over().map_err(|why| vec![why.to_owned()])?;
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
        self.other_program = Some(file);
        info!(program = %path.display(), "upgrading");
        self.happens(Event::HandOver { by: Some(client) });
        Ok(())
    }

    /// Begins to replace the data plane by another one of the same program, which may do what this
    /// one may not.
    ///
    /// # Errors
    /// It is being replaced already, or started anew.
    pub(super) fn renew_plane(&mut self) -> anyhow::Result<()> {
        self.planes.succession.may_hand_over().map_err(anyhow::Error::msg)?;
        self.happens(Event::HandOver { by: None });
        Ok(())
    }

    /// The next one cannot follow.
    pub(super) fn refuse_upgrade(&mut self, client: Option<ClientId>, why: &str) {
        match client {
            Some(_) => self.other_program = None,
            None => self.answer_routers(Some(why)),
        }
        let why = format!("not upgraded: the new program: {why}: the old one goes on");
        warn!("{why}");
        if let Some(client) = client {
            self.answer_client(client, &refusal(&[why]));
        }
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
