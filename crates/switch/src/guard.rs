//! Locked addresses: whether a packet claims to come from another station.
//!
//! A packet is let through when all addresses that it claims as the sender's own were found and
//! are the port's: in the Ethernet header, in ARP (RFC 826), in IP headers, and in neighbour
//! discovery (RFC 4861). What cannot be found in the first [`PEEK_LEN`](crate::PEEK_LEN) bytes,
//! behind too many tags or extension headers, counts as false.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ringway_net::{DropReason, MacAddress};

use crate::PortPolicy;
use crate::frame::{ARP, Frame, IPV4, IPV6, RARP, array, word};
use crate::ipv6;

const UDP: u8 = 17;
const IGMP: u8 = 2;
const ICMPV6: u8 = 58;
const DHCP_SERVER_PORT: u16 = 67;

const ROUTER_SOLICITATION: u8 = 133;
const ROUTER_ADVERTISEMENT: u8 = 134;
const NEIGHBOUR_SOLICITATION: u8 = 135;
const NEIGHBOUR_ADVERTISEMENT: u8 = 136;
const REDIRECT: u8 = 137;
const GROUP_REPORT: u8 = 131;
const GROUP_DONE: u8 = 132;
const GROUP_REPORT_2: u8 = 143;
/// Messages of a station that has no address yet (RFC 4861, RFC 4862, RFC 3590).
const WITHOUT_ADDRESS: [u8; 5] =
    [ROUTER_SOLICITATION, NEIGHBOUR_SOLICITATION, GROUP_REPORT, GROUP_DONE, GROUP_REPORT_2];
const SOURCE_LINK_ADDRESS: u8 = 1;
const TARGET_LINK_ADDRESS: u8 = 2;
/// Options of one neighbour discovery message that are looked at.
const OPTIONS_MAX: usize = 8;

/// A claim of a packet that is not its port's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FalseClaim {
    /// This MAC address.
    Mac(MacAddress),
    /// This IP address.
    Ip(IpAddr),
    /// It says what only routers say, of which the port is none: a redirect, or an advertisement.
    Router {
        /// It sends packets for others elsewhere.
        is_redirect: bool,
    },
    /// A type of which it is not known where its addresses are.
    Type(u16),
    /// A MAC address that is not where it could be read.
    UnreadMac,
    /// The same of an IP address.
    UnreadIp,
}

impl FalseClaim {
    /// The reason that is counted.
    pub fn reason(self) -> DropReason {
        match self {
            Self::Mac(_) | Self::UnreadMac => DropReason::SpoofedMac,
            Self::Ip(_) | Self::Router { .. } | Self::Type(_) | Self::UnreadIp => {
                DropReason::SpoofedIp
            }
        }
    }
}

/// # Errors
/// The first thing that it claims and is not the port's.
pub(crate) fn check(policy: &PortPolicy, frame: &Frame<'_>) -> Result<(), FalseClaim> {
    let lock = Lock { mac: policy.locked_mac, ips: &policy.locked_ips };
    if lock.mac.is_none() && lock.ips.is_empty() {
        return Ok(());
    }
    lock.check_mac(frame.source)?;
    match frame.ethertype {
        Some(ARP | RARP) => lock.check_arp(frame.payload),
        Some(IPV4) => lock.check_ipv4(frame.payload),
        Some(IPV6) => lock.check_ipv6(frame.payload),
        // Anything else could carry IP in a way that only its receiver understands.
        Some(_) if lock.ips.is_empty() => Ok(()),
        Some(other) => Err(FalseClaim::Type(other)),
        None => Err(FalseClaim::UnreadIp),
    }
}

struct Lock<'a> {
    mac: Option<MacAddress>,
    ips: &'a [IpAddr],
}

impl Lock<'_> {
    fn check_mac(&self, mac: MacAddress) -> Result<(), FalseClaim> {
        let is_own = self.mac.is_none_or(|locked| locked == mac);
        if is_own { Ok(()) } else { Err(FalseClaim::Mac(mac)) }
    }

    fn check_ip(&self, ip: impl Into<IpAddr>) -> Result<(), FalseClaim> {
        let ip = ip.into();
        let is_own = self.ips.is_empty() || self.ips.contains(&ip);
        if is_own { Ok(()) } else { Err(FalseClaim::Ip(ip)) }
    }

    fn check_arp(&self, arp: &[u8]) -> Result<(), FalseClaim> {
        const ETHERNET_IPV4: [u8; 6] = [0, 1, 8, 0, 6, 4];
        let sender_mac = array(arp, 8).filter(|_| arp.starts_with(&ETHERNET_IPV4));
        let sender_mac = sender_mac.map(MacAddress).ok_or(FalseClaim::UnreadMac)?;
        let sender_ip = v4(arp, 14)?;
        self.check_mac(sender_mac)?;
        if !sender_ip.is_unspecified() {
            return self.check_ip(sender_ip);
        }
        // RFC 5227: a probe names no sender. Who answers a probe of its own address gives it up.
        match v4(arp, 24)? {
            Ipv4Addr::UNSPECIFIED => Ok(()),
            target => self.check_ip(target),
        }
    }

    fn check_ipv4(&self, ip: &[u8]) -> Result<(), FalseClaim> {
        const UNREAD: FalseClaim = FalseClaim::UnreadIp;
        if self.ips.is_empty() {
            return Ok(());
        }
        let version_and_len = *ip.first().ok_or(UNREAD)?;
        let header_len = usize::from(version_and_len & 0xf) * 4;
        if version_and_len >> 4 != 4 || header_len < 20 {
            return Err(UNREAD);
        }
        let source = v4(ip, 12)?;
        if !source.is_unspecified() {
            return self.check_ip(source);
        }
        // A station that has no address yet asks for one, or reports groups.
        let is_first = word(ip, 6).ok_or(UNREAD)? & 0x1fff == 0;
        let may_lack_address = match *ip.get(9).ok_or(UNREAD)? {
            UDP if is_first => word(ip, header_len + 2).ok_or(UNREAD)? == DHCP_SERVER_PORT,
            protocol => protocol == IGMP,
        };
        if may_lack_address { Ok(()) } else { Err(FalseClaim::Ip(source.into())) }
    }

    fn check_ipv6(&self, ip: &[u8]) -> Result<(), FalseClaim> {
        let source = v6(ip, 8)?;
        let upper = ipv6::upper(ip).ok_or(FalseClaim::UnreadIp)?;
        let kind = upper.bytes.first().filter(|_| upper.protocol == ICMPV6 && !upper.is_fragment);
        let may_lack_address = kind.is_some_and(|kind| WITHOUT_ADDRESS.contains(kind));
        let is_unspecified = source.is_unspecified() && may_lack_address;
        if !is_unspecified {
            self.check_ip(source)?;
        }
        if upper.protocol != ICMPV6 || !upper.is_first {
            return Ok(());
        }
        // Duplicate address detection would keep another from its address.
        if is_unspecified && upper.bytes.first() == Some(&NEIGHBOUR_SOLICITATION) {
            self.check_ip(v6(upper.bytes, 8)?)?;
        }
        self.check_icmpv6(&upper)
    }

    fn check_icmpv6(&self, upper: &ipv6::Upper<'_>) -> Result<(), FalseClaim> {
        let kind = *upper.bytes.first().ok_or(FalseClaim::UnreadIp)?;
        let options_at = match kind {
            ROUTER_SOLICITATION => 8,
            NEIGHBOUR_SOLICITATION | NEIGHBOUR_ADVERTISEMENT => 24,
            // A guest that has addresses of its own only is no router.
            ROUTER_ADVERTISEMENT | REDIRECT if !self.ips.is_empty() => {
                return Err(FalseClaim::Router { is_redirect: kind == REDIRECT });
            }
            ROUTER_ADVERTISEMENT => 16,
            REDIRECT => 40,
            _ => return Ok(()),
        };
        // RFC 6980: neighbour discovery is never fragmented.
        if upper.is_fragment {
            return Err(FalseClaim::UnreadIp);
        }
        if kind == NEIGHBOUR_ADVERTISEMENT {
            self.check_ip(v6(upper.bytes, 8)?)?;
        }
        self.check_options(kind, upper.bytes.get(options_at..).ok_or(FalseClaim::UnreadIp)?)
    }

    fn check_options(&self, kind: u8, mut options: &[u8]) -> Result<(), FalseClaim> {
        // In a redirect, the target is another station by nature.
        let own = match kind {
            NEIGHBOUR_ADVERTISEMENT => TARGET_LINK_ADDRESS,
            _ => SOURCE_LINK_ADDRESS,
        };
        for _ in 0..OPTIONS_MAX {
            let Some([option, len]) = array(options, 0) else { break };
            let len = usize::from(len) * 8;
            let Some(rest) = options.get(len..).filter(|_| len > 0) else { break };
            if option == own {
                self.check_mac(array(options, 2).map(MacAddress).ok_or(FalseClaim::UnreadMac)?)?;
            }
            options = rest;
        }
        if options.is_empty() { Ok(()) } else { Err(FalseClaim::UnreadMac) }
    }
}

fn v4(bytes: &[u8], at: usize) -> Result<Ipv4Addr, FalseClaim> {
    array::<4>(bytes, at).map(Ipv4Addr::from).ok_or(FalseClaim::UnreadIp)
}

fn v6(bytes: &[u8], at: usize) -> Result<Ipv6Addr, FalseClaim> {
    array::<16>(bytes, at).map(Ipv6Addr::from).ok_or(FalseClaim::UnreadIp)
}
