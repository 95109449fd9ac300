//! A capture that a running ringway was asked for, and waiting for what comes of it.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use ringway_host::CaptureReader;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::control::client::{ControlError, ask_for_fds};
use crate::control::{CaptureQuestion, CaptureReply, Request};
use crate::port_command::{names, ports};

/// The ringway to ask, and the question.
pub struct CaptureTarget {
    pub control: PathBuf,
    pub question: CaptureQuestion,
}

impl CaptureTarget {
    /// Begins it: the answer, its packets, and what is closed at the other end when it ends there.
    ///
    /// # Errors
    /// It is refused, or the operating system refuses something.
    pub fn begin(&self) -> anyhow::Result<(CaptureReply, CaptureReader, OwnedFd)> {
        let request = Request::Capture(self.question.clone());
        let (reply, fds) = ask_for_fds(&self.control, &request)?;
        let Ok([file, plane]) = <[OwnedFd; 2]>::try_from(fds) else {
            bail!("the answer came without file descriptors: none is left");
        };
        Ok((reply, CaptureReader::open(file).context("the file of captures")?, plane))
    }

    /// Whether all its ports were removed, or the whole ringway ended. Of several, those that are
    /// left are asked for from now on.
    pub fn is_over(&mut self) -> bool {
        let listed = match ports(&self.control) {
            Ok(listed) => listed,
            Err(why) => return matches!(why, ControlError::NotRunning(_)),
        };
        let is_there = |wanted: &String| names(&listed).any(|name| name == wanted);
        let mut left = self.question.ports().to_vec();
        left.retain(is_there);
        let is_over = left.is_empty();
        if !self.question.names.is_empty() && !is_over {
            self.question.names = left;
        }
        is_over
    }
}

/// The first of them that can be read within that time, or was closed at its other end.
///
/// # Errors
/// The operating system refuses to wait.
pub fn first_ready(fds: &[BorrowedFd<'_>], time: Duration) -> anyhow::Result<Option<usize>> {
    let mut fds: Vec<_> = fds.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
    let timeout = Timespec::try_from(time).ok();
    match poll(&mut fds, timeout.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(why) => return Err(why).context("waiting for packets"),
    }
    Ok(fds.iter().position(|fd| !fd.revents().is_empty()))
}
