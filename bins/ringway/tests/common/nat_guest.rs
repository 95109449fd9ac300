//! A guest of a router for tests that look at single packets.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::net::{SocketAddr, UdpSocket};
use std::path::Path;

use ringway_net::NetHeader;
use ringway_testkit::{AnyUserGuest, GuestOptions};

use crate::common::{LIMIT, wait_for};

const GATEWAY: [u8; 6] = [0x52, 0x55, 10, 0, 2, 2];
pub const UDP: u8 = 17;
pub const TCP: u8 = 6;
pub const FIN: u8 = 1;
pub const SYN: u8 = 2;
pub const RST: u8 = 4;
pub const ACK: u8 = 16;

/// A guest that makes its packets byte by byte.
pub struct Guest {
    pub nic: AnyUserGuest,
    mac: [u8; 6],
    address: [u8; 4],
}

impl Guest {
    /// Behind that port, with the address that is leased to it.
    pub fn new(directory: &Path, port: &str, options: &GuestOptions) -> Self {
        let mut guest = Self::again(directory, port, options, [0; 4]);
        guest.ask_address();
        guest
    }

    /// It has that MAC address, whatever the device says.
    pub fn of_station(mut self, mac: [u8; 6]) -> Self {
        self.mac = mac;
        self
    }

    /// Asks for a lease.
    pub fn ask_address(&mut self) {
        let mut message = vec![1, 1, 6, 0, 0, 0, 0, 7];
        message.resize(28, 0);
        message.extend(self.mac);
        message.resize(236, 0);
        // A guest that discovers and is in a hurry gets a lease at once.
        message.extend([0x63, 0x82, 0x53, 0x63, 53, 1, 1, 80, 0, 255]);
        let packet = packet([[0; 4], [255; 4]], UDP, &datagram([68, 67], &message));
        self.send(&NetHeader::default(), [0xff; 6], &packet);
        self.nic.flush();
        let lease = self.receive(UDP, |payload| payload[..4] == [0, 67, 0, 68]);
        self.address.copy_from_slice(&lease[44..48]);
    }

    /// One that was there before, has that address, and does not ask for one.
    pub fn again(directory: &Path, port: &str, options: &GuestOptions, address: [u8; 4]) -> Self {
        let socket = directory.join(format!("{port}.sock"));
        let attach = || AnyUserGuest::attach(&socket, options).ok();
        let nic = wait_for("a guest", attach);
        Self { mac: nic.mac(), nic, address }
    }

    fn send(&mut self, header: &NetHeader, to: [u8; 6], packet: &[u8]) {
        let kind = if packet[0] >> 4 == 6 { [0x86, 0xdd] } else { [8, 0] };
        let frame = [&to[..], &self.mac, &kind, packet].concat();
        let _ = self.nic.send_with(header, &frame).expect("a good device");
    }

    /// The address that is leased to it.
    pub fn address(&self) -> [u8; 4] {
        self.address
    }

    /// Sends to a place behind the router.
    pub fn send_to(&mut self, to: [u8; 4], protocol: u8, payload: &[u8]) {
        let packet = packet([self.address, to], protocol, payload);
        self.send(&NetHeader::default(), GATEWAY, &packet);
        self.nic.flush();
    }

    /// The same in IPv6, from that address.
    pub fn send_to6(&mut self, ends: [std::net::Ipv6Addr; 2], protocol: u8, payload: &[u8]) {
        let [high, low] = u16::try_from(payload.len()).expect("short").to_be_bytes();
        let mut packet = vec![0x60, 0, 0, 0, high, low, protocol, 64];
        packet.extend(ends.map(|end| end.octets()).as_flattened());
        packet.extend(payload);
        self.send(&NetHeader::default(), GATEWAY, &packet);
        self.nic.flush();
    }

    /// The first frame that is right, from its Ethernet header on.
    #[track_caller]
    pub fn receive_frame(&mut self, is_it: impl Fn(&[u8]) -> bool) -> Vec<u8> {
        wait_for("a frame", || {
            let (_, frame) = self.nic.receive().expect("a good device")?;
            is_it(&frame).then_some(frame)
        })
    }

    /// Sends to the router's address.
    pub fn tell(&mut self, protocol: u8, payload: &[u8]) {
        self.post_with(&NetHeader::default(), protocol, payload);
        self.nic.flush();
    }

    /// The same with that header, and the router hears of it with the next one that is told.
    pub fn post_with(&mut self, header: &NetHeader, protocol: u8, payload: &[u8]) {
        let packet = packet([self.address, [10, 0, 2, 2]], protocol, payload);
        self.send(header, GATEWAY, &packet);
    }

    /// The payload of the next IPv4 packet of that protocol, if one is there.
    pub fn poll(&mut self, protocol: u8) -> Option<Vec<u8>> {
        while let Some((_, frame)) = self.nic.receive().expect("a good device") {
            self.nic.flush();
            if frame.len() > 42 && frame[12..14] == [8, 0] && frame[23] == protocol {
                return Some(frame[34..].to_vec());
            }
        }
        None
    }

    /// The first IPv4 packet of that protocol, from its IP header on, whose payload is right.
    #[track_caller]
    pub fn receive(&mut self, protocol: u8, is_it: impl Fn(&[u8]) -> bool) -> Vec<u8> {
        wait_for("a packet", || {
            let (_, frame) = self.nic.receive().expect("a good device")?;
            let is_right = frame.len() > 42 && frame[12..14] == [8, 0] && frame[23] == protocol;
            (is_right && is_it(&frame[34..])).then(|| frame[14..].to_vec())
        })
    }
}

fn packet(ends: [[u8; 4]; 2], protocol: u8, payload: &[u8]) -> Vec<u8> {
    let len = u16::try_from(20 + payload.len()).expect("short").to_be_bytes();
    let mut packet = vec![0x45, 0, len[0], len[1], 0, 0, 0, 0, 64, protocol, 0, 0];
    packet.extend(ends.as_flattened());
    packet.extend(payload);
    packet
}

pub fn datagram(ports: [u16; 2], data: &[u8]) -> Vec<u8> {
    let len = u16::try_from(8 + data.len()).expect("short");
    let words = [ports[0], ports[1], len, 0].map(u16::to_be_bytes);
    [words.as_flattened(), data].concat()
}

/// A connection of a guest to a place behind the router, as the guest sees it.
#[derive(Debug, Clone)]
pub struct Connection {
    pub ports: [u16; 2],
    pub seq: u32,
    pub ack: u32,
}

impl Connection {
    /// A segment; what it carries counts.
    pub fn segment(&mut self, flags: u8, data: &[u8]) -> Vec<u8> {
        let mut segment = self.ports.map(u16::to_be_bytes).as_flattened().to_vec();
        segment.extend([self.seq, self.ack].map(u32::to_be_bytes).as_flattened());
        segment.extend([5 << 4, flags, 0xff, 0xff, 0, 0, 0, 0]);
        segment.extend(data);
        let flags = u32::from(flags & SYN != 0) + u32::from(flags & FIN != 0);
        self.seq = self.seq.wrapping_add(u32::try_from(data.len()).expect("short") + flags);
        segment
    }

    /// Whether it is one of its segments, from the TCP header on.
    pub fn has(&self, segment: &[u8]) -> bool {
        [word(segment, 2), word(segment, 0)] == self.ports
    }

    /// The first segment of it with these flags, from its TCP header on; acknowledged from then on.
    #[track_caller]
    pub fn receive(&mut self, guest: &mut Guest, flags: u8) -> Vec<u8> {
        let is_it = |segment: &[u8]| self.has(segment) && segment[13] & flags == flags;
        let packet = guest.receive(TCP, is_it);
        let segment = packet[20..usize::from(word(&packet, 2))].to_vec();
        let data = &segment[usize::from(segment[12] >> 4) * 4..];
        let seq = u32::from_be_bytes(segment[4..8].try_into().expect("four bytes"));
        let len = u32::try_from(data.len()).expect("short") + u32::from(segment[13] & SYN != 0);
        self.ack = seq.wrapping_add(len);
        segment
    }

    /// Opened to that port of this machine, by way of the gateway.
    #[track_caller]
    pub fn open(guest: &mut Guest, ports: [u16; 2]) -> Self {
        let mut connection = Self { ports, seq: 1000, ack: 0 };
        let syn = connection.segment(SYN, &[]);
        guest.tell(TCP, &syn);
        connection.receive(guest, SYN | ACK);
        let ack = connection.segment(ACK, &[]);
        guest.tell(TCP, &ack);
        connection
    }
}

pub fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

pub fn socket() -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    socket.set_read_timeout(Some(LIMIT)).expect("a timeout");
    let at = socket.local_addr().expect("an address");
    (socket, at)
}
