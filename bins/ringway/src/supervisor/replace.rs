//! The end of an upgrade: the new program takes the place of the supervisor, too, as the same
//! process with the same file descriptors. The data plane does not notice.
//!
//! First the new program is asked whether it can read what this one writes down. Then, as soon as
//! nothing is outstanding, everything is written into a sealed file in memory, and the program is
//! started in place. Whatever fails before leaves this supervisor as it is, and the answer says so.
//!
//! Limits: the new program is waited for at most [`CHECKED_WITHIN`], and a moment without anything
//! outstanding at most [`AT_REST_WITHIN`], for which front-ends and clients wait.

use std::collections::BTreeMap;
use std::ffi::{CString, OsString};
use std::fs::File;
use std::io::{Read, Seek};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use anyhow::Context;
use nix::sys::signal::{SigSet, SigmaskHow};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Signal, getpid, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use tracing::{info, warn};

use super::Supervisor;
use super::control_client::ClientId;
use super::descriptors::Kept;
use super::plane::nowhere;
use super::record::{AskedRecord, file};
use crate::control::refusal;
use crate::sandbox;

const CHECKED_WITHIN: Duration = Duration::from_secs(2);

const AT_REST_WITHIN: Duration = Duration::from_secs(1);

/// Bytes of what the new program complains about that are read.
const COMPLAINT_LEN_MAX: u64 = 400;

/// The command of the new program, with the number of the file as its argument.
const COMMAND: &str = "take-over";

/// A supervisor that is to be replaced.
pub(super) struct Replacing {
    asked: AskedRecord,
    since: Instant,
    step: Step,
}

enum Step {
    /// The new program says whether it can read what is written down.
    Checking { child: Child, complaint: File },
    /// Front-ends and clients wait until nothing is outstanding.
    Resting,
}

impl Supervisor {
    /// The new data plane works: its program is to take the supervisor's place.
    pub(super) fn begin_replacing(&mut self, client: ClientId, stall: Duration) {
        let stall_us = u64::try_from(stall.as_micros()).unwrap_or(u64::MAX);
        let asked = AskedRecord { slot: client.slot, serial: client.serial, stall_us };
        match self.ask_the_program(asked) {
            Ok(step) => {
                self.replacing = Some(Replacing { asked, since: Instant::now(), step });
            }
            Err(why) => self.stays(asked, &format!("{why:#}")),
        }
    }

    fn ask_the_program(&self, asked: AskedRecord) -> anyhow::Result<Step> {
        let record = file::write(&self.records(Some(asked))?)?;
        let complaint = File::from(memfd_create("ringway-complaint", MemfdFlags::CLOEXEC)?);
        let child = Command::new(format!("/proc/self/fd/{}", self.program.as_raw_fd()))
            .arg0("ringway")
            .arg(COMMAND)
            .stdin(record)
            .stdout(nowhere()?)
            .stderr(complaint.try_clone()?)
            .spawn()
            .context("starting it")?;
        Ok(Step::Checking { child, complaint })
    }

    /// Goes on with a replacement that is under way, or ends one that takes too long.
    pub(super) fn look_after_replacing(&mut self, now: Instant) {
        let Some(mut replacing) = self.replacing.take() else { return };
        let age = now - replacing.since;
        let failed = match &mut replacing.step {
            Step::Checking { child, complaint } => match child.try_wait() {
                Ok(Some(status)) if status.success() => {
                    replacing = Replacing { since: now, step: Step::Resting, ..replacing };
                    self.hold(true);
                    None
                }
                Ok(Some(status)) => Some(complained(complaint).unwrap_or(status.to_string())),
                Ok(None) if age < CHECKED_WITHIN => None,
                Ok(None) => {
                    let _ = child.kill().and_then(|()| child.wait());
                    Some(format!("it did not say within {CHECKED_WITHIN:?} whether it can"))
                }
                Err(why) => Some(why.to_string()),
            },
            Step::Resting if age < AT_REST_WITHIN => None,
            Step::Resting => self.hindrance(),
        };
        match failed {
            Some(why) => self.stays(replacing.asked, &why),
            None => self.replacing = Some(replacing),
        }
    }

    /// Why this moment is not one to replace the supervisor, if it is not.
    fn hindrance(&self) -> Option<String> {
        let is_owed = !self.questions.is_empty() || self.reloading.is_some();
        if !self.planes.is_alone() || !self.is_at_rest() || is_owed {
            return Some("the data plane is busy".to_owned());
        }
        if !self.refused.is_idle() {
            return Some("what a front-end sent is still being closed".to_owned());
        }
        let busy = self.ports.values().find_map(|port| Some((port, port.is_changing()?)));
        busy.map(|(port, why)| format!("port {}: {why}", port.spec.name))
    }

    /// The program that is to be started in place now, if there is one.
    pub(super) fn is_to_be_replaced(&self) -> bool {
        let is_resting = |it: &Replacing| matches!(it.step, Step::Resting);
        self.replacing.as_ref().is_some_and(is_resting) && self.hindrance().is_none()
    }

    /// Starts the new program in place, and returns only if that fails; `before` is called last of
    /// all.
    pub(super) fn give_place(&mut self, before: impl FnOnce()) {
        let Some(Replacing { asked, .. }) = self.replacing.take() else { return };
        let why = match self.start_in_place(asked, before) {
            Ok(never) => match never {},
            Err(why) => why,
        };
        self.stays(asked, &format!("{why:#}"));
    }

    fn start_in_place(
        &self,
        asked: AskedRecord,
        before: impl FnOnce(),
    ) -> anyhow::Result<std::convert::Infallible> {
        let records = self.records(Some(asked))?;
        let file = file::write(&records)?;
        let arguments = ["ringway".to_owned(), COMMAND.to_owned(), file.as_raw_fd().to_string()];
        let arguments = arguments.map(CString::new).into_iter().collect::<Result<Vec<_>, _>>()?;
        let logging = crate::log::environment().map(|(name, value)| (name.into(), value.into()));
        // Of two with the same name the second one counts.
        let environment: BTreeMap<OsString, OsString> =
            std::env::vars_os().chain(logging).collect();
        let environment = environment
            .into_iter()
            .map(|(name, value)| CString::new([name.into_vec(), value.into_vec()].join(&b'=')));
        let environment = environment.collect::<Result<Vec<_>, _>>()?;
        info!("the new program takes the supervisor's place");
        before();
        // A signal that comes meanwhile is for the new program.
        let _blocked = Blocked::new()?;
        let inherited = records.iter().flat_map(|record| record.fds.iter().copied());
        let _kept = Kept::open(inherited.chain([file.as_fd()]).collect())?;
        let _rights = sandbox::Inherited::all().context("capabilities")?;
        Ok(nix::unistd::fexecve(&self.program, &arguments, &environment)?)
    }

    /// This supervisor goes on.
    fn stays(&mut self, asked: AskedRecord, why: &str) {
        if self.is_holding {
            self.hold(false);
        }
        let why = format!("the data plane was upgraded; the old supervisor goes on: {why}");
        warn!("{why}");
        self.answer_client(ClientId { slot: asked.slot, serial: asked.serial }, &refusal(&[why]));
    }
}

/// The first line that it has written.
fn complained(complaint: &mut File) -> Option<String> {
    let mut text = Vec::new();
    complaint.rewind().ok()?;
    complaint.take(COMPLAINT_LEN_MAX).read_to_end(&mut text).ok()?;
    let text = String::from_utf8_lossy(&text);
    let line = text.lines().next().filter(|line| !line.is_empty())?;
    Some(line.chars().map(|it| if it.is_control() { '?' } else { it }).collect())
}

/// The signals that mean something to a supervisor.
fn signals() -> SigSet {
    let known = [SIGHUP, SIGINT, SIGTERM].map(nix::sys::signal::Signal::try_from);
    known.into_iter().flatten().collect()
}

/// A signal that the supervisor before had caught, and not heeded, comes again once it is let in.
pub(super) fn send_again(caught: OwnedFd, signal: Signal) -> anyhow::Result<()> {
    if UnixStream::from(caught).read(&mut [0]).is_ok_and(|count| count > 0) {
        kill_process(getpid(), signal)?;
    }
    Ok(())
}

/// Lets signals in that came while a supervisor was replaced.
///
/// # Errors
/// The kernel refuses.
pub(super) fn unblock_signals() -> anyhow::Result<()> {
    Ok(signals().thread_unblock()?)
}

/// While it exists signals wait.
struct Blocked;

impl Blocked {
    fn new() -> anyhow::Result<Self> {
        signals().thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
        Ok(Self)
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        let _ = signals().thread_unblock();
    }
}
