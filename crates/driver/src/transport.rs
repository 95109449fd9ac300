//! How a driver reaches its device: status, features, queues, configuration, kicks.
//!
//! How: [`Transport`] is what [`bring_up`](crate::bring_up) needs and no more. It is implemented by
//! [`PciTransport`](crate::PciTransport), by [`MmioTransport`](crate::MmioTransport), and by the
//! vhost-user front-end. Each started queue comes with a [`Doorbell`] of its own, so that the owner
//! of the queue can kick it without sharing the transport.
//!
//! Limits: virtio 1.x devices only, nothing legacy.

use core::fmt::Debug;

use ringway_net::Features;
use ringway_virtq::{Areas, Format};

/// Bits of the device status (virtio 1.2 §2.1).
pub mod status {
    /// The device was noticed.
    pub const ACKNOWLEDGE: u8 = 1;
    /// There is a driver for it.
    pub const DRIVER: u8 = 2;
    /// The driver is ready; the device is live.
    pub const DRIVER_OK: u8 = 4;
    /// Both have agreed on features.
    pub const FEATURES_OK: u8 = 8;
    /// The device cannot go on; only a reset helps.
    pub const DEVICE_NEEDS_RESET: u8 = 64;
    /// The driver has given up.
    pub const FAILED: u8 = 128;
}

/// The description of a queue for its device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueStart {
    /// The queue's index (virtio 1.2 §5.1.2).
    pub queue: u16,
    /// Entries.
    pub size: u16,
    /// Where its parts are, as the device sees them.
    pub areas: Areas,
    /// The ring format negotiated.
    pub format: Format,
    /// The interrupt vector for used buffers; `None`: none does, the driver polls.
    pub vector: Option<u16>,
}

/// Kicks one queue (available buffer notification, virtio 1.2 §2.9).
pub trait Doorbell: Debug {
    /// Tells the device to look at the queue. Only when the ring says that it must be told.
    fn kick(&self);
}

/// A device that is not up yet, or the part of it that is not in the rings.
pub trait Transport {
    /// Why an access failed. Registers cannot fail, sockets can.
    type Error: Debug;
    /// The doorbell of a queue.
    type Doorbell: Doorbell;

    /// The device status.
    ///
    /// # Errors
    /// The device cannot be reached.
    fn status(&mut self) -> Result<u8, Self::Error>;

    /// Writes the device status; 0 resets the device, which may take until [`status`] is 0.
    ///
    /// [`status`]: Self::status
    ///
    /// # Errors
    /// The device cannot be reached.
    fn set_status(&mut self, status: u8) -> Result<(), Self::Error>;

    /// The features that the device offers.
    ///
    /// # Errors
    /// The device cannot be reached.
    fn offered_features(&mut self) -> Result<Features, Self::Error>;

    /// Tells the device what the driver accepts.
    ///
    /// # Errors
    /// The device cannot be reached, or refuses at once.
    fn accept_features(&mut self, features: Features) -> Result<(), Self::Error>;

    /// Most entries a queue may have; 0: there is no such queue.
    ///
    /// # Errors
    /// The device cannot be reached.
    fn queue_size_max(&mut self, queue: u16) -> Result<u16, Self::Error>;

    /// Tells the device about a queue and enables it. It is worked on from `DRIVER_OK` on.
    ///
    /// # Errors
    /// The device cannot be reached, or refuses.
    fn start_queue(&mut self, start: &QueueStart) -> Result<Self::Doorbell, Self::Error>;

    /// A number that changes whenever several fields of the configuration space change together.
    ///
    /// # Errors
    /// The device cannot be reached.
    fn config_generation(&mut self) -> Result<u32, Self::Error>;

    /// Reads one field of the configuration space: bytes, or a word of 2 or 4 bytes when `into`
    /// has that length. Little-endian, as it lies there.
    ///
    /// # Errors
    /// The device cannot be reached, or its configuration space is shorter.
    fn read_config(&mut self, offset: u16, into: &mut [u8]) -> Result<(), Self::Error>;
}
