//! `ringway run`: from checked options to a running daemon, and to a clean end; and the same for a
//! program that takes its place.

use std::fs::File;
use std::time::Duration;

use anyhow::Context;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::config::{LowOption, RunConfig};
use crate::log::Log;
use crate::sandbox::Sandbox;

pub use super::activation::{Sockets, path_of as socket_path};
use super::record::file;
pub use super::take_over::TakenOver;
use super::{Ending, Supervisor, replace};

pub use super::record::file::check;

/// How long lines of the log may take before another program takes this one's place.
const LAST_LINES: Duration = Duration::from_millis(100);

/// Runs until SIGINT or SIGTERM, in this sandbox; `over` are the settings that count more than the
/// file's, `sockets` those on which a service manager listens already. If it needs all ports, it
/// ends where one cannot be opened.
///
/// # Errors
/// No port could be opened, the control socket is taken, or the data plane does not work.
pub fn run(
    (config, needs_all): (RunConfig, bool),
    over: Vec<LowOption>,
    (sandbox, sockets): (Sandbox, Sockets),
    log: &Log,
) -> anyhow::Result<()> {
    allow_file_descriptors();
    let control = std::path::absolute(&config.settings.control);
    let control = control.unwrap_or_else(|_| config.settings.control.clone());
    let started = Supervisor::start(config, needs_all, over, sandbox, sockets);
    let supervisor = started.context("ringway could not start")?;
    // The program that started it may wait for this line: from now on sockets can be connected to.
    tracing::info!(control = %control.display(), "{}", supervisor.ports.ready());
    supervisor.stores.fds.tell("READY=1");
    serve(supervisor, log)
}

/// The record that the program before has written into the file of that number. To be called once.
///
/// # Errors
/// There is no such file, or it says what cannot be.
pub fn found(number: i32) -> anyhow::Result<TakenOver> {
    let file = ringway_host::take_inherited_fd(number).context("there is no such record")?;
    TakenOver::new(file::read(File::from(file), ringway_host::take_inherited_fd)?)
}

/// Goes on where the program before has stopped.
///
/// # Errors
/// The operating system refuses, or not everything came along.
pub fn take_over(taken: TakenOver, sandbox: Sandbox, log: &Log) -> anyhow::Result<()> {
    allow_file_descriptors();
    // Named after a number otherwise.
    let _ = rustix::thread::set_name(c"ringway");
    let supervisor = taken.go_on(sandbox).context("ringway could not go on")?;
    replace::unblock_signals()?;
    tracing::info!(version = env!("CARGO_PKG_VERSION"), "the new supervisor goes on");
    supervisor.stores.fds.tell("READY=1");
    serve(supervisor, log)
}

fn serve(mut supervisor: Supervisor, log: &Log) -> anyhow::Result<()> {
    while let Ending::Replace = supervisor.serve()? {
        supervisor.give_place(|| log.flush(LAST_LINES));
    }
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
