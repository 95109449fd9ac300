//! Commands of the control queue (virtio 1.2 §5.1.6.5).
//!
//! Pure: bytes in, one acknowledgement out. Every command gets an answer, because a guest waits
//! for it in its boot; what is unknown, malformed or not negotiated is refused with an error.

use crate::{MacAddress, Negotiated};

/// Longest command in bytes that is looked at. The device copies at most so many; what is longer
/// is cut, and no command known here has that length.
pub const CONTROL_LEN_MAX: usize = 1024;

/// Bytes in front of a command's data: class and command.
const CONTROL_HEADER_LEN: usize = 2;
/// `VIRTIO_NET_CTRL_MAC`
const CLASS_MAC: u8 = 1;
/// `VIRTIO_NET_CTRL_MAC_ADDR_SET`
const MAC_ADDR_SET: u8 = 1;

/// The one byte that answers a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Ack {
    /// `VIRTIO_NET_OK`: done.
    Ok = 0,
    /// `VIRTIO_NET_ERR`: nothing was changed.
    Err = 1,
}

impl Ack {
    /// The value on the wire.
    pub const fn raw(self) -> u8 {
        self as u8
    }
}

/// A command that this device knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// Use this MAC address from now on (`VIRTIO_NET_CTRL_MAC_ADDR_SET`).
    SetMac(MacAddress),
}

impl Command {
    /// Parses a command: its class, its number and the bytes behind them. `None` for everything
    /// unknown or of the wrong length.
    pub fn parse(class: u8, command: u8, data: &[u8]) -> Option<Self> {
        match (class, command) {
            (CLASS_MAC, MAC_ADDR_SET) => {
                data.try_into().ok().map(|bytes| Self::SetMac(MacAddress(bytes)))
            }
            _ => None,
        }
    }
}

/// What commands change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ControlState {
    /// The guest's address.
    pub mac: MacAddress,
}

/// Carries out the command in `bytes` (all device-readable bytes of the buffer) on `state`.
pub fn answer(bytes: &[u8], state: &mut ControlState, negotiated: &Negotiated) -> Ack {
    match command_in(bytes) {
        Some(Command::SetMac(mac)) if negotiated.ctrl_mac_addr && mac.is_station() => {
            state.mac = mac;
            Ack::Ok
        }
        Some(Command::SetMac(_)) | None => Ack::Err,
    }
}

fn command_in(bytes: &[u8]) -> Option<Command> {
    let (header, data) = bytes.split_at_checked(CONTROL_HEADER_LEN)?;
    Command::parse(header[0], header[1], data)
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;
    use crate::Features;

    const BEFORE: ControlState = ControlState { mac: MacAddress::local(1) };
    const SET_MAC: [u8; 8] = [1, 1, 0x52, 0x54, 0, 0, 0, 2];

    fn answered(bytes: &[u8], features: Features) -> (Ack, ControlState) {
        let negotiated = Negotiated::new(features).unwrap();
        let mut state = BEFORE;
        (answer(bytes, &mut state, &negotiated), state)
    }

    #[test]
    fn sets_the_mac_address() {
        let (ack, state) = answered(&SET_MAC, Features::OFFERED);
        assert_eq!((ack, state.mac), (Ack::Ok, MacAddress::local(2)));
    }

    #[test]
    fn not_negotiated_means_refused() {
        let without = Features::OFFERED - Features::CTRL_MAC_ADDR;
        assert_eq!(answered(&SET_MAC, without), (Ack::Err, BEFORE));
    }

    #[test]
    fn no_guest_becomes_a_group_or_nobody() {
        for mac in [MacAddress::BROADCAST, MacAddress([1, 0, 0x5e, 0, 0, 1]), MacAddress::ZERO] {
            let bytes: Vec<u8> = [1, 1].into_iter().chain(mac.0).collect();
            assert_eq!(answered(&bytes, Features::OFFERED), (Ack::Err, BEFORE));
        }
    }

    #[test]
    fn every_other_command_and_length_is_refused() {
        for class in 0..=u8::MAX {
            for command in (0..=u8::MAX).filter(|command| (class, *command) != (1, 1)) {
                let bytes = [class, command, 0x52, 0x54, 0, 0, 0, 2];
                assert_eq!(answered(&bytes, Features::OFFERED), (Ack::Err, BEFORE));
            }
        }
        let long: Vec<u8> = SET_MAC.into_iter().chain([0; CONTROL_LEN_MAX]).collect();
        for len in (0..long.len()).filter(|len| *len != SET_MAC.len()) {
            assert_eq!(answered(&long[..len], Features::OFFERED), (Ack::Err, BEFORE), "{len}");
        }
    }
}
