//! The packets that the kernel makes of one that is not finished.

use std::os::fd::AsFd;

use ringway_host::Tap;
use ringway_net::{NetHeader, PacketSource};

use super::wire::Wire;
use super::{gathered, wait_readable};

/// The packets that come out of the tap when the kernel has to send this packet through it.
pub fn completed(tap: &mut Tap, header: &NetHeader, bytes: &[u8]) -> Vec<(NetHeader, Vec<u8>)> {
    // The kernel takes the socket's protocol for that of the packet.
    let wire = Wire::new(tap.name(), u16::from_be_bytes([bytes[12], bytes[13]]));
    wire.send_with_header();
    wire.send(&[&header.encode()[..10], bytes].concat());
    let mut all = Vec::new();
    wait_readable(tap.as_fd());
    while let Some(packet) = tap.peek() {
        all.push((*packet.header, gathered(packet.payload)));
        tap.pop();
    }
    all
}
