//! Sockets that a service manager listens on for ringway (sd_listen_fds(3)): the one that is called
//! `control`, and those that are called as ports. And the one that a back-end was given.
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
pub struct Sockets {
    passed: BTreeMap<String, OwnedFd>,
    /// For the port of that name; wherever it is.
    given: Option<(String, OwnedFd)>,
}

/// A Unix stream socket.
#[derive(Debug)]
pub enum InheritedSocket {
    Listening(OwnedFd),
    /// To the only front-end that the port will ever have.
    Connected(OwnedFd),
}

impl Sockets {
    pub fn new(sockets: Vec<(String, OwnedFd)>) -> Self {
        Self { passed: sockets.into_iter().collect(), given: None }
    }

    /// That socket is for the port of that name.
    #[must_use]
    pub fn with_given(mut self, name: &str, socket: Option<OwnedFd>) -> Self {
        self.given = socket.map(|socket| (name.to_owned(), socket));
        self
    }

    /// The one of that port; it has to be at that path.
    ///
    /// # Errors
    /// It is no socket that listens there.
    pub fn port(&mut self, name: &str, path: &Path) -> anyhow::Result<Option<InheritedSocket>> {
        if let Some((_, socket)) = self.given.take_if(|(given, _)| given == name) {
            let listens = sockopt::socket_acceptconn(&socket).unwrap_or(false);
            let kind =
                if listens { InheritedSocket::Listening } else { InheritedSocket::Connected };
            return Ok(Some(kind(socket)));
        }
        if name == CONTROL {
            return Ok(None);
        }
        Ok(self.take(name, path)?.map(InheritedSocket::Listening))
    }

    /// The control socket, which has to be at that path.
    ///
    /// # Errors
    /// It is no socket that listens there.
    pub fn control(&mut self, path: &Path) -> anyhow::Result<Option<OwnedFd>> {
        self.take(CONTROL, path)
    }

    fn take(&mut self, name: &str, path: &Path) -> anyhow::Result<Option<OwnedFd>> {
        let Some(socket) = self.passed.remove(name) else { return Ok(None) };
        check(&socket, path)
            .with_context(|| format!("the socket {name:?} of the service manager"))?;
        Ok(Some(socket))
    }

    /// The names of those that have no port.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.passed.keys().map(String::as_str)
    }
}

fn check(socket: &OwnedFd, path: &Path) -> anyhow::Result<()> {
    let is_stream = sockopt::socket_domain(socket).is_ok_and(|it| it == AddressFamily::UNIX)
        && sockopt::socket_type(socket).is_ok_and(|it| it == SocketType::STREAM)
        && sockopt::socket_acceptconn(socket).is_ok_and(|it| it);
    ensure!(is_stream, "is no Unix socket that listens (ListenStream=PATH)");
    let at = path_of(socket);
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    match at {
        Some(at) if at == path => Ok(()),
        Some(at) => bail!("is at {}: the configuration says {}", at.display(), path.display()),
        None => bail!("has no path: the configuration says {}", path.display()),
    }
}

/// Where a socket is in the file system, if it is there.
pub fn path_of(socket: &OwnedFd) -> Option<PathBuf> {
    let at = SocketAddrUnix::try_from(getsockname(socket).ok()?).ok()?;
    Some(PathBuf::from(String::from_utf8_lossy(at.path_bytes()?).into_owned()))
}
