//! The hash of a received packet (virtio 1.2 §5.1.6.4.3): Toeplitz over addresses and ports.
//!
//! The guest chooses the key and which kinds of packets are hashed. IPv6 packets with extension
//! headers are never hashed; the device says so by the types it supports.

use crate::flow::{Flow, Network, Transport};
use crate::{HeaderHash, Packet};

/// Most bytes of a key: enough for two IPv6 addresses, two ports and the 32 bits of the hash.
pub const HASH_KEY_LEN_MAX: usize = 40;

/// The kinds of packets this device can hash: IPv4, TCPv4, UDPv4, IPv6, TCPv6, UDPv6
/// (`VIRTIO_NET_HASH_TYPE_*`), bit by bit in the order of the reports 1 to 6.
pub const HASH_TYPES_SUPPORTED: u32 = 0x3f;

/// The kinds of packets that are hashed, and the key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceiveHash {
    types: u32,
    key: [u8; HASH_KEY_LEN_MAX],
}

impl ReceiveHash {
    /// `None`: a type that this device does not support, or a key that is too long. A shorter key
    /// is followed by zeros.
    pub fn new(types: u32, key: &[u8]) -> Option<Self> {
        let mut whole = [0; HASH_KEY_LEN_MAX];
        whole.get_mut(..key.len())?.copy_from_slice(key);
        (types & !HASH_TYPES_SUPPORTED == 0).then_some(Self { types, key: whole })
    }

    pub(crate) fn types(&self) -> u32 {
        self.types
    }

    pub(crate) fn key(&self) -> &[u8] {
        &self.key
    }

    /// The hash of a packet and what was hashed; report 0 for a packet of a kind not asked for.
    pub fn of(&self, packet: &Packet<'_>) -> HeaderHash {
        Flow::of(packet).map_or(HeaderHash::default(), |flow| self.of_flow(&flow))
    }

    /// The same for a flow: ports count if that kind was asked for, otherwise only the addresses.
    pub fn of_flow(&self, flow: &Flow) -> HeaderHash {
        let addresses: u16 = match flow.network {
            Network::V4 => 1,
            Network::V6 => 4,
        };
        let ports = flow.transport.map(|transport| match transport {
            Transport::Tcp => addresses + 1,
            Transport::Udp => addresses + 2,
        });
        let is_wanted = |report: u16| self.types & 1 << (report - 1) != 0;
        if let Some(report) = ports.filter(|&report| is_wanted(report)) {
            return HeaderHash { value: self.toeplitz(flow.addresses_and_ports()), report };
        }
        match is_wanted(addresses) {
            true => HeaderHash { value: self.toeplitz(flow.addresses()), report: addresses },
            false => HeaderHash::default(),
        }
    }

    /// For each bit of `input` that is set, the 32 bits of the key that begin at its place.
    fn toeplitz(&self, input: &[u8]) -> u32 {
        let [a, b, c, d, ..] = self.key;
        let mut window = u32::from_be_bytes([a, b, c, d]);
        let mut hash = 0;
        for (byte, next) in input.iter().zip(&self.key[4..]) {
            for bit in (0..8).rev() {
                hash ^= window & 0u32.wrapping_sub(u32::from(byte >> bit & 1));
                window = window << 1 | u32::from(next >> bit & 1);
            }
        }
        hash
    }
}

#[cfg(test)]
mod tests {
    use core::net::IpAddr;
    use std::vec::Vec;

    use super::*;

    /// Key and hashes published with the specification of receive-side scaling ("Verifying the RSS
    /// hash calculation", Windows driver documentation).
    const KEY: [u8; HASH_KEY_LEN_MAX] = [
        0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f,
        0xb0, 0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30,
        0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
    ];

    /// Source, destination, their ports, hash of the addresses, hash with ports.
    const PUBLISHED: [(&str, &str, [u16; 2], u32, u32); 8] = [
        ("66.9.149.187", "161.142.100.80", [2794, 1766], 0x323e_8fc2, 0x51cc_c178),
        ("199.92.111.2", "65.69.140.83", [14230, 4739], 0xd718_262a, 0xc626_b0ea),
        ("24.19.198.95", "12.22.207.184", [12898, 38024], 0xd2d0_a5de, 0x5c2b_394a),
        ("38.27.205.30", "209.142.163.6", [48228, 2217], 0x8298_9176, 0xafc7_327f),
        ("153.39.163.191", "202.188.127.2", [44251, 1303], 0x5d18_09c5, 0x10e8_28a2),
        ("3ffe:2501:200:1fff::7", "3ffe:2501:200:3::1", [2794, 1766], 0x2cc1_8cd5, 0x4020_7d3d),
        ("3ffe:501:8::260:97ff:fe40:efab", "ff02::1", [14230, 4739], 0x0f0c_461c, 0xdde5_1bbf),
        (
            "3ffe:1900:4545:3:200:f8ff:fe21:67cf",
            "fe80::200:f8ff:fe21:67cf",
            [44251, 38024],
            0x4b61_e985,
            0x02d1_feef,
        ),
    ];

    fn packet(source: &str, destination: &str, ports: [u16; 2], protocol: u8) -> Vec<u8> {
        let mut bytes = std::vec![0; 12];
        let addresses = [source, destination].map(|text| text.parse::<IpAddr>().unwrap());
        match addresses[0] {
            IpAddr::V4(_) => {
                bytes.extend([8, 0, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, protocol, 0, 0]);
            }
            IpAddr::V6(_) => bytes.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 20, protocol, 64]),
        }
        for address in addresses {
            match address {
                IpAddr::V4(address) => bytes.extend(address.octets()),
                IpAddr::V6(address) => bytes.extend(address.octets()),
            }
        }
        bytes.extend(ports.iter().flat_map(|port| port.to_be_bytes()));
        bytes
    }

    #[test]
    fn published_hashes_are_met() {
        let all = ReceiveHash::new(HASH_TYPES_SUPPORTED, &KEY).unwrap();
        let addresses_only = ReceiveHash::new(0b1001, &KEY).unwrap();
        for (source, destination, ports, addresses, with_ports) in PUBLISHED {
            let is_v4 = source.contains('.');
            for (protocol, v4, v6, value) in
                [(6, 2, 5, with_ports), (17, 3, 6, with_ports), (1, 1, 4, addresses)]
            {
                let bytes = packet(source, destination, ports, protocol);
                let flow = Flow::parse(&bytes).unwrap();
                let report = if is_v4 { v4 } else { v6 };
                assert_eq!(all.of_flow(&flow), HeaderHash { value, report }, "{source}");
                let report = if is_v4 { 1 } else { 4 };
                let hash = HeaderHash { value: addresses, report };
                assert_eq!(addresses_only.of_flow(&flow), hash, "{source}");
            }
        }
    }

    #[test]
    fn what_was_not_asked_for_has_no_hash() {
        let bytes = packet("10.0.0.1", "10.0.0.2", [1, 2], 6);
        let flow = Flow::parse(&bytes).unwrap();
        // Everything but IPv4 and TCPv4.
        let hash = ReceiveHash::new(HASH_TYPES_SUPPORTED & !0b11, &KEY).unwrap();
        assert_eq!(hash.of_flow(&flow), HeaderHash::default());
    }

    #[test]
    fn other_types_and_longer_keys_are_refused() {
        assert_eq!(ReceiveHash::new(HASH_TYPES_SUPPORTED + 1, &KEY), None);
        assert_eq!(ReceiveHash::new(1, &[0; HASH_KEY_LEN_MAX + 1]), None);
        assert!(ReceiveHash::new(0, &[]).is_some());
    }
}
