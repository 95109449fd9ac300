//! Messages of a guest, each in the headers that its protocol needs.

use ringway_net::offload::Sum;

use super::{GUEST, MAC, Router, TCP};

/// Most messages of one input, and most bytes of one message.
const MESSAGES_MAX: usize = 24;
const MESSAGE_LEN_MAX: usize = 1600;

const ICMP: u8 = 1;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;
/// The header of a part in IPv6.
const FRAGMENT: u8 = 44;

/// Messages of an input: a length in two bytes, then so many.
fn messages(mut data: &[u8]) -> impl Iterator<Item = &[u8]> {
    let next = move || {
        let (len, rest) = data.split_first_chunk::<2>()?;
        let len = usize::from(u16::from_le_bytes(*len)) % MESSAGE_LEN_MAX;
        let message;
        (message, data) = rest.split_at(len.min(rest.len()));
        Some(message)
    };
    std::iter::from_fn(next).take(MESSAGES_MAX)
}

/// Sends all messages of an input, each in the frame that `wrap` makes of it; sockets say
/// something in between.
fn play(data: &[u8], wrap: impl Fn(&Router, &[u8]) -> Vec<u8>) {
    let mut router = Router::new();
    for message in messages(data) {
        let frame = wrap(&router, message);
        router.send(&frame);
        if let [what, which, pause, ..] = *message {
            router.tell(what, which);
            router.wait(if pause > 240 { u64::from(pause) } else { 0 });
        }
    }
    router.pass_six_hours();
    assert_eq!((router.nat.flows_of(GUEST), router.sockets.len()), (0, 0), "all ends in six hours");
}

/// Destinations: the gateway, the resolver, a remote host, all, and any.
fn ends4(router: &Router, which: u8) -> [[u8; 4]; 2] {
    let plan = router.nat.plan();
    let to = match which % 8 {
        0 => plan.gateway4().octets(),
        1 => plan.dns4().octets(),
        2 => plan.prefix4.broadcast().octets(),
        3 => [127, 0, 0, 1],
        4 => [10, 0, 2, 16],
        _ => [198, 51, 100, which],
    };
    [[10, 0, 2, 15], to]
}

fn ends6(router: &Router, which: u8) -> [[u8; 16]; 2] {
    let plan = router.nat.plan();
    let network = plan.prefix6.map_or(0, |prefix| prefix.network().to_bits());
    let all_routers = 0xff02_0000_0000_0000_0000_0000_0000_0002_u128;
    let remote = 0x2001_0db8_0000_0000_0000_0000_0000_0007_u128;
    let to = match which % 8 {
        0 => plan.gateway6().map_or(0, |address| address.to_bits()),
        1 => plan.dns6().map_or(0, |address| address.to_bits()),
        2 => all_routers,
        3 => 1,
        4 => network | 0x100,
        _ => remote + u128::from(which),
    };
    let from = if which & 0x40 == 0 { network | 0x99 } else { 0xfe80_u128 << 112 | 0x99 };
    [from.to_be_bytes(), to.to_be_bytes()]
}

fn word(len: usize) -> [u8; 2] {
    u16::try_from(len).unwrap_or(u16::MAX).to_be_bytes()
}

fn ethernet(router: &Router, ethertype: [u8; 2], payload: &[u8]) -> Vec<u8> {
    [&router.nat.plan().mac().0[..], &MAC, &ethertype, payload].concat()
}

/// A right IPv4 header around a payload.
fn ipv4(router: &Router, which: u8, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let len = word(20 + payload.len());
    let mut header = vec![0x45, 0, len[0], len[1], 0, 0, 0, 0, 64, protocol, 0, 0];
    header.extend(ends4(router, which).as_flattened());
    let sum = (!Sum::default().add_bytes(&header).fold()).to_be_bytes();
    header[10..12].copy_from_slice(&sum);
    ethernet(router, [8, 0], &[&header[..], payload].concat())
}

/// A right IPv6 header around a payload, whose checksum is at `sum_at`.
fn ipv6(router: &Router, which: u8, next: u8, sum_at: usize, payload: &[u8]) -> Vec<u8> {
    let (ends, len) = (ends6(router, which), word(payload.len()));
    let mut payload = payload.to_vec();
    let pseudo = Sum::default().add_bytes(ends.as_flattened()).add_bytes(&len);
    if let Some(field) = payload.get_mut(sum_at..sum_at + 2) {
        field.fill(0);
        let sum = (!pseudo.add_bytes(&[0, next]).add_bytes(&payload).fold()).to_be_bytes();
        payload[sum_at..sum_at + 2].copy_from_slice(&sum);
    }
    let hops = if next == ICMPV6 { 255 } else { 64 };
    let header = [0x60, 0, 0, 0, len[0], len[1], next, hops];
    ethernet(router, [0x86, 0xdd], &[&header[..], ends.as_flattened(), &payload].concat())
}

fn udp(from: u16, to: u16, payload: &[u8]) -> Vec<u8> {
    let len = word(8 + payload.len());
    [&from.to_be_bytes()[..], &to.to_be_bytes(), &len, &[0, 0], payload].concat()
}

/// The first byte chooses among destinations.
fn choice(message: &[u8]) -> (u8, &[u8]) {
    message.split_first().map_or((0, message), |(first, rest)| (*first, rest))
}

/// Any frames.
pub(crate) fn frames(data: &[u8]) {
    play(data, |_, message| message.to_vec());
}

/// Right Ethernet and IP headers, and anything in them.
pub(crate) fn packets(data: &[u8]) {
    play(data, |router, message| {
        let (which, rest) = choice(message);
        let (protocol, payload) = choice(rest);
        if which & 0x80 == 0 {
            ipv4(router, which, protocol, payload)
        } else {
            ipv6(router, which, protocol, usize::MAX - 2, payload)
        }
    });
}

/// ARP.
pub(crate) fn arp(data: &[u8]) {
    play(data, |router, message| {
        let (which, rest) = choice(message);
        let [from, to] = ends4(router, which);
        let operation = [0, which >> 6];
        let good = [&[0, 1, 8, 0, 6, 4], &operation[..], &MAC, &from, &[0; 6], &to].concat();
        let payload = if which & 1 == 0 { good } else { [&good[..8], rest].concat() };
        ethernet(router, [8, 6], &payload)
    });
}

/// Neighbour and router discovery.
pub(crate) fn neighbours(data: &[u8]) {
    play(data, |router, message| {
        let (which, rest) = choice(message);
        let kind = [133, 134, 135, 136][usize::from(which >> 4 & 3)];
        let message = [&[kind, 0, 0, 0, 0, 0, 0, 0], rest].concat();
        ipv6(router, which, ICMPV6, 2, &message)
    });
}

/// DHCP: a good head, and any options.
pub(crate) fn dhcp(data: &[u8]) {
    play(data, |router, message| {
        let (which, options) = choice(message);
        let mut head = vec![1, 1, 6, 0, 0, 0, 0, which, 0, 0, which, 0];
        head.resize(28, 0);
        head.extend(MAC);
        head.resize(236, 0);
        head.extend([0x63, 0x82, 0x53, 0x63, 53, 1, 1 + which % 8]);
        let message = [&head[..], options].concat();
        ipv4(router, 2, UDP, &udp(68, 67, &message))
    });
}

/// DHCP of IPv6: a client and an association, perhaps with its server, and any options.
pub(crate) fn dhcp6(data: &[u8]) {
    play(data, |router, message| {
        let (which, options) = choice(message);
        let server = [&[0, 2, 0, 10, 0, 3, 0, 1][..], &router.nat.plan().mac().0].concat();
        let server = if which & 0x10 == 0 { &[][..] } else { &server };
        let head = [which & 0xf, 0, 0, which, 0, 1, 0, 2, 0, 3];
        let association = [0, 3, 0, 12, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0];
        let message = [&head[..], server, &association, options].concat();
        let mut frame = ipv6(router, 0x40, UDP, 6, &udp(546, 547, &message));
        frame[38..54].copy_from_slice(&[0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 2]);
        frame
    });
}

/// Questions for names, some of them for guests'.
pub(crate) fn names(data: &[u8]) {
    play(data, |router, message| {
        let (which, rest) = choice(message);
        let name: &[u8] = match which & 3 {
            0 => b"\x03vm1\x08internal\0",
            1 => b"\x0215\x012\x010\x0210\x07in-addr\x04arpa\0",
            _ => b"",
        };
        let head = [which, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        let question = udp(4000, 53, &[&head[..], name, rest].concat());
        if which & 0x80 == 0 {
            ipv4(router, 1, UDP, &question)
        } else {
            ipv6(router, 1, UDP, 6, &question)
        }
    });
}

/// Echo requests, and errors with what they quote.
pub(crate) fn icmp(data: &[u8]) {
    play(data, |router, message| {
        let (which, rest) = choice(message);
        let is_echo = which & 0x10 != 0;
        if which & 0x80 == 0 {
            let kind: &[u8] = if is_echo { &[8, 0, 0, 0] } else { &[3, 3, 0, 0] };
            ipv4(router, which, ICMP, &[kind, rest].concat())
        } else {
            let kind: &[u8] = if is_echo { &[128, 0, 0, 0] } else { &[1, 4, 0, 0] };
            ipv6(router, which, ICMPV6, 2, &[kind, rest].concat())
        }
    });
}

/// Datagrams to many places.
pub(crate) fn datagrams(data: &[u8]) {
    play(data, |router, message| {
        let (which, rest) = choice(message);
        let (port, rest) = choice(rest);
        let datagram = udp(u16::from(port) << 4, 1 + u16::from(which), rest);
        if which & 0x80 == 0 {
            ipv4(router, which, UDP, &datagram)
        } else {
            ipv6(router, which, UDP, 6, &datagram)
        }
    });
}

/// Segments near what is expected, of few connections.
pub(crate) fn segments(data: &[u8]) {
    play(data, |router, message| {
        let (how, rest) = choice(message);
        let (off, rest) = choice(rest);
        let (flags, rest) = choice(rest);
        let (next, expected) = router.told;
        let near = i32::from(off.cast_signed()) * if how & 4 == 0 { 0 } else { 100 };
        let flags = [0x10, 2, 0x11, 0x18, flags, 0x10, 4, 0x10][usize::from(how & 7)];
        let mut segment = [0x9c, how >> 6, 0, 80].to_vec();
        segment.extend(expected.wrapping_add_signed(near).to_be_bytes());
        segment.extend(next.wrapping_add_signed(near / 2).to_be_bytes());
        let options = if flags & 2 != 0 { rest.len().min(40) & !3 } else { 0 };
        let words = u8::try_from(5 + options / 4).unwrap_or(5);
        segment.extend([words << 4, flags, off, 0, 0, 0, 0, 0]);
        segment.extend(rest);
        ipv4(router, 7, TCP, &segment)
    });
}

/// Parts of few datagrams, near each other.
pub(crate) fn fragments(data: &[u8]) {
    play(data, |router, message| {
        let (which, rest) = choice(message);
        let (at, rest) = choice(rest);
        let more = u16::from(which >> 5 & 1);
        let protocol = if which & 0x10 == 0 { UDP } else { ICMP };
        if which & 0x80 != 0 {
            let offset = (u16::from(at) << 3 | more).to_be_bytes();
            let next = if protocol == ICMP { ICMPV6 } else { UDP };
            let header = [next, 0, offset[0], offset[1], 0, 0, 0, which & 3];
            return ipv6(router, 7, FRAGMENT, usize::MAX - 2, &[&header, rest].concat());
        }
        let mut frame = ipv4(router, 7, protocol, rest);
        frame[18..20].copy_from_slice(&[0, which & 3]);
        frame[20..22].copy_from_slice(&(u16::from(at) | more << 13).to_be_bytes());
        frame
    });
}
