//! A guest in user space whose ring format is known only once it is attached.

use std::path::Path;
use std::time::Duration;

use ringway_driver::{Held, Queues, RxStatistics, Sent};
use ringway_net::{Counters, Negotiated, NetConfig, NetHeader};
use ringway_virtq::{Format, PackedDriver, SplitDriver};

use super::{Arrived, UserGuest};
use crate::attachment::{GuestError, GuestOptions};
use crate::frames::Mac;
use crate::user_device::UserDevice;

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

    /// See [`UserGuest::send_on`].
    pub fn send_on(&mut self, pair: usize) {
        either!(self, guest => guest.send_on(pair))
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

    /// See [`UserDevice::stop`].
    ///
    /// # Errors
    /// The device went away before, or refuses.
    pub fn stop(&mut self) -> Result<(), GuestError> {
        either!(self, guest => guest.device.stop())
    }

    /// The result of the negotiation, as plain fields.
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
