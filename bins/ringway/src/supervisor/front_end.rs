//! One connected front-end: its socket, its stream of requests, and what is kept of them.
//!
//! One request of each front-end is in the data plane's hands at a time. Nothing more is read
//! before it is done, and before everything is closed that it left behind.

use std::sync::Arc;

use ringway_foreign::UntrustedFd;
use ringway_supervisor::slots::{Keep, Link, SlotRange};
use ringway_supervisor::wire::{Bytes, SPEC_LEN_MAX};
use ringway_vhost_user::Connection;

use super::peer::Peer;

/// Pieces of messages read before other ports get their turn.
pub(super) const PIECES_PER_TURN: usize = 64;

/// The state that lasts as long as one connection.
pub(super) struct FrontEnd {
    /// Never used again for another one.
    pub(super) number: u32,
    pub(super) connection: Connection,
    /// The process at its other end, if it is known.
    pub(super) peer: Option<Peer>,
    /// The port's options when it came, for data planes.
    pub(super) spec: Bytes<SPEC_LEN_MAX>,
    pub(super) kept: Link<Arc<UntrustedFd>>,
    /// The log says that its request waits.
    pub(super) is_wait_logged: bool,
}

impl FrontEnd {
    pub(super) fn new(
        number: u32,
        connection: Connection,
        peer: Option<Peer>,
        spec: Bytes<SPEC_LEN_MAX>,
    ) -> Self {
        Self { number, connection, peer, spec, kept: Link::default(), is_wait_logged: false }
    }
}

/// An outstanding request that is done.
pub(super) struct Done {
    pub(super) request: u32,
    pub(super) drops: Vec<SlotRange>,
    pub(super) keep: Option<Keep>,
    /// Something that it leaves behind is still being closed.
    pub(super) is_closing: bool,
}
