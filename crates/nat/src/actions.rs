//! What the host has to do about sockets.

use std::net::SocketAddr;

use crate::socket::Close;
use crate::table::{FlowId, Protocol};

/// Most actions that one packet, event or timer leads to.
const ACTIONS_MAX: usize = 8;

/// Where a flow goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// To that address.
    Address(SocketAddr),
    /// To the host's resolver.
    Resolver,
    /// To that address, which is the host's loopback: guests may go there.
    Loopback(SocketAddr),
}

/// One thing to do, in the order in which they come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Makes a socket and connects it, without waiting. Answer for TCP: `Connected` or `Failed`;
    /// for the others only `Failed`, if so.
    Open {
        /// Whose.
        flow: FlowId,
        /// Which kind.
        protocol: Protocol,
        /// To where.
        to: Target,
    },
    /// Takes bytes off the receive queue that the guest has.
    Consume {
        /// Whose.
        flow: FlowId,
        /// How many.
        len: u32,
    },
    /// Sends bytes of this packet. Answer: `Sent`; one for several in a row is enough.
    Send {
        /// Whose.
        flow: FlowId,
        /// Where they begin in the frame.
        skip: u32,
        /// How many.
        len: u32,
    },
    /// Sends bytes of this packet as a datagram.
    SendDatagram {
        /// Whose.
        flow: FlowId,
        /// Where they begin in the frame.
        skip: u32,
        /// How many.
        len: u32,
        /// Routers that it may go through.
        hops: u8,
        /// It must not be cut into fragments.
        is_whole_only: bool,
    },
    /// Ends the sending half.
    Shutdown {
        /// Whose.
        flow: FlowId,
    },
    /// Asks how much the socket takes. Answer: `Room`.
    AskRoom {
        /// Whose.
        flow: FlowId,
    },
    /// Closes the socket; the flow's name is of no more use.
    Close {
        /// Whose.
        flow: FlowId,
        /// How.
        how: Close,
    },
}

/// A few actions.
#[derive(Debug, Clone, Default)]
pub struct Actions {
    list: [Option<Action>; ACTIONS_MAX],
    len: usize,
}

impl Actions {
    /// None.
    pub fn new() -> Self {
        Self::default()
    }

    pub(crate) fn push(&mut self, action: Action) {
        assert!(self.len < ACTIONS_MAX, "the caller empties the list after each call");
        self.list[self.len] = Some(action);
        self.len += 1;
    }

    /// Takes all, in order.
    pub fn drain(&mut self) -> impl Iterator<Item = Action> + use<> {
        std::mem::take(self).list.into_iter().flatten()
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}
