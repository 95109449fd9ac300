//! A guest's packets, byte by byte; without checksums, which the router does not read.

use super::{MAC, guest6, plan};

pub const REMOTE: [u8; 4] = [198, 51, 100, 7];
pub const REMOTE_6: [u16; 8] = [0x2001, 0xdb8, 0, 0, 0, 0, 0, 7];

/// An IPv4 packet, with its Ethernet header.
pub fn packet(to: [u8; 4], protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = [&plan().mac().0[..], &MAC, &[8, 0]].concat();
    let len = u16::try_from(20 + payload.len()).unwrap().to_be_bytes();
    frame.extend([0x45, 0, len[0], len[1], 0, 0, 0, 0, 64, protocol, 0, 0, 10, 0, 2, 15]);
    frame.extend(to);
    frame.extend(payload);
    frame.resize(frame.len().max(60), 0);
    frame
}

/// The same in IPv6.
pub fn packet6(to: [u16; 8], protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = [&plan().mac().0[..], &MAC, &[0x86, 0xdd, 0x60, 0, 0, 0]].concat();
    frame.extend(u16::try_from(payload.len()).unwrap().to_be_bytes());
    frame.extend([protocol, 64]);
    frame.extend(guest6().octets());
    frame.extend(to.map(u16::to_be_bytes).as_flattened());
    frame.extend(payload);
    frame
}

/// A datagram in parts of so many bytes, of either family.
pub fn parts(is_ipv4: bool, protocol: u8, datagram: &[u8], len: usize) -> Vec<Vec<u8>> {
    let count = datagram.len().div_ceil(len);
    let parts = datagram.chunks(len).enumerate();
    let parts = parts.map(|(at, part)| {
        let (offset, more) = (u16::try_from(at * len).unwrap(), u16::from(at + 1 < count));
        if is_ipv4 {
            let mut frame = packet(REMOTE, protocol, part);
            frame[18..20].copy_from_slice(&[7, 7]);
            frame[20..22].copy_from_slice(&((offset / 8) | (more << 13)).to_be_bytes());
            return frame;
        }
        let header = [&[protocol, 0][..], &(offset | more).to_be_bytes(), &[0, 0, 7, 7]].concat();
        packet6(REMOTE_6, 44, &[&header, part].concat())
    });
    parts.collect()
}

pub fn udp(from: u16, to: u16, data: &[u8]) -> Vec<u8> {
    let len = u16::try_from(8 + data.len()).unwrap();
    let words = [from, to, len, 0].map(u16::to_be_bytes);
    [words.as_flattened(), data].concat()
}

/// A segment from port 40000 to port 80 of [`REMOTE`].
pub fn segment(seq: u32, ack: u32, flags: u8, options: &[u8], data: &[u8]) -> Vec<u8> {
    packet(REMOTE, 6, &tcp((40_000, 80), (seq, ack), flags, &[options, data]))
}

/// The same between other ports; `parts`: options and data.
pub fn tcp(ports: (u16, u16), (seq, ack): (u32, u32), flags: u8, parts: &[&[u8]; 2]) -> Vec<u8> {
    let mut segment = [ports.0.to_be_bytes(), ports.1.to_be_bytes()].concat();
    segment.extend([seq.to_be_bytes(), ack.to_be_bytes()].as_flattened());
    let words = u8::try_from(5 + parts[0].len() / 4).unwrap();
    segment.extend([words << 4, flags, 0xff, 0xff, 0, 0, 0, 0]);
    segment.extend(parts.concat());
    segment
}

/// A message of a DHCP client with that last byte of its MAC address.
pub fn dhcp(kind: u8, mac: u16, wish: Option<[u8; 4]>) -> Vec<u8> {
    let mut message = vec![1, 1, 6, 0, 0, 0, 0, 7];
    message.resize(28, 0);
    let [high, low] = mac.to_be_bytes();
    let address = [2, 0, 0, 0, high, low];
    message.extend(address);
    message.resize(236, 0);
    message.extend([0x63, 0x82, 0x53, 0x63, 53, 1, kind]);
    if let Some(wish) = wish {
        message.extend([50, 4, wish[0], wish[1], wish[2], wish[3]]);
    }
    message.push(255);
    let mut frame = packet([255; 4], 17, &udp(68, 67, &message));
    frame[..6].fill(0xff);
    frame[6..12].copy_from_slice(&address);
    frame[26..30].fill(0);
    frame
}
