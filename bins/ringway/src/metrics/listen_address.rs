//! Where scrapers come to, as typed.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// Where scrapers come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListenAddress {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl FromStr for ListenAddress {
    type Err = String;

    fn from_str(typed: &str) -> Result<Self, String> {
        if typed.contains('/') {
            return Ok(Self::Unix(typed.into()));
        }
        let wrong = |_| "write ADDRESS:PORT, such as 127.0.0.1:9477, or the path of a socket";
        Ok(Self::Tcp(typed.parse().map_err(wrong)?))
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "http://{address}/metrics"),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}
