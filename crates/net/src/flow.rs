//! The flow that a packet belongs to: its addresses and ports, as far as they can be read.
//!
//! Looks at the first [`FLOW_HEAD_LEN`] bytes once: Ethernet with up to two VLAN tags, IPv4 or
//! IPv6, then TCP or UDP. Fragments have no ports, because only the first one carries them.

use crate::Packet;

/// Bytes of a packet that are looked at: all headers with two VLAN tags and all IPv4 options.
pub const FLOW_HEAD_LEN: usize = 14 + 2 * VLAN_TAG_LEN + 60 + 4;

/// Most bytes that identify a flow: two IPv6 addresses and two ports.
const INPUT_LEN_MAX: usize = 36;

const VLAN_TAG_LEN: usize = 4;
const VLAN_TAGS_MAX: usize = 2;
const ETHERTYPE_AT: usize = 12;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const VLAN_TAGS: [u16; 2] = [0x8100, 0x88a8];
const IPV6_HEADER_LEN: usize = 40;
/// More-fragments bit and offset of an IPv4 header: any of them makes a fragment.
const IPV4_FRAGMENT: u16 = 0x3fff;

/// The transport protocol, whose header has the ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// TCP
    Tcp,
    /// UDP
    Udp,
}

/// The network protocol of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Network {
    /// IPv4
    V4,
    /// IPv6 without extension headers.
    V6,
}

/// One direction of a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flow {
    /// IPv4 or IPv6.
    pub network: Network,
    /// TCP or UDP with ports that could be read; `None` for everything else.
    pub transport: Option<Transport>,
    /// Source address, destination address, source port, destination port; then zeros.
    input: [u8; INPUT_LEN_MAX],
}

impl Flow {
    /// The flow of a packet, or `None` for what is not IP, has IPv6 extension headers, or is cut.
    pub fn of(packet: &Packet<'_>) -> Option<Self> {
        let mut head = [0; FLOW_HEAD_LEN];
        let len = FLOW_HEAD_LEN.min(packet.len as usize);
        let len = packet.copy_out(&mut head[..len]);
        Self::parse(&head[..len])
    }

    /// The flow of the packet that begins with these bytes.
    pub fn parse(head: &[u8]) -> Option<Self> {
        let mut at = ETHERTYPE_AT;
        for _ in 0..VLAN_TAGS_MAX {
            if VLAN_TAGS.contains(&word(head, at)?) {
                at += VLAN_TAG_LEN;
            }
        }
        let ip = head.get(at + 2..)?;
        match word(head, at)? {
            IPV4 => Self::parse_v4(ip),
            IPV6 => Self::parse_v6(ip),
            _ => None,
        }
    }

    /// Source and destination address, as they are hashed.
    pub fn addresses(&self) -> &[u8] {
        &self.input[..self.addresses_len()]
    }

    /// The addresses and both ports, as they are hashed.
    pub fn addresses_and_ports(&self) -> &[u8] {
        &self.input[..self.addresses_len() + 4]
    }

    /// A number that both directions of a conversation share, and others hardly ever do.
    pub fn conversation(&self) -> u32 {
        // Addresses and ports of the two sides commute under exclusive or.
        let (words, _) = self.input.as_chunks();
        let folded = words.iter().map(|word| u32::from_be_bytes(*word)).fold(0, |a, b| a ^ b);
        let mixed = (folded ^ folded.rotate_left(16)).wrapping_mul(0x9e37_79b1);
        mixed >> 16
    }

    fn addresses_len(&self) -> usize {
        match self.network {
            Network::V4 => 8,
            Network::V6 => 32,
        }
    }

    fn parse_v4(ip: &[u8]) -> Option<Self> {
        let header_len = usize::from(ip.first()? & 0xf) * 4;
        let addresses = ip.get(12..20)?;
        let is_fragment = word(ip, 6)? & IPV4_FRAGMENT != 0;
        let payload = ip.get(header_len.max(20)..).filter(|_| !is_fragment);
        Some(Self::new(Network::V4, addresses, ip[9], payload))
    }

    fn parse_v6(ip: &[u8]) -> Option<Self> {
        /// Hop-by-hop options, routing, fragment, ESP, authentication, destination options,
        /// mobility, host identity, shim6.
        const EXTENSIONS: [u8; 9] = [0, 43, 44, 50, 51, 60, 135, 139, 140];
        let addresses = ip.get(8..IPV6_HEADER_LEN)?;
        if EXTENSIONS.contains(&ip[6]) {
            return None;
        }
        Some(Self::new(Network::V6, addresses, ip[6], ip.get(IPV6_HEADER_LEN..)))
    }

    fn new(network: Network, addresses: &[u8], protocol: u8, payload: Option<&[u8]>) -> Self {
        let mut input = [0; INPUT_LEN_MAX];
        input[..addresses.len()].copy_from_slice(addresses);
        let ports = payload.and_then(|payload| payload.get(..4));
        let transport = match (protocol, ports) {
            (6, Some(_)) => Some(Transport::Tcp),
            (17, Some(_)) => Some(Transport::Udp),
            _ => None,
        };
        if let (Some(_), Some(ports)) = (transport, ports) {
            input[addresses.len()..addresses.len() + 4].copy_from_slice(ports);
        }
        Self { network, transport, input }
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..at + 2)?;
    Some(u16::from_be_bytes([bytes[0], bytes[1]]))
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    fn ipv4(protocol: u8, fragment: u16, tags: &[u16]) -> Vec<u8> {
        let mut bytes = std::vec![0; 12];
        for tag in tags {
            bytes.extend(tag.to_be_bytes());
            bytes.extend([0, 5]);
        }
        bytes.extend([8, 0, 0x45, 0, 0, 40, 0, 0]);
        bytes.extend(fragment.to_be_bytes());
        bytes.extend([64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        bytes.extend([0x12, 0x34, 0x56, 0x78]);
        bytes
    }

    #[test]
    fn finds_ports_behind_vlan_tags() {
        for tags in [&[][..], &[0x8100], &[0x88a8, 0x8100]] {
            let flow = Flow::parse(&ipv4(6, 0x4000, tags)).unwrap();
            assert_eq!(flow.transport, Some(Transport::Tcp));
            assert_eq!(
                flow.addresses_and_ports(),
                [10, 0, 0, 1, 10, 0, 0, 2, 0x12, 0x34, 0x56, 0x78]
            );
        }
        assert_eq!(Flow::parse(&ipv4(17, 0, &[0x8100; 3])), None, "a third tag is not looked into");
    }

    #[test]
    fn a_fragment_and_a_cut_packet_have_no_ports() {
        for fragment in [0x2000, 1, 0x1fff] {
            assert_eq!(Flow::parse(&ipv4(17, fragment, &[])).unwrap().transport, None);
        }
        let whole = ipv4(17, 0, &[]);
        for len in 0..whole.len() {
            let flow = Flow::parse(&whole[..len]);
            assert!(flow.is_none_or(|flow| flow.transport.is_none()), "{len}");
        }
    }

    #[test]
    fn both_directions_are_one_conversation() {
        let there = ipv4(17, 0, &[]);
        let mut back = there.clone();
        back[26..30].copy_from_slice(&there[30..34]);
        back[30..34].copy_from_slice(&there[26..30]);
        back[34..36].copy_from_slice(&there[36..38]);
        back[36..38].copy_from_slice(&there[34..36]);
        let [one, other] = [&there, &back].map(|bytes| Flow::parse(bytes).unwrap());
        assert_ne!(one, other);
        assert_eq!(one.conversation(), other.conversation());
    }

    #[test]
    fn conversations_spread() {
        let mut counts = [0u32; 4];
        for port in 0..4000u16 {
            let mut bytes = ipv4(6, 0, &[]);
            bytes[34..36].copy_from_slice(&(32_768 + port).to_be_bytes());
            counts[Flow::parse(&bytes).unwrap().conversation() as usize % 4] += 1;
        }
        assert!(counts.iter().all(|&count| (800..1200).contains(&count)), "{counts:?}");
    }
}
