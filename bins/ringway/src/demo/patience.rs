//! How long the demonstration may take, and whether the user still wants it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Pause between two looks at something that is waited for.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The demonstration was asked to stop.
#[derive(Debug)]
pub struct Interrupted;

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("stopped, and everything removed")
    }
}

impl std::error::Error for Interrupted {}

/// The end of the time that all waiting together may take.
pub struct Patience {
    until: Instant,
    interrupted: Arc<AtomicBool>,
}

impl Patience {
    /// From now on, SIGINT, SIGTERM and SIGHUP end waiting instead of the process.
    ///
    /// # Errors
    /// The signals cannot be caught.
    pub fn new(total: Duration) -> anyhow::Result<Self> {
        let interrupted = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, interrupted.clone()).context("catching signals")?;
        }
        Ok(Self { until: Instant::now() + total, interrupted })
    }

    /// Whether to go on with work that is not waiting.
    ///
    /// # Errors
    /// [`Interrupted`].
    pub fn check(&self) -> Result<(), Interrupted> {
        match self.interrupted.load(Ordering::Relaxed) {
            true => Err(Interrupted),
            false => Ok(()),
        }
    }

    /// Looks again and again until there is something, for at most `limit`; `None`: it took too
    /// long.
    ///
    /// # Errors
    /// [`Interrupted`], or what `look` returns.
    pub fn wait_for<T>(
        &self,
        limit: Duration,
        mut look: impl FnMut() -> anyhow::Result<Option<T>>,
    ) -> anyhow::Result<Option<T>> {
        let until = self.until.min(Instant::now() + limit);
        loop {
            self.check()?;
            if let Some(found) = look()? {
                return Ok(Some(found));
            }
            if Instant::now() >= until {
                return Ok(None);
            }
            thread::sleep(LOOK_EVERY);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patience(total: Duration) -> Patience {
        Patience { until: Instant::now() + total, interrupted: Arc::default() }
    }

    #[test]
    fn waiting_ends_with_success_time_or_interruption() {
        let long = Duration::from_secs(60);
        let mut looks = 0;
        let found = patience(long).wait_for(long, || {
            looks += 1;
            Ok((looks == 3).then_some("found"))
        });
        assert_eq!(found.expect("no error"), Some("found"));
        let never = || Ok(None::<()>);
        // Either limit alone ends it.
        assert_eq!(patience(long).wait_for(Duration::ZERO, never).expect("no error"), None);
        assert_eq!(patience(Duration::ZERO).wait_for(long, never).expect("no error"), None);
        let interrupted = patience(long);
        interrupted.interrupted.store(true, Ordering::Relaxed);
        assert!(interrupted.wait_for(long, never).expect_err("stopped").is::<Interrupted>());
    }
}
