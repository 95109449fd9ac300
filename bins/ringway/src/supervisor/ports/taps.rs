//! Ports of taps: those whose interfaces are gone, and come again.

use std::time::{Duration, Instant};

use ringway_switch::PortId;
use tracing::warn;

use super::Ports;
use super::port::SupervisedPort;
use crate::bridge_fdb::{self, Netlink};
use crate::config::PortKind;
use crate::supervisor::clients::accept_backoff::RETRY_AFTER;

impl Ports {
    /// The interface of a tap is gone; perhaps of one that was opened anew since.
    pub fn on_tap_gone(&mut self, id: PortId) {
        let Some(port) = self.get_mut(&id) else { return };
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

    /// Notes which bridges taps are in, to say so when one of them is gone.
    pub fn see_bridges_of_taps(&mut self) {
        let is_tap = |port: &SupervisedPort| port.spec.kind.is_tap() && port.failure.is_none();
        if !self.values().any(is_tap) {
            return;
        }
        // A service may not ask: then it is not known.
        let Ok(mut netlink) = Netlink::open() else { return };
        // Not all interfaces, of which there may be thousands: statistics are asked for often.
        for port in self.values_mut().filter(|port| is_tap(port)) {
            let own = port.tap.name().and_then(|name| bridge_fdb::interface(name).ok());
            let link = own.and_then(|own| netlink.link(own).ok());
            let bridge = link.and_then(|link| netlink.link(link.bridge?).ok());
            port.tap.see_bridge(bridge.map(|bridge| bridge.name));
        }
    }

    /// Opens taps again whose time has come: those that are open, and not yet a data plane's.
    pub fn reopen_due_taps(&mut self, workers: u16, now: Instant) -> Vec<PortId> {
        let is_due = |port: &&mut SupervisedPort| port.tap.reopen_at.is_some_and(|at| at <= now);
        let due = self.iter_mut().map(|(id, port)| (*id, port)).filter(|(_, port)| is_due(port));
        due.filter_map(|(id, port)| port.reopen_tap(workers, now).then_some(id)).collect()
    }

    /// When the next tap is to be opened again.
    pub fn next_reopening(&self, is_holding: bool) -> Option<Instant> {
        let due = self.values().filter_map(|port| port.tap.reopen_at);
        due.filter(|_| !is_holding).min()
    }
}

impl SupervisedPort {
    /// Opens its tap again. `false`: that is not possible yet.
    fn reopen_tap(&mut self, workers: u16, now: Instant) -> bool {
        self.tap.reopen_at = None;
        let is_new = bridge_fdb::interface(&self.spec.kind.address()).is_err();
        let Err(why) = self.tap.open(&self.spec, workers, Duration::ZERO) else {
            if is_new {
                self.tap.note_new(&self.spec.name);
            }
            (self.failure, self.tap.is_reopening) = (None, true);
            return true;
        };
        let why = format!("{why:#}");
        if self.failure.as_ref() != Some(&why) {
            warn!(port = self.spec.name, "not opened again yet: {why}");
        }
        (self.failure, self.tap.reopen_at) = (Some(why), Some(now + RETRY_AFTER));
        false
    }
}
