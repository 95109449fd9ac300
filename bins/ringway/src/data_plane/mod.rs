//! The data plane: sessions, rings, the switch and its workers, in a process of its own
//! (`ringway data-plane`), which the supervisor starts and may start anew at any moment.
//!
//! One `epoll` loop. Whatever concerns a running queue is a job for the worker, which is waited
//! for, so that a front-end's acknowledgement means that it has happened. The control thread
//! never touches a packet. It opens nothing: sockets, taps and front-ends' requests come from the
//! supervisor, through the socket that is this process's standard input.

mod announcement;
mod captures;
mod closing;
mod departed;
mod effects;
mod given;
mod kicks;
mod learned;
mod link;
mod mirrors;
mod nat_port;
mod orders;
mod ports;
mod questions;
mod replay;
mod router;
pub mod sandbox;
mod seen_ips;
mod stations;
mod stats;
mod supervisor;
mod timers;
mod trace;
mod trace_reasons;
mod uplinks;
mod vm_port;
mod wake;
pub mod workers;

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use ringway_host::{Events, WorkerEvent};
use ringway_net::TapCalls;
use ringway_supervisor::wire::ToSupervisor;
use ringway_switch::{AddressNews, PortId};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use tracing::{info, warn};

use crate::channel::MEASURED;
use crate::spec_text::PlaneSettings;
use captures::Captures;
use learned::Notes;
use ports::Port;
use replay::Replay;
use sandbox::{Sandbox, attempt, filter};
use supervisor::SupervisorEnd;
use wake::{Wake, Wakes};
use workers::WorkerClient;

/// Events handled per turn of the loop.
const EVENTS_MAX: usize = 64;

/// Rings that are made in advance for taps: two taps, each read and written by all workers.
const RINGS_PER_WORKER: usize = 4;

/// See proc_pid_oom_score_adj(5): as if half of the memory were its own.
const OOM_SCORE: &str = "/proc/self/oom_score_adj";
const KILLED_FIRST: i32 = 500;

const SANDBOX_ADVICE: &str = "the sandbox: start with --sandbox off if it cannot be had here";

/// The running data plane.
pub struct DataPlane {
    ports: BTreeMap<PortId, Port>,
    /// The port of each front-end, until the supervisor says that it is gone.
    links: BTreeMap<u32, PortId>,
    wakes: Wakes,
    worker: WorkerClient,
    supervisor: SupervisorEnd,
    /// Until `Go`.
    replay: Option<Replay>,
    /// Another process goes on where this one has stopped.
    is_frozen: bool,
    sandbox: Option<Sandbox>,
    captures: Captures,
    /// Mirrors: the source port, and the port that gets the copies.
    mirrors: Vec<(PortId, PortId)>,
    started: Instant,
    /// Workers that the data plane before left in the midst of a visit: so many packets may have
    /// come twice.
    replayed: u64,
    notes: Notes,
    told_ips: seen_ips::LastIps,
    station_news: stations::StationNews,
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
    ignore_signals()?;
    be_killed_first();
    // Named after the number of a file descriptor otherwise.
    let _ = rustix::thread::set_name(c"ringway-plane");
    let (supervisor, settings) = SupervisorEnd::greet()?;
    end_at_panics(settings.sandbox);
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
    let started = sandbox.context(SANDBOX_ADVICE).and_then(|sandbox| {
        let (wakes, worker) = DataPlane::parts(&supervisor, &settings)?;
        Ok((wakes, worker, sandbox))
    });
    match started {
        Ok((wakes, worker, sandbox)) => {
            DataPlane::new(supervisor, &settings, wakes, worker, sandbox).serve()
        }
        Err(why) => Ok(supervisor.refuse(&why)?),
    }
}

/// A panic of any thread ends the process by a signal, as other faults do, so that the supervisor
/// knows whom to blame. In the sandbox there is no backtrace: files would be opened for it.
fn end_at_panics(is_sandboxed: bool) {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        match is_sandboxed {
            true => eprintln!("thread {:?} {panic}", std::thread::current().name().unwrap_or("")),
            false => usual(panic),
        }
        std::process::abort();
    }));
}

/// Where memory is short the kernel ends this process, and not the supervisor, which starts the
/// next one: guests see nothing of that. To be more likely to be chosen needs no right.
fn be_killed_first() {
    let now = std::fs::read_to_string(OOM_SCORE).unwrap_or_default();
    if now.trim().parse::<i32>().is_ok_and(|now| now < KILLED_FIRST) {
        // It is only better so.
        let _ = std::fs::write(OOM_SCORE, KILLED_FIRST.to_string());
    }
}

/// The supervisor decides when this process ends: what a terminal sends to both is for it.
fn ignore_signals() -> anyhow::Result<()> {
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)))
            .context("ignoring signals")?;
    }
    Ok(())
}

impl DataPlane {
    fn new(
        supervisor: SupervisorEnd,
        settings: &PlaneSettings,
        wakes: Wakes,
        worker: WorkerClient,
        sandbox: Option<Sandbox>,
    ) -> Self {
        let is_on = settings.snoop_multicast;
        worker.send_all(move |worker| worker.snoop_multicast(is_on));
        worker.shared().set_age_max(u64::from(settings.fdb_age_s) * 1000);
        Self {
            ports: BTreeMap::new(),
            links: BTreeMap::new(),
            wakes,
            worker,
            station_news: stations::StationNews::new(supervisor.given.is_told()),
            supervisor,
            replay: Some(Replay::default()),
            is_frozen: false,
            sandbox,
            captures: Captures::default(),
            mirrors: Vec::new(),
            started: Instant::now(),
            replayed: 0,
            notes: Notes::default(),
            told_ips: seen_ips::LastIps::default(),
        }
    }

    fn parts(
        supervisor: &SupervisorEnd,
        settings: &PlaneSettings,
    ) -> anyhow::Result<(Wakes, WorkerClient)> {
        let wakes = Wakes::new()?;
        wakes.watch(supervisor, Wake::Supervisor)?;
        let worker = WorkerClient::start(settings).context("starting the workers")?;
        wakes.watch(&worker.event_bell(), Wake::Worker)?;
        if settings.sandbox {
            attempt::attempt_later();
            let filtered = filter::filter_calls(settings.routers, supervisor.as_fd());
            filtered.context("seccomp").context(SANDBOX_ADVICE)?;
        }
        Ok((wakes, worker))
    }

    /// Serves until the supervisor ends.
    fn serve(&mut self) -> anyhow::Result<()> {
        let mut events = Events::with_capacity(EVENTS_MAX);
        while self.turn(&mut events)? {}
        for id in self.ids() {
            self.drop_link(id);
        }
        self.worker.stop();
        Ok(())
    }

    /// One wait and everything it brought; `false`: the supervisor has ended.
    fn turn(&mut self, events: &mut Events) -> anyhow::Result<bool> {
        self.run_due();
        self.end_closing();
        let timeout: Option<Duration> =
            self.next_due().map(|at| at.saturating_duration_since(Instant::now()));
        self.worker.ring();
        self.wakes.wait(events, timeout)?;
        for event in events.iter() {
            match Wake::from_token(event.token) {
                Some(Wake::Supervisor) if self.serve_supervisor()? => {}
                Some(Wake::Supervisor) => return Ok(false),
                Some(Wake::TornMemory) => self.drop_torn_links(),
                Some(Wake::Worker) => self.on_worker_events()?,
                Some(Wake::Kicks(port)) => self.on_kicks(port),
                Some(Wake::Capture(number)) => self.end_capture(number),
                None => {}
            }
        }
        Ok(true)
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
                WorkerEvent::GoesOn { port, queue } => {
                    let Some(port) = self.ports.get_mut(&port) else { continue };
                    let name = &port.spec.name;
                    port.chatter.say(name, || {
                        info!(port = name, %queue, "goes on: the memory that it needs has come");
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
                WorkerEvent::Learned => {
                    self.notes.is_changed();
                    self.told_ips.is_changed();
                }
                WorkerEvent::Stations { router } => self.station_news.note(router),
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

    /// A worker has found that the interface of a tap is gone; perhaps of one that was opened anew
    /// since.
    fn on_tap_gone(&mut self, id: PortId) {
        let Some(port) = self.ports.get(&id) else { return };
        if port.tap.iter().any(ringway_host::TapWatch::is_gone) {
            self.supervisor.tell(&ToSupervisor::TapGone { port: id.0 });
        }
    }

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
