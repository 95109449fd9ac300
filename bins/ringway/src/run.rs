//! `ringway run`: from checked options to a running daemon, and to a clean end.

use anyhow::Context;

use crate::config::RunConfig;
use crate::daemon::Daemon;

/// Runs until SIGINT or SIGTERM.
///
/// # Errors
/// No port could be opened, the control socket is taken, or the data path thread ended.
pub fn run(config: RunConfig) -> anyhow::Result<()> {
    let mut daemon = Daemon::start(config).context("ringway could not start")?;
    daemon.serve()?;
    daemon.shut_down();
    Ok(())
}
