//! Sources of this process's own that wake the loop: signals, and a bell that threads ring.

use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use ringway_host::{EventFd, Poller};
use rustix::time::{ClockId, clock_gettime};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};

use super::wake::Wake;
use crate::signals::{catch, is_ignored};

pub struct Os {
    pub poller: Rc<Poller>,
    /// SIGINT or SIGTERM.
    stop: UnixStream,
    /// SIGHUP. `None`: nohup(1) has asked for it to be ignored, and there is no file to read again.
    reload: UnixStream,
    hears_hangup: bool,
    /// A child was stopped, goes on or has ended.
    child: UnixStream,
    /// Rung when a thread has closed what front-ends had sent.
    pub bell: Arc<EventFd>,
    /// A client has asked for the end.
    pub is_to_stop: bool,
}

impl Os {
    /// `file`: it is read again on SIGHUP.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn new(poller: Rc<Poller>, file: Option<&Path>) -> anyhow::Result<Self> {
        // One that nohup(1) has started stays, unless there is a file to read again.
        let hears_hangup = file.is_some() || !is_ignored(SIGHUP);
        let stop = catch(&[SIGINT, SIGTERM])?;
        let reload = catch(if hears_hangup { &[SIGHUP] } else { &[] })?;
        let child = catch(&[SIGCHLD])?;
        for caught in [&stop, &reload, &child] {
            caught.set_nonblocking(true)?;
        }
        poller.add(stop.as_fd(), Wake::Signal.token())?;
        poller.add(child.as_fd(), Wake::Child.token())?;
        if hears_hangup {
            poller.add(reload.as_fd(), Wake::Reload.token())?;
        }
        let bell = Arc::new(EventFd::new().context("eventfd")?);
        poller.add(bell.as_fd(), Wake::Bell.token())?;
        Ok(Self { poller, stop, reload, hears_hangup, child, bell, is_to_stop: false })
    }

    /// Takes note of a signal, so that the next one is noticed again.
    pub fn heed(&self, wake: Wake) {
        let caught = match wake {
            Wake::Reload => &self.reload,
            Wake::Child => &self.child,
            _ => &self.stop,
        };
        let mut caught: &UnixStream = caught;
        let _ = caught.read(&mut [0; 16]);
    }

    /// SIGHUP waits until all is read again; otherwise it would wake the loop again and again.
    pub fn hold(&self, is_holding: bool) {
        if !self.hears_hangup {
            return;
        }
        let fd = self.reload.as_fd();
        let add = || self.poller.add(fd, Wake::Reload.token());
        let _ = if is_holding { self.poller.remove(fd) } else { add() };
    }

    /// Signals that were caught and not heeded: to stop, to reload.
    pub fn caught(&self) -> [&UnixStream; 2] {
        [&self.stop, &self.reload]
    }
}

/// By the clock that counts from the start of the machine.
pub fn since_boot() -> Duration {
    Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap_or_default()
}
