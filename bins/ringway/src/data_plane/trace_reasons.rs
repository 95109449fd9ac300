//! The field of a packet that a rule refuses, in words.
//!
//! Limits: of what is behind extension headers nothing is named.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ringway_net::MacAddress;
use ringway_switch::{PortPolicy, Vlan, VlanId};

const IPV4: u16 = 0x0800;
const ARP: u16 = 0x0806;
const IPV6: u16 = 0x86dd;
const TAGS: [u16; 2] = [0x8100, 0x88a8];
const VLAN_MASK: u16 = 0x0fff;
const ICMP6: u8 = 58;
/// VLANs of a trunk that are named, at most.
const NAMED_MAX: usize = 8;

/// The parts of a packet's head that rules look at.
pub(super) struct Head<'a> {
    pub(super) tag: Option<u16>,
    ethertype: u16,
    payload: &'a [u8],
    source: MacAddress,
}

impl<'a> Head<'a> {
    pub(super) fn of(bytes: &'a [u8]) -> Option<Self> {
        let source = MacAddress(array(bytes, 6)?);
        let ethertype = word(bytes, 12)?;
        if !TAGS.contains(&ethertype) {
            return Some(Self { tag: None, ethertype, payload: bytes.get(14..)?, source });
        }
        let (tag, ethertype) = (Some(word(bytes, 14)? & VLAN_MASK), word(bytes, 16)?);
        Some(Self { tag, ethertype, payload: bytes.get(18..)?, source })
    }

    /// The address that it is for, if it is of IP.
    pub(super) fn destination(&self) -> Option<IpAddr> {
        match self.ethertype {
            IPV4 => v4(self.payload, 16),
            IPV6 => v6(self.payload, 24),
            _ => None,
        }
    }

    /// Addresses that its sender says are its own.
    fn claimed_ips(&self) -> Vec<IpAddr> {
        let claimed = match self.ethertype {
            IPV4 => [v4(self.payload, 12), None],
            // A probe (RFC 5227) claims what it asks for.
            ARP => [v4(self.payload, 14), v4(self.payload, 24).filter(|_| self.is_arp_probe())],
            IPV6 => [v6(self.payload, 8), self.nd_target()],
            _ => [None, None],
        };
        let is_said = |ip: &IpAddr| !ip.is_unspecified();
        claimed.into_iter().flatten().filter(is_said).collect()
    }

    fn claimed_macs(&self) -> Vec<MacAddress> {
        let arp = array(self.payload, 8).filter(|_| self.ethertype == ARP).map(MacAddress);
        [Some(self.source), arp, self.nd_mac()].into_iter().flatten().collect()
    }

    fn is_arp_probe(&self) -> bool {
        array::<4>(self.payload, 14) == Some([0; 4])
    }

    fn icmp6(&self) -> Option<&'a [u8]> {
        let is_it = self.ethertype == IPV6 && self.payload.get(6) == Some(&ICMP6);
        self.payload.get(40..).filter(|_| is_it)
    }

    fn nd_target(&self) -> Option<IpAddr> {
        let icmp6 = self.icmp6()?;
        let claims = matches!(icmp6.first(), Some(135 | 136));
        v6(icmp6, 8).filter(|_| claims)
    }

    fn nd_mac(&self) -> Option<MacAddress> {
        let icmp6 = self.icmp6()?;
        let at = match icmp6.first()? {
            133 => 8,
            134 => 16,
            135 | 136 => 24,
            _ => return None,
        };
        array(icmp6, at + 2).map(MacAddress)
    }

    /// Only routers send it.
    fn is_of_router(&self) -> Option<&'static str> {
        match self.icmp6()?.first()? {
            134 => Some("router advertisements"),
            137 => Some("redirects"),
            _ => None,
        }
    }

    /// Why locked addresses refuse it.
    pub(super) fn refused_source(&self, policy: &PortPolicy) -> Option<String> {
        if let Some(locked) = policy.locked_mac
            && let Some(mac) = self.claimed_macs().into_iter().find(|mac| *mac != locked)
        {
            return Some(format!("{mac} is not {locked}"));
        }
        if policy.locked_ips.is_empty() {
            return None;
        }
        let locked: Vec<String> = policy.locked_ips.iter().map(ToString::to_string).collect();
        let locked = locked.join(", ");
        let is_other = |ip: &IpAddr| !policy.locked_ips.contains(ip);
        if let Some(ip) = self.claimed_ips().into_iter().find(is_other) {
            return Some(format!("{ip} is not in {locked}"));
        }
        if let Some(what) = self.is_of_router() {
            return Some(format!("{what} come from routers, and the port is locked to {locked}"));
        }
        (!matches!(self.ethertype, IPV4 | ARP | IPV6)).then(|| {
            format!(
                "type {:#06x} is neither ARP, IPv4 nor IPv6, which have addresses",
                self.ethertype
            )
        })
    }
}

/// Why a port may not send a packet with this tag, or without one.
pub(super) fn refused_tag(vlan: &Vlan, tag: Option<u16>) -> String {
    match (vlan, tag) {
        (Vlan::Trunk { tagged, .. }, Some(tag)) => {
            let mut named: Vec<String> =
                tagged.iter().take(NAMED_MAX + 1).map(|vlan| vlan.to_string()).collect();
            if named.len() > NAMED_MAX {
                named[NAMED_MAX] = "…".into();
            }
            format!("tag {tag} is not in trunk={}", named.join(","))
        }
        (Vlan::Trunk { .. }, None) => "there is no tag, and the trunk has no native VLAN".into(),
        (Vlan::Access(own), Some(tag)) => {
            format!("tag {tag}: a port with vlan={own} sends without tags")
        }
        (_, _) => "the port may not send this, with or without tag".into(),
    }
}

/// A VLAN in words.
pub(super) fn vlan_text(vlan: Option<VlanId>) -> String {
    vlan.filter(|vlan| vlan.raw() != 0).map_or("no VLAN".into(), |vlan| format!("VLAN {vlan}"))
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    array(bytes, at).map(u16::from_be_bytes)
}

fn v4(bytes: &[u8], at: usize) -> Option<IpAddr> {
    array::<4>(bytes, at).map(|octets| Ipv4Addr::from(octets).into())
}

fn v6(bytes: &[u8], at: usize) -> Option<IpAddr> {
    array::<16>(bytes, at).map(|octets| Ipv6Addr::from(octets).into())
}
