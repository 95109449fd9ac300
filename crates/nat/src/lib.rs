//! A router for guests, as a value: it leases addresses, answers for a gateway, and ends flows in
//! sockets of the host.
//!
//! Nothing here reads a clock, a file or a socket. Frames of guests and news of sockets go in;
//! actions on sockets and frames for guests come out, and the moment of the next wake-up.
#![forbid(unsafe_code)]

mod addresses;
mod dhcp;
mod frame;
mod leases;
mod neighbours;
mod packet;
mod services;

pub use addresses::{Plan, PlanError, Prefix4, Prefix6};
pub use dhcp::DHCP_LEN_MAX;
pub use leases::{LEASES_PER_PORT_MAX, Leases};
pub use packet::HEAD_LEN;
pub use services::Services;
