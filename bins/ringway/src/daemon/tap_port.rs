//! A tap whose interface goes away, as when it is deleted: the port fails visibly, and is opened
//! again when that is possible.
//!
//! Limits: a tap that was passed as a file descriptor cannot be opened again.

use std::time::Instant;

use ringway_host::TapWatch;
use ringway_switch::PortId;
use tracing::{info, warn};

use super::Daemon;
use super::accept_backoff::RETRY_AFTER;
use crate::config::PortKind;

/// What the control thread knows of an open tap.
#[derive(Debug, Default)]
pub(super) struct TapState {
    /// Of each of its queues.
    pub(super) queues: Vec<TapWatch>,
    /// Its interface is gone; it is opened again then.
    reopen_at: Option<Instant>,
}

impl Daemon {
    /// A worker has found that the interface of a tap is gone; perhaps of one that was opened anew
    /// since.
    pub(super) fn on_tap_gone(&mut self, id: PortId) {
        let Some(port) = self.ports.get_mut(&id) else { return };
        let is_known = port.failure.is_some() || port.is_leaving();
        if is_known || !port.tap.queues.iter().any(TapWatch::is_gone) {
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
        self.ports.values().filter_map(|port| port.tap.reopen_at).min()
    }

    /// Opens taps again whose time has come.
    pub(super) fn reopen_due_taps(&mut self) {
        let now = Instant::now();
        for id in self.ids() {
            let due = |port: &&super::Port| port.tap.reopen_at.is_some_and(|at| at <= now);
            if self.ports.get(&id).filter(due).is_none() {
                continue;
            }
            let Some(mut port) = self.ports.remove(&id) else { continue };
            port.tap.reopen_at = None;
            match self.try_open(id, &mut port) {
                Ok(()) => {
                    port.failure = None;
                    info!(port = port.spec.name, "opened again");
                }
                Err(why) => {
                    let why = format!("{why:#}");
                    if port.failure.as_ref() != Some(&why) {
                        warn!(port = port.spec.name, "not opened again yet: {why}");
                    }
                    port.failure = Some(why);
                    port.tap.reopen_at = Some(Instant::now() + RETRY_AFTER);
                }
            }
            self.ports.insert(id, port);
        }
    }
}
