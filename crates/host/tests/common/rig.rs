//! Running workers, and guests with several queue pairs, in this process.
//!
//! Limits: split rings; the guests' side never waits, it looks again and again.

use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use ringway_device::{Queue, QueueId};
use ringway_host::{
    Effort, EventFd, GuestMemory, Job, KickFd, QueueFds, Tap, Worker, WorkerChannels, WorkerEvent,
    WorkerPeers,
};
use ringway_net::moderation::Policy;
use ringway_net::{Features, FromPair, HEADER_LEN, MacAddress, Negotiated, PollMode, PollOptions};
use ringway_switch::{PortId, Shared, Switch};
use ringway_virtq::{
    BufferId, DriverQueue, Layout, Position, QueueSetup, SharedSlice, SplitDriver, Used,
};

use super::{HANG_TIMEOUT, memory_file, request};

/// Entries of each queue.
pub const QUEUE_SIZE: u16 = 256;
const BASE: u64 = 0x10_0000;
/// Of each queue: its ring, then its buffers.
const QUEUE_LEN: u64 = 0x10_0000;
const BUFFERS_AT: u64 = 0x1_0000;
const BUFFER_LEN: u32 = 2048;

/// One worker's thread.
struct Running {
    jobs: Sender<Job>,
    bell: Arc<EventFd>,
    thread: JoinHandle<()>,
}

/// Workers that run.
pub struct Rig {
    workers: Vec<Running>,
    _events: Receiver<WorkerEvent>,
}

impl Rig {
    pub fn start(count: u16) -> Self {
        let shared = Shared::new(7);
        let (sender, events) = mpsc::channel();
        let event_bell = Arc::new(EventFd::new().expect("eventfd"));
        let start = |peers| {
            let (jobs, job_receiver) = mpsc::channel();
            let bell = Arc::new(EventFd::new().expect("eventfd"));
            let channels = WorkerChannels {
                jobs: job_receiver,
                job_bell: bell.clone(),
                events: sender.clone(),
                event_bell: event_bell.clone(),
                peers,
                switch: Switch::over(shared.clone()),
                poll: PollOptions { mode: PollMode::Never, ..PollOptions::default() },
            };
            let work = || Worker::new(channels).and_then(Worker::run).expect("a worker");
            Running { jobs, bell, thread: thread::spawn(work) }
        };
        let workers = WorkerPeers::of(count).expect("eventfds").into_iter().map(start).collect();
        Self { workers, _events: events }
    }

    fn ask_all(&self, work: impl FnOnce(&mut Worker) + Clone + Send + 'static) {
        (0..self.workers.len()).for_each(|worker| self.ask(worker, work.clone()));
    }

    fn send(&self, worker: usize, job: Job) {
        self.workers[worker].jobs.send(job).expect("it runs");
        self.workers[worker].bell.notify();
    }

    fn ask<T: Send + 'static>(
        &self,
        worker: usize,
        work: impl FnOnce(&mut Worker) -> T + Send + 'static,
    ) -> T {
        let (done, answer) = mpsc::sync_channel(1);
        self.send(worker, Job::new(move |worker| _ = done.send(work(worker))));
        answer.recv_timeout(HANG_TIMEOUT).expect("an answer")
    }

    /// A guest that uses all its pairs.
    pub fn attach(&self, port: u16, pairs: u16) -> Guest {
        let len = u64::from(pairs) * 2 * QUEUE_LEN;
        let file = memory_file(len);
        let memory = GuestMemory::map(vec![request(&file, BASE, len, 0)]).expect("good");
        let (port, mac) = (PortId(port), MacAddress::local(u32::from(port)));
        let negotiated = Negotiated::new(Features::VERSION_1).expect("consistent");
        let guest_memory = memory.clone();
        self.ask_all(move |worker| {
            worker.set_notify(port, Policy::Every);
            worker.attach_guest(port, negotiated, (mac, pairs), &guest_memory);
        });
        let queues = (0..pairs).map(|pair| [(pair, Queue::ToGuest), (pair, Queue::FromGuest)]);
        let queues = queues.flatten().zip((BASE..).step_by(QUEUE_LEN as usize));
        let start = |((pair, queue), at)| self.start_queue((port, pair, queue), at, &memory);
        let queues = queues.map(start).collect();
        self.ask_all(move |worker| worker.set_pairs(port, pairs, false));
        Guest { queues, mac, _memory: memory }
    }

    fn start_queue(&self, id: (PortId, u16, Queue), at: u64, memory: &GuestMemory) -> GuestQueue {
        let (port, pair, queue) = id;
        let options = Negotiated::new(Features::VERSION_1).expect("consistent").options;
        let layout = Layout::of(SplitDriver::FORMAT, QUEUE_SIZE, options);
        let memory = memory.regions().slice(at, QUEUE_LEN as u32).expect("inside");
        let ring = memory.slice(0, layout.len as usize).expect("inside");
        let ring = SplitDriver::new(ring, at, QUEUE_SIZE, options);
        let kick = EventFd::new().expect("eventfd");
        let device_kick = kick.as_fd().try_clone_to_owned().expect("dup");
        let fds = QueueFds { kick: KickFd::new(device_kick).ok(), ..QueueFds::default() };
        let (size, areas, position) = (QUEUE_SIZE, ring.areas(), Position::FRESH);
        let setup = QueueSetup { size, areas, position, options };
        let queue = QueueId { pair, queue };
        let owner = usize::from(pair) % self.workers.len();
        let started = self.ask(owner, move |worker| worker.start_queue(port, queue, &setup, fds));
        started.expect("a good ring");
        GuestQueue { ring, kick, memory, buffers: at + BUFFERS_AT }
    }

    /// The only worker reads a tap.
    pub fn attach_tap(&self, port: u16, tap: Tap) {
        assert_eq!(self.workers.len(), 1, "it would have to be shared");
        let queue = Some(FromPair { pair: 0, of: 1 });
        let (port, tap) = (PortId(port), Box::new(tap));
        let attached = self.ask(0, move |worker| worker.attach_tap(port, tap, queue));
        attached.expect("a tap can be watched");
    }

    /// The effort of the first worker so far.
    pub fn effort(&self) -> Effort {
        self.ask(0, Worker::effort).total
    }

    /// Ends all workers.
    pub fn stop(self) {
        (0..self.workers.len()).for_each(|worker| self.send(worker, Job::Stop));
        for worker in self.workers {
            worker.thread.join().expect("a worker that ends in peace");
        }
    }
}

/// A guest's side.
pub struct Guest {
    /// Receiveq and transmitq of each pair.
    queues: Vec<GuestQueue>,
    pub mac: MacAddress,
    _memory: GuestMemory,
}

impl Guest {
    pub fn pairs(&self) -> Range<usize> {
        0..self.queues.len() / 2
    }

    pub fn receiveq(&mut self, pair: usize) -> &mut GuestQueue {
        &mut self.queues[pair * 2]
    }

    pub fn transmitq(&mut self, pair: usize) -> &mut GuestQueue {
        &mut self.queues[pair * 2 + 1]
    }
}

/// One queue, whose buffers have the numbers of their places.
pub struct GuestQueue {
    ring: SplitDriver,
    kick: EventFd,
    memory: SharedSlice,
    buffers: u64,
}

impl GuestQueue {
    fn address(&self, id: u16) -> u64 {
        self.buffers + u64::from(id) * u64::from(BUFFER_LEN)
    }

    /// Makes every buffer available for a packet.
    pub fn post_all(&mut self) {
        for id in 0..QUEUE_SIZE {
            let element = [(self.address(id), BUFFER_LEN)];
            self.ring.add(&[], &element, BufferId(id)).expect("room");
        }
        self.ring.publish();
    }

    /// Sends the same packet in every buffer, once the device is [kicked](Self::kick).
    pub fn send_all(&mut self, packet: &[u8]) {
        for id in 0..QUEUE_SIZE {
            let at = BUFFERS_AT as usize + usize::from(id) * BUFFER_LEN as usize;
            self.memory.write(at + HEADER_LEN, packet);
            let element = [(self.address(id), (HEADER_LEN + packet.len()) as u32)];
            self.ring.add(&element, &[], BufferId(id)).expect("room");
        }
        self.ring.publish();
    }

    /// Tells the device that there is something.
    pub fn kick(&self) {
        self.kick.notify();
    }

    /// Waits until the device is done with every buffer; their lengths together, in bytes.
    pub fn wait_all(&mut self) -> u64 {
        self.wait_for_each(QUEUE_SIZE).iter().map(|used| u64::from(used.len)).sum()
    }

    /// Waits for so many packets and gives them, in the order in which they came, without headers.
    pub fn receive(&mut self, count: u16) -> Vec<Vec<u8>> {
        let all = self.wait_for_each(count);
        let packet = |used: &Used| {
            let mut packet = vec![0; used.len as usize - HEADER_LEN];
            let at = BUFFERS_AT as usize + usize::from(used.id.0) * BUFFER_LEN as usize;
            self.memory.read(at + HEADER_LEN, &mut packet);
            packet
        };
        all.iter().map(packet).collect()
    }

    fn wait_for_each(&mut self, count: u16) -> Vec<Used> {
        let deadline = Instant::now() + HANG_TIMEOUT;
        let mut all = Vec::new();
        while all.len() < usize::from(count) {
            match self.ring.pop_used().expect("a device that keeps the rules") {
                Some(used) => all.push(used),
                None => thread::sleep(Duration::from_millis(1)),
            }
            assert!(Instant::now() < deadline, "{} of {count} buffers used", all.len());
        }
        all
    }
}
