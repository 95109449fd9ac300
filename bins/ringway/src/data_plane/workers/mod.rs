//! The control thread's end of the channels to the workers.

mod handle;
mod queues;
pub mod threads;

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use ringway_device::QueueId;
use ringway_host::{
    Callee, Carrier, EventFd, GuestMemory, NatPort, Tap, Worker, WorkerChannels, WorkerEvent,
    WorkerPeers,
};
use ringway_net::{ControlState, FromPair, TapCalls};
use ringway_switch::{PortId, PortPolicy, Shared, Switch};
use ringway_virtq::{Areas, Broken, Why};

use crate::config::PortSpec;
use crate::spec_text::PlaneSettings;
use handle::{Handle, log_calls};

pub use handle::Promise;
use threads::{check_pins, random_seed, spawn};

/// How long packets that were read from taps may wait for room when the workers are to stop.
const DELIVERED_WITHIN: Duration = Duration::from_millis(5);
const DELIVERED_PAUSE: Duration = Duration::from_micros(100);

/// Why something failed that a worker was asked for.
pub const NO_ANSWER: &str = "a data path thread does not answer";

/// The running workers. Queue pair `i` of every port belongs to worker `i`, counted round.
pub struct Workers {
    workers: Vec<Handle>,
    events: Receiver<WorkerEvent>,
    event_bell: Arc<EventFd>,
    /// The state that the switches of all workers have in common.
    shared: Arc<Shared>,
    /// How taps that are attached from now on are written and read.
    tap_writes: TapCalls,
    tap_reads: TapCalls,
}

impl Workers {
    /// Starts the workers, each on its processor if the settings name one.
    ///
    /// # Errors
    /// A processor that they name is not there, or the operating system refuses something.
    pub fn start(settings: &PlaneSettings) -> anyhow::Result<Self> {
        let count = settings.workers;
        check_pins(&settings.pins)?;
        let event_bell = Arc::new(EventFd::new()?);
        let (event_sender, events) = mpsc::channel();
        let shared = Shared::new(random_seed()?);
        let mut workers = Vec::new();
        for peers in WorkerPeers::of(count)? {
            let job_bell = Arc::new(EventFd::new()?);
            let (jobs, job_receiver) = mpsc::channel();
            let pin = settings.pins.get(usize::from(peers.index())).copied();
            let channels = WorkerChannels {
                jobs: job_receiver,
                job_bell: job_bell.clone(),
                events: event_sender.clone(),
                event_bell: event_bell.clone(),
                switch: Switch::over(shared.clone()),
                peers,
                poll: settings.poll,
            };
            let thread = spawn(channels, pin)?;
            workers.push(Handle::new(jobs, job_bell, thread));
        }
        let PlaneSettings { tap_writes, tap_reads, .. } = *settings;
        let client = Self { workers, events, event_bell, shared, tap_writes, tap_reads };
        client.set_switches(settings);
        Ok(client)
    }

    /// The state that the switches of all workers have in common.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// The bell of events, for others to ring, too.
    pub fn bell(&self) -> Arc<EventFd> {
        self.event_bell.clone()
    }

    pub fn take_events(&self) -> Vec<WorkerEvent> {
        self.event_bell.drain();
        self.events.try_iter().collect()
    }

    /// A front-end to be called; the bell of events says also that one has blocked a call.
    pub fn new_callee(&self) -> Callee {
        Callee::new(self.event_bell.clone())
    }

    /// Whether one of them has ended.
    pub fn is_finished(&self) -> bool {
        let mut threads = self.workers.iter().map(|worker| worker.thread.as_ref());
        threads.any(|thread| thread.is_none_or(JoinHandle::is_finished))
    }

    /// The worker that owns a pair.
    pub fn owner(&self, pair: u16) -> &Handle {
        &self.workers[usize::from(pair) % self.workers.len()]
    }

    /// The worker that has the routers, and announces guests.
    pub fn first(&self) -> &Handle {
        self.owner(0)
    }

    /// The workers see what they were told. Called before the control thread sleeps.
    pub fn ring(&self) {
        self.workers.iter().for_each(|worker| worker.ring());
    }

    /// Has every worker do the same.
    pub fn send_all(&self, work: impl FnOnce(&mut Worker) + Clone + Send + 'static) {
        self.workers.iter().for_each(|worker| worker.send(work.clone()));
    }

    /// The same; the answers of those that have not ended.
    pub fn ask_all<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Worker) -> T + Clone + Send + 'static,
    ) -> Vec<T> {
        let begin = |worker: &Handle| worker.begin(work.clone());
        let asked: Vec<_> = self.workers.iter().map(begin).collect();
        self.ring();
        asked.into_iter().filter_map(Promise::wait).collect()
    }

    /// The queues of one tap, for as many workers; the others write to them too.
    ///
    /// # Errors
    /// The operating system refuses something; no worker has the port then.
    pub fn attach_tap(&self, port: PortId, queues: Vec<Tap>) -> anyhow::Result<()> {
        let attached = self.attach_queues(port, queues);
        if attached.is_err() {
            self.ask_all(move |worker| worker.remove_port(port));
        }
        attached
    }

    fn attach_queues(&self, port: PortId, queues: Vec<Tap>) -> anyhow::Result<()> {
        let of = u16::try_from(queues.len()).unwrap_or(u16::MAX);
        let mut rest = Vec::new();
        for at in queues.len()..self.workers.len() {
            rest.push(queues[at % queues.len()].duplicate().context("sharing the tap")?);
        }
        let read = (0..of).map(|pair| Some(FromPair { pair, of })).chain(std::iter::repeat(None));
        let queues = queues.into_iter().chain(rest);
        for ((worker, mut tap), queue) in self.workers.iter().zip(queues).zip(read) {
            let written_from = tap.set_writes(self.tap_writes);
            log_calls(&tap, "written", written_from);
            if queue.is_some() {
                let read_from = tap.set_reads(self.tap_reads);
                log_calls(&tap, "read", read_from);
            }
            let tap = Box::new(tap);
            let attached = worker.ask(move |worker| worker.attach_tap(port, tap, queue));
            attached.context(NO_ANSWER)?.context("watching the tap")?;
        }
        Ok(())
    }

    /// The first worker has the router.
    ///
    /// # Errors
    /// It cannot be watched; no worker has the port then.
    pub fn attach_nat(&self, port: PortId, nat: Box<NatPort>) -> io::Result<()> {
        let mut nat = Some(nat);
        let attached = self.workers.iter().try_for_each(|worker| {
            let nat = nat.take();
            worker.ask(move |worker| worker.attach_nat(port, nat)).unwrap_or(Ok(()))
        });
        if attached.is_err() {
            self.ask_all(move |worker| worker.remove_port(port));
        }
        attached
    }

    /// Other memory, in which the queues of `moved` are elsewhere; `None`: no queue runs yet.
    ///
    /// # Errors
    /// A queue is not inside of it, or a worker has ended.
    pub fn set_memory(
        &self,
        port: PortId,
        memory: &GuestMemory,
        moved: Option<&[(QueueId, Areas)]>,
    ) -> Result<(), Broken> {
        let memory = memory.clone();
        let Some(moved) = moved.map(<[_]>::to_vec) else {
            self.send_all(move |worker| _ = worker.set_memory(port, &memory, &[]));
            return Ok(());
        };
        let bound = self.ask_all(move |worker| worker.set_memory(port, &memory, &moved));
        let is_everywhere = bound.len() == self.workers.len();
        let all = if is_everywhere { Ok(()) } else { Err(Broken(Why::BadArea)) };
        bound.into_iter().fold(all, Result::and)
    }

    /// Tells the other workers what a guest has set on its first worker.
    pub fn share_control_state(&self, port: PortId) -> Option<ControlState> {
        let (first, others) = self.workers.split_first()?;
        let state = first.ask(move |worker| worker.take_control_state(port)).flatten()?;
        for worker in others {
            let state = state.clone();
            worker.send(move |worker| worker.set_control_state(port, &state));
        }
        Some(state)
    }

    /// Nothing is read from taps any more; what was read is delivered, as far as there is room for
    /// it soon.
    pub fn stop_reading_taps(&self) {
        let until = Instant::now() + DELIVERED_WITHIN;
        while self.ask_all(Worker::stop_reading).contains(&false) {
            if Instant::now() >= until {
                return;
            }
            std::thread::sleep(DELIVERED_PAUSE);
        }
    }

    /// Waits until the workers have done all that they were told.
    pub fn catch_up(&self) {
        self.ask_all(|_| ());
    }

    /// Returns when no worker carries packets as before: a client that is told that a port is gone
    /// may send at once to what was behind it.
    pub fn set_link(&self, port: PortId, carrier: Carrier) {
        self.ask_all(move |worker| worker.set_link(port, carrier));
    }

    /// Says what a port may do, also before it is attached.
    pub fn set_policy(&self, port: PortId, policy: PortPolicy) -> anyhow::Result<()> {
        let set = self.ask_all(move |worker| worker.set_policy(port, policy));
        if set.len() < self.workers.len() {
            bail!(NO_ANSWER);
        }
        Ok(set.into_iter().collect::<Result<_, _>>()?)
    }

    /// Whether workers poll before they sleep, and what their switches do, from now on; and how
    /// taps that are attached later are written and read.
    pub fn change(&mut self, settings: &PlaneSettings) {
        let poll = settings.poll;
        self.send_all(move |worker| worker.set_poll(poll));
        self.set_switches(settings);
        self.tap_writes = settings.tap_writes;
        self.tap_reads = settings.tap_reads;
    }

    fn set_switches(&self, settings: &PlaneSettings) {
        let is_on = settings.snoop_multicast;
        self.send_all(move |worker| worker.snoop_multicast(is_on));
        self.shared.set_age_max(u64::from(settings.fdb_age_s) * 1000);
    }

    /// Options of a port that the workers follow have changed.
    pub fn follow(&self, port: PortId, before: &PortSpec, now: &PortSpec) {
        let (notify, is_on, offloads) = (now.notify, now.has_histograms, now.offloads);
        if notify != before.notify {
            self.send_all(move |worker| worker.set_notify(port, notify));
        }
        if is_on != before.has_histograms {
            self.send_all(move |worker| worker.count_waits(port, is_on));
        }
        if offloads != before.offloads {
            self.send_all(move |worker| worker.complete_for_tap(port, !offloads));
        }
    }

    pub fn stop(&mut self) {
        self.workers.iter().for_each(Handle::stop);
        self.ring();
        for thread in self.workers.iter_mut().filter_map(|worker| worker.thread.take()) {
            // A panic would have ended the process.
            let _ = thread.join();
        }
    }
}
