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
pub const PIECES_PER_TURN: usize = 64;

/// The state that lasts as long as one connection.
pub struct FrontEnd {
    /// Never used again for another one.
    pub number: u32,
    pub connection: Connection,
    /// The process at its other end, if it is known.
    pub peer: Option<Peer>,
    /// The port's options when it came, for data planes.
    pub spec: Bytes<SPEC_LEN_MAX>,
    pub kept: Link<Arc<UntrustedFd>>,
    /// The log says that its request waits.
    pub is_wait_logged: bool,
}

impl FrontEnd {
    pub fn new(
        number: u32,
        connection: Connection,
        peer: Option<Peer>,
        spec: Bytes<SPEC_LEN_MAX>,
    ) -> Self {
        Self { number, connection, peer, spec, kept: Link::default(), is_wait_logged: false }
    }
}

/// An outstanding request that is done.
pub struct Done {
    pub request: u32,
    pub drops: Vec<SlotRange>,
    pub keep: Option<Keep>,
    /// Something that it leaves behind is still being closed.
    pub is_closing: bool,
}
