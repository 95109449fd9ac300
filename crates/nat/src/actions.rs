//! The actions about sockets that the host has to take.

use std::net::SocketAddr;

use crate::socket::Close;
use crate::table::{FlowId, Guest, Protocol};

/// Most actions that one packet, event or timer leads to.
const ACTIONS_MAX: usize = 8;

/// Where a flow goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// To that address.
    Address(SocketAddr),
    /// To the host's resolver that this guest asks first.
    Resolver(Guest),
    /// To that address, which is the host's loopback: guests may go there.
    Loopback(SocketAddr),
}

/// A port of a guest: by which port of the switch, and its address.
pub type GuestPort = (Guest, SocketAddr);

/// One thing to do about a socket. Several are to be done in their order. *Answer* is the [`Event`]
/// that [`Nat::on_socket`] is told then.
///
/// [`Event`]: crate::Event
/// [`Nat::on_socket`]: crate::Nat::on_socket
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Makes a socket and connects it, without waiting. Answer: for TCP `Connected` or `Failed`,
    /// otherwise `Failed` if it cannot be done.
    Open {
        /// The flow.
        flow: FlowId,
        /// The kind of flow.
        protocol: Protocol,
        /// To where.
        to: Target,
        /// Flows of datagrams with the same one share a port of the host, and the socket there is
        /// not connected; `None`: it has a socket of its own.
        port: Option<GuestPort>,
    },
    /// Takes bytes that the guest has off the receive queue.
    Consume {
        /// The flow.
        flow: FlowId,
        /// How many.
        len: u32,
    },
    /// Sends bytes of the guest's packet. Answer: `Sent`; one for several in a row is enough.
    Send {
        /// The flow.
        flow: FlowId,
        /// Where they begin in the frame.
        skip: u32,
        /// How many.
        len: u32,
    },
    /// Sends bytes of the guest's packet as a datagram.
    SendDatagram {
        /// The flow.
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
        /// The flow.
        flow: FlowId,
    },
    /// Asks how much the socket takes. Answer: `Room`.
    AskRoom {
        /// The flow.
        flow: FlowId,
    },
    /// Asks whether the other end has hung up without a byte. Answer, if it has: `HungUp`.
    AskEnd {
        /// The flow.
        flow: FlowId,
    },
    /// Flows are another guest's than before: [`Nat::guest_of`](crate::Nat::guest_of) says whose.
    /// Ports of the host that they have stay theirs.
    FollowGuests,
    /// Closes the socket; the flow's number is not used any more.
    Close {
        /// The flow.
        flow: FlowId,
        /// How.
        how: Close,
    },
}

/// The actions that one call leads to.
#[derive(Debug, Clone, Default)]
pub struct Actions {
    list: [Option<Action>; ACTIONS_MAX],
    len: usize,
}

impl Actions {
    /// No actions.
    pub fn new() -> Self {
        Self::default()
    }

    pub(crate) fn push(&mut self, action: Action) {
        assert!(self.len < ACTIONS_MAX, "the caller empties the list after each call");
        self.list[self.len] = Some(action);
        self.len += 1;
    }

    /// The same, unless it is there already.
    pub(crate) fn push_once(&mut self, action: Action) {
        if !self.list.contains(&Some(action)) {
            self.push(action);
        }
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
