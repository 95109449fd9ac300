//! Sockets that a service manager listens on for ringway (sd_listen_fds(3)): the one that is called
//! `control`, and those that are called as ports.
//!
//! Their files belong to the manager: it says who may open them, and ringway does not remove them.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, getsockname, sockopt};

/// The name of the control socket.
const CONTROL: &str = "control";

/// Sockets that no port has taken.
#[derive(Debug, Default)]
pub struct Sockets(BTreeMap<String, OwnedFd>);

impl Sockets {
    pub(super) fn new(sockets: Vec<(String, OwnedFd)>) -> Self {
        Self(sockets.into_iter().collect())
    }

    /// The one of that port; it has to be at that path.
    ///
    /// # Errors
    /// It is no socket that listens there.
    pub(super) fn port(&mut self, name: &str, path: &Path) -> anyhow::Result<Option<OwnedFd>> {
        if name == CONTROL {
            return Ok(None);
        }
        self.take(name, path)
    }

    /// The control socket, which has to be at that path.
    ///
    /// # Errors
    /// It is no socket that listens there.
    pub(super) fn control(&mut self, path: &Path) -> anyhow::Result<Option<OwnedFd>> {
        self.take(CONTROL, path)
    }

    fn take(&mut self, name: &str, path: &Path) -> anyhow::Result<Option<OwnedFd>> {
        let Some(socket) = self.0.remove(name) else { return Ok(None) };
        check(&socket, path)
            .with_context(|| format!("the socket {name:?} of the service manager"))?;
        Ok(Some(socket))
    }

    /// The names of those that have no port.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

fn check(socket: &OwnedFd, path: &Path) -> anyhow::Result<()> {
    let is_stream = sockopt::socket_domain(socket).is_ok_and(|it| it == AddressFamily::UNIX)
        && sockopt::socket_type(socket).is_ok_and(|it| it == SocketType::STREAM)
        && sockopt::socket_acceptconn(socket).is_ok_and(|it| it);
    ensure!(is_stream, "is no Unix socket that listens (ListenStream=PATH)");
    let at = getsockname(socket).ok().and_then(|at| SocketAddrUnix::try_from(at).ok());
    let at = at.as_ref().and_then(SocketAddrUnix::path_bytes);
    let at = at.map(|bytes| PathBuf::from(String::from_utf8_lossy(bytes).into_owned()));
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    match at {
        Some(at) if at == path => Ok(()),
        Some(at) => bail!("is at {}: the configuration says {}", at.display(), path.display()),
        None => bail!("has no path: the configuration says {}", path.display()),
    }
}
