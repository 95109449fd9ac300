//! One queue pair of a driver: a receiveq and a transmitq over one arena.
//!
//! Limits: bringing the device up (virtio 1.2 §3.1.1) is the transport's work and done before.

use alloc::vec::Vec;

use ringway_net::Negotiated;
use ringway_virtq::DriverQueue;

use crate::{Arena, ArenaFull, NetRx, NetTx, RxOptions, RxScheme, TxOptions};

/// How both directions work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DriverOptions {
    /// Towards the driver.
    pub rx: RxOptions,
    /// Towards the device.
    pub tx: TxOptions,
}

impl DriverOptions {
    /// For a device with which this was negotiated, with receive buffers of this scheme if it
    /// merges them.
    pub fn negotiated(scheme: RxScheme, negotiated: &Negotiated) -> Self {
        Self {
            rx: RxOptions::negotiated(scheme, negotiated),
            tx: TxOptions::negotiated(negotiated),
        }
    }
}

/// The two directions of one queue pair.
#[derive(Debug)]
pub struct NetDriver<Q> {
    /// Packets from the device.
    pub rx: NetRx<Q>,
    /// Packets to the device.
    pub tx: NetTx<Q>,
}

impl<Q: DriverQueue> NetDriver<Q> {
    /// Takes the buffers of both directions from the arena. The queues must be fresh.
    ///
    /// # Errors
    /// [`ArenaFull`].
    pub fn new(
        receiveq: Q,
        transmitq: Q,
        arena: &mut Arena,
        options: &DriverOptions,
    ) -> Result<Self, ArenaFull> {
        Ok(Self {
            rx: NetRx::new(receiveq, arena, &options.rx)?,
            tx: NetTx::new(transmitq, arena, &options.tx)?,
        })
    }

    /// One driver per queue pair, from (receiveq, transmitq) of each. They share nothing: each has
    /// its own part of the arena, and can go to a thread of its own.
    ///
    /// # Errors
    /// [`ArenaFull`].
    pub fn pairs(
        queues: impl IntoIterator<Item = (Q, Q)>,
        arena: &mut Arena,
        options: &DriverOptions,
    ) -> Result<Vec<Self>, ArenaFull> {
        let pair = |(receiveq, transmitq)| Self::new(receiveq, transmitq, arena, options);
        queues.into_iter().map(pair).collect()
    }
}
