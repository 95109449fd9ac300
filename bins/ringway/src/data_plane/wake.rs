//! Events that wake the control thread, as numbers of its `epoll`.

use ringway_switch::PortId;

/// The source that woke the control thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wake {
    Supervisor,
    Worker,
    TornMemory,
    Kicks(PortId),
    Capture(u32),
}

impl Wake {
    pub(super) fn token(self) -> u64 {
        let (kind, number) = match self {
            Self::Supervisor => (0, 0),
            Self::Worker => (1, 0),
            Self::TornMemory => (2, 0),
            Self::Kicks(port) => (3, u32::from(port.0)),
            Self::Capture(number) => (4, number),
        };
        kind << 32 | u64::from(number)
    }

    pub(super) fn from_token(token: u64) -> Option<Self> {
        let number = (token & 0xffff_ffff) as u32;
        match token >> 32 {
            0 => Some(Self::Supervisor),
            1 => Some(Self::Worker),
            2 => Some(Self::TornMemory),
            3 => u16::try_from(number).ok().map(|port| Self::Kicks(PortId(port))),
            4 => Some(Self::Capture(number)),
            _ => None,
        }
    }
}
