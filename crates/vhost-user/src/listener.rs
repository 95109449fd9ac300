//! The listening end of a socket path.
//!
//! A path left over by a process that was killed is taken over; one that a process still listens
//! on, or that is no socket at all, is left alone. Of several processes that start at once, one has
//! it: each locks the directory until it listens. Only its owner may open it, unless
//! [`Listener::permit`] says otherwise: others would get answers, and the guest's packets. The path
//! is removed again when the listener goes, unless another process has put another file there in
//! the meantime.
//!
//! Limits: a directory that cannot be read, or that another process keeps locked, is not locked.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ringway_foreign::{DeferredDrop, Untrusted};
use rustix::fs::{
    AtFlags, FlockOperation, Gid, Mode, OFlags, Uid, chmod, chownat, fchmod, flock, fstat, open,
};
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, socket_with};

use crate::socket::{Connection, connect_at_once, ends};
use crate::socket_error::{FilePart, SocketError};

/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;

/// How long the lock of a directory is waited for. Another ringway has it for a moment only, and
/// others who have it for longer hinder no start.
const LOCK_PATIENCE: Duration = Duration::from_millis(250);

/// How often it is tried.
const LOCK_EVERY: Duration = Duration::from_millis(1);

/// The operation on a file on which no process listens.
const REMOVE: &str = "remove the old socket";

/// The users that may open the socket's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// Its permissions, at most 0777.
    pub mode: u32,
    /// Its owner; `None`: the one it was made with.
    pub user: Option<u32>,
    /// Its group; `None`: the one it was made with.
    pub group: Option<u32>,
}

/// A file's permissions, owner and group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Owned {
    mode: u32,
    user: u32,
    group: u32,
}

/// The file of a listener, as it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Made {
    /// Device and inode.
    pub file: (u64, u64),
    /// Owner and group.
    pub made_for: (u32, u32),
}

impl Made {
    /// No file is ever it: this process does not change or remove the file.
    pub const BY_OTHERS: Self = Self { file: (0, 0), made_for: (0, 0) };
}

/// A listening socket, non-blocking; the file goes when it goes.
#[derive(Debug)]
pub struct Listener {
    listener: Untrusted<UnixListener>,
    path: PathBuf,
    /// Device and inode of the file that was made.
    file: (u64, u64),
    /// Its owner and group when it was made.
    made_for: (u32, u32),
}

impl Listener {
    /// Listens on a path.
    ///
    /// # Errors
    /// [`SocketError::InUse`], [`SocketError::NotASocket`], or the path cannot be used.
    pub fn bind(path: &Path) -> Result<Self, SocketError> {
        let listener = take_path(path, || listen(path))?;
        let made = fs::symlink_metadata(path).map_err(failed(path, "inspect"))?;
        let (file, made_for) = ((made.dev(), made.ino()), (made.uid(), made.gid()));
        Ok(Self { listener: listener.into(), path: path.to_owned(), file, made_for })
    }

    /// Goes on with the socket of another process, which had bound it to that path and had
    /// [`made`](Self::made) the file.
    ///
    /// # Errors
    /// It is no socket that listens.
    pub fn resume(listener: OwnedFd, path: &Path, made: Made) -> Result<Self, SocketError> {
        let listener = UnixListener::from(listener);
        listener.set_nonblocking(true)?;
        if made != Made::BY_OTHERS {
            // From now on those who connect are told of this process, not of the one before.
            rustix::net::listen(&listener, BACKLOG)?;
        }
        let Made { file, made_for } = made;
        Ok(Self { listener: listener.into(), path: path.to_owned(), file, made_for })
    }

    /// The marks that tell the file of this listener from another one at its path.
    pub fn made(&self) -> Made {
        Made { file: self.file, made_for: self.made_for }
    }

    /// Says who may open the file. At no moment more users may than before or afterwards.
    ///
    /// # Errors
    /// [`SocketError::Permission`], and nothing has changed; or another file is there.
    pub fn permit(&self, access: Access) -> Result<(), SocketError> {
        // By its descriptor: a user to whom the file was given may put a link in its place.
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = open(&self.path, flags, Mode::empty()).map_err(io::Error::from);
        let (what, advice) = ("inspect", "remove the port and add it again");
        let failed = |source| SocketError::Path { path: self.path.clone(), what, source, advice };
        let file = file.map_err(failed)?;
        let found = fstat(&file).map_err(io::Error::from).map_err(failed)?;
        if (found.st_dev, found.st_ino) != self.file {
            return Err(SocketError::Replaced { path: self.path.clone() });
        }
        let before = Owned { mode: found.st_mode & 0o777, user: found.st_uid, group: found.st_gid };
        let wanted = Owned {
            mode: access.mode & 0o777,
            user: access.user.unwrap_or(self.made_for.0),
            group: access.group.unwrap_or(self.made_for.1),
        };
        change(&file, before, wanted).map_err(|(part, source)| {
            // Nothing more can be done about it: the caller is told of the first failure.
            let _ = change(&file, Owned { mode: before.mode & wanted.mode, ..wanted }, before);
            SocketError::Permission { path: self.path.clone(), part, source: source.into() }
        })
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

/// Listens at a path by `listen`, where no other process does.
///
/// # Errors
/// As of [`Listener::bind`].
pub fn take_path<L>(path: &Path, listen: impl Fn() -> io::Result<L>) -> Result<L, SocketError> {
    // Without it, a file that another process has just made looks as if it were left over.
    let _lock = lock_directory(path);
    let listener = match listen() {
        Err(error) if error.kind() == ErrorKind::AddrInUse => {
            remove_stale(path)?;
            listen()
        }
        bound => bound,
    };
    listener.map_err(failed(path, "listen"))
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

/// The lock of the directory in which the path is: the kernel ends it with its descriptor, however
/// the process ends.
fn lock_directory(path: &Path) -> Option<OwnedFd> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = open(directory.unwrap_or(Path::new(".")), flags, Mode::empty()).ok()?;
    let until = Instant::now() + LOCK_PATIENCE;
    loop {
        match flock(&directory, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK | Errno::INTR) if Instant::now() < until => {
                std::thread::sleep(LOCK_EVERY);
            }
            outcome => return outcome.is_ok().then_some(directory),
        }
    }
}

/// Narrows the permissions first, so that the next owner and group have those of both at most.
fn change(file: &OwnedFd, before: Owned, wanted: Owned) -> Result<(), (FilePart, Errno)> {
    // A descriptor that was opened by path only has no other way.
    let by_descriptor = format!("/proc/self/fd/{}", file.as_raw_fd());
    let set_mode = |mode| {
        let set = chmod(by_descriptor.as_str(), Mode::from_raw_mode(mode));
        set.map_err(|why| (FilePart::Mode, why))
    };
    let give = |user, group| chownat(file, "", user, group, AtFlags::EMPTY_PATH);
    let moves = (before.user, before.group) != (wanted.user, wanted.group);
    let narrow = before.mode & wanted.mode;
    if moves && narrow != before.mode {
        set_mode(narrow)?;
    }
    if before.group != wanted.group {
        let group = Some(Gid::from_raw(wanted.group));
        give(None, group).map_err(|why| (FilePart::Group, why))?;
    }
    if before.user != wanted.user {
        let user = Some(Uid::from_raw(wanted.user));
        give(user, None).map_err(|why| (FilePart::User, why))?;
    }
    match wanted.mode == if moves { narrow } else { before.mode } {
        true => Ok(()),
        false => set_mode(wanted.mode),
    }
}

/// A connection that was given up before it was accepted is no reason to stop listening.
fn may_go_on(error: &io::Error) -> bool {
    let kind = error.kind();
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::ConnectionAborted)
}

fn file_identity(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|file| (file.dev(), file.ino()))
}

/// The error of an operation on that path, with what to do.
fn failed(path: &Path, what: &'static str) -> impl Fn(io::Error) -> SocketError {
    move |source| {
        let advice = match source.kind() {
            _ if matches!(Errno::from_io_error(&source), Some(Errno::MFILE | Errno::NFILE)) => {
                "allow more: LimitNOFILE= in the unit, or ulimit -n"
            }
            _ if what == REMOVE => "remove it as its owner, or choose another path",
            ErrorKind::PermissionDenied => {
                "let this user write in its directory, or choose another path"
            }
            ErrorKind::NotFound | ErrorKind::NotADirectory => {
                "make its directory first, or choose another path"
            }
            _ => "choose another path",
        };
        SocketError::Path { path: path.to_owned(), what, source, advice }
    }
}

/// Removes a socket file on which no process listens.
fn remove_stale(path: &Path) -> Result<(), SocketError> {
    let file = fs::symlink_metadata(path).map_err(failed(path, "inspect"))?;
    if !file.file_type().is_socket() {
        return Err(SocketError::NotASocket { path: path.to_owned() });
    }
    match connect_at_once(path) {
        Err(Errno::CONNREFUSED) => fs::remove_file(path).map_err(failed(path, REMOVE)),
        Err(Errno::ACCESS | Errno::PERM) => Err(SocketError::NotOurs { path: path.to_owned() }),
        // Connected, or a full queue of waiting connections.
        connected => {
            let by = connected.ok().and_then(|stream| socket_peercred(stream).ok());
            let by =
                by.map(|peer| (peer.pid.as_raw_nonzero().get().unsigned_abs(), peer.uid.as_raw()));
            Err(SocketError::InUse { path: path.to_owned(), by })
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::thread::CapabilitySet;

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
    fn another_process_goes_on_with_it_and_removes_the_file_at_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("vm0.sock");
        let first = Listener::bind(&path).unwrap();
        let socket = first.as_fd().try_clone_to_owned().unwrap();
        let second = Listener::resume(socket, &path, first.made()).unwrap();
        std::mem::forget(first);
        let _client = Connection::connect(&path).unwrap();
        assert!(second.accept().unwrap().is_some());
        second.permit(Access { mode: 0o660, user: None, group: None }).unwrap();
        drop(second);
        assert!(!path.exists());
    }

    #[test]
    fn only_the_owner_may_connect() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("vm0.sock");
        let _listener = Listener::bind(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    }

    fn owned(path: &Path) -> (u32, u32, u32) {
        let file = fs::metadata(path).unwrap();
        (file.mode() & 0o777, file.uid(), file.gid())
    }

    #[test]
    fn who_may_connect_changes_and_changes_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("vm0.sock");
        let listener = Listener::bind(&path).unwrap();
        let (_, user, group) = owned(&path);
        let only = |mode| Access { mode, user: None, group: None };
        for mode in [0o660, 0, 0o777, 0o600] {
            listener.permit(only(mode)).unwrap();
            assert_eq!(owned(&path), (mode, user, group));
        }
        if !rustix::process::geteuid().is_root() {
            return println!("skipped: only root gives files away");
        }
        listener.permit(Access { mode: 0o640, user: Some(12), group: Some(34) }).unwrap();
        assert_eq!(owned(&path), (0o640, 12, 34));
        listener.permit(only(0o600)).unwrap();
        assert_eq!(owned(&path), (0o600, user, group));
    }

    /// Not even as root, in this thread.
    fn give_no_files_away() {
        let mut held = rustix::thread::capabilities(None).unwrap();
        held.effective.remove(CapabilitySet::CHOWN);
        rustix::thread::set_capabilities(None, held).unwrap();
    }

    #[test]
    fn what_is_not_permitted_changes_nothing() {
        give_no_files_away();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("vm0.sock");
        let listener = Listener::bind(&path).unwrap();
        let before = owned(&path);
        let denied = listener.permit(Access { mode: 0o666, user: Some(12), group: None });
        assert!(matches!(denied, Err(SocketError::Permission { part: FilePart::User, .. })));
        assert_eq!(owned(&path), before);
    }

    #[test]
    fn a_file_in_the_sockets_place_is_not_opened_to_others() {
        let folder = tempfile::tempdir().unwrap();
        let [path, precious] = ["vm0.sock", "precious"].map(|name| folder.path().join(name));
        let listener = Listener::bind(&path).unwrap();
        fs::write(&precious, "data").unwrap();
        let before = owned(&precious);
        for is_symbolic in [true, false] {
            fs::remove_file(&path).unwrap();
            match is_symbolic {
                true => std::os::unix::fs::symlink(&precious, &path).unwrap(),
                false => fs::hard_link(&precious, &path).unwrap(),
            }
            let error = listener.permit(Access { mode: 0o666, user: None, group: None });
            assert!(matches!(error, Err(SocketError::Replaced { .. })), "{error:?}");
            assert_eq!(owned(&precious), before);
        }
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
    fn of_those_that_start_at_once_one_has_a_path() {
        const STARTERS: usize = 4;
        let folder = tempfile::tempdir().unwrap();
        for round in 0..100 {
            let path = folder.path().join(format!("vm{round}.sock"));
            drop(UnixListener::bind(&path).unwrap()); // leaves the file behind
            let (start, path) = (&std::sync::Barrier::new(STARTERS), &path);
            let bind = move || {
                start.wait();
                Listener::bind(path)
            };
            let bound: Vec<_> = std::thread::scope(|scope| {
                let starters: Vec<_> = (0..STARTERS).map(|_| scope.spawn(bind)).collect();
                starters.into_iter().map(|starter| starter.join().unwrap()).collect()
            });
            let refused = bound.iter().filter(|it| matches!(it, Err(SocketError::InUse { .. })));
            assert_eq!(refused.count(), STARTERS - 1, "round {round}: {bound:?}");
            Connection::connect(path).unwrap();
        }
    }

    #[test]
    fn a_directory_that_others_keep_locked_can_be_used() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("vm0.sock");
        let _lock = lock_directory(&path).unwrap();
        let _listener = Listener::bind(&path).unwrap();
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
    fn a_path_that_cannot_be_used_names_itself_and_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("file"), "").unwrap();
        for (name, why, advice) in [
            ("none/vm0.sock", "No such file", "make its directory first, or choose another path"),
            ("file/vm0.sock", "Not a directory", "make its directory first, or"),
        ] {
            let path = folder.path().join(name);
            let error = Listener::bind(&path).unwrap_err().to_string();
            let begins = format!("{}: cannot listen: {why}", path.display());
            assert!(error.starts_with(&begins) && error.contains(advice), "{error}");
        }
        let error = failed(folder.path(), "listen")(Errno::MFILE.into()).to_string();
        assert!(
            error.ends_with("(os error 24): allow more: LimitNOFILE= in the unit, or ulimit -n")
        );
    }
}
