//! A vhost-user back-end for devices that measurements bring along.
//!
//! How: the thread that moves packets also looks for messages of the front-end now and then, and
//! carries them out at once.
//!
//! Limits: one front-end and one queue pair, no control queue.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use ringway_device::{AnyGuestPort, Queue};
use ringway_host::{CallFd, Callee, GuestMemory, KickFd, LogRequest, MemoryRequest};
use ringway_net::{ControlState, Counters, Features, MacAddress, Negotiated, NetConfig};
use ringway_testkit::TestMemory;
use ringway_vhost_user::{
    Applied, Connection, Effect, Listener, MemoryRegion, Offer, Received, Session,
};
use ringway_virtq::{Arm, LOG_PAGE_LEN};

const MAC: MacAddress = MacAddress([2, 0x72, 0x77, 0, 0, 2]);

pub(crate) struct Backend {
    listener: Listener,
    link: Option<(Connection, Session)>,
    features: Features,
    /// The kicks that a queue asks its driver for when it starts.
    arm: Arm,
    memory: GuestMemory,
    pub port: AnyGuestPort,
    /// The features that the guest has accepted.
    pub accepted: Features,
    /// Of the receiveq and of the transmitq.
    pub fds: [QueueFds; 2],
    /// Queues were started, or their fds are others, since this was last set to `false`.
    pub has_changed: bool,
    /// Where written pages are marked, if they are.
    log: Option<WrittenPages>,
    /// For requests of the device, of which it has none: User Mode Linux removes a device that
    /// closes it.
    _channel: Option<Effect>,
}

/// Time between two moments at which a front-end takes the marks: less than one needs to copy even
/// small memory once.
const TAKE_EVERY: Duration = Duration::from_millis(10);

/// The log of pages that the device writes, and what a front-end does with it.
#[derive(Debug, Default)]
struct WrittenPages {
    bits: Option<TestMemory>,
    taken: Option<Instant>,
}

impl WrittenPages {
    /// A log of all pages in front of that address.
    fn renew(&mut self, end: u64) -> anyhow::Result<LogRequest> {
        let size = end.div_ceil(8 * LOG_PAGE_LEN).next_multiple_of(LOG_PAGE_LEN);
        let bits = TestMemory::new(&[(0, size)])?;
        let fd = bits.file().try_clone_to_owned()?.into();
        let offset = bits.file_offset(0);
        self.bits = Some(bits);
        Ok(LogRequest { size, offset, fd })
    }

    /// Takes all marks, when it is time.
    fn take(&mut self) {
        let Some(bits) = &self.bits else { return };
        if self.taken.is_none_or(|taken| taken.elapsed() >= TAKE_EVERY) {
            bits.region(0).zero();
            self.taken = Some(Instant::now());
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct QueueFds {
    pub kick: Option<KickFd>,
    pub call: Option<CallFd>,
    pub size: u16,
}

impl Backend {
    pub fn bind(socket: &Path, features: Features, arm: Arm) -> anyhow::Result<Self> {
        Ok(Self {
            listener: Listener::bind(socket)?,
            link: None,
            features: features.drop_unmet(),
            arm,
            memory: GuestMemory::empty(),
            port: empty_port(Negotiated::NOTHING),
            accepted: Features::empty(),
            fds: Default::default(),
            has_changed: false,
            log: None,
            _channel: None,
        })
    }

    /// The same, which marks the pages that it writes, whatever the front-end asks for.
    pub fn logged(self) -> Self {
        Self { log: Some(WrittenPages::default()), ..self }
    }

    /// Where its next front-end, and the one that it has, are heard.
    pub fn sockets(&self) -> (&Listener, Option<&Connection>) {
        (&self.listener, self.link.as_ref().map(|(connection, _)| connection))
    }

    /// Carries out what the front-end has asked for meanwhile.
    pub fn serve(&mut self) -> anyhow::Result<()> {
        if self.link.is_none()
            && let Some(connection) = self.listener.accept()?
        {
            self.link = Some((connection, Session::new(self.offer())));
            self.has_changed = true;
        }
        if let Some(log) = &mut self.log {
            log.take();
        }
        let Some((mut connection, mut session)) = self.link.take() else { return Ok(()) };
        loop {
            match connection.receive()? {
                Received::Request(message) => {
                    let outcome = session.handle(message);
                    let mut applied = Applied::OK;
                    for effect in outcome.effects {
                        self.apply(effect, &mut applied)?;
                    }
                    if let Some(reply) = session.complete(outcome.pending, applied) {
                        connection.send(&reply)?;
                    }
                }
                Received::Nothing => {
                    self.link = Some((connection, session));
                    return Ok(());
                }
                Received::Closed => {
                    self.forget(Negotiated::NOTHING);
                    return Ok(());
                }
            }
        }
    }

    fn offer(&self) -> Offer {
        let config =
            NetConfig { mac: MAC, link_up: true, announce: false, max_queue_pairs: 1, mtu: 1500 };
        Offer {
            features: self.features.bits(),
            queue_pairs_max: 1,
            has_control_queue: false,
            config: config.encode().to_vec(),
            memory_slots_max: ringway_virtq::REGIONS_MAX as u64,
            has_device_state: false,
        }
    }

    fn apply(&mut self, effect: Effect, applied: &mut Applied) -> anyhow::Result<()> {
        let callee = Callee::default();
        match effect {
            Effect::StopQueue { index } => {
                let stopped = Queue::from_index(index).and_then(|queue| self.port.stop(queue));
                applied.stopped.extend(stopped.map(|position| (index, position)));
            }
            Effect::Features(bits) => {
                let accepted = Features::from_bits_retain(bits) - Features::PROTOCOL_FEATURES;
                self.accepted = accepted;
                let negotiated = Negotiated::new(accepted.drop_unmet());
                self.forget(negotiated.map_err(|why| anyhow!("features: {why}"))?);
            }
            Effect::SetMemory(regions) => {
                let end = regions.iter().map(|it| it.guest_address + it.size).max();
                let memory = GuestMemory::map(regions.into_iter().map(request).collect())?;
                self.memory = match &mut self.log {
                    Some(log) => memory.with_log(log.renew(end.unwrap_or(0))?)?,
                    None => memory,
                };
            }
            Effect::AddMemory(region) => self.memory = self.memory.with(request(region))?,
            Effect::RemoveMemory(range) => {
                self.memory = self.memory.without(range.guest_address, range.size);
            }
            Effect::StartQueue { index, setup, kick, call, .. } => {
                let queue = Queue::from_index(index).context("queue")?;
                let started = self.port.start(queue, &setup, &self.memory.regions());
                started.map_err(|broken| anyhow!("{}: {}", queue.name(), broken.0))?;
                self.port.arm_kicks(queue, self.arm);
                let kick = kick.map(KickFd::new).transpose()?;
                let call = call.map(|fd| CallFd::new(fd, &callee)).transpose()?;
                *self.fds_of(index)? = QueueFds { kick, call, size: setup.size };
            }
            Effect::RebindQueue { index, areas } => {
                let queue = Queue::from_index(index).context("queue")?;
                let bound = self.port.rebind(queue, &areas, &self.memory.regions());
                bound.map_err(|broken| anyhow!("{}: {}", queue.name(), broken.0))?;
            }
            Effect::SetKick { index, fd } => {
                self.fds_of(index)?.kick = fd.map(KickFd::new).transpose()?;
            }
            Effect::SetCall { index, fd } => {
                self.fds_of(index)?.call = fd.map(|fd| CallFd::new(fd, &callee)).transpose()?;
            }
            channel @ Effect::BackendChannel(_) => self._channel = Some(channel),
            Effect::Reset => self.forget(Negotiated::NOTHING),
            // This device neither learns addresses nor reports.
            _ => {}
        }
        Ok(())
    }

    fn forget(&mut self, negotiated: Negotiated) {
        (self.port, self.fds) = (empty_port(negotiated), Default::default());
        self.has_changed = true;
    }

    fn fds_of(&mut self, index: u16) -> anyhow::Result<&mut QueueFds> {
        self.has_changed = true;
        self.fds.get_mut(usize::from(index)).context("queue")
    }
}

fn empty_port(negotiated: Negotiated) -> AnyGuestPort {
    AnyGuestPort::new(negotiated, ControlState::new(MAC, &negotiated), [Counters::default(); 2])
}

fn request(region: MemoryRegion) -> MemoryRequest {
    let MemoryRegion { guest_address, size, mmap_offset, fd, .. } = region;
    MemoryRequest { guest_address, size, mmap_offset, fd }
}
