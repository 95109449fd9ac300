//! A tap as the supervisor has it. Where its interface goes away, as when it is deleted, the port
//! fails visibly, and is opened again when that is possible.
//!
//! Limits: a tap that was passed as a file descriptor cannot be opened again.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ringway_host::{Tap, TapError, TapOptions};
use ringway_switch::PortId;
use tracing::{info, warn};

use super::Supervisor;
use super::accept_backoff::RETRY_AFTER;
use super::order::Asked;
use super::plane::Sent;
use crate::config::{PortKind, PortSpec};

/// Between two attempts to open a tap that another process has.
const PAUSE: Duration = Duration::from_millis(5);

/// What is known of a tap.
#[derive(Debug, Default)]
pub(super) struct TapState {
    /// Its first queue, by which its MTU is set.
    first: Option<Tap>,
    /// Each queue, and behind them a socket to ask about the interface with.
    fds: Vec<Arc<OwnedFd>>,
    /// Its interface is gone; it is opened again then.
    reopen_at: Option<Instant>,
    /// It was opened again, and the data plane has not said yet that it has it.
    is_reopening: bool,
}

impl TapState {
    /// Opens the tap of a port, for so many workers. One that another process has is waited for,
    /// no longer than that.
    ///
    /// # Errors
    /// The operating system refuses.
    pub(super) fn open(
        &mut self,
        spec: &PortSpec,
        workers: u16,
        patience: Duration,
    ) -> anyhow::Result<()> {
        // First of all: an interface that is used twice cannot be had.
        (self.first, self.fds) = (None, Vec::new());
        let queues = match &spec.kind {
            PortKind::Tap { name } => {
                let options = TapOptions { name: name.clone(), mtu: spec.mtu };
                open_when_free(&options, spec.queues.min(workers), patience).map_err(whole)?
            }
            PortKind::TapFd { fd } => vec![Tap::from_raw_fd_number(*fd).map_err(whole)?],
            PortKind::Vm { .. } | PortKind::VmConnect { .. } | PortKind::Nat => return Ok(()),
        };
        let interfaces = queues.first().and_then(Tap::interfaces);
        for fd in queues.iter().map(AsFd::as_fd).chain(interfaces) {
            self.fds.push(Arc::new(fd.try_clone_to_owned()?));
        }
        self.first = queues.into_iter().next();
        Ok(())
    }

    /// What the data plane gets.
    pub(super) fn sent(&self) -> Vec<Sent> {
        self.fds.iter().cloned().map(Sent::Own).collect()
    }

    /// The name of its interface.
    pub(super) fn name(&self) -> Option<&str> {
        self.first.as_ref().map(Tap::name)
    }

    /// Changes the MTU of its interface.
    ///
    /// # Errors
    /// The operating system refuses.
    pub(super) fn set_mtu(&mut self, mtu: u16) -> anyhow::Result<()> {
        self.first.as_mut().map_or(Ok(()), |tap| tap.set_mtu(mtu)).map_err(whole)
    }

    /// The data plane has it.
    pub(super) fn is_reopened(&mut self, port: &str) {
        if std::mem::take(&mut self.is_reopening) {
            info!(port, "opened again");
        }
    }
}

fn open_when_free(
    options: &TapOptions,
    queues: u16,
    patience: Duration,
) -> Result<Vec<Tap>, TapError> {
    let until = Instant::now() + patience;
    loop {
        match Tap::open_queues(options, queues) {
            Err(TapError::Busy { .. }) if Instant::now() < until => std::thread::sleep(PAUSE),
            opened => return opened,
        }
    }
}

impl Supervisor {
    /// The interface of a tap is gone; perhaps of one that was opened anew since.
    pub(super) fn on_tap_gone(&mut self, id: PortId) {
        let Some(port) = self.ports.get_mut(&id) else { return };
        if port.failure.is_some() || port.is_leaving() || port.tap.is_reopening {
            return;
        }
        let why = format!("{}: its interface is gone", port.spec.kind);
        port.tap.reopen_at = match port.spec.kind {
            PortKind::Tap { .. } => Some(Instant::now() + RETRY_AFTER),
            _ => None,
        };
        let again = port.tap.reopen_at.map_or("not opened again", |_| "opened again when possible");
        warn!(port = port.spec.name, "{why}: {again}");
        port.failure = Some(why);
    }

    /// When the next tap is to be opened again.
    pub(super) fn next_reopening(&self) -> Option<Instant> {
        let due = self.ports.values().filter_map(|port| port.tap.reopen_at);
        due.filter(|_| !self.is_holding).min()
    }

    /// Opens taps again whose time has come.
    pub(super) fn reopen_due_taps(&mut self) {
        let now = Instant::now();
        let workers = self.workers;
        for id in self.ids() {
            let Some(port) = self.ports.get_mut(&id) else { continue };
            if self.is_holding || port.tap.reopen_at.is_none_or(|at| at > now) {
                continue;
            }
            port.tap.reopen_at = None;
            let spec = port.spec.clone();
            match port.tap.open(&spec, workers, Duration::ZERO) {
                Ok(()) => {
                    port.failure = None;
                    port.tap.is_reopening = true;
                    self.order_open(id, Asked::default());
                }
                Err(why) => {
                    let why = format!("{why:#}");
                    if port.failure.as_ref() != Some(&why) {
                        warn!(port = port.spec.name, "not opened again yet: {why}");
                    }
                    port.failure = Some(why);
                    port.tap.reopen_at = Some(now + RETRY_AFTER);
                }
            }
        }
    }
}

/// An error whose text has its causes in it already, so that `{:#}` does not add them once more.
fn whole(why: impl std::fmt::Display) -> anyhow::Error {
    anyhow::anyhow!("{why}")
}
