//! The supervisor: names, listeners, taps, the control socket, and a copy of every file descriptor
//! that front-ends have sent. It frames their requests, hands them to the data plane and keeps what
//! the next data plane needs (`docs/supervisor.md`).
//!
//! One `epoll` loop, which never waits for the data plane, a front-end or a client. It maps no
//! guest's memory and reads no payload.

mod accept_backoff;
mod activation;
mod added_ports;
mod admission;
mod captures;
mod closing;
mod control_client;
mod control_socket;
mod death;
mod departed;
mod descriptors;
mod fd_store;
mod forward_sockets;
mod front_end;
mod journal;
mod messages;
mod neighbours;
mod opened;
mod order;
mod orders;
mod peer;
mod plane;
mod planes;
mod ports;
mod record;
mod reload;
mod reloading;
mod replace;
mod requests;
mod routers;
pub mod run;
mod shut_down;
mod source;
mod state_file;
mod stations;
mod stats;
mod succession;
mod system_calls;
mod take_over;
mod tap_port;
mod telling;
mod timers;
mod told;
mod upgrade;
mod vm_port;
mod wake;
mod write_down;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use ringway_foreign::DeferredDrop;
use ringway_host::{EventFd, Events, Poller};
use ringway_supervisor::requests::Requests;
use ringway_supervisor::restart::Restarts;
use ringway_supervisor::succession::Event;
use ringway_switch::PortId;
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};
use tracing::info;

use crate::config::resolver::Resolver;
use crate::config::{LowOption, RunConfig, Settings};
use crate::identity::Identity;
use crate::sandbox::Sandbox;
use crate::signals::{catch, is_ignored};
use crate::spec_text;
use activation::Sockets;
use added_ports::AddedPorts;
use control_socket::ControlSocket;
use departed::LeftStations;
use fd_store::FdStore;
use journal::Watched;
use neighbours::Neighbours;
use order::Requester;
use peer::UserNames;
use planes::Planes;
use ports::Port;
use requests::Question;
use wake::Wake;

/// Events handled per turn of the loop.
const EVENTS_MAX: usize = 64;

/// How long guests may read that their link is down before the daemon ends.
const LINK_DOWN_GRACE: Duration = Duration::from_millis(200);

/// How often is looked whether what is owed has come.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The program that this process runs.
const PROGRAM: &str = "/proc/self/exe";

/// Why a supervisor does not serve any more.
enum Ending {
    Stop,
    /// Another program takes its place.
    Replace,
}

/// SIGHUP stays ignored if nohup(1) has asked for that, unless there is a file to read again.
fn hears_hangup(file: Option<&Path>) -> bool {
    file.is_some() || !is_ignored(SIGHUP)
}

/// The running supervisor.
pub struct Supervisor {
    ports: BTreeMap<PortId, Port>,
    poller: Poller,
    control: ControlSocket,
    signals: UnixStream,
    reload_signals: UnixStream,
    /// A child was stopped, goes on or has ended.
    child_signals: UnixStream,
    /// Rung when a thread has closed what front-ends had sent.
    bell: Arc<EventFd>,
    settings: Settings,
    workers: u16,
    /// The identity that default MAC addresses follow; it stays when the control socket moves.
    identity: Identity,
    /// The file to read again on SIGHUP.
    file: Option<PathBuf>,
    /// Settings that count more than the file's.
    over: Vec<LowOption>,
    /// By the clock that counts from the start of the machine.
    started_ms: u64,
    sandbox: Sandbox,
    user_names: UserNames,
    /// Sockets on which a service manager listens, of no port yet.
    sockets: Sockets,
    /// Closes what refused front-ends have sent.
    refused: DeferredDrop,
    /// The program that data planes are started from.
    program: File,
    planes: Planes,
    journal: Watched,
    restarts: Restarts,
    /// The program that a client has named; behind an upgrade, the one before.
    other_program: Option<File>,
    /// The program that is to take this one's place is asked whether it can.
    check: Option<replace::Check>,
    fd_store: FdStore,
    /// Those of front-ends.
    requests: Requests,
    questions: BTreeMap<u32, Question>,
    reloading: Option<reloading::Reloading>,
    next_order: u32,
    next_ask: u32,
    next_link: u32,
    /// The data plane has told guests that their links are down: whether there were any.
    links_down: Option<bool>,
    counts: planes::Counts,
    /// This machine's resolvers, when they were looked at last.
    resolvers: crate::resolvers::Listed,
    /// Those that routers' options name, with the numbers that their interfaces had then.
    named_resolvers: BTreeMap<PortId, Vec<Resolver>>,
    looked_around: Instant,
    /// When its routes were looked at last.
    routes_at: Option<Instant>,
    station_file: stations::StationFile,
    departed: LeftStations,
    neighbours: Neighbours,
    added: AddedPorts,
    failed_reloads: u64,
    /// A client has asked for the end.
    is_to_stop: bool,
}

impl Supervisor {
    /// Opens every port and starts the data plane; a port that cannot be opened is reported and
    /// left out. `over` are the settings that count more than the file's whenever it is read.
    ///
    /// # Errors
    /// No port at all could be opened, or not each where that is wanted, the control socket cannot
    /// be, or the data plane does not work.
    pub fn start(
        (config, needs_all): (RunConfig, bool),
        over: Vec<LowOption>,
        (sandbox, mut sockets): (Sandbox, Sockets),
    ) -> anyhow::Result<Self> {
        let identity = Identity::here(&config.settings.control);
        let control = match sockets.control(&config.settings.control)? {
            Some(socket) => ControlSocket::over(socket, &config.settings)?,
            None => ControlSocket::bind(&config.settings)?,
        };
        let workers = spec_text::workers(&config);
        let journal = Watched::create(workers)?;
        let given = (sandbox, config.file);
        let mut supervisor =
            Self::new((config.settings, workers), identity, (control, journal), given)?;
        supervisor.over = over;
        supervisor.sockets = sockets;
        supervisor.happens(Event::Begin);
        let asked = Requester::default();
        config.ports.into_iter().for_each(|spec| supervisor.open_configured(spec, &asked));
        supervisor.open_added();
        for name in supervisor.sockets.names() {
            tracing::warn!("the service manager listens for {name:?}, and no port is called that");
        }
        supervisor.wait_for_the_first()?;
        supervisor.check_ports(needs_all)?;
        Ok(supervisor)
    }

    /// One without ports and without a data plane.
    fn new(
        (settings, workers): (Settings, u16),
        identity: Identity,
        (control, journal): (ControlSocket, Watched),
        (sandbox, file): (Sandbox, Option<PathBuf>),
    ) -> anyhow::Result<Self> {
        let hears_hangup = hears_hangup(file.as_deref());
        let poller = Poller::new().context("epoll")?;
        let signals = catch(&[SIGINT, SIGTERM])?;
        poller.add(signals.as_fd(), Wake::Signal.token())?;
        let reload_signals = catch(if hears_hangup { &[SIGHUP] } else { &[] })?;
        let child_signals = catch(&[SIGCHLD])?;
        poller.add(child_signals.as_fd(), Wake::Child.token())?;
        for caught in [&signals, &reload_signals, &child_signals] {
            caught.set_nonblocking(true)?;
        }
        if hears_hangup {
            poller.add(reload_signals.as_fd(), Wake::Reload.token())?;
        }
        let bell = Arc::new(EventFd::new().context("eventfd")?);
        poller.add(bell.as_fd(), Wake::Bell.token())?;
        poller.add(control.as_fd(), Wake::Control.token())?;
        poller.add(journal.bell(), Wake::WorkerEnd.token())?;
        Ok(Self {
            ports: BTreeMap::new(),
            poller,
            control,
            signals,
            reload_signals,
            child_signals,
            bell,
            settings,
            workers,
            identity,
            file,
            over: Vec::new(),
            started_ms: u64::try_from(write_down::since_boot().as_millis()).unwrap_or(0),
            sandbox,
            user_names: UserNames::default(),
            sockets: Sockets::default(),
            refused: DeferredDrop::start().context("starting a thread")?,
            program: File::open(PROGRAM)
                .with_context(|| format!("{PROGRAM} cannot be opened: mount /proc"))?,
            planes: Planes::new(0),
            journal,
            restarts: Restarts::default(),
            other_program: None,
            check: None,
            fd_store: FdStore::of_environment(vec![]),
            requests: Requests::default(),
            questions: BTreeMap::new(),
            reloading: None,
            next_order: 0,
            next_ask: 0,
            next_link: 0,
            links_down: None,
            counts: planes::Counts::default(),
            resolvers: crate::resolvers::at_start(),
            named_resolvers: BTreeMap::new(),
            looked_around: Instant::now(),
            routes_at: None,
            station_file: stations::StationFile::default(),
            departed: LeftStations::new(),
            neighbours: Neighbours::new(),
            added: AddedPorts::of_environment(),
            failed_reloads: 0,
            is_to_stop: false,
        })
    }

    /// Until the first data plane serves all ports.
    fn wait_for_the_first(&mut self) -> anyhow::Result<()> {
        let mut events = Events::with_capacity(EVENTS_MAX);
        while !self.planes.has_begun() {
            if !self.turn(&mut events, Some(LOOK_EVERY))? {
                bail!("stopped by a signal");
            }
            if let Some(why) = self.planes.why_ended.take() {
                bail!("{why}");
            }
        }
        Ok(())
    }

    /// Serves until a signal asks to stop, or another program is to take its place.
    ///
    /// # Errors
    /// Waiting failed.
    fn serve(&mut self) -> anyhow::Result<Ending> {
        let mut events = Events::with_capacity(EVENTS_MAX);
        loop {
            if self.is_to_stop {
                info!("stopping: ringway stop");
                return Ok(Ending::Stop);
            }
            self.run_due();
            self.tell_bridges();
            self.answer_reload();
            if !self.turn(&mut events, None)? {
                info!("stopping");
                return Ok(Ending::Stop);
            }
            if self.is_over() {
                info!("stopping: the front-end that it was given has gone");
                return Ok(Ending::Stop);
            }
            if self.is_to_be_replaced() {
                return Ok(Ending::Replace);
            }
        }
    }

    /// One wait and everything it brought; `false`: a signal asked to stop.
    fn turn(&mut self, events: &mut Events, at_most: Option<Duration>) -> anyhow::Result<bool> {
        self.end_closing();
        self.look_after_planes();
        self.fd_store.give_sign_of_life();
        self.store();
        self.keep_added();
        let soonest = self.next_due();
        let until = soonest.map(|at| at.saturating_duration_since(Instant::now()));
        let timeout = until.into_iter().chain(at_most).min();
        self.poller.wait(events, timeout)?;
        for event in events.iter() {
            match Wake::from_token(event.token) {
                Some(Wake::Signal) => {
                    // Read, so that the next signal is noticed again.
                    let _ = (&self.signals).read(&mut [0; 16]);
                    return Ok(false);
                }
                Some(Wake::Reload) if !self.planes.is_holding() => {
                    let _ = (&self.reload_signals).read(&mut [0; 16]);
                    // There is no file to read again: its terminal was closed.
                    if self.file.is_none() {
                        return Ok(false);
                    }
                    self.fd_store.tell(&fd_store::reloading());
                    self.reload();
                    self.fd_store.tell("READY=1");
                }
                Some(Wake::Bell) => drop(self.bell.drain()),
                Some(Wake::Control) => self.accept_control_client(),
                Some(Wake::ControlClient(client)) => self.serve_control_client(client),
                Some(Wake::Listener(port)) => self.accept(port),
                Some(Wake::Link(port)) => self.serve_link(port),
                Some(Wake::Plane(plane)) => self.hear_plane(plane),
                Some(Wake::PlaneEnd(plane)) => self.on_plane_end(plane),
                Some(Wake::WorkerEnd) => self.on_worker_end(),
                Some(Wake::Child) => self.on_child(),
                Some(Wake::Reload) | None => {}
            }
        }
        Ok(true)
    }
}
