//! MAC learning and the routing decision.
//!
//! A [`Switch`] remembers which port an address was last seen on and answers where a packet goes.
//! It holds no packets, reads no clock and allocates only when it is made. Each worker has one of
//! its own, over a table that all of them share.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;
#[cfg(test)]
extern crate std;

mod entry;
mod mac_table;
mod policy;
mod port;
mod shared;
mod switch;
mod vlan;

pub use entry::AGE_MAX_MS;
pub use mac_table::{FLAPS_MAX, Learned, MACS_MAX, MACS_PER_PORT_MAX, PROBES_MAX};
pub use policy::{BURST_DEFAULT_US, LOCKED_IPS_MAX, PolicyError, PortPolicy, RateLimit};
pub use policy::{STATIC_MACS_MAX, WhenFull};
pub use port::{PORTS_MAX, PortError, PortId};
pub use shared::Shared;
pub use switch::{Route, Switch};
pub use vlan::{Vlan, VlanId, VlanSet};
