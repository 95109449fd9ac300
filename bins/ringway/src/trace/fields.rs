//! The fields of a packet as they are typed: `FIELD=VALUE`.

use std::net::{IpAddr, Ipv6Addr};

use ringway_net::{ETHERNET_HEADER_LEN, MacAddress};
use ringway_switch::{PEEK_LEN, VlanId};

use super::numbers::{ARP, ICMP, ICMP6, IPV4, IPV6, TCP, UDP};
use crate::config::SpecError;
use crate::config::error::{Origin, nearest};

const KEYS: [&str; 16] = [
    "src",
    "dst",
    "vlan",
    "type",
    "src_ip",
    "dst_ip",
    "proto",
    "src_port",
    "dst_port",
    "tcp_flags",
    "icmp_type",
    "nd_target",
    "nd_mac",
    "arp_op",
    "arp_mac",
    "length",
];

/// Bits of TCP's header, from the lowest.
const TCP_FLAGS: [&str; 8] = ["fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr"];

/// Types of ICMPv6 by the names of their RFC 4861.
const ICMP6_TYPES: [(&str, u8); 5] =
    [("rs", 133), ("ra", 134), ("ns", 135), ("na", 136), ("redirect", 137)];

/// Where a packet goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Destination {
    Mac(MacAddress),
    /// Of the guest of this port, or who has that IP address.
    Named(String),
}

/// The fields that were typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fields {
    pub(super) src: Option<MacAddress>,
    pub(super) dst: Destination,
    /// 0: a tag that has a priority only.
    pub(super) vlan: Option<u16>,
    pub(super) ethertype: Option<u16>,
    pub(super) src_ip: Option<IpAddr>,
    pub(super) dst_ip: Option<IpAddr>,
    pub(super) protocol: Option<u8>,
    pub(super) src_port: u16,
    pub(super) dst_port: u16,
    pub(super) tcp_flags: Option<u8>,
    pub(super) icmp_type: Option<u8>,
    pub(super) nd_target: Option<Ipv6Addr>,
    pub(super) nd_mac: Option<MacAddress>,
    pub(super) arp_op: Option<u16>,
    pub(super) arp_mac: Option<MacAddress>,
    /// In bytes, from the Ethernet header on.
    pub(super) length: Option<usize>,
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
            tcp_flags: None,
            icmp_type: None,
            nd_target: None,
            nd_mac: None,
            arp_op: None,
            arp_mac: None,
            length: None,
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
        let own_mac = || mac().ok_or_else(|| wrong("no MAC address", "52:54:00:12:34:56"));
        let ip = || value.parse().map_err(|_| wrong("no IP address", "IPv4 or IPv6"));
        let port = || value.parse().map_err(|_| wrong("no port", "a number up to 65535"));
        match key {
            "src" => self.src = Some(own_mac()?),
            "dst" if value == "all" => self.dst = Destination::Mac(MacAddress::BROADCAST),
            "dst" => {
                self.dst =
                    mac().map_or_else(|| Destination::Named(value.to_owned()), Destination::Mac);
            }
            "vlan" => {
                let vlan = value.parse().ok().filter(|vlan| *vlan <= VlanId::MAX);
                let advice = "1 to 4094, or 0 for a tag that has a priority only";
                self.vlan = Some(vlan.ok_or_else(|| wrong("no VLAN", advice))?);
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
                let known = [("icmp", ICMP), ("tcp", TCP), ("udp", UDP), ("icmp6", ICMP6)];
                let known = known.iter().find(|(name, _)| *name == value).map(|(_, it)| *it);
                let protocol = known.or_else(|| value.parse().ok());
                let advice = "tcp, udp, icmp, icmp6, or a number";
                self.protocol = Some(protocol.ok_or_else(|| wrong("no protocol", advice))?);
            }
            "src_port" => self.src_port = port()?,
            "dst_port" => self.dst_port = port()?,
            "length" => {
                let fits = |len: &usize| (ETHERNET_HEADER_LEN..=PEEK_LEN).contains(len);
                let length = value.parse().ok().filter(fits);
                let advice = format!("14 to {PEEK_LEN} bytes: no rule looks at more");
                let length = length.ok_or_else(|| wrong("no length", &advice))?;
                self.length = Some(length);
            }
            _ => return self.set_behind_ip(&origin, key, value),
        }
        Ok(())
    }

    /// Fields of single protocols.
    fn set_behind_ip(&mut self, origin: &Origin, key: &str, value: &str) -> Result<(), SpecError> {
        let wrong = |what: &str, advice: &str| {
            origin.wrong(format!("{value:?} is {what}"), format!("write {advice}"))
        };
        let own_mac = || value.parse().map_err(|_| wrong("no MAC address", "52:54:00:12:34:56"));
        match key {
            "tcp_flags" => {
                let advice = format!("some of {}, such as syn+ack", TCP_FLAGS.join(" "));
                let flags = tcp_flags(value).ok_or_else(|| wrong("no flags of TCP", &advice))?;
                self.tcp_flags = Some(flags);
            }
            "icmp_type" => {
                let known = ICMP6_TYPES.iter().find(|(name, _)| *name == value);
                if known.is_some() {
                    self.protocol = Some(ICMP6);
                }
                let kind = known.map(|(_, kind)| *kind).or_else(|| value.parse().ok());
                let advice = "a number up to 255, or rs, ra, ns, na, redirect";
                self.icmp_type = Some(kind.ok_or_else(|| wrong("no type of ICMP", advice))?);
            }
            "nd_target" => {
                let target = value.parse().map_err(|_| wrong("no IPv6 address", "fd00::1"))?;
                self.nd_target = Some(target);
            }
            "nd_mac" => self.nd_mac = Some(own_mac()?),
            "arp_op" => {
                let known = [("request", 1), ("reply", 2)];
                let known = known.iter().find(|(name, _)| *name == value).map(|(_, it)| *it);
                let advice = "request, reply, or a number";
                let op = known.or_else(|| value.parse().ok());
                self.arp_op = Some(op.ok_or_else(|| wrong("no operation of ARP", advice))?);
            }
            "arp_mac" => self.arp_mac = Some(own_mac()?),
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
            _ => match self.src_ip.or(self.dst_ip) {
                Some(ip) => Some(ip.is_ipv6()),
                None if self.is_nd() || self.protocol == Some(ICMP6) => Some(true),
                None => (self.is_arp() || self.protocol == Some(ICMP)).then_some(false),
            },
        }
    }

    /// Something of it only ARP has.
    pub(super) fn is_arp(&self) -> bool {
        self.arp_op.is_some() || self.arp_mac.is_some()
    }

    /// Something of it only neighbour discovery has.
    pub(super) fn is_nd(&self) -> bool {
        self.nd_target.is_some() || self.nd_mac.is_some()
    }

    /// The protocol behind IP, as far as that was typed.
    pub(super) fn protocol(&self) -> Option<u8> {
        let by_fields = match self.icmp_type {
            _ if self.is_nd() => Some(ICMP6),
            Some(_) if self.is_v6() == Some(true) => Some(ICMP6),
            Some(_) => Some(ICMP),
            None => self.tcp_flags.map(|_| TCP),
        };
        self.protocol.or(by_fields)
    }

    /// Whether the packet is of IP, or ARP.
    pub(super) fn has_ip(&self) -> bool {
        matches!(self.ethertype, Some(IPV4 | IPV6 | ARP))
            || self.ethertype.is_none() && (self.is_v6().is_some() || self.protocol().is_some())
    }

    /// A field that was not typed, and on which the answer depends.
    pub fn open_question(&self) -> Option<&'static str> {
        (self.protocol == Some(ICMP6) && self.icmp_type.is_none() && !self.is_nd()).then_some(
            "an echo request; neighbour discovery and router advertisements have rules of their \
             own: write icmp_type=",
        )
    }

    /// The sender's address, where none was typed.
    pub fn set_src_ip(&mut self, ip: IpAddr) {
        self.src_ip.get_or_insert(ip);
    }

    /// The receiver's, likewise.
    pub fn set_dst_ip(&mut self, ip: IpAddr) {
        self.dst_ip.get_or_insert(ip);
    }

    pub(super) fn is_of_two_families(&self) -> bool {
        let is_wrong = |ip: IpAddr| {
            Some(ip.is_ipv6()) != self.is_v6()
                || ip.is_ipv4() && self.is_nd()
                || ip.is_ipv6() && self.is_arp()
        };
        self.ips().into_iter().flatten().any(is_wrong)
    }

    /// The port whose guest it is for, or an IP address, if that was typed.
    pub fn to_name(&self) -> Option<&str> {
        if let Destination::Named(name) = &self.dst { Some(name) } else { None }
    }
}

/// `syn+ack`, or `none`.
fn tcp_flags(text: &str) -> Option<u8> {
    let bit = |name: &str| TCP_FLAGS.iter().position(|flag| *flag == name).map(|at| 1 << at);
    match text {
        "none" => Some(0),
        names => names.split('+').try_fold(0, |flags, name| Some(flags | bit(name)?)),
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
            ("vlan=0 proto=udp", "udp"),
            ("icmp_type=8 dst_ip=10.0.0.2", "icmp and dst 10.0.0.2"),
            ("icmp_type=ra", "icmp6"),
            ("icmp_type=ra src_ip=fe80::1", "icmp6 and src fe80::1"),
            ("nd_target=fd00::9", "icmp6"),
            ("tcp_flags=syn+ack dst_ip=10.0.0.2", "tcp"),
            ("arp_op=reply src_ip=10.0.0.1", "arp and src 10.0.0.1"),
        ] {
            let packet = packet(typed);
            let len = u32::try_from(packet.len()).expect("a packet");
            let filter = Filter::parse(filter).expect(filter);
            assert!(filter.passes(&packet, len), "{typed}: {packet:?}");
            assert_eq!(packet[6..12], MacAddress::local(1).0);
        }
    }

    #[test]
    fn each_field_is_where_its_protocol_has_it() {
        let mac = "52:54:00:00:00:09".parse::<MacAddress>().expect("a MAC address");
        let nd = packet("nd_target=fd00::9 nd_mac=52:54:00:00:00:09");
        assert_eq!((nd[54], &nd[62..64], nd[77]), (136, &[0xfd, 0][..], 9));
        assert_eq!((&nd[78..80], &nd[80..86]), (&[2, 1][..], &mac.0[..]));
        let asks = packet("icmp_type=ns nd_mac=52:54:00:00:00:09 src_ip=fe80::1");
        assert_eq!((asks[54], &asks[78..80]), (135, &[1, 1][..]));
        let router = packet("icmp_type=ra nd_mac=52:54:00:00:00:09");
        assert_eq!((router[54], &router[70..72]), (134, &[1, 1][..]));
        let arp = packet("arp_op=reply arp_mac=52:54:00:00:00:09");
        assert_eq!((&arp[20..22], &arp[22..28]), (&[0, 2][..], &mac.0[..]));
        let tcp = packet("tcp_flags=syn+ack dst_port=80");
        assert_eq!((tcp[46], tcp[47]), (0x50, 0x12));
        assert_eq!(packet("icmp_type=8")[34], 8);
        assert_eq!(packet("vlan=0 type=ip")[12..18], [0x81, 0, 0, 0, 8, 0]);
        for length in [14, 60, 256] {
            assert_eq!(packet(&format!("length={length}")).len(), length);
        }
        for length in ["13", "257", "1514"] {
            let errors = Fields::parse(&[format!("length={length}")]).expect_err(length);
            assert!(errors[0].to_string().contains("14 to 256 bytes"), "{}", errors[0]);
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
            "nd_target=fd00::9 src_ip=10.0.0.1",
            "arp_op=reply src_ip=fd00::1",
        ] {
            assert!(!is_one(typed), "{typed}");
        }
    }

    #[test]
    fn all_mistakes_are_told() {
        let typed =
            ["dst_prt=1", "vlan", "vlan=4095", "src=1", "src_ip=a", "proto=a", "dst_port=-1"];
        let errors = Fields::parse(&typed.map(str::to_owned)).expect_err("mistakes");
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(texts.len(), 7);
        assert_eq!(texts[0], "dst_prt=1: there is no field \"dst_prt\": did you mean dst_port?");
        let vlan = "vlan=4095: \"4095\" is no VLAN: write 1 to 4094";
        assert_eq!(texts[2], format!("{vlan}, or 0 for a tag that has a priority only"));
    }
}
