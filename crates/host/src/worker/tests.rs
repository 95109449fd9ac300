//! The worker turn by turn: policies carried out, shares of its time, what others can make it do.
//!
//! How: guests are rings in memory of this process; the test kicks by hand and lets the worker make
//! one visit at a time. Time is counted in packets that the worker has delivered. What all of the
//! tests share is here.

mod answers;
mod calls;
mod control_left;
mod hand_over;
mod killed;
mod limits;
mod modes;
mod policies;
mod polling;
mod ready;
mod shares;
mod streams;
mod taps;

use std::os::fd::OwnedFd;
use std::sync::mpsc;
use std::time::Duration;

use ringway_device::{Queue, QueueId};
use ringway_net::moderation::Policy;
use ringway_net::{DropReason, Features, FromPair, HEADER_LEN, MacAddress, Nanos, Negotiated};
use ringway_switch::{PortId, PortPolicy};
use ringway_virtq::{
    BufferId, DriverQueue, Layout, Position, QueueSetup, SharedSlice, SplitDriver,
};

use super::*;
use crate::port::queue_pair::End;
use crate::port::room::RoomAt;
use crate::{Callee, GuestMemory, MemoryRequest, QueueFds};

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

/// A kick fd that stays silent: the tests kick by hand.
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
        Self::attach_with(workers, port, pair, Features::VERSION_1 | Features::CSUM)
    }

    fn attach_with(
        workers: &mut [Worker],
        port: usize,
        pair: FromPair,
        features: Features,
    ) -> Self {
        let fd = rustix::fs::memfd_create("guest", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        Self::attach_in(fd, workers, (port, pair), features)
    }

    /// A guest whose memory is that file.
    fn attach_in(
        fd: OwnedFd,
        workers: &mut [Worker],
        (port, pair): (usize, FromPair),
        features: Features,
    ) -> Self {
        rustix::fs::ftruncate(&fd, MEMORY_LEN).unwrap();
        let request =
            MemoryRequest { guest_address: BASE, size: MEMORY_LEN, mmap_offset: 0, fd: fd.into() };
        let memory = GuestMemory::map(vec![request]).unwrap();
        let slice = memory.regions().slice(BASE, u32::try_from(MEMORY_LEN).unwrap()).unwrap();
        let negotiated = Negotiated::new(features).unwrap();
        let id = PortId(u16::try_from(port).unwrap());
        for worker in workers.iter_mut() {
            // Notifications that are put off would be a matter of real time.
            worker.set_notify(id, Policy::Every);
            worker.attach_guest(id, negotiated, (mac(port), pair.of), &memory);
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
            let bell = EventFd::new().unwrap().as_fd().try_clone_to_owned().unwrap();
            let fds =
                QueueFds::new(&Callee::default(), Some(kick_fd().into()), Some(bell.into()), None)
                    .unwrap();
            let queue = QueueId { pair: pair.pair, queue };
            workers[owner].start_queue(id, queue, &setup, fds).unwrap();
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

fn sleep_at_most(worker: &Worker) -> Option<Duration> {
    worker.schedule.sleep_at_most(&worker.ports, &worker.peers)
}

fn end_expired_holds(worker: &mut Worker) {
    worker.schedule.end_expired_holds(&mut worker.ports, &mut worker.peers);
}

fn receive_at(id: u16) -> u64 {
    RECEIVE_AT + u64::from(id) * u64::from(RECEIVE_LEN)
}

/// A worker with guests, all of whose addresses it knows.
struct Bench {
    worker: Worker,
    guests: Vec<Guest>,
    other_ends: OtherEnds,
}

/// Of a worker's channels.
type OtherEnds = (mpsc::Sender<Job>, mpsc::Receiver<WorkerEvent>);

fn worker(peers: WorkerPeers, switch: Switch) -> (Worker, OtherEnds) {
    let (job_sender, jobs) = mpsc::channel();
    let (events, event_receiver) = mpsc::channel();
    let bell = || Arc::new(EventFd::new().unwrap());
    let (job_bell, event_bell, poll) = (bell(), bell(), PollOptions::default());
    let channels = WorkerChannels { jobs, job_bell, events, event_bell, peers, switch, poll };
    let mut worker = Worker::new(channels).unwrap();
    worker.stalls.ignore_slow_visits();
    (worker, (job_sender, event_receiver))
}

impl Bench {
    fn new(guests: usize) -> Self {
        let (mut worker, other_ends) =
            worker(WorkerPeers::of(1).unwrap().remove(0), Switch::new(7));
        let guests = (0..guests).map(|port| Guest::attach(&mut worker, port)).collect();
        let mut bench = Self { worker, guests, other_ends };
        bench.guests.iter_mut().for_each(Guest::post_all);
        bench.settle();
        bench
    }

    /// Every guest says what its address is.
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
        let port = PortId(u16::try_from(port).unwrap());
        self.worker.set_policy(port, policy).unwrap();
    }

    /// One visit, after which every guest takes what it got. Gives the slot that was visited, and
    /// what each guest got.
    fn step(&mut self) -> Option<(PortId, Vec<usize>)> {
        let port = self.worker.schedule.ready.pop_front()?;
        self.worker.visit(port);
        Some((port, self.guests.iter_mut().map(Guest::receive).collect()))
    }

    /// Everything that is there is moved; late looks, which find nothing more, are not waited for.
    fn settle(&mut self) {
        while self.step().is_some() {}
        self.worker.ports.guests().for_each(|guest| guest.late_look_at = None);
    }

    fn drops(&mut self, port: usize, reason: DropReason) -> [u64; 2] {
        let snapshot = &self.worker.snapshots()[port];
        [snapshot.to_end.drops[reason as usize], snapshot.from_end.drops[reason as usize]]
    }
}

#[test]
fn packets_of_one_visit_each_go_their_own_way() {
    let mut bench = Bench::new(3);
    bench.introduce();
    let new_station = mac(9);
    for (to, from, mark) in [(1, 0, 1), (1, 0, 2), (2, 0, 3), (1, 0, 4), (1, 9, 5), (2, 0, 6)] {
        bench.send(0, &frame(mac(to), mac(from), mark), 1);
    }
    assert!(bench.step().is_some(), "one visit");
    bench.send(1, &frame(new_station, mac(1), 7), 1);
    bench.settle();
    let marks = bench.guests.iter().map(|guest| {
        let marks = guest.received.iter().filter_map(|frame| frame.last().copied());
        marks.collect::<Vec<u8>>()
    });
    assert_eq!(marks.collect::<Vec<_>>(), [vec![7], vec![1, 2, 4, 5], vec![3, 6]]);
}

/// A file without a name on the disk that this program lies on; `None`: there is no such disk.
fn disk_file() -> Option<OwnedFd> {
    use rustix::fs::{Mode, OFlags};
    let program = std::env::current_exe().ok()?;
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = rustix::fs::open(program.parent()?, flags, Mode::RUSR | Mode::WUSR).ok()?;
    rustix::fs::fcntl_get_seals(&file).is_err().then_some(file)
}

/// A page may have to be read first, and others wait for one, not for one of each packet.
#[test]
fn of_a_guest_whose_memory_is_on_a_disk_a_visit_takes_one_packet() {
    let Some(file) = disk_file() else { return println!("skipped: no file on a disk") };
    let mut bench = Bench::new(2);
    let workers = std::slice::from_mut(&mut bench.worker);
    let place = (2, FromPair { pair: 0, of: 1 });
    let guest = Guest::attach_in(file, workers, place, Features::VERSION_1);
    bench.guests.push(guest);
    bench.guests[2].post_all();
    bench.introduce();
    bench.send(2, &frame(mac(1), mac(2), 7), 5);
    for _ in 0..5 {
        assert_eq!(bench.step(), Some((PortId(2), vec![0, 1, 0])));
    }
    bench.settle();
    bench.send(0, &frame(mac(2), mac(0), 7), 5);
    assert_eq!(bench.step(), Some((PortId(0), vec![0, 0, 5])), "none of its pages is cold");
}

/// To read them would make pages in the guest's file.
#[test]
fn a_guest_that_sends_what_it_has_not_touched_is_found_while_the_worker_watches() {
    use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, memfd_create};
    for is_touched in [true, false] {
        let fd = memfd_create("guest", MemfdFlags::CLOEXEC).unwrap();
        let file = fd.try_clone().unwrap();
        let mut bench = Bench::new(2);
        let workers = std::slice::from_mut(&mut bench.worker);
        let place = (2, FromPair { pair: 0, of: 1 });
        bench.guests.push(Guest::attach_in(fd, workers, place, Features::VERSION_1));
        bench.guests[2].post_all();
        bench.introduce();
        bench.worker.ports.slots.iter_mut().for_each(|pair| pair.faults.watch(true));
        bench.send(2, &frame(mac(1), mac(2), 7), usize::from(QUEUE_SIZE));
        if !is_touched {
            let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            let len = u64::from(QUEUE_SIZE) * SEND_LEN;
            fallocate(&file, punch, SEND_AT, len).unwrap();
        }
        bench.settle();
        let Worker { stalls, ports, .. } = &mut bench.worker;
        let untouched: Vec<u32> = ports.slots.iter().map(|pair| pair.faults.untouched).collect();
        assert_eq!(untouched, [0, 0, if is_touched { 0 } else { 32 }]);
        assert_eq!(stalls.take_stalled(ports), None, "so few may be");
        ports.slots[2].faults.untouched += 4096 - 32;
        assert_eq!(stalls.take_stalled(ports), (!is_touched).then_some(PortId(2)));
        assert_eq!(stalls.take_stalled(ports), None, "it is told once");
    }
}

/// Stations behind a guest that is gone may turn up elsewhere: packets for them go everywhere.
#[test]
fn what_was_behind_a_guest_that_is_gone_is_forgotten() {
    let mut bench = Bench::new(3);
    bench.introduce();
    bench.worker.detach(PortId(1));
    bench.send(0, &frame(mac(1), mac(0), 5), 1);
    // The memory of the one that is gone is, too.
    while let Some(port) = bench.worker.schedule.ready.pop_front() {
        bench.worker.visit(port);
    }
    assert_eq!(bench.guests[2].receive(), 1, "{:?}", bench.drops(1, DropReason::LinkDown));
}
