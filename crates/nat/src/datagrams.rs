//! A flow of datagrams or echo requests: whether there is something to read, and its age.

use std::net::SocketAddr;

use ringway_net::Nanos;

use crate::table::{FlowKey, Protocol};

const SECOND_NS: u64 = 1_000_000_000;
/// One way, or one exchange; and what went to and fro more than once (the kernel's own values).
const SHORT_NS: u64 = 30 * SECOND_NS;
const LONG_NS: u64 = 120 * SECOND_NS;
/// Echo flows, and questions that were answered.
const ECHO_NS: u64 = 60 * SECOND_NS;
const ANSWERED_NS: u64 = 10 * SECOND_NS;

/// Ports whose flows are a question and its answer: domain names, time.
const QUESTION_PORTS: [u16; 2] = [53, 123];

/// Whether a flow of datagrams is a question and its answer.
pub(crate) fn is_question(key: &FlowKey) -> bool {
    QUESTION_PORTS.contains(&key.to.port())
}

/// A flow of datagrams.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Datagrams {
    pub is_readable: bool,
    /// The last read gave several of one length: the next one may, too.
    pub come_together: bool,
    sent: u8,
    received: u8,
    /// The client that it comes from, where it came from outside: its datagrams come by a socket
    /// that other flows have too, so each one is told of.
    pub client: Option<Client>,
}

/// The sender of datagrams to a guest from outside, and the place of the host that they go to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Client {
    /// Its address and port.
    pub from: SocketAddr,
    /// The host's address that it used, and port.
    pub at: SocketAddr,
}

impl Datagrams {
    pub fn from_outside(client: Client) -> Self {
        Self { client: Some(client), ..Self::default() }
    }

    /// As it is shown.
    pub fn name(&self) -> &'static str {
        if self.sent > 0 && self.received > 0 { "both ways" } else { "one way" }
    }

    pub fn send(&mut self) {
        self.sent = self.sent.saturating_add(1);
    }

    pub fn receive(&mut self, are_several: bool) {
        self.come_together = are_several;
        self.received = self.received.saturating_add(1);
        self.is_readable &= self.client.is_none();
    }

    /// When a flow is over that was last used at `used`.
    pub fn end(&self, key: &FlowKey, used: Nanos) -> Nanos {
        let is_conversation = self.sent > 1 && self.received > 0;
        used.plus(match key.protocol {
            Protocol::Echo => ECHO_NS,
            _ if is_question(key) && self.received > 0 => ANSWERED_NS,
            _ if is_conversation => LONG_NS,
            _ => SHORT_NS,
        })
    }
}
