//! The commands about notification coalescing (virtio 1.2 §5.1.6.5.6, virtio 1.3 §5.1.6.5.7 for
//! single queues): what they change.
//!
//! Limits: no queue is ever disabled and enabled again, because `RING_RESET` is not offered; so
//! nothing falls back to what was set for all.

use crate::coalescing::{CoalesceLimits, QueueKind};
use crate::control_state::ControlState;
use crate::{Features, Negotiated};

/// A queue's number, and what lies behind it and the two reserved bytes, which are not read.
pub(crate) fn parse_queue(data: &[u8]) -> Option<(u16, &[u8])> {
    let ([low, high, _, _], rest) = data.split_first_chunk()?;
    Some((u16::from_le_bytes([*low, *high]), rest))
}

impl ControlState {
    /// Sets the limits of all queues of a kind; `None`: not negotiated, or out of range.
    pub(crate) fn coalesce_all(
        &mut self,
        kind: QueueKind,
        limits: CoalesceLimits,
        negotiated: &Negotiated,
    ) -> Option<()> {
        negotiated.features.contains(Features::NOTF_COAL).then_some(())?;
        limits.is_in_range().then(|| self.coalescing.set_all(kind, limits))
    }

    /// Sets the limits of one queue; `None`: the command makes no sense, or they are out of range.
    pub(crate) fn coalesce_one(
        &mut self,
        queue: u16,
        limits: CoalesceLimits,
        negotiated: &Negotiated,
    ) -> Option<()> {
        self.has_coalescing_of(queue, negotiated)?;
        limits.is_in_range().then(|| self.coalescing.set_one(queue, limits))
    }

    /// Whether commands about this queue make sense.
    pub(crate) fn has_coalescing_of(&self, queue: u16, negotiated: &Negotiated) -> Option<()> {
        let pairs = self.queue_pairs_max.min(self.running_pairs);
        let is_negotiated = negotiated.features.contains(Features::VQ_NOTF_COAL);
        (is_negotiated && queue / 2 < pairs).then_some(())
    }
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
        // The reserved bytes may be anything.
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
