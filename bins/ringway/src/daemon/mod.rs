//! The control thread: sockets, sessions, signals and statistics. It never touches a packet.
//!
//! One `epoll` loop. Whatever concerns a running queue is asked of the worker as a command and
//! waited for, so that a front-end's acknowledgement means that it has happened.

mod control_socket;
mod effects;
mod link;
mod stats;
mod vm_port;
mod worker_client;

use std::io::Read;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use ringway_host::{Event as WorkerEvent, Events, Poller, Tap, TapOptions};
use ringway_switch::{PORTS_MAX, PortId};
use tracing::{error, info, warn};

use crate::config::{PortKind, PortSpec, RunConfig};
use control_socket::ControlSocket;
use vm_port::VmPort;
use worker_client::WorkerClient;

/// Events handled per turn of the loop.
const EVENTS_MAX: usize = 64;

/// How long guests may read the changed configuration (link down) before we go.
const FAREWELL: Duration = Duration::from_millis(200);

/// Who woke the control thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wake {
    Signal,
    Worker,
    Control,
    ControlClient(u32),
    Listener(PortId),
    Link(PortId),
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
            _ => None,
        }
    }
}

/// One port as the control thread sees it.
struct Port {
    spec: PortSpec,
    /// Why the port does not work, if it does not.
    failure: Option<String>,
    vm: Option<VmPort>,
}

/// The running daemon.
pub struct Daemon {
    ports: Vec<Port>,
    poller: Poller,
    worker: WorkerClient,
    control: ControlSocket,
    signals: std::os::unix::net::UnixStream,
    started: Instant,
}

impl Daemon {
    /// Opens every port; a port that cannot be opened is reported and left out.
    ///
    /// # Errors
    /// No port at all could be opened, or the control socket cannot be.
    pub fn start(config: RunConfig) -> anyhow::Result<Self> {
        ringway_host::install_bus_guard().context("installing the SIGBUS handler")?;
        if config.ports.len() > PORTS_MAX {
            bail!("{} ports: at most {PORTS_MAX} are possible", config.ports.len());
        }
        let poller = Poller::new().context("epoll")?;
        let signals = catch_signals()?;
        poller.add(signals.as_fd(), Wake::Signal.token())?;
        let worker = WorkerClient::start().context("starting the worker")?;
        poller.add(worker.event_bell().as_fd(), Wake::Worker.token())?;
        let control = ControlSocket::bind(&config.settings)?;
        poller.add(control.as_fd(), Wake::Control.token())?;
        let mut daemon =
            Self { ports: Vec::new(), poller, worker, control, signals, started: Instant::now() };
        for (id, spec) in ids(PORTS_MAX).zip(config.ports) {
            daemon.open_port(id, spec);
        }
        if daemon.ports.iter().all(|port| port.failure.is_some()) {
            bail!("no port could be opened");
        }
        Ok(daemon)
    }

    fn open_port(&mut self, id: PortId, spec: PortSpec) {
        let mut port = Port { spec, failure: None, vm: None };
        if let Err(why) = self.try_open(id, &mut port) {
            error!(port = port.spec.name, "{why:#}");
            port.failure = Some(format!("{why:#}"));
        }
        self.ports.push(port);
    }

    fn try_open(&mut self, id: PortId, port: &mut Port) -> anyhow::Result<()> {
        match &port.spec.kind {
            PortKind::Vm { .. } | PortKind::VmConnect { .. } => {
                let vm = VmPort::open(id, &port.spec)?;
                if let Some(listener) = vm.listener_fd() {
                    self.poller.add(listener, Wake::Listener(id).token())?;
                }
                self.worker.attach_empty_guest(id, vm.mac);
                port.vm = Some(vm);
            }
            PortKind::Tap { name } => {
                let options = TapOptions { name: name.clone(), mtu: port.spec.mtu };
                self.worker.attach_tap(id, Tap::open(&options)?);
            }
            PortKind::TapFd { fd } => {
                self.worker.attach_tap(id, Tap::from_raw_fd_number(*fd)?);
            }
        }
        if !port.spec.is_link_up {
            self.worker.set_link(id, false);
        }
        info!(port = port.spec.name, "open: {}", port.spec.kind);
        Ok(())
    }

    /// Serves until a signal asks to stop.
    ///
    /// # Errors
    /// The worker has ended, or waiting failed.
    pub fn serve(&mut self) -> anyhow::Result<()> {
        let mut events = Events::with_capacity(EVENTS_MAX);
        loop {
            self.connect_due_ports();
            if !self.turn(&mut events, None)? {
                info!("stopping");
                return Ok(());
            }
        }
    }

    /// One wait and everything it brought; `false`: a signal asked to stop.
    fn turn(&mut self, events: &mut Events, at_most: Option<Duration>) -> anyhow::Result<bool> {
        let timeout = self.next_connect_in().into_iter().chain(at_most).min();
        self.poller.wait(events, timeout)?;
        for event in events.iter() {
            match Wake::from_token(event.token) {
                Some(Wake::Signal) => {
                    // Read, so that the next signal is noticed again.
                    let _ = (&self.signals).read(&mut [0; 16]);
                    return Ok(false);
                }
                Some(Wake::Worker) => self.on_worker_events()?,
                Some(Wake::Control) => self.accept_control_client(),
                Some(Wake::ControlClient(client)) => self.serve_control_client(client),
                Some(Wake::Listener(port)) => self.accept(port),
                Some(Wake::Link(port)) => self.serve_link(port),
                None => {}
            }
        }
        Ok(true)
    }

    /// Tells guests that the link is down, gives them a moment, and lets go of everything.
    pub fn shut_down(mut self) {
        let told = self.tell_link_down();
        let until = Instant::now() + FAREWELL;
        let mut events = Events::with_capacity(EVENTS_MAX);
        while told > 0 && Instant::now() < until && self.ports.iter().any(Port::is_linked) {
            let left = until.saturating_duration_since(Instant::now());
            // A second signal means: now.
            if !matches!(self.turn(&mut events, Some(left)), Ok(true)) {
                break;
            }
        }
        for id in ids(self.ports.len()) {
            self.drop_link(id);
        }
        self.worker.stop();
    }

    fn on_worker_events(&mut self) -> anyhow::Result<()> {
        for event in self.worker.take_events() {
            match event {
                WorkerEvent::Broken { port, queue, why } => {
                    let name = &self.ports[usize::from(port.0)].spec.name;
                    warn!(port = name, queue = queue.name(), "stopped, the guest broke it: {why}");
                }
            }
        }
        if self.worker.is_finished() {
            bail!("the data path thread has ended");
        }
        Ok(())
    }
}

impl Port {
    fn is_linked(&self) -> bool {
        self.vm.as_ref().is_some_and(VmPort::is_linked)
    }
}

/// The ids of that many ports.
fn ids(count: usize) -> impl Iterator<Item = PortId> {
    (0..u16::MAX).map(PortId).take(count)
}

/// SIGINT and SIGTERM make the returned stream readable.
fn catch_signals() -> anyhow::Result<std::os::unix::net::UnixStream> {
    let (read, write) = std::os::unix::net::UnixStream::pair().context("socketpair")?;
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::low_level::pipe::register(signal, write.try_clone()?)
            .context("catching signals")?;
    }
    read.set_nonblocking(true)?;
    Ok(read)
}
