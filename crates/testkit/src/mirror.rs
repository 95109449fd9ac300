//! A driver and a device on the same rings in one thread: everything between two packets is ours,
//! and nothing waits for another core.
//!
//! Limits: one queue pair; neither side is notified.

use std::io;

use ringway_device::{FromGuest, ReceiveLists, ToGuest};
use ringway_driver::{Arena, DriverOptions, NetDriver, RxOptions, TxOptions};
use ringway_net::{Counters, Features, Negotiated};
use ringway_virtq::{
    Areas, Arm, DeviceQueue, DriverQueue, Elements, Format, Position, QueueSetup, Regions,
};

use crate::{Ring, TestMemory};

const BUFFERS_AT: u64 = 1 << 32;
const RINGS_AT: u64 = 1 << 20;
const RINGS_LEN: u64 = 1 << 20;

/// A driver, and a device on its rings.
#[derive(Debug)]
pub struct Mirror<D, V> {
    /// The driver.
    pub driver: NetDriver<D>,
    /// The device's side of the receiveq.
    pub to_guest: ToGuest<V>,
    /// The device's side of the transmitq.
    pub from_guest: FromGuest<V>,
    /// The areas of both, in that order.
    pub areas: [Areas; 2],
    /// All memory, for as long as it is used.
    pub _memory: TestMemory,
}

/// The options of the driver and the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MirrorOptions {
    /// How the driver receives.
    pub rx: RxOptions,
    /// Longest packet that the driver sends, in bytes.
    pub tx_len_max: u32,
    /// Entries of each queue.
    pub queue_size: u16,
    /// Bytes for buffers, a multiple of a page.
    pub buffers_len: u64,
    /// Features that are not offered.
    pub without: Features,
}

impl<D: DriverQueue, V: DeviceQueue> Mirror<D, V> {
    /// Both, with what they have negotiated; the driver's receive buffers are there.
    ///
    /// # Errors
    /// There is no such memory, or it is too small.
    pub fn new(options: &MirrorOptions) -> io::Result<Self> {
        let mut features = Features::OFFERED;
        features.set(Features::RING_PACKED, D::FORMAT == Format::Packed);
        features.set(Features::MRG_RXBUF, options.rx.mergeable);
        features -= options.without;
        let negotiated = Negotiated::new(features.drop_unmet());
        let negotiated = negotiated.map_err(|why| io::Error::other(format!("features: {why}")))?;
        let memory = TestMemory::new(&[(BUFFERS_AT, options.buffers_len), (RINGS_AT, RINGS_LEN)])?;
        let full = |_| io::Error::other("the memory is full");
        let mut rings = Arena::new(memory.region(1), RINGS_AT);
        let mut carve =
            || Ring::carve(&mut rings, D::FORMAT, options.queue_size, negotiated.options);
        let rings = [carve().map_err(full)?, carve().map_err(full)?];
        let mut buffers = Arena::new(memory.region(0), BUFFERS_AT);
        let [rx, tx] = rings.map(|ring| ring.start::<D>(negotiated.options));
        let tx_options = TxOptions { packet_len_max: options.tx_len_max, ..TxOptions::default() };
        let driver_options = DriverOptions { rx: options.rx, tx: tx_options };
        let mut driver = NetDriver::new(rx, tx, &mut buffers, &driver_options).map_err(full)?;
        // The device is looked at and not told.
        let _ = driver.rx.flush();
        let _ = driver.rx.arm_calls(Arm::Never);
        let regions = memory.regions();
        let areas = [rings[0].areas(), rings[1].areas()];
        let [to, from] = rings.map(|ring| start::<V>(&ring, &negotiated, &regions));
        let mut to_guest = ToGuest::new(
            to?,
            regions.clone(),
            negotiated,
            Counters::default(),
            ReceiveLists::new(),
        );
        let mut from_guest = FromGuest::new(
            from?,
            regions,
            negotiated,
            Counters::default(),
            Elements::readable_only(),
        );
        to_guest.arm_kicks(Arm::Never);
        from_guest.arm_kicks(Arm::Never);
        Ok(Self { driver, to_guest, from_guest, areas, _memory: memory })
    }
}

fn start<V: DeviceQueue>(ring: &Ring, negotiated: &Negotiated, regions: &Regions) -> io::Result<V> {
    let setup = QueueSetup {
        size: ring.size,
        areas: ring.areas(),
        position: Position::FRESH,
        options: negotiated.options,
    };
    V::start(&setup, regions).map_err(|broken| io::Error::other(format!("queue: {}", broken.0)))
}
