//! The addresses that go along with a guest which moves to another router.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use ringway_net::{MacAddress, Nanos};

use crate::addresses::{NS_PER_S, Plan};
use crate::guests::ADDRESSES_MAX;
use crate::leases::{LEASES_PER_PORT_MAX, Leased, Times};

/// Most stations behind one port whose state goes along: each has a lease or an address that it
/// uses.
pub const STATIONS_PER_PORT_MAX: usize = LEASES_PER_PORT_MAX + ADDRESSES_PER_PORT_MAX;

/// Most addresses behind one port that go along besides those that are leased.
pub const ADDRESSES_PER_PORT_MAX: usize = 2 * ADDRESSES_MAX;

/// A station behind a port, as the next router is to know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StationState {
    /// The name that the station had, which is that of its port.
    pub name: String,
    /// Its MAC address.
    pub mac: MacAddress,
    /// Its lease, if it has one.
    pub lease: Option<LeaseState>,
    /// Other addresses that it uses, of both families; the one that it used last comes first.
    pub addresses: Vec<IpAddr>,
}

/// A lease that holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseState {
    /// The address.
    pub address: Ipv4Addr,
    /// How long it still holds, in seconds.
    pub left_s: u32,
}

impl LeaseState {
    pub(crate) fn of(lease: &Leased<'_>, now: Nanos) -> Self {
        let left_s = lease.until.since(now).div_ceil(NS_PER_S);
        let left_s = u32::try_from(left_s).unwrap_or(u32::MAX);
        Self { address: lease.address, left_s }
    }

    /// Until when it holds, here as well; no longer than one that begins now.
    pub(crate) fn times(&self, plan: &Plan, now: Nanos) -> Times {
        let most = Times::from_now(plan, now);
        let until = now.plus(u64::from(self.left_s).saturating_mul(NS_PER_S));
        Times { until: until.min(most.until), ..most }
    }
}

/// Why a guest cannot have the addresses here that it had elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ArrivalError {
    /// No guest is behind such a port.
    NoPort,
    /// There are more stations behind one port than [`STATIONS_PER_PORT_MAX`], or more addresses
    /// than [`ADDRESSES_PER_PORT_MAX`]: of these there are too many.
    TooMany(&'static str),
    /// There are more leases than [`LEASES_PER_PORT_MAX`], or no room for more of all.
    NoRoom,
    /// No station has such an address.
    NoStation(MacAddress),
    /// Guests of this router do not have such an address.
    Outside(IpAddr),
    /// Guests behind another port have the address.
    OfAnother {
        /// The address.
        address: IpAddr,
        /// The name of that port.
        port: String,
    },
}

impl fmt::Display for ArrivalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPort => f.write_str("the router knows no such port"),
            Self::TooMany(what) => write!(f, "too many {what} behind one port"),
            Self::NoRoom => f.write_str("there is no room for so many leases"),
            Self::NoStation(mac) => write!(f, "{mac} is no station's address"),
            Self::Outside(address) => write!(f, "{address} is not in the router's network"),
            Self::OfAnother { address, port } => write!(f, "{address} is another guest's: {port}"),
        }
    }
}

impl std::error::Error for ArrivalError {}

/// Whether there is more than one guest can have; leases are counted elsewhere.
pub(crate) fn check_bounds(state: &[StationState]) -> Result<(), ArrivalError> {
    let addresses = state.iter().fold(0, |sum: usize, it| sum.saturating_add(it.addresses.len()));
    if state.len() > STATIONS_PER_PORT_MAX {
        return Err(ArrivalError::TooMany("stations"));
    }
    if addresses > ADDRESSES_PER_PORT_MAX {
        return Err(ArrivalError::TooMany("addresses"));
    }
    Ok(())
}
