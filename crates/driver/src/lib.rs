//! The virtio-net guest driver: packets in and out of two virtqueues.
//!
//! How it fits together: the code that sets the device up (see `ringway-vhost-user` for one way)
//! hands over an [`Arena`], the memory both sides share, and one started [`DriverQueue`] per
//! direction. [`NetRx`] posts bare memory, whose length one of five schemes decides
//! ([`rx_buffer`]), and builds a packet when one arrives; [`NetTx`] sends packets that are copied,
//! or lie where the device sees them; [`Control`] carries commands. Staging, publishing and kicking
//! are separate steps: `send` only stages, `receive` only takes; `flush` stages what `receive` has
//! emptied, publishes, and says whether the device must be kicked.
//!
//! Limits: all memory is taken at the start, nothing is allocated later. The device is not
//! trusted: whatever it writes is copied, checked and counted, and a device that breaks the rules
//! of the ring stops that queue with [`Broken`].
//!
//! [`DriverQueue`]: ringway_virtq::DriverQueue
//! [`Broken`]: ringway_virtq::Broken
#![no_std]
#![deny(unsafe_code)]
extern crate alloc;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
#[cfg(test)]
extern crate std;

mod arena;
mod bring_up;
mod control;
mod control_command;
mod device_state;
mod driver;
#[allow(unsafe_code)]
mod mmio;
mod pci;
#[cfg(feature = "smoltcp")]
pub mod phy;
mod received;
mod rx;
pub mod rx_buffer;
mod rx_memory;
mod rx_options;
mod slots;
mod statistics;
mod stretches;
mod transport;
mod tx;
mod tx_memory;
mod tx_options;
mod tx_pacing;
mod tx_place;

pub use arena::{Arena, ArenaFull, Part};
pub use bring_up::{
    BringUpError, BroughtUp, QueuePair, QueueSet, Queues, Started, Wanted, bring_up, read_config,
};
pub use control::{ANSWER_LIMIT_US, CommandState, Control, ControlFailure};
pub use control_command::ControlCommand;
pub use device_state::{ConfigChange, DeviceState};
pub use driver::{DriverOptions, NetDriver};
pub use mmio::{MmioDoorbell, MmioError, MmioTransport, Registers};
pub use pci::{
    ConfigSpace, Ecam, FunctionAddress, PciDoorbell, PciError, PciTransport, net_functions,
};
pub use received::{FRAGMENTS_MAX, Held, LINEAR_LEN_MAX, Received};
pub use ringway_net::moderation::CoalesceLimits;
pub use rx::NetRx;
pub use rx_buffer::{RxBufferSizer, RxScheme};
pub use rx_options::{ELEMENTS_PER_BUFFER_MAX, RxOptions};
pub use statistics::{RxStatistics, TxStatistics};
pub use transport::{Doorbell, QueueStart, Transport, status};
pub use tx::{NetTx, TX_FRAGMENTS_MAX};
pub use tx_options::{Sent, TxFragment, TxOptions};
pub use tx_pacing::Flushed;
