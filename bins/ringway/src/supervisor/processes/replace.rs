//! The end of an upgrade: the new program takes the place of the supervisor, too, as the same
//! process with the same file descriptors. The data plane does not notice.
//!
//! First the new program is asked whether it can read what this one writes down. Then, as soon as
//! nothing is outstanding, everything is written into a sealed file in memory, and the program is
//! started in place. Whatever fails before leaves this supervisor as it is, and the answer says so.
//!
//! How: [`succession`](ringway_supervisor::succession) decides when, and here is what it needs.

use std::collections::BTreeMap;
use std::ffi::{CString, OsString};
use std::fs::File;
use std::io::{Read, Seek};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::time::Duration;

use anyhow::Context;
use nix::sys::signal::{SigSet, SigmaskHow};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Signal, getpid, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use tracing::info;

use super::descriptors::Kept;
use crate::sandbox;
use crate::supervisor::clients::control_client::ClientId;
use crate::supervisor::planes::plane::nowhere;
use crate::supervisor::record::{AskedRecord, Record, file};

/// Bytes of what the new program complains about that are read.
const COMPLAINT_LEN_MAX: u64 = 400;

/// The program that this process runs.
const PROGRAM: &str = "/proc/self/exe";

/// The command of the new program, with the number of the file as its argument.
const COMMAND: &str = "take-over";

/// The new program says whether it can read what is written down.
pub struct Check {
    child: Child,
    complaint: File,
}

impl Drop for Check {
    fn drop(&mut self) {
        let _ = self.child.kill().and_then(|()| self.child.wait());
    }
}

/// The programs of data planes, and of this process.
pub struct Programs {
    /// The one that data planes are started from.
    pub running: File,
    /// The one that a client has named; behind an upgrade, the one before.
    pub other: Option<File>,
    /// The one that is to take this one's place is asked whether it can.
    check: Option<Check>,
}

impl Programs {
    /// This process's own.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn new() -> anyhow::Result<Self> {
        let running = File::open(PROGRAM)
            .with_context(|| format!("{PROGRAM} cannot be opened: mount /proc"))?;
        Ok(Self { running, other: None, check: None })
    }

    /// Asks the new program whether it can read that record.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn begin_check(&mut self, record: File) -> anyhow::Result<()> {
        self.other = None;
        let complaint = File::from(memfd_create("ringway-complaint", MemfdFlags::CLOEXEC)?);
        let child = Command::new(format!("/proc/self/fd/{}", self.running.as_raw_fd()))
            .arg0("ringway")
            .arg(COMMAND)
            .stdin(record)
            .stdout(nowhere()?)
            .stderr(complaint.try_clone()?)
            .spawn()
            .context("starting it")?;
        self.check = Some(Check { child, complaint });
        Ok(())
    }

    /// The answer of the new program, if it has given one.
    pub fn look_at_check(&mut self) -> Option<Result<(), String>> {
        let check = self.check.as_mut()?;
        let outcome = match check.child.try_wait() {
            Ok(None) => return None,
            Ok(Some(status)) if status.success() => Ok(()),
            Ok(Some(status)) => Err(complained(&mut check.complaint).unwrap_or(status.to_string())),
            Err(why) => Err(why.to_string()),
        };
        self.check = None;
        Some(outcome)
    }

    /// The other program is the one that data planes are started from, and the other way round.
    pub fn swap(&mut self) {
        if let Some(other) = &mut self.other {
            std::mem::swap(other, &mut self.running);
        }
    }

    pub fn stop_check(&mut self) {
        self.check = None;
    }

    /// Starts the new program in place with these records, and returns only if that fails; `before`
    /// is called last of all.
    pub fn start_in_place(
        &self,
        records: &[Record<'_>],
        before: impl FnOnce(),
    ) -> anyhow::Result<std::convert::Infallible> {
        let file = file::write(records)?;
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
        Ok(nix::unistd::fexecve(&self.running, &arguments, &environment)?)
    }
}

pub fn asked(client: ClientId, stall: Duration) -> AskedRecord {
    let stall_us = u64::try_from(stall.as_micros()).unwrap_or(u64::MAX);
    AskedRecord { slot: client.slot, serial: client.serial, stall_us }
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
pub fn send_again(caught: OwnedFd, signal: Signal) -> anyhow::Result<()> {
    if UnixStream::from(caught).read(&mut [0]).is_ok_and(|count| count > 0) {
        kill_process(getpid(), signal)?;
    }
    Ok(())
}

/// Lets signals in that came while a supervisor was replaced.
///
/// # Errors
/// The kernel refuses.
pub fn unblock_signals() -> anyhow::Result<()> {
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
