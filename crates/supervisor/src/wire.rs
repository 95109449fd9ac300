//! The messages between supervisor and data plane, as bytes of one `SOCK_SEQPACKET` message each.
//!
//! Little-endian: one byte that says which message, then its fields in order; a text or a list has
//! its length in front, two bytes. Every field has a limit in its type, so that what is encoded
//! always fits ([`MESSAGE_LEN_MAX`]), and [`decode`](ToData::decode) accepts exactly what
//! [`encode`](ToData::encode) makes. An optional field has one byte in front, 0 or 1; a choice of
//! two is one byte as well. File descriptors travel beside the bytes; [`ToData::fds`] says how
//! many. To the supervisor none do.
//!
//! A data plane says in `Hello` which versions it speaks; the supervisor goes by the newest that
//! both know. Version 1 has no `Given`, `Batch`, `Stations`, `DoesItGoOn` and `GoesOn`, and a
//! `Given` shows that it is not that. Version 2 has no `Speaks`, `Runs`, `Stopped` and
//! `EndTransfers`; from version 3 on `Speaks` says which it is. A program that does not speak
//! version 3 does not mark what it writes in a front-end's log, so it is given no front-end that
//! has told one.
//!
//! A data plane is started with all file descriptors that there are then: they stay open over
//! `exec`, under the numbers that they have in the supervisor, which `Given` tells and messages in
//! a `Batch` name. So the next data plane can be filled while the kernel takes no descriptors of
//! this user: those in flight, sent and not received, may be as many as `RLIMIT_NOFILE` for all
//! processes of a user together. A descriptor that is newer than the process travels with its
//! message. A program that speaks version 1 cannot be told of numbers: it is started once more,
//! with none.
//!
//! Orders (`Port` to `Unlink`, `LinksDown`) are answered by `Finished`, requests by `Done`. A
//! message that cannot be decoded, or that says what cannot be (a request that is not outstanding,
//! a slot that is full, `Ready` twice), ends the data plane.

mod batch;
mod field;
mod messages;

use std::net::IpAddr;

pub use batch::Batch;
pub use field::{Bytes, List, Text, pieces};
pub use messages::{ToData, ToSupervisor};
use thiserror::Error;

/// Most bytes of a message.
pub const MESSAGE_LEN_MAX: usize = 64 * 1024;

/// Most file descriptors that the kernel passes with a message.
pub const MESSAGE_FDS_MAX: usize = 253;

/// The newest version of this file.
pub const WIRE_VERSION: u16 = 3;
/// The oldest one that is spoken: without [`Batch`], and all file descriptors travel.
pub const WIRE_VERSION_MIN: u16 = 1;

/// From this version on programs say which guests run, mark the pages that they write in a
/// front-end's log, and end transfers of devices' states.
pub const WIRE_VERSION_LOGS: u16 = 3;

/// Most bytes of a port's line, and of all settings together.
pub const SPEC_LEN_MAX: usize = 16 * 1024;
/// See [`SPEC_LEN_MAX`].
pub const SETTINGS_LEN_MAX: usize = 32 * 1024;
/// Most bytes of a reason.
pub const REASON_LEN_MAX: usize = 1024;
/// Most bytes of one piece of a question, an answer, or positions; longer ones come in pieces.
pub const PIECE_LEN_MAX: usize = 60 * 1024;
/// Most ranges of slots that one request drops.
pub const DROPS_MAX: usize = 1024;
/// Most queues of a tap, and most Unix sockets of a router.
pub const TAP_FDS_MAX: usize = 64;

/// Most file descriptors that are told of at once.
pub const GIVEN_MAX: usize = 12_000;

/// Most stations that are told of at once.
pub const STATIONS_MAX: usize = 1024;
/// Most addresses of a router's stations that are told of.
pub const KNOWN_STATIONS_MAX: usize = 2048;
/// Most IP addresses of a port that are told of.
pub const SEEN_IPS_MAX: usize = 16;

/// The fault in a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum BadMessage {
    /// It ends within a field.
    #[error("it ends within a field")]
    Short,
    /// There is more behind its last field.
    #[error("{left} bytes are behind its last field")]
    TooLong {
        /// The number of these bytes.
        left: usize,
    },
    /// No message has this number.
    #[error("there is no message {kind}")]
    Kind {
        /// The number.
        kind: u8,
    },
    /// A field is longer than it may be.
    #[error("a field has {len} entries, the limit is {limit}")]
    Length {
        /// Bytes of a text, or entries of a list.
        len: usize,
        /// Its limit.
        limit: usize,
    },
    /// A number that its field cannot have.
    #[error("a field has a number that it cannot have")]
    Value,
    /// A text that is not UTF-8.
    #[error("a text is not UTF-8")]
    Text,
    /// Not as many fds as the message has.
    #[error("{came} file descriptors came with it")]
    Fds {
        /// The number of fds that came.
        came: usize,
    },
}

/// From which version to which, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Versions {
    /// The oldest.
    pub first: u16,
    /// The newest.
    pub last: u16,
}

impl Versions {
    /// The newest that both know.
    pub fn common(self, other: Self) -> Option<u16> {
        let newest = self.last.min(other.last);
        (newest >= self.first.max(other.first)).then_some(newest)
    }
}

/// A flaw of a request that only the supervisor can see, and that makes it one to be refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flaw {
    /// Not all of its fds could be received.
    LostFds,
    /// Among its fds is a socket that is connected to ringway itself.
    OwnSocket,
}

/// A station that has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Station {
    /// The VLAN that it was in; 0: none.
    pub vlan: u16,
    /// Its MAC address.
    pub address: [u8; 6],
}

/// An IP address that a station was seen to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeenIp {
    /// The VLAN that the station is in; 0: none.
    pub vlan: u16,
    /// Its MAC address.
    pub address: [u8; 6],
    /// The IP address.
    pub ip: IpAddr,
}

/// An address of a station that a router knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnownStation {
    /// The port that the station is behind.
    pub port: u16,
    /// Its MAC address.
    pub address: [u8; 6],
    /// One of its addresses.
    pub ip: IpAddr,
    /// It has a lease; otherwise it was seen to use the address.
    pub is_leased: bool,
}

/// The offence of a front-end that keeps others waiting: its port accepts none for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offence {
    /// A call would have waited for it.
    Blocked,
    /// Its memory made page faults sleep.
    Stalled,
}
