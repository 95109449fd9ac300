//! The options that a router is given from outside.

use std::net::SocketAddr;

use ringway_nat::Plan;

/// Options of a port of kind `nat:`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NatOptions {
    /// The addresses, and what guests are told.
    pub plan: Plan,
    /// The host's resolvers, in the order in which they are asked.
    pub resolvers: Vec<SocketAddr>,
    /// How many sockets the router may have open.
    pub sockets_max: u32,
}
