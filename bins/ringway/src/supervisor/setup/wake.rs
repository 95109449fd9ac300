//! Events that the supervisor waits for, as numbers of its `epoll`.

use ringway_switch::PortId;

/// The source that woke the supervisor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wake {
    Signal,
    Bell,
    Control,
    ControlClient(u32),
    Listener(PortId),
    Link(PortId),
    Reload,
    Plane(u32),
    PlaneEnd(u32),
    WorkerEnd,
    Child,
}

impl Wake {
    pub fn token(self) -> u64 {
        let (kind, number) = match self {
            Self::Signal => (0, 0),
            Self::Bell => (1, 0),
            Self::Control => (2, 0),
            Self::ControlClient(client) => (3, client),
            Self::Listener(port) => (4, u32::from(port.0)),
            Self::Link(port) => (5, u32::from(port.0)),
            Self::Reload => (6, 0),
            Self::Plane(plane) => (7, plane),
            Self::PlaneEnd(plane) => (8, plane),
            Self::WorkerEnd => (9, 0),
            Self::Child => (10, 0),
        };
        kind << 32 | u64::from(number)
    }

    pub fn from_token(token: u64) -> Option<Self> {
        let number = (token & 0xffff_ffff) as u32;
        let port = || u16::try_from(number).ok().map(PortId);
        match token >> 32 {
            0 => Some(Self::Signal),
            1 => Some(Self::Bell),
            2 => Some(Self::Control),
            3 => Some(Self::ControlClient(number)),
            4 => port().map(Self::Listener),
            5 => port().map(Self::Link),
            6 => Some(Self::Reload),
            7 => Some(Self::Plane(number)),
            8 => Some(Self::PlaneEnd(number)),
            9 => Some(Self::WorkerEnd),
            10 => Some(Self::Child),
            _ => None,
        }
    }
}
