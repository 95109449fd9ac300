//! How one worker wakes another, and only if it sleeps.
//!
//! Both sides write one word and read the other: the waker publishes and then reads whether the
//! other worker sleeps; a worker that goes to sleep says so and then reads whether something was
//! published. A sequentially consistent fence between the two steps on both sides means that at
//! least one of them sees the other's write, so no wake-up is lost.

use std::io;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::fence;

use crate::os::eventfd::EventFd;
use crate::peers::ring::OwnLine;

/// Whether a worker sleeps, and its bell.
#[derive(Debug)]
pub struct WakeFlag {
    /// Written when its worker goes to sleep or is woken; read after each hand-off.
    sleeps: OwnLine<AtomicBool>,
    bell: EventFd,
}

impl WakeFlag {
    /// Awake.
    ///
    /// # Errors
    /// No eventfd is left.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { sleeps: OwnLine::default(), bell: EventFd::new()? })
    }

    pub(crate) fn bell(&self) -> &EventFd {
        &self.bell
    }

    /// The worker is about to wait; it must check once more for work after this.
    pub(crate) fn going_to_sleep(&self) {
        self.sleeps.0.store(true, Relaxed);
        // The check for work must not come before the announcement, or a waker that publishes in
        // between does not see that this worker sleeps.
        // PAIRS WITH: wake_flag.rs::wake
        fence(SeqCst);
    }

    /// The worker does not sleep (any more).
    pub(crate) fn awake(&self) {
        self.sleeps.0.store(false, Relaxed);
    }

    /// Wakes the worker if it sleeps. What it shall find must have been published before.
    pub(crate) fn wake(&self) {
        // PAIRS WITH: wake_flag.rs::going_to_sleep
        fence(SeqCst);
        if self.sleeps.0.load(Relaxed) && self.sleeps.0.swap(false, Relaxed) {
            self.bell.notify();
        }
    }
}
