//! From typed fields to the bytes of a packet.
//!
//! Limits: headers only, with lengths that fit, without checksums: the switch asks for none.

use std::net::IpAddr;

use anyhow::Context;
use ringway_net::MacAddress;

use super::fields::{Destination, Fields};
use super::numbers::{ARP, ICMP, ICMP6, IPV4, IPV6, TCP, UDP};

const TPID: u16 = 0x8100;
/// For local experiments: what nothing else is said about.
const EXPERIMENTAL: u16 = 0x88b5;

const ARP_REQUEST: u16 = 1;
const ECHO_REQUEST: u8 = 8;
const ECHO_REQUEST_6: u8 = 128;
const NEIGHBOUR_ADVERTISEMENT: u8 = 136;
const SOURCE_LINK_ADDRESS: u8 = 1;
const TARGET_LINK_ADDRESS: u8 = 2;

/// Bytes behind the IP header: as many as TCP's has.
const TRANSPORT_LEN: usize = 20;
/// Of a packet of which no length was typed, at least.
const PACKET_LEN_MIN: usize = 60;

impl Fields {
    /// The packet that a port's guest would send.
    ///
    /// # Errors
    /// An address is not known.
    pub fn packet(
        &self,
        port: &str,
        mac_of: impl Fn(&str) -> Option<MacAddress>,
    ) -> anyhow::Result<Vec<u8>> {
        let unknown = |name: &str| format!("{name}: its MAC address is not known: write it");
        let source = self.src.or_else(|| mac_of(port)).with_context(|| unknown(port))?;
        let destination = match &self.dst {
            Destination::Mac(mac) => *mac,
            Destination::Named(name) => mac_of(name).with_context(|| unknown(name))?,
        };
        let mut packet = [destination.0, source.0].concat();
        if let Some(vlan) = self.vlan {
            packet.extend([TPID, vlan].map(u16::to_be_bytes).concat());
        }
        let by_itself = match self.is_v6() {
            _ if self.is_arp() => ARP,
            None if self.protocol().is_none() => EXPERIMENTAL,
            None | Some(false) => IPV4,
            Some(true) => IPV6,
        };
        let ethertype = self.ethertype.unwrap_or(by_itself);
        packet.extend(ethertype.to_be_bytes());
        match ethertype {
            IPV4 => packet.extend(self.ipv4()),
            IPV6 => packet.extend(self.ipv6()),
            ARP => packet.extend(self.arp(source)),
            _ => {}
        }
        // A shorter one lacks the end of its headers.
        packet.resize(self.length.unwrap_or(packet.len().max(PACKET_LEN_MIN)), 0);
        Ok(packet)
    }

    fn ipv4(&self) -> Vec<u8> {
        let [source, destination] = [self.src_ip, self.dst_ip].map(octets_v4);
        let protocol = self.protocol().unwrap_or(UDP);
        let behind = self.behind_ip(protocol);
        let len = u16::try_from(20 + behind.len()).unwrap_or(u16::MAX).to_be_bytes();
        let mut bytes = vec![0x45, 0, len[0], len[1], 0, 0, 0, 0, 64, protocol, 0, 0];
        bytes.extend([source, destination].concat());
        bytes.extend(behind);
        bytes
    }

    fn ipv6(&self) -> Vec<u8> {
        let octets = |ip: Option<IpAddr>| match ip {
            Some(IpAddr::V6(ip)) => ip.octets(),
            _ => [0; 16],
        };
        let protocol = self.protocol().unwrap_or(UDP);
        let behind = self.behind_ip(protocol);
        let len = u16::try_from(behind.len()).unwrap_or(u16::MAX).to_be_bytes();
        // Neighbour discovery is not forwarded, and says so by the highest number of hops.
        let hops = if protocol == ICMP6 { 255 } else { 64 };
        let mut bytes = vec![0x60, 0, 0, 0, len[0], len[1], protocol, hops];
        bytes.extend([octets(self.src_ip), octets(self.dst_ip)].concat());
        bytes.extend(behind);
        bytes
    }

    fn behind_ip(&self, protocol: u8) -> Vec<u8> {
        match protocol {
            ICMP => {
                let mut bytes = vec![0; TRANSPORT_LEN];
                bytes[0] = self.icmp_type.unwrap_or(ECHO_REQUEST);
                bytes
            }
            ICMP6 => self.icmp6(),
            _ => {
                let mut bytes = [self.src_port, self.dst_port].map(u16::to_be_bytes).concat();
                bytes.resize(TRANSPORT_LEN, 0);
                if protocol == TCP {
                    // Five words are the header.
                    (bytes[12], bytes[13]) = (0x50, self.tcp_flags.unwrap_or(0));
                }
                bytes
            }
        }
    }

    fn icmp6(&self) -> Vec<u8> {
        let by_itself = if self.is_nd() { NEIGHBOUR_ADVERTISEMENT } else { ECHO_REQUEST_6 };
        let kind = self.icmp_type.unwrap_or(by_itself);
        // Without the option, and which one says whose MAC address it is (RFC 4861).
        let (len, option) = match kind {
            133 => (8, SOURCE_LINK_ADDRESS),
            134 => (16, SOURCE_LINK_ADDRESS),
            135 => (24, SOURCE_LINK_ADDRESS),
            NEIGHBOUR_ADVERTISEMENT => (24, TARGET_LINK_ADDRESS),
            137 => (40, TARGET_LINK_ADDRESS),
            _ => return [&[kind][..], &[0; TRANSPORT_LEN - 1]].concat(),
        };
        let mut bytes = vec![0; len];
        bytes[0] = kind;
        if let Some(target) = self.nd_target
            && let Some(place) = bytes.get_mut(8..24)
        {
            place.copy_from_slice(&target.octets());
        }
        if let Some(mac) = self.nd_mac {
            bytes.extend([&[option, 1][..], &mac.0].concat());
        }
        bytes
    }

    /// The request for the owner of `dst_ip`, asked by `src_ip`.
    fn arp(&self, source: MacAddress) -> Vec<u8> {
        let [sender, target] = [self.src_ip, self.dst_ip].map(octets_v4);
        let mut bytes = vec![0, 1, 8, 0, 6, 4];
        bytes.extend(self.arp_op.unwrap_or(ARP_REQUEST).to_be_bytes());
        bytes.extend(self.arp_mac.unwrap_or(source).0);
        bytes.extend(sender);
        bytes.extend([0; 6]);
        bytes.extend(target);
        bytes
    }
}

fn octets_v4(ip: Option<IpAddr>) -> [u8; 4] {
    match ip {
        Some(IpAddr::V4(ip)) => ip.octets(),
        _ => [0; 4],
    }
}
