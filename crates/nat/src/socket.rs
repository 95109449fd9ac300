//! Words about a socket of the host: what it says, and how it ends.

use std::net::IpAddr;

/// How a socket is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Close {
    /// The data that was sent still arrives.
    Gracefully,
    /// The other end of a connection sees a reset (`SO_LINGER` of 0).
    Reset,
}

/// The result of a read for a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Read {
    /// This many bytes were read into the frame. 0: an empty datagram, or a frame for which nothing
    /// is read.
    Bytes(u32),
    /// There was nothing to read: no frame.
    Empty,
    /// The other end has sent all that it will: no frame.
    End,
    /// It came from a place that the guest has not sent anything to: no frame.
    Stranger,
    /// A datagram longer than the frame may be: no frame. It is lost, unless it was given to
    /// [`Nat::cut`](crate::Nat::cut), which makes parts of it.
    TooLong,
}

/// Why a packet did not arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Problem {
    /// No route to the network.
    NetworkUnreachable,
    /// The destination does not answer ARP or neighbour discovery.
    HostUnreachable,
    /// No socket has that port.
    PortUnreachable,
    /// A policy forbids it.
    Prohibited,
    /// Its source address is not one that its sender may have here.
    WrongSource,
    /// It went through too many routers.
    HopsExceeded,
    /// It is longer than the MTU of a link on the way, which is this, in bytes.
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
    /// The host has no port left for it.
    NoPort,
}

/// News of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The connection is made.
    Connected {
        /// Free bytes of its send buffer.
        room: u32,
    },
    /// The socket is of no more use.
    Failed(Failure),
    /// It has something to read, or the other end has sent all.
    Readable,
    /// The other end has hung up, and has sent nothing.
    HungUp,
    /// It takes data again.
    Writable,
    /// The socket took this many of the bytes that `Send` gave.
    Sent(u32),
    /// The socket takes this many bytes.
    Room(u32),
    /// A datagram did not arrive.
    Report {
        /// The router or host that says so; `None`: this host itself.
        from: Option<IpAddr>,
        /// Why it did not.
        problem: Problem,
    },
}
