//! The worker turn by turn: policies carried out, and shares of its time.
//!
//! How: guests are rings in memory of this process; the test kicks by hand and lets the worker make
//! one visit at a time. Time is counted in packets that the worker has delivered.

mod hand_over;

use std::os::fd::OwnedFd;
use std::sync::mpsc;
use std::time::Duration;

use ringway_net::notify::Policy;
use ringway_net::{DropReason, Features, FromPair, HEADER_LEN, MacAddress, Negotiated, PollMode};
use ringway_switch::{PortPolicy, RateLimit, Vlan, VlanSet, WhenFull};
use ringway_virtq::{
    BufferId, DriverQueue, Layout, Position, QueueSetup, SharedSlice, SplitDriver,
};

use super::*;
use crate::forward::UNIT_LEN;
use crate::{GuestMemory, MemoryRequest, QueueFds};

mod limits;

const BASE: u64 = 0x10_0000;
const MEMORY_LEN: u64 = 0x10_0000;
const QUEUE_SIZE: u16 = 256;
/// Where the rings and the buffers are, counted from the start of the memory.
const RINGS_AT: [u64; 2] = [0, 0x1_0000];
const RECEIVE_AT: u64 = 0x2_0000;
const RECEIVE_LEN: u32 = 2048;
const SEND_AT: u64 = 0xb_0000;
const SEND_LEN: u64 = 512;

fn mac(n: usize) -> MacAddress {
    MacAddress::local(u32::try_from(n).unwrap())
}

/// A packet of the shortest length whose last bytes are `mark`.
fn frame(to: MacAddress, from: MacAddress, mark: u8) -> Vec<u8> {
    [&to.0[..], &from.0, &[0x88, 0xb5], &[mark; 46]].concat()
}

/// One that nobody rings: the tests kick by hand.
fn kick_fd() -> OwnedFd {
    EventFd::new().unwrap().as_fd().try_clone_to_owned().unwrap()
}

struct Guest {
    memory: SharedSlice,
    queues: [SplitDriver; 2],
    /// Buffers of the transmitq that are free.
    free: Vec<u16>,
    received: Vec<Vec<u8>>,
    /// Of each receive buffer; beyond [`RECEIVE_LEN`] they overlap.
    receive_len: u32,
    /// Bytes behind each frame that it sends.
    padding: u32,
}

impl Guest {
    fn attach(worker: &mut Worker, port: usize) -> Self {
        Self::attach_pair(std::slice::from_mut(worker), port, FromPair { pair: 0, of: 1 })
    }

    /// A guest with several pairs, of which it uses one.
    fn attach_pair(workers: &mut [Worker], port: usize, pair: FromPair) -> Self {
        let fd = rustix::fs::memfd_create("guest", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&fd, MEMORY_LEN).unwrap();
        let request = MemoryRequest { guest_address: BASE, size: MEMORY_LEN, mmap_offset: 0, fd };
        let memory = GuestMemory::map(vec![request]).unwrap();
        let slice = memory.regions().slice(BASE, u32::try_from(MEMORY_LEN).unwrap()).unwrap();
        let negotiated = Negotiated::new(Features::VERSION_1 | Features::CSUM).unwrap();
        let id = PortId(u16::try_from(port).unwrap());
        for worker in workers.iter_mut() {
            // What is put off would be a matter of real time.
            worker.carry_out(Command::SetNotify { port: id, policy: Policy::Every });
            let (mac, memory, pairs) = (mac(port), memory.clone(), pair.of);
            worker.carry_out(Command::AttachGuest { port: id, negotiated, mac, memory, pairs });
        }
        let queues = RINGS_AT.map(|at| {
            let layout = Layout::of(SplitDriver::FORMAT, QUEUE_SIZE, negotiated.options);
            let ring = slice.slice(usize::try_from(at).unwrap(), layout.len as usize).unwrap();
            SplitDriver::new(ring, BASE + at, QUEUE_SIZE, negotiated.options)
        });
        let owner = usize::from(pair.pair) % workers.len();
        for (queue, ring) in [Queue::ToGuest, Queue::FromGuest].into_iter().zip(&queues) {
            let (areas, options) = (ring.areas(), negotiated.options);
            let setup = QueueSetup { size: QUEUE_SIZE, areas, position: Position::FRESH, options };
            let (done, answer) = mpsc::sync_channel(1);
            let bell = EventFd::new().unwrap().as_fd().try_clone_to_owned().unwrap();
            let fds = QueueFds::new(Some(kick_fd()), Some(bell), None).unwrap();
            let queue = QueueId { pair: pair.pair, queue };
            workers[owner].carry_out(Command::StartQueue { port: id, queue, setup, fds, done });
            answer.recv().unwrap().unwrap();
        }
        let free = (0..QUEUE_SIZE).collect();
        let (receive_len, padding) = (RECEIVE_LEN, 0);
        Self { memory: slice, queues, free, received: Vec::new(), receive_len, padding }
    }

    fn post_all(&mut self) {
        (0..QUEUE_SIZE).for_each(|id| self.post(id));
        self.queues[0].publish();
    }

    fn post(&mut self, id: u16) {
        let element = [(BASE + receive_at(id), self.receive_len)];
        self.queues[0].add(&[], &element, BufferId(id)).unwrap();
    }

    /// Takes what has arrived, and posts the buffers again.
    fn receive(&mut self) -> usize {
        let mut count = 0;
        while let Some(used) = self.queues[0].pop_used().unwrap() {
            let mut bytes = vec![0; used.len as usize];
            self.memory.read(usize::try_from(receive_at(used.id.0)).unwrap(), &mut bytes);
            self.received.push(bytes.split_off(HEADER_LEN));
            self.post(used.id.0);
            count += 1;
        }
        self.queues[0].publish();
        count
    }

    /// Sends as often as there is room, `count` times at most.
    fn send(&mut self, frame: &[u8], count: usize) {
        while let Some(used) = self.queues[1].pop_used().unwrap() {
            self.free.push(used.id.0);
        }
        for id in self.free.split_off(self.free.len().saturating_sub(count)) {
            let at = SEND_AT + u64::from(id) * SEND_LEN;
            self.memory.write(usize::try_from(at).unwrap() + HEADER_LEN, frame);
            let len = u32::try_from(HEADER_LEN + frame.len()).unwrap();
            let elements = [(BASE + at, len), (BASE, self.padding)];
            let count = 1 + usize::from(self.padding > 0);
            if self.queues[1].add(&elements[..count], &[], BufferId(id)).is_err() {
                self.free.push(id);
            }
        }
        self.queues[1].publish();
    }
}

fn receive_at(id: u16) -> u64 {
    RECEIVE_AT + u64::from(id) * u64::from(RECEIVE_LEN)
}

/// A worker with guests, all of whose addresses it knows.
struct Bench {
    worker: Worker,
    guests: Vec<Guest>,
    _other_ends: OtherEnds,
}

/// Of a worker's channels.
type OtherEnds = (mpsc::Sender<Command>, mpsc::Receiver<Event>);

fn worker(team: Team, switch: Switch) -> (Worker, OtherEnds) {
    let (command_sender, commands) = mpsc::channel();
    let (events, event_receiver) = mpsc::channel();
    let bell = || Arc::new(EventFd::new().unwrap());
    let (command_bell, event_bell, poll) = (bell(), bell(), PollOptions::default());
    let channels =
        WorkerChannels { commands, command_bell, events, event_bell, team, switch, poll };
    (Worker::new(channels).unwrap(), (command_sender, event_receiver))
}

impl Bench {
    fn new(guests: usize) -> Self {
        let (mut worker, _other_ends) = worker(Team::of(1).unwrap().remove(0), Switch::new(7));
        let guests = (0..guests).map(|port| Guest::attach(&mut worker, port)).collect();
        let mut bench = Self { worker, guests, _other_ends };
        bench.guests.iter_mut().for_each(Guest::post_all);
        bench.settle();
        bench
    }

    /// Everybody says who they are.
    fn introduce(&mut self) {
        for port in 0..self.guests.len() {
            self.send(port, &frame(MacAddress::BROADCAST, mac(port), 0), 1);
        }
        self.settle();
        self.guests.iter_mut().for_each(|guest| guest.received.clear());
    }

    fn send(&mut self, port: usize, frame: &[u8], count: usize) {
        self.guests[port].send(frame, count);
        self.worker.on_kick(PortId(u16::try_from(port).unwrap()), Queue::FromGuest);
    }

    fn set(&mut self, port: usize, policy: PortPolicy) {
        let (done, answer) = mpsc::sync_channel(1);
        let port = PortId(u16::try_from(port).unwrap());
        self.worker.carry_out(Command::SetPolicy { port, policy: Box::new(policy), done });
        answer.recv().unwrap().unwrap();
    }

    /// One visit, after which every guest takes what it got. Who was visited, and what each got.
    fn step(&mut self) -> Option<(PortId, Vec<usize>)> {
        let port = self.worker.ready.pop_front()?;
        self.worker.visit(port);
        Some((port, self.guests.iter_mut().map(Guest::receive).collect()))
    }

    fn settle(&mut self) {
        while self.step().is_some() {}
    }

    fn drops(&mut self, port: usize, reason: DropReason) -> [u64; 2] {
        let (done, answer) = mpsc::sync_channel(1);
        self.worker.carry_out(Command::Snapshot { done });
        let snapshot = &answer.recv().unwrap()[port];
        [snapshot.to_end.drops[reason as usize], snapshot.from_end.drops[reason as usize]]
    }
}

#[test]
fn a_port_that_floods_costs_another_pair_at_most_its_share() {
    let (pair, flooder, guests) = ([0, 1], 2, 8);
    let mut bench = Bench::new(guests);
    bench.introduce();
    let turns = 200;
    let (mut to_pair, mut by_flooder, mut longest) = (0, 0, 0);
    for _ in 0..turns * 2 {
        bench.send(pair[0], &frame(mac(pair[1]), mac(pair[0]), 1), usize::from(QUEUE_SIZE));
        let flood = frame(MacAddress::BROADCAST, mac(flooder), 2);
        bench.send(flooder, &flood, usize::from(QUEUE_SIZE));
        let (port, got) = bench.step().unwrap();
        let copies: usize = got.iter().sum();
        match usize::from(port.0) {
            0 => to_pair += got[pair[1]],
            _ => by_flooder += copies,
        }
        longest = longest.max(copies);
    }
    println!("{turns} turns: {to_pair} packets of the pair, {by_flooder} copies of the flood");
    assert_eq!(to_pair, turns * BUDGET_UNITS as usize, "as many per turn as without the flood");
    assert!(to_pair * 100 >= by_flooder * 90, "the flood has more than its share of the copies");
    assert!(longest < BUDGET_UNITS as usize + guests, "a visit of {longest} copies");
    let share = turns * BUDGET_UNITS as usize;
    assert!(by_flooder.abs_diff(share) <= guests, "{by_flooder} copies instead of {share}");
}

/// How many packets with so many bytes of padding a guest that always has more sends in so many
/// visits, and how often the receiver is called.
fn moved_in(visits: usize, padding: u32) -> (usize, u64) {
    let mut bench = Bench::new(3);
    bench.introduce();
    // The old buffers are used up first.
    bench.guests[1].receive_len = RECEIVE_LEN + padding;
    bench.send(0, &frame(mac(1), mac(0), 1), usize::from(QUEUE_SIZE));
    bench.settle();
    bench.guests[0].padding = padding;
    let packet = frame(mac(1), mac(0), 2);
    let calls = |bench: &Bench| match &bench.worker.ports[1].end {
        End::Guest(guest) => guest.wires[Queue::ToGuest as usize].calls,
        _ => 0,
    };
    let before = calls(&bench);
    let mut packets = 0;
    for _ in 0..visits {
        bench.send(0, &packet, usize::from(QUEUE_SIZE));
        let (_, got) = bench.step().unwrap();
        packets += got[1];
    }
    (packets, calls(&bench) - before)
}

#[test]
fn a_visit_has_a_budget_of_packets_and_of_bytes_and_ends_with_one_call() {
    let visits: usize = 50;
    let budget = BUDGET_UNITS as usize;
    assert_eq!(moved_in(visits, 0), (visits * budget, visits as u64));
    // Each counts for itself and for the seven times 8 KiB that it has.
    let (packets, calls) = moved_in(visits, 7 * UNIT_LEN);
    assert_eq!((packets, calls), (visits * budget / 8, visits as u64));
    // Three into sixty-four does not go: what a visit takes too much, the next one has less.
    let (packets, calls) = moved_in(visits, 2 * UNIT_LEN);
    assert!(packets.abs_diff(visits * budget / 3) <= 1, "{packets} packets");
    assert_eq!(calls, visits as u64);
}

/// The 99th percentile of the time between sending and receiving one packet, in copies that the
/// worker makes meanwhile, while `flooders` other ports send as much as they can.
fn latency_p99_copies(flooders: usize) -> usize {
    let (pair, samples) = ([0, 1], 500);
    let mut bench = Bench::new(2 + flooders + 4);
    bench.introduce();
    let mut latencies = Vec::new();
    for sample in 0..samples {
        // Sent after another number of visits each time.
        let visits_before = sample * 7 % 5;
        let mut copies = None;
        for visit in 0..100 {
            for flooder in 2..2 + flooders {
                let flood = frame(MacAddress::BROADCAST, mac(flooder), 2);
                bench.send(flooder, &flood, usize::from(QUEUE_SIZE));
            }
            if visit == visits_before {
                bench.send(pair[0], &frame(mac(pair[1]), mac(pair[0]), 1), 1);
                copies = Some(0);
            }
            bench.guests[pair[1]].received.clear();
            let Some((port, got)) = bench.step() else { continue };
            copies = copies.map(|copies| copies + got.iter().sum::<usize>());
            let has_arrived = bench.guests[pair[1]].received.iter().any(|frame| frame[14] == 1);
            if usize::from(port.0) == pair[0] && has_arrived {
                latencies.extend(copies);
                break;
            }
        }
    }
    assert_eq!(latencies.len(), samples, "packets were lost");
    latencies.sort_unstable();
    latencies[samples * 99 / 100]
}

#[test]
fn a_port_that_floods_delays_another_pair_by_at_most_one_visit() {
    let alone = latency_p99_copies(0);
    assert_eq!(alone, 1);
    for flooders in 1..=3 {
        let copies = latency_p99_copies(flooders);
        println!("{flooders} flooders: the 99th percentile is {copies} copies, {alone} alone");
        // A visit ends with the packet that uses its budget up, and that goes to all others.
        let visit = BUDGET_UNITS as usize + 2 + flooders + 4;
        assert!(copies <= alone + flooders * visit, "{copies} copies with {flooders} flooders");
    }
}

#[test]
fn a_guest_above_its_rate_is_left_alone_until_its_time_comes() {
    let mut bench = Bench::new(3);
    bench.introduce();
    // The first packet is paid for after eight minutes.
    let rate_from_guest = RateLimit { bits_per_second: 1, packets_per_second: 0, burst_us: 1 };
    bench.set(0, PortPolicy { rate_from_guest, ..PortPolicy::default() });
    bench.send(0, &frame(mac(1), mac(0), 1), 10);
    bench.settle();
    assert_eq!(bench.guests[1].received.len(), 1);
    let sleep = bench.worker.sleep_at_most().unwrap();
    assert!(sleep > Duration::from_secs(60), "wakes up after {sleep:?}");
    // Kicks change nothing, and others are not concerned.
    bench.worker.on_kick(PortId(0), Queue::FromGuest);
    bench.send(2, &frame(mac(1), mac(2), 1), 10);
    bench.settle();
    assert_eq!(bench.guests[1].received.len(), 11);
    bench.set(0, PortPolicy::default());
    bench.settle();
    assert_eq!(bench.guests[1].received.len(), 20, "nothing was lost");
    assert_eq!(bench.worker.sleep_at_most(), None);
}

#[test]
fn what_is_too_much_for_a_receiver_waits_or_is_dropped() {
    let rate_to_guest = RateLimit { bits_per_second: 1, packets_per_second: 0, burst_us: 1 };
    for when_full in [WhenFull::Hold, WhenFull::Drop] {
        let mut bench = Bench::new(3);
        bench.introduce();
        bench.set(1, PortPolicy { rate_to_guest, when_full, ..PortPolicy::default() });
        bench.send(0, &frame(mac(1), mac(0), 1), 10);
        bench.settle();
        // Eight minutes are longer than anything is held.
        assert_eq!(bench.guests[1].received.len(), 1);
        assert_eq!(bench.drops(1, DropReason::RateLimit), [9, 0]);
    }
}

#[test]
fn a_receiver_without_buffers_holds_its_senders_only_if_it_may() {
    for (when_full, is_held) in [(WhenFull::Hold, true), (WhenFull::Drop, false)] {
        let mut bench = Bench::new(3);
        bench.introduce();
        bench.set(1, PortPolicy { when_full, is_uplink: true, ..PortPolicy::default() });
        // It takes what fits and does not post again.
        for _ in 0..2 {
            bench.send(0, &frame(mac(1), mac(0), 1), usize::from(QUEUE_SIZE));
            while let Some(port) = bench.worker.ready.pop_front() {
                bench.worker.visit(port);
            }
        }
        assert_eq!(bench.worker.ports[0].hold.is_some(), is_held, "{when_full:?}");
        let dropped = bench.drops(1, DropReason::NoRoom)[0];
        assert_eq!(dropped, if is_held { 0 } else { u64::from(QUEUE_SIZE) });
    }
}

#[test]
fn tags_come_and_go_in_the_receivers_memory() {
    let vlan = |number| ringway_switch::VlanId::new(number).unwrap();
    let tagged: VlanSet = [vlan(10), vlan(20)].into_iter().collect();
    let mut bench = Bench::new(3);
    bench.set(0, PortPolicy { vlan: Vlan::Access(vlan(10)), ..PortPolicy::default() });
    bench.set(1, PortPolicy { vlan: Vlan::Access(vlan(20)), ..PortPolicy::default() });
    bench
        .set(2, PortPolicy { vlan: Vlan::Trunk { tagged, native: None }, ..PortPolicy::default() });
    let untagged = frame(MacAddress::BROADCAST, mac(0), 9);
    let with_tag = [&untagged[..12], &[0x81, 0, 0, 10], &untagged[12..]].concat();
    bench.send(0, &untagged, 1);
    bench.settle();
    assert_eq!(bench.guests[2].received, std::slice::from_ref(&with_tag));
    bench.send(2, &with_tag, 1);
    bench.settle();
    assert_eq!(bench.guests[0].received, [untagged]);
    assert!(bench.guests[1].received.is_empty(), "the other VLAN");
    bench.send(0, &with_tag, 1);
    bench.settle();
    assert_eq!(bench.drops(0, DropReason::Vlan), [0, 1]);
}

#[test]
fn two_ports_are_a_cable_until_there_is_something_to_decide() {
    let mut bench = Bench::new(2);
    assert!(bench.worker.cable.is_some());
    let locked = PortPolicy { locked_mac: Some(mac(0)), ..PortPolicy::default() };
    bench.set(0, locked);
    assert!(bench.worker.cable.is_none());
    bench.send(0, &frame(mac(1), mac(5), 1), 1);
    bench.send(0, &frame(mac(1), mac(0), 1), 1);
    bench.settle();
    assert_eq!(bench.guests[1].received.len(), 1);
    assert_eq!(bench.drops(0, DropReason::SpoofedMac), [0, 1]);
    bench.set(0, PortPolicy::default());
    assert!(bench.worker.cable.is_some());
    bench.worker.carry_out(Command::SnoopMulticast { is_on: true });
    assert!(bench.worker.cable.is_none());
}

#[test]
fn a_worker_that_polls_spares_the_guest_its_kicks_and_arms_before_it_sleeps() {
    let mut bench = Bench::new(2);
    bench.introduce();
    let poll = |mode| PollOptions { mode, budget_percent: 10 };
    bench.worker.carry_out(Command::SetPoll { options: poll(PollMode::Always) });
    bench.send(0, &frame(mac(1), mac(0), 1), 1);
    bench.settle();
    let kicks = |guest: &mut Guest| guest.queues[1].must_kick();
    kicks(&mut bench.guests[0]);
    for round in 1..10 {
        bench.guests[0].send(&frame(mac(1), mac(0), 2), 1);
        assert!(!kicks(&mut bench.guests[0]), "a polling worker wants no kicks");
        assert!(!bench.worker.pause().is_sleep(), "it looks");
        bench.settle();
        assert_eq!(bench.guests[1].received.len(), 1 + round, "and finds");
    }
    bench.worker.carry_out(Command::SetPoll { options: poll(PollMode::Never) });
    // What comes before it has armed is found by the second look.
    bench.guests[0].send(&frame(mac(1), mac(0), 3), 1);
    assert!(!kicks(&mut bench.guests[0]));
    assert!(!bench.worker.pause().is_sleep());
    bench.settle();
    assert_eq!(bench.guests[1].received.len(), 11);
    assert!(bench.worker.pause().is_sleep());
    bench.guests[0].send(&frame(mac(1), mac(0), 4), 1);
    assert!(kicks(&mut bench.guests[0]), "a sleeping worker must be woken");
}

#[test]
fn an_idle_queue_is_armed_while_the_worker_is_busy_elsewhere() {
    let mut bench = Bench::new(3);
    bench.introduce();
    let options = PollOptions { mode: PollMode::Always, budget_percent: 10 };
    bench.worker.carry_out(Command::SetPoll { options });
    bench.send(0, &frame(mac(1), mac(0), 1), 1);
    bench.send(2, &frame(mac(1), mac(2), 2), usize::from(QUEUE_SIZE));
    bench.step().unwrap();
    bench.step().unwrap();
    assert!(!bench.worker.pause().is_sleep(), "the other one has more");
    bench.guests[0].queues[1].must_kick();
    bench.guests[0].send(&frame(mac(1), mac(0), 3), 1);
    assert!(bench.guests[0].queues[1].must_kick());
}
