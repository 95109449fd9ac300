//! The worker: owns its ports outright, visits those that have something to do, sleeps otherwise.
//!
//! One thread. `epoll` says which port woke up; a visit does at most
//! [`BUDGET_UNITS`](crate::forward::BUDGET_UNITS) units of work and then publishes and notifies
//! once. Commands from the control thread run between visits. Before sleeping, every idle source
//! has been armed and looked at once more, so that no kick is lost.

pub(crate) mod announce;
pub(crate) mod arrivals;
pub(crate) mod claims;
pub(crate) mod command;
pub(crate) mod commands;
pub(crate) mod holds;
pub(crate) mod polling;
pub(crate) mod queue_commands;
pub(crate) mod ready;
pub(crate) mod slots;
pub(crate) mod snapshot;
pub(crate) mod stalls;
pub(crate) mod timers;
pub(crate) mod visit;
pub(crate) mod wake;

use std::collections::VecDeque;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};

use ringway_device::{Queue, QueueId};
use ringway_net::Nanos;
use ringway_net::{PollOptions, Polling};
use ringway_switch::{PORTS_MAX, PortId, Switch};
use ringway_virtq::Arm;

use crate::forward::completion::Completion;
use crate::forward::rewrite::Rewriter;
use crate::forward::{VisitEnd, mark_dirty};
use crate::os::clock::now;
use crate::os::effort::EffortMeter;
use crate::peers::WorkerPeers;
use crate::port::{End, Port, RoomAt};
use crate::uml::UmlRetryTimer;
use crate::worker::command::{Command, WorkerEvent};
use crate::worker::commands::COMMANDS_MAX;
use crate::worker::holds::Holds;
use crate::worker::polling::Pause;
use crate::worker::stalls::StallGuard;
use crate::worker::wake::Wake;
use crate::{CallGuard, EventFd, Events, Poller};

/// Wake-ups handled per turn of the loop.
const EVENTS_MAX: usize = 64;

/// The data path thread.
pub struct Worker {
    pub(crate) ports: Vec<Port>,
    pub(crate) switch: Switch,
    pub(crate) cable: Option<(PortId, PortId)>,
    pub(crate) poller: Poller,
    commands: Receiver<Command>,
    command_bell: Arc<EventFd>,
    events: Sender<WorkerEvent>,
    event_bell: Arc<EventFd>,
    /// The other workers.
    pub(crate) peers: WorkerPeers,
    pub(crate) ready: VecDeque<PortId>,
    pub(crate) dirty: Vec<PortId>,
    pub(crate) completion: Completion,
    /// Whose next packet waits, and for what.
    pub(crate) holds: Holds,
    /// Ports with a backlog.
    pub(crate) backlogs: usize,
    pub(crate) uml_retries: UmlRetryTimer,
    pub(crate) rewriter: Rewriter,
    pub(crate) polling: Polling,
    /// Ports whose transmitq has run empty and was not armed yet.
    pub(crate) unarmed: Vec<PortId>,
    /// Something was moved in this turn.
    pub(crate) has_found: bool,
    /// When this turn began.
    pub(crate) turn_at: Nanos,
    /// When file descriptors were last looked at without sleeping.
    pub(crate) polled_fds_at: Nanos,
    /// When an address that moved was last told of.
    pub(crate) news_told_at: Nanos,
    pub(crate) stalls: StallGuard,
    pub(crate) effort: EffortMeter,
}

/// How the control thread and a worker reach each other, and what workers have in common.
pub struct WorkerChannels {
    /// Requests to the worker.
    pub commands: Receiver<Command>,
    /// Rung after a request was sent.
    pub command_bell: Arc<EventFd>,
    /// What the worker noticed.
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
        let poller = Poller::new()?;
        poller.add_edge(channels.command_bell.as_fd(), Wake::Command.token())?;
        poller.add_edge(channels.peers.wake_flag().bell().as_fd(), Wake::WorkerPeers.token())?;
        Ok(Self {
            ports: Vec::new(),
            switch: channels.switch,
            cable: None,
            poller,
            commands: channels.commands,
            command_bell: channels.command_bell,
            events: channels.events,
            event_bell: channels.event_bell,
            peers: channels.peers,
            ready: VecDeque::with_capacity(PORTS_MAX),
            dirty: Vec::with_capacity(PORTS_MAX),
            completion: Completion::new(),
            holds: Holds::new(),
            backlogs: 0,
            uml_retries: UmlRetryTimer::default(),
            rewriter: Rewriter::new(),
            polling: Polling::new(channels.poll, now()),
            unarmed: Vec::with_capacity(PORTS_MAX),
            has_found: false,
            turn_at: now(),
            polled_fds_at: Nanos(0),
            news_told_at: Nanos(0),
            stalls: StallGuard::new(),
            effort: EffortMeter::default(),
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
            let mut has_commands = false;
            for event in events.iter() {
                match Wake::from_token(event.token) {
                    Some(Wake::Kick(port, queue)) => self.on_kick(port, queue),
                    Some(Wake::Readable(port)) => self.make_ready(port),
                    Some(Wake::Command) => has_commands = true,
                    Some(Wake::WorkerPeers) | None => {}
                }
            }
            if has_commands && !self.carry_out_commands() {
                return Ok(());
            }
            self.take_arrivals();
            self.end_expired_holds();
            self.call_again();
            self.end_timers();
            self.visit_ready();
            self.tell_address_news();
        }
    }

    fn take_pause(&mut self, events: &mut Events) -> io::Result<()> {
        let pause = self.pause();
        match pause {
            Pause::None => events.clear(),
            Pause::Wait(at_most) => {
                if pause.is_sleep() {
                    self.visit_over(now());
                    self.stalls.waits();
                }
                self.poller.wait(events, at_most)?;
            }
        }
        self.peers.wake_up();
        self.turn_at = now();
        if !pause.is_sleep() {
            self.visit_over(self.turn_at);
        }
        self.turn_begins();
        self.effort.roll(self.turn_at, self.polling.counters().looked_ns);
        if pause.is_sleep() && !events.iter().all(|event| event.token == Wake::COMMAND) {
            self.effort.wakeups += 1;
        }
        Ok(())
    }

    /// `false`: the worker was told to stop.
    fn carry_out_commands(&mut self) -> bool {
        self.command_bell.drain();
        for _ in 0..COMMANDS_MAX {
            match self.commands.try_recv() {
                Ok(Command::Stop) => return false,
                Ok(command) => self.carry_out(command),
                Err(_) => return true,
            }
        }
        self.command_bell.notify();
        true
    }

    fn on_kick(&mut self, id: PortId, queue: Queue) {
        let Some(port) = self.ports.get_mut(usize::from(id.0)) else { return };
        let End::Guest(guest) = &mut port.end else { return };
        guest.fds[queue as usize].kicks.count(self.effort.second());
        match queue {
            Queue::FromGuest => self.make_ready(id),
            Queue::ToGuest => {
                port.is_stuck = false;
                self.release_holds(RoomAt::Port(id));
                self.end_backlog(id);
            }
            Queue::Control => self.visit_control(id),
        }
    }

    pub(crate) fn visit_control(&mut self, id: PortId) {
        let Some(port) = self.ports.get_mut(usize::from(id.0)) else { return };
        let step = port.step();
        let End::Guest(guest) = &mut port.end else { return };
        let before = guest.queues.control_state().clone();
        if guest.queues.visit_control() && guest.call(Queue::Control) {
            self.uml_retries.expect(self.turn_at);
        }
        // Commands that raced in with arming wait for the port's next turn: no kick will come.
        port.has_commands = guest.queues.arm_kicks(Queue::Control, Arm::Next);
        let has_commands = port.has_commands;
        let has_changed = *guest.queues.control_state() != before;
        port.step_over(step);
        if has_changed {
            self.after_control(id, before.announcements);
        }
        if has_commands {
            self.make_ready(id);
        }
        self.report_broken(id);
    }

    pub(crate) fn visit(&mut self, id: PortId) {
        let at = usize::from(id.0);
        self.ports[at].is_ready = false;
        if std::mem::take(&mut self.ports[at].has_commands) {
            self.visit_control(id);
        }
        if self.holds.of(id).is_some() {
            return;
        }
        let (visit, packets) = self.move_packets(at);
        self.has_found |= packets > 0;
        self.effort.packets += packets;
        self.flush(id, visit);
        self.peers.publish();
        match visit {
            VisitEnd::More => self.make_ready(id),
            VisitEnd::Idle => self.on_idle(id),
            VisitEnd::Hold(to) => self.on_hold(id, to),
            VisitEnd::Wait(at_ns) => self.on_wait(id, at_ns),
        }
    }

    pub(crate) fn mark_dirty(&mut self, slot: PortId) {
        mark_dirty(&mut self.ports[usize::from(slot.0)], &mut self.dirty);
    }

    /// Nothing is left to take from this port now.
    fn on_idle(&mut self, id: PortId) {
        match &self.ports[usize::from(id.0)].end {
            End::Guest(_) if self.polling.is_wanted() => self.unarmed.push(id),
            End::Tap(_) => self.report_gone(id),
            _ => self.arm_idle(id),
        }
        self.report_broken(id);
    }

    /// Asks to be woken by the next packet, and looks once more in case it is already there.
    pub(crate) fn arm_idle(&mut self, id: PortId) {
        let port = &mut self.ports[usize::from(id.0)];
        let step = port.step();
        if let End::Guest(guest) = &mut port.end {
            guest.is_armed = guest.arm_idle();
            let is_armed = guest.is_armed;
            port.step_over(step);
            if !is_armed {
                self.make_ready(id);
            }
        }
    }

    pub(crate) fn tell(&self, event: WorkerEvent) {
        // The receiver lives as long as the worker; a full shutdown may have dropped it.
        if self.events.send(event).is_ok() {
            self.event_bell.notify();
        }
    }

    /// Tells the front-end and the control thread, once, about queues that the guest broke.
    pub(crate) fn report_broken(&mut self, id: PortId) {
        let Some(port) = self.ports.get_mut(usize::from(id.0)) else { return };
        let End::Guest(guest) = &mut port.end else { return };
        for queue in Queue::ALL {
            let Some(why) = guest.queues.broken(queue) else { continue };
            let fds = &mut guest.fds[queue as usize];
            if fds.is_broken_reported {
                continue;
            }
            fds.is_broken_reported = true;
            if let Some(error) = &fds.error {
                error.call();
            }
            // The receiver lives as long as the worker; a full shutdown may have dropped it.
            let queue = QueueId { pair: port.pair.pair, queue };
            if self.events.send(WorkerEvent::Broken { port: port.of, queue, why }).is_ok() {
                self.event_bell.notify();
            }
        }
    }
}

#[cfg(test)]
mod tests;
