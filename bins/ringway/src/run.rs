//! `ringway run`: from checked options to a running daemon, and to a clean end.

use anyhow::Context;

use crate::config::{LowOption, RunConfig};
use crate::daemon::Daemon;

/// Runs until SIGINT or SIGTERM; `over` are the settings that count more than the file's.
///
/// # Errors
/// No port could be opened, the control socket is taken, or the data path thread ended.
pub fn run(config: RunConfig, over: Vec<LowOption>) -> anyhow::Result<()> {
    let mut daemon = Daemon::start(config, over).context("ringway could not start")?;
    daemon.serve()?;
    daemon.shut_down();
    Ok(())
}
