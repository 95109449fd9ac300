//! Ends of guests that have no ring: each packet is a system call of the program that runs the
//! guest, to a tap or to a socket of `vde_switch`.
//!
//! Limits: packets are sent and received one by one.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use ringway_guests::vde::VdePort;
use ringway_host::Tap;
use ringway_net::HEADER_LEN;
use ringway_virtq::Broken;
use rustix::io::{read, write};

use crate::ring::end::{End, Template, is_ours};

#[derive(Debug)]
pub(super) enum HostPort {
    Tap(Box<Tap>),
    Vde(VdePort),
}

#[derive(Debug)]
pub(super) struct CallEnd {
    port: HostPort,
    packet: Vec<u8>,
}

impl CallEnd {
    pub fn new(port: HostPort) -> Self {
        Self { port, packet: Vec::new() }
    }

    /// Bytes in front of each packet: a tap's header.
    fn header_len(&self) -> usize {
        if matches!(self.port, HostPort::Tap(_)) { HEADER_LEN } else { 0 }
    }
}

impl AsFd for HostPort {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tap(tap) => tap.as_fd(),
            Self::Vde(port) => port.socket.as_fd(),
        }
    }
}

impl End for CallEnd {
    /// A packet that cannot be sent now can be later, or it will be missed at the other end.
    fn send(&mut self, packet: &Template) -> Result<bool, Broken> {
        self.packet.clear();
        self.packet.resize(self.header_len(), 0);
        self.packet.extend_from_slice(packet.bytes());
        Ok(write(&self.port, &self.packet).is_ok())
    }

    fn flush_sent(&mut self) {}

    /// The next of our packets; others, which the host sends by itself, are skipped.
    fn receive(&mut self, _: &mut [u8]) -> Result<Option<usize>, Broken> {
        self.packet.resize(1 << 16, 0);
        let header_len = self.header_len();
        loop {
            let read = read(&self.port, &mut self.packet).map_err(io::Error::from);
            let Ok(len) = read else { return Ok(None) };
            if is_ours(self.packet.get(header_len..len).unwrap_or_default()) {
                return Ok(Some(len - header_len));
            }
        }
    }

    fn flush_received(&mut self) {}
}
