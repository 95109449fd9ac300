//! A place of the host that leads into a guest, as a value.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use crate::table::Protocol;

/// Where this machine listens for a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListenAddress {
    /// At that address and port.
    Address(SocketAddr),
    /// At that Unix socket; another process has made it.
    Unix(PathBuf),
}

impl ListenAddress {
    /// Its address and port.
    pub fn address(&self) -> Option<SocketAddr> {
        match self {
            Self::Address(address) => Some(*address),
            Self::Unix(_) => None,
        }
    }

    /// Whether it is a Unix socket.
    pub fn is_local(&self) -> bool {
        self.address().is_none()
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}

/// A port or a Unix socket of this machine that leads into a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forward {
    /// Connections, or datagrams.
    pub protocol: Protocol,
    /// Where the machine listens; at a Unix socket for connections only.
    pub at: ListenAddress,
    /// The port of the switch behind which the guest is.
    pub guest: String,
    /// The guest's port.
    pub to: u16,
}

impl Forward {
    /// Whether both listen at the same place.
    pub fn is_at_place_of(&self, other: &Self) -> bool {
        (self.protocol, &self.at) == (other.protocol, &other.at)
    }
}
