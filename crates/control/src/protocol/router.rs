//! The answer to `port_show`: who is behind a router, and through what.

use serde::{Deserialize, Serialize};

/// The question about a router.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortShowQuestion {
    /// The router's name.
    pub name: String,
    /// Only what is behind the port of this name.
    #[serde(default)]
    pub guest: Option<String>,
}

/// The state of a router, and the flows through it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortShowReply {
    /// [`PROTOCOL_VERSION`](super::PROTOCOL_VERSION) of the daemon.
    pub version: u32,
    /// Always `true`.
    pub ok: bool,
    /// Stations that have a lease, or were seen to use an address.
    pub guests: Vec<ShownGuest>,
    /// Where this machine listens for guests, or is to.
    pub forwards: Vec<ShownForward>,
    /// Some of the flows, in no particular order.
    pub flows: Vec<ShownFlow>,
    /// How many there are.
    pub flows_count: u64,
}

/// A station behind a port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShownGuest {
    /// The name of the port.
    pub port: String,
    /// Its MAC address.
    pub mac: String,
    /// Its addresses, of both families.
    pub addresses: Vec<String>,
    /// For how many seconds it has had its lease; `null`: it has none.
    pub leased_s: Option<u64>,
}

/// A forward.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShownForward {
    /// `tcp`, `udp` or `unix`.
    pub protocol: String,
    /// Where this machine listens.
    pub at: String,
    /// The port that the guest is behind.
    pub guest: String,
    /// The guest's port.
    pub to: u16,
    /// `bound`, or `failed`: it is tried again every two seconds.
    pub state: String,
    /// Why it has failed.
    pub error: Option<String>,
}

/// A flow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShownFlow {
    /// The name of the port that the guest is behind.
    pub port: String,
    /// `tcp`, `udp` or `echo`.
    pub protocol: String,
    /// The guest's end; of an echo flow, its identifier in the place of the port.
    pub guest: String,
    /// The other end.
    pub remote: String,
    /// Where it stands.
    pub state: String,
    /// Bytes of data from the guest.
    pub from_guest_bytes: u64,
    /// Bytes of data to it.
    pub to_guest_bytes: u64,
    /// Seconds since it was last used.
    pub idle_s: u64,
}
