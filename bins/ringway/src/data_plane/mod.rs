//! The data plane: sessions, rings, the switch and its workers, in a process of its own
//! (`ringway data-plane`), which the supervisor starts and may start anew at any moment.
//!
//! One `epoll` loop. Whatever concerns a running queue is a job for the worker, which is waited
//! for, so that a front-end's acknowledgement means that it has happened. The control thread
//! never touches a packet. It opens nothing: sockets, taps and front-ends' requests come from the
//! supervisor, through the socket that is this process's standard input.
//!
//! How: each part owns its state, gets what it needs as arguments, and gives back what others are
//! to hear. [`DataPlane`] takes it to them: here by the loop and its timers, in `orders` for the
//! supervisor's messages, in `changes` for ports that come and go, in `sessions` for front-ends.

mod captures;
mod changes;
mod departed;
mod device_state;
mod given;
mod learned;
mod links;
mod mirrors;
mod orders;
mod ports;
mod process;
mod questions;
mod replay;
pub mod sandbox;
mod seen_ips;
mod sessions;
mod stations;
mod supervisor;
mod wake;
mod whereabouts;
pub mod workers;

use std::os::fd::AsFd;
use std::time::Instant;

use anyhow::{Context, bail};
use ringway_host::{AnnounceTo, Carrier, TapWatch, Worker, WorkerEvent};
use ringway_net::TapCalls;
use ringway_supervisor::wire::{Offence, ToSupervisor};
use ringway_switch::{AddressNews, PortId};
use tracing::{info, warn};

use crate::channel::MEASURED;
use crate::spec_text::PlaneSettings;
use captures::Captures;
use learned::Notes;
use mirrors::Mirrors;
use ports::{Port, Ports};
use process::Process;
use replay::Replay;
use sandbox::{Sandbox, attempt, filter};
use seen_ips::LastIps;
use stations::StationNews;
use supervisor::SupervisorEnd;
use wake::{Wake, Wakes};
use workers::Workers;

/// Rings that are made in advance for taps: two taps, each read and written by all workers.
const RINGS_PER_WORKER: usize = 4;

const SANDBOX_ADVICE: &str = "the sandbox: start with --sandbox off if it cannot be had here";

/// The running data plane.
pub struct DataPlane {
    ports: Ports,
    wakes: Wakes,
    workers: Workers,
    supervisor: SupervisorEnd,
    /// Until `Go`.
    replay: Option<Replay>,
    /// Another process goes on where this one has stopped.
    is_frozen: bool,
    captures: Captures,
    mirrors: Mirrors,
    process: Process,
    notes: Notes,
    told_ips: LastIps,
    station_news: StationNews,
}

/// A data plane that has heard from its supervisor, and has given up what it does not need.
pub struct Prepared {
    supervisor: SupervisorEnd,
    settings: PlaneSettings,
    sandbox: anyhow::Result<Option<Sandbox>>,
}

/// Says hello to the supervisor at standard input, and enters the sandbox. Before any other thread
/// is started.
///
/// # Errors
/// There is no supervisor, or it says what cannot be.
pub fn prepare() -> anyhow::Result<Prepared> {
    process::ignore_signals()?;
    process::be_killed_first();
    // Named after the number of a file descriptor otherwise.
    let _ = rustix::thread::set_name(c"ringway-plane");
    let (supervisor, settings) = SupervisorEnd::greet()?;
    process::end_at_panics(settings.sandbox);
    // Calls that open files, or make what may not be made later.
    // A reload may ask for what is measured.
    ringway_host::believe_calls(&std::env::var(MEASURED).unwrap_or_default());
    ringway_host::writes_from(TapCalls::Auto);
    ringway_host::reads_from(TapCalls::Auto);
    ringway_host::remember_mounts();
    let sandbox = settings.sandbox.then(|| {
        ringway_host::prepare_rings(RINGS_PER_WORKER * usize::from(settings.workers));
        Sandbox::enter(settings.routers)
    });
    Ok(Prepared { supervisor, settings, sandbox: sandbox.transpose() })
}

/// Serves the supervisor until that ends.
///
/// # Errors
/// The supervisor says what cannot be, or a worker has ended.
pub fn run(prepared: Prepared) -> anyhow::Result<()> {
    let Prepared { supervisor, settings, sandbox } = prepared;
    let begun = sandbox.context(SANDBOX_ADVICE).and_then(|sandbox| {
        let (wakes, workers) = begin(&supervisor, &settings)?;
        Ok((wakes, workers, Process::new(sandbox)))
    });
    let (wakes, workers, process) = match begun {
        Ok(begun) => begun,
        Err(why) => return Ok(supervisor.refuse(&why)?),
    };
    let mut plane = DataPlane {
        ports: Ports::default(),
        wakes,
        workers,
        station_news: StationNews::new(supervisor.given.is_told()),
        supervisor,
        replay: Some(Replay::default()),
        is_frozen: false,
        captures: Captures::default(),
        mirrors: Mirrors::default(),
        process,
        notes: Notes::default(),
        told_ips: LastIps::default(),
    };
    plane.serve()
}

/// Starts the workers, and forbids what is not needed any more.
fn begin(supervisor: &SupervisorEnd, settings: &PlaneSettings) -> anyhow::Result<(Wakes, Workers)> {
    let wakes = Wakes::new()?;
    wakes.watch(supervisor, Wake::Supervisor)?;
    let workers = Workers::start(settings).context("starting the workers")?;
    wakes.watch(&*workers.bell(), Wake::Worker)?;
    if settings.sandbox {
        attempt::attempt_later();
        let filtered = filter::filter_calls(settings.routers, supervisor.as_fd());
        filtered.context("seccomp").context(SANDBOX_ADVICE)?;
    }
    Ok((wakes, workers))
}

/// A row says when something is due, and what is done then, while the data plane serves.
struct Timer {
    /// `None`: nothing is to be done at any time.
    at: fn(&DataPlane) -> Option<Instant>,
    act: fn(&mut DataPlane),
    /// It is done in each turn, whatever has woken the thread: it may depend on that.
    is_of_each_turn: bool,
}

const fn timer(at: fn(&DataPlane) -> Option<Instant>, act: fn(&mut DataPlane)) -> Timer {
    Timer { at, act, is_of_each_turn: false }
}

const fn each_turn(at: fn(&DataPlane) -> Option<Instant>, act: fn(&mut DataPlane)) -> Timer {
    Timer { at, act, is_of_each_turn: true }
}

const TORN: &str = "the front-end took away memory that it had shared";
const STALLED: &str = "the front-end's memory made page faults sleep (a cold file, or holes that \
    it punched), or it sent what was never written";

/// In the order in which they are looked at.
const TIMERS: [Timer; 9] = [
    timer(|it| it.ports.earliest(|port| port.vm.as_ref()?.believes), DataPlane::open_links),
    each_turn(|it| it.ports.next_announcing(), DataPlane::announce_due),
    each_turn(|it| it.ports.earliest(|port| port.link()?.next_look()), DataPlane::look_at_kicks),
    timer(
        |it| it.ports.earliest(|port| port.link()?.presence.leaves_at),
        |it| it.guests().look_at_stopped(),
    ),
    each_turn(|it| it.ports.earliest(|port| port.link()?.state.next()), DataPlane::end_transfers),
    timer(|it| it.ports.earliest(|port| port.nat.look_at()), DataPlane::look_around),
    timer(|it| it.notes.next(), |it| it.notes.note(it.workers.shared())),
    timer(
        |it| it.told_ips.next(),
        |it| it.supervisor.tell_all(it.told_ips.take_due(&it.ports, it.workers.shared())),
    ),
    timer(
        |it| it.station_news.next(),
        |it| it.supervisor.tell_all(it.station_news.take_due(&it.workers)),
    ),
];

impl DataPlane {
    /// Serves until the supervisor ends.
    fn serve(&mut self) -> anyhow::Result<()> {
        while self.turn()? {}
        for id in self.ports.ids() {
            self.drop_link(id);
        }
        self.workers.stop();
        Ok(())
    }

    /// One wait and everything it brought; `false`: the supervisor has ended.
    fn turn(&mut self) -> anyhow::Result<bool> {
        self.run_due();
        self.end_closing();
        let due = TIMERS.iter().filter(|_| self.is_serving()).filter_map(|timer| (timer.at)(self));
        let timeout = due.min().map(|at| at.saturating_duration_since(Instant::now()));
        self.workers.ring();
        for wake in self.wakes.wait(timeout)? {
            match wake {
                Wake::Supervisor if self.serve_supervisor()? => {}
                Wake::Supervisor => return Ok(false),
                Wake::TornMemory => self.drop_torn_links(),
                Wake::Worker => self.on_worker_events()?,
                Wake::Kicks(port) => self.on_kicks(port),
                Wake::Capture(it) => {
                    self.captures.end(it, &self.ports, &self.wakes, &self.workers);
                }
            }
        }
        Ok(true)
    }

    /// Does everything that is due; nothing is unless it serves.
    fn run_due(&mut self) {
        for Timer { at, act, is_of_each_turn } in &TIMERS {
            let is_due = |it: &Self| at(it).is_some_and(|at| at <= Instant::now());
            if self.is_serving() && (*is_of_each_turn || is_due(self)) {
                act(self);
            }
        }
    }

    fn is_serving(&self) -> bool {
        !self.is_frozen && self.replay.is_none()
    }

    /// Packets go to all guests that believe by now that their links have come up.
    fn open_links(&mut self) {
        let now = Instant::now();
        let believes = |port: &mut Port| port.vm.as_mut()?.is_believed(now).then_some(port.id);
        let due: Vec<PortId> = self.ports.iter_mut().filter_map(believes).collect();
        due.into_iter().for_each(|id| self.workers.set_link(id, Carrier::Up));
    }

    /// Announces all guests whose time has come.
    fn announce_due(&mut self) {
        for (id, mac) in self.ports.take_announced(self.workers.shared()) {
            let announce = move |worker: &mut Worker| worker.announce(id, mac, AnnounceTo::Uplinks);
            self.workers.first().send(announce);
        }
    }

    /// Routers look at this machine.
    fn look_around(&mut self) {
        let now = Instant::now();
        for port in self.ports.iter_mut() {
            port.nat.look_around(now, &port.spec, &self.workers);
        }
    }

    /// Ports for which everything is closed are served again.
    fn end_closing(&mut self) {
        for port in self.ports.iter_mut() {
            let (id, bell) = (port.id, self.workers.bell());
            if port.vm.as_mut().is_some_and(|vm| vm.ends_closing(&bell, &self.wakes, id)) {
                self.supervisor.tell(&ToSupervisor::Closed { port: id.0 });
            }
        }
    }

    fn on_worker_events(&mut self) -> anyhow::Result<()> {
        for event in self.workers.take_events() {
            self.on_worker_event(event);
        }
        self.drop_blocking_links();
        if self.workers.is_finished() {
            bail!("the data path thread has ended");
        }
        Ok(())
    }

    /// The port of an event may have been removed since.
    fn on_worker_event(&mut self, event: WorkerEvent) {
        match event {
            WorkerEvent::Broken { port, queue, why } => {
                let Some(port) = self.ports.port_mut(port) else { return };
                port.say(|port| warn!(port, %queue, "stopped, the guest broke it: {why}"));
            }
            WorkerEvent::GoesOn { port, queue } => {
                let Some(port) = self.ports.port_mut(port) else { return };
                port.say(|port| info!(port, %queue, "goes on: the memory that it needs has come"));
            }
            WorkerEvent::StartedAnew { port, queue, why } => {
                warn!(port = self.ports.name(port), %queue, "started anew: {why}");
            }
            WorkerEvent::TapGone { port } => {
                // Perhaps of one that was opened anew since.
                let Some(port) = self.ports.port(port) else { return };
                if port.tap.iter().any(TapWatch::is_gone) {
                    self.supervisor.tell(&ToSupervisor::TapGone { port: port.id.0 });
                }
            }
            WorkerEvent::ControlChanged { port } => {
                let Some(state) = self.workers.share_control_state(port) else { return };
                if let Some(vm) = self.ports.vm(port) {
                    vm.on_answers(state.announcements);
                }
            }
            WorkerEvent::Learned => {
                self.notes.is_changed();
                self.told_ips.is_changed();
            }
            WorkerEvent::Stations { router } => self.station_news.note(router),
            WorkerEvent::Address(news) => self.log_address(news),
            WorkerEvent::Stalled { port } => self.drop_stalled_link(port),
        }
    }

    /// Not each: addresses may move all the time.
    fn log_address(&mut self, news: AddressNews) {
        let AddressNews { address, from, to, is_refused } = news;
        let from = self.ports.name(from).to_owned();
        let Some(port) = self.ports.port_mut(to) else { return };
        let name = &port.spec.name;
        port.chatter.say_address(name, || match is_refused {
            true => warn!(port = name, "uses {address}, which belongs to port {from}: dropped"),
            false => info!(port = name, "{address} has moved here from port {from}"),
        });
    }

    /// Disconnects front-ends that took away memory which a worker then touched.
    fn drop_torn_links(&mut self) {
        self.wakes.drain_torn();
        for id in self.ports.ids() {
            if self.ports.link(id).is_some_and(|link| link.memory.torn()) {
                self.let_go(id, None, TORN);
            }
        }
    }

    /// Disconnects front-ends for which a call would have waited.
    fn drop_blocking_links(&mut self) {
        for id in self.ports.ids() {
            if self.ports.link(id).is_some_and(|link| link.callee.has_blocked()) {
                self.drop_link(id);
            }
        }
    }

    /// Disconnects the front-end in whose memory a worker slept.
    fn drop_stalled_link(&mut self, id: PortId) {
        self.let_go(id, Some(Offence::Stalled), STALLED);
    }
}
