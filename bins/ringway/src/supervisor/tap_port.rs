//! A tap as the supervisor has it. Where its interface goes away, as when it is deleted, the port
//! fails visibly, and is opened again when that is possible.
//!
//! Limits: a tap that was passed as a file descriptor cannot be opened again.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::socket::SockaddrIn6;
use ringway_host::{Tap, TapError, TapOptions};
use ringway_switch::PortId;
use tracing::{info, warn};

use super::Supervisor;
use super::accept_backoff::RETRY_AFTER;
use super::order::Requester;
use super::plane::OutgoingFd;
use super::record::{Fds, RecordFds, TapRecord};
use crate::bridge_fdb::{self, Netlink};
use crate::config::{PortKind, PortSpec};
use crate::places::WIDE_SERVICE;

/// Between two attempts to open a tap that another process has.
const PAUSE: Duration = Duration::from_millis(5);

/// The state of a tap.
#[derive(Debug, Default)]
pub(super) struct TapState {
    /// Of its interface; `None`: it is not open.
    name: Option<String>,
    /// Each queue.
    queues: Vec<Arc<OwnedFd>>,
    /// A socket to ask about the interface with.
    interfaces: Option<Arc<OwnedFd>>,
    /// Its interface is gone; it is opened again then.
    pub(super) reopen_at: Option<Instant>,
    /// It was opened again, and the data plane has not said yet that it has it.
    is_reopening: bool,
    /// The bridge that its interface was last seen to be a part of.
    bridge: Option<String>,
    /// Its interface is a new one, and not yet a part of anything.
    pub(super) notice: Option<String>,
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
        (self.name, self.queues, self.interfaces) = (None, Vec::new(), None);
        let queues = match &spec.kind {
            PortKind::Tap { name } => {
                let options = TapOptions { name: name.clone(), mtu: spec.mtu };
                open_when_free(&options, spec.queues.min(workers), patience).map_err(not_opened)?
            }
            PortKind::TapFd { fd } => vec![Tap::from_raw_fd_number(*fd).map_err(whole)?],
            PortKind::Vm { .. } | PortKind::VmConnect { .. } | PortKind::Nat => return Ok(()),
        };
        let own = |fd: BorrowedFd<'_>| fd.try_clone_to_owned().map(Arc::new);
        let fds: std::io::Result<Vec<_>> = queues.iter().map(|queue| own(queue.as_fd())).collect();
        let interfaces = queues.first().and_then(Tap::interfaces).map(own).transpose()?;
        let name = queues.first().map(|queue| queue.name().to_owned());
        (self.name, self.queues, self.interfaces) = (name, fds?, interfaces);
        Ok(())
    }

    /// One that another supervisor had open.
    ///
    /// # Errors
    /// Not all of it came along.
    pub(super) fn resume(record: &TapRecord, fds: &mut RecordFds) -> anyhow::Result<Self> {
        let mut own = |at| fds.take(at).map(Arc::new);
        let queues = record.queues.iter().map(|&at| own(at)).collect::<anyhow::Result<_>>()?;
        let interfaces = record.interfaces.map(own).transpose()?;
        let (name, reopen_at) = (Some(record.name.clone()), None);
        Ok(Self { name, queues, interfaces, reopen_at, ..Self::default() })
    }

    /// The record of it for the next supervisor.
    pub(super) fn record<'a>(&'a self, fds: &mut Fds<'a>) -> Option<TapRecord> {
        let name = self.name.clone()?;
        let queues = self.queues.iter().map(|fd| fds.put(fd.as_fd())).collect();
        let interfaces = self.interfaces.as_ref().map(|fd| fds.put(fd.as_fd()));
        Some(TapRecord { name, queues, interfaces })
    }

    /// It was opened again and is not served yet.
    pub(super) fn is_reopening(&self) -> bool {
        self.is_reopening
    }

    /// The file descriptors that the data plane gets.
    pub(super) fn sent(&self) -> Vec<OutgoingFd> {
        self.queues.iter().chain(&self.interfaces).cloned().map(OutgoingFd::Own).collect()
    }

    /// The name of its interface.
    pub(super) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Changes the MTU of its interface.
    ///
    /// # Errors
    /// The operating system refuses.
    pub(super) fn set_mtu(&self, mtu: u16) -> anyhow::Result<()> {
        let Some(name) = &self.name else { return Ok(()) };
        let interfaces = self.interfaces.as_ref().map(AsFd::as_fd);
        Tap::set_mtu_of(name, interfaces, mtu).map_err(whole)
    }

    /// So it is a part of that bridge, or of none.
    fn see_bridge(&mut self, bridge: Option<String>) {
        if bridge.is_some() {
            (self.bridge, self.notice) = (bridge, None);
        }
        // One that was in no bridge is used by its addresses.
        if self.notice.is_some() && self.bridge.is_none() && self.name().is_some_and(has_address) {
            self.notice = None;
        }
    }

    /// Its interface was deleted, and ringway has made it anew: in no bridge, without addresses.
    fn note_new(&mut self, port: &str) {
        let Some(name) = &self.name else { return };
        let was_in = self.bridge.as_ref().map_or_else(String::new, |bridge| {
            format!(": the one before was in {bridge}: ip link set {name} master {bridge} up")
        });
        let notice =
            format!("{name} is a new interface, in no bridge and without addresses{was_in}");
        warn!(port, "{notice}");
        self.notice = Some(notice);
    }

    /// The data plane has it.
    pub(super) fn is_reopened(&mut self, port: &str) {
        if std::mem::take(&mut self.is_reopening) {
            info!(port, "opened again");
        }
    }
}

/// Whether the host gave that interface an address; each has one of its link by itself.
fn has_address(interface: &str) -> bool {
    let all = nix::ifaddrs::getifaddrs().into_iter().flatten();
    let of_it = all.filter(|one| one.interface_name == interface);
    of_it.filter_map(|one| one.address).any(|address| {
        let is_global = |ip: &SockaddrIn6| !ip.ip().is_unicast_link_local();
        address.as_sockaddr_in().is_some() || address.as_sockaddr_in6().is_some_and(is_global)
    })
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

    /// Notes which bridges taps are in, to say so when one of them is gone.
    pub(super) fn see_bridges_of_taps(&mut self) {
        let is_tap = |port: &super::Port| port.spec.kind.is_tap() && port.failure.is_none();
        if !self.ports.values().any(is_tap) {
            return;
        }
        // A service may not ask: then it is not known.
        let Ok(mut netlink) = Netlink::open() else { return };
        // Not all interfaces, of which there may be thousands: statistics are asked for often.
        for port in self.ports.values_mut().filter(|port| is_tap(port)) {
            let own = port.tap.name().and_then(|name| bridge_fdb::interface(name).ok());
            let link = own.and_then(|own| netlink.link(own).ok());
            let bridge = link.and_then(|link| netlink.link(link.bridge?).ok());
            port.tap.see_bridge(bridge.map(|bridge| bridge.name));
        }
    }

    /// When the next tap is to be opened again.
    pub(super) fn next_reopening(&self) -> Option<Instant> {
        let due = self.ports.values().filter_map(|port| port.tap.reopen_at);
        due.filter(|_| !self.planes.is_holding()).min()
    }

    /// Opens taps again whose time has come.
    pub(super) fn reopen_due_taps(&mut self) {
        let now = Instant::now();
        let workers = self.workers;
        for id in self.ids() {
            let Some(port) = self.ports.get_mut(&id) else { continue };
            if self.planes.is_holding() || port.tap.reopen_at.is_none_or(|at| at > now) {
                continue;
            }
            port.tap.reopen_at = None;
            let spec = port.spec.clone();
            let is_new = bridge_fdb::interface(&spec.kind.address()).is_err();
            match port.tap.open(&spec, workers, Duration::ZERO) {
                Ok(()) => {
                    if is_new {
                        port.tap.note_new(&spec.name);
                    }
                    port.failure = None;
                    port.tap.is_reopening = true;
                    self.order_open(id, Requester::default());
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

/// As a service ringway is a user without rights, and its unit says how it gets them.
fn not_opened(why: TapError) -> anyhow::Error {
    let is_service = std::env::var_os("NOTIFY_SOCKET").is_some();
    match &why {
        TapError::PermissionDenied { .. } if is_service => anyhow::anyhow!(
            "{why} (with the user of the service), or let the service make taps: {WIDE_SERVICE}"
        ),
        _ => whole(why),
    }
}

/// An error whose text has its causes in it already, so that `{:#}` does not add them once more.
fn whole(why: impl std::fmt::Display) -> anyhow::Error {
    anyhow::anyhow!("{why}")
}
