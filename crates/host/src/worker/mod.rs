//! The worker: owns its queue pairs outright, visits those that have something to do, sleeps
//! otherwise.
//!
//! One thread. `epoll` says which queue pair woke up; a visit does at most
//! [`BUDGET_UNITS`](crate::forward::budget::BUDGET_UNITS) units of work and then publishes and
//! notifies once. Jobs of the control thread are done between visits. Before the worker sleeps, it
//! arms every idle source and looks at it once more, so that no kick is lost.
//!
//! How: [`Worker::run`] takes turns. What a worker keeps is in values that decide and know nothing
//! of each other: what is to be done ([`Schedule`]), where packets can go ([`Ports`], [`Bridge`]),
//! whether to poll ([`IdlePolling`]). The files with an `impl Worker` put them together: this one
//! (turns), `visit.rs` (visits), `operations.rs` and `queue_operations.rs` (what jobs call).

pub(crate) mod announce;
pub(crate) mod arrivals;
pub(crate) mod bridge;
pub(crate) mod control_channel;
pub(crate) mod effort;
pub(crate) mod event;
pub(crate) mod holds;
pub(crate) mod idle_polling;
pub(crate) mod job;
pub(crate) mod operations;
pub(crate) mod poll_token;
pub(crate) mod queue_fds;
pub(crate) mod queue_operations;
pub(crate) mod schedule;
pub(crate) mod snapshot;
pub(crate) mod stalls;
pub(crate) mod visit;

use std::io;
use std::num::NonZeroU64;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};

use ringway_net::PollOptions;
use ringway_switch::Switch;

use crate::capture::observers::Observers;
use crate::forward::completion::Completion;
use crate::forward::rewrite::Rewriter;
use crate::journal::worker_line::WorkerLine;
use crate::os::call_guard::CallGuard;
use crate::os::clock::{now, thread_time};
use crate::os::eventfd::EventFd;
use crate::os::poller::{Events, Poller};
use crate::peers::WorkerPeers;
use crate::port::table::PortTable;
use crate::worker::arrivals::Arrivals;
use crate::worker::bridge::Bridge;
use crate::worker::control_channel::ControlChannel;
use crate::worker::effort::{EffortMeter, Spent, WorkerSnapshot};
use crate::worker::event::WorkerEvent;
use crate::worker::idle_polling::{IdlePolling, Pause};
use crate::worker::job::Job;
use crate::worker::poll_token::PollToken;
use crate::worker::schedule::Schedule;
use crate::worker::snapshot::note_counts;
use crate::worker::stalls::StallGuard;

/// Wake-ups handled per turn of the loop.
const EVENTS_MAX: usize = 64;

/// Jobs done in one turn; those behind them come after the next visits.
const JOBS_MAX: usize = 64;

/// The data path thread.
pub struct Worker {
    pub(crate) ports: PortTable,
    pub(crate) bridge: Bridge,
    pub(crate) poller: Poller,
    pub(crate) control: ControlChannel,
    pub(crate) peers: WorkerPeers,
    pub(crate) schedule: Schedule,
    pub(crate) buffers: Buffers,
    pub(crate) idle: IdlePolling,
    pub(crate) stalls: StallGuard,
    pub(crate) effort: EffortMeter,
    /// Where this worker notes what it does; behind the rings, which lie in it.
    pub(crate) journal: Option<WorkerLine>,
    /// The captures and mirrors, which see packets beside their receivers.
    pub(crate) observers: Observers,
}

/// Memory of the worker's own in which packets are changed.
pub(crate) struct Buffers {
    pub(crate) completion: Completion,
    pub(crate) rewriter: Rewriter,
}

/// How the control thread and a worker reach each other, and what workers have in common.
pub struct WorkerChannels {
    /// The jobs of the worker.
    pub jobs: Receiver<Job>,
    /// Rung after a job was sent.
    pub job_bell: Arc<EventFd>,
    /// The events that the worker notices.
    pub events: Sender<WorkerEvent>,
    /// Rung by the worker after an event was sent.
    pub event_bell: Arc<EventFd>,
    /// The other workers, if there are any.
    pub peers: WorkerPeers,
    /// The worker's switch, which shares its addresses with those of the other workers.
    pub switch: Switch,
    /// Whether it polls before it sleeps.
    pub poll: PollOptions,
}

impl Worker {
    /// A worker without ports.
    ///
    /// # Errors
    /// The operating system has no epoll instance left.
    pub fn new(channels: WorkerChannels) -> io::Result<Self> {
        let WorkerChannels { jobs, job_bell, events, event_bell, peers, switch, poll } = channels;
        let control = ControlChannel::new(jobs, job_bell, events, event_bell);
        let poller = Poller::new()?;
        poller.add_edge(control.bell().as_fd(), PollToken::Job.token())?;
        poller.add_edge(peers.wake_flag().bell().as_fd(), PollToken::Peer.token())?;
        Ok(Self {
            ports: PortTable::default(),
            bridge: Bridge::new(switch),
            poller,
            control,
            peers,
            schedule: Schedule::new(),
            buffers: Buffers { completion: Completion::new(), rewriter: Rewriter::new() },
            idle: IdlePolling::new(poll),
            stalls: StallGuard::new(),
            effort: EffortMeter::default(),
            journal: None,
            observers: Observers::default(),
        })
    }

    /// Runs until told to stop.
    ///
    /// # Errors
    /// Waiting itself failed, or at the start no timer was left; nothing else ends a worker.
    pub fn run(mut self) -> io::Result<()> {
        let _guard = CallGuard::new()?;
        self.stalls.start();
        let mut events = Events::with_capacity(EVENTS_MAX);
        // Timers of tens of microseconds: the usual slack of 50 would double them. A kernel that
        // refuses only makes them late.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        loop {
            self.take_pause(&mut events)?;
            let mut has_jobs = false;
            for event in events.iter() {
                match PollToken::from_token(event.token) {
                    Some(PollToken::Kick(slot, queue)) => self.on_kick(slot, queue),
                    Some(PollToken::Readable(slot)) => self.schedule.ready.add_first(slot),
                    Some(PollToken::Job) => has_jobs = true,
                    Some(PollToken::Peer) | None => {}
                }
            }
            if has_jobs && !self.do_jobs() {
                return Ok(());
            }
            self.take_arrivals();
            self.schedule.end_expired_holds(&mut self.ports, &mut self.peers);
            self.schedule.call_again(&mut self.ports);
            self.end_timers();
            self.visit_ready();
            self.control.tell_address_news(&mut self.bridge.switch, self.schedule.turn_at);
        }
    }

    fn take_pause(&mut self, events: &mut Events) -> io::Result<()> {
        let pause = self.pause();
        let mut sleeps_at = None;
        match pause {
            Pause::None => events.clear(),
            Pause::Wait(at_most) => {
                if pause.is_sleep() {
                    let now = now();
                    sleeps_at = Some(now);
                    self.stalls.visit_over(now, &mut self.ports);
                }
                self.journal.iter_mut().for_each(WorkerLine::asleep);
                self.poller.wait(events, at_most)?;
            }
        }
        self.journal.iter_mut().for_each(WorkerLine::awake);
        self.peers.wake_up();
        let turn_at = now();
        self.schedule.turn_at = turn_at;
        match sleeps_at {
            Some(at) => {
                let slept_ns = turn_at.since(at);
                self.effort.slept_ns += slept_ns;
                self.stalls.waited(slept_ns);
            }
            None => self.stalls.visit_over(turn_at, &mut self.ports),
        }
        self.stalls.turn_begins(turn_at);
        if self.stalls.is_watching() {
            self.end_stalled_guests();
        }
        if self.effort.roll(turn_at, self.idle.policy.counters().looked_ns) {
            self.note_counts();
        }
        if pause.is_sleep() && !events.iter().all(|event| event.token == PollToken::JOB) {
            self.effort.wakeups += 1;
        }
        Ok(())
    }

    fn pause(&mut self) -> Pause {
        self.idle.pause(&mut self.schedule, &mut self.ports, &self.peers)
    }

    /// The next data plane goes on from what is counted here.
    #[cold]
    pub(crate) fn note_counts(&mut self) {
        let spent = self.spent();
        if let Some(line) = &mut self.journal {
            line.note_spent(&spent);
            note_counts(&mut self.ports, &self.bridge.switch, line);
        }
    }

    /// Stops using the memory of guests in which the worker has slept for too long.
    #[cold]
    fn end_stalled_guests(&mut self) {
        while let Some(port) = self.stalls.take_stalled(&mut self.ports) {
            self.detach(port);
            self.control.tell(WorkerEvent::Stalled { port });
        }
        self.stalls.watch_on(self.schedule.turn_at, &mut self.ports);
    }

    /// `false`: the worker was told to stop.
    fn do_jobs(&mut self) -> bool {
        self.control.bell().drain();
        for _ in 0..JOBS_MAX {
            match self.control.next() {
                Some(Job::Do(work)) => work(self),
                Some(Job::Stop) => return false,
                None => return true,
            }
        }
        self.control.bell().notify();
        true
    }

    /// Delivers what other workers have handed over.
    fn take_arrivals(&mut self) {
        let Self { ports, schedule, .. } = self;
        let (completion, observers) = (&mut self.buffers.completion, self.observers.if_any());
        let journal = self.journal.as_ref();
        let mut arrivals = Arrivals { ports, schedule, completion, observers, journal, work: 0 };
        self.idle.has_found |= arrivals.take(&mut self.peers);
    }

    /// Does what guests' paces and polls have put off until now.
    fn end_timers(&mut self) {
        let now = now();
        for at in 0..self.ports.slots.len() {
            let pair = &mut self.ports.slots[at];
            let (slot, ended) = (pair.slot, pair.end_timers(now));
            self.schedule.after_call(ended.call_again);
            if ended.visit {
                self.schedule.ready.add(slot);
            }
            if ended.poll {
                self.poll_without_kick(slot);
            }
        }
    }

    /// Each slot that is ready now is visited once. A slot that becomes ready meanwhile is visited
    /// in the next turn.
    fn visit_ready(&mut self) {
        for _ in 0..self.schedule.ready.len() {
            let Some(slot) = self.schedule.ready.pop_front() else { break };
            self.visit(slot);
        }
    }

    /// How the worker spends its time.
    pub fn effort(&mut self) -> WorkerSnapshot {
        self.effort.roll(now(), self.idle.policy.counters().looked_ns);
        // The counts that are told are noted, as those of ports are.
        self.note_counts();
        let Spent { effort: total, polling, cpu_ns, slept_ns } = self.spent();
        WorkerSnapshot {
            worker: self.peers.index(),
            options: self.idle.policy.options(),
            is_polling: self.idle.policy.is_wanted(),
            cpu_ns,
            slept_ns,
            total,
            last_second: self.effort.last_second(),
            polling,
        }
    }

    /// The effort that it has spent, and those of its number in data planes before this one.
    fn spent(&self) -> Spent {
        let polling = self.idle.policy.counters();
        let effort = self.effort.total(polling.looked_ns);
        let (cpu_ns, slept_ns) = (thread_time().0, self.effort.slept_ns);
        self.effort.before.plus(&Spent { effort, polling, cpu_ns, slept_ns })
    }
}

#[cfg(test)]
mod tests;
