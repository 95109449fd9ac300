//! When a listener that cannot accept is watched again, and how often that is logged.

use std::time::Instant;

pub use ringway_supervisor::front_ends::RETRY_AFTER;

/// A listener that cannot accept, as when no file descriptor is left, is left alone for a while:
/// the connection that waits there would keep waking the supervisor.
#[derive(Debug, Default)]
pub struct AcceptBackoff {
    pub until: Option<Instant>,
    /// Since the last connection that was accepted.
    is_told: bool,
}

impl AcceptBackoff {
    /// The listener is not watched for a while; `true`: this is news.
    pub fn begin(&mut self) -> bool {
        self.until = Some(Instant::now() + RETRY_AFTER);
        !std::mem::replace(&mut self.is_told, true)
    }

    /// Whether the listener is to be watched again from now on.
    pub fn ends(&mut self, now: Instant) -> bool {
        self.until.take_if(|until| *until <= now).is_some()
    }
}
