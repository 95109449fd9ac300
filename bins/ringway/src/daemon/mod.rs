//! The control thread: sockets, sessions, signals and statistics. It never touches a packet.
//!
//! One `epoll` loop. Whatever concerns a running queue is asked of the worker as a command and
//! waited for, so that a front-end's acknowledgement means that it has happened.

mod accept_backoff;
mod announcement;
mod chatter;
mod closing;
mod control_socket;
mod effects;
mod kicks;
mod knocks;
mod link;
mod nat_port;
mod peer;
mod ports;
mod reload;
mod requests;
mod stats;
mod tap_port;
mod vm_port;
mod worker_client;

use std::collections::BTreeMap;
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use ringway_foreign::DeferredDrop;
use ringway_host::{EventFd, Events, Poller, WorkerEvent};
use ringway_switch::{AddressNews, PortId};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use tracing::{info, warn};

use crate::config::{LowOption, RunConfig, Settings};
use crate::identity::Identity;
use crate::sandbox::Sandbox;
use control_socket::ControlSocket;
use peer::UserNames;
use ports::Port;
use worker_client::WorkerClient;

/// Events handled per turn of the loop.
const EVENTS_MAX: usize = 64;

/// How long guests may read that their link is down before the daemon ends.
const LINK_DOWN_GRACE: Duration = Duration::from_millis(200);

/// Who woke the control thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wake {
    Signal,
    Worker,
    Control,
    ControlClient(u32),
    Listener(PortId),
    Link(PortId),
    Reload,
    TornMemory,
    Kicks(PortId),
}

impl Wake {
    fn token(self) -> u64 {
        let (kind, number) = match self {
            Self::Signal => (0, 0),
            Self::Worker => (1, 0),
            Self::Control => (2, 0),
            Self::ControlClient(client) => (3, client),
            Self::Listener(port) => (4, u32::from(port.0)),
            Self::Link(port) => (5, u32::from(port.0)),
            Self::Reload => (6, 0),
            Self::TornMemory => (7, 0),
            Self::Kicks(port) => (8, u32::from(port.0)),
        };
        kind << 32 | u64::from(number)
    }

    fn from_token(token: u64) -> Option<Self> {
        let number = (token & 0xffff_ffff) as u32;
        let port = || u16::try_from(number).ok().map(PortId);
        match token >> 32 {
            0 => Some(Self::Signal),
            1 => Some(Self::Worker),
            2 => Some(Self::Control),
            3 => Some(Self::ControlClient(number)),
            4 => port().map(Self::Listener),
            5 => port().map(Self::Link),
            6 => Some(Self::Reload),
            7 => Some(Self::TornMemory),
            8 => port().map(Self::Kicks),
            _ => None,
        }
    }
}

/// The running daemon.
pub struct Daemon {
    ports: BTreeMap<PortId, Port>,
    poller: Poller,
    worker: WorkerClient,
    control: ControlSocket,
    signals: UnixStream,
    reload_signals: UnixStream,
    /// Rung when a front-end has taken away memory that a worker then touched.
    torn: &'static EventFd,
    settings: Settings,
    /// What default MAC addresses follow; it stays when the control socket moves.
    identity: Identity,
    /// The file to read again on SIGHUP.
    file: Option<PathBuf>,
    /// Settings that count more than the file's.
    over: Vec<LowOption>,
    started: Instant,
    sandbox: Sandbox,
    user_names: UserNames,
    /// Closes what refused front-ends have sent.
    refused: DeferredDrop,
}

impl Daemon {
    /// Opens every port; a port that cannot be opened is reported and left out. `over` are the
    /// settings that count more than the file's whenever it is read.
    ///
    /// # Errors
    /// No port at all could be opened, or the control socket cannot be.
    pub fn start(
        config: RunConfig,
        over: Vec<LowOption>,
        sandbox: Sandbox,
    ) -> anyhow::Result<Self> {
        let torn = ringway_host::install_bus_guard().context("installing the SIGBUS handler")?;
        let poller = Poller::new().context("epoll")?;
        poller.add(torn.as_fd(), Wake::TornMemory.token())?;
        let signals = catch(&[SIGINT, SIGTERM])?;
        poller.add(signals.as_fd(), Wake::Signal.token())?;
        let reload_signals = catch(&[SIGHUP])?;
        poller.add(reload_signals.as_fd(), Wake::Reload.token())?;
        let worker = start_workers(&config).context("starting the workers")?;
        poller.add(worker.event_bell().as_fd(), Wake::Worker.token())?;
        let identity = Identity::here(&config.settings.control);
        let control = ControlSocket::bind(&config.settings)?;
        poller.add(control.as_fd(), Wake::Control.token())?;
        let mut daemon = Self {
            ports: BTreeMap::new(),
            poller,
            worker,
            control,
            signals,
            reload_signals,
            torn,
            settings: config.settings,
            identity,
            file: config.file,
            over,
            started: Instant::now(),
            sandbox,
            user_names: UserNames::default(),
            refused: DeferredDrop::start().context("starting a thread")?,
        };
        daemon.worker.snoop_multicast(daemon.settings.snoop_multicast);
        config.ports.into_iter().for_each(|spec| daemon.open_configured(spec));
        let mut ports = daemon.ports.values().peekable();
        if ports.peek().is_some() && ports.all(|port| port.failure.is_some()) {
            bail!("no port could be opened");
        }
        Ok(daemon)
    }

    /// Serves until a signal asks to stop.
    ///
    /// # Errors
    /// The worker has ended, or waiting failed.
    pub fn serve(&mut self) -> anyhow::Result<()> {
        let mut events = Events::with_capacity(EVENTS_MAX);
        loop {
            self.connect_due_ports();
            self.listen_again();
            self.refuse_due_newcomers();
            self.ask_due_announcements();
            self.reopen_due_taps();
            self.look_around();
            self.finish_leaving_ports();
            self.end_closing();
            self.look_at_kicks();
            self.drop_slow_control_clients();
            if !self.turn(&mut events, None)? {
                info!("stopping");
                return Ok(());
            }
        }
    }

    /// One wait and everything it brought; `false`: a signal asked to stop.
    fn turn(&mut self, events: &mut Events, at_most: Option<Duration>) -> anyhow::Result<bool> {
        let deadlines = [
            self.next_try(),
            self.next_leaving(),
            self.next_reopening(),
            self.next_look_around(),
            self.next_announcement(),
            self.control.next_deadline(),
            self.next_listening(),
            self.next_refusal(),
            self.next_slow_closing(),
            self.next_look_at_kicks(),
        ];
        let soonest = deadlines.into_iter().flatten().min();
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
                Some(Wake::Reload) => {
                    let _ = (&self.reload_signals).read(&mut [0; 16]);
                    self.reload();
                }
                Some(Wake::TornMemory) => self.drop_torn_links(),
                Some(Wake::Worker) => self.on_worker_events()?,
                Some(Wake::Control) => self.accept_control_client(),
                Some(Wake::ControlClient(client)) => self.serve_control_client(client),
                Some(Wake::Listener(port)) => self.accept(port),
                Some(Wake::Link(port)) => self.serve_link(port),
                Some(Wake::Kicks(port)) => self.on_kicks(port),
                None => {}
            }
        }
        Ok(true)
    }

    /// Tells guests that the link is down, gives them a moment, and closes everything.
    pub fn shut_down(mut self) {
        let told = self.tell_link_down();
        let until = Instant::now() + LINK_DOWN_GRACE;
        let mut events = Events::with_capacity(EVENTS_MAX);
        while told > 0 && Instant::now() < until && self.ports.values().any(Port::is_linked) {
            let left = until.saturating_duration_since(Instant::now());
            // A second signal means: now.
            if !matches!(self.turn(&mut events, Some(left)), Ok(true)) {
                break;
            }
            self.end_closing();
        }
        for id in self.ids() {
            self.drop_link(id);
        }
        self.worker.stop();
    }

    fn on_worker_events(&mut self) -> anyhow::Result<()> {
        for event in self.worker.take_events() {
            match event {
                WorkerEvent::Broken { port, queue, why } => {
                    // It may have been removed since.
                    let Some(port) = self.ports.get_mut(&port) else { continue };
                    let name = &port.spec.name;
                    port.chatter.say(name, || {
                        warn!(port = name, %queue, "stopped, the guest broke it: {why}");
                    });
                }
                WorkerEvent::StartedAnew { port, queue, why } => {
                    warn!(port = self.name(port), %queue, "started anew: {why}");
                }
                WorkerEvent::TapGone { port } => self.on_tap_gone(port),
                WorkerEvent::ControlChanged { port } => {
                    let Some(state) = self.worker.share_control_state(port) else { continue };
                    let port = self.ports.get_mut(&port);
                    if let Some(vm) = port.and_then(|port| port.vm.as_mut()) {
                        vm.on_answers(state.announcements);
                    }
                }
                WorkerEvent::Address(news) => self.log_address(news),
                WorkerEvent::Stalled { port } => self.drop_stalled_link(port),
            }
        }
        self.drop_blocking_links();
        if self.worker.is_finished() {
            bail!("the data path thread has ended");
        }
        Ok(())
    }
}

impl Daemon {
    /// Not each: addresses may move all the time.
    fn log_address(&mut self, news: AddressNews) {
        let AddressNews { address, from, to, is_refused } = news;
        let from = self.name(from).to_owned();
        let Some(port) = self.ports.get_mut(&to) else { return };
        let name = &port.spec.name;
        port.chatter.say_address(name, || match is_refused {
            true => warn!(port = name, "uses {address}, which belongs to port {from}: dropped"),
            false => info!(port = name, "{address} has moved here from port {from}"),
        });
    }
}

/// As many workers as asked for; by itself one for each pair that some port may have, as far as
/// there are processors.
fn start_workers(config: &RunConfig) -> anyhow::Result<WorkerClient> {
    let settings = &config.settings;
    let count = settings.workers.unwrap_or_else(|| {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let pairs = config.ports.iter().map(|port| port.queues).max().unwrap_or(1);
        pairs.min(u16::try_from(processors).unwrap_or(u16::MAX))
    });
    WorkerClient::start(count, settings)
}

/// These signals make the returned stream readable.
fn catch(signals: &[i32]) -> anyhow::Result<UnixStream> {
    let (read, write) = UnixStream::pair().context("socketpair")?;
    for &signal in signals {
        signal_hook::low_level::pipe::register(signal, write.try_clone()?)
            .context("catching signals")?;
    }
    read.set_nonblocking(true)?;
    Ok(read)
}
