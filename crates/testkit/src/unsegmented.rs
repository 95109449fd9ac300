//! Packets whose checksum and segmentation are left to others, in every shape that is allowed.
//!
//! How: a value says what is in the packet, [`Unsegmented::build`] makes its bytes and its
//! virtio-net header as a driver would. Written without the code that is tested with it.

use ringway_net::{GSO_ECN, GsoType, NEEDS_CSUM, NetHeader};

use crate::Rng;

/// FIN, PSH, ACK, ECE and CWR of a TCP header.
pub const FIN: u8 = 0x01;
/// See [`FIN`].
pub const PSH: u8 = 0x08;
/// See [`FIN`].
pub const ACK: u8 = 0x10;
/// See [`FIN`].
pub const ECE: u8 = 0x40;
/// See [`FIN`].
pub const CWR: u8 = 0x80;

const TCP: u8 = 6;
const UDP: u8 = 17;
const DESTINATION_OPTIONS: u8 = 60;

/// The headers and payload of a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unsegmented {
    /// EtherTypes of its VLAN tags, outermost first.
    pub vlan_tags: Vec<u16>,
    /// IPv6 instead of IPv4.
    pub is_ipv6: bool,
    /// UDP instead of TCP.
    pub is_udp: bool,
    /// IPv4: options of that many times 4 bytes. IPv6: that many destination options headers.
    pub network_options: usize,
    /// TCP: options of that many times 4 bytes.
    pub transport_options: usize,
    /// Flags of TCP.
    pub flags: u8,
    /// Identification of IPv4.
    pub id: u16,
    /// Sequence number of TCP.
    pub sequence: u32,
    /// Bytes behind the headers.
    pub payload: Vec<u8>,
    /// Payload bytes of a segment; 0: only the checksum is missing.
    pub gso_size: u16,
}

impl Unsegmented {
    /// TCP over IPv4 without anything special.
    pub fn new(payload_len: usize, gso_size: u16) -> Self {
        let mut payload = vec![0; payload_len];
        Rng::new(payload_len as u64).fill(&mut payload);
        Self {
            vlan_tags: Vec::new(),
            is_ipv6: false,
            is_udp: false,
            network_options: 0,
            transport_options: 0,
            flags: ACK,
            id: 0xfff0,
            sequence: 0xffff_f000,
            payload,
            gso_size,
        }
    }

    /// Anything of at most `segments_max` segments; UDP of at most 128, which is Linux's limit.
    pub fn random(rng: &mut Rng, segments_max: u64) -> Self {
        let is_udp = rng.one_in(3);
        let segments_max = if is_udp { segments_max.min(128) } else { segments_max };
        let gso_size = 1 + rng.word() % if rng.one_in(2) { 100 } else { 9000 };
        let len = rng.below(u64::from(gso_size) * segments_max).min(65_000);
        let mut packet = Self::new(usize::try_from(len).unwrap_or(0), gso_size);
        let tags = [vec![], vec![0x8100], vec![0x88a8, 0x8100]];
        packet.vlan_tags = tags[below(rng, 3)].clone();
        (packet.is_ipv6, packet.is_udp) = (rng.one_in(2), is_udp);
        packet.network_options = below(rng, 4);
        packet.transport_options = below(rng, 11);
        packet.flags = rng.word().to_le_bytes()[0] & (FIN | PSH | ECE | CWR) | ACK;
        (packet.id, packet.sequence) = (rng.word(), rng.double_word());
        packet
    }

    /// The virtio-net header and the packet.
    pub fn build(&self) -> (NetHeader, Vec<u8>) {
        let transport = self.transport();
        let headers = self.link_and_network(transport.len());
        let csum_start = u16::try_from(headers.len()).unwrap_or(0);
        let transport_len = transport.len() - self.payload.len();
        let ecn = if self.flags & CWR != 0 && !self.is_udp { GSO_ECN } else { 0 };
        let mut header = NetHeader {
            flags: NEEDS_CSUM,
            csum_start,
            csum_offset: if self.is_udp { 6 } else { 16 },
            ..NetHeader::default()
        };
        if self.gso_size > 0 {
            header.gso_type = self.gso().raw() | ecn;
            header.gso_size = self.gso_size;
            header.hdr_len = csum_start + u16::try_from(transport_len).unwrap_or(0);
        }
        (header, [headers, transport].concat())
    }

    /// The kind of segmentation that is left undone.
    pub fn gso(&self) -> GsoType {
        match (self.is_udp, self.is_ipv6) {
            (true, _) => GsoType::UdpL4,
            (false, false) => GsoType::TcpV4,
            (false, true) => GsoType::TcpV6,
        }
    }

    /// How many packets it becomes.
    pub fn segments(&self) -> usize {
        match self.gso_size {
            0 => 1,
            size => self.payload.len().div_ceil(usize::from(size)).max(1),
        }
    }

    fn link_and_network(&self, transport_len: usize) -> Vec<u8> {
        let mut bytes = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        for (number, tag) in self.vlan_tags.iter().enumerate() {
            bytes.extend(tag.to_be_bytes());
            bytes.extend([0, 10 + u8::try_from(number).unwrap_or(0)]);
        }
        let protocol = if self.is_udp { UDP } else { TCP };
        if self.is_ipv6 {
            bytes.extend([0x86, 0xdd]);
            bytes.extend(self.ipv6(protocol, transport_len));
        } else {
            bytes.extend([0x08, 0x00]);
            bytes.extend(self.ipv4(protocol, transport_len));
        }
        bytes
    }

    fn ipv4(&self, protocol: u8, transport_len: usize) -> Vec<u8> {
        let len = 20 + 4 * self.network_options;
        let mut bytes = vec![0x40 | u8::try_from(len / 4).unwrap_or(5), 0x02];
        bytes.extend(low_half(len + transport_len).to_be_bytes());
        bytes.extend(self.id.to_be_bytes());
        bytes.extend([0x40, 0, 64, protocol, 0, 0]);
        bytes.extend(self.addresses());
        // "No operation".
        bytes.resize(len, 1);
        let sum = !sum(&bytes);
        bytes[10..12].copy_from_slice(&sum.to_be_bytes());
        bytes
    }

    fn ipv6(&self, protocol: u8, transport_len: usize) -> Vec<u8> {
        let extensions = self.network_options;
        let first = if extensions > 0 { DESTINATION_OPTIONS } else { protocol };
        let mut bytes = vec![0x60, 0x20, 0, 0];
        bytes.extend(low_half(8 * extensions + transport_len).to_be_bytes());
        bytes.extend([first, 64]);
        bytes.extend(self.addresses());
        for left in (0..extensions).rev() {
            let next = if left > 0 { DESTINATION_OPTIONS } else { protocol };
            // One option: four bytes of padding.
            bytes.extend([next, 0, 1, 4, 0, 0, 0, 0]);
        }
        bytes
    }

    fn transport(&self) -> Vec<u8> {
        let mut bytes = vec![0x30, 0x39, 0x14, 0x51];
        let csum_at = if self.is_udp {
            bytes.extend(low_half(8 + self.payload.len()).to_be_bytes());
            bytes.extend([0; 2]);
            6
        } else {
            let words = 5 + u8::try_from(self.transport_options).unwrap_or(0);
            bytes.extend(self.sequence.to_be_bytes());
            bytes.extend([1, 2, 3, 4, words << 4, self.flags, 0x20, 0, 0, 0, 0, 0]);
            bytes.resize(usize::from(words) * 4, 1);
            16
        };
        bytes.extend(&self.payload);
        let pseudo = self.pseudo_sum(bytes.len());
        bytes[csum_at..csum_at + 2].copy_from_slice(&pseudo.to_be_bytes());
        bytes
    }

    /// RFC 793 §3.1, RFC 8200 §8.1.
    fn pseudo_sum(&self, transport_len: usize) -> u16 {
        let protocol = if self.is_udp { UDP } else { TCP };
        let len = low_half(transport_len).to_be_bytes();
        sum(&[self.addresses(), vec![len[0], len[1], 0, protocol]].concat())
    }

    fn addresses(&self) -> Vec<u8> {
        if !self.is_ipv6 {
            return vec![10, 0, 0, 1, 10, 0, 0, 2];
        }
        let address = |last| [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last];
        [address(1), address(2)].concat()
    }
}

/// The internet checksum's sum, word by word.
fn sum(bytes: &[u8]) -> u16 {
    bytes.chunks(2).fold(0, |sum: u16, pair| {
        let word = u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]);
        let (sum, carry) = sum.overflowing_add(word);
        sum + u16::from(carry)
    })
}

fn below(rng: &mut Rng, limit: u64) -> usize {
    usize::try_from(rng.below(limit)).unwrap_or(0)
}

fn low_half(value: usize) -> u16 {
    u16::try_from(value & 0xffff).unwrap_or(0)
}
