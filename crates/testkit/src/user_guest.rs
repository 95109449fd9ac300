//! A complete guest in user space: a driver attached to a vhost-user device.
//!
//! How: [`Attachment`] brings the device up as a VM monitor and its guest would together; the
//! driver then works on shared memory alone, with one eventfd per direction and queue.
//!
//! Limits: one queue pair and the control queue; one thread; the caller waits with
//! [`UserGuest::wait_call`]. Received packets are copied out.

use std::path::Path;
use std::time::{Duration, Instant};

use ringway_driver::{Control, DriverOptions, NetDriver, RxOptions, RxStatistics, Sent, TxOptions};
use ringway_net::{Counters, Negotiated, NetConfig, NetHeader};
use ringway_virtq::{Arm, DriverQueue, Format, PackedDriver, SplitDriver};

use crate::attachment::{Attachment, GuestError, GuestOptions};
use crate::frames::Mac;

/// Index of the receiveq, as in virtio 1.2 §5.1.2.
const RECEIVEQ: usize = 0;
/// Index of the transmitq.
const TRANSMITQ: usize = 1;
/// Index of the controlq of a device with one queue pair.
const CONTROLQ: usize = 2;

/// Longest wait for the answer to a control command.
const COMMAND_LIMIT: Duration = Duration::from_secs(5);

/// A guest of one ring format.
#[derive(Debug)]
pub struct UserGuest<Q> {
    driver: NetDriver<Q>,
    control: Option<Control<Q>>,
    attachment: Attachment,
}

impl<Q: DriverQueue> UserGuest<Q> {
    /// Starts the driver on a device that is up.
    fn start(mut attachment: Attachment, options: &GuestOptions) -> Result<Self, GuestError> {
        let rx = RxOptions::negotiated(options.rx_scheme, &attachment.negotiated);
        // Tests may send what was not negotiated.
        let tx = TxOptions { allow: None, ..TxOptions::negotiated(&attachment.negotiated) };
        let driver_options = DriverOptions {
            rx: RxOptions { elements: options.rx_elements, ..rx },
            tx: TxOptions { header_apart: options.header_apart, ..tx },
        };
        let ring_options = attachment.negotiated.options;
        let receiveq = attachment.queues[RECEIVEQ].ring.start(ring_options);
        let transmitq = attachment.queues[TRANSMITQ].ring.start(ring_options);
        let arena = &mut attachment.arena;
        let mut driver = NetDriver::new(receiveq, transmitq, arena, &driver_options)?;
        let control = match attachment.queues.get(CONTROLQ) {
            Some(queue) => Some(Control::new(queue.ring.start(ring_options), arena)?),
            None => None,
        };
        // A vhost-user ring starts with its first kick, wanted or not.
        let _ = driver.rx.flush();
        for queue in &attachment.queues {
            queue.kick();
        }
        Ok(Self { driver, control, attachment })
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
            self.attachment.queues[TRANSMITQ].kick();
        }
        if self.driver.rx.flush() {
            self.attachment.queues[RECEIVEQ].kick();
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

    /// Waits until the device calls about packets. `false`: nothing within `timeout`.
    ///
    /// # Errors
    /// The device went away.
    pub fn wait_call(&mut self, timeout: Duration) -> Result<bool, GuestError> {
        let there =
            self.driver.rx.arm_calls(Arm::Next) || self.attachment.wait_call(RECEIVEQ, timeout)?;
        let raced = self.driver.rx.arm_calls(Arm::Never);
        Ok(there || raced)
    }

    /// Waits until the device is done with sent packets. `false`: not within `timeout`.
    ///
    /// # Errors
    /// The device went away, or broke the rules.
    pub fn wait_room(&mut self, timeout: Duration) -> Result<bool, GuestError> {
        let room =
            self.driver.tx.arm_calls(Arm::Next) || self.attachment.wait_call(TRANSMITQ, timeout)?;
        let raced = self.driver.tx.arm_calls(Arm::Never);
        Ok(self.driver.tx.reclaim()? > 0 || room || raced)
    }

    /// Sends a command on the control queue and waits for the answer: 0 is OK.
    ///
    /// # Errors
    /// There is no control queue, no answer in time, or the device broke the rules.
    pub fn command(&mut self, class: u8, command: u8, data: &[u8]) -> Result<u8, GuestError> {
        let missing = GuestError::NotNegotiated("CTRL_VQ");
        let control = self.control.as_mut().ok_or(missing)?;
        let kick = control.start(class, command, data).map_err(GuestError::Control)?;
        if kick {
            self.attachment.queues[CONTROLQ].kick();
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
            self.attachment.wait_call(CONTROLQ, left)?;
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
    pub fn attachment(&mut self) -> &mut Attachment {
        &mut self.attachment
    }

    /// Stops the device's rings and disconnects.
    ///
    /// # Errors
    /// The device went away before, or refuses.
    pub fn detach(self) -> Result<(), GuestError> {
        self.attachment.detach()
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
        let attachment = Attachment::new(socket, options)?;
        Ok(match attachment.format() {
            Format::Split => Self::Split(UserGuest::start(attachment, options)?),
            Format::Packed => Self::Packed(UserGuest::start(attachment, options)?),
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

    /// See [`UserGuest::wait_call`].
    ///
    /// # Errors
    /// The device went away.
    pub fn wait_call(&mut self, timeout: Duration) -> Result<bool, GuestError> {
        either!(self, guest => guest.wait_call(timeout))
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
        either!(self, guest => &guest.attachment.negotiated)
    }

    /// The guest's hardware address: the device's if it has one, else the one from the options.
    pub fn mac(&self) -> Mac {
        either!(self, guest => guest.attachment.mac)
    }

    /// The device's configuration space, read now.
    ///
    /// # Errors
    /// The device went away.
    pub fn config(&mut self) -> Result<NetConfig, GuestError> {
        either!(self, guest => guest.attachment.config())
    }

    /// Stops the device's rings and disconnects.
    ///
    /// # Errors
    /// The device went away before, or refuses.
    pub fn detach(self) -> Result<(), GuestError> {
        either!(self, guest => guest.detach())
    }
}
