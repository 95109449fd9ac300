//! Datagrams in parts: those of guests are put together, and long ones for guests are cut (RFC 791
//! §3.2, RFC 8200 §4.5).
//!
//! Limits: [`DATAGRAMS_MAX`] datagrams of one guest at a time, each in [`RANGES_MAX`] pieces that
//! do not touch, for 15 s. A datagram of which two parts overlap is dropped (RFC 5722).

use std::net::IpAddr;

use ringway_net::offload::Sum;
use ringway_net::{ETHERNET_HEADER_LEN, Nanos};

use crate::frame::{FRAGMENT, FRAGMENT_HEADER_LEN, IPV4_HEADER_LEN, IPV6_HEADER_LEN};
use crate::frame::{TYPE_IPV4, ipv4_header, ipv6_header, low_word, to_ipv6};
use crate::packet::{Fragment, Ip};

/// Datagrams of one guest that wait for more of their parts; the oldest makes room.
const DATAGRAMS_MAX: usize = 16;

/// Pieces of one datagram that do not touch each other.
const RANGES_MAX: usize = 64;

/// Most bytes of a datagram: with headers in front it is an IP packet of 65,535 bytes.
const LEN_MAX_4: usize = 65_535 - IPV4_HEADER_LEN;
const LEN_MAX_6: usize = 65_535 - IPV6_HEADER_LEN - FRAGMENT_HEADER_LEN;

/// How long the parts of a datagram are waited for.
const PATIENCE_NS: u64 = 15_000_000_000;

/// The outcome of a part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Assembly {
    /// Others are missing.
    Waits,
    /// It was the last one: the datagram, from its IP header on.
    Done(Vec<u8>),
    /// It does not fit, and what came before it is dropped as well.
    Refused,
}

/// The name that tells datagrams apart.
type Name = (IpAddr, IpAddr, u32, u8);

#[derive(Debug)]
struct Datagram {
    name: Name,
    until: Nanos,
    hops: u8,
    bytes: Vec<u8>,
    /// The ranges that have come, from where to where, in order.
    ranges: Vec<(usize, usize)>,
    /// Its length, once its last fragment has come.
    len: Option<usize>,
}

/// Parts of datagrams of one guest.
#[derive(Debug, Default)]
pub(crate) struct Assembler {
    /// The oldest first.
    datagrams: Vec<Datagram>,
}

impl Assembler {
    /// A fragment came, which was copied whole.
    pub fn put(&mut self, ip: &Ip<'_>, fragment: Fragment, now: Nanos) -> Assembly {
        let name = (ip.from, ip.to, fragment.id, fragment.protocol);
        self.forget(now);
        let place = self.datagrams.iter().position(|it| it.name == name);
        let place = place.unwrap_or_else(|| self.begin(name, ip.hops, now));
        let datagram = &mut self.datagrams[place];
        if datagram.add(ip, fragment).is_none() {
            self.datagrams.remove(place);
            return Assembly::Refused;
        }
        if datagram.len.is_none_or(|len| datagram.ranges[..] != [(0, len)]) {
            return Assembly::Waits;
        }
        let datagram = self.datagrams.remove(place);
        Assembly::Done(datagram.packet())
    }

    fn begin(&mut self, name: Name, hops: u8, now: Nanos) -> usize {
        if self.datagrams.len() == DATAGRAMS_MAX {
            self.datagrams.remove(0);
        }
        let until = now.plus(PATIENCE_NS);
        let (bytes, ranges, len) = (Vec::new(), Vec::new(), None);
        self.datagrams.push(Datagram { name, until, hops, bytes, ranges, len });
        self.datagrams.len() - 1
    }

    /// Drops what has waited for too long.
    pub fn forget(&mut self, now: Nanos) {
        self.datagrams.retain(|datagram| datagram.until > now);
    }

    /// When [`Self::forget`] has something to do.
    pub fn deadline(&self) -> Option<Nanos> {
        self.datagrams.first().map(|datagram| datagram.until)
    }
}

impl Datagram {
    /// `None`: it does not fit.
    fn add(&mut self, ip: &Ip<'_>, fragment: Fragment) -> Option<()> {
        let (start, end) = (fragment.offset, fragment.offset + ip.payload_len);
        let len_max = if ip.from.is_ipv4() { LEN_MAX_4 } else { LEN_MAX_6 };
        let is_whole_units = !fragment.has_more || ip.payload_len.is_multiple_of(8);
        if !is_whole_units || ip.payload_len == 0 || end > len_max {
            return None;
        }
        let place = self.ranges.iter().position(|(other, _)| *other > start);
        let place = place.unwrap_or(self.ranges.len());
        let is_behind = place == 0 || self.ranges[place - 1].1 <= start;
        let is_in_front = self.ranges.get(place).is_none_or(|(next, _)| end <= *next);
        if !is_behind || !is_in_front || self.ranges.len() == RANGES_MAX {
            return None;
        }
        if !fragment.has_more && self.len.replace(end).is_some() {
            return None;
        }
        self.ranges.insert(place, (start, end));
        self.ranges.dedup_by(|next, before| {
            let touches = before.1 == next.0;
            before.1 = if touches { next.1 } else { before.1 };
            touches
        });
        if self.len.is_some_and(|len| self.ranges.last().is_some_and(|(_, end)| *end > len)) {
            return None;
        }
        if start == 0 {
            self.hops = ip.hops;
        }
        self.bytes.resize(self.bytes.len().max(end), 0);
        self.bytes[start..end].copy_from_slice(&ip.payload[..ip.payload_len]);
        Some(())
    }

    /// The whole, as one packet that may be cut again on its way.
    fn packet(self) -> Vec<u8> {
        let (from, to, id, protocol) = self.name;
        let mut packet = match (from, to) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let header = ipv4_header(from, to, protocol, self.bytes.len());
                let mut packet = header.to_vec();
                packet[6] = 0;
                packet[8] = self.hops;
                packet
            }
            (from, to) => {
                let (from, to) = (to_ipv6(from), to_ipv6(to));
                let len = FRAGMENT_HEADER_LEN + self.bytes.len();
                let mut packet = ipv6_header(from, to, FRAGMENT, len).to_vec();
                packet[7] = self.hops;
                packet.extend([protocol, 0, 0, 0]);
                packet.extend(id.to_be_bytes());
                packet
            }
        };
        packet.extend(self.bytes);
        packet
    }
}

/// A frame as several whose packets have at most `mtu` bytes; `id` tells them from others. Its IP
/// header has neither options nor further headers behind it.
pub(crate) fn cut(frame: &[u8], mtu: u16, id: u32) -> Vec<Vec<u8>> {
    let is_ipv4 = frame[12..14] == TYPE_IPV4.to_be_bytes();
    let (ethernet, packet) = frame.split_at(ETHERNET_HEADER_LEN);
    let (ip_len, more_len) = match is_ipv4 {
        true => (IPV4_HEADER_LEN, 0),
        false => (IPV6_HEADER_LEN, FRAGMENT_HEADER_LEN),
    };
    let (header, data) = packet.split_at(ip_len);
    let part_len = (usize::from(mtu) - ip_len - more_len) / 8 * 8;
    let count = data.len().div_ceil(part_len);
    let parts = data.chunks(part_len).enumerate();
    let parts = parts.map(|(at, part)| {
        let (offset, has_more) = (at * part_len, at + 1 < count);
        let header = match is_ipv4 {
            true => header4(header, offset, has_more, id, part.len()),
            false => header6(header, offset, has_more, id, part.len()),
        };
        [ethernet, &header, part].concat()
    });
    parts.collect()
}

fn header4(whole: &[u8], offset: usize, has_more: bool, id: u32, len: usize) -> Vec<u8> {
    const MORE: u16 = 0x2000;
    let mut header = whole.to_vec();
    let offset = low_word(offset / 8) | if has_more { MORE } else { 0 };
    header[2..4].copy_from_slice(&low_word(IPV4_HEADER_LEN + len).to_be_bytes());
    header[4..6].copy_from_slice(&id.to_be_bytes()[2..]);
    header[6..8].copy_from_slice(&offset.to_be_bytes());
    header[10..12].fill(0);
    let sum = !Sum::default().add_bytes(&header).fold();
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    header
}

fn header6(whole: &[u8], offset: usize, has_more: bool, id: u32, len: usize) -> Vec<u8> {
    let mut header = whole.to_vec();
    let protocol = header[6];
    header[4..6].copy_from_slice(&low_word(FRAGMENT_HEADER_LEN + len).to_be_bytes());
    header[6] = FRAGMENT;
    header.extend([protocol, 0]);
    header.extend((low_word(offset) | u16::from(has_more)).to_be_bytes());
    header.extend(id.to_be_bytes());
    header
}

#[cfg(test)]
mod tests {
    use ringway_net::MacAddress;

    use super::*;
    use crate::frame::{Stations, UDP, udp};
    use crate::packet::{Carried, Frame};

    const NOW: Nanos = Nanos(1);

    /// A frame with so many bytes of data, of either family.
    fn datagram(is_ipv4: bool, len: usize) -> Vec<u8> {
        let stations = Stations { from: MacAddress::local(1), to: MacAddress::local(2) };
        let data: Vec<u8> = (0..=250).cycle().take(len).collect();
        let [from, to] = match is_ipv4 {
            true => ["10.0.2.15:4000", "198.51.100.7:7"],
            false => ["[fd00::15]:4000", "[2001:db8::7]:7"],
        };
        udp(stations, from.parse().unwrap(), to.parse().unwrap(), &data)
    }

    fn put(all: &mut Assembler, frame: &[u8], now: Nanos) -> Assembly {
        let frame = Frame::parse(frame, frame.len()).expect("a frame");
        let Carried::Ip(ip) = frame.carried else { panic!("IP") };
        all.put(&ip, ip.fragment.expect("a fragment"), now)
    }

    #[test]
    fn what_is_cut_is_put_together_in_any_order() {
        for (is_ipv4, len) in [(true, 4000), (true, 65_507), (false, 4000), (false, 60_000)] {
            let whole = datagram(is_ipv4, len);
            let mut parts = cut(&whole, 1500, 77);
            assert!(parts.iter().all(|part| part.len() <= 1514), "{len}");
            for turn in [0, 1, parts.len() / 2] {
                parts.rotate_left(turn);
                let mut all = Assembler::default();
                let (last, first) = parts.split_last().unwrap();
                for part in first {
                    assert_eq!(put(&mut all, part, NOW), Assembly::Waits);
                }
                let Assembly::Done(packet) = put(&mut all, last, NOW) else { panic!("not whole") };
                let frame = [&whole[..14], &packet].concat();
                let Carried::Ip(ip) = Frame::parse(&frame, frame.len()).unwrap().carried else {
                    panic!("IP")
                };
                assert_eq!((ip.protocol, ip.fragment, ip.is_whole_only), (UDP, None, false));
                let before = if is_ipv4 { 34 } else { 54 };
                assert!(ip.payload == &whole[before..], "{len}: other bytes");
                assert!(all.datagrams.is_empty());
            }
        }
    }

    #[test]
    fn parts_that_overlap_or_do_not_fit_drop_the_datagram() {
        let parts = cut(&datagram(true, 4000), 1500, 7);
        let with = |at: usize, word: [u8; 2]| {
            let mut part = parts[1].clone();
            part[at..at + 2].copy_from_slice(&word);
            part
        };
        for bad in [
            parts[0].clone(),
            with(20, [0x20, 0xb8]),
            with(20, [0x20, 0]),
            with(16, [0x05, 0xdb]),
            with(20, [0x3f, 0xff]),
        ] {
            let mut all = Assembler::default();
            assert_eq!(put(&mut all, &parts[0], NOW), Assembly::Waits);
            assert_eq!(put(&mut all, &bad, NOW), Assembly::Refused, "{:02x?}", &bad[14..34]);
            assert!(all.datagrams.is_empty());
            assert_eq!(put(&mut all, &parts[2], NOW), Assembly::Waits, "it is gone for good");
        }
        // Behind the end, and another end.
        let mut all = Assembler::default();
        put(&mut all, &parts[2], NOW);
        assert_eq!(put(&mut all, &with(20, [0x22, 0x20]), NOW), Assembly::Refused);
        put(&mut all, &parts[2], NOW);
        assert_eq!(put(&mut all, &with(20, [0, 0xb9]), NOW), Assembly::Refused);
    }

    #[test]
    fn datagrams_that_never_end_are_bounded_and_forgotten() {
        let mut all = Assembler::default();
        for id in 0..100 {
            let part = &cut(&datagram(true, 4000), 1500, id)[0];
            assert_eq!(put(&mut all, part, NOW), Assembly::Waits);
        }
        assert_eq!(all.datagrams.len(), DATAGRAMS_MAX);
        assert_eq!(all.deadline(), Some(NOW.plus(PATIENCE_NS)));
        all.forget(NOW.plus(PATIENCE_NS));
        assert_eq!((all.datagrams.len(), all.deadline()), (0, None));
        // Every second unit of eight bytes: what does not touch is bounded too.
        let whole = datagram(true, 4000);
        let tiny = cut(&whole, 28, 7);
        let found: Vec<Assembly> =
            tiny.iter().step_by(2).map(|part| put(&mut all, part, NOW)).collect();
        assert!(found.contains(&Assembly::Refused));
    }

    proptest::proptest! {
        #[test]
        fn anything_is_survived(
            parts in proptest::collection::vec((0..9000usize, 0..3000usize, 0..3u16), 0..40),
        ) {
            let mut all = Assembler::default();
            for (at, len, id) in parts {
                let mut frame = datagram(true, len);
                frame[18..20].copy_from_slice(&id.to_be_bytes());
                let word = low_word(at) | 0x2000;
                frame[20..22].copy_from_slice(&word.to_be_bytes());
                if let Assembly::Done(packet) = put(&mut all, &frame, NOW) {
                    proptest::prop_assert!(packet.len() <= 65_535);
                }
            }
            proptest::prop_assert!(all.datagrams.len() <= DATAGRAMS_MAX);
        }
    }
}
