//! `ringway run`: from checked options to a running daemon, and to a clean end.

use anyhow::Context;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::config::{LowOption, RunConfig};
use crate::sandbox::Sandbox;

use super::Supervisor;

/// Runs until SIGINT or SIGTERM, in this sandbox; `over` are the settings that count more than the
/// file's.
///
/// # Errors
/// No port could be opened, the control socket is taken, or the data plane does not work.
pub fn run(config: RunConfig, over: Vec<LowOption>, sandbox: Sandbox) -> anyhow::Result<()> {
    allow_file_descriptors();
    let control = std::path::absolute(&config.settings.control);
    let control = control.unwrap_or_else(|_| config.settings.control.clone());
    let started = Supervisor::start(config, over, sandbox);
    let mut supervisor = started.context("ringway could not start")?;
    // The program that started it may wait for this line: from now on sockets can be connected to.
    tracing::info!(control = %control.display(), "ready");
    supervisor.serve()?;
    supervisor.shut_down();
    Ok(())
}

/// As many file descriptors as this process may have at all: front-ends bring them, some hundred
/// with one message, and the usual limit is 1,024 for all of them together.
fn allow_file_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    if let Err(why) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }) {
        tracing::warn!("no more than {:?} file descriptors: {why}", limit.current);
    }
}
