//! Cutting an unsegmented packet: one segment at a time, in place.
//!
//! The sender's headers are copied out first. The headers of segment *k* are then written right in
//! front of its payload, which overwrites only what was cut before (or the sender's headers), so
//! that every segment is one contiguous slice without a copy of its payload.
//!
//! The checksum field of the unsegmented packet holds the sum of the pseudo header with the length
//! of the whole; each segment's is that sum with its own length instead. So the sender's word for
//! addresses counts, as virtio 1.2 §5.1.6.2 has it and Linux does; a sender that lies there gets
//! segments with a wrong checksum.

use super::Sum;
use super::layout::{HEADERS_LEN_MAX, IpVersion, Layout, Transport};
use crate::{NEEDS_CSUM, NetHeader};

/// Flags in byte 13 of a TCP header (RFC 9293 §3.1).
const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
const CWR: u8 = 0x80;

/// One packet that the receiver accepts.
#[derive(Debug, Clone, Copy)]
pub struct Segment<'a> {
    /// Its virtio-net header: at most a partial checksum is left in it.
    pub header: NetHeader,
    /// Its bytes from the Ethernet header on.
    pub bytes: &'a [u8],
}

/// The segments that a packet is completed to, in order: one or more.
#[derive(Debug)]
pub struct Segments<'a> {
    bytes: &'a mut [u8],
    /// The header of each segment.
    header: NetHeader,
    csum_start: usize,
    csum_offset: usize,
    /// Whether checksums are completed here.
    completes_csum: bool,
    /// As in UDP; like Linux, for whatever is not known to be TCP.
    zero_is_no_csum: bool,
    template: Option<Template>,
    next: usize,
    count: usize,
}

/// The part that all segments have in common.
#[derive(Debug)]
struct Template {
    layout: Layout,
    headers: [u8; HEADERS_LEN_MAX],
    /// Payload bytes of each segment but the last.
    gso_size: usize,
    /// Bytes from the IP header to the packet's end.
    network_len: usize,
    /// Sum of the pseudo header without the length.
    pseudo_sum: Sum,
}

impl<'a> Segments<'a> {
    /// One packet: only its checksum is missing, if that. The checksum is inside `bytes`.
    pub(super) fn whole(header: &NetHeader, bytes: &'a mut [u8], accepts_csum: bool) -> Self {
        let completes_csum = header.needs_csum() && !accepts_csum;
        Self {
            bytes,
            header: if completes_csum { NetHeader::default() } else { csum_only(header) },
            csum_start: usize::from(header.csum_start),
            csum_offset: usize::from(header.csum_offset),
            completes_csum,
            zero_is_no_csum: true,
            template: None,
            next: 0,
            count: 1,
        }
    }

    /// Several segments of a packet with that layout.
    pub(super) fn of(
        header: &NetHeader,
        layout: Layout,
        bytes: &'a mut [u8],
        accepts_csum: bool,
    ) -> Self {
        let gso_size = usize::from(header.gso_size);
        let count = (bytes.len() - layout.payload_at).div_ceil(gso_size);
        let mut template = Template {
            layout,
            headers: [0; HEADERS_LEN_MAX],
            gso_size,
            network_len: bytes.len() - layout.network_at,
            pseudo_sum: Sum::default(),
        };
        template.headers[..layout.payload_at].copy_from_slice(&bytes[..layout.payload_at]);
        template.pseudo_sum = template.pseudo_sum();
        Self {
            template: Some(template),
            count,
            zero_is_no_csum: layout.transport == Transport::Udp,
            ..Self::whole(header, bytes, accepts_csum)
        }
    }

    /// How many there are in all: 1 to [`SEGMENTS_MAX`](super::SEGMENTS_MAX).
    pub fn count(&self) -> usize {
        self.count
    }

    /// How many were cut or skipped.
    pub fn position(&self) -> usize {
        self.next
    }

    /// Leaves out those before `position`: the receiver has them.
    pub fn skip_to(&mut self, position: usize) {
        self.next = self.next.max(position);
    }

    /// Makes the next one; `None`: that was all.
    pub fn cut(&mut self) -> Option<Segment<'_>> {
        if self.next >= self.count {
            return None;
        }
        let (from, to) = match &self.template {
            Some(template) => template.write(self.bytes, self.next, self.next + 1 == self.count),
            None => (0, self.bytes.len()),
        };
        self.next += 1;
        let segment = &mut self.bytes[from..to];
        if self.completes_csum {
            let sum = Sum::default().add_bytes(&segment[self.csum_start..]);
            let csum = match (!sum.fold(), self.zero_is_no_csum) {
                (0, true) => 0xffff,
                (csum, _) => csum,
            };
            put_word(segment, self.csum_start + self.csum_offset, csum);
        }
        Some(Segment { header: self.header, bytes: segment })
    }
}

impl Template {
    /// Writes the headers of segment `number` in front of its payload; returns where it lies.
    fn write(&self, bytes: &mut [u8], number: usize, is_last: bool) -> (usize, usize) {
        let headers_len = self.layout.payload_at;
        let from = number * self.gso_size;
        let payload_at = from + headers_len;
        let to = bytes.len().min(payload_at + self.gso_size);
        let headers = &mut bytes[from..payload_at];
        headers.copy_from_slice(&self.headers[..headers_len]);
        self.write_network(headers, number, to - from);
        match self.layout.transport {
            Transport::Tcp => self.write_tcp(headers, number, is_last),
            Transport::Udp => self.write_udp(headers, to - from),
        }
        self.write_pseudo_sum(headers, to - from);
        (from, to)
    }

    /// Lengths, the identification (counted up, as RFC 6864 §4.1 wants for what may be fragmented)
    /// and the header checksum.
    fn write_network(&self, headers: &mut [u8], number: usize, len: usize) {
        let at = self.layout.network_at;
        match self.layout.version {
            IpVersion::Ipv4 => {
                let id = word(headers, at + 4).wrapping_add(low_half(number));
                put_word(headers, at + 2, low_half(len - at));
                put_word(headers, at + 4, id);
                put_word(headers, at + 10, 0);
                let end = at + usize::from(headers[at] & 0x0f) * 4;
                let sum = Sum::default().add_bytes(&headers[at..end]);
                put_word(headers, at + 10, !sum.fold());
            }
            IpVersion::Ipv6 => put_word(headers, at + 4, low_half(len - at - 40)),
        }
    }

    /// FIN and PSH belong to the end of the data, CWR to the packet that follows the echo
    /// (RFC 3168 §6.1.2); everything else to every segment.
    fn write_tcp(&self, headers: &mut [u8], number: usize, is_last: bool) {
        let at = self.layout.transport_at;
        let sequence = &mut headers[at + 4..at + 8];
        let mut number_at = [0; 4];
        number_at.copy_from_slice(sequence);
        let offset = u32::try_from(number * self.gso_size).unwrap_or(0);
        let value = u32::from_be_bytes(number_at).wrapping_add(offset);
        sequence.copy_from_slice(&value.to_be_bytes());
        if !is_last {
            headers[at + 13] &= !(FIN | PSH);
        }
        if number > 0 {
            headers[at + 13] &= !CWR;
        }
    }

    fn write_udp(&self, headers: &mut [u8], len: usize) {
        let at = self.layout.transport_at;
        put_word(headers, at + 4, low_half(len - at));
    }

    /// Into the checksum field: the sum of the pseudo header with this segment's length.
    fn write_pseudo_sum(&self, headers: &mut [u8], len: usize) {
        let transport_len = low_half(len - self.layout.transport_at);
        let sum = self.pseudo_sum.add_word(transport_len).fold();
        put_word(headers, self.csum_at(), sum);
    }

    /// The sender's sum less the length that it put into it: that of the packet for TCP, that of
    /// its own header for UDP.
    fn pseudo_sum(&self) -> Sum {
        let at = self.layout.transport_at;
        let len = match self.layout.transport {
            Transport::Tcp => low_half(self.network_len - (at - self.layout.network_at)),
            Transport::Udp => word(&self.headers, at + 4),
        };
        Sum::default().add_word(word(&self.headers, self.csum_at())).add_word(!len)
    }

    fn csum_at(&self) -> usize {
        self.layout.transport_at + self.layout.transport.csum_offset()
    }
}

/// The header that is left once the packet is segmented.
fn csum_only(header: &NetHeader) -> NetHeader {
    if !header.needs_csum() {
        return NetHeader::default();
    }
    NetHeader {
        flags: NEEDS_CSUM,
        csum_start: header.csum_start,
        csum_offset: header.csum_offset,
        ..NetHeader::default()
    }
}

fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn put_word(bytes: &mut [u8], at: usize, word: u16) {
    bytes[at..at + 2].copy_from_slice(&word.to_be_bytes());
}

/// Lengths are far below 64 KiB, except where a sender lies; then the field wraps, as in Linux.
#[allow(clippy::cast_possible_truncation)]
fn low_half(value: usize) -> u16 {
    value as u16
}
