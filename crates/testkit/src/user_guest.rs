//! A complete guest in user space: a driver attached to a vhost-user device.
//!
//! How: [`UserDevice`] brings the device up with the driver's own front-end transport; the driver
//! then works on shared memory alone, with one eventfd per direction and queue.
//!
//! Limits: one thread; the caller waits with [`UserGuest::wait_call`], and says with
//! [`UserGuest::send_on`] which queue pair its packets go out on. Received packets are copied out.

mod any;

use std::time::{Duration, Instant};

use ringway_driver::{
    Control, Doorbell, DriverOptions, Held, NetDriver, QueueSet, RxOptions, RxStatistics, Sent,
    TxOptions,
};
use ringway_net::{Counters, Features, NetHeader};
use ringway_vhost_user::EventfdDoorbell;
use ringway_virtq::{Arm, DriverQueue};

use crate::attachment::{GuestError, GuestOptions};
use crate::user_device::UserDevice;

pub use any::AnyUserGuest;

/// Index of the receiveq of a pair, as in virtio 1.2 §5.1.2.
fn receiveq(pair: usize) -> u16 {
    u16::try_from(pair * 2).unwrap_or(u16::MAX)
}

/// Index of the transmitq of a pair.
fn transmitq(pair: usize) -> u16 {
    receiveq(pair) + 1
}

/// The command that says how many pairs the guest uses (virtio 1.2 §5.1.6.5.6).
const CLASS_MQ: u8 = 4;
const VQ_PAIRS_SET: u8 = 0;

/// Longest wait for the answer to a control command.
const COMMAND_LIMIT: Duration = Duration::from_secs(5);

/// A packet that a receiver has accepted.
#[derive(Debug)]
pub struct Arrived {
    /// Its bytes.
    pub len: u32,
    /// Bytes of memory that it holds.
    pub truesize: u32,
    /// The packet, unless it is in too many places.
    pub held: Option<Held>,
}

/// A guest of one ring format.
#[derive(Debug)]
pub struct UserGuest<Q> {
    /// At least one.
    pairs: Vec<Pair<Q>>,
    /// Packets go out on this one.
    sending: usize,
    control: Option<(Control<Q>, EventfdDoorbell)>,
    /// Index of the controlq.
    controlq: u16,
    device: UserDevice,
}

/// One queue pair and what kicks it.
#[derive(Debug)]
struct Pair<Q> {
    driver: NetDriver<Q>,
    receiveq: EventfdDoorbell,
    transmitq: EventfdDoorbell,
}

impl<Q: DriverQueue> UserGuest<Q> {
    /// Starts the driver on a device that is up.
    fn start(
        mut device: UserDevice,
        queues: QueueSet<Q, EventfdDoorbell>,
        options: &GuestOptions,
    ) -> Result<Self, GuestError> {
        let rx = RxOptions::negotiated(options.rx_scheme, &device.negotiated);
        // Tests may send what was not negotiated.
        let tx = TxOptions { allow: None, ..TxOptions::negotiated(&device.negotiated) };
        let driver_options = DriverOptions {
            rx: RxOptions { elements: options.rx_elements, spare_len: options.rx_spare_len, ..rx },
            tx: TxOptions { header_apart: options.header_apart, ..tx },
        };
        let arena = &mut device.arena;
        let mut pairs = Vec::new();
        for pair in queues.pairs {
            let (receiveq, transmitq) = (pair.receiveq, pair.transmitq);
            let driver = NetDriver::new(receiveq.queue, transmitq.queue, arena, &driver_options)?;
            let (receiveq, transmitq) = (receiveq.doorbell, transmitq.doorbell);
            pairs.push(Pair { driver, receiveq, transmitq });
        }
        let control = match queues.controlq {
            Some(started) => Some((Control::new(started.queue, arena)?, started.doorbell)),
            None => None,
        };
        let has_several = device.negotiated.features.contains(Features::MQ);
        let controlq = if has_several { device.config.max_queue_pairs * 2 } else { 2 };
        let mut guest = Self { pairs, sending: 0, control, controlq, device };
        guest.flush();
        if guest.pairs.len() > 1 {
            let count = u16::try_from(guest.pairs.len()).unwrap_or(u16::MAX).to_le_bytes();
            if guest.command(CLASS_MQ, VQ_PAIRS_SET, &count)? != 0 {
                return Err(GuestError::NotNegotiated("several queue pairs"));
            }
        }
        Ok(guest)
    }

    /// From now on packets go out on this pair, counted from 0.
    pub fn send_on(&mut self, pair: usize) {
        assert!(pair < self.pairs.len(), "pair {pair} of {}", self.pairs.len());
        self.sending = pair;
    }

    /// Stages a packet that needs nothing done to it.
    ///
    /// # Errors
    /// The device broke the rules.
    pub fn send(&mut self, packet: &[u8]) -> Result<Sent, GuestError> {
        self.send_with(&NetHeader::default(), packet)
    }

    /// Stages a packet with this header.
    ///
    /// # Errors
    /// The device broke the rules.
    pub fn send_with(&mut self, header: &NetHeader, packet: &[u8]) -> Result<Sent, GuestError> {
        Ok(self.pairs[self.sending].driver.tx.send(header, packet)?)
    }

    /// Publishes sent packets and emptied buffers, and kicks where the device wants it.
    pub fn flush(&mut self) {
        for pair in &mut self.pairs {
            if pair.driver.tx.flush() {
                pair.transmitq.kick();
            }
            if pair.driver.rx.flush() {
                pair.receiveq.kick();
            }
        }
    }

    /// The next packet that has arrived. Its buffers are posted again with the next flush.
    ///
    /// # Errors
    /// The device broke the rules.
    pub fn receive(&mut self) -> Result<Option<(NetHeader, Vec<u8>)>, GuestError> {
        let mut packet = Vec::new();
        Ok(self.receive_into(&mut packet)?.map(|header| (header, packet)))
    }

    /// The same into memory that is used again and again.
    ///
    /// # Errors
    /// The device broke the rules.
    pub fn receive_into(&mut self, packet: &mut Vec<u8>) -> Result<Option<NetHeader>, GuestError> {
        for pair in &mut self.pairs {
            let Some(received) = pair.driver.rx.receive()? else { continue };
            packet.resize(received.len as usize, 0);
            received.copy_to(packet);
            return Ok(Some(received.header));
        }
        Ok(None)
    }

    /// The next packet that has arrived, taken out of the ring. What is in too many places for that
    /// stays, and goes back with the next flush.
    ///
    /// # Errors
    /// The device broke the rules.
    pub fn receive_held(&mut self) -> Result<Option<Arrived>, GuestError> {
        let Some(received) = self.pairs[0].driver.rx.receive()? else { return Ok(None) };
        let (len, truesize) = (received.len, received.truesize);
        Ok(Some(Arrived { len, truesize, held: self.pairs[0].driver.rx.hold() }))
    }

    /// Gives the memory of a packet back to the ring.
    pub fn release(&mut self, held: Held) {
        self.pairs[0].driver.rx.release(held);
    }

    /// Waits until the device calls about packets. `false`: nothing within `timeout`.
    ///
    /// # Errors
    /// The device went away.
    pub fn wait_call(&mut self, timeout: Duration) -> Result<bool, GuestError> {
        let mut there = false;
        for pair in &mut self.pairs {
            there |= pair.driver.rx.arm_calls(Arm::Next);
        }
        let queues = (0..self.pairs.len()).map(receiveq);
        there = there || self.device.wait_call(queues, timeout)?;
        for pair in &mut self.pairs {
            there |= pair.driver.rx.arm_calls(Arm::Never);
        }
        Ok(there)
    }

    /// Asks to be called about the next packet, without waiting. `true`: one is there already.
    pub fn ask_for_calls(&mut self) -> bool {
        self.pairs[0].driver.rx.arm_calls(Arm::Next)
    }

    /// Waits until the device is done with sent packets. `false`: not within `timeout`.
    ///
    /// # Errors
    /// The device went away, or broke the rules.
    pub fn wait_room(&mut self, timeout: Duration) -> Result<bool, GuestError> {
        let queue = std::iter::once(transmitq(self.sending));
        let tx = &mut self.pairs[self.sending].driver.tx;
        let room = tx.arm_calls(Arm::Next) || self.device.wait_call(queue, timeout)?;
        let raced = tx.arm_calls(Arm::Never);
        Ok(tx.reclaim()? > 0 || room || raced)
    }

    /// Sends a command on the control queue and waits for the answer: 0 is OK.
    ///
    /// # Errors
    /// There is no control queue, no answer in time, or the device broke the rules.
    pub fn command(&mut self, class: u8, command: u8, data: &[u8]) -> Result<u8, GuestError> {
        let missing = GuestError::NotNegotiated("CTRL_VQ");
        let (control, doorbell) = self.control.as_mut().ok_or(missing)?;
        let kick = control.start(class, command, data).map_err(GuestError::Control)?;
        if kick {
            doorbell.kick();
        }
        let deadline = Instant::now() + COMMAND_LIMIT;
        loop {
            if let Some(ack) = control.finish()? {
                return Ok(ack);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(GuestError::NoAnswer);
            }
            // Calls on this queue are never disarmed.
            self.device.wait_call(std::iter::once(self.controlq), left)?;
        }
    }

    /// Counters of the direction from the device, of the first pair.
    pub fn rx_counters(&self) -> &Counters {
        self.pairs[0].driver.rx.counters()
    }

    /// The counters of the receiveq, with its memory.
    pub fn rx_statistics(&self) -> RxStatistics {
        self.pairs[0].driver.rx.statistics()
    }

    /// Packets sent that the device is not known to be done with.
    pub fn in_flight(&self) -> usize {
        self.pairs[0].driver.tx.in_flight()
    }

    /// The device, with the features that it and we agreed on.
    pub fn device(&mut self) -> &mut UserDevice {
        &mut self.device
    }

    /// Stops the device's rings and disconnects.
    ///
    /// # Errors
    /// The device went away before, or refuses.
    pub fn detach(self) -> Result<(), GuestError> {
        self.device.detach()
    }
}
