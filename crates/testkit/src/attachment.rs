//! Bringing a vhost-user device up: what a VM monitor and its guest do together before the first
//! packet (virtio 1.2 §3.1.1, and the vhost-user document's "Starting and stopping rings").
//!
//! How: the rings lie in one region of guest memory and the buffers in another, with a hole
//! between them, so that nothing works by accident of layout.
//!
//! Limits: one queue pair, plus the control queue if negotiated.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::Duration;

use ringway_driver::{Arena, ArenaFull, ControlFailure, RxScheme};
use ringway_host::EventFd;
use ringway_net::{FeatureError, Features, MacAddress, Negotiated, NetConfig};
use ringway_vhost_user::{
    Frontend, FrontendError, MemoryRegion, ProtocolFeatures, QueueStart, base_from_position,
};
use ringway_virtq::{Areas, Broken, Format, Position};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::arena::TestMemory;
use crate::frames::Mac;
use crate::rings::Ring;

/// Where the rings are in guest memory.
const RINGS_AT: u64 = 0x10_0000;
/// Room for three queues of 32768 entries.
const RINGS_LEN: u64 = 4 << 20;
/// Where the buffers are.
const BUFFERS_AT: u64 = 0x1_4000_0000;
/// Bytes of buffer memory per queue entry and direction: the longest packet, rounded up.
const BUFFER_LEN: u64 = 66_048;
/// Bytes beside the buffers: control commands, and a hostile guest's scratch.
const EXTRA_LEN: u64 = 2 << 20;
/// Size of the control queue.
const CONTROL_QUEUE_SIZE: u16 = 64;
/// User addresses differ from guest-physical ones, so that taking one for the other is noticed.
const USER_OFFSET: u64 = 0x7f00_0000_0000;
/// Longest wait for an answer on the vhost-user socket.
pub(crate) const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// Bytes of the configuration space that are read: up to and including the MTU.
const CONFIG_READ_LEN: u32 = 12;
/// Device status (virtio 1.2 §2.1) at the steps of §3.1.1.
const STATUS_DRIVER: u8 = 1 | 2;
const STATUS_FEATURES_OK: u8 = STATUS_DRIVER | 8;
const STATUS_DRIVER_OK: u8 = STATUS_FEATURES_OK | 4;

/// The options of a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestOptions {
    /// The driver accepts what is offered and in this set; `VERSION_1` must be in both.
    pub accept: Features,
    /// Entries of receiveq and transmitq, a power of two up to 1024.
    pub queue_size: u16,
    /// Queue pairs that a [`UserGuest`](crate::UserGuest) uses, if the device has so many.
    pub queue_pairs: u16,
    /// Scheme of receive buffers, if they can be merged; otherwise big ones.
    pub rx_scheme: RxScheme,
    /// Elements per receive buffer.
    pub rx_elements: u16,
    /// Bytes of memory for received packets that are held, beyond what fills the ring.
    pub rx_spare_len: u32,
    /// Header and packet in two elements when sending.
    pub header_apart: bool,
    /// The guest's address if the device gives it none.
    pub mac: Mac,
}

impl Default for GuestOptions {
    fn default() -> Self {
        Self {
            accept: Features::OFFERED,
            queue_size: 256,
            queue_pairs: 1,
            rx_scheme: RxScheme::Page,
            rx_elements: 1,
            rx_spare_len: 0,
            header_apart: false,
            mac: [2, 0x72, 0x77, 0, 0, 1],
        }
    }
}

/// Why a guest cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum GuestError {
    /// The operating system, or the socket.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The device broke the rules of the ring.
    #[error("the device broke the ring: {}", .0.0)]
    Broken(Broken),
    /// The memory planned for the guest is not enough for the options.
    #[error("the guest's memory is full")]
    ArenaFull,
    /// The features that are left do not fit together.
    #[error("{0}")]
    Features(FeatureError),
    /// The device does not offer what is needed.
    #[error("not negotiated: {0}")]
    NotNegotiated(&'static str),
    /// A control command could not be started.
    #[error("control command: {0:?}")]
    Control(ControlFailure),
    /// The device does not come up.
    #[error("bring-up: {0}")]
    BringUp(String),
    /// The device does not answer a control command.
    #[error("no answer on the control queue")]
    NoAnswer,
    /// The vhost-user back-end refuses, or went away.
    #[error("{0}")]
    Frontend(#[from] FrontendError),
}

impl From<Broken> for GuestError {
    fn from(broken: Broken) -> Self {
        Self::Broken(broken)
    }
}

impl From<ArenaFull> for GuestError {
    fn from(_: ArenaFull) -> Self {
        Self::ArenaFull
    }
}

impl From<FeatureError> for GuestError {
    fn from(error: FeatureError) -> Self {
        Self::Features(error)
    }
}

/// A queue the device is told about.
#[derive(Debug)]
pub struct AttachedQueue {
    /// Its memory.
    pub ring: Ring,
    kick: EventFd,
    call: EventFd,
}

impl AttachedQueue {
    fn new(ring: Ring) -> io::Result<Self> {
        Ok(Self { ring, kick: EventFd::new()?, call: EventFd::new()? })
    }

    /// Tells the device that there is something new.
    pub fn kick(&self) {
        self.kick.notify();
    }

    /// The eventfd through which the device calls; it has the same open file description.
    pub fn call_fd(&self) -> BorrowedFd<'_> {
        self.call.as_fd()
    }
}

/// A device that is there, without a driver yet; [`start`](Attachment::start) makes it look at its
/// queues.
#[derive(Debug)]
pub struct Attachment {
    frontend: Frontend,
    /// The result of the negotiation.
    pub negotiated: Negotiated,
    /// The guest's address.
    pub mac: Mac,
    /// Receiveq, transmitq, and the controlq if negotiated.
    pub queues: Vec<AttachedQueue>,
    /// Memory for buffers.
    pub arena: Arena,
    /// All memory shared with the device.
    pub memory: TestMemory,
}

impl Attachment {
    /// Connects to a device that listens on `socket`, negotiates, and shares memory.
    ///
    /// # Errors
    /// The device is not there, or refuses.
    pub fn new(socket: &Path, options: &GuestOptions) -> Result<Self, GuestError> {
        assert!(options.queue_size <= 1024, "queue size {}", options.queue_size);
        let mut frontend = Frontend::connect(socket, ANSWER_LIMIT)?;
        let negotiated = negotiate(&mut frontend, options.accept)?;
        let buffers_len =
            (2 * u64::from(options.queue_size) * BUFFER_LEN + EXTRA_LEN).next_multiple_of(4096);
        let memory = TestMemory::new(&[(BUFFERS_AT, buffers_len), (RINGS_AT, RINGS_LEN)])?;
        frontend.set_memory(memory_table(&memory)?)?;
        let arena = Arena::new(memory.region(0), BUFFERS_AT);
        let queues = carve_queues(&memory, &negotiated, options.queue_size)?;
        Ok(Self { frontend, negotiated, mac: options.mac, queues, arena, memory })
    }

    /// Starts the queues. Set up a driver before: that zeroes the rings, and with them what a
    /// started device has written there, that it wants no kicks.
    ///
    /// # Errors
    /// The device went away, or refuses.
    pub fn start(&mut self) -> Result<(), GuestError> {
        start_queues(&mut self.frontend, &self.queues, self.negotiated.format)?;
        set_status(&mut self.frontend, STATUS_DRIVER_OK)?;
        if self.negotiated.features.contains(Features::MAC) {
            self.mac = self.config()?.mac.0;
        }
        Ok(())
    }

    /// The ring format negotiated.
    pub fn format(&self) -> Format {
        self.negotiated.format
    }

    /// The device's configuration space, read now.
    ///
    /// # Errors
    /// The device went away, or has none.
    pub fn config(&mut self) -> Result<NetConfig, GuestError> {
        let bytes = self.frontend.config(CONFIG_READ_LEN)?;
        let word = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let mut mac = [0; 6];
        mac.copy_from_slice(&bytes[..6]);
        Ok(NetConfig {
            mac: MacAddress(mac),
            link_up: word(6) & 1 != 0,
            announce: word(6) & 2 != 0,
            max_queue_pairs: word(8),
            mtu: word(10),
        })
    }

    /// Whether the device has said since the last time asked that the configuration changed.
    ///
    /// # Errors
    /// The device went away.
    pub fn config_changed(&mut self) -> Result<bool, GuestError> {
        Ok(self.frontend.config_changed()?)
    }

    /// Waits for a call on a queue and takes it. `false`: none within `timeout`.
    ///
    /// # Errors
    /// From the operating system.
    pub fn wait_call(&self, queue: usize, timeout: Duration) -> Result<bool, GuestError> {
        let call = &self.queues[queue].call;
        let timeout = Timespec::try_from(timeout).map_err(io::Error::other)?;
        let mut waiting = [PollFd::new(call, PollFlags::IN)];
        match poll(&mut waiting, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => Ok(call.drain()),
            Err(error) => Err(GuestError::Io(error.into())),
        }
    }

    /// Stops all queues and disconnects.
    ///
    /// # Errors
    /// The device went away before, or refuses.
    pub fn detach(mut self) -> Result<(), GuestError> {
        for index in (0..).take(self.queues.len()) {
            self.frontend.stop_queue(index)?;
        }
        set_status(&mut self.frontend, 0)
    }
}

fn negotiate(frontend: &mut Frontend, accept: Features) -> Result<Negotiated, GuestError> {
    set_status(frontend, STATUS_DRIVER)?;
    let offered = Features::from_bits_retain(frontend.offered_features());
    // OFFERED is also all that this driver knows.
    let accepted = offered.intersection(accept).intersection(Features::OFFERED).drop_unmet();
    if !accepted.contains(Features::VERSION_1) {
        return Err(GuestError::NotNegotiated("VERSION_1"));
    }
    frontend.accept_features(accepted.bits())?;
    set_status(frontend, STATUS_FEATURES_OK)?;
    Ok(Negotiated::new(accepted)?)
}

/// A monitor passes the guest's writes to the device status on, if the device wants them.
fn set_status(frontend: &mut Frontend, status: u8) -> Result<(), GuestError> {
    if frontend.protocol_features().contains(ProtocolFeatures::STATUS) {
        frontend.set_status(status)?;
    }
    Ok(())
}

pub(crate) fn memory_table(memory: &TestMemory) -> io::Result<Vec<MemoryRegion>> {
    let describe = |(at, &(guest_address, size)): (usize, &(u64, u64))| {
        Ok(MemoryRegion {
            guest_address,
            size,
            user_address: guest_address + USER_OFFSET,
            mmap_offset: memory.file_offset(at),
            fd: memory.file().try_clone_to_owned()?.into(),
        })
    };
    memory.ranges().iter().enumerate().map(describe).collect()
}

fn carve_queues(
    memory: &TestMemory,
    negotiated: &Negotiated,
    size: u16,
) -> Result<Vec<AttachedQueue>, GuestError> {
    let mut arena = Arena::new(memory.region(1), RINGS_AT);
    let mut queues = Vec::new();
    let sizes = [size, size, CONTROL_QUEUE_SIZE];
    for size in sizes.into_iter().take(if negotiated.ctrl_vq { 3 } else { 2 }) {
        let ring = Ring::carve(&mut arena, negotiated.format, size, negotiated.options)?;
        queues.push(AttachedQueue::new(ring)?);
    }
    Ok(queues)
}

fn start_queues(
    frontend: &mut Frontend,
    queues: &[AttachedQueue],
    format: Format,
) -> Result<(), GuestError> {
    for (index, queue) in (0..).zip(queues) {
        let guest = queue.ring.areas();
        let areas = Areas::new(
            guest.descriptor + USER_OFFSET,
            guest.driver + USER_OFFSET,
            guest.device + USER_OFFSET,
        );
        frontend.start_queue(QueueStart {
            index,
            size: queue.ring.size,
            areas,
            base: base_from_position(Position::FRESH, format),
            kick: queue.kick.as_fd(),
            call: queue.call.as_fd(),
        })?;
    }
    for (index, _) in (0..).zip(queues) {
        frontend.enable_queue(index, true)?;
    }
    Ok(())
}
