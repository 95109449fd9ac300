//! The commands a driver can give (virtio 1.2 §5.1.6.5), each with the feature it needs.
//!
//! How: a command knows its class, its number and its data; [`Control`](crate::Control) carries it.
//! Limits: steering tables and hash configurations have no command here; automatic steering is
//! what this driver uses.

use ringway_net::moderation::CoalesceLimits;
use ringway_net::{Features, MacAddress, ReceiveMode};

/// Bytes of a MAC address.
const MAC_LEN: u32 = 6;

/// Something to ask of the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ControlCommand<'a> {
    /// Turn a receive mode on or off (`VIRTIO_NET_CTRL_RX`).
    ReceiveMode(ReceiveMode, bool),
    /// Receive packets to these stations and these groups (`VIRTIO_NET_CTRL_MAC_TABLE_SET`).
    MacTable {
        /// Single stations.
        unicast: &'a [MacAddress],
        /// Groups.
        multicast: &'a [MacAddress],
    },
    /// Use this address (`VIRTIO_NET_CTRL_MAC_ADDR_SET`).
    Mac(MacAddress),
    /// Receive packets of this VLAN, or no longer (`VIRTIO_NET_CTRL_VLAN`).
    Vlan(u16, bool),
    /// The driver has announced itself (`VIRTIO_NET_CTRL_ANNOUNCE_ACK`).
    AcknowledgeAnnouncement,
    /// Use so many queue pairs (`VIRTIO_NET_CTRL_MQ_VQ_PAIRS_SET`).
    QueuePairs(u16),
    /// Turn on these of the negotiated receive offloads, and no others
    /// (`VIRTIO_NET_CTRL_GUEST_OFFLOADS_SET`).
    GuestOffloads(Features),
    /// When to call about sent packets (`VIRTIO_NET_CTRL_NOTF_COAL_TX_SET`).
    CoalesceTransmit(CoalesceLimits),
    /// When to call about received packets (`VIRTIO_NET_CTRL_NOTF_COAL_RX_SET`).
    CoalesceReceive(CoalesceLimits),
    /// When to call about one queue (`VIRTIO_NET_CTRL_NOTF_COAL_VQ_SET`).
    CoalesceQueue(u16, CoalesceLimits),
    /// Read the limits of one queue (`VIRTIO_NET_CTRL_NOTF_COAL_VQ_GET`): then
    /// [`Control::coalescing`](crate::Control::coalescing).
    ReadCoalescing(u16),
}

impl ControlCommand<'_> {
    /// Class and command on the wire.
    pub fn code(&self) -> (u8, u8) {
        match self {
            Self::ReceiveMode(mode, _) => {
                let at = ReceiveMode::ALL.iter().position(|known| known == mode);
                (0, at.and_then(|at| u8::try_from(at).ok()).unwrap_or(u8::MAX))
            }
            Self::MacTable { .. } => (1, 0),
            Self::Mac(_) => (1, 1),
            Self::Vlan(_, true) => (2, 0),
            Self::Vlan(_, false) => (2, 1),
            Self::AcknowledgeAnnouncement => (3, 0),
            Self::QueuePairs(_) => (4, 0),
            Self::GuestOffloads(_) => (5, 0),
            Self::CoalesceTransmit(_) => (6, 0),
            Self::CoalesceReceive(_) => (6, 1),
            Self::CoalesceQueue(..) => (6, 2),
            Self::ReadCoalescing(_) => (6, 3),
        }
    }

    /// The feature without which no device knows it, beside `CTRL_VQ`.
    pub fn needs(&self) -> Features {
        match self {
            Self::ReceiveMode(mode, _) => match ReceiveMode::ALL[..2].contains(mode) {
                true => Features::CTRL_RX,
                false => Features::CTRL_RX_EXTRA,
            },
            Self::MacTable { .. } => Features::CTRL_RX,
            Self::Mac(_) => Features::CTRL_MAC_ADDR,
            Self::Vlan(..) => Features::CTRL_VLAN,
            Self::AcknowledgeAnnouncement => Features::GUEST_ANNOUNCE,
            Self::QueuePairs(_) => Features::MQ,
            Self::GuestOffloads(_) => Features::CTRL_GUEST_OFFLOADS,
            Self::CoalesceTransmit(_) | Self::CoalesceReceive(_) => Features::NOTF_COAL,
            Self::CoalesceQueue(..) | Self::ReadCoalescing(_) => Features::VQ_NOTF_COAL,
        }
    }

    /// Hands the data on, piece by piece; `None`: a table has more addresses than can be counted.
    pub(crate) fn data(&self, mut write: impl FnMut(&[u8])) -> Option<()> {
        match *self {
            Self::ReceiveMode(_, on) => write(&[u8::from(on)]),
            Self::MacTable { unicast, multicast } => {
                for table in [unicast, multicast] {
                    let count = u32::try_from(table.len()).ok()?;
                    count.checked_mul(MAC_LEN)?;
                    write(&count.to_le_bytes());
                    table.iter().for_each(|mac| write(&mac.0));
                }
            }
            Self::Mac(mac) => write(&mac.0),
            Self::Vlan(vlan, _) => write(&vlan.to_le_bytes()),
            Self::AcknowledgeAnnouncement => {}
            Self::QueuePairs(pairs) => write(&pairs.to_le_bytes()),
            Self::GuestOffloads(offloads) => write(&offloads.bits().to_le_bytes()),
            Self::CoalesceTransmit(limits) | Self::CoalesceReceive(limits) => {
                write(&limits.encode());
            }
            Self::ReadCoalescing(queue) => {
                write(&queue.to_le_bytes());
                write(&[0; 2]);
            }
            Self::CoalesceQueue(queue, limits) => {
                write(&queue.to_le_bytes());
                write(&[0; 2]);
                write(&limits.encode());
            }
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use ringway_net::{Command, QueueKind};

    use super::*;

    fn data(command: &ControlCommand<'_>) -> Vec<u8> {
        let mut bytes = Vec::new();
        command.data(|piece| bytes.extend(piece)).expect("few addresses");
        bytes
    }

    #[test]
    fn a_device_understands_each_command() {
        let macs = [1, 2, 3].map(MacAddress::local);
        let (unicast, multicast) = macs.split_at(2);
        let offloads = Features::GUEST_CSUM | Features::GUEST_TSO4;
        let limits = CoalesceLimits { max_packets: 16, max_usecs: 50 };
        let (receive, transmit) = (QueueKind::Receive, QueueKind::Transmit);
        for (ours, expected) in [
            (ControlCommand::Mac(macs[0]), Command::SetMac(macs[0])),
            (ControlCommand::Vlan(17, true), Command::SetVlan(17, true)),
            (ControlCommand::Vlan(17, false), Command::SetVlan(17, false)),
            (ControlCommand::AcknowledgeAnnouncement, Command::AcknowledgeAnnouncement),
            (ControlCommand::QueuePairs(4), Command::SetQueuePairs(4)),
            (ControlCommand::GuestOffloads(offloads), Command::SetGuestOffloads(offloads)),
            (ControlCommand::CoalesceTransmit(limits), Command::SetCoalescing(transmit, limits)),
            (ControlCommand::CoalesceReceive(limits), Command::SetCoalescing(receive, limits)),
            (ControlCommand::CoalesceQueue(5, limits), Command::SetQueueCoalescing(5, limits)),
            (ControlCommand::ReadCoalescing(5), Command::ReadQueueCoalescing(5)),
        ] {
            let ((class, command), data) = (ours.code(), data(&ours));
            assert_eq!(Command::parse(class, command, &data), Some(expected), "{ours:?}");
        }
        for mode in ReceiveMode::ALL {
            let ours = ControlCommand::ReceiveMode(mode, true);
            let ((class, command), data) = (ours.code(), data(&ours));
            let expected = Command::SetReceiveMode(mode, true);
            assert_eq!(Command::parse(class, command, &data), Some(expected));
        }
        let ours = ControlCommand::MacTable { unicast, multicast };
        let ((class, command), data) = (ours.code(), data(&ours));
        let Some(Command::SetMacTable { unicast: u, multicast: m }) =
            Command::parse(class, command, &data)
        else {
            panic!("{data:?}")
        };
        assert!(u.iter().eq(unicast.iter().copied()) && m.iter().eq(multicast.iter().copied()));
    }

    #[test]
    fn coalescing_is_laid_out_as_specified() {
        let limits = CoalesceLimits { max_packets: 0x0102, max_usecs: 0x0304 };
        let ours = ControlCommand::CoalesceQueue(5, limits);
        assert_eq!(data(&ours), [5, 0, 0, 0, 2, 1, 0, 0, 4, 3, 0, 0]);
        assert_eq!(ours.code(), (6, 2));
        assert_eq!(data(&ControlCommand::CoalesceReceive(limits)), [2, 1, 0, 0, 4, 3, 0, 0]);
    }
}
