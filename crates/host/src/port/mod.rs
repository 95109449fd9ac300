//! The state of a port in one worker, and the queue pairs of it that the worker owns.
//!
//! A [`Port`] is what the switch sends packets to: a guest or a tap, once, however many queue pairs
//! it has. A [`QueuePair`](queue_pair::QueuePair) is what the worker visits: it is in a *slot*. The
//! first slot of a port has the port's number; a guest with more pairs than there are workers has
//! further slots, numbered from [`PORTS_MAX`](ringway_switch::PORTS_MAX) on.

pub(crate) mod guest_end;
pub(crate) mod hold_credit;
pub(crate) mod notify_fds;
pub(crate) mod pair_map;
pub(crate) mod per_second;
pub(crate) mod queue_mode;
pub(crate) mod queue_pair;
pub(crate) mod room;
pub(crate) mod slot_list;
pub(crate) mod table;
pub(crate) mod waits;

use ringway_net::moderation::Policy;
use ringway_net::{FromPair, MacAddress, Packet};
use ringway_switch::PortId;

use crate::port::pair_map::{PairMap, PairOwner};

/// The directions in which a port's link carries packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carrier {
    /// Nothing goes in or out.
    Down,
    /// Up, but its guest may not believe that yet: what it sends goes out, and nothing is handed to
    /// it. It could not answer, and what it asks then is lost.
    Rising,
    /// Packets go both ways.
    Up,
}

impl Carrier {
    /// Whether packets that come from there go anywhere.
    #[inline(always)]
    pub(crate) fn is_up(self) -> bool {
        self != Self::Down
    }

    /// Whether anything goes there.
    #[inline(always)]
    pub(crate) fn takes(self) -> bool {
        self == Self::Up
    }
}

/// A port as the switch knows it.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) id: PortId,
    pub(crate) pairs: PairMap,
    /// Goes up whenever the number of the port is given to another one.
    pub(crate) generation: u8,
    /// Packets that it does not carry are taken and dropped.
    pub(crate) carrier: Carrier,
    /// How its guest is notified, from its next attachment on.
    pub(crate) notify: Policy,
    /// Whether waits of its guest are counted.
    pub(crate) counts_waits: bool,
    /// The address that its guest was told is its own.
    pub(crate) told_mac: Option<MacAddress>,
    /// The control thread was told that the guest has set something, and has not asked what.
    pub(crate) is_change_told: bool,
    /// Under which connection its rings are noted in the journal, if they are.
    pub(crate) link: Option<u32>,
}

impl Port {
    pub(crate) fn new(id: PortId) -> Self {
        Self {
            id,
            pairs: PairMap::one_pair(id),
            generation: 0,
            carrier: Carrier::Up,
            notify: Policy::default(),
            counts_waits: false,
            told_mac: None,
            is_change_told: false,
            link: None,
        }
    }

    /// The pair that takes a packet from this pair of its sender, and the owner of that pair.
    #[inline(always)]
    pub(crate) fn owner_for(&self, from: FromPair, packet: &Packet<'_>) -> (u16, PairOwner) {
        let pair = self.pairs.steering.pair_for(from, packet);
        (pair, self.owner_of(pair))
    }

    /// The owner of a pair. Steering never gives one that has no owner.
    #[inline(always)]
    pub(crate) fn owner_of(&self, pair: u16) -> PairOwner {
        self.pairs.owner_of(pair).unwrap_or(PairOwner::Here(self.id))
    }
}
