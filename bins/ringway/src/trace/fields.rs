//! From `FIELD=VALUE` to the bytes of a packet.
//!
//! Limits: headers only, with lengths that fit, without checksums: the switch asks for none.

use std::net::IpAddr;

use anyhow::Context;
use ringway_net::MacAddress;
use ringway_switch::VlanId;

use crate::config::SpecError;
use crate::config::error::{Origin, nearest};

const KEYS: [&str; 9] =
    ["src", "dst", "vlan", "type", "src_ip", "dst_ip", "proto", "src_port", "dst_port"];

const TPID: u16 = 0x8100;
const IPV4: u16 = 0x0800;
const ARP: u16 = 0x0806;
const IPV6: u16 = 0x86dd;
/// For local experiments: what nothing else is said about.
const EXPERIMENTAL: u16 = 0x88b5;

const UDP: u8 = 17;
/// Bytes behind the IP header: as many as TCP's has.
const TRANSPORT_LEN: usize = 20;
const PACKET_LEN_MIN: usize = 60;

/// Where a packet goes.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Destination {
    Mac(MacAddress),
    /// Of the guest of this port.
    Port(String),
}

/// What was typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fields {
    src: Option<MacAddress>,
    dst: Destination,
    vlan: Option<VlanId>,
    ethertype: Option<u16>,
    src_ip: Option<IpAddr>,
    dst_ip: Option<IpAddr>,
    protocol: Option<u8>,
    src_port: u16,
    dst_port: u16,
}

impl Default for Fields {
    fn default() -> Self {
        Self {
            src: None,
            dst: Destination::Mac(MacAddress::BROADCAST),
            vlan: None,
            ethertype: None,
            src_ip: None,
            dst_ip: None,
            protocol: None,
            src_port: 0,
            dst_port: 0,
        }
    }
}

impl Fields {
    /// Reads what was typed.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn parse(typed: &[String]) -> Result<Self, Vec<SpecError>> {
        let mut fields = Self::default();
        let errors = typed.iter().filter_map(|field| fields.set(field).err());
        let mut errors: Vec<SpecError> = errors.collect();
        if errors.is_empty() && fields.is_of_two_families() {
            let ip = typed.iter().rfind(|field| field.contains("_ip=")).map_or("", String::as_str);
            let wrong = "a packet has addresses of one kind, which its type says, too";
            errors.push(Origin::flag(ip).wrong(wrong, "write both for IPv4, or both for IPv6"));
        }
        if errors.is_empty() { Ok(fields) } else { Err(errors) }
    }

    fn set(&mut self, typed: &str) -> Result<(), SpecError> {
        let origin = Origin::flag(typed);
        let (key, value) = typed
            .split_once('=')
            .ok_or_else(|| origin.wrong("there is no =", "write FIELD=VALUE, such as vlan=7"))?;
        let wrong = |what: &str, advice: &str| {
            origin.wrong(format!("{value:?} is {what}"), format!("write {advice}"))
        };
        let mac = || value.parse::<MacAddress>().ok();
        let ip = || value.parse().map_err(|_| wrong("no IP address", "IPv4 or IPv6"));
        let port = || value.parse().map_err(|_| wrong("no port", "a number up to 65535"));
        match key {
            "src" => {
                let mac = mac().ok_or_else(|| wrong("no MAC address", "52:54:00:12:34:56"))?;
                self.src = Some(mac);
            }
            "dst" if value == "all" => self.dst = Destination::Mac(MacAddress::BROADCAST),
            "dst" => {
                self.dst =
                    mac().map_or_else(|| Destination::Port(value.to_owned()), Destination::Mac);
            }
            "vlan" => {
                let vlan = value.parse().ok().and_then(VlanId::new);
                self.vlan = Some(vlan.ok_or_else(|| wrong("no VLAN", "1 to 4094"))?);
            }
            "type" => {
                let known = [("ip", IPV4), ("ip6", IPV6), ("arp", ARP)];
                let known = known.iter().find(|(name, _)| *name == value).map(|(_, it)| *it);
                let ethertype = known.or_else(|| number(value));
                let advice = "ip, ip6, arp, or a number such as 0x88cc";
                self.ethertype = Some(ethertype.ok_or_else(|| wrong("no EtherType", advice))?);
            }
            "src_ip" => self.src_ip = Some(ip()?),
            "dst_ip" => self.dst_ip = Some(ip()?),
            "proto" => {
                let known = [("icmp", 1), ("tcp", 6), ("udp", UDP), ("icmp6", 58)];
                let known = known.iter().find(|(name, _)| *name == value).map(|(_, it)| *it);
                let protocol = known.or_else(|| value.parse().ok());
                let advice = "tcp, udp, icmp, icmp6, or a number";
                self.protocol = Some(protocol.ok_or_else(|| wrong("no protocol", advice))?);
            }
            "src_port" => self.src_port = port()?,
            "dst_port" => self.dst_port = port()?,
            _ => {
                let advice = match nearest(key, KEYS) {
                    Some(near) => format!("did you mean {near}?"),
                    None => format!("use one of {}", KEYS.join(" ")),
                };
                return Err(origin.wrong(format!("there is no field {key:?}"), advice));
            }
        }
        Ok(())
    }

    /// The addresses that were typed, of the sender and the receiver.
    pub fn ips(&self) -> [Option<IpAddr>; 2] {
        [self.src_ip, self.dst_ip]
    }

    /// Whether it is IPv6, as far as that was typed.
    pub fn is_v6(&self) -> Option<bool> {
        match self.ethertype {
            Some(IPV6) => Some(true),
            Some(IPV4 | ARP) => Some(false),
            _ => self.src_ip.or(self.dst_ip).map(|ip| ip.is_ipv6()),
        }
    }

    fn is_of_two_families(&self) -> bool {
        self.ips().into_iter().flatten().any(|ip| Some(ip.is_ipv6()) != self.is_v6())
    }

    /// The port whose guest it is for, if that was typed.
    pub fn to_port(&self) -> Option<&str> {
        if let Destination::Port(name) = &self.dst { Some(name) } else { None }
    }

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
            Destination::Port(name) => mac_of(name).with_context(|| unknown(name))?,
        };
        let mut packet = [destination.0, source.0].concat();
        if let Some(vlan) = self.vlan {
            packet.extend([TPID, vlan.raw()].map(u16::to_be_bytes).concat());
        }
        let by_itself = match self.is_v6() {
            None if self.protocol.is_none() => EXPERIMENTAL,
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
        packet.resize(packet.len().max(PACKET_LEN_MIN), 0);
        Ok(packet)
    }

    fn ipv4(&self) -> Vec<u8> {
        let [source, destination] = [self.src_ip, self.dst_ip].map(octets_v4);
        let protocol = self.protocol.unwrap_or(UDP);
        let mut bytes = vec![0x45, 0, 0, 40, 0, 0, 0, 0, 64, protocol, 0, 0];
        bytes.extend([source, destination].concat());
        bytes.extend(self.transport());
        bytes
    }

    fn ipv6(&self) -> Vec<u8> {
        let octets = |ip: Option<IpAddr>| match ip {
            Some(IpAddr::V6(ip)) => ip.octets(),
            _ => [0; 16],
        };
        let protocol = self.protocol.unwrap_or(UDP);
        let mut bytes = vec![0x60, 0, 0, 0, 0, 20, protocol, 64];
        bytes.extend([octets(self.src_ip), octets(self.dst_ip)].concat());
        bytes.extend(self.transport());
        bytes
    }

    fn transport(&self) -> [u8; TRANSPORT_LEN] {
        let mut bytes = [0; TRANSPORT_LEN];
        bytes[..2].copy_from_slice(&self.src_port.to_be_bytes());
        bytes[2..4].copy_from_slice(&self.dst_port.to_be_bytes());
        bytes
    }

    /// Who has `dst_ip`? Asked by `src_ip`.
    fn arp(&self, source: MacAddress) -> Vec<u8> {
        let [sender, target] = [self.src_ip, self.dst_ip].map(octets_v4);
        let mut bytes = vec![0, 1, 8, 0, 6, 4, 0, 1];
        bytes.extend(source.0);
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

fn number(text: &str) -> Option<u16> {
    match text.strip_prefix("0x") {
        Some(digits) => u16::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_switch::Filter;

    fn packet(typed: &str) -> Vec<u8> {
        let typed: Vec<String> = typed.split_whitespace().map(str::to_owned).collect();
        let fields = Fields::parse(&typed).expect("fields");
        fields.packet("a", |name| (name == "a").then_some(MacAddress::local(1))).expect("a packet")
    }

    #[test]
    fn a_packet_is_what_was_typed() {
        for (typed, filter) in [
            ("", "broadcast and ether proto 0x88b5"),
            ("dst=52:54:00:00:00:02 vlan=7", "ether dst 52:54:00:00:00:02 and vlan 7"),
            ("src_ip=10.0.0.1 dst_ip=10.0.0.2", "udp and src 10.0.0.1 and dst 10.0.0.2"),
            ("proto=tcp dst_port=80 src_port=9", "tcp dst port 80 and tcp src port 9"),
            ("dst_ip=2001:db8::1 proto=udp dst_port=53", "ip6 and host 2001:db8::1 and port 53"),
            ("type=arp src_ip=10.0.0.1 dst_ip=10.0.0.2", "arp and src 10.0.0.1"),
            ("type=0x88cc", "ether proto 0x88cc"),
        ] {
            let packet = packet(typed);
            let len = u32::try_from(packet.len()).expect("a packet");
            let filter = Filter::parse(filter).expect(filter);
            assert!(filter.passes(&packet, len), "{typed}: {packet:?}");
            assert_eq!(packet[6..12], MacAddress::local(1).0);
        }
    }

    #[test]
    fn a_packet_is_of_one_family() {
        let is_one = |typed: &str| {
            let typed: Vec<String> = typed.split(' ').map(str::to_owned).collect();
            Fields::parse(&typed).is_ok()
        };
        assert!(is_one("src_ip=10.0.0.1 dst_ip=10.0.0.2") && is_one("type=ip6 dst_ip=fd00::1"));
        for typed in [
            "src_ip=10.0.0.1 dst_ip=fd00::1",
            "type=ip6 src_ip=10.0.0.1",
            "type=arp dst_ip=fd00::1",
        ] {
            assert!(!is_one(typed), "{typed}");
        }
    }

    #[test]
    fn all_mistakes_are_told() {
        let typed = ["dst_prt=1", "vlan", "vlan=0", "src=1", "src_ip=a", "proto=a", "dst_port=-1"];
        let errors = Fields::parse(&typed.map(str::to_owned)).expect_err("mistakes");
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(texts.len(), 7);
        assert_eq!(texts[0], "dst_prt=1: there is no field \"dst_prt\": did you mean dst_port?");
        assert_eq!(texts[2], "vlan=0: \"0\" is no VLAN: write 1 to 4094");
    }
}
