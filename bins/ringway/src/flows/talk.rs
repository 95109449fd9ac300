//! The two ends that talk, from the first bytes of a packet. The packet may be anything.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ringway_net::MacAddress;
use serde::Serialize;

/// Bytes that are looked at: an Ethernet header with two tags, the longest header of IPv4, and
/// ports.
pub const HEAD_LEN_MAX: usize = 14 + 2 * TAG_LEN + 60 + 4;

const TAG_LEN: usize = 4;
const TAGS_MAX: usize = 2;
const TAGS: [u16; 2] = [0x8100, 0x88a8];
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const ARP: u16 = 0x0806;

/// Protocols behind IP that have a name here.
const NAMES: [(u8, &str); 7] =
    [(1, "icmp"), (2, "igmp"), (6, "tcp"), (17, "udp"), (47, "gre"), (58, "icmp6"), (132, "sctp")];
/// Those of them whose header begins with ports.
const WITH_PORTS: [u8; 3] = [6, 17, 132];

/// Both ends, and by which protocol.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Talk {
    /// `10.0.2.15:40000`, an IP address, or else a MAC address.
    pub from: String,
    pub to: String,
    /// `tcp`, `arp`, or a number.
    pub protocol: String,
}

impl Talk {
    /// `None`: it is shorter than an Ethernet header.
    pub fn of(head: &[u8]) -> Option<Self> {
        let (macs, mut rest) = head.split_at_checked(12)?;
        let mut kind = word(rest, 0)?;
        for _ in 0..TAGS_MAX {
            if TAGS.contains(&kind)
                && let (Some(inner), Some(behind)) = (word(rest, TAG_LEN), rest.get(TAG_LEN..))
            {
                (kind, rest) = (inner, behind);
            }
        }
        let packet = &rest[2..];
        let by_ip = match kind {
            IPV4 => ipv4(packet),
            IPV6 => ipv6(packet),
            _ => None,
        };
        by_ip.or_else(|| {
            let [to, from] = [0, 6].map(|at| macs[at..].first_chunk().map(|it| MacAddress(*it)));
            let protocol = match kind {
                ARP => "arp".to_owned(),
                kind => format!("0x{kind:04x}"),
            };
            Some(Self { from: from?.to_string(), to: to?.to_string(), protocol })
        })
    }
}

fn ipv4(packet: &[u8]) -> Option<Talk> {
    const FRAGMENT_OFFSET: u16 = 0x1fff;
    let ip = |at: usize| {
        let octets = packet.get(at..)?.first_chunk::<4>()?;
        Some(IpAddr::from(Ipv4Addr::from(*octets)))
    };
    let header_len = usize::from(packet.first()? & 0xf) * 4;
    let is_first = word(packet, 6)? & FRAGMENT_OFFSET == 0;
    let behind = packet.get(header_len..).filter(|_| is_first);
    Some(talk([ip(12)?, ip(16)?], *packet.get(9)?, behind))
}

fn ipv6(packet: &[u8]) -> Option<Talk> {
    const HEADER_LEN: usize = 40;
    let ip = |at: usize| {
        let octets = packet.get(at..)?.first_chunk::<16>()?;
        Some(IpAddr::from(Ipv6Addr::from(*octets)))
    };
    Some(talk([ip(8)?, ip(24)?], *packet.get(6)?, packet.get(HEADER_LEN..)))
}

fn talk([from, to]: [IpAddr; 2], protocol: u8, behind: Option<&[u8]>) -> Talk {
    let behind = behind.filter(|_| WITH_PORTS.contains(&protocol));
    let end = |ip: IpAddr, at: usize| match behind.and_then(|behind| word(behind, at)) {
        Some(port) => SocketAddr::new(ip, port).to_string(),
        None => ip.to_string(),
    };
    let name = NAMES.iter().find(|(number, _)| *number == protocol);
    let protocol = name.map_or_else(|| protocol.to_string(), |(_, name)| (*name).to_owned());
    Talk { from: end(from, 0), to: end(to, 2), protocol }
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u16, packet: &[u8]) -> Vec<u8> {
        let macs = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
        [&macs[..], &kind.to_be_bytes(), packet].concat()
    }

    #[test]
    fn ends_and_protocol_are_told() {
        let udp =
            [0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0x9c, 0x40, 0, 53];
        let (mut fragment, mut other) = (udp, udp);
        (fragment[7], other[9]) = (9, 89);
        let mut tcp6 = vec![0x60, 0, 0, 0, 0, 4, 6, 64];
        tcp6.extend(
            [Ipv6Addr::LOCALHOST, Ipv6Addr::UNSPECIFIED].map(|ip| ip.octets()).as_flattened(),
        );
        tcp6.extend([0, 80, 0, 81]);
        let tagged = [&[0, 7, 8, 0][..], &udp].concat();
        for (frame, from, to, protocol) in [
            (frame(IPV4, &udp), "10.0.0.1:40000", "10.0.0.2:53", "udp"),
            (frame(0x8100, &tagged), "10.0.0.1:40000", "10.0.0.2:53", "udp"),
            (frame(IPV4, &fragment), "10.0.0.1", "10.0.0.2", "udp"),
            (frame(IPV4, &other), "10.0.0.1", "10.0.0.2", "89"),
            (frame(IPV4, &udp[..20]), "10.0.0.1", "10.0.0.2", "udp"),
            (frame(IPV6, &tcp6), "[::1]:80", "[::]:81", "tcp"),
            (frame(ARP, &[0; 28]), "02:00:00:00:00:01", "02:00:00:00:00:02", "arp"),
            (frame(0x88cc, &[]), "02:00:00:00:00:01", "02:00:00:00:00:02", "0x88cc"),
            (frame(IPV4, &udp[..19]), "02:00:00:00:00:01", "02:00:00:00:00:02", "0x0800"),
        ] {
            let talk = Talk::of(&frame).expect("a frame");
            assert_eq!((&*talk.from, &*talk.to, &*talk.protocol), (from, to, protocol));
        }
        let all = frame(0x8100, &tagged);
        for len in 0..all.len() {
            assert_eq!(Talk::of(&all[..len]).is_some(), len >= 14, "{len}");
        }
    }
}
