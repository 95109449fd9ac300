//! Facts that filters ask of a packet, found once.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{Side, Test};
use crate::frame::{ARP, Frame, IPV4, IPV6, RARP, array, word};
use crate::ipv6;

const TCP: u8 = 6;
const UDP: u8 = 17;

const TCP_FLAGS_AT: usize = 13;
const IPV4_HEADER_LEN_MIN: usize = 20;
const FRAGMENT_OFFSET: u16 = 0x1fff;
/// The sender's address in ARP for Ethernet and IPv4 (RFC 826), and the target's.
const ARP_SENDER_AT: usize = 14;
const ARP_TARGET_AT: usize = 24;

/// A packet by its first bytes.
pub(super) struct Facts<'a> {
    frame: Frame<'a>,
    /// Source and destination.
    ips: Option<[IpAddr; 2]>,
    protocol: Option<u8>,
    /// Of TCP or UDP: source and destination.
    ports: Option<[u16; 2]>,
    tcp_flags: u8,
    /// Of the whole packet, in bytes.
    len: u32,
}

impl<'a> Facts<'a> {
    /// `None`: it is shorter than an Ethernet header.
    pub fn of(head: &'a [u8], len: u32) -> Option<Self> {
        let frame = Frame::parse(head)?;
        let mut facts = Self { frame, ips: None, protocol: None, ports: None, tcp_flags: 0, len };
        match frame.ethertype {
            Some(ARP | RARP) => facts.ips = arp_ips(frame.payload),
            Some(IPV4) => facts.look_at_ipv4(frame.payload),
            Some(IPV6) => facts.look_at_ipv6(frame.payload),
            _ => {}
        }
        Some(facts)
    }

    fn look_at_ipv4(&mut self, ip: &[u8]) {
        let Some(first) = ip.first().filter(|first| **first >> 4 == 4) else { return };
        let header_len = usize::from(first & 0xf) * 4;
        self.ips = array(ip, 12)
            .zip(array(ip, 16))
            .map(|both: ([u8; 4], [u8; 4])| [both.0, both.1].map(|it| Ipv4Addr::from(it).into()));
        self.protocol = ip.get(9).copied();
        let is_first = word(ip, 6).is_some_and(|fragment| fragment & FRAGMENT_OFFSET == 0);
        if is_first && header_len >= IPV4_HEADER_LEN_MIN {
            self.look_at_ports(ip.get(header_len..).unwrap_or(&[]));
        }
    }

    fn look_at_ipv6(&mut self, ip: &[u8]) {
        if ip.first().is_none_or(|first| first >> 4 != 6) {
            return;
        }
        self.ips = array(ip, 8)
            .zip(array(ip, 24))
            .map(|both: ([u8; 16], [u8; 16])| [both.0, both.1].map(|it| Ipv6Addr::from(it).into()));
        let Some(upper) = ipv6::upper(ip) else { return };
        self.protocol = Some(upper.protocol);
        if upper.is_first {
            self.look_at_ports(upper.bytes);
        }
    }

    fn look_at_ports(&mut self, transport: &[u8]) {
        if matches!(self.protocol, Some(TCP | UDP)) {
            self.ports = word(transport, 0).zip(word(transport, 2)).map(|(from, to)| [from, to]);
        }
        if self.protocol == Some(TCP) {
            self.tcp_flags = transport.get(TCP_FLAGS_AT).copied().unwrap_or(0);
        }
    }

    pub fn holds(&self, test: &Test) -> bool {
        let Frame { source, destination, ethertype, .. } = self.frame;
        match *test {
            Test::Net(side, net, prefix) => {
                self.ips.is_some_and(|ips| any(side, ips, |ip| is_within(ip, net, prefix)))
            }
            Test::Port(side, protocol, first, last) => {
                (protocol.is_none() || protocol == self.protocol)
                    && self
                        .ports
                        .is_some_and(|ports| any(side, ports, |it| (first..=last).contains(&it)))
            }
            Test::TcpFlags(flags) => self.tcp_flags & flags != 0,
            Test::Less(len) => self.len <= len,
            Test::Greater(len) => self.len >= len,
            Test::Ether(side, mac) => any(side, [source, destination], |it| it == mac),
            Test::EtherType(wanted) => ethertype == Some(wanted),
            Test::Protocol(wanted) => self.protocol == Some(wanted),
            Test::Vlan(None) => self.frame.tci.is_some(),
            Test::Vlan(wanted) => wanted == self.frame.vlan(),
            Test::Broadcast => destination == ringway_net::MacAddress::BROADCAST,
            Test::Multicast => destination.is_multicast(),
            Test::IpMulticast => self.ips.is_some_and(|[_, to]| to.is_multicast()),
        }
    }
}

fn arp_ips(arp: &[u8]) -> Option<[IpAddr; 2]> {
    const ETHERNET_AND_IPV4: [u8; 6] = [0, 1, 8, 0, 6, 4];
    if !arp.starts_with(&ETHERNET_AND_IPV4) {
        return None;
    }
    let [sender, target]: [[u8; 4]; 2] = [array(arp, ARP_SENDER_AT)?, array(arp, ARP_TARGET_AT)?];
    Some([sender, target].map(|it| Ipv4Addr::from(it).into()))
}

fn any<T: Copy>(side: Side, [source, destination]: [T; 2], is_it: impl Fn(T) -> bool) -> bool {
    match side {
        Side::Source => is_it(source),
        Side::Destination => is_it(destination),
        Side::Either => is_it(source) || is_it(destination),
    }
}

/// Whether the first bits of two addresses of one family are the same.
fn is_within(ip: IpAddr, net: IpAddr, prefix: u8) -> bool {
    let (bits, differ) = match (ip, net) {
        (IpAddr::V4(ip), IpAddr::V4(net)) => (32, u128::from(ip.to_bits() ^ net.to_bits())),
        (IpAddr::V6(ip), IpAddr::V6(net)) => (128, ip.to_bits() ^ net.to_bits()),
        _ => return false,
    };
    differ.checked_shr(bits - u32::from(prefix)).unwrap_or(0) == 0
}
