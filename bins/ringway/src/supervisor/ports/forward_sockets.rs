//! Unix sockets that lead into guests of a router. The supervisor makes them, because only it may
//! open files; the data plane takes connections. They outlive data planes, with who waits there.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use ringway_vhost_user::Listener;

use super::vm_port::{listen, permit};
use crate::config::PortSpec;
use crate::places;
use crate::supervisor::planes::plane::OutgoingFd;
use crate::supervisor::record::{Fds, ListenerRecord, RecordFds};

/// Those of one router.
#[derive(Default)]
pub struct ForwardSockets(Vec<Made>);

/// One of them, and what the data plane gets of it.
struct Made {
    listener: Listener,
    sent: Arc<OwnedFd>,
}

impl Made {
    fn of(listener: Listener) -> anyhow::Result<Self> {
        let sent = Arc::new(listener.as_fd().try_clone_to_owned()?);
        Ok(Self { listener, sent })
    }

    fn open(path: &Path, spec: &PortSpec) -> anyhow::Result<Self> {
        let listener = listen(path, &places::control_socket())?;
        permit(&listener, spec)?;
        Self::of(listener)
    }
}

impl ForwardSockets {
    fn has(&self, path: &Path) -> bool {
        self.0.iter().any(|made| made.listener.path() == path)
    }

    fn missing<'a>(&self, spec: &'a PortSpec) -> Vec<&'a Path> {
        spec.nat.sockets().filter(|path| !self.has(path)).collect()
    }

    /// Makes those that are missing, as far as that is possible; `true`: some were made.
    pub fn open(&mut self, spec: &PortSpec, complain: impl Fn(&anyhow::Error)) -> bool {
        let before = self.0.len();
        for path in self.missing(spec) {
            match Made::open(path, spec) {
                Ok(made) => self.0.push(made),
                Err(why) => complain(&why),
            }
        }
        self.0.len() > before
    }

    /// Follows a change: makes new ones, and lets others open them. Those that are not needed any
    /// more stay until [`Self::close_others`].
    ///
    /// # Errors
    /// The operating system refuses; then nothing has changed.
    pub fn follow(&mut self, now: &PortSpec, before: &PortSpec) -> anyhow::Result<()> {
        let count = self.0.len();
        let done = self.open_new(now, before).and_then(|()| self.permit(now, before));
        if done.is_err() {
            self.0.truncate(count);
        }
        done
    }

    fn open_new(&mut self, now: &PortSpec, before: &PortSpec) -> anyhow::Result<()> {
        for path in self.missing(now) {
            // A socket that could not be had before is no reason to refuse anything else.
            if !before.nat.sockets().any(|known| known == path) {
                self.0.push(Made::open(path, now).context("a forward")?);
            }
        }
        Ok(())
    }

    fn permit(&self, now: &PortSpec, before: &PortSpec) -> anyhow::Result<()> {
        if now.socket_access() == before.socket_access() {
            return Ok(());
        }
        for (count, made) in self.0.iter().enumerate() {
            if let Err(why) = permit(&made.listener, now) {
                for made in &self.0[..count] {
                    let _ = permit(&made.listener, before);
                }
                return Err(why);
            }
        }
        Ok(())
    }

    /// Those that lead nowhere any more go, with their files.
    pub fn close_others(&mut self, spec: &PortSpec) {
        self.0.retain(|made| spec.nat.sockets().any(|path| path == made.listener.path()));
    }

    /// The sockets that the data plane gets.
    pub fn sent(&self) -> impl Iterator<Item = OutgoingFd> {
        self.0.iter().map(|made| OutgoingFd::Own(Arc::clone(&made.sent)))
    }

    /// Their records for the next supervisor.
    pub fn record<'a>(&'a self, fds: &mut Fds<'a>) -> Vec<ListenerRecord> {
        self.0.iter().map(|made| ListenerRecord::of(&made.listener, fds)).collect()
    }

    /// Those that another supervisor had made.
    ///
    /// # Errors
    /// Not all of them came along.
    pub fn resume(records: &[ListenerRecord], fds: &mut RecordFds) -> anyhow::Result<Self> {
        let resume = |record: &ListenerRecord| {
            Made::of(Listener::resume(fds.take(record.fd)?, &record.path, record.made())?)
        };
        Ok(Self(records.iter().map(resume).collect::<anyhow::Result<_>>()?))
    }
}
