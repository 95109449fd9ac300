//! The commands about queue pairs, steering and hashes (virtio 1.2 §5.1.6.5.5 to §5.1.6.5.7).
//!
//! The last one of them decides: a number of pairs and a hash configuration mean automatic
//! steering, a table means the table.

use crate::control_state::ControlState;
use crate::{Features, Negotiated, ReceiveHash, RssTable};

/// Bytes that a C compiler may put behind either structure: DPDK sends them, too.
const PADDING_MAX: usize = 3;

/// `struct virtio_net_rss_config`, as it lies in the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SetSteering<'a> {
    hash_types: u32,
    unclassified: u16,
    /// Little-endian pairs.
    entries: &'a [[u8; 2]],
    transmit_queues: u16,
    key: &'a [u8],
}

/// `struct virtio_net_hash_config`, as it lies in the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SetHash<'a> {
    hash_types: u32,
    key: &'a [u8],
}

impl<'a> SetSteering<'a> {
    pub(crate) fn parse(data: &'a [u8]) -> Option<Self> {
        let (hash_types, data) = data.split_first_chunk()?;
        let (mask, data) = word(data)?;
        let (unclassified, data) = word(data)?;
        let (entries, data) = data.split_at_checked(2 * (usize::from(mask) + 1))?;
        let (transmit_queues, data) = word(data)?;
        Some(Self {
            hash_types: u32::from_le_bytes(*hash_types),
            unclassified,
            entries: entries.as_chunks().0,
            transmit_queues,
            key: key(data)?,
        })
    }

    fn table(&self, pairs_max: u16) -> Option<RssTable> {
        let hash = ReceiveHash::new(self.hash_types, self.key)?;
        let entries = self.entries.iter().map(|bytes| u16::from_le_bytes(*bytes));
        RssTable::new(hash, entries, self.unclassified, pairs_max)
    }
}

impl<'a> SetHash<'a> {
    pub(crate) fn parse(data: &'a [u8]) -> Option<Self> {
        const RESERVED_LEN: usize = 8;
        let (hash_types, data) = data.split_first_chunk()?;
        let (_, data) = data.split_at_checked(RESERVED_LEN)?;
        Some(Self { hash_types: u32::from_le_bytes(*hash_types), key: key(data)? })
    }
}

/// Each command changes the state; `None`: it was not negotiated, or it makes no sense.
impl ControlState {
    pub(crate) fn set_queue_pairs(&mut self, pairs: u16, negotiated: &Negotiated) -> Option<()> {
        negotiated.features.contains(Features::MQ).then_some(())?;
        self.queue_pairs = self.is_possible(pairs).then_some(pairs)?;
        self.rss = None;
        Some(())
    }

    pub(crate) fn set_steering(
        &mut self,
        steering: SetSteering<'_>,
        negotiated: &Negotiated,
    ) -> Option<()> {
        negotiated.features.contains(Features::RSS).then_some(())?;
        let table = steering.table(self.queue_pairs_max)?;
        self.is_possible(steering.transmit_queues).then_some(())?;
        // The queues in the table are used, however many packets come back on.
        self.queue_pairs = self.queue_pairs_max;
        self.hash = Some(table.hash().clone());
        self.rss = Some(table);
        Some(())
    }

    pub(crate) fn set_hash(&mut self, hash: SetHash<'_>, negotiated: &Negotiated) -> Option<()> {
        negotiated.features.contains(Features::HASH_REPORT).then_some(())?;
        self.hash = Some(ReceiveHash::new(hash.hash_types, hash.key)?);
        self.rss = None;
        Some(())
    }

    fn is_possible(&self, pairs: u16) -> bool {
        (1..=self.queue_pairs_max).contains(&pairs)
    }
}

fn word(data: &[u8]) -> Option<(u16, &[u8])> {
    let (bytes, rest) = data.split_first_chunk()?;
    Some((u16::from_le_bytes(*bytes), rest))
}

/// A length, so many bytes, and at most [`PADDING_MAX`] more.
fn key(data: &[u8]) -> Option<&[u8]> {
    let (len, data) = data.split_first()?;
    let (key, padding) = data.split_at_checked(usize::from(*len))?;
    (padding.len() <= PADDING_MAX).then_some(key)
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;
    use crate::{Ack, INDIRECTION_LEN_MAX, MacAddress, answer};

    const PAIRS_MAX: u16 = 4;
    const ALL: Features = Features::OFFERED.union(Features::ON_REQUEST);

    fn state() -> ControlState {
        ControlState::new(MacAddress::local(1), &Negotiated::NOTHING)
            .with_queue_pairs_max(PAIRS_MAX)
    }

    fn answered(bytes: &[u8], features: Features) -> (Ack, ControlState) {
        let mut state = state();
        (answer(bytes, &mut state, &Negotiated::new(features).unwrap()).ack, state)
    }

    fn pairs_set(pairs: u16) -> Vec<u8> {
        [&[4, 0], &pairs.to_le_bytes()[..]].concat()
    }

    struct Rss {
        types: u32,
        mask: u16,
        unclassified: u16,
        entries: Vec<u16>,
        transmit: u16,
        key: Vec<u8>,
    }

    impl Rss {
        fn good() -> Self {
            let entries = (0..128).map(|at| at % PAIRS_MAX).collect();
            let key = std::vec![7; 40];
            Self { types: 0x3f, mask: 127, unclassified: 1, entries, transmit: 4, key }
        }

        fn bytes(&self) -> Vec<u8> {
            let mut bytes = std::vec![4, 1];
            bytes.extend(self.types.to_le_bytes());
            bytes.extend(self.mask.to_le_bytes());
            bytes.extend(self.unclassified.to_le_bytes());
            bytes.extend(self.entries.iter().flat_map(|entry| entry.to_le_bytes()));
            bytes.extend(self.transmit.to_le_bytes());
            bytes.push(u8::try_from(self.key.len()).unwrap());
            bytes.extend(&self.key);
            bytes
        }
    }

    fn hash_config(types: u32, key: &[u8]) -> Vec<u8> {
        let types = types.to_le_bytes();
        [&[4, 2], &types[..], &[0; 8], &[u8::try_from(key.len()).unwrap()], key].concat()
    }

    #[test]
    fn pairs_from_one_to_the_maximum() {
        for pairs in 1..=PAIRS_MAX {
            let (ack, state) = answered(&pairs_set(pairs), ALL);
            assert_eq!((ack, state.queue_pairs), (Ack::Ok, pairs));
        }
        for pairs in [0, PAIRS_MAX + 1, 0x8000, u16::MAX] {
            assert_eq!(answered(&pairs_set(pairs), ALL), (Ack::Err, state()), "{pairs}");
        }
        let without = ALL - Features::MQ;
        assert_eq!(answered(&pairs_set(1), without), (Ack::Err, state()));
    }

    #[test]
    fn a_table_steers_until_pairs_are_set_again() {
        let (ack, mut state) = answered(&Rss::good().bytes(), ALL);
        assert_eq!((ack, state.queue_pairs), (Ack::Ok, PAIRS_MAX));
        assert!(state.rss.is_some() && state.hash.is_some());
        let negotiated = Negotiated::new(ALL).unwrap();
        assert_eq!(answer(&pairs_set(2), &mut state, &negotiated).ack, Ack::Ok);
        assert!(state.rss.is_none() && state.hash.is_some());
        assert_eq!(state.queue_pairs, 2);
    }

    #[test]
    fn tables_that_point_outside_the_device_are_refused() {
        type Spoil = fn(&mut Rss);
        let hostile: [(&str, Spoil); 11] = [
            ("entry", |rss| rss.entries[127] = PAIRS_MAX),
            ("largest entry", |rss| rss.entries[0] = u16::MAX),
            ("unclassified", |rss| rss.unclassified = PAIRS_MAX),
            ("no transmit queue", |rss| rss.transmit = 0),
            ("too many transmit queues", |rss| rss.transmit = PAIRS_MAX + 1),
            ("mask without its entries", |rss| rss.mask = 0xffff),
            ("mask of more entries", |rss| rss.mask = 128),
            ("no power of two", |rss| {
                rss.mask = 126;
                rss.entries.truncate(127);
            }),
            ("long table", |rss| {
                rss.mask = 255;
                rss.entries = std::vec![0; 2 * INDIRECTION_LEN_MAX];
            }),
            ("type", |rss| rss.types |= 1 << 6),
            ("long key", |rss| rss.key.push(0)),
        ];
        for (what, spoil) in hostile {
            let mut rss = Rss::good();
            spoil(&mut rss);
            assert_eq!(answered(&rss.bytes(), ALL), (Ack::Err, state()), "{what}");
        }
        assert_eq!(answered(&Rss::good().bytes(), ALL - Features::RSS), (Ack::Err, state()));
    }

    #[test]
    fn cut_and_longer_commands_are_refused() {
        for mut bytes in [Rss::good().bytes(), hash_config(1, &[1; 40]), pairs_set(2)] {
            for len in 0..bytes.len() {
                assert_eq!(answered(&bytes[..len], ALL), (Ack::Err, state()), "{len}");
            }
            let is_padded = bytes[1] != 0;
            for _ in 0..PADDING_MAX * usize::from(is_padded) {
                bytes.push(0);
                assert_eq!(answered(&bytes, ALL).0, Ack::Ok, "padding");
            }
            bytes.push(0);
            assert_eq!(answered(&bytes, ALL), (Ack::Err, state()));
        }
    }

    /// `sizeof(struct virtio_net_ctrl_rss)` is 308 there, a byte more than its fields.
    #[test]
    fn the_table_of_dpdk_is_accepted() {
        let mut bytes = Rss::good().bytes();
        bytes.resize(2 + 308, 0);
        let (ack, state) = answered(&bytes, ALL);
        assert_eq!((ack, state.rss.is_some()), (Ack::Ok, true));
    }

    #[test]
    fn a_hash_configuration_steers_automatically() {
        let (ack, state_after) = answered(&hash_config(3, &[1; 40]), ALL);
        assert_eq!(ack, Ack::Ok);
        assert!(state_after.hash.is_some() && state_after.rss.is_none());
        let without = ALL - Features::HASH_REPORT;
        assert_eq!(answered(&hash_config(3, &[1; 40]), without), (Ack::Err, state()));
        assert_eq!(answered(&hash_config(1 << 9, &[1; 40]), ALL), (Ack::Err, state()));
        assert_eq!(answered(&hash_config(1, &[1; 41]), ALL), (Ack::Err, state()));
    }
}
