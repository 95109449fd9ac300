//! A complete guest in user space: a driver attached to a vhost-user device.
//!
//! How: [`UserDevice`] brings the device up with the driver's own front-end transport; the driver
//! then works on shared memory alone, with one eventfd per direction and queue.
//!
//! Limits: one queue pair and the control queue; one thread; the caller waits with
//! [`UserGuest::wait_call`]. Received packets are copied out.

use std::path::Path;
use std::time::{Duration, Instant};

use ringway_driver::{
    Control, Doorbell, DriverOptions, Held, NetDriver, QueueSet, Queues, RxOptions, RxStatistics,
    Sent, TxOptions,
};
use ringway_net::{Counters, Negotiated, NetConfig, NetHeader};
use ringway_vhost_user::EventfdDoorbell;
use ringway_virtq::{Arm, DriverQueue, Format, PackedDriver, SplitDriver};

use crate::attachment::{GuestError, GuestOptions};
use crate::frames::Mac;
use crate::user_device::UserDevice;

/// Index of the receiveq, as in virtio 1.2 §5.1.2.
const RECEIVEQ: u16 = 0;
/// Index of the transmitq.
const TRANSMITQ: u16 = 1;
/// Index of the controlq of a device with one queue pair.
const CONTROLQ: u16 = 2;

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
    driver: NetDriver<Q>,
    receiveq: EventfdDoorbell,
    transmitq: EventfdDoorbell,
    control: Option<(Control<Q>, EventfdDoorbell)>,
    device: UserDevice,
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
        let mut pairs = queues.pairs.into_iter();
        let pair = pairs.next().ok_or(GuestError::NotNegotiated("a queue pair"))?;
        let (receiveq, transmitq) = (pair.receiveq, pair.transmitq);
        let arena = &mut device.arena;
        let driver = NetDriver::new(receiveq.queue, transmitq.queue, arena, &driver_options)?;
        let control = match queues.controlq {
            Some(started) => Some((Control::new(started.queue, arena)?, started.doorbell)),
            None => None,
        };
        let (receiveq, transmitq) = (receiveq.doorbell, transmitq.doorbell);
        let mut guest = Self { driver, receiveq, transmitq, control, device };
        guest.flush();
        Ok(guest)
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
        Ok(self.driver.tx.send(header, packet)?)
    }

    /// Publishes sent packets and emptied buffers, and kicks where the device wants it.
    pub fn flush(&mut self) {
        if self.driver.tx.flush() {
            self.transmitq.kick();
        }
        if self.driver.rx.flush() {
            self.receiveq.kick();
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
        let Some(received) = self.driver.rx.receive()? else { return Ok(None) };
        packet.resize(received.len as usize, 0);
        received.copy_to(packet);
        Ok(Some(received.header))
    }

    /// The next packet that has arrived, taken out of the ring. What is in too many places for that
    /// stays, and goes back with the next flush.
    ///
    /// # Errors
    /// The device broke the rules.
    pub fn receive_held(&mut self) -> Result<Option<Arrived>, GuestError> {
        let Some(received) = self.driver.rx.receive()? else { return Ok(None) };
        let (len, truesize) = (received.len, received.truesize);
        Ok(Some(Arrived { len, truesize, held: self.driver.rx.hold() }))
    }

    /// Gives the memory of a packet back to the ring.
    pub fn release(&mut self, held: Held) {
        self.driver.rx.release(held);
    }

    /// Waits until the device calls about packets. `false`: nothing within `timeout`.
    ///
    /// # Errors
    /// The device went away.
    pub fn wait_call(&mut self, timeout: Duration) -> Result<bool, GuestError> {
        let there =
            self.driver.rx.arm_calls(Arm::Next) || self.device.wait_call(RECEIVEQ, timeout)?;
        let raced = self.driver.rx.arm_calls(Arm::Never);
        Ok(there || raced)
    }

    /// Asks to be called about the next packet, without waiting. `true`: one is there already.
    pub fn ask_for_calls(&mut self) -> bool {
        self.driver.rx.arm_calls(Arm::Next)
    }

    /// Waits until the device is done with sent packets. `false`: not within `timeout`.
    ///
    /// # Errors
    /// The device went away, or broke the rules.
    pub fn wait_room(&mut self, timeout: Duration) -> Result<bool, GuestError> {
        let room =
            self.driver.tx.arm_calls(Arm::Next) || self.device.wait_call(TRANSMITQ, timeout)?;
        let raced = self.driver.tx.arm_calls(Arm::Never);
        Ok(self.driver.tx.reclaim()? > 0 || room || raced)
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
            self.device.wait_call(CONTROLQ, left)?;
        }
    }

    /// Counters of the direction from the device.
    pub fn rx_counters(&self) -> &Counters {
        self.driver.rx.counters()
    }

    /// Counters of the direction to the device.
    pub fn tx_counters(&self) -> &Counters {
        self.driver.tx.counters()
    }

    /// What the receiveq has counted, with its memory.
    pub fn rx_statistics(&self) -> RxStatistics {
        self.driver.rx.statistics()
    }

    /// Packets sent that the device is not known to be done with.
    pub fn in_flight(&self) -> usize {
        self.driver.tx.in_flight()
    }

    /// What the device and we agreed on.
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

/// A guest of either ring format; which one is negotiated.
#[derive(Debug)]
pub enum AnyUserGuest {
    /// `VIRTIO_F_RING_PACKED` was not negotiated.
    Split(UserGuest<SplitDriver>),
    /// It was.
    Packed(UserGuest<PackedDriver>),
}

/// Calls a method of whichever guest it is.
macro_rules! either {
    ($self:expr, $guest:ident => $call:expr) => {
        match $self {
            AnyUserGuest::Split($guest) => $call,
            AnyUserGuest::Packed($guest) => $call,
        }
    };
}

impl AnyUserGuest {
    /// Attaches to a device that listens on `socket`.
    ///
    /// # Errors
    /// The device is not there, or refuses.
    pub fn attach(socket: &Path, options: &GuestOptions) -> Result<Self, GuestError> {
        let (device, queues) = UserDevice::bring_up(socket, options)?;
        Ok(match queues {
            Queues::Split(queues) => Self::Split(UserGuest::start(device, queues, options)?),
            Queues::Packed(queues) => Self::Packed(UserGuest::start(device, queues, options)?),
        })
    }

    /// See [`UserGuest::send`].
    ///
    /// # Errors
    /// The device broke the rules.
    pub fn send(&mut self, packet: &[u8]) -> Result<Sent, GuestError> {
        either!(self, guest => guest.send(packet))
    }

    /// See [`UserGuest::send_with`].
    ///
    /// # Errors
    /// The device broke the rules.
    pub fn send_with(&mut self, header: &NetHeader, packet: &[u8]) -> Result<Sent, GuestError> {
        either!(self, guest => guest.send_with(header, packet))
    }

    /// See [`UserGuest::flush`].
    pub fn flush(&mut self) {
        either!(self, guest => guest.flush())
    }

    /// See [`UserGuest::receive`].
    ///
    /// # Errors
    /// The device broke the rules.
    pub fn receive(&mut self) -> Result<Option<(NetHeader, Vec<u8>)>, GuestError> {
        either!(self, guest => guest.receive())
    }

    /// See [`UserGuest::receive_into`].
    ///
    /// # Errors
    /// The device broke the rules.
    pub fn receive_into(&mut self, packet: &mut Vec<u8>) -> Result<Option<NetHeader>, GuestError> {
        either!(self, guest => guest.receive_into(packet))
    }

    /// See [`UserGuest::receive_held`].
    ///
    /// # Errors
    /// The device broke the rules.
    pub fn receive_held(&mut self) -> Result<Option<Arrived>, GuestError> {
        either!(self, guest => guest.receive_held())
    }

    /// See [`UserGuest::release`].
    pub fn release(&mut self, held: Held) {
        either!(self, guest => guest.release(held))
    }

    /// See [`UserGuest::wait_call`].
    ///
    /// # Errors
    /// The device went away.
    pub fn wait_call(&mut self, timeout: Duration) -> Result<bool, GuestError> {
        either!(self, guest => guest.wait_call(timeout))
    }

    /// See [`UserGuest::ask_for_calls`].
    pub fn ask_for_calls(&mut self) -> bool {
        either!(self, guest => guest.ask_for_calls())
    }

    /// See [`UserGuest::wait_room`].
    ///
    /// # Errors
    /// The device went away, or broke the rules.
    pub fn wait_room(&mut self, timeout: Duration) -> Result<bool, GuestError> {
        either!(self, guest => guest.wait_room(timeout))
    }

    /// See [`UserGuest::command`].
    ///
    /// # Errors
    /// There is no control queue, no answer in time, or the device broke the rules.
    pub fn command(&mut self, class: u8, command: u8, data: &[u8]) -> Result<u8, GuestError> {
        either!(self, guest => guest.command(class, command, data))
    }

    /// Counters of the direction from the device.
    pub fn rx_counters(&self) -> &Counters {
        either!(self, guest => guest.rx_counters())
    }

    /// Counters of the direction to the device.
    pub fn tx_counters(&self) -> &Counters {
        either!(self, guest => guest.tx_counters())
    }

    /// See [`UserGuest::rx_statistics`].
    pub fn rx_statistics(&self) -> RxStatistics {
        either!(self, guest => guest.rx_statistics())
    }

    /// Packets sent that the device is not known to be done with.
    pub fn in_flight(&self) -> usize {
        either!(self, guest => guest.in_flight())
    }

    /// The ring format in use.
    pub fn format(&self) -> Format {
        match self {
            Self::Split(_) => Format::Split,
            Self::Packed(_) => Format::Packed,
        }
    }

    /// What was negotiated, as plain fields.
    pub fn negotiated(&self) -> &Negotiated {
        either!(self, guest => &guest.device.negotiated)
    }

    /// The guest's hardware address: the device's if it has one, else the one from the options.
    pub fn mac(&self) -> Mac {
        either!(self, guest => guest.device.mac)
    }

    /// The device's configuration space, read now.
    ///
    /// # Errors
    /// The device went away.
    pub fn config(&mut self) -> Result<NetConfig, GuestError> {
        either!(self, guest => guest.device.config())
    }

    /// Stops the device's rings and disconnects.
    ///
    /// # Errors
    /// The device went away before, or refuses.
    pub fn detach(self) -> Result<(), GuestError> {
        either!(self, guest => guest.detach())
    }
}
