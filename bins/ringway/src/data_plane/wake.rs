//! Events that wake the control thread, and its `epoll`, which has them as numbers.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use anyhow::Context;
use ringway_host::{EventFd, Events, Poller};
use ringway_switch::PortId;

/// Events handled per turn of the loop.
const EVENTS_MAX: usize = 64;

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

/// Everything that wakes the control thread.
pub(super) struct Wakes {
    poller: Poller,
    /// Rung when a front-end has taken away memory that a worker then touched.
    torn: &'static EventFd,
    events: Events,
}

impl Wakes {
    /// Watches for memory that is taken away.
    pub(super) fn new() -> anyhow::Result<Self> {
        let torn = ringway_host::install_bus_guard().context("installing the SIGBUS handler")?;
        let (poller, events) = (Poller::new().context("epoll")?, Events::with_capacity(EVENTS_MAX));
        let wakes = Self { poller, torn, events };
        wakes.watch(torn, Wake::TornMemory)?;
        Ok(wakes)
    }

    pub(super) fn watch(&self, fd: &impl AsFd, wake: Wake) -> io::Result<()> {
        self.poller.add(fd.as_fd(), wake.token())
    }

    pub(super) fn forget(&self, fd: &impl AsFd) {
        // It may have been forgotten before.
        let _ = self.poller.remove(fd.as_fd());
    }

    /// Waits for what wakes the control thread next.
    pub(super) fn wait(&mut self, timeout: Option<Duration>) -> io::Result<Vec<Wake>> {
        self.poller.wait(&mut self.events, timeout)?;
        Ok(self.events.iter().filter_map(|event| Wake::from_token(event.token)).collect())
    }

    /// The next front-end that takes away memory rings anew.
    pub(super) fn drain_torn(&self) {
        self.torn.drain();
    }
}
