//! Frames of flows for guests: a head that is written here, and what is read behind it.

use std::net::{IpAddr, SocketAddr};

use ringway_net::offload::Sum;
use ringway_net::{ETHERNET_HEADER_LEN, GsoType, MacAddress, NEEDS_CSUM, NetHeader};

use crate::frame::{ICMP, ICMPV6, IPV4_HEADER_LEN, IPV6_HEADER_LEN, Stations, TCP, UDP};
use crate::frame::{TCP_HEADER_LEN, TYPE_IPV4, TYPE_IPV6, UDP_HEADER_LEN, icmp, ip_header_len};
use crate::frame::{ipv4_header, ipv6_header, low_word, packet, pseudo_sum, to_ipv6, udp};
use crate::packet::array;
use crate::table::{FlowId, FlowKey, Guest, Protocol};
use crate::tcp::{Head, Outgoing};

/// Longest head: Ethernet, IPv6, and TCP with the options of a SYN.
const EMIT_HEAD_LEN_MAX: usize = ETHERNET_HEADER_LEN + IPV6_HEADER_LEN + 28;

const ICMP_HEADER_LEN: usize = 8;

/// The data to be read from a flow's socket into a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Source {
    /// Peek behind this many bytes of the receive queue; `None`: what is read leaves the queue.
    pub peek_at: Option<u32>,
    /// Most bytes to be read.
    pub len_max: u32,
    /// Most bytes of one message; a longer one goes to the guest in parts.
    pub one_len_max: u32,
}

/// The content of the frame in its flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    Segment(Outgoing),
    Datagram,
}

/// The flow of a frame, and its ends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ends {
    pub flow: FlowId,
    pub key: FlowKey,
    pub stations: Stations,
}

/// Most bytes of data in a segment to the guest, and in one from it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mss {
    pub guest: u16,
    pub ours: u16,
}

/// A frame that is due.
#[derive(Debug, Clone)]
pub struct Emit {
    /// Its flow.
    pub flow: FlowId,
    /// The flow whose turn it is; what is read for it may be another one's.
    pub(crate) turn: FlowId,
    /// The data to be read from the flow's socket; `None`: the head is all.
    pub source: Option<Source>,
    pub(crate) content: Content,
    key: FlowKey,
    /// Data of one segment, where there may be several.
    segment_len: Option<u16>,
    /// Of datagrams: several may go in one frame.
    takes_several: bool,
    bytes: [u8; EMIT_HEAD_LEN_MAX],
    len: usize,
}

impl Emit {
    /// A segment of a connection.
    pub(crate) fn segment(ends: &Ends, outgoing: Outgoing, head: &Head, mss: Mss) -> Self {
        let mut emit = Self::new(ends, Content::Segment(outgoing));
        emit.segment_len = Some(mss.guest);
        let options = if outgoing.is_syn() { options(mss.ours, head.scale) } else { [0; 8] };
        let options_len = match (outgoing.is_syn(), head.scale) {
            (true, Some(_)) => 8,
            (true, None) => 4,
            (false, _) => 0,
        };
        emit.put(&tcp_header(&ends.key, head, options_len));
        emit.put(&options[..options_len]);
        if let Outgoing::Data { offset, len_max } = outgoing {
            emit.source = Some(Source { peek_at: Some(offset), len_max, one_len_max: len_max });
        }
        emit
    }

    /// A datagram of a flow, of at most `one_max` bytes behind its IP header; several together have
    /// at most `max`.
    pub(crate) fn datagram(ends: &Ends, one_max: u32, max: u32, takes_several: bool) -> Self {
        let (mut emit, key) = (Self::new(ends, Content::Datagram), ends.key);
        let mut ahead = 0;
        if key.protocol != Protocol::Echo {
            let ports = [key.to.port().to_be_bytes(), key.from.port().to_be_bytes()].concat();
            emit.put(&ports);
            emit.put(&[0; 4]);
            ahead = 8;
        }
        let (len_max, one_len_max) = (max - ahead, one_max - ahead);
        emit.source = Some(Source { peek_at: None, len_max, one_len_max });
        emit.takes_several = takes_several;
        emit
    }

    fn new(ends: &Ends, content: Content) -> Self {
        let Ends { flow, key, stations } = *ends;
        let bytes = [0; EMIT_HEAD_LEN_MAX];
        let (segment_len, takes_several) = (None, false);
        let mut emit = Self {
            flow,
            turn: flow,
            source: None,
            content,
            key,
            segment_len,
            takes_several,
            bytes,
            len: 0,
        };
        let ethertype = if key.from.is_ipv4() { TYPE_IPV4 } else { TYPE_IPV6 };
        emit.put(&stations.to.0);
        emit.put(&stations.from.0);
        emit.put(&ethertype.to_be_bytes());
        match (key.to.ip(), key.from.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                emit.put(&ipv4_header(from, to, emit.number(), 0))
            }
            (from, to) => {
                let [from, to] = [from, to].map(to_ipv6);
                emit.put(&ipv6_header(from, to, emit.number(), 0));
            }
        }
        emit
    }

    fn put(&mut self, bytes: &[u8]) {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    /// The protocol's number.
    fn number(&self) -> u8 {
        match self.key.protocol {
            Protocol::Tcp => TCP,
            Protocol::Udp => UDP,
            Protocol::Echo if self.key.from.is_ipv4() => ICMP,
            Protocol::Echo => ICMPV6,
        }
    }

    fn transport_at(&self) -> usize {
        ETHERNET_HEADER_LEN + ip_header_len(self.key.from.is_ipv4())
    }

    /// The frame's first bytes.
    pub fn head(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    pub(crate) fn guest(&self) -> Guest {
        self.key.guest
    }

    /// The whole frame with that message, however long, and a complete checksum.
    /// `None`: so few bytes cannot be one.
    pub(crate) fn whole(&self, message: &[u8]) -> Option<Vec<u8>> {
        let [to, from] = [0, 6].map(|at| MacAddress(array(&self.bytes, at).unwrap_or_default()));
        let (stations, key) = (Stations { from, to }, &self.key);
        if key.protocol != Protocol::Echo {
            return Some(udp(stations, key.to, key.from, message));
        }
        let mut message = message.to_vec();
        let header = message.first_chunk_mut::<ICMP_HEADER_LEN>()?;
        header[4..6].copy_from_slice(&key.from.port().to_be_bytes());
        Some(icmp(stations, key.to.ip(), key.from.ip(), message))
    }

    /// The bytes that were read are of that flow, and came from there.
    pub fn come_from(&mut self, flow: FlowId, from: SocketAddr) {
        let at = self.transport_at();
        match from.ip().to_canonical() {
            IpAddr::V4(from) => self.bytes[at - 8..at - 4].copy_from_slice(&from.octets()),
            IpAddr::V6(from) => self.bytes[at - 32..at - 16].copy_from_slice(&from.octets()),
        }
        if self.key.protocol == Protocol::Udp {
            self.bytes[at..at + 2].copy_from_slice(&from.port().to_be_bytes());
            self.key.to = SocketAddr::new(from.ip().to_canonical(), from.port());
        }
        self.flow = flow;
    }

    /// The data that was read is several datagrams of `len` bytes, of which the last may be
    /// shorter.
    pub fn are_several(&mut self, len: u16) {
        self.segment_len = Some(len).filter(|len| *len > 0);
    }

    /// Whether a message of `read` bytes cannot be put behind the head: it, or one datagram of
    /// several in it, is too long, or the guest does not take several. Echoes have the checksum in
    /// front of what it is about, and where a policy has a say in packets none is left to their
    /// receivers: they are made as a whole.
    pub fn must_be_cut(&self, read: u32) -> bool {
        self.key.protocol == Protocol::Echo
            || self.is_longer(read)
            || self.segment_len.is_some() && !self.takes_several
    }

    /// Whether a message of `read` bytes, or one datagram of several in it, is longer than a packet
    /// to the guest may be.
    pub fn is_longer(&self, read: u32) -> bool {
        let one = self.segment_len.map_or(read, u32::from);
        self.source.is_some_and(|source| one > source.one_len_max)
    }

    /// Bytes of one segment or datagram, where there may be several.
    pub fn segment_len(&self) -> Option<u16> {
        self.segment_len
    }

    /// Completes the head for `read` bytes, and makes the virtio-net header for the guest.
    ///
    /// The checksum is left to the receiver, or completed for one that does not accept that.
    /// `None`: an echo, which [`Nat::cut`](crate::Nat::cut) makes.
    pub fn finish(&mut self, read: u32) -> Option<NetHeader> {
        let (at, behind) = (self.transport_at(), read as usize);
        let transport_len = self.len - at + behind;
        self.finish_ip(transport_len);
        let (csum_offset, sum) = match self.key.protocol {
            Protocol::Tcp => (16, self.pseudo(transport_len)),
            Protocol::Udp => {
                self.bytes[at + 4..at + 6].copy_from_slice(&low_word(transport_len).to_be_bytes());
                (6, self.pseudo(transport_len))
            }
            Protocol::Echo => return None,
        };
        let field = at + csum_offset;
        self.bytes[field..field + 2].copy_from_slice(&sum.fold().to_be_bytes());
        Some(self.header(behind, low_word(csum_offset)))
    }

    fn header(&self, behind: usize, csum_offset: u16) -> NetHeader {
        let segment_len = self.segment_len.filter(|len| behind > usize::from(*len));
        let gso = match (segment_len, self.key.protocol, self.key.from.is_ipv4()) {
            (None, ..) => GsoType::None,
            (Some(_), Protocol::Tcp, true) => GsoType::TcpV4,
            (Some(_), Protocol::Tcp, false) => GsoType::TcpV6,
            (Some(_), Protocol::Udp | Protocol::Echo, _) => GsoType::UdpL4,
        };
        NetHeader {
            flags: NEEDS_CSUM,
            gso_type: gso.raw(),
            gso_size: segment_len.unwrap_or(0),
            hdr_len: low_word(self.len),
            csum_start: low_word(self.transport_at()),
            csum_offset,
            ..NetHeader::default()
        }
    }

    fn pseudo(&self, len: usize) -> Sum {
        pseudo_sum(self.key.to.ip(), self.key.from.ip(), self.number(), len)
    }

    fn finish_ip(&mut self, transport_len: usize) {
        let at = ETHERNET_HEADER_LEN;
        if self.key.from.is_ipv4() {
            let len = low_word(IPV4_HEADER_LEN + transport_len);
            self.bytes[at + 2..at + 4].copy_from_slice(&len.to_be_bytes());
            self.bytes[at + 10..at + 12].fill(0);
            let sum = !Sum::default().add_bytes(&self.bytes[at..at + IPV4_HEADER_LEN]).fold();
            self.bytes[at + 10..at + 12].copy_from_slice(&sum.to_be_bytes());
        } else {
            self.bytes[at + 4..at + 6].copy_from_slice(&low_word(transport_len).to_be_bytes());
        }
    }
}

/// Largest segment, and the shift of windows.
fn options(mss: u16, scale: Option<u8>) -> [u8; 8] {
    let [high, low] = mss.to_be_bytes();
    [2, 4, high, low, 1, 3, 3, scale.unwrap_or(0)]
}

/// A header from the other end to the guest's, without its checksum.
fn tcp_header(key: &FlowKey, head: &Head, options_len: usize) -> [u8; TCP_HEADER_LEN] {
    let mut header = [0; TCP_HEADER_LEN];
    header[..2].copy_from_slice(&key.to.port().to_be_bytes());
    header[2..4].copy_from_slice(&key.from.port().to_be_bytes());
    header[4..8].copy_from_slice(&head.seq.0.to_be_bytes());
    header[8..12].copy_from_slice(&head.ack.0.to_be_bytes());
    let words = (TCP_HEADER_LEN + options_len) / 4;
    header[12] = low_word(words << 4).to_be_bytes()[1];
    header[13] = head.flags;
    header[14..16].copy_from_slice(&head.window.to_be_bytes());
    header
}

/// A segment without a flow's state behind it.
pub(crate) struct Lone<'a> {
    pub head: Head,
    pub data: &'a [u8],
}

/// A whole frame with such a segment.
pub(crate) fn lone_segment(
    stations: Stations,
    from: SocketAddr,
    to: SocketAddr,
    Lone { head, data }: Lone<'_>,
) -> Vec<u8> {
    let guest = Guest(0);
    let key = FlowKey { guest, protocol: Protocol::Tcp, from: to, to: from };
    let mut segment = [&tcp_header(&key, &head, 0)[..], data].concat();
    let sum = pseudo_sum(from.ip(), to.ip(), TCP, segment.len());
    let sum = !sum.add_bytes(&segment).fold();
    segment[16..18].copy_from_slice(&sum.to_be_bytes());
    packet(stations, from.ip(), to.ip(), TCP, &segment)
}

const _: () = assert!(UDP_HEADER_LEN == ICMP_HEADER_LEN);
