//! The switch of the demonstration: this program once more, as `ringway run` with two ports.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};

use super::Stage;
use super::keeper::Kept;
use crate::control::{StatsReply, request_stats};

/// Names of the two guests and of their ports.
pub const GUESTS: [&str; 2] = ["a", "b"];

/// Longest wait until it answers.
const START_LIMIT: Duration = Duration::from_secs(10);

const LOG: &str = "ringway.log";

/// The running switch; dropping it ends it.
pub struct Switch {
    // Held for its end.
    _process: Kept,
    control: PathBuf,
}

impl Switch {
    /// Starts it and waits until it answers and both sockets are there.
    ///
    /// # Errors
    /// It does not come up; the text contains the end of its log.
    pub fn start(stage: &Stage<'_>) -> anyhow::Result<Self> {
        let directory = stage.directory;
        let control = directory.file("control.sock");
        let program = std::env::current_exe().context("the path of this program")?;
        let mut command = vec![OsString::from(program), "run".into(), "--control".into()];
        command.push(control.clone().into());
        for guest in GUESTS {
            // A comma in the directory's name would start the options.
            let socket = socket(stage, guest).display().to_string().replace(',', ",,");
            command.extend(["--port".into(), format!("{guest}=vm:{socket}").into()]);
        }
        let mut process = Kept::start(&command, &directory.file(LOG), Some(directory.path()))
            .context("starting ringway")?;
        let ready = stage.patience.wait_for(START_LIMIT, || {
            if process.has_ended() {
                bail!("ringway ended:\n{}", directory.log_tail(LOG));
            }
            let sockets_exist = GUESTS.iter().all(|guest| socket(stage, guest).exists());
            Ok((sockets_exist && request_stats(&control).is_ok()).then_some(()))
        })?;
        if ready.is_none() {
            bail!("ringway does not answer:\n{}", directory.log_tail(LOG));
        }
        Ok(Self { _process: process, control })
    }

    /// What it did so far.
    ///
    /// # Errors
    /// It does not answer.
    pub fn stats(&self) -> anyhow::Result<StatsReply> {
        Ok(request_stats(&self.control)?)
    }
}

/// Where a guest connects.
pub fn socket(stage: &Stage<'_>, guest: &str) -> PathBuf {
    stage.directory.file(&format!("{guest}.sock"))
}
