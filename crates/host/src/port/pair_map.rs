//! The owners of a port's queue pairs, and how packets are spread over the pairs.

use ringway_net::{ControlState, Steering};
use ringway_switch::PortId;

use crate::peers::WorkerIndex;

/// The owner of a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PairOwner {
    /// This worker, in this slot.
    Here(PortId),
    /// The worker with this number.
    There(u16),
}

/// The queue pairs of one port.
#[derive(Debug)]
pub(crate) struct PairMap {
    /// How packets are spread over the pairs.
    pub(crate) steering: Steering,
    /// The owner of each pair.
    owners: Vec<PairOwner>,
    /// The first so many receive queues run.
    running: u16,
    /// The guest's controlq runs, so it says how many pairs it uses.
    has_control: bool,
}

impl PairMap {
    /// A port with one pair, which is in its first slot.
    pub(crate) fn one_pair(slot: PortId) -> Self {
        let owners = vec![PairOwner::Here(slot)];
        Self { steering: Steering::ONE_PAIR, owners, running: 0, has_control: false }
    }

    /// Places so many pairs, none of which runs: worker `i` owns pair `i`, and every `size`-th from
    /// there on. `slots` are the slots of this worker's pairs, in order.
    pub(crate) fn place(&mut self, pairs: u16, worker: WorkerIndex, slots: &[PortId]) {
        let WorkerIndex { index, size } = worker;
        let owner = |pair: u16| match (pair % size, slots.get(usize::from(pair / size))) {
            (owner, Some(&slot)) if owner == index => PairOwner::Here(slot),
            (owner, _) => PairOwner::There(owner),
        };
        self.owners = (0..pairs).map(owner).collect();
        self.set_running(0, false);
    }

    #[inline(always)]
    pub(crate) fn owner_of(&self, pair: u16) -> Option<PairOwner> {
        self.owners.get(usize::from(pair)).copied()
    }

    /// The slots of this worker's pairs.
    pub(crate) fn slots(&self) -> impl Iterator<Item = PortId> + '_ {
        self.owners.iter().filter_map(|owner| match owner {
            PairOwner::Here(slot) => Some(*slot),
            PairOwner::There(_) => None,
        })
    }

    /// The first so many receive queues run, on all workers together; with `has_control` the guest
    /// says itself how many of them it uses.
    pub(crate) fn set_running(&mut self, running: u16, has_control: bool) {
        (self.running, self.has_control) = (running, has_control);
    }

    /// Follows what runs and what the guest has set; gives how many pairs packets are spread over.
    pub(crate) fn steer(&mut self, state: &ControlState) -> u16 {
        let used = if self.has_control { state.queue_pairs } else { u16::MAX };
        let pairs = self.running.min(used).max(1);
        self.steering = Steering::new(pairs, state.rss.as_ref());
        pairs
    }
}
