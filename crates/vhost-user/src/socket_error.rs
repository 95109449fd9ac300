//! The errors of a socket, whether it listens or is connected.

use std::path::PathBuf;
use std::{fmt, io};

use rustix::io::Errno;
use thiserror::Error;

use crate::codec::HeaderError;

/// Most file descriptors that one message may carry; more are closed unseen.
pub const FDS_MAX: usize = 32;

/// The error of a socket.
#[derive(Debug, Error)]
pub enum SocketError {
    /// The path belongs to a process that answers.
    #[error(
        "{}: a running instance listens here: stop it or choose another path", .path.display()
    )]
    InUse {
        /// The path.
        path: PathBuf,
        /// The process that listens, and its user, as far as the kernel says.
        by: Option<(u32, u32)>,
    },
    /// The path is a socket that this user may not open: whether a process listens is not known.
    #[error(
        "{}: another user's socket: remove it if nothing listens there, or choose another path",
        .path.display()
    )]
    NotOurs {
        /// The path.
        path: PathBuf,
    },
    /// The path is something that must not be replaced.
    #[error("{}: exists and is not a socket: remove it or choose another path", .path.display())]
    NotASocket {
        /// The path.
        path: PathBuf,
    },
    /// Another file is where the socket was.
    #[error("{}: another file is there now: remove the port and add it again", .path.display())]
    Replaced {
        /// The path.
        path: PathBuf,
    },
    /// The part of the file that says who may connect cannot be changed.
    #[error("{}: {part} cannot be changed: {source}", .path.display())]
    Permission {
        /// The path.
        path: PathBuf,
        /// The part of the file.
        part: FilePart,
        /// Why not.
        source: io::Error,
    },
    /// An operation on a path failed.
    #[error("{}: cannot {what}: {source}: {advice}", .path.display())]
    Path {
        /// The path.
        path: PathBuf,
        /// The operation that was tried.
        what: &'static str,
        /// Why it failed.
        source: io::Error,
        /// The advice to the user.
        advice: &'static str,
    },
    /// The peer speaks something else.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// The peer went away in the middle of a message.
    #[error("the peer closed the connection in the middle of a message")]
    Truncated,
    /// The peer sends more of them than any message has.
    #[error("more than {FDS_MAX} file descriptors came with one message")]
    TooManyFds,
    /// The peer does not read.
    #[error("the peer does not read what it is sent")]
    Stuck,
    /// The socket failed.
    #[error("vhost-user socket: {0}")]
    Io(#[from] io::Error),
}

/// The part of a socket's file that says who may connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FilePart {
    /// Its permissions.
    Mode,
    /// Its owner.
    User,
    /// Its group.
    Group,
}

impl fmt::Display for FilePart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Mode => "its permissions",
            Self::User => "its owner",
            Self::Group => "its group",
        })
    }
}

impl From<Errno> for SocketError {
    fn from(errno: Errno) -> Self {
        Self::Io(errno.into())
    }
}
