//! The listening end of a socket path.
//!
//! A path left over by a process that was killed is taken over; one that a process still listens
//! on, or that is no socket at all, is left alone. Only its owner may open it: others would get
//! answers, and the guest's packets. The path is removed again when the listener goes, unless
//! another process has put another file there in the meantime.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use ringway_foreign::{DeferredDrop, Untrusted};
use rustix::fs::{Mode, fchmod};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, socket_with};

use crate::socket::{Connection, SocketError, connect_at_once, ends};

/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;

/// A listening socket, non-blocking; the file goes when it goes.
#[derive(Debug)]
pub struct Listener {
    listener: Untrusted<UnixListener>,
    path: PathBuf,
    /// Device and inode of the file that was made.
    file: (u64, u64),
}

impl Listener {
    /// Listens on a path.
    ///
    /// # Errors
    /// [`SocketError::InUse`], [`SocketError::NotASocket`], or the path cannot be used.
    pub fn bind(path: &Path) -> Result<Self, SocketError> {
        let failed = |what| move |source| SocketError::Path { path: path.to_owned(), what, source };
        let listener = match listen(path) {
            Err(error) if error.kind() == ErrorKind::AddrInUse => {
                remove_stale(path)?;
                listen(path)
            }
            bound => bound,
        }
        .map_err(failed("listen"))?;
        let file = file_identity(path).map_err(failed("inspect"))?;
        Ok(Self { listener: listener.into(), path: path.to_owned(), file })
    }

    /// Takes the next connection, if one waits.
    ///
    /// # Errors
    /// The kernel has no connection to give, for instance because no fd is left.
    pub fn accept(&self) -> Result<Option<Connection>, SocketError> {
        match self.listener.accept() {
            Ok((stream, _)) => Connection::new(self.listener.with(stream)).map(Some),
            Err(error) if may_go_on(&error) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether that is the other end of a connection to this listener, accepted or not.
    pub fn is_reached_by(&self, fd: BorrowedFd<'_>) -> bool {
        let name = rustix::net::getsockname(&*self.listener).ok();
        name.is_some_and(|name| ends(fd).is_some_and(|ends| ends.other == name))
    }

    /// Everything that front-ends send goes that way, and the listener itself: some may have sent
    /// what was not accepted yet.
    #[must_use]
    pub fn closed_by(mut self, closer: &DeferredDrop) -> Self {
        self.listener.go_to(closer);
        self
    }

    /// Where it listens.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if file_identity(&self.path).is_ok_and(|file| file == self.file) {
            // Nothing can be done about a path that cannot be removed; the next start will.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Listens, without waiting. The file has the socket's own mode from its first moment on, as far as
/// the umask leaves it.
fn listen(path: &Path) -> io::Result<UnixListener> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

/// A connection that was given up before it was accepted is no reason to stop listening.
fn may_go_on(error: &io::Error) -> bool {
    let kind = error.kind();
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::ConnectionAborted)
}

fn file_identity(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|file| (file.dev(), file.ino()))
}

/// Removes a socket file on which no process listens.
fn remove_stale(path: &Path) -> Result<(), SocketError> {
    let failed =
        |what| move |source: io::Error| SocketError::Path { path: path.to_owned(), what, source };
    let file = fs::symlink_metadata(path).map_err(failed("inspect"))?;
    if !file.file_type().is_socket() {
        return Err(SocketError::NotASocket { path: path.to_owned() });
    }
    match connect_at_once(path) {
        Err(Errno::CONNREFUSED) => fs::remove_file(path).map_err(failed("remove the old socket")),
        // Connected, or a full queue of waiting connections, or no right to know.
        _ => Err(SocketError::InUse { path: path.to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_socket_is_taken_over_and_removed_at_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("vm0.sock");
        drop(UnixListener::bind(&path).unwrap()); // leaves the file behind
        assert!(path.exists());
        let listener = Listener::bind(&path).unwrap();
        assert!(listener.accept().unwrap().is_none());
        let _client = Connection::connect(&path).unwrap();
        assert!(listener.accept().unwrap().is_some());
        drop(listener);
        assert!(!path.exists());
    }

    #[test]
    fn only_the_owner_may_connect() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("vm0.sock");
        let _listener = Listener::bind(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_path_in_use_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("vm0.sock");
        let first = Listener::bind(&path).unwrap();
        let error = Listener::bind(&path).unwrap_err();
        assert!(matches!(error, SocketError::InUse { .. }), "{error}");
        Connection::connect(&path).unwrap();
        drop(first);
    }

    #[test]
    fn a_file_that_is_no_socket_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("precious");
        fs::write(&path, "data").unwrap();
        let error = Listener::bind(&path).unwrap_err();
        assert!(matches!(error, SocketError::NotASocket { .. }), "{error}");
        assert_eq!(fs::read(&path).unwrap(), b"data");
    }

    #[test]
    fn a_path_that_another_process_replaced_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("vm0.sock");
        let first = Listener::bind(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let second = Listener::bind(&path).unwrap();
        drop(first);
        assert!(path.exists());
        drop(second);
    }

    #[test]
    fn a_path_that_cannot_be_used_names_itself() {
        let error = Listener::bind(Path::new("/nonexistent/vm0.sock")).unwrap_err();
        assert!(error.to_string().starts_with("/nonexistent/vm0.sock: cannot listen"), "{error}");
    }
}
