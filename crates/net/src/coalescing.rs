//! Notification coalescing as a guest sets it (virtio 1.2 §5.1.6.5.6, virtio 1.3 §5.1.6.5.7 for
//! single queues): the two limits, and which of them count for a queue.
//!
//! The last command decides, whether it named all queues of a kind or one. Limits of zero are what
//! a device has after a reset; a queue whose guest has said nothing is notified as the device
//! likes.

use alloc::collections::BTreeMap;
use core::fmt;

/// The two limits, named as in `struct virtio_net_ctrl_coal`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CoalesceLimits {
    /// Packets before a notification.
    pub max_packets: u32,
    /// Microseconds before a notification.
    pub max_usecs: u32,
}

impl CoalesceLimits {
    /// Most packets that a driver may ask for: no queue has more entries.
    pub const PACKETS_MAX: u32 = 32_768;
    /// Longest delay in microseconds that a driver may ask for: beyond a second a guest looks dead.
    pub const USECS_MAX: u32 = 1_000_000;
    /// Bytes of `struct virtio_net_ctrl_coal`.
    pub const LEN: usize = 8;

    /// Whether a driver may ask for this.
    pub const fn is_in_range(self) -> bool {
        self.max_packets <= Self::PACKETS_MAX && self.max_usecs <= Self::USECS_MAX
    }

    /// The time limit in nanoseconds.
    pub(crate) const fn hold_ns(self) -> u64 {
        self.max_usecs as u64 * 1000
    }

    /// `struct virtio_net_ctrl_coal`: packets, then microseconds, both little-endian.
    pub fn encode(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..4].copy_from_slice(&self.max_packets.to_le_bytes());
        bytes[4..].copy_from_slice(&self.max_usecs.to_le_bytes());
        bytes
    }

    /// The limits in such a structure.
    pub const fn decode(bytes: [u8; Self::LEN]) -> Self {
        let [a, b, c, d, e, f, g, h] = bytes;
        Self {
            max_packets: u32::from_le_bytes([a, b, c, d]),
            max_usecs: u32::from_le_bytes([e, f, g, h]),
        }
    }

    pub(crate) fn parse(data: &[u8]) -> Option<Self> {
        data.try_into().ok().map(Self::decode)
    }

    /// The limits as a user writes them: `16/50us`.
    pub(crate) fn from_text(text: &str) -> Option<Self> {
        let (packets, usecs) = text.split_once('/')?;
        let max_packets = packets.parse().ok()?;
        let limits = Self { max_packets, max_usecs: usecs_in(usecs)? };
        limits.is_in_range().then_some(limits)
    }
}

/// A time as a user writes it: `50us`.
pub(crate) fn usecs_in(text: &str) -> Option<u32> {
    let usecs = text.strip_suffix("us")?.parse().ok()?;
    (usecs <= CoalesceLimits::USECS_MAX).then_some(usecs)
}

impl fmt::Display for CoalesceLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}us", self.max_packets, self.max_usecs)
    }
}

/// Queues of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueKind {
    /// receiveqs, which have the even numbers.
    Receive = 0,
    /// transmitqs, which have the odd numbers.
    Transmit = 1,
}

/// The command that has set something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CoalesceScope {
    /// `VIRTIO_NET_CTRL_NOTF_COAL_TX_SET` or `VIRTIO_NET_CTRL_NOTF_COAL_RX_SET`
    All,
    /// `VIRTIO_NET_CTRL_NOTF_COAL_VQ_SET`
    One,
}

/// The limits that a guest has set, for all queues of a kind and for single ones.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Coalescing {
    all: [Option<CoalesceLimits>; 2],
    /// At most one entry per queue that the device has.
    one: BTreeMap<u16, CoalesceLimits>,
}

impl Coalescing {
    /// After a reset.
    pub const NOTHING: Self = Self { all: [None; 2], one: BTreeMap::new() };

    /// The limits of the queue with this number; `None`: the guest has said nothing about it.
    pub fn of(&self, queue: u16) -> Option<(CoalesceLimits, CoalesceScope)> {
        let one = self.one.get(&queue).map(|limits| (*limits, CoalesceScope::One));
        one.or(self.all[usize::from(queue % 2)].map(|limits| (limits, CoalesceScope::All)))
    }

    /// The limits of all queues of a kind.
    pub(crate) fn all(&self) -> impl Iterator<Item = (QueueKind, CoalesceLimits)> {
        let kinds = [QueueKind::Receive, QueueKind::Transmit];
        kinds.into_iter().filter_map(|kind| Some((kind, self.all[kind as usize]?)))
    }

    /// The limits of single queues.
    pub(crate) fn one(&self) -> impl Iterator<Item = (u16, CoalesceLimits)> {
        self.one.iter().map(|(queue, limits)| (*queue, *limits))
    }

    pub(crate) fn set_all(&mut self, kind: QueueKind, limits: CoalesceLimits) {
        self.all[kind as usize] = Some(limits);
        self.one.retain(|queue, _| queue % 2 != kind as u16);
    }

    pub(crate) fn set_one(&mut self, queue: u16, limits: CoalesceLimits) {
        self.one.insert(queue, limits);
    }
}
