//! The meanings of the worker's file descriptors, as 64 bits that `epoll` gives back.

use ringway_device::Queue;
use ringway_switch::PortId;

/// The cause of a wake-up of the worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PollToken {
    Kick(PortId, Queue),
    Readable(PortId),
    /// Another worker handed something over, or made room.
    Peer,
    Job,
}

impl PollToken {
    pub(crate) const JOB: u64 = u64::MAX;
    const PEER: u64 = u64::MAX - 1;
    const READABLE: u64 = 0xff;

    /// As `epoll` carries it.
    pub(crate) fn token(self) -> u64 {
        match self {
            Self::Kick(port, queue) => u64::from(port.0) << 8 | queue as u64,
            Self::Readable(port) => u64::from(port.0) << 8 | Self::READABLE,
            Self::Peer => Self::PEER,
            Self::Job => Self::JOB,
        }
    }

    /// The reverse of [`token`](Self::token).
    pub(crate) fn from_token(token: u64) -> Option<Self> {
        if token == Self::JOB {
            return Some(Self::Job);
        }
        if token == Self::PEER {
            return Some(Self::Peer);
        }
        let port = PortId(u16::try_from(token >> 8).ok()?);
        match token & 0xff {
            Self::READABLE => Some(Self::Readable(port)),
            queue => {
                let queue = Queue::from_index(u16::try_from(queue).ok()?)?;
                Some(Self::Kick(port, queue))
            }
        }
    }
}
