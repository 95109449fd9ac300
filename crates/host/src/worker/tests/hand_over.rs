//! Two workers turn by turn: what happens when the ring between them, or a receiver behind it, is
//! full.
//!
//! A guest sends on its second pair, which belongs to the second worker, to a guest that has one
//! pair, which belongs to the first.

use std::thread::sleep;

use ringway_net::{GsoType, NEEDS_CSUM, NetHeader};
use ringway_switch::Shared;

use super::*;
use crate::forward::budget::BUDGET_UNITS;
use crate::memory::ring_words::PACKETS_MAX;
use crate::port::hold_credit::HOLD_MAX_NS;
use crate::port::room::RoomAt;

fn may_sleep(worker: &Worker) -> bool {
    worker.peers.may_sleep(worker.schedule.holds.workers())
}

const SENDER: usize = 0;
const RECEIVER: usize = 1;
/// The port of the sender, on the second worker.
const SENDER_ID: PortId = PortId(0);

struct Pair {
    workers: [Worker; 2],
    sender: Guest,
    receiver: Guest,
    sent: usize,
    _other_ends: [OtherEnds; 2],
}

impl Pair {
    fn new() -> Self {
        Self::with(Features::VERSION_1 | Features::CSUM)
    }

    /// With a sender that has these features.
    fn with(features: Features) -> Self {
        let shared = Shared::new(7);
        let mut all = WorkerPeers::of(2).unwrap().into_iter();
        let [(one, one_end), (other, other_end)] =
            [(); 2].map(|()| worker(all.next().unwrap(), Switch::over(shared.clone())));
        let mut workers = [one, other];
        let pair = FromPair { pair: 1, of: 2 };
        let sender = Guest::attach_with(&mut workers, SENDER, pair, features);
        let receiver = Guest::attach_pair(&mut workers, RECEIVER, FromPair { pair: 0, of: 1 });
        Self { workers, sender, receiver, sent: 0, _other_ends: [one_end, other_end] }
    }

    /// The sender fills its ring, and its worker makes visits until it has nothing to do. So many
    /// packets were not taken.
    fn send(&mut self, count: usize) -> usize {
        let to_send = frame(mac(RECEIVER), mac(SENDER), 1);
        let before = self.sender.free.len();
        self.sender.send(&to_send, count);
        self.sent += count.min(before);
        self.workers[1].on_kick(SENDER_ID, Queue::FromGuest);
        self.visit_all()
    }

    fn visit_all(&mut self) -> usize {
        while let Some(port) = self.workers[1].schedule.ready.pop_front() {
            self.workers[1].visit(port);
        }
        self.sender.send(&[], 0);
        usize::from(QUEUE_SIZE) - self.sender.free.len()
    }

    /// Sends until a packet has to wait for room in the ring; so many wait with the sender.
    fn fill(&mut self) -> usize {
        loop {
            let waiting = self.send(usize::from(QUEUE_SIZE));
            if waiting > 0 {
                assert_eq!(self.held_for(), Some(RoomAt::Worker(0)));
                return waiting;
            }
            assert!(self.sent <= 2 * PACKETS_MAX, "the ring is not bounded");
        }
    }

    fn held_for(&self) -> Option<RoomAt> {
        self.workers[1].schedule.holds.of(SENDER_ID).and_then(|hold| hold.to)
    }

    /// Packets for the receiver that were dropped for want of room, by each worker.
    fn dropped(&mut self) -> [usize; 2] {
        [0, 1].map(|at| {
            let snapshot = &self.workers[at].snapshots()[RECEIVER];
            usize::try_from(snapshot.to_end.drops[DropReason::NoRoom as usize]).unwrap()
        })
    }

    fn arrive(&mut self) {
        // A turn takes 64 at most.
        for _ in 0..=PACKETS_MAX / 64 {
            self.workers[0].take_arrivals();
        }
    }
}

#[test]
fn what_finds_the_ring_full_waits_and_loses_nothing() {
    let mut pair = Pair::new();
    pair.receiver.post_all();
    let waiting = pair.fill();
    assert_eq!(pair.sent - waiting, PACKETS_MAX, "the ring takes what it can hold, not more");
    let mut rounds = 0;
    while pair.receiver.received.len() < pair.sent {
        let is_held = pair.held_for().is_some();
        assert!(may_sleep(&pair.workers[1]) || !is_held, "there is no room yet");
        pair.workers[0].take_arrivals();
        pair.receiver.receive();
        // The other worker was asked to say when there is room.
        assert!(pair.workers[1].peers.wake_flag().bell().drain() || !is_held);
        end_expired_holds(&mut pair.workers[1]);
        pair.visit_all();
        rounds += 1;
        assert!(rounds < 100, "{} of {}", pair.receiver.received.len(), pair.sent);
    }
    assert_eq!((pair.held_for(), pair.dropped()), (None, [0, 0]));
}

#[test]
fn a_ring_that_stays_full_is_waited_for_once_and_drops_are_counted() {
    let mut pair = Pair::new();
    pair.receiver.post_all();
    let waiting = pair.fill();
    sleep(Duration::from_nanos(HOLD_MAX_NS));
    end_expired_holds(&mut pair.workers[1]);
    assert_eq!(pair.visit_all(), 0, "the sender has everything back");
    assert_eq!(pair.dropped(), [0, waiting]);
    // No packet waits for that worker again before it has made room.
    assert_eq!(pair.send(100), 0);
    assert_eq!((pair.held_for(), pair.dropped()), (None, [0, waiting + 100]));
    while pair.receiver.received.len() < PACKETS_MAX {
        pair.workers[0].take_arrivals();
        assert!(pair.receiver.receive() > 0);
    }
    assert_eq!(pair.send(1), 0);
    pair.workers[0].take_arrivals();
    assert_eq!((pair.receiver.receive(), pair.dropped()), (1, [0, waiting + 100]));
}

#[test]
fn a_receiver_without_buffers_keeps_a_quarter_of_the_ring_for_a_while() {
    let (sent, kept) = (400, PACKETS_MAX / 4);
    let mut pair = Pair::new();
    assert_eq!(pair.send(sent / 2), 0);
    assert_eq!(pair.send(sent / 2), 0);
    pair.arrive();
    assert_eq!(pair.dropped(), [sent - kept, 0]);
    let backlog = pair.workers[0].ports.slots[RECEIVER].room.backlog.as_mut().unwrap();
    backlog.until = now();
    end_expired_holds(&mut pair.workers[0]);
    pair.arrive();
    assert_eq!(pair.dropped(), [sent, 0], "none waits any more");
    // Once it posts buffers, what comes then arrives.
    pair.receiver.post_all();
    pair.workers[0].on_kick(PortId(1), Queue::ToGuest);
    assert_eq!(pair.send(10), 0);
    pair.arrive();
    assert_eq!((pair.receiver.receive(), pair.dropped()), (10, [sent, 0]));
}

#[test]
fn what_waits_for_a_receiver_arrives_when_it_posts_buffers() {
    let mut pair = Pair::new();
    assert_eq!(pair.send(200), 0);
    pair.arrive();
    assert_eq!((pair.receiver.receive(), pair.dropped()), (0, [0, 0]));
    pair.receiver.post_all();
    pair.workers[0].on_kick(PortId(1), Queue::ToGuest);
    pair.arrive();
    assert_eq!((pair.receiver.receive(), pair.dropped()), (200, [0, 0]));
}

/// The sender's guest goes while its packet waits for room in the ring: no packet waits any more.
#[test]
fn a_packet_that_waits_no_longer_does_not_keep_its_worker_awake() {
    let mut pair = Pair::new();
    pair.receiver.post_all();
    pair.fill();
    pair.workers[1].detach(SENDER_ID);
    assert_eq!(pair.held_for(), None);
    // The other worker makes room.
    pair.arrive();
    let [_, sender] = &mut pair.workers;
    sender.take_arrivals();
    end_expired_holds(sender);
    // A late look may have come due meanwhile; it is the last one.
    sender.end_timers();
    sender.visit_ready();
    assert_ne!(sleep_at_most(sender), Some(Duration::ZERO), "it never sleeps");
}

/// TCP over IPv4 that is to be cut into so many segments, of one byte each; and what its header
/// says.
fn unsegmented(segments: usize) -> (NetHeader, Vec<u8>) {
    let mut packet = frame(mac(RECEIVER), mac(SENDER), 1);
    packet.truncate(14);
    packet[12..].copy_from_slice(&[8, 0]);
    packet.resize(54 + segments, 0);
    (packet[14], packet[23], packet[46]) = (0x45, 6, 0x50);
    let header = NetHeader {
        flags: NEEDS_CSUM,
        gso_type: GsoType::TcpV4.raw(),
        gso_size: 1,
        csum_start: 34,
        csum_offset: 16,
        ..NetHeader::default()
    };
    (header, packet)
}

/// The work on a packet that is cut for its receiver counts in the worker that cuts it, too, and is
/// taken off the next turns.
#[test]
fn what_is_cut_for_a_receiver_takes_no_more_turns_of_its_worker_than_what_is_whole() {
    let (segments, packets) = (40, 6);
    let mut pair = Pair::with(Features::VERSION_1 | Features::CSUM | Features::HOST_TSO4);
    pair.receiver.post_all();
    let (header, packet) = unsegmented(segments);
    for id in 0..QUEUE_SIZE {
        let at = SEND_AT + u64::from(id) * SEND_LEN;
        pair.sender.memory.write(usize::try_from(at).unwrap(), &header.encode());
    }
    pair.sender.send(&packet, packets);
    pair.workers[1].on_kick(SENDER_ID, Queue::FromGuest);
    pair.visit_all();
    let (mut got, mut turns) = (0, 0);
    while got < segments * packets {
        pair.workers[0].take_arrivals();
        let now = pair.receiver.receive();
        turns += 1;
        assert!(now < BUDGET_UNITS as usize + segments, "{now} segments in one turn");
        assert!(got + now < turns * BUDGET_UNITS as usize + segments, "more than in all turns");
        assert!(turns < 20, "{got} of {}", segments * packets);
        got += now;
    }
    assert_eq!(got, segments * packets);
}
