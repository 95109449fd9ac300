//! The control thread's end of the channel to the worker.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context;
use ringway_device::Queue;
use ringway_host::{
    Answer, Command, Event, EventFd, GuestMemory, PortSnapshot, QueueFds, Tap, Wire, Worker,
    WorkerChannels,
};
use ringway_net::notify::Policy;
use ringway_net::{MacAddress, Negotiated};
use ringway_switch::{PortId, PortPolicy};
use ringway_virtq::{Areas, Broken, Position, QueueSetup, Why};
use tracing::error;

/// The worker answers between two visits; this long only if it has ended.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// A running worker.
pub(super) struct WorkerClient {
    commands: Sender<Command>,
    command_bell: Arc<EventFd>,
    events: Receiver<Event>,
    event_bell: Arc<EventFd>,
    thread: Option<JoinHandle<()>>,
}

impl WorkerClient {
    pub(super) fn start() -> anyhow::Result<Self> {
        let command_bell = Arc::new(EventFd::new()?);
        let event_bell = Arc::new(EventFd::new()?);
        let (commands, command_receiver) = mpsc::channel();
        let (event_sender, events) = mpsc::channel();
        let channels = WorkerChannels {
            commands: command_receiver,
            command_bell: command_bell.clone(),
            events: event_sender,
            event_bell: event_bell.clone(),
        };
        let worker = Worker::new(channels, random_seed()?)?;
        let ended = event_bell.clone();
        let thread =
            std::thread::Builder::new().name("ringway-worker".into()).spawn(move || {
                if let Err(why) = worker.run() {
                    error!("worker: {why}");
                }
                ended.notify();
            })?;
        Ok(Self { commands, command_bell, events, event_bell, thread: Some(thread) })
    }

    pub(super) fn event_bell(&self) -> BorrowedFd<'_> {
        self.event_bell.as_fd()
    }

    pub(super) fn take_events(&self) -> Vec<Event> {
        self.event_bell.drain();
        self.events.try_iter().collect()
    }

    pub(super) fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    fn send(&self, command: Command) {
        // A worker that has ended is noticed through its bell.
        if self.commands.send(command).is_ok() {
            self.command_bell.notify();
        }
    }

    fn ask<T>(&self, command: impl FnOnce(Answer<T>) -> Command) -> Option<T> {
        let (done, answer) = mpsc::sync_channel(1);
        self.send(command(done));
        answer.recv_timeout(ANSWER_MAX).ok()
    }

    /// How the guests of a port are notified, from the next one on.
    pub(super) fn set_notify(&self, port: PortId, policy: Policy) {
        self.send(Command::SetNotify { port, policy });
    }

    /// A guest port without a guest: packets for it are dropped and counted.
    pub(super) fn attach_empty_guest(&self, port: PortId, mac: MacAddress) {
        self.attach_guest(port, Negotiated::NOTHING, mac, GuestMemory::empty());
    }

    pub(super) fn attach_guest(
        &self,
        port: PortId,
        negotiated: Negotiated,
        mac: MacAddress,
        memory: GuestMemory,
    ) {
        self.send(Command::AttachGuest { port, negotiated, mac, memory });
    }

    pub(super) fn attach_tap(&self, port: PortId, tap: Tap) {
        self.send(Command::AttachTap { port, tap: Box::new(tap) });
    }

    pub(super) fn detach(&self, port: PortId) {
        self.ask(|done| Command::Detach { port, done });
    }

    pub(super) fn set_memory(&self, port: PortId, memory: GuestMemory) -> Result<(), Broken> {
        self.ask(|done| Command::SetMemory { port, memory, done }).unwrap_or(GONE)
    }

    pub(super) fn start_queue(
        &self,
        port: PortId,
        queue: Queue,
        setup: QueueSetup,
        fds: QueueFds,
    ) -> Result<(), Broken> {
        self.ask(|done| Command::StartQueue { port, queue, setup, fds, done }).unwrap_or(GONE)
    }

    pub(super) fn stop_queue(&self, port: PortId, queue: Queue) -> Option<Position> {
        self.ask(|done| Command::StopQueue { port, queue, done }).flatten()
    }

    pub(super) fn rebind_queue(
        &self,
        port: PortId,
        queue: Queue,
        areas: Areas,
    ) -> Result<(), Broken> {
        self.ask(|done| Command::RebindQueue { port, queue, areas, done }).unwrap_or(GONE)
    }

    pub(super) fn set_wire(&self, port: PortId, queue: Queue, wire: Wire) {
        self.send(Command::SetWire { port, queue, wire });
    }

    pub(super) fn announce(&self, port: PortId, mac: MacAddress) {
        self.send(Command::Announce { port, mac });
    }

    pub(super) fn set_link(&self, port: PortId, is_up: bool) {
        self.send(Command::SetLink { port, is_up });
    }

    pub(super) fn set_tap_mtu(&self, port: PortId, mtu: u16) -> anyhow::Result<()> {
        let set = self.ask(|done| Command::SetTapMtu { port, mtu, done });
        set.context("the data path thread does not answer")?.map_err(Into::into)
    }

    /// Says what a port may do, also before it is attached.
    pub(super) fn set_policy(&self, port: PortId, policy: PortPolicy) -> anyhow::Result<()> {
        let policy = Box::new(policy);
        let set = self.ask(|done| Command::SetPolicy { port, policy, done });
        set.context("the data path thread does not answer")?.map_err(Into::into)
    }

    pub(super) fn snoop_multicast(&self, is_on: bool) {
        self.send(Command::SnoopMulticast { is_on });
    }

    /// Returns when the port's id can be used again.
    pub(super) fn remove_port(&self, port: PortId) {
        self.ask(|done| Command::RemovePort { port, done });
    }

    pub(super) fn snapshot(&self) -> Vec<PortSnapshot> {
        self.ask(|done| Command::Snapshot { done }).unwrap_or_default()
    }

    pub(super) fn stop(&mut self) {
        self.send(Command::Stop);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            error!("the data path thread panicked");
        }
    }
}

const GONE: Result<(), Broken> = Err(Broken(Why::BadArea));

fn random_seed() -> anyhow::Result<u64> {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .context("getrandom")?;
    Ok(u64::from_le_bytes(bytes))
}
