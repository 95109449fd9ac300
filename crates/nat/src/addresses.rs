//! The addresses that the router has and hands out.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use ringway_net::MacAddress;

use crate::frame::{TCP_HEADER_LEN, ip_header_len, low_word};
use crate::networks::Network;

pub(crate) const NS_PER_S: u64 = 1_000_000_000;

/// The port of name servers.
pub(crate) const DNS_PORT: u16 = 53;

/// The numbers of the gateway, the DNS server and the first guest in every network.
const GATEWAY: u32 = 2;
const DNS: u32 = 3;
const FIRST_GUEST: u32 = 15;

/// Networks between these hold the gateway, the DNS server and at least one guest.
const PREFIX4_LENS: std::ops::RangeInclusive<u8> = 8..=27;

/// An IPv4 network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prefix4 {
    network: Ipv4Addr,
    len: u8,
}

/// An IPv6 network of 64 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prefix6(Ipv6Addr);

/// The fault in a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlanError {
    /// Not between /8 and /27.
    Length(u8),
    /// Not for hosts: multicast, loopback, unspecified.
    NotForHosts(IpAddr),
    /// Bits behind the prefix are set.
    HostBits(IpAddr),
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length(len) => write!(f, "/{len}: a network has a length of /8 to /27"),
            Self::NotForHosts(address) => write!(f, "{address}: hosts cannot have such addresses"),
            Self::HostBits(address) => write!(f, "{address}: bits behind the prefix are set"),
        }
    }
}

impl std::error::Error for PlanError {}

impl Prefix4 {
    /// Checks a network.
    ///
    /// # Errors
    /// [`PlanError`]: it cannot hold a gateway and guests.
    pub fn new(network: Ipv4Addr, len: u8) -> Result<Self, PlanError> {
        if !PREFIX4_LENS.contains(&len) {
            return Err(PlanError::Length(len));
        }
        let first = network.octets()[0];
        if first == 0 || first == 127 || first >= 224 {
            return Err(PlanError::NotForHosts(network.into()));
        }
        let prefix = Self { network, len };
        if network.to_bits() & !prefix.mask().to_bits() != 0 {
            return Err(PlanError::HostBits(network.into()));
        }
        Ok(prefix)
    }

    /// The address with that number in the network.
    pub(crate) fn host(&self, number: u32) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.network.to_bits() | number)
    }

    /// Numbers that guests may have: from the first one up to in front of the broadcast address.
    pub(crate) fn guests(&self) -> std::ops::Range<u32> {
        FIRST_GUEST..!self.mask().to_bits()
    }

    /// The netmask.
    pub fn mask(&self) -> Ipv4Addr {
        Ipv4Addr::from_bits(u32::MAX << (32 - u32::from(self.len)))
    }

    /// The address of all in the network.
    pub fn broadcast(&self) -> Ipv4Addr {
        self.host(!self.mask().to_bits())
    }

    /// Whether the address lies in the network.
    pub fn contains(&self, address: Ipv4Addr) -> bool {
        address.to_bits() & self.mask().to_bits() == self.network.to_bits()
    }
}

impl FromStr for Prefix4 {
    type Err = PlanError;

    fn from_str(text: &str) -> Result<Self, PlanError> {
        let (network, len) = text.split_once('/').unwrap_or((text, ""));
        let nothing = PlanError::NotForHosts(Ipv4Addr::UNSPECIFIED.into());
        Self::new(network.parse().map_err(|_| nothing)?, len.parse().unwrap_or(0))
    }
}

impl fmt::Display for Prefix4 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.network, self.len)
    }
}

impl Prefix6 {
    /// Checks a network of 64 bits.
    ///
    /// # Errors
    /// [`PlanError`]: it cannot hold hosts.
    pub fn new(network: Ipv6Addr) -> Result<Self, PlanError> {
        if network.is_multicast() || network.is_unspecified() || network.is_loopback() {
            return Err(PlanError::NotForHosts(network.into()));
        }
        if network.to_bits() & u128::from(u64::MAX) != 0 {
            return Err(PlanError::HostBits(network.into()));
        }
        Ok(Self(network))
    }

    /// A local network (RFC 4193) of 56 random bits.
    pub fn local(random: u64) -> Self {
        let bits = 0xfd00_0000_0000_0000 | (random & 0x00ff_ffff_ffff_ffff);
        Self(Ipv6Addr::from_bits(u128::from(bits) << 64))
    }

    /// The network itself.
    pub fn network(&self) -> Ipv6Addr {
        self.0
    }

    fn host(self, number: u32) -> Ipv6Addr {
        Ipv6Addr::from_bits(self.0.to_bits() | u128::from(number))
    }

    /// Whether the address lies in the network.
    pub fn contains(&self, address: Ipv6Addr) -> bool {
        address.to_bits() >> 64 == self.0.to_bits() >> 64
    }
}

/// The facts that guests are told about their network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The IPv4 network.
    pub prefix4: Prefix4,
    /// The IPv6 network; `None`: no IPv6.
    pub prefix6: Option<Prefix6>,
    /// Whether the host reaches the internet by IPv6; guests are told to use no router otherwise.
    pub routes6: bool,
    /// Whether the DNS server's addresses are handed out.
    pub has_dns: bool,
    /// Most bytes of a packet from its IP header on.
    pub mtu: u16,
    /// Domains; the first is that of the guests, all are searched.
    pub domains: Vec<String>,
    /// How long a lease holds, in seconds.
    pub lease_s: u32,
    /// The address by which guests reach services on the host's loopback; `None`: they do not.
    pub host: Option<IpAddr>,
    /// Networks that guests reach although they lie in others that they do not.
    pub allow: Vec<Network>,
    /// Networks that guests do not reach, beside those that none does.
    pub deny: Vec<Network>,
}

impl Default for Plan {
    fn default() -> Self {
        let prefix4 = Prefix4 { network: Ipv4Addr::new(10, 0, 2, 0), len: 24 };
        Self {
            prefix4,
            prefix6: None,
            routes6: false,
            has_dns: true,
            mtu: 1500,
            domains: Vec::new(),
            lease_s: 3600,
            host: None,
            allow: Vec::new(),
            deny: Vec::new(),
        }
    }
}

impl Plan {
    /// The link-local address of the gateway.
    pub const GATEWAY_LINK_LOCAL: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2);

    /// The gateway's MAC address: 52:55 and its IPv4 address.
    pub fn mac(&self) -> MacAddress {
        let [a, b, c, d] = self.gateway4().octets();
        MacAddress([0x52, 0x55, a, b, c, d])
    }

    /// The gateway.
    pub fn gateway4(&self) -> Ipv4Addr {
        self.prefix4.host(GATEWAY)
    }

    /// The DNS server.
    pub fn dns4(&self) -> Ipv4Addr {
        self.prefix4.host(DNS)
    }

    /// The gateway's address in the prefix.
    pub fn gateway6(&self) -> Option<Ipv6Addr> {
        self.prefix6.map(|prefix| prefix.host(GATEWAY))
    }

    /// The DNS server's address in the prefix.
    pub fn dns6(&self) -> Option<Ipv6Addr> {
        self.prefix6.map(|prefix| prefix.host(DNS))
    }

    /// The gateway's address of one family.
    pub(crate) fn gateway(&self, is_ipv4: bool) -> Option<IpAddr> {
        match is_ipv4 {
            true => Some(self.gateway4().into()),
            false => self.gateway6().map(IpAddr::V6),
        }
    }

    /// Whether a name server of the plan is there.
    pub(crate) fn is_name_server(&self, at: SocketAddr) -> bool {
        let is_there = match at.ip() {
            IpAddr::V4(address) => address == self.dns4(),
            IpAddr::V6(address) => Some(address) == self.dns6(),
        };
        self.has_dns && at.port() == DNS_PORT && is_there
    }

    /// Most bytes of data in one segment.
    pub(crate) fn mss(&self, is_ipv4: bool) -> u16 {
        self.mtu - low_word(ip_header_len(is_ipv4) + TCP_HEADER_LEN)
    }

    /// Whether some guest may have that address.
    pub(crate) fn is_for_guests(&self, address: IpAddr) -> bool {
        let is_for_all = address == IpAddr::V4(self.prefix4.broadcast());
        self.is_inside(address) && !self.is_ours(address) && !is_for_all
    }

    /// How long an address is a guest's that was seen to use it.
    pub(crate) fn held_ns(&self) -> u64 {
        u64::from(self.lease_s) * NS_PER_S
    }

    /// The IPv6 address of the station that has that IPv4 address: with the same number.
    pub(crate) fn twin6(&self, leased: Ipv4Addr) -> Option<Ipv6Addr> {
        let number = leased.to_bits() & !self.prefix4.mask().to_bits();
        self.prefix6.map(|prefix| prefix.host(number))
    }

    /// The IPv4 address of the station that has that IPv6 address, if there may be one.
    pub(crate) fn twin4(&self, address: Ipv6Addr) -> Option<Ipv4Addr> {
        let bits = address.to_bits() & u128::from(u64::MAX);
        let number = u32::try_from(bits).ok().filter(|it| self.prefix4.guests().contains(it))?;
        Some(self.prefix4.host(number)).filter(|_| self.is_inside(address.into()))
    }

    /// Whether the address is the router's.
    pub fn is_ours(&self, address: IpAddr) -> bool {
        let is_host = self.host == Some(address) && self.is_inside(address);
        is_host || self.is_routers(address)
    }

    fn is_routers(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(address) => address == self.gateway4() || address == self.dns4(),
            IpAddr::V6(Self::GATEWAY_LINK_LOCAL) => self.prefix6.is_some(),
            IpAddr::V6(address) => Some(address) == self.gateway6() || Some(address) == self.dns6(),
        }
    }

    /// Whether the address is none of those that the router keeps for itself in a network of the
    /// guests: the first ones.
    pub fn may_be_of_a_guest(&self, address: IpAddr) -> bool {
        let number = match address {
            IpAddr::V4(address) => u128::from(address.to_bits() & !self.prefix4.mask().to_bits()),
            IpAddr::V6(address) => address.to_bits() & u128::from(u64::MAX),
        };
        self.is_inside(address) && number >= u128::from(FIRST_GUEST)
    }

    /// Whether the address lies in a network of the guests.
    pub fn is_inside(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(address) => self.prefix4.contains(address),
            IpAddr::V6(address) => self.prefix6.is_some_and(|prefix| prefix.contains(address)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_as_in_slirp() {
        let plan = Plan::default();
        assert_eq!(plan.gateway4(), Ipv4Addr::new(10, 0, 2, 2));
        assert_eq!(plan.dns4(), Ipv4Addr::new(10, 0, 2, 3));
        assert_eq!(plan.mac().to_string(), "52:55:0a:00:02:02");
        assert_eq!(plan.prefix4.broadcast(), Ipv4Addr::new(10, 0, 2, 255));
        assert_eq!(plan.prefix4.guests(), 15..255);
        assert!(plan.is_ours(IpAddr::V4(plan.dns4())) && plan.gateway6().is_none());
        assert!(!plan.is_ours(IpAddr::V6(Plan::GATEWAY_LINK_LOCAL)), "no IPv6");
    }

    #[test]
    fn addresses_of_both_families_have_one_number() {
        let plan = Plan { prefix6: Some(Prefix6::local(7)), ..Plan::default() };
        let (leased, twin) = (Ipv4Addr::new(10, 0, 2, 15), "fd00::7:0:0:0:f".parse().unwrap());
        assert_eq!((plan.twin6(leased), plan.twin4(twin)), (Some(twin), Some(leased)));
        for other in ["fd00::8:0:0:0:f", "fd00::7:0:0:0:2", "fd00::7:0:0:0:ff", "fd00::7:0:1:0:f"] {
            assert_eq!(plan.twin4(other.parse().unwrap()), None, "{other}");
        }
    }

    #[test]
    fn networks_are_checked() {
        let new = |network: [u8; 4], len| Prefix4::new(network.into(), len);
        assert!(new([192, 168, 4, 0], 22).is_ok());
        assert_eq!(new([10, 0, 0, 0], 28), Err(PlanError::Length(28)));
        assert!(matches!(new([10, 0, 2, 1], 24), Err(PlanError::HostBits(_))));
        assert!(matches!(new([127, 0, 0, 0], 8), Err(PlanError::NotForHosts(_))));
        assert!(Prefix6::new("2001:db8::1".parse().unwrap()).is_err());
        let local = Prefix6::local(u64::MAX);
        assert_eq!(local.network().to_string(), "fdff:ffff:ffff:ffff::");
        assert!(local.contains(local.host(9)));
        assert_eq!(Prefix6::new(local.network()), Ok(local));
    }
}
