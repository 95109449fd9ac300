//! A thread of each port closes what its front-end sent (ADR 25), because closing may take as long
//! as the front-end likes. Only this port waits: its front-end's next request is read, and the next
//! front-end is accepted, when everything is closed. Both processes have copies, and close them so.
//!
//! So what is left to that thread is bounded: what one request, or one connection, leaves behind.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ringway_foreign::DeferredDrop;
use ringway_host::EventFd;

pub const SLOW: &str = "what the front-end sent is still being closed";

/// The port's thread, and the wait for it.
pub struct Closing {
    pub closer: DeferredDrop,
    /// Set when what was to be closed is.
    wait: Option<Arc<AtomicBool>>,
}

impl Closing {
    /// Starts the thread.
    pub fn start() -> std::io::Result<Self> {
        Ok(Self { closer: DeferredDrop::start()?, wait: None })
    }

    /// Whether there is something to wait for; if so `bell` is rung when that is over.
    pub fn begin(&mut self, bell: &Arc<EventFd>) -> bool {
        if self.wait.is_some() || self.closer.is_idle() {
            return self.wait.is_some();
        }
        let (is_over, bell) = (Arc::new(AtomicBool::new(false)), bell.clone());
        self.wait = Some(is_over.clone());
        self.closer.afterwards(move || {
            is_over.store(true, Ordering::Release);
            bell.notify();
        });
        true
    }

    /// Whether a wait is over now, and nothing is left to wait for.
    pub fn ends(&mut self, bell: &Arc<EventFd>) -> bool {
        let is_over = self.wait.take_if(|is_over| is_over.load(Ordering::Acquire)).is_some();
        // More to close: the front-end has gone meanwhile.
        is_over && !self.begin(bell)
    }

    /// Whether there is something to wait for, also behind a wait that is over.
    pub fn is_busy(&mut self, bell: &Arc<EventFd>) -> bool {
        self.wait.take_if(|is_over| is_over.load(Ordering::Acquire));
        self.begin(bell)
    }
}
