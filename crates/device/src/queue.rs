//! The queue of a device: by its index and by its name.

use core::fmt;

/// The queues of one pair, and the controlq that goes with the first (virtio 1.2 §5.1.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Queue {
    /// receiveq1
    ToGuest,
    /// transmitq1
    FromGuest,
    /// controlq
    Control,
}

impl Queue {
    /// All queues in the order of their index.
    pub const ALL: [Self; 3] = [Self::ToGuest, Self::FromGuest, Self::Control];

    /// The queue with this index, if the device has it.
    pub fn from_index(index: u16) -> Option<Self> {
        Self::ALL.get(usize::from(index)).copied()
    }

    /// The name used in the specification.
    pub fn name(self) -> &'static str {
        match self {
            Self::ToGuest => "receiveq1",
            Self::FromGuest => "transmitq1",
            Self::Control => "controlq",
        }
    }
}

/// One queue of a device with any number of pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueId {
    /// The pair, counted from 0; 0 for the controlq.
    pub pair: u16,
    /// The queue in the pair.
    pub queue: Queue,
}

impl QueueId {
    /// The queue with this index in a device with `pairs` pairs, behind which comes the controlq if
    /// there is one (virtio 1.2 §5.1.2).
    pub fn from_index(index: u16, pairs: u16, has_control: bool) -> Option<Self> {
        let pair = index / 2;
        if pair >= pairs {
            let is_control = has_control && index == pairs.checked_mul(2)?;
            return is_control.then_some(Self { pair: 0, queue: Queue::Control });
        }
        let queue = if index.is_multiple_of(2) { Queue::ToGuest } else { Queue::FromGuest };
        Some(Self { pair, queue })
    }
}

impl fmt::Display for QueueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = u32::from(self.pair) + 1;
        match self.queue {
            Queue::ToGuest => write!(f, "receiveq{number}"),
            Queue::FromGuest => write!(f, "transmitq{number}"),
            Queue::Control => f.write_str("controlq"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_control_queue_comes_behind_the_pairs_only_where_there_is_one() {
        let name = |index, pairs, has_control| {
            QueueId::from_index(index, pairs, has_control).map(|queue| std::format!("{queue}"))
        };
        for (index, pairs, with, without) in [
            (1, 1, Some("transmitq1"), Some("transmitq1")),
            (2, 1, Some("controlq"), None),
            (2, 2, Some("receiveq2"), Some("receiveq2")),
            (3, 2, Some("transmitq2"), Some("transmitq2")),
            (4, 2, Some("controlq"), None),
            (5, 2, None, None),
        ] {
            assert_eq!(name(index, pairs, true).as_deref(), with, "{index} of {pairs} pairs");
            assert_eq!(name(index, pairs, false).as_deref(), without, "{index} of {pairs} pairs");
        }
    }
}
