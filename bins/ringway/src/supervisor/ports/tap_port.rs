//! A tap as the supervisor has it. Where its interface goes away, as when it is deleted, the port
//! fails visibly, and is opened again when that is possible.
//!
//! Limits: a tap that was passed as a file descriptor cannot be opened again.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::socket::SockaddrIn6;
use ringway_host::{Tap, TapError, TapOptions};
use tracing::{info, warn};

use crate::config::{PortKind, PortSpec};
use crate::places::WIDE_SERVICE;
use crate::supervisor::planes::plane::OutgoingFd;
use crate::supervisor::record::{Fds, RecordFds, TapRecord};

/// Between two attempts to open a tap that another process has.
const PAUSE: Duration = Duration::from_millis(5);

/// The state of a tap.
#[derive(Debug, Default)]
pub struct TapState {
    /// Of its interface; `None`: it is not open.
    name: Option<String>,
    /// Each queue.
    queues: Vec<Arc<OwnedFd>>,
    /// A socket to ask about the interface with.
    interfaces: Option<Arc<OwnedFd>>,
    /// Its interface is gone; it is opened again then.
    pub reopen_at: Option<Instant>,
    /// It was opened again, and the data plane has not said yet that it has it.
    pub is_reopening: bool,
    /// The bridge that its interface was last seen to be a part of.
    bridge: Option<String>,
    /// Its interface is a new one, and not yet a part of anything.
    pub notice: Option<String>,
}

impl TapState {
    /// Opens the tap of a port, for so many workers. One that another process has is waited for,
    /// no longer than that.
    ///
    /// # Errors
    /// The operating system refuses.
    pub fn open(
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
    pub fn resume(record: &TapRecord, fds: &mut RecordFds) -> anyhow::Result<Self> {
        let mut own = |at| fds.take(at).map(Arc::new);
        let queues = record.queues.iter().map(|&at| own(at)).collect::<anyhow::Result<_>>()?;
        let interfaces = record.interfaces.map(own).transpose()?;
        let (name, reopen_at) = (Some(record.name.clone()), None);
        Ok(Self { name, queues, interfaces, reopen_at, ..Self::default() })
    }

    /// The record of it for the next supervisor.
    pub fn record<'a>(&'a self, fds: &mut Fds<'a>) -> Option<TapRecord> {
        let name = self.name.clone()?;
        let queues = self.queues.iter().map(|fd| fds.put(fd.as_fd())).collect();
        let interfaces = self.interfaces.as_ref().map(|fd| fds.put(fd.as_fd()));
        Some(TapRecord { name, queues, interfaces })
    }

    /// It was opened again and is not served yet.
    pub fn is_reopening(&self) -> bool {
        self.is_reopening
    }

    /// The file descriptors that the data plane gets.
    pub fn sent(&self) -> Vec<OutgoingFd> {
        self.queues.iter().chain(&self.interfaces).cloned().map(OutgoingFd::Own).collect()
    }

    /// The name of its interface.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Changes the MTU of its interface.
    ///
    /// # Errors
    /// The operating system refuses.
    pub fn set_mtu(&self, mtu: u16) -> anyhow::Result<()> {
        let Some(name) = &self.name else { return Ok(()) };
        let interfaces = self.interfaces.as_ref().map(AsFd::as_fd);
        Tap::set_mtu_of(name, interfaces, mtu).map_err(whole)
    }

    /// So it is a part of that bridge, or of none.
    pub fn see_bridge(&mut self, bridge: Option<String>) {
        if bridge.is_some() {
            (self.bridge, self.notice) = (bridge, None);
        }
        // One that was in no bridge is used by its addresses.
        if self.notice.is_some() && self.bridge.is_none() && self.name().is_some_and(has_address) {
            self.notice = None;
        }
    }

    /// Its interface was deleted, and ringway has made it anew: in no bridge, without addresses.
    pub fn note_new(&mut self, port: &str) {
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
    pub fn is_reopened(&mut self, port: &str) {
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
