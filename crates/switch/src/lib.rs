//! Where a packet goes, and whether it may: MAC learning, VLANs and other policies of ports, and
//! multicast snooping.
//!
//! A [`Switch`] remembers which port an address was last seen on and answers where a packet goes.
//! It holds no packets, reads no clock and allocates only when it is made or a policy is set. Each
//! worker has one of its own, over a table that all of them share. The filters of captures
//! ([`Filter`]) and the times of announcements ([`Announcer`]) are here too.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;
#[cfg(test)]
extern crate std;

mod announcer;
mod checksum;
mod copy;
mod decide;
mod entry;
mod filter;
mod frame;
mod groups;
mod guard;
mod ip_table;
mod ipv6;
mod mac_table;
mod meter;
mod notes;
mod own_ip;
mod policy;
mod port;
mod shared;
mod snoop;
mod stopped;
mod switch;
mod vlan;

pub use announcer::{ANNOUNCE_EVERY_MS, Announcer};
pub use checksum::spares_judged;
pub use decide::{Decision, Flood, Room};
pub use entry::{AGE_MAX_MS, FLAPS_MAX};
pub use filter::{Filter, FilterError, STEPS_MAX};
pub use frame::PEEK_LEN;
pub use groups::{GROUP_NOTES_MAX, GROUPS_PER_PORT_MAX, GroupNote};
pub use guard::FalseClaim;
pub use ip_table::{IPS_PER_PORT_MAX, SeenIp};
pub use mac_table::{AddressNews, AddressPage, KnownAddress, Learned};
pub use mac_table::{MACS_MAX, MACS_PER_PORT_MAX, PROBES_MAX};
pub use notes::{Notes, Step};
pub use policy::{
    BURST_DEFAULT_US, BURST_DROPPED_US, LOCKED_IPS_MAX, PolicyError, PortPolicy, RateLimit,
};
pub use policy::{STATIC_MACS_MAX, WhenFull};
pub use port::{PORTS_MAX, PortError, PortId};
pub use shared::Shared;
pub use switch::{Route, Switch};
pub use vlan::{TagChange, Vlan, VlanId, VlanSet};
