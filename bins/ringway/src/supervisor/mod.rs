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
mod changes;
mod closing;
mod control_client;
mod control_clients;
mod control_socket;
mod data_planes;
mod death;
mod departed;
mod descriptors;
mod fd_store;
mod forward_sockets;
mod front_end;
mod guests;
mod journal;
mod load;
mod messages;
mod neighbours;
mod order;
mod os;
mod peer;
mod plane;
mod planes;
mod port;
mod ports;
mod questions;
mod record;
mod reload;
mod replace;
mod requests;
pub mod run;
mod setup;
mod source;
mod state_file;
mod station_file;
mod stations;
mod stats;
mod surroundings;
mod system_calls;
mod take_over;
mod tap_port;
mod taps;
mod telling;
mod timers;
mod told;
mod upgrade;
mod vm_port;
mod wake;
mod write_down;

use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use ringway_host::{Events, Poller};
use ringway_supervisor::succession::Event;
use ringway_supervisor::wire::ToData;
use tracing::info;

use crate::config::{LowOption, RunConfig};
use crate::identity::Identity;
use crate::sandbox::Sandbox;
use crate::spec_text;
use activation::Sockets;
use added_ports::AddedPorts;
use control_clients::LINES_PER_TURN;
use control_socket::ControlSocket;
use departed::LeftStations;
use fd_store::FdStore;
use journal::Watched;
use neighbours::Neighbours;
use order::{Order, Requester};
use os::{Os, since_boot};
use planes::Planes;
use ports::Ports;
use questions::Questions;
use reload::Reloads;
use replace::Programs;
use setup::Setup;
use station_file::StationFile;
use surroundings::Surroundings;
use timers::{TIMERS, Timer, next_due};
use wake::Wake;
use write_down::View;

/// Events handled per turn of the loop.
const EVENTS_MAX: usize = 64;

/// How long guests may read that their link is down before the daemon ends.
const LINK_DOWN_GRACE: Duration = Duration::from_millis(200);

/// How often is looked whether what is owed has come.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Longest wait for the data plane at the end.
const LAST_WAIT: Duration = Duration::from_secs(2);

/// Why a supervisor does not serve any more.
enum Ending {
    Stop,
    /// Another program takes its place.
    Replace,
}

/// The running supervisor: parts that do not know each other, each with its own fields. In here
/// one's news is handed to the next.
pub struct Supervisor {
    os: Os,
    setup: Setup,
    ports: Ports,
    control: ControlSocket,
    planes: Planes,
    programs: Programs,
    questions: Questions,
    reloads: Reloads,
    bridges: Bridges,
    surroundings: Surroundings,
    stores: Stores,
}

/// Bridges of this machine, as far as guests are behind them.
struct Bridges {
    departed: LeftStations,
    neighbours: Neighbours,
}

/// Files and descriptors by which another ringway goes on.
struct Stores {
    fds: FdStore,
    added: AddedPorts,
    stations: StationFile,
}

impl Supervisor {
    /// Opens every port and starts the data plane; a port that cannot be opened is reported and
    /// left out. `over` are the settings that count more than the file's whenever it is read.
    ///
    /// # Errors
    /// No port at all could be opened, or not each where that is wanted, the control socket cannot
    /// be, or the data plane does not work.
    pub fn start(
        config: RunConfig,
        needs_all: bool,
        over: Vec<LowOption>,
        sandbox: Sandbox,
        mut sockets: Sockets,
    ) -> anyhow::Result<Self> {
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
        let mut supervisor = Self::new(setup, poller, control, planes)?;
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

    /// One without ports and without a data plane.
    fn new(
        setup: Setup,
        poller: Rc<Poller>,
        control: ControlSocket,
        planes: Planes,
    ) -> anyhow::Result<Self> {
        let os = Os::new(poller, setup.file.as_deref())?;
        os.poller.add(control.as_fd(), Wake::Control.token())?;
        os.poller.add(planes.journal.bell(), Wake::WorkerEnd.token())?;
        let ports = Ports::new(&os)?;
        let bridges = Bridges { departed: LeftStations::new(), neighbours: Neighbours::new() };
        let fds = FdStore::of_environment(vec![]);
        let (added, stations) = (AddedPorts::of_environment(), StationFile::default());
        Ok(Self {
            os,
            setup,
            ports,
            control,
            planes,
            programs: Programs::new()?,
            questions: Questions::default(),
            reloads: Reloads::default(),
            bridges,
            surroundings: Surroundings::new(true),
            stores: Stores { fds, added, stations },
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
            if self.os.is_to_stop {
                info!("stopping: ringway stop");
                return Ok(Ending::Stop);
            }
            self.run_due();
            self.bridges.neighbours.tell(&self.ports);
            self.answer_reload();
            if !self.turn(&mut events, None)? {
                info!("stopping");
                return Ok(Ending::Stop);
            }
            if self.ports.is_over() {
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
        self.stores.fds.give_sign_of_life();
        self.store();
        self.stores.added.keep(&self.ports);
        let soonest = next_due(self);
        let until = soonest.map(|at| at.saturating_duration_since(Instant::now()));
        let timeout = until.into_iter().chain(at_most).min();
        self.os.poller.wait(events, timeout)?;
        for event in events.iter() {
            match Wake::from_token(event.token) {
                Some(Wake::Signal) => {
                    self.os.heed(Wake::Signal);
                    return Ok(false);
                }
                Some(Wake::Reload) if !self.planes.is_holding() => {
                    self.os.heed(Wake::Reload);
                    // There is no file to read again: its terminal was closed.
                    if self.setup.file.is_none() {
                        return Ok(false);
                    }
                    self.stores.fds.tell(&fd_store::reloading());
                    self.reload();
                    self.stores.fds.tell("READY=1");
                }
                Some(Wake::Bell) => drop(self.os.bell.drain()),
                Some(Wake::Control) => self.control.accept(),
                Some(Wake::ControlClient(client)) => self.serve_client(client as usize),
                Some(Wake::Listener(port)) => self.accept(port),
                Some(Wake::Link(port)) => self.serve_link(port),
                Some(Wake::Plane(plane)) => self.hear_plane(plane),
                Some(Wake::PlaneEnd(plane)) => self.on_plane_end(plane),
                Some(Wake::WorkerEnd) => self.on_worker_end(),
                Some(Wake::Child) => {
                    self.os.heed(Wake::Child);
                    self.planes.doubt();
                }
                Some(Wake::Reload) | None => {}
            }
        }
        Ok(true)
    }

    /// Does everything that is due.
    fn run_due(&mut self) {
        for Timer { at, act } in &TIMERS {
            // Asked behind it: what is to be done at once is due at the time of the question.
            if at(self).is_some_and(|at| at <= Instant::now()) {
                act(self);
            }
        }
    }

    /// A client has sent something, or can take more.
    fn serve_client(&mut self, slot: usize) {
        self.control.receive(slot);
        for _ in 0..LINES_PER_TURN {
            let Some((client, line)) = self.control.next_question(slot) else { break };
            self.answer(client, &line);
        }
        self.control.end_turn(slot);
    }

    /// Everything is kept by the service manager, if it can; for a supervisor that goes on when
    /// this process was killed, with another data plane.
    fn store(&mut self) {
        if self.stores.fds.has_store() {
            let mut store = std::mem::take(&mut self.stores.fds);
            View::of(self).store(&mut store);
            self.stores.fds = store;
        }
    }

    /// This machine's resolvers and routes are looked at, and routers hear of what is new.
    fn look_around(&mut self) {
        let (ports, identity) = (&mut self.ports, &self.setup.identity);
        self.stores.stations.write(ports, identity, false);
        for id in self.surroundings.look(ports, identity) {
            self.tell_router(id);
        }
    }

    /// Tells guests that the link is down, gives them a moment, and closes everything.
    pub fn shut_down(mut self) {
        self.programs.stop_check();
        self.stores.fds.tell("STOPPING=1");
        self.stores.fds.keep_only(&[]);
        self.stores.fds.store_nothing();
        let begun = Instant::now();
        let mut events = Events::with_capacity(EVENTS_MAX);
        let message = |order| ToData::LinksDown { order };
        if self.ports.any_linked() && self.planes.order(Order::LinksDown, message, vec![]) {
            let is_over = |this: &Self| {
                let is_waiting = match this.planes.links_down {
                    None => begun.elapsed() < LAST_WAIT,
                    Some(is_told) => is_told && begun.elapsed() < LINK_DOWN_GRACE,
                };
                !is_waiting || !this.ports.any_linked()
            };
            // A second signal means: now.
            while !is_over(&self)
                && matches!(self.turn(&mut events, Some(LOOK_EVERY / 10)), Ok(true))
            {}
        }
        for id in self.ports.ids() {
            self.drop_link(id, None);
        }
        self.bridges.neighbours.take_along();
        self.stores.stations.write(&mut self.ports, &self.setup.identity, true);
        self.planes.finish(LAST_WAIT);
    }
}
