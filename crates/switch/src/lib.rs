//! MAC learning and the routing decision.
//!
//! A [`Switch`] remembers which port an address was last seen on and answers where a packet goes.
//! It holds no packets, reads no clock and allocates only when it is made.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;
#[cfg(test)]
extern crate std;

mod mac_table;
mod port;
mod switch;

pub use mac_table::{AGE_MAX_MS, Learned, MACS_MAX, MACS_PER_PORT_MAX, PROBES_MAX};
pub use port::{PORTS_MAX, PortError, PortId};
pub use switch::{Route, Switch};
