//! Bringing a device up: from reset to `DRIVER_OK` (virtio 1.2 §3.1.1).
//!
//! How: [`bring_up`] is the whole sequence, in the specification's order. The ring format is chosen
//! here, once: the result holds queues of either format, and everything behind is generic.
//!
//! Limits: the queue pairs asked for and the control queue are started, no others. What the device
//! says is bounded: how often it may keep us waiting for its reset, and how often its configuration
//! may change while it is read.

use alloc::vec::Vec;
use core::fmt;

use ringway_net::{CONFIG_LEN, FeatureError, Features, Negotiated, NetConfig};
use ringway_virtq::{DriverQueue, Format, Layout, PackedDriver, SplitDriver};

use crate::transport::{QueueStart, Transport, status};
use crate::{Arena, ArenaFull};

/// How often the status is read after a reset until the device counts as stuck.
const RESET_READS_MAX: u32 = 100_000;

/// How often the configuration is read when it changes meanwhile.
const CONFIG_READS_MAX: u32 = 16;

/// Index of the control queue of a device with one queue pair (virtio 1.2 §5.1.2).
const CONTROLQ_OF_ONE_PAIR: u16 = 2;

/// A field of the configuration space that is there with a feature, and what holds without it.
struct Field {
    feature: Features,
    offset: u16,
    len: usize,
    otherwise: u16,
}

/// The fields that a driver looks at (virtio 1.2 §5.1.4).
const FIELDS: [Field; 4] = [
    Field { feature: Features::MAC, offset: 0, len: 6, otherwise: 0 },
    // The link is up.
    Field { feature: Features::STATUS, offset: 6, len: 2, otherwise: 1 },
    Field { feature: Features::MQ, offset: 8, len: 2, otherwise: 1 },
    Field { feature: Features::MTU, offset: 10, len: 2, otherwise: 1500 },
];

/// The wishes of a driver to its device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// Features that are accepted when offered. Must contain `VERSION_1`.
    ///
    /// With `ACCESS_PLATFORM` the device's addresses are the platform's (virtio 1.2 §6.1), so add
    /// it only where the addresses of the [`Arena`] are: on PCI and behind registers these are
    /// physical addresses while no IOMMU translates for the device, and else what the IOMMU was set
    /// up with. Over vhost-user leave it out: the back-end would ask for translations (IOTLB
    /// messages).
    pub accept: Features,
    /// Queue pairs to start, at least 1; fewer are started if the device has fewer.
    pub queue_pairs: u16,
    /// Entries of receiveqs and transmitqs; fewer if the device allows fewer.
    pub queue_size: u16,
    /// Entries of the controlq; fewer if the device allows fewer.
    pub control_queue_size: u16,
    /// Interrupts: queue `n` gets vector `n`. Otherwise the driver polls.
    pub vectors: bool,
}

/// Features that this driver can make use of, without several queue pairs.
const ACCEPTED: Features = Features::VERSION_1
    .union(Features::MAC)
    .union(Features::STATUS)
    .union(Features::MTU)
    .union(Features::CSUM)
    .union(Features::GUEST_CSUM)
    .union(Features::HOST_TSO4)
    .union(Features::HOST_TSO6)
    .union(Features::GUEST_TSO4)
    .union(Features::GUEST_TSO6)
    .union(Features::GUEST_ECN)
    .union(Features::MRG_RXBUF)
    .union(Features::CTRL_VQ)
    .union(Features::RING_PACKED)
    .union(Features::EVENT_IDX)
    .union(Features::INDIRECT_DESC)
    .union(Features::IN_ORDER)
    // No ring is ever reset; but Apple's Virtualization.framework insists on it.
    .union(Features::RING_RESET);

impl Wanted {
    /// One queue pair of 256 entries, polled, with all the offloads this driver has.
    pub const DEFAULT: Self = Self {
        accept: ACCEPTED,
        queue_pairs: 1,
        queue_size: 256,
        control_queue_size: 64,
        vectors: false,
    };
}

/// A queue the device knows, and what kicks it.
#[derive(Debug)]
pub struct Started<Q, D> {
    /// The driver's side of the ring.
    pub queue: Q,
    /// Kicks it.
    pub doorbell: D,
}

/// The two queues of one pair.
#[derive(Debug)]
pub struct QueuePair<Q, D> {
    /// Packets to the driver.
    pub receiveq: Started<Q, D>,
    /// Packets to the device.
    pub transmitq: Started<Q, D>,
}

/// All queues of a device.
#[derive(Debug)]
pub struct QueueSet<Q, D> {
    /// In order, at least one.
    pub pairs: Vec<QueuePair<Q, D>>,
    /// With `CTRL_VQ`.
    pub controlq: Option<Started<Q, D>>,
}

/// The queues in the format that was negotiated.
#[derive(Debug)]
pub enum Queues<D> {
    /// Without `RING_PACKED`.
    Split(QueueSet<SplitDriver, D>),
    /// With it.
    Packed(QueueSet<PackedDriver, D>),
}

/// A device that is live.
#[derive(Debug)]
pub struct BroughtUp<D> {
    /// The negotiated features.
    pub negotiated: Negotiated,
    /// The configuration as it was. Fields whose feature is missing have values that do no harm:
    /// no address, link up, one queue pair, an MTU of 1500.
    pub config: NetConfig,
    /// Its queues.
    pub queues: Queues<D>,
}

/// Why a device does not come up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BringUpError<E> {
    /// The transport failed.
    Transport(E),
    /// The device does not finish its reset.
    StuckInReset,
    /// The device offers no `VERSION_1`.
    Legacy,
    /// The features that both have do not fit together.
    Features(FeatureError),
    /// The device took back `FEATURES_OK`: it insists on one of these, which it offered and the
    /// driver did not accept.
    FeaturesRefused(Features),
    /// The configuration never stands still.
    ConfigRestless,
    /// A queue that should be there is not.
    NoQueue(u16),
    /// The arena is too small for the rings.
    ArenaFull,
}

impl<E: fmt::Debug> fmt::Display for BringUpError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Transport(error) => write!(f, "the device cannot be reached: {error:?}"),
            Self::StuckInReset => write!(f, "the device does not finish its reset"),
            Self::Legacy => write!(f, "the device does not offer VERSION_1"),
            Self::Features(error) => write!(f, "{error}"),
            Self::FeaturesRefused(features) => {
                write!(f, "the device insists on features that were not accepted: {features}")
            }
            Self::ConfigRestless => write!(f, "the device's configuration never stands still"),
            Self::NoQueue(queue) => {
                write!(f, "the device has no queue {queue}, or too small a one")
            }
            Self::ArenaFull => write!(f, "the arena is too small for the rings"),
        }
    }
}

impl<E> From<ArenaFull> for BringUpError<E> {
    fn from(_: ArenaFull) -> Self {
        Self::ArenaFull
    }
}

/// Resets the device, negotiates, sets its queues up and makes it live (virtio 1.2 §3.1.1).
///
/// The rings are taken from the arena. Receive buffers are posted afterwards, by the driver.
///
/// # Errors
/// [`BringUpError`]; the device then has the status `FAILED`, if it can be reached.
pub fn bring_up<T: Transport>(
    transport: &mut T,
    arena: &mut Arena,
    wanted: &Wanted,
) -> Result<BroughtUp<T::Doorbell>, BringUpError<T::Error>> {
    assert!(wanted.accept.contains(Features::VERSION_1), "a driver for virtio 1.x");
    assert!(wanted.queue_pairs > 0, "no queue pair");
    let result = steps(transport, arena, wanted);
    if result.is_err() {
        // If this fails too, the first reason is the one that counts.
        let _ = transport.set_status(status::FAILED);
    }
    result
}

fn steps<T: Transport>(
    transport: &mut T,
    arena: &mut Arena,
    wanted: &Wanted,
) -> Result<BroughtUp<T::Doorbell>, BringUpError<T::Error>> {
    use BringUpError::Transport as Failed;
    reset(transport)?;
    transport.set_status(status::ACKNOWLEDGE).map_err(Failed)?;
    transport.set_status(status::ACKNOWLEDGE | status::DRIVER).map_err(Failed)?;
    let offered = transport.offered_features().map_err(Failed)?;
    let accepted = offered.intersection(wanted.accept).drop_unmet();
    if !accepted.contains(Features::VERSION_1) {
        return Err(BringUpError::Legacy);
    }
    transport.accept_features(accepted).map_err(Failed)?;
    let agreed = status::ACKNOWLEDGE | status::DRIVER | status::FEATURES_OK;
    transport.set_status(agreed).map_err(Failed)?;
    if transport.status().map_err(Failed)? & status::FEATURES_OK == 0 {
        return Err(BringUpError::FeaturesRefused(insisted_on(offered - accepted)));
    }
    let negotiated = Negotiated::new(accepted).map_err(BringUpError::Features)?;
    let config = read_config(transport, accepted)?;
    let mut setup = Setup { transport, arena, wanted, negotiated: &negotiated };
    let queues = match negotiated.format {
        Format::Split => Queues::Split(setup.queues(&config)?),
        Format::Packed => Queues::Packed(setup.queues(&config)?),
    };
    transport.set_status(agreed | status::DRIVER_OK).map_err(Failed)?;
    Ok(BroughtUp { negotiated, config, queues })
}

/// Features that a device that refuses may insist on: if features that it may insist on (virtio 1.2
/// §6.2) were declined, these; otherwise all that were.
fn insisted_on(declined: Features) -> Features {
    let named = declined.intersection(Features::ACCESS_PLATFORM | Features::ORDER_PLATFORM);
    if named.is_empty() { declined } else { named }
}

/// Resets the device and waits until it says so (virtio 1.2 §4.1.4.3.2, §2.4).
fn reset<T: Transport>(transport: &mut T) -> Result<(), BringUpError<T::Error>> {
    transport.set_status(0).map_err(BringUpError::Transport)?;
    for _ in 0..RESET_READS_MAX {
        if transport.status().map_err(BringUpError::Transport)? == 0 {
            return Ok(());
        }
        core::hint::spin_loop();
    }
    Err(BringUpError::StuckInReset)
}

/// The configuration, all from one generation (virtio 1.2 §2.5.1).
///
/// # Errors
/// [`BringUpError::Transport`], [`BringUpError::ConfigRestless`].
pub fn read_config<T: Transport>(
    transport: &mut T,
    accepted: Features,
) -> Result<NetConfig, BringUpError<T::Error>> {
    for _ in 0..CONFIG_READS_MAX {
        let before = transport.config_generation().map_err(BringUpError::Transport)?;
        let config = read_fields(transport, accepted).map_err(BringUpError::Transport)?;
        if transport.config_generation().map_err(BringUpError::Transport)? == before {
            return Ok(config);
        }
    }
    Err(BringUpError::ConfigRestless)
}

fn read_fields<T: Transport>(transport: &mut T, accepted: Features) -> Result<NetConfig, T::Error> {
    let mut bytes = [0; CONFIG_LEN];
    for field in FIELDS {
        let into = &mut bytes[usize::from(field.offset)..][..field.len];
        if accepted.contains(field.feature) {
            transport.read_config(field.offset, into)?;
        } else {
            into[..2].copy_from_slice(&field.otherwise.to_le_bytes());
        }
    }
    Ok(NetConfig::decode(&bytes))
}

/// Step 7: the queues.
struct Setup<'a, T> {
    transport: &'a mut T,
    arena: &'a mut Arena,
    wanted: &'a Wanted,
    negotiated: &'a Negotiated,
}

type Outcome<X, T> = Result<X, BringUpError<<T as Transport>::Error>>;

impl<T: Transport> Setup<'_, T> {
    fn queues<Q: DriverQueue>(
        &mut self,
        config: &NetConfig,
    ) -> Outcome<QueueSet<Q, T::Doorbell>, T> {
        // A device that says 0 breaks the rules; it still has the first pair.
        let pairs_max = config.max_queue_pairs.clamp(1, u16::MAX / 2);
        let mut pairs = Vec::new();
        for pair in 0..self.wanted.queue_pairs.min(pairs_max) {
            let size = self.wanted.queue_size;
            let receiveq = self.queue(2 * pair, size)?;
            let transmitq = self.queue(2 * pair + 1, size)?;
            pairs.push(QueuePair { receiveq, transmitq });
        }
        let multi = self.negotiated.features.contains(Features::MQ);
        let controlq_at = if multi { 2 * pairs_max } else { CONTROLQ_OF_ONE_PAIR };
        let controlq = match self.negotiated.ctrl_vq {
            true => Some(self.queue(controlq_at, self.wanted.control_queue_size)?),
            false => None,
        };
        if controlq.as_ref().is_some_and(|it: &Started<Q, _>| it.queue.size() < COMMAND_ELEMENTS) {
            return Err(BringUpError::NoQueue(controlq_at));
        }
        Ok(QueueSet { pairs, controlq })
    }

    fn queue<Q: DriverQueue>(
        &mut self,
        queue: u16,
        wanted: u16,
    ) -> Outcome<Started<Q, T::Doorbell>, T> {
        let max = self.transport.queue_size_max(queue).map_err(BringUpError::Transport)?;
        let size = queue_size(wanted, max, Q::FORMAT).ok_or(BringUpError::NoQueue(queue))?;
        let options = self.negotiated.options;
        let len = Layout::of(Q::FORMAT, size, options).len as usize;
        let part = self.arena.carve(len, Layout::ALIGN as usize)?;
        let ring = Q::new(part.memory, part.device_address, size, options);
        let vector = self.wanted.vectors.then_some(queue);
        let start = QueueStart { queue, size, areas: ring.areas(), format: Q::FORMAT, vector };
        let doorbell = self.transport.start_queue(&start).map_err(BringUpError::Transport)?;
        Ok(Started { queue: ring, doorbell })
    }
}

/// The elements of a command: its head, its data, and room for the answer.
const COMMAND_ELEMENTS: u16 = 3;

/// The size of a queue when this many entries are wanted and that many allowed.
fn queue_size(wanted: u16, max: u16, format: Format) -> Option<u16> {
    let size = wanted.min(max);
    match format {
        // The largest power of two up to it.
        Format::Split => size.checked_ilog2().map(|power| 1 << power),
        Format::Packed => (size > 0).then_some(size),
    }
}
