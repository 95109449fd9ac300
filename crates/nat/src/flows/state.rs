//! The state of one flow, and how it is shown.

use ringway_net::Nanos;

use crate::datagrams::{Client, Datagrams};
use crate::table::{Entry, FlowKey};
use crate::tcp::{Phase, Tcp};

/// The state of a flow besides its ends.
#[derive(Debug)]
pub(super) enum State {
    Tcp(Tcp),
    Datagrams(Datagrams),
}

impl State {
    /// Whether a client of the host began it, by a socket that listens.
    pub fn is_from_outside(&self) -> bool {
        match self {
            Self::Tcp(tcp) => tcp.is_from_outside(),
            Self::Datagrams(datagrams) => datagrams.client.is_some(),
        }
    }

    /// The client of datagrams that it began.
    pub fn client(&self) -> Option<Client> {
        match self {
            Self::Tcp(_) => None,
            Self::Datagrams(datagrams) => datagrams.client,
        }
    }

    /// The phase of a connection.
    pub fn phase(&self) -> Option<Phase> {
        match self {
            Self::Tcp(tcp) => Some(tcp.phase()),
            Self::Datagrams(_) => None,
        }
    }
}

/// A flow, as it is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlowLook {
    /// Its guest, its protocol, and its two ends.
    pub key: FlowKey,
    /// Where it stands, in a word or two.
    pub state: &'static str,
    /// Bytes of data from the guest that the socket took.
    pub from_guest: u64,
    /// Bytes of data that the guest has; of a connection: that it has acknowledged.
    pub to_guest: u64,
    /// How long ago it was used last.
    pub idle_ns: u64,
}

impl FlowLook {
    pub(super) fn of(entry: &Entry<State>, now: Nanos) -> Self {
        let state = match &entry.state {
            State::Tcp(tcp) => tcp.name(),
            State::Datagrams(datagrams) => datagrams.name(),
        };
        let (from_guest, to_guest) = (entry.from_guest, entry.to_guest);
        Self { key: entry.key, state, from_guest, to_guest, idle_ns: now.since(entry.used) }
    }
}
