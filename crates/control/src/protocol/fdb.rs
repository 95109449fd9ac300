//! The answer to `fdb`: which address the switch knows behind which port.

use serde::{Deserialize, Serialize};

/// Most addresses of one answer.
pub const FDB_PAGE_MAX: usize = 512;

/// The question about addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FdbQuestion {
    /// Only those behind the port of this name.
    #[serde(default)]
    pub name: Option<String>,
    /// Only those in this VLAN.
    #[serde(default)]
    pub vlan: Option<u16>,
    /// Where the page begins: `next` of the answer before.
    #[serde(default)]
    pub after: usize,
}

/// Some of the addresses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FdbReply {
    /// [`PROTOCOL_VERSION`](super::PROTOCOL_VERSION) of the daemon.
    pub version: u32,
    /// Always `true`.
    pub ok: bool,
    /// At most [`FDB_PAGE_MAX`], in no particular order.
    pub addresses: Vec<FdbEntry>,
    /// The value to ask for the next ones with; `null`: there are no more.
    pub next: Option<usize>,
}

/// One address.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FdbEntry {
    /// The name of its port.
    pub port: String,
    /// The VLAN; `null`: among ports that know no VLANs.
    pub vlan: Option<u16>,
    /// The address.
    pub mac: String,
    /// Seconds since a packet last came from it; `null`: it is configured, and never forgotten.
    pub age_s: Option<u64>,
    /// `learned`, `own` (it belongs to the port's guest, no other port may use it), `static` or
    /// `locked`.
    pub kind: String,
}

/// The addresses to forget.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FdbFlushQuestion {
    /// Only what is behind the port of this name.
    #[serde(default)]
    pub name: Option<String>,
    /// Only what is in this VLAN.
    #[serde(default)]
    pub vlan: Option<u16>,
}

/// The answer to that.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FdbFlushReply {
    /// [`PROTOCOL_VERSION`](super::PROTOCOL_VERSION) of the daemon.
    pub version: u32,
    /// Always `true`.
    pub ok: bool,
    /// The number of addresses that are not known any more.
    pub flushed: usize,
}
