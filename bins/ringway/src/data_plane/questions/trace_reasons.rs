//! The field of a packet that a rule refuses, in words.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ringway_switch::{FalseClaim, PortPolicy, Vlan, VlanId};

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const TAGS: [u16; 2] = [0x8100, 0x88a8];
const VLAN_MASK: u16 = 0x0fff;
/// VLANs of a trunk that are named, at most.
const NAMED_MAX: usize = 8;

/// The parts of a packet's head that rules look at.
pub struct Head<'a> {
    pub tag: Option<u16>,
    ethertype: u16,
    payload: &'a [u8],
}

impl<'a> Head<'a> {
    pub fn of(bytes: &'a [u8]) -> Option<Self> {
        let ethertype = word(bytes, 12)?;
        if !TAGS.contains(&ethertype) {
            return Some(Self { tag: None, ethertype, payload: bytes.get(14..)? });
        }
        let (tag, ethertype) = (Some(word(bytes, 14)? & VLAN_MASK), word(bytes, 16)?);
        Some(Self { tag, ethertype, payload: bytes.get(18..)? })
    }

    /// The address that it is for, if it is of IP.
    pub fn destination(&self) -> Option<IpAddr> {
        match self.ethertype {
            IPV4 => v4(self.payload, 16),
            IPV6 => v6(self.payload, 24),
            _ => None,
        }
    }
}

/// A claim of a packet that its port's locked addresses do not allow.
pub fn refused_claim(claim: FalseClaim, policy: &PortPolicy) -> String {
    let ips = || {
        let locked: Vec<String> = policy.locked_ips.iter().map(ToString::to_string).collect();
        locked.join(", ")
    };
    match claim {
        FalseClaim::Mac(mac) => {
            let locked = policy.locked_mac.map_or_else(String::new, |locked| locked.to_string());
            format!("{mac} is not {locked}")
        }
        FalseClaim::Ip(ip) => format!("{ip} is not in {}", ips()),
        FalseClaim::Router { is_redirect } => {
            let what = if is_redirect { "redirects" } else { "router advertisements" };
            format!("{what} come from routers, and the port is locked to {}", ips())
        }
        FalseClaim::Type(number) => {
            format!("type {number:#06x} is neither ARP, IPv4 nor IPv6, which have addresses")
        }
        FalseClaim::UnreadMac => "a MAC address of its sender cannot be read in it".into(),
        FalseClaim::UnreadIp => "an IP address of its sender cannot be read in it".into(),
    }
}

/// Why a port may not send a packet with this tag, or without one.
pub fn refused_tag(vlan: &Vlan, tag: Option<u16>) -> String {
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
pub fn vlan_text(vlan: Option<VlanId>) -> String {
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
