//! The receive queue of a guest that a packet takes.
//!
//! Without a table (automatic steering): the pair with the number of the pair it came from, so a
//! packet stays with the worker that has it. Where the sender has fewer pairs than the receiver,
//! that would leave queues idle, and the conversation decides instead. With a table (RSS) the
//! guest decides, by the hash of the packet.

use alloc::boxed::Box;

use crate::flow::Flow;
use crate::{Packet, ReceiveHash};

/// Most entries of an indirection table.
pub const INDIRECTION_LEN_MAX: usize = 128;

/// A table that a guest has set (`VIRTIO_NET_CTRL_MQ_RSS_CONFIG`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RssTable {
    hash: ReceiveHash,
    /// Pairs; as many as a power of two says.
    entries: Box<[u16]>,
    /// Where packets without a hash go.
    unclassified: u16,
}

impl RssTable {
    /// `None`: no power of two of entries up to [`INDIRECTION_LEN_MAX`], or a pair that the device
    /// of `pairs_max` pairs does not have.
    pub fn new(
        hash: ReceiveHash,
        entries: impl ExactSizeIterator<Item = u16>,
        unclassified: u16,
        pairs_max: u16,
    ) -> Option<Self> {
        if !entries.len().is_power_of_two() || entries.len() > INDIRECTION_LEN_MAX {
            return None;
        }
        let entries: Box<[u16]> = entries.collect();
        let is_good = entries.iter().chain([&unclassified]).all(|&pair| pair < pairs_max);
        is_good.then_some(Self { hash, entries, unclassified })
    }

    /// How packets are hashed.
    pub fn hash(&self) -> &ReceiveHash {
        &self.hash
    }

    pub(crate) fn entries(&self) -> &[u16] {
        &self.entries
    }

    pub(crate) fn unclassified(&self) -> u16 {
        self.unclassified
    }

    fn pair_of(&self, packet: &Packet<'_>) -> u16 {
        let hash = self.hash.of(packet);
        match hash.report {
            0 => self.unclassified,
            _ => self.entries[hash.value as usize & (self.entries.len() - 1)],
        }
    }
}

/// The pair a packet came from, and how many its port has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FromPair {
    /// Counted from 0.
    pub pair: u16,
    /// At least 1.
    pub of: u16,
}

/// How one guest's packets are spread over its receive queues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Steering {
    /// Pairs that take packets: the first so many, at least 1.
    pairs: u16,
    table: Option<Box<RssTable>>,
}

impl Steering {
    /// Everything to the first pair.
    pub const ONE_PAIR: Self = Self { pairs: 1, table: None };

    /// Over the first `pairs` pairs (0 counts as 1), by the table if there is one.
    pub fn new(pairs: u16, table: Option<&RssTable>) -> Self {
        let table = table.filter(|_| pairs > 1);
        Self { pairs: pairs.max(1), table: table.map(|table| Box::new(table.clone())) }
    }

    /// Pairs that take packets, at least 1.
    #[inline]
    pub fn pairs(&self) -> u16 {
        self.pairs
    }

    /// The pair for a packet, where that can be said without looking at the packet.
    #[inline]
    pub fn pair_unseen(&self, from: FromPair) -> Option<u16> {
        let is_straight = self.table.is_none() && from.of >= self.pairs;
        (self.pairs == 1 || is_straight).then(|| from.pair % self.pairs)
    }

    /// The pair for a packet, always below [`pairs`](Self::pairs).
    #[inline]
    pub fn pair_for(&self, from: FromPair, packet: &Packet<'_>) -> u16 {
        if self.pairs == 1 {
            return 0;
        }
        self.spread(from, packet)
    }

    fn spread(&self, from: FromPair, packet: &Packet<'_>) -> u16 {
        if let Some(pair) = self.pair_unseen(from) {
            return pair;
        }
        let wanted = match &self.table {
            // A pair in the table may not run (yet); its packets then go where others go too.
            Some(table) => u32::from(table.pair_of(packet)),
            None => Flow::of(packet).map_or(u32::from(from.pair), |flow| flow.conversation()),
        };
        let pair = wanted % u32::from(self.pairs);
        u16::try_from(pair).unwrap_or(0)
    }
}
