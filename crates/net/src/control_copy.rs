//! A command of the control queue, copied out of the guest's memory before anything is read of it.
//!
//! Limits: [`CONTROL_LEN_MAX`] bytes are copied at most, however long the command is.

use crate::MacAddress;
use crate::control::{CLASS_MAC, CONTROL_HEADER_LEN, MAC_TABLE_SET};
use crate::receive_filter::ADDRESSES_MAX;

/// Longest command in bytes that is carried out as it is: a steering table of 128 entries and its
/// key need a third. Tables of MAC addresses may be longer: see [`copy_command`].
pub const CONTROL_LEN_MAX: usize = 1024;

/// Tables of a `MAC_TABLE_SET`: single stations, and groups.
const TABLES: usize = 2;
/// Bytes of the number of addresses in front of each.
const COUNT_LEN: usize = 4;
/// Bytes of an address.
const MAC_LEN: usize = MacAddress::ZERO.0.len();
/// Addresses of a long table that are copied: one more than a filter keeps.
const COPIED_MAX: usize = ADDRESSES_MAX + 1;
const _: () = assert!(
    CONTROL_HEADER_LEN + TABLES * (COUNT_LEN + COPIED_MAX * MAC_LEN) <= CONTROL_LEN_MAX,
    "shortened tables fit"
);

/// Copies a command of `len` bytes; `read` copies those from an offset on. How many bytes it has
/// become; `None`: it is longer than its kind can be.
///
/// Tables of MAC addresses have no longest form (virtio 1.2 §5.1.6.5.2). Of tables that do not fit,
/// one address more is copied than a [`ReceiveFilter`](crate::ReceiveFilter) keeps, which means to
/// it: all of that kind. Their lengths are checked against each other as in a short command.
pub fn copy_command(
    len: usize,
    read: impl Fn(usize, &mut [u8]),
    into: &mut [u8; CONTROL_LEN_MAX],
) -> Option<usize> {
    if let Some(whole) = into.get_mut(..len) {
        read(0, whole);
        return Some(len);
    }
    let (mut from, mut to) = (CONTROL_HEADER_LEN, CONTROL_HEADER_LEN);
    read(0, &mut into[..to]);
    (into[..to] == [CLASS_MAC, MAC_TABLE_SET]).then_some(())?;
    for _ in 0..TABLES {
        let mut count = [0; COUNT_LEN];
        (len - from >= COUNT_LEN).then(|| read(from, &mut count))?;
        let count = usize::try_from(u32::from_le_bytes(count)).ok()?;
        let copied = count.min(COPIED_MAX);
        let count_copied = u32::try_from(copied).ok()?;
        into[to..to + COUNT_LEN].copy_from_slice(&count_copied.to_le_bytes());
        (from, to) = (from + COUNT_LEN, to + COUNT_LEN);
        let table_len = count.checked_mul(MAC_LEN)?;
        let copied = &mut into[to..][..copied * MAC_LEN];
        (len - from >= table_len).then(|| read(from, copied))?;
        (from, to) = (from + table_len, to + copied.len());
    }
    (from == len).then_some(to)
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;
    use crate::{Ack, ControlState, Features, Negotiated, ReceiveMode, answer};

    /// Tables of so many addresses, which are all different.
    fn tables(unicast: u32, multicast: u32) -> Vec<u8> {
        let mut bytes = std::vec![CLASS_MAC, MAC_TABLE_SET];
        for (count, first) in [(unicast, 0x52), (multicast, 0x01)] {
            bytes.extend(count.to_le_bytes());
            for at in 0..count {
                let [a, b, c, d] = at.to_be_bytes();
                bytes.extend([first, 0, a, b, c, d]);
            }
        }
        bytes
    }

    fn copied(bytes: &[u8]) -> Option<Vec<u8>> {
        let mut into = [0; CONTROL_LEN_MAX];
        let read = |at: usize, part: &mut [u8]| part.copy_from_slice(&bytes[at..][..part.len()]);
        let len = copy_command(bytes.len(), read, &mut into)?;
        Some(into[..len].to_vec())
    }

    #[test]
    fn what_fits_is_copied_as_it_is() {
        for len in [0, 1, 2, 700, CONTROL_LEN_MAX] {
            let bytes = std::vec![7; len];
            assert_eq!(copied(&bytes), Some(bytes));
        }
        assert_eq!(copied(&[7; CONTROL_LEN_MAX + 1]), None);
    }

    #[test]
    fn spec_5_1_6_5_2_what_does_not_fit_of_a_table_lets_all_of_its_kind_in() {
        let negotiated = Negotiated::new(Features::OFFERED).expect("they fit together");
        let stranger = |first| MacAddress([first, 9, 9, 9, 9, 9]);
        for (unicast, multicast) in
            [(0, 700), (700, 0), (3, 700), (700, 3), (64, 200), (9000, 9000)]
        {
            let bytes = copied(&tables(unicast, multicast)).expect("a table");
            let mut state = ControlState::new(MacAddress::local(1), &negotiated);
            assert_eq!(answer(&bytes, &mut state, &negotiated).ack, Ack::Ok);
            state.filter.set_mode(ReceiveMode::Promiscuous, false);
            let accepts = |mac: MacAddress| {
                let mut head = [0; crate::receive_filter::FILTER_LEN];
                head[..MAC_LEN].copy_from_slice(&mac.0);
                state.filter.accepts(state.mac, &head)
            };
            assert_eq!(accepts(stranger(0x52)), unicast > 64, "{unicast} stations");
            assert_eq!(accepts(stranger(0x01)), multicast > 64, "{multicast} groups");
            assert!(multicast == 0 || accepts(MacAddress([1, 0, 0, 0, 0, 2])), "the third group");
            assert!(
                unicast == 0 || accepts(MacAddress([0x52, 0, 0, 0, 0, 2])),
                "the third station"
            );
        }
    }

    #[test]
    fn long_tables_that_lie_about_their_length_are_refused() {
        let good = tables(300, 300);
        let second = 2 + COUNT_LEN + 300 * MAC_LEN;
        for (at, count) in
            [(2, 299), (2, 301), (2, u32::MAX), (2, 0x2aaa_aaab), (second, 299), (second, 301)]
        {
            let mut bytes = good.clone();
            bytes[at..][..COUNT_LEN].copy_from_slice(&u32::to_le_bytes(count));
            assert_eq!(copied(&bytes), None, "{count} at {at}");
        }
        for len in CONTROL_LEN_MAX + 1..good.len() {
            assert_eq!(copied(&good[..len]), None, "{len} bytes");
        }
        assert_eq!(copied(&[&good[..], &[0]].concat()), None);
    }
}
