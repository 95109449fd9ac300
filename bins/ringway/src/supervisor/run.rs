//! `ringway run`: from checked options to a running daemon, and to a clean end; and the same for a
//! program that takes its place.

use std::fs::File;
use std::rc::Rc;
use std::time::Duration;

use anyhow::Context;
use ringway_host::Poller;
use ringway_supervisor::succession::Event;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::config::{LowOption, RunConfig};
use crate::identity::Identity;
use crate::log::Log;
use crate::sandbox::Sandbox;
use crate::spec_text;

use super::clients::control_socket::ControlSocket;
use super::planes::Planes;
use super::planes::order::Requester;
use super::processes::journal::Watched;
use super::processes::replace;
pub use super::processes::take_over::TakenOver;
use super::record::file;
use super::setup::Setup;
pub use super::setup::activation::{Sockets, path_of as socket_path};
use super::setup::os::since_boot;
use super::{Ending, Supervisor};

pub use super::record::file::check;

/// How long lines of the log may take before another program takes this one's place.
const LAST_LINES: Duration = Duration::from_millis(100);

/// All that a ringway is told at its start.
pub struct Start {
    pub config: RunConfig,
    /// It ends where one port cannot be opened.
    pub needs_all: bool,
    /// Settings that count more than the file's whenever it is read.
    pub over: Vec<LowOption>,
    pub sandbox: Sandbox,
    /// Sockets on which a service manager listens already.
    pub sockets: Sockets,
}

impl Start {
    /// Opens every port and starts the data plane; a port that cannot be opened is reported and
    /// left out.
    ///
    /// # Errors
    /// No port at all could be opened, or not each where that is wanted, the control socket cannot
    /// be, or the data plane does not work.
    fn supervisor(self) -> anyhow::Result<Supervisor> {
        let Self { config, needs_all, over, sandbox, mut sockets } = self;
        let identity = Identity::here(&config.settings.control);
        let poller = Rc::new(Poller::new().context("epoll")?);
        let control = match sockets.control(&config.settings.control)? {
            Some(socket) => ControlSocket::over(socket, &config.settings, &poller)?,
            None => ControlSocket::bind(&config.settings, &poller)?,
        };
        let workers = spec_text::workers(&config);
        let planes = Planes::new(poller.clone(), Watched::create(workers)?);
        let started_ms = u64::try_from(since_boot().as_millis()).unwrap_or(0);
        let (settings, file) = (config.settings, config.file);
        let setup = Setup { settings, workers, identity, file, over, started_ms, sandbox, sockets };
        let mut supervisor = Supervisor::new(setup, poller, control, planes)?;
        supervisor.happens(Event::Begin);
        let asked = Requester::default();
        config.ports.into_iter().for_each(|spec| supervisor.open_configured(spec, &asked));
        supervisor.open_added();
        for name in supervisor.setup.sockets.names() {
            tracing::warn!("the service manager listens for {name:?}, and no port is called that");
        }
        supervisor.wait_for_the_first()?;
        supervisor.ports.check(needs_all)?;
        Ok(supervisor)
    }
}

/// Runs until SIGINT or SIGTERM.
///
/// # Errors
/// No port could be opened, the control socket is taken, or the data plane does not work.
pub fn run(start: Start, log: &Log) -> anyhow::Result<()> {
    allow_file_descriptors();
    let control = &start.config.settings.control;
    let control = std::path::absolute(control).unwrap_or_else(|_| control.clone());
    let supervisor = start.supervisor().context("ringway could not start")?;
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
