//! The commands about notification coalescing (virtio 1.2 §5.1.6.5.6, virtio 1.3 §5.1.6.5.7 for
//! single queues).
//!
//! The last command decides, whether it named all queues of a kind or one. Limits of zero are what
//! a device has after a reset; a queue whose guest has said nothing is notified as the device
//! likes.
//!
//! Limits: no queue is ever disabled and enabled again, because `RING_RESET` is not offered; so
//! nothing falls back to what was set for all.

use alloc::collections::BTreeMap;

use crate::moderation::CoalesceLimits;
use crate::{Command, ControlState, Features, Negotiated};

/// Queues of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueKind {
    /// receiveqs, which have the even numbers.
    Receive = 0,
    /// transmitqs, which have the odd numbers.
    Transmit = 1,
}

/// Which command has set something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CoalesceScope {
    /// `VIRTIO_NET_CTRL_NOTF_COAL_TX_SET` or `VIRTIO_NET_CTRL_NOTF_COAL_RX_SET`
    All,
    /// `VIRTIO_NET_CTRL_NOTF_COAL_VQ_SET`
    One,
}

/// What a guest has set, for all queues of a kind and for single ones.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Coalescing {
    all: [Option<CoalesceLimits>; 2],
    /// At most one entry per queue that the device has.
    one: BTreeMap<u16, CoalesceLimits>,
}

impl Coalescing {
    /// After a reset.
    pub const NOTHING: Self = Self { all: [None; 2], one: BTreeMap::new() };

    /// What counts for the queue with this number; `None`: the guest has said nothing about it.
    pub fn of(&self, queue: u16) -> Option<(CoalesceLimits, CoalesceScope)> {
        let one = self.one.get(&queue).map(|limits| (*limits, CoalesceScope::One));
        one.or(self.all[usize::from(queue % 2)].map(|limits| (limits, CoalesceScope::All)))
    }

    fn set_all(&mut self, kind: QueueKind, limits: CoalesceLimits) {
        self.all[kind as usize] = Some(limits);
        self.one.retain(|queue, _| queue % 2 != kind as u16);
    }
}

impl CoalesceLimits {
    /// Bytes of `struct virtio_net_ctrl_coal`.
    pub const LEN: usize = 8;

    /// `struct virtio_net_ctrl_coal`: packets, then microseconds, both little-endian.
    pub fn encode(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..4].copy_from_slice(&self.max_packets.to_le_bytes());
        bytes[4..].copy_from_slice(&self.max_usecs.to_le_bytes());
        bytes
    }

    /// What such a structure says.
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
}

/// A queue's number, and what lies behind it and the two bytes that nobody reads.
pub(crate) fn parse_queue(data: &[u8]) -> Option<(u16, &[u8])> {
    let ([low, high, _, _], rest) = data.split_first_chunk()?;
    Some((u16::from_le_bytes([*low, *high]), rest))
}

/// Does what such a command says; `None`: it was not negotiated, or it makes no sense.
pub(crate) fn carry_out(
    state: &mut ControlState,
    command: Command<'_>,
    negotiated: &Negotiated,
) -> Option<()> {
    let has = |feature| negotiated.features.contains(feature).then_some(());
    let is_running = |queue: u16| {
        let pairs = state.queue_pairs_max.min(state.running_pairs);
        (queue / 2 < pairs).then_some(())
    };
    match command {
        Command::SetCoalescing(kind, limits) => {
            has(Features::NOTF_COAL)?;
            limits.is_in_range().then_some(())?;
            state.coalescing.set_all(kind, limits);
        }
        Command::SetQueueCoalescing(queue, limits) => {
            has(Features::VQ_NOTF_COAL)?;
            is_running(queue)?;
            limits.is_in_range().then_some(())?;
            state.coalescing.one.insert(queue, limits);
        }
        Command::ReadQueueCoalescing(queue) => {
            has(Features::VQ_NOTF_COAL)?;
            is_running(queue)?;
        }
        _ => return None,
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;
    use crate::{Ack, Answer, MacAddress, answer};

    const PAIRS: u16 = 2;
    const LIMITS: CoalesceLimits = CoalesceLimits { max_packets: 16, max_usecs: 50 };
    const OTHERS: CoalesceLimits = CoalesceLimits { max_packets: 1, max_usecs: 0 };
    const TX_SET: u8 = 0;
    const RX_SET: u8 = 1;

    fn state() -> ControlState {
        ControlState::new(MacAddress::local(1), &Negotiated::NOTHING).with_queue_pairs_max(PAIRS)
    }

    fn command(number: u8, data: &[u8]) -> Vec<u8> {
        [&[6, number], data].concat()
    }

    fn vq_set(queue: u16, limits: CoalesceLimits) -> Vec<u8> {
        // What nobody reads may be anything.
        command(2, &[&queue.to_le_bytes()[..], &[0xa5; 2], &limits.encode()].concat())
    }

    fn vq_get(queue: u16) -> Vec<u8> {
        command(3, &[&queue.to_le_bytes()[..], &[0; 2]].concat())
    }

    fn ask_without(bytes: &[u8], state: &mut ControlState, without: Features) -> Answer {
        let negotiated = Negotiated::new(Features::OFFERED - without).unwrap();
        answer(bytes, state, &negotiated)
    }

    fn ask(bytes: &[u8], state: &mut ControlState) -> Answer {
        ask_without(bytes, state, Features::empty())
    }

    fn limits_of(queue: u16, state: &mut ControlState) -> Option<CoalesceLimits> {
        let Answer { ack, result } = ask(&vq_get(queue), state);
        (ack == Ack::Ok).then(|| CoalesceLimits::decode(result.unwrap()))
    }

    #[test]
    fn spec_1_3_5_1_6_5_7_the_last_command_decides_whichever_it_was() {
        let mut state = state();
        let steps = [
            (command(RX_SET, &LIMITS.encode()), [16, 0, 16, 0]),
            (vq_set(0, OTHERS), [1, 0, 16, 0]),
            (vq_set(1, LIMITS), [1, 16, 16, 0]),
            (command(TX_SET, &OTHERS.encode()), [1, 1, 16, 1]),
            (command(RX_SET, &LIMITS.encode()), [16, 1, 16, 1]),
        ];
        for (bytes, expected) in steps {
            assert_eq!(ask(&bytes, &mut state).ack, Ack::Ok);
            let packets: Vec<u32> =
                (0..4).map(|queue| limits_of(queue, &mut state).unwrap().max_packets).collect();
            assert_eq!(packets, expected);
        }
    }

    #[test]
    fn nothing_is_set_after_a_reset() {
        let mut state = state();
        assert_eq!(state.coalescing.of(0), None);
        assert_eq!(limits_of(0, &mut state), Some(CoalesceLimits::default()));
    }

    #[test]
    fn queues_that_do_not_run_are_refused() {
        for queue in [2 * PAIRS, 2 * PAIRS + 1, u16::MAX] {
            let mut state = state();
            assert_eq!(ask(&vq_set(queue, LIMITS), &mut state).ack, Ack::Err, "{queue}");
            assert_eq!(limits_of(queue, &mut state), None);
        }
        let mut one_runs = ControlState { running_pairs: 1, ..state() };
        assert_eq!(limits_of(1, &mut one_runs), Some(CoalesceLimits::default()));
        assert_eq!(limits_of(2, &mut one_runs), None);
        assert_eq!(ask(&vq_set(3, LIMITS), &mut one_runs).ack, Ack::Err);
    }

    #[test]
    fn limits_out_of_range_are_refused_and_change_nothing() {
        let largest = CoalesceLimits {
            max_packets: CoalesceLimits::PACKETS_MAX,
            max_usecs: CoalesceLimits::USECS_MAX,
        };
        let too_large = [
            CoalesceLimits { max_packets: CoalesceLimits::PACKETS_MAX + 1, ..largest },
            CoalesceLimits { max_usecs: CoalesceLimits::USECS_MAX + 1, ..largest },
            CoalesceLimits { max_packets: u32::MAX, max_usecs: u32::MAX },
        ];
        for limits in too_large {
            let data = limits.encode();
            for bytes in [command(TX_SET, &data), command(RX_SET, &data), vq_set(0, limits)] {
                let mut after = state();
                assert_eq!(ask(&bytes, &mut after).ack, Ack::Err, "{limits:?}");
                assert_eq!(after, state());
            }
        }
        assert_eq!(ask(&command(RX_SET, &largest.encode()), &mut state()).ack, Ack::Ok);
    }

    #[test]
    fn a_refused_request_still_has_room_for_its_result() {
        let refused = Answer { ack: Ack::Err, result: Some([0; CoalesceLimits::LEN]) };
        let without = Features::VQ_NOTF_COAL;
        assert_eq!(ask_without(&vq_get(0), &mut state(), without), refused);
        assert_eq!(ask_without(&vq_set(0, LIMITS), &mut state(), without).ack, Ack::Err);
        assert_eq!(ask(&[6, 3], &mut state()), refused);
    }

    #[test]
    fn each_command_needs_its_feature_and_its_length() {
        let good = [
            (command(TX_SET, &LIMITS.encode()), Features::NOTF_COAL),
            (command(RX_SET, &LIMITS.encode()), Features::NOTF_COAL),
            (vq_set(3, LIMITS), Features::VQ_NOTF_COAL),
            (vq_get(3), Features::VQ_NOTF_COAL),
        ];
        for (mut bytes, feature) in good {
            assert_eq!(ask(&bytes, &mut state()).ack, Ack::Ok);
            assert_eq!(ask_without(&bytes, &mut state(), feature).ack, Ack::Err);
            for len in 0..bytes.len() {
                assert_eq!(ask(&bytes[..len], &mut state()).ack, Ack::Err, "{len}");
            }
            bytes.push(0);
            assert_eq!(ask(&bytes, &mut state()).ack, Ack::Err);
        }
    }
}
