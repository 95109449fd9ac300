//! Events that wake the control thread, and its `epoll`, which has them as numbers.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use anyhow::Context;
use ringway_host::{EventFd, Events, Poller};
use ringway_switch::PortId;

use crate::wake_token::wake_sources;

/// Events handled per turn of the loop.
const EVENTS_MAX: usize = 64;

wake_sources! {
    0 Supervisor,
    1 Worker,
    2 TornMemory,
    3 Kicks(port: PortId),
    4 Capture(number: u32),
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
