//! Commands of the control queue (virtio 1.2 §5.1.6.5).
//!
//! Pure: bytes in, one acknowledgement out. Every command gets an answer, because a guest waits
//! for it in its boot; what is unknown, malformed or not negotiated is refused with an error.

use crate::coalesce_commands::parse_queue;
use crate::coalescing::{CoalesceLimits, QueueKind};
use crate::control_state::ControlState;
use crate::queue_commands::{SetHash, SetSteering};
use crate::receive_filter::ReceiveMode;
use crate::{Features, MacAddress, Negotiated};

/// Bytes in front of a command's data: class and command.
pub(crate) const CONTROL_HEADER_LEN: usize = 2;
/// `VIRTIO_NET_CTRL_RX`; its commands are the modes of [`ReceiveMode::ALL`].
pub(crate) const CLASS_RECEIVE_MODE: u8 = 0;
/// `VIRTIO_NET_CTRL_MAC`
pub(crate) const CLASS_MAC: u8 = 1;
/// `VIRTIO_NET_CTRL_MAC_TABLE_SET`
pub(crate) const MAC_TABLE_SET: u8 = 0;
/// `VIRTIO_NET_CTRL_MAC_ADDR_SET`
pub(crate) const MAC_ADDR_SET: u8 = 1;
/// `VIRTIO_NET_CTRL_VLAN`
pub(crate) const CLASS_VLAN: u8 = 2;
/// `VIRTIO_NET_CTRL_VLAN_ADD`
pub(crate) const VLAN_ADD: u8 = 0;
/// `VIRTIO_NET_CTRL_VLAN_DEL`
const VLAN_DEL: u8 = 1;
/// `VIRTIO_NET_CTRL_ANNOUNCE`
const CLASS_ANNOUNCE: u8 = 3;
/// `VIRTIO_NET_CTRL_ANNOUNCE_ACK`
const ANNOUNCE_ACK: u8 = 0;
/// `VIRTIO_NET_CTRL_MQ`
pub(crate) const CLASS_QUEUES: u8 = 4;
/// `VIRTIO_NET_CTRL_MQ_VQ_PAIRS_SET`
pub(crate) const QUEUE_PAIRS_SET: u8 = 0;
/// `VIRTIO_NET_CTRL_MQ_RSS_CONFIG`
pub(crate) const RSS_CONFIG: u8 = 1;
/// `VIRTIO_NET_CTRL_MQ_HASH_CONFIG`
pub(crate) const HASH_CONFIG: u8 = 2;
/// `VIRTIO_NET_CTRL_GUEST_OFFLOADS`
pub(crate) const CLASS_GUEST_OFFLOADS: u8 = 5;
/// `VIRTIO_NET_CTRL_GUEST_OFFLOADS_SET`
pub(crate) const GUEST_OFFLOADS_SET: u8 = 0;
/// `VIRTIO_NET_CTRL_NOTF_COAL`
pub(crate) const CLASS_COALESCING: u8 = 6;
/// `VIRTIO_NET_CTRL_NOTF_COAL_TX_SET`
pub(crate) const COALESCE_TRANSMIT: u8 = 0;
/// `VIRTIO_NET_CTRL_NOTF_COAL_RX_SET`
pub(crate) const COALESCE_RECEIVE: u8 = 1;
/// `VIRTIO_NET_CTRL_NOTF_COAL_VQ_SET`
pub(crate) const COALESCE_QUEUE: u8 = 2;
/// `VIRTIO_NET_CTRL_NOTF_COAL_VQ_GET`
const COALESCE_QUEUE_READ: u8 = 3;

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
pub enum Command<'a> {
    /// Turn a receive mode on or off (`VIRTIO_NET_CTRL_RX`, §5.1.6.5.1).
    SetReceiveMode(ReceiveMode, bool),
    /// Receive packets to these single stations and these groups too
    /// (`VIRTIO_NET_CTRL_MAC_TABLE_SET`, §5.1.6.5.2).
    SetMacTable {
        /// Single stations.
        unicast: MacTable<'a>,
        /// Groups.
        multicast: MacTable<'a>,
    },
    /// Use this MAC address from now on (`VIRTIO_NET_CTRL_MAC_ADDR_SET`).
    SetMac(MacAddress),
    /// Receive packets of this VLAN, or no longer (`VIRTIO_NET_CTRL_VLAN`, §5.1.6.5.3).
    SetVlan(u16, bool),
    /// The guest has announced itself (`VIRTIO_NET_CTRL_ANNOUNCE_ACK`, §5.1.6.5.4).
    AcknowledgeAnnouncement,
    /// Turn on these of the negotiated receive offloads, and no others
    /// (`VIRTIO_NET_CTRL_GUEST_OFFLOADS_SET`, §5.1.6.5.6).
    SetGuestOffloads(Features),
    /// Use so many queue pairs, steered automatically (`VIRTIO_NET_CTRL_MQ_VQ_PAIRS_SET`,
    /// §5.1.6.5.5).
    SetQueuePairs(u16),
    /// Steer by this table (`VIRTIO_NET_CTRL_MQ_RSS_CONFIG`, §5.1.6.5.7).
    SetSteering(SetSteering<'a>),
    /// Report hashes, steer automatically (`VIRTIO_NET_CTRL_MQ_HASH_CONFIG`, §5.1.6.5.6.4).
    SetHash(SetHash<'a>),
    /// Call about all queues of a kind so seldom (`VIRTIO_NET_CTRL_NOTF_COAL_TX_SET` and
    /// `_RX_SET`, §5.1.6.5.6).
    SetCoalescing(QueueKind, CoalesceLimits),
    /// Call about one queue so seldom (`VIRTIO_NET_CTRL_NOTF_COAL_VQ_SET`).
    SetQueueCoalescing(u16, CoalesceLimits),
    /// Read the limits of this queue (`VIRTIO_NET_CTRL_NOTF_COAL_VQ_GET`).
    ReadQueueCoalescing(u16),
}

/// The answer to a guest, in the order in which it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// The result of a command that has one; meaningless when it was refused.
    pub result: Option<[u8; CoalesceLimits::LEN]>,
    /// Whether it was done.
    pub ack: Ack,
}

/// Addresses as they lie in a command, one behind the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MacTable<'a>(&'a [[u8; MacAddress::ZERO.0.len()]]);

impl<'a> MacTable<'a> {
    /// A little-endian count of 32 bits and so many addresses; also what comes behind them.
    fn parse(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (count, rest) = bytes.split_first_chunk()?;
        let count = usize::try_from(u32::from_le_bytes(*count)).ok()?;
        let len = count.checked_mul(MacAddress::ZERO.0.len())?;
        let (addresses, rest) = rest.split_at_checked(len)?;
        Some((Self(addresses.as_chunks().0), rest))
    }

    /// The addresses.
    pub fn iter(self) -> impl ExactSizeIterator<Item = MacAddress> + 'a {
        self.0.iter().map(|bytes| MacAddress(*bytes))
    }
}

impl<'a> Command<'a> {
    /// Parses a command: its class, its number and the bytes behind them. `None` for everything
    /// unknown or of the wrong length.
    pub fn parse(class: u8, command: u8, data: &'a [u8]) -> Option<Self> {
        match (class, command) {
            (CLASS_RECEIVE_MODE, mode) => {
                let mode = *ReceiveMode::ALL.get(usize::from(mode))?;
                match data {
                    [on] => Some(Self::SetReceiveMode(mode, *on != 0)),
                    _ => None,
                }
            }
            (CLASS_MAC, MAC_TABLE_SET) => {
                let (unicast, rest) = MacTable::parse(data)?;
                let (multicast, rest) = MacTable::parse(rest)?;
                rest.is_empty().then_some(Self::SetMacTable { unicast, multicast })
            }
            (CLASS_MAC, MAC_ADDR_SET) => {
                data.try_into().ok().map(|bytes| Self::SetMac(MacAddress(bytes)))
            }
            (CLASS_VLAN, VLAN_ADD | VLAN_DEL) => {
                let vlan = u16::from_le_bytes(data.try_into().ok()?);
                Some(Self::SetVlan(vlan, command == VLAN_ADD))
            }
            (CLASS_ANNOUNCE, ANNOUNCE_ACK) => {
                data.is_empty().then_some(Self::AcknowledgeAnnouncement)
            }
            (CLASS_GUEST_OFFLOADS, GUEST_OFFLOADS_SET) => {
                let offloads = u64::from_le_bytes(data.try_into().ok()?);
                Some(Self::SetGuestOffloads(Features::from_bits_retain(offloads)))
            }
            (CLASS_QUEUES, QUEUE_PAIRS_SET) => {
                Some(Self::SetQueuePairs(u16::from_le_bytes(data.try_into().ok()?)))
            }
            (CLASS_QUEUES, RSS_CONFIG) => SetSteering::parse(data).map(Self::SetSteering),
            (CLASS_QUEUES, HASH_CONFIG) => SetHash::parse(data).map(Self::SetHash),
            (CLASS_COALESCING, number) => Self::parse_coalescing(number, data),
            _ => None,
        }
    }

    fn parse_coalescing(number: u8, data: &'a [u8]) -> Option<Self> {
        let set = |kind| Some(Self::SetCoalescing(kind, CoalesceLimits::parse(data)?));
        match number {
            COALESCE_TRANSMIT => set(QueueKind::Transmit),
            COALESCE_RECEIVE => set(QueueKind::Receive),
            COALESCE_QUEUE => {
                let (queue, limits) = parse_queue(data)?;
                Some(Self::SetQueueCoalescing(queue, CoalesceLimits::parse(limits)?))
            }
            COALESCE_QUEUE_READ => {
                let (queue, rest) = parse_queue(data)?;
                rest.is_empty().then_some(Self::ReadQueueCoalescing(queue))
            }
            _ => None,
        }
    }
}

impl ControlState {
    /// Does what a command says; `None`: it was not negotiated, or it makes no sense.
    fn carry_out(&mut self, command: Command<'_>, negotiated: &Negotiated) -> Option<()> {
        let has = |feature| negotiated.features.contains(feature).then_some(());
        match command {
            Command::SetReceiveMode(mode, on) => {
                has(match mode {
                    ReceiveMode::Promiscuous | ReceiveMode::AllMulticast => Features::CTRL_RX,
                    _ => Features::CTRL_RX_EXTRA,
                })?;
                self.filter.set_mode(mode, on);
            }
            Command::SetMacTable { unicast, multicast } => {
                has(Features::CTRL_RX)?;
                self.filter.set_addresses(unicast.iter(), multicast.iter());
            }
            Command::SetMac(mac) => {
                has(Features::CTRL_MAC_ADDR)?;
                self.mac = mac.is_station().then_some(mac)?;
            }
            Command::SetVlan(vlan, on) => {
                has(Features::CTRL_VLAN)?;
                self.filter.set_vlan(vlan, on).then_some(())?;
            }
            Command::AcknowledgeAnnouncement => {
                has(Features::GUEST_ANNOUNCE)?;
                self.announcements += 1;
            }
            Command::SetGuestOffloads(offloads) => {
                has(Features::CTRL_GUEST_OFFLOADS)?;
                has(offloads)?;
                // Linux counts it among them from 6.5 on. It is no offload: it says what the field
                // is.
                let offloads = offloads - Features::GUEST_HDRLEN;
                let is_consistent = Features::GUEST_OFFLOADS.contains(offloads)
                    && offloads.check_dependencies().is_ok();
                self.guest_offloads = is_consistent.then_some(offloads)?;
            }
            Command::SetQueuePairs(pairs) => self.set_queue_pairs(pairs, negotiated)?,
            Command::SetSteering(steering) => self.set_steering(steering, negotiated)?,
            Command::SetHash(hash) => self.set_hash(hash, negotiated)?,
            Command::SetCoalescing(kind, limits) => self.coalesce_all(kind, limits, negotiated)?,
            Command::SetQueueCoalescing(queue, limits) => {
                self.coalesce_one(queue, limits, negotiated)?;
            }
            Command::ReadQueueCoalescing(queue) => self.has_coalescing_of(queue, negotiated)?,
        }
        Some(())
    }
}

/// Carries out the command in `bytes` (all device-readable bytes of the buffer) on `state`.
pub fn answer(bytes: &[u8], state: &mut ControlState, negotiated: &Negotiated) -> Answer {
    let command = command_in(bytes);
    let done = command.and_then(|command| state.carry_out(command, negotiated));
    let ack = if done.is_some() { Ack::Ok } else { Ack::Err };
    // Where the acknowledgement is depends on the result, even when there is none to give.
    let has_result = bytes.starts_with(&[CLASS_COALESCING, COALESCE_QUEUE_READ]);
    let result = has_result.then(|| match (done, command) {
        (Some(()), Some(Command::ReadQueueCoalescing(queue))) => {
            state.coalescing.of(queue).map_or_else(CoalesceLimits::default, |of| of.0).encode()
        }
        _ => [0; CoalesceLimits::LEN],
    });
    Answer { result, ack }
}

fn command_in(bytes: &[u8]) -> Option<Command<'_>> {
    let (header, data) = bytes.split_at_checked(CONTROL_HEADER_LEN)?;
    Command::parse(header[0], header[1], data)
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;
    use crate::FILTER_LEN;

    const ALL: Features = Features::OFFERED.union(Features::ON_REQUEST);
    const SET_MAC: [u8; 8] = [1, 1, 0x52, 0x54, 0, 0, 0, 2];
    const GROUP: MacAddress = MacAddress([1, 0, 0x5e, 1, 2, 3]);
    /// After 16 packets or 50 microseconds.
    const COALESCE: [u8; 8] = [16, 0, 0, 0, 50, 0, 0, 0];
    /// Commands of a form that others have, too.
    const OTHERS: [[u8; 2]; 2] = [[CLASS_VLAN, VLAN_DEL], [CLASS_COALESCING, COALESCE_QUEUE_READ]];

    fn before(features: Features) -> ControlState {
        ControlState::new(MacAddress::local(1), &Negotiated::new(features).unwrap())
    }

    fn answered(bytes: &[u8], features: Features) -> (Ack, ControlState) {
        let mut state = before(features);
        (answer(bytes, &mut state, &Negotiated::new(features).unwrap()).ack, state)
    }

    fn command(class: u8, command: u8, data: &[u8]) -> Vec<u8> {
        [&[class, command], data].concat()
    }

    fn tables(unicast: &[MacAddress], multicast: &[MacAddress]) -> Vec<u8> {
        let mut bytes = command(CLASS_MAC, MAC_TABLE_SET, &[]);
        for table in [unicast, multicast] {
            bytes.extend(u32::try_from(table.len()).unwrap().to_le_bytes());
            bytes.extend(table.iter().flat_map(|mac| mac.0));
        }
        bytes
    }

    /// Every command in a form that is accepted, with the feature it needs.
    fn good() -> Vec<(Vec<u8>, Features)> {
        let offloads = (Features::GUEST_CSUM | Features::GUEST_TSO4).bits().to_le_bytes();
        vec_of([
            (command(CLASS_RECEIVE_MODE, 0, &[0]), Features::CTRL_RX),
            (command(CLASS_RECEIVE_MODE, 1, &[1]), Features::CTRL_RX),
            (command(CLASS_RECEIVE_MODE, 2, &[1]), Features::CTRL_RX_EXTRA),
            (command(CLASS_RECEIVE_MODE, 3, &[1]), Features::CTRL_RX_EXTRA),
            (command(CLASS_RECEIVE_MODE, 4, &[1]), Features::CTRL_RX_EXTRA),
            (command(CLASS_RECEIVE_MODE, 5, &[1]), Features::CTRL_RX_EXTRA),
            (tables(&[MacAddress::local(5)], &[GROUP, GROUP]), Features::CTRL_RX),
            (SET_MAC.to_vec(), Features::CTRL_MAC_ADDR),
            (command(CLASS_VLAN, VLAN_ADD, &[5, 0]), Features::CTRL_VLAN),
            (command(CLASS_ANNOUNCE, ANNOUNCE_ACK, &[]), Features::GUEST_ANNOUNCE),
            (
                command(CLASS_GUEST_OFFLOADS, GUEST_OFFLOADS_SET, &offloads),
                Features::CTRL_GUEST_OFFLOADS,
            ),
            (command(CLASS_COALESCING, COALESCE_TRANSMIT, &COALESCE), Features::NOTF_COAL),
            (command(CLASS_COALESCING, COALESCE_RECEIVE, &COALESCE), Features::NOTF_COAL),
            (
                command(CLASS_COALESCING, COALESCE_QUEUE, &[&[1, 0, 0, 0], &COALESCE[..]].concat()),
                Features::VQ_NOTF_COAL,
            ),
        ])
    }

    fn vec_of<T, const N: usize>(array: [T; N]) -> Vec<T> {
        array.into_iter().collect()
    }

    #[test]
    fn every_command_changes_the_state_and_needs_its_feature() {
        for (bytes, feature) in good() {
            let (ack, state) = answered(&bytes, ALL);
            assert_eq!(ack, Ack::Ok, "{bytes:?}");
            assert_ne!(state, before(ALL), "{bytes:?}");
            let without = ALL - feature;
            assert_eq!(answered(&bytes, without), (Ack::Err, before(without)), "{bytes:?}");
        }
    }

    #[test]
    fn every_other_length_is_refused_and_changes_nothing() {
        for (mut bytes, _) in good() {
            for len in 0..bytes.len() {
                assert_eq!(answered(&bytes[..len], ALL), (Ack::Err, before(ALL)), "{bytes:?}");
            }
            bytes.push(0);
            assert_eq!(answered(&bytes, ALL), (Ack::Err, before(ALL)), "{bytes:?}");
        }
    }

    #[test]
    fn every_other_command_is_refused() {
        let known = good();
        for class in 0..=u8::MAX {
            for number in 0..=u8::MAX {
                let is_known = |(bytes, _): &(Vec<u8>, _)| bytes[..2] == [class, number];
                if known.iter().any(is_known) || OTHERS.contains(&[class, number]) {
                    continue;
                }
                for (data, _) in &known {
                    let bytes = command(class, number, &data[2..]);
                    assert_eq!(answered(&bytes, ALL), (Ack::Err, before(ALL)));
                }
            }
        }
    }

    #[test]
    fn no_guest_takes_a_group_or_the_zero_address() {
        for mac in [MacAddress::BROADCAST, GROUP, MacAddress::ZERO] {
            let bytes = command(CLASS_MAC, MAC_ADDR_SET, &mac.0);
            assert_eq!(answered(&bytes, ALL), (Ack::Err, before(ALL)));
        }
    }

    #[test]
    fn tables_reach_the_filter() {
        let mut state = answered(&tables(&[MacAddress::local(9)], &[GROUP]), ALL).1;
        state.filter.set_mode(ReceiveMode::Promiscuous, false);
        let accepts = |mac: MacAddress| {
            let mut head = [0; FILTER_LEN];
            head[..6].copy_from_slice(&mac.0);
            state.filter.accepts(state.mac, &head)
        };
        assert!(accepts(MacAddress::local(9)) && accepts(GROUP) && accepts(MacAddress::local(1)));
        assert!(!accepts(MacAddress::local(8)) && !accepts(MacAddress([1, 0, 0x5e, 1, 2, 4])));
    }

    #[test]
    fn tables_that_lie_about_their_length_are_refused() {
        for count in [2u32, 3, 0x2aaa_aaab, u32::MAX] {
            let mut bytes = tables(&[GROUP], &[]);
            bytes[2..6].copy_from_slice(&count.to_le_bytes());
            assert_eq!(answered(&bytes, ALL), (Ack::Err, before(ALL)), "{count}");
        }
    }

    #[test]
    fn vlans_beyond_the_last_one_are_refused() {
        for vlan in [4096u16, 0x8005, u16::MAX] {
            let bytes = command(CLASS_VLAN, VLAN_ADD, &vlan.to_le_bytes());
            assert_eq!(answered(&bytes, ALL), (Ack::Err, before(ALL)), "{vlan}");
        }
    }

    #[test]
    fn linux_may_name_hdrlen_among_the_offloads() {
        let csum = Features::GUEST_CSUM;
        let data = (csum | Features::GUEST_HDRLEN).bits().to_le_bytes();
        let (ack, state) = answered(&command(CLASS_GUEST_OFFLOADS, GUEST_OFFLOADS_SET, &data), ALL);
        assert_eq!((ack, state.guest_offloads), (Ack::Ok, csum));
    }

    #[test]
    fn offloads_that_were_not_negotiated_or_lack_something_are_refused() {
        let refused = [
            Features::GUEST_UFO | Features::GUEST_CSUM,
            Features::GUEST_TSO4,
            Features::GUEST_CSUM | Features::MRG_RXBUF,
            Features::from_bits_retain(u64::MAX),
        ];
        for offloads in refused {
            let data = offloads.bits().to_le_bytes();
            let bytes = command(CLASS_GUEST_OFFLOADS, GUEST_OFFLOADS_SET, &data);
            assert_eq!(answered(&bytes, ALL), (Ack::Err, before(ALL)), "{offloads}");
        }
        let hdrlen = Features::GUEST_HDRLEN.bits().to_le_bytes();
        let bytes = command(CLASS_GUEST_OFFLOADS, GUEST_OFFLOADS_SET, &hdrlen);
        let without = ALL - Features::GUEST_HDRLEN;
        assert_eq!(answered(&bytes, without), (Ack::Err, before(without)), "not negotiated");
        let off = command(CLASS_GUEST_OFFLOADS, GUEST_OFFLOADS_SET, &[0; 8]);
        assert_eq!(answered(&off, ALL).1.guest_offloads, Features::empty());
    }
}
