//! One worker among several: the rings to and from the others, and how they wake each other.
//!
//! A worker alone has no rings, and nothing here costs it more than a check of an empty list.

pub(crate) mod ring;
pub(crate) mod ring_memory;
pub(crate) mod wake_flag;

use std::io;
use std::sync::Arc;

use ringway_net::{Packet, Put};
use ringway_switch::PortId;

use crate::journal::Journal;
use crate::peers::ring::{Consumer, HandedOver, Producer, ring};
use crate::peers::ring_memory::RingMemory;
use crate::peers::wake_flag::WakeFlag;

/// The number of this worker, and how many there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WorkerIndex {
    pub(crate) index: u16,
    pub(crate) size: u16,
}

/// The place of one worker among all.
#[derive(Debug)]
pub struct WorkerPeers {
    index: u16,
    size: u16,
    wake_flag: Arc<WakeFlag>,
    /// By the number of the worker; none to itself.
    outgoing: Vec<Option<Outgoing>>,
    incoming: Vec<Incoming>,
    /// Packets that come in stay in the rings: receivers are not there yet.
    holds_arrivals: bool,
}

#[derive(Debug)]
struct Outgoing {
    producer: Producer,
    /// Of the worker at the other end.
    wake_flag: Arc<WakeFlag>,
    /// The other worker made no room for a whole hold: no packet waits for it until it does.
    is_stuck: bool,
}

#[derive(Debug)]
struct Incoming {
    /// The number of the worker at the other end.
    from: u16,
    consumer: Consumer,
    /// Of the worker at the other end.
    wake_flag: Arc<WakeFlag>,
    /// Work of the last turn beyond the budget, in units.
    debt: u32,
}

/// A slot of another worker.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RemoteSlot {
    pub(crate) port: PortId,
    /// Of the port: another one that gets its number has another.
    pub(crate) generation: u8,
    /// The queue pair of the port.
    pub(crate) pair: u16,
}

impl WorkerPeers {
    /// The places of `size` workers, from the first to the last.
    ///
    /// # Errors
    /// No eventfd is left.
    pub fn of(size: u16) -> io::Result<Vec<Self>> {
        let mut all = Vec::new();
        for index in 0..size {
            let wake_flag = Arc::new(WakeFlag::new()?);
            let (outgoing, incoming) = (Vec::new(), Vec::new());
            all.push(Self { index, size, wake_flag, outgoing, incoming, holds_arrivals: false });
        }
        for from in 0..all.len() {
            for to in 0..all.len() {
                if from == to {
                    all[from].outgoing.push(None);
                    continue;
                }
                let (producer, consumer) = ring();
                let [mine, other] = [from, to].map(|at| all[at].wake_flag.clone());
                let outgoing = Outgoing { producer, wake_flag: other, is_stuck: false };
                all[from].outgoing.push(Some(outgoing));
                let from = all[from].index;
                let incoming = Incoming { from, consumer, wake_flag: mine, debt: 0 };
                all[to].incoming.push(incoming);
            }
        }
        Ok(all)
    }

    /// The number of this worker.
    pub fn index(&self) -> u16 {
        self.index
    }

    /// How many workers there are.
    pub fn size(&self) -> u16 {
        self.size
    }

    pub(crate) fn worker_index(&self) -> WorkerIndex {
        WorkerIndex { index: self.index, size: self.size }
    }

    pub(crate) fn wake_flag(&self) -> &WakeFlag {
        &self.wake_flag
    }

    /// From now on what is handed over is in the journal; all queues have stopped. What is in its
    /// rings waits until [`Self::begin_delivery`]. `None`: it is in memory of this process, which
    /// both ends of a ring have in common.
    pub(crate) fn use_journal(&mut self, journal: Option<&Arc<Journal>>) {
        let own = self.index;
        let ring = |from, to| RingMemory::in_journal(journal?, from, to);
        for (to, outgoing) in (0..self.size).zip(&mut self.outgoing) {
            if let Some(outgoing) = outgoing {
                outgoing.producer.move_to(ring(own, to));
            }
        }
        for incoming in &mut self.incoming {
            incoming.consumer.move_to(ring(incoming.from, own));
        }
        self.holds_arrivals = journal.is_some();
    }

    /// Packets of other workers are taken from now on.
    pub(crate) fn begin_delivery(&mut self) {
        self.holds_arrivals = false;
    }

    /// Copies a packet into the ring of another worker. `Refused`: that one is stuck.
    #[cold]
    pub(crate) fn hand_over(&mut self, worker: u16, to: RemoteSlot, packet: &Packet<'_>) -> Put {
        let RemoteSlot { port, generation, pair } = to;
        let Some(Some(outgoing)) = self.outgoing.get_mut(usize::from(worker)) else {
            return Put::Refused;
        };
        match outgoing.producer.put(port.0, generation, pair, packet) {
            true => {
                outgoing.is_stuck = false;
                Put::Done
            }
            false if outgoing.is_stuck => Put::Refused,
            false => Put::NoRoom,
        }
    }

    /// The packets that are handed over next come from that port.
    pub(crate) fn note_sender(&mut self, port: PortId) {
        for outgoing in self.outgoing.iter_mut().flatten() {
            outgoing.producer.from = port.0;
        }
    }

    /// Makes everything handed over visible, and wakes the workers that sleep.
    #[inline]
    pub(crate) fn publish(&mut self) {
        for outgoing in self.outgoing.iter_mut().flatten() {
            if outgoing.producer.publish() {
                outgoing.wake_flag.wake();
            }
        }
    }

    /// A packet waits for room in the ring to that worker, which shall wake this one then.
    pub(crate) fn ask_for_room(&self, worker: u16) {
        if let Some(Some(outgoing)) = self.outgoing.get(usize::from(worker)) {
            outgoing.producer.ask_for_room();
        }
    }

    /// With `is_stuck` no packet waits for that worker any more until it has made room.
    pub(crate) fn set_stuck(&mut self, worker: u16, is_stuck: bool) {
        if let Some(Some(outgoing)) = self.outgoing.get_mut(usize::from(worker)) {
            outgoing.is_stuck = is_stuck;
        }
    }

    /// Whether the ring to that worker has room.
    pub(crate) fn has_room(&self, worker: u16) -> bool {
        let outgoing = self.outgoing.get(usize::from(worker)).and_then(Option::as_ref);
        outgoing.is_some_and(|outgoing| outgoing.producer.has_room())
    }

    /// Says that this worker goes to sleep while packets wait for room in the rings to these;
    /// `false`: it must not, there is something to do.
    pub(crate) fn may_sleep(&self, waited_for: impl Iterator<Item = u16> + Clone) -> bool {
        if self.size == 1 {
            return true;
        }
        // Room that was too little used the last request up.
        waited_for.clone().for_each(|worker| self.ask_for_room(worker));
        self.wake_flag.going_to_sleep();
        let has_more = self.incoming.iter().any(|incoming| incoming.consumer.has_more());
        let has_arrivals = has_more && !self.holds_arrivals;
        !has_arrivals && !waited_for.into_iter().any(|worker| self.has_room(worker))
    }

    /// This worker does not sleep any more.
    pub(crate) fn wake_up(&self) {
        if self.size > 1 {
            self.wake_flag.awake();
        }
    }

    /// How many rings may be taken from; `peek` and the others take a number below that.
    pub(crate) fn incoming_count(&self) -> usize {
        if self.holds_arrivals { 0 } else { self.incoming.len() }
    }

    /// The next packet of a ring.
    pub(crate) fn peek(&mut self, at: usize) -> Option<HandedOver> {
        self.incoming[at].consumer.peek()
    }

    /// The packet peeked at stays for later, or is done with.
    pub(crate) fn settle(&mut self, at: usize, waits: bool) {
        let consumer = &mut self.incoming[at].consumer;
        if waits { consumer.leave() } else { consumer.done() }
    }

    /// Gives back what is done with, and wakes the producer if it waits for that.
    pub(crate) fn release(&mut self, at: usize) {
        let incoming = &mut self.incoming[at];
        if incoming.consumer.release() {
            incoming.wake_flag.wake();
        }
    }

    /// The work that packets of a ring have taken beyond their budget in the last turn, in units.
    pub(crate) fn debt(&self, at: usize) -> u32 {
        self.incoming[at].debt
    }

    pub(crate) fn set_debt(&mut self, at: usize, debt: u32) {
        self.incoming[at].debt = debt;
    }

    /// Whether the packets that stayed for later take up more than half of a ring.
    pub(crate) fn is_crowded(&self, at: usize) -> bool {
        self.incoming[at].consumer.is_crowded()
    }

    /// Packets that stayed for later are offered again.
    pub(crate) fn offer_again(&mut self) {
        self.incoming.iter_mut().for_each(|incoming| incoming.consumer.offer_again());
    }
}

#[cfg(test)]
mod tests {
    use ringway_net::NetHeader;

    use super::*;

    const SLOT: RemoteSlot = RemoteSlot { port: PortId(0), generation: 0, pair: 1 };
    use crate::memory::scratch::Scratch;

    /// A journal that cannot be used is left again, and one that another process will have, too.
    #[test]
    fn workers_that_leave_a_journal_hand_over_to_each_other_as_before() {
        let mut all = WorkerPeers::of(2).unwrap();
        let (mut receiver, mut sender) = (all.remove(1), all.remove(0));
        let journal = Journal::open(Journal::create(2, 1).unwrap()).map(Arc::new).unwrap();
        let bytes = Scratch::new(60);
        let payload = [bytes.bytes()];
        let packet = Packet { header: &NetHeader::ZERO, payload: &payload, len: 60 };
        for journal in [None, None, Some(&journal), None] {
            sender.use_journal(journal);
            receiver.use_journal(journal);
            receiver.begin_delivery();
            for _ in 0..3 {
                assert_eq!(sender.hand_over(1, SLOT, &packet), Put::Done);
                sender.publish();
                assert!(receiver.peek(0).is_some(), "in {journal:?}");
                receiver.settle(0, false);
                receiver.release(0);
            }
        }
    }

    #[test]
    fn too_little_room_is_not_the_last_that_a_sleeper_hears_of() {
        let mut all = WorkerPeers::of(2).unwrap();
        let (mut receiver, mut sender) = (all.remove(1), all.remove(0));
        let bytes = Scratch::new(16_384);
        let payload = [bytes.bytes()];
        let packet = Packet { header: &NetHeader::ZERO, payload: &payload, len: 16_384 };
        while sender.hand_over(1, SLOT, &packet) == Put::Done {}
        sender.publish();
        sender.ask_for_room(1);
        let mut take = || {
            let taken = receiver.peek(0).is_some();
            if taken {
                receiver.settle(0, false);
                receiver.release(0);
            }
            taken
        };
        // A quarter of what the longest packet needs.
        assert!(take());
        assert!(!sender.has_room(1));
        assert!(sender.may_sleep([1].into_iter()));
        while take() {}
        assert!(sender.wake_flag().bell().drain(), "the sender was not woken");
        assert!(sender.has_room(1) && !sender.may_sleep([1].into_iter()));
    }
}
