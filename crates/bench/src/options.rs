//! What most measurements are told. Limits: those that compare more than one thing at a time
//! ([`ring`](crate::ring), [`guest`](crate::guest)) have options of their own.

use std::time::Duration;

use anyhow::ensure;

/// Shortest time for one number.
const DURATION_MIN: Duration = Duration::from_millis(10);

/// How much is measured.
#[derive(Debug, Clone)]
pub struct Options {
    /// How long each number is measured.
    pub duration: Duration,
    /// How often everything is measured.
    pub repeats: usize,
    /// The command line, for the report.
    pub command: String,
}

impl Options {
    /// Whether they make sense for what takes threads or processes; what runs on one thread
    /// ([`rxbuf`](crate::rxbuf)) can be measured for a shorter time, too.
    ///
    /// # Errors
    /// No repeats, or less than [`DURATION_MIN`].
    pub(crate) fn ensure_measurable(&self) -> anyhow::Result<()> {
        ensure!(self.repeats > 0, "nothing to measure");
        ensure!(self.duration >= DURATION_MIN, "at least 10 ms for each number");
        Ok(())
    }
}
