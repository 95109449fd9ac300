//! The policy of one port: plain values; the default restricts nothing.

use alloc::vec::Vec;
use core::fmt;
use core::net::IpAddr;

use ringway_net::MacAddress;

use crate::{PortId, Vlan, VlanId};

/// Addresses that a port may be locked to.
pub const LOCKED_IPS_MAX: usize = 16;
/// Addresses that can be configured for a port.
pub const STATIC_MACS_MAX: usize = 64;

/// How fast packets may go in one direction; 0: no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RateLimit {
    /// Bits of Ethernet frames per second.
    pub bits_per_second: u64,
    /// Packets per second.
    pub packets_per_second: u64,
    /// How far ahead of the rate a port may get after a pause, in microseconds of full rate; 0:
    /// [`BURST_DEFAULT_US`], or [`BURST_DROPPED_US`]. One packet always fits.
    pub burst_us: u32,
}

/// The burst of a rate limit that names none, in microseconds.
pub const BURST_DEFAULT_US: u32 = 10_000;

/// The same of a limit to a guest whose packets are dropped: a TCP connection that has lost the end
/// of what it sent is silent for 200 ms (RFC 6298, as Linux has it), and has to have them back.
pub const BURST_DROPPED_US: u32 = 250_000;

/// The rule for a packet to a port that has no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WhenFull {
    /// It waits, for a bounded time, where it is: with its sender.
    #[default]
    Hold,
    /// It is dropped and counted at once.
    Drop,
}

/// The policy of one port.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PortPolicy {
    /// Its VLANs.
    pub vlan: Vlan,
    /// Limit towards the guest. What is too much is treated like a full port: see `when_full`.
    pub rate_to_guest: RateLimit,
    /// Limit from the guest. What is too much waits in the guest.
    pub rate_from_guest: RateLimit,
    /// The rule for packets to this port when it is full.
    pub when_full: WhenFull,
    /// Reaches uplinks only, and is reached from them only.
    pub isolated: bool,
    /// Isolated ports may reach it.
    pub is_uplink: bool,
    /// The only source address that it may use: in Ethernet headers, ARP and neighbour discovery.
    pub locked_mac: Option<MacAddress>,
    /// The only IP addresses that it may use as its own, if there are any in the list: at most
    /// [`LOCKED_IPS_MAX`].
    pub locked_ips: Vec<IpAddr>,
    /// The bridge behind it answers ARP and neighbour discovery for stations, so the IP addresses
    /// that stations of other ports use are noted; not of ports that are uplinks.
    pub notes_ips: bool,
    /// Packets per second to group addresses (broadcast included) or to unknown stations that it
    /// may send; what is more is dropped. 0: no limit.
    pub storm_packets_per_second: u64,
    /// Stations that are on this port, never anywhere else, and never forgotten: at most
    /// [`STATIC_MACS_MAX`]. They are in the VLAN of packets without a tag.
    pub static_macs: Vec<MacAddress>,
}

impl PortPolicy {
    /// The limit towards the guest with the burst that it has.
    pub(crate) fn limit_to_guest(&self) -> RateLimit {
        let limit = self.rate_to_guest;
        match (self.when_full, limit.burst_us) {
            (WhenFull::Drop, 0) => RateLimit { burst_us: BURST_DROPPED_US, ..limit },
            _ => limit,
        }
    }

    /// Whether the policy is one that a switch can follow.
    ///
    /// # Errors
    /// [`PolicyError`]: the first contradiction found.
    pub fn check(&self) -> Result<(), PolicyError> {
        if self.locked_ips.len() > LOCKED_IPS_MAX {
            return Err(PolicyError::TooManyIps(self.locked_ips.len()));
        }
        if self.static_macs.len() > STATIC_MACS_MAX {
            return Err(PolicyError::TooManyMacs(self.static_macs.len()));
        }
        let stations = self.static_macs.iter().chain(&self.locked_mac);
        if let Some(mac) = stations.into_iter().find(|mac| !mac.is_station()) {
            return Err(PolicyError::NoStation(*mac));
        }
        if let Vlan::Trunk { tagged, native: Some(native) } = &self.vlan
            && tagged.contains(*native)
        {
            return Err(PolicyError::NativeTagged(*native));
        }
        if !self.static_macs.is_empty() && self.vlan.of_untagged().is_none() {
            return Err(PolicyError::StaticWithoutVlan);
        }
        if self.isolated && self.is_uplink {
            return Err(PolicyError::IsolatedUplink);
        }
        Ok(())
    }
}

/// Why a policy cannot be followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PolicyError {
    /// There is no port with that number.
    NoPort(PortId),
    /// More IP addresses than [`LOCKED_IPS_MAX`].
    TooManyIps(usize),
    /// More stations than [`STATIC_MACS_MAX`].
    TooManyMacs(usize),
    /// A locked or static address that no station can have.
    NoStation(MacAddress),
    /// Static addresses at a trunk that has no VLAN for packets without a tag.
    StaticWithoutVlan,
    /// A trunk whose native VLAN is one of its tagged ones too.
    NativeTagged(VlanId),
    /// Both isolated and an uplink.
    IsolatedUplink,
    /// How many of the static addresses belong to another port already, or do not fit.
    MacsTaken(usize),
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPort(port) => write!(f, "there is no port {port}"),
            Self::TooManyIps(count) => {
                write!(f, "{count} locked IP addresses: a port has at most {LOCKED_IPS_MAX}")
            }
            Self::TooManyMacs(count) => {
                write!(f, "{count} static MAC addresses: a port has at most {STATIC_MACS_MAX}")
            }
            Self::NoStation(mac) => {
                write!(f, "{mac} is not the address of a station: it is a group's, or all zeros")
            }
            Self::StaticWithoutVlan => {
                f.write_str("static MAC addresses of a trunk are in its native VLAN: give it one")
            }
            Self::NativeTagged(vlan) => {
                write!(f, "VLAN {vlan} is native, so without tags, and cannot be tagged as well")
            }
            Self::IsolatedUplink => {
                f.write_str("a port is either isolated (reaches uplinks only) or an uplink")
            }
            Self::MacsTaken(count) => {
                write!(f, "{count} of the static MAC addresses belong to another port already")
            }
        }
    }
}

impl core::error::Error for PolicyError {}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use core::net::Ipv4Addr;

    use super::*;

    #[test]
    fn the_default_is_accepted_and_contradictions_are_not() {
        assert_eq!(PortPolicy::default().check(), Ok(()));
        let both = PortPolicy { isolated: true, is_uplink: true, ..PortPolicy::default() };
        assert_eq!(both.check(), Err(PolicyError::IsolatedUplink));
        let group = MacAddress::BROADCAST;
        let locked = PortPolicy { locked_mac: Some(group), ..PortPolicy::default() };
        assert_eq!(locked.check(), Err(PolicyError::NoStation(group)));
        let ips = vec![IpAddr::V4(Ipv4Addr::LOCALHOST); LOCKED_IPS_MAX + 1];
        let policy = PortPolicy { locked_ips: ips, ..PortPolicy::default() };
        assert_eq!(policy.check(), Err(PolicyError::TooManyIps(LOCKED_IPS_MAX + 1)));
        let macs = vec![MacAddress::local(1); STATIC_MACS_MAX + 1];
        let policy = PortPolicy { static_macs: macs, ..PortPolicy::default() };
        assert_eq!(policy.check(), Err(PolicyError::TooManyMacs(STATIC_MACS_MAX + 1)));
    }
}
