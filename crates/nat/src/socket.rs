//! Words about a socket of the host: what it says, and how it ends.

use std::net::IpAddr;

/// How a socket is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Close {
    /// What was sent still arrives.
    Gracefully,
    /// The other end of a connection sees a reset (`SO_LINGER` of 0).
    Reset,
}

/// What became of a read for a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Read {
    /// So many bytes are in the frame; a datagram may have none. Also of a frame without a read.
    Bytes(u32),
    /// There was nothing to read: no frame.
    Empty,
    /// The other end has sent all that it will: no frame.
    End,
    /// A datagram longer than the frame may be: no frame. It is gone, if it was not given to
    /// [`Nat::cut`](crate::Nat::cut), which makes others of it.
    TooLong,
}

/// What a packet met on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Problem {
    /// No route to the network.
    NetworkUnreachable,
    /// The host does not answer its neighbours.
    HostUnreachable,
    /// No socket has that port.
    PortUnreachable,
    /// A policy forbids it.
    Prohibited,
    /// It went through too many routers.
    HopsExceeded,
    /// Longer than a link on the way carries, which is so many bytes.
    TooBig(u16),
}

/// Why a socket failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// Refused, or reset by the other end.
    Reset,
    /// No answer.
    TimedOut,
    /// It cannot be reached.
    Unreachable(Problem),
    /// The host has no socket or no memory for it.
    NoRoom,
}

/// News of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A connection is made; the socket takes so many bytes.
    Connected {
        /// Free bytes of its send buffer.
        room: u32,
    },
    /// It is of no more use.
    Failed(Failure),
    /// It has something to read, or its end.
    Readable,
    /// It takes data again.
    Writable,
    /// So many bytes of what `Send` gave were taken.
    Sent(u32),
    /// It takes so many bytes.
    Room(u32),
    /// A datagram did not arrive.
    Report {
        /// Who says so; `None`: the host itself.
        from: Option<IpAddr>,
        /// What it met.
        problem: Problem,
    },
}
