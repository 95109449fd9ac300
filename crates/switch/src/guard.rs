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
/// What a station sends that has no address yet (RFC 4861, RFC 4862, RFC 3590).
const WITHOUT_ADDRESS: [u8; 5] =
    [ROUTER_SOLICITATION, NEIGHBOUR_SOLICITATION, GROUP_REPORT, GROUP_DONE, GROUP_REPORT_2];
const SOURCE_LINK_ADDRESS: u8 = 1;
const TARGET_LINK_ADDRESS: u8 = 2;
/// Options of one neighbour discovery message that are looked at.
const OPTIONS_MAX: usize = 8;

/// # Errors
/// Which kind of address is not the port's.
pub(crate) fn check(policy: &PortPolicy, frame: &Frame<'_>) -> Result<(), DropReason> {
    let lock = Lock { mac: policy.locked_mac, ips: &policy.locked_ips };
    if lock.mac.is_none() && lock.ips.is_empty() {
        return Ok(());
    }
    if !lock.allows_mac(frame.source) {
        return Err(DropReason::SpoofedMac);
    }
    match frame.ethertype {
        Some(ARP | RARP) => lock.check_arp(frame.payload),
        Some(IPV4) => lock.check_ipv4(frame.payload).ok_or(DropReason::SpoofedIp),
        Some(IPV6) => lock.check_ipv6(frame.payload),
        // Anything else could carry IP in a way that only its receiver understands.
        Some(_) if lock.ips.is_empty() => Ok(()),
        _ => Err(DropReason::SpoofedIp),
    }
}

struct Lock<'a> {
    mac: Option<MacAddress>,
    ips: &'a [IpAddr],
}

impl Lock<'_> {
    fn allows_mac(&self, mac: MacAddress) -> bool {
        self.mac.is_none_or(|locked| locked == mac)
    }

    fn allows_ip(&self, ip: IpAddr) -> bool {
        self.ips.is_empty() || self.ips.contains(&ip)
    }

    fn allows_v4(&self, octets: [u8; 4]) -> bool {
        self.allows_ip(IpAddr::V4(Ipv4Addr::from(octets)))
    }

    fn allows_v6(&self, octets: [u8; 16]) -> bool {
        self.allows_ip(IpAddr::V6(Ipv6Addr::from(octets)))
    }

    fn check_arp(&self, arp: &[u8]) -> Result<(), DropReason> {
        const ETHERNET_IPV4: [u8; 6] = [0, 1, 8, 0, 6, 4];
        let sender_mac = array(arp, 8).filter(|_| arp.starts_with(&ETHERNET_IPV4));
        let sender_mac = sender_mac.map(MacAddress).ok_or(DropReason::SpoofedMac)?;
        let sender_ip: [u8; 4] = array(arp, 14).ok_or(DropReason::SpoofedIp)?;
        if !self.allows_mac(sender_mac) {
            return Err(DropReason::SpoofedMac);
        }
        // RFC 5227: a probe names no sender. Who answers a probe of its own address gives it up.
        let is_own = match sender_ip {
            [0, 0, 0, 0] => {
                let target = array(arp, 24).ok_or(DropReason::SpoofedIp)?;
                target == [0; 4] || self.allows_v4(target)
            }
            sender => self.allows_v4(sender),
        };
        if is_own { Ok(()) } else { Err(DropReason::SpoofedIp) }
    }

    fn check_ipv4(&self, ip: &[u8]) -> Option<()> {
        if self.ips.is_empty() {
            return Some(());
        }
        let version_and_len = *ip.first()?;
        let header_len = usize::from(version_and_len & 0xf) * 4;
        if version_and_len >> 4 != 4 || header_len < 20 {
            return None;
        }
        let source: [u8; 4] = array(ip, 12)?;
        if source != [0; 4] {
            return self.allows_v4(source).then_some(());
        }
        // Who has no address yet asks for one, or reports groups.
        let is_first = word(ip, 6)? & 0x1fff == 0;
        match *ip.get(9)? {
            UDP if is_first => (word(ip, header_len + 2)? == DHCP_SERVER_PORT).then_some(()),
            IGMP => Some(()),
            _ => None,
        }
    }

    fn check_ipv6(&self, ip: &[u8]) -> Result<(), DropReason> {
        let source: [u8; 16] = array(ip, 8).ok_or(DropReason::SpoofedIp)?;
        let upper = ipv6::upper(ip).ok_or(DropReason::SpoofedIp)?;
        let kind = upper.bytes.first().filter(|_| upper.protocol == ICMPV6 && !upper.is_fragment);
        let may_lack_address = kind.is_some_and(|kind| WITHOUT_ADDRESS.contains(kind));
        let is_unspecified = source == [0; 16] && may_lack_address;
        if !is_unspecified && !self.allows_v6(source) {
            return Err(DropReason::SpoofedIp);
        }
        if upper.protocol != ICMPV6 || !upper.is_first {
            return Ok(());
        }
        // Duplicate address detection would keep another from its address.
        let is_probe = is_unspecified && upper.bytes.first() == Some(&NEIGHBOUR_SOLICITATION);
        if is_probe && !array(upper.bytes, 8).is_some_and(|target| self.allows_v6(target)) {
            return Err(DropReason::SpoofedIp);
        }
        self.check_icmpv6(&upper)
    }

    fn check_icmpv6(&self, upper: &ipv6::Upper<'_>) -> Result<(), DropReason> {
        let kind = *upper.bytes.first().ok_or(DropReason::SpoofedIp)?;
        let options_at = match kind {
            ROUTER_SOLICITATION => 8,
            NEIGHBOUR_SOLICITATION | NEIGHBOUR_ADVERTISEMENT => 24,
            // Who has addresses of its own only is no router.
            ROUTER_ADVERTISEMENT | REDIRECT if !self.ips.is_empty() => {
                return Err(DropReason::SpoofedIp);
            }
            ROUTER_ADVERTISEMENT => 16,
            REDIRECT => 40,
            _ => return Ok(()),
        };
        // RFC 6980: neighbour discovery is never fragmented.
        if upper.is_fragment {
            return Err(DropReason::SpoofedIp);
        }
        if kind == NEIGHBOUR_ADVERTISEMENT {
            let target = array(upper.bytes, 8).ok_or(DropReason::SpoofedIp)?;
            if !self.allows_v6(target) {
                return Err(DropReason::SpoofedIp);
            }
        }
        self.check_options(kind, upper.bytes.get(options_at..).ok_or(DropReason::SpoofedIp)?)
    }

    fn check_options(&self, kind: u8, mut options: &[u8]) -> Result<(), DropReason> {
        // In a redirect, the target is another station by nature.
        let own = match kind {
            NEIGHBOUR_ADVERTISEMENT => TARGET_LINK_ADDRESS,
            _ => SOURCE_LINK_ADDRESS,
        };
        for _ in 0..OPTIONS_MAX {
            let Some([option, len]) = array(options, 0) else { break };
            let len = usize::from(len) * 8;
            let Some(rest) = options.get(len..).filter(|_| len > 0) else { break };
            if option == own
                && !array(options, 2).is_some_and(|mac| self.allows_mac(MacAddress(mac)))
            {
                return Err(DropReason::SpoofedMac);
            }
            options = rest;
        }
        if options.is_empty() { Ok(()) } else { Err(DropReason::SpoofedMac) }
    }
}
