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
    /// Whether they make sense where threads or processes have to be woken first.
    pub(crate) fn check_woken(&self) -> anyhow::Result<()> {
        ensure!(self.repeats > 0, "nothing to measure");
        ensure!(self.duration >= DURATION_MIN, "at least 10 ms for each number");
        Ok(())
    }
}
