//! A guest of a router for tests that look at single packets.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::net::{SocketAddr, UdpSocket};
use std::path::Path;

use ringway_net::NetHeader;
use ringway_testkit::{AnyUserGuest, GuestOptions};

use crate::common::{LIMIT, wait_for};

const GATEWAY: [u8; 6] = [0x52, 0x55, 10, 0, 2, 2];
pub const UDP: u8 = 17;

/// A guest that makes its packets byte by byte.
pub struct Guest {
    pub nic: AnyUserGuest,
    address: [u8; 4],
}

impl Guest {
    /// Behind that port, with the address that is leased to it.
    pub fn new(directory: &Path, port: &str, options: &GuestOptions) -> Self {
        let socket = directory.join(format!("{port}.sock"));
        let attach = || AnyUserGuest::attach(&socket, options).ok();
        let mut guest = Self { nic: wait_for("a guest", attach), address: [0; 4] };
        let mut message = vec![1, 1, 6, 0, 0, 0, 0, 7];
        message.resize(28, 0);
        message.extend(guest.nic.mac());
        message.resize(236, 0);
        // A guest that discovers and is in a hurry gets a lease at once.
        message.extend([0x63, 0x82, 0x53, 0x63, 53, 1, 1, 80, 0, 255]);
        let packet = packet([[0; 4], [255; 4]], UDP, &datagram([68, 67], &message));
        guest.send(&NetHeader::default(), [0xff; 6], &packet);
        guest.nic.flush();
        let lease = guest.receive(UDP, |payload| payload[..4] == [0, 67, 0, 68]);
        guest.address.copy_from_slice(&lease[44..48]);
        guest
    }

    /// One that was there before, has that address, and does not ask for one.
    pub fn again(directory: &Path, port: &str, options: &GuestOptions, address: [u8; 4]) -> Self {
        let socket = directory.join(format!("{port}.sock"));
        let attach = || AnyUserGuest::attach(&socket, options).ok();
        Self { nic: wait_for("a guest", attach), address }
    }

    fn send(&mut self, header: &NetHeader, to: [u8; 6], packet: &[u8]) {
        let kind = if packet[0] >> 4 == 6 { [0x86, 0xdd] } else { [8, 0] };
        let frame = [&to[..], &self.nic.mac(), &kind, packet].concat();
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

pub fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

pub fn socket() -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    socket.set_read_timeout(Some(LIMIT)).expect("a timeout");
    let at = socket.local_addr().expect("an address");
    (socket, at)
}
