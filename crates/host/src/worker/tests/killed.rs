//! A worker that is killed between any two stores to a ring or to the journal, and the one that
//! comes after it.
//!
//! How: guests send each other numbered packets over a worker; a script is run once to count the
//! worker's stores, and then once for each of them, at which it ends. The next worker opens the
//! journal, is told the same ports and queues, and goes on; it may be killed as well, also while it
//! recovers. Every packet comes through, in order; for each kill one may come twice, which the
//! journal has to count. Small rings are tried at every store, large ones by seed.

mod between;
mod log;

use std::collections::BTreeSet;

use ringway_net::{GsoType, NEEDS_CSUM, NetHeader, TapCalls};
use ringway_testkit::Rng;
use ringway_virtq::{Areas, Format, PackedDriver, kill_after};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::*;
use crate::Tap;
use crate::journal::Journal;
use crate::journal::worker_line::WorkerLine;

/// More stores than any script makes.
const NEVER: u64 = 1 << 40;
/// Bytes for each buffer.
const SLOT: u64 = 512;
/// Ethernet header, then the number.
const NUMBER_AT: usize = 14;
/// Ethernet, IPv4 and TCP, and where the sequence number is.
const HEADERS_LEN: usize = 54;
const SEQUENCE_AT: usize = 38;
/// Bytes of each segment, by which sequence numbers are counted.
const SEGMENT_LEN: u16 = 20;
/// Packets that a tap reads at once.
const BATCH_MAX: usize = 64;
/// Where the buffers are, from the start of the memory.
const BUFFERS_AT: [u64; 2] = [RECEIVE_AT, SEND_AT];

/// The parameters in which runs differ.
#[derive(Debug, Clone, Copy)]
struct Case {
    features: Features,
    size: u16,
    guests: usize,
    /// Behind the guests there is a tap.
    has_tap: bool,
    /// Packets that the receiver gets as so many segments; 1: as they are.
    segments: u16,
    script: u64,
}

/// A guest whose driver lives through all of it.
struct Station<D> {
    memory: GuestMemory,
    bytes: SharedSlice,
    queues: [D; 2],
    /// Ids that are free, by queue.
    free: [Vec<u16>; 2],
    mergeable: bool,
    mac: MacAddress,
    received: Vec<u64>,
    /// Buffers of a packet that is not whole.
    part: Vec<u8>,
}

impl<D: DriverQueue> Station<D> {
    fn new(case: &Case, mac: MacAddress) -> Self {
        let fd = rustix::fs::memfd_create("guest", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&fd, MEMORY_LEN).unwrap();
        let request =
            MemoryRequest { guest_address: BASE, size: MEMORY_LEN, mmap_offset: 0, fd: fd.into() };
        let memory = GuestMemory::map(vec![request]).unwrap();
        let bytes = memory.regions().slice(BASE, u32::try_from(MEMORY_LEN).unwrap()).unwrap();
        let options = Negotiated::new(case.features).unwrap().options;
        let queues = RINGS_AT.map(|at| {
            let len = Layout::of(D::FORMAT, case.size, options).len as usize;
            let ring = bytes.slice(usize::try_from(at).unwrap(), len).unwrap();
            D::new(ring, BASE + at, case.size, options)
        });
        let free = [(); 2].map(|()| (0..case.size).rev().collect());
        let mergeable = case.features.contains(Features::MRG_RXBUF);
        let (received, part) = (Vec::new(), Vec::new());
        Self { memory, bytes, queues, free, mergeable, mac, received, part }
    }

    /// Adds a buffer of some elements of these lengths; `None`: there is no room.
    fn add(&mut self, queue: Queue, lens: &[u32]) -> Option<u64> {
        let at = queue as usize;
        let ring = &mut self.queues[at];
        let next = ring.next_id()?;
        let place = self.free[at].iter().rposition(|id| BufferId(*id) == next)?;
        let buffer = BASE + BUFFERS_AT[at] + u64::from(next.0) * SLOT;
        let ends = lens.iter().scan(0, |end, len| Some(std::mem::replace(end, *end + len)));
        let elements: Vec<(u64, u32)> =
            ends.zip(lens).map(|(from, len)| (buffer + u64::from(from), *len)).collect();
        let added = match queue {
            Queue::ToGuest => ring.add(&[], &elements, next),
            _ => ring.add(&elements, &[], next),
        };
        added.ok()?;
        self.free[at].remove(place);
        Some(buffer - BASE)
    }

    fn post(&mut self, rng: &mut Rng, most: u64) {
        for _ in 0..most {
            let lens: &[u32] = match (self.mergeable, rng.one_in(3)) {
                (true, false) => &[60],
                (true, true) => &[40, 30],
                (false, false) => &[400],
                (false, true) => &[100, 300],
            };
            if self.add(Queue::ToGuest, lens).is_none() {
                break;
            }
        }
        self.queues[0].publish();
    }

    /// Sends a packet of that number; `false`: there is no room.
    fn send(&mut self, to: MacAddress, from: MacAddress, number: u64, rng: &mut Rng) -> bool {
        let body = u32::try_from(60 + rng.below(100)).unwrap();
        let header = u32::try_from(HEADER_LEN).unwrap();
        let lens: &[u32] = match rng.below(3) {
            0 => &[header + body],
            1 => &[header, body],
            _ => &[header, 20, body - 20],
        };
        let frame = [&to.0[..], &from.0, &[0x88, 0xb5], &number.to_le_bytes()].concat();
        self.send_frame(lens, &NetHeader::default(), &frame)
    }

    /// Sends a packet that the receiver gets as so many segments, the first one of that number;
    /// `false`: there is no room.
    fn send_long(&mut self, to: MacAddress, from: MacAddress, first: u64, segments: u16) -> bool {
        let payload = SEGMENT_LEN * segments;
        let sequence = (u32::try_from(first).unwrap() * u32::from(SEGMENT_LEN)).to_be_bytes();
        let mut frame = [&to.0[..], &from.0, &[8, 0, 0x45, 0]].concat();
        frame.extend((40 + payload).to_be_bytes());
        frame.extend([0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0, 1, 0, 2]);
        frame.extend(sequence);
        frame.extend([0, 0, 0, 0, 0x50, 0x10, 0, 0, 0, 0, 0, 0]);
        frame.resize(HEADERS_LEN + usize::from(payload), 0);
        let header = NetHeader {
            flags: NEEDS_CSUM,
            gso_type: GsoType::TcpV4.raw(),
            hdr_len: u16::try_from(HEADERS_LEN).unwrap(),
            gso_size: SEGMENT_LEN,
            csum_start: 34,
            csum_offset: 16,
            ..NetHeader::default()
        };
        let len = u32::try_from(HEADER_LEN + frame.len()).unwrap();
        self.send_frame(&[len], &header, &frame)
    }

    fn send_frame(&mut self, lens: &[u32], header: &NetHeader, frame: &[u8]) -> bool {
        while let Some(used) = self.queues[1].pop_used().expect("a right device") {
            self.free[1].push(used.id.0);
        }
        let Some(at) = self.add(Queue::FromGuest, lens) else { return false };
        let at = usize::try_from(at).unwrap();
        self.bytes.write(at, &header.encode());
        self.bytes.write(at + HEADER_LEN, frame);
        self.queues[1].publish();
        true
    }

    /// Takes all packets that are there, each of them whole.
    fn take(&mut self) {
        let mut missing = 0;
        while let Some(used) = self.queues[0].pop_used().expect("a right device") {
            let at = usize::try_from(BUFFERS_AT[0] + u64::from(used.id.0) * SLOT).unwrap();
            let mut bytes = vec![0; used.len as usize];
            self.bytes.read(at, &mut bytes);
            self.free[0].push(used.id.0);
            if missing == 0 {
                missing = usize::from(u16::from_le_bytes([bytes[10], bytes[11]]));
                assert!(missing == 1 || self.mergeable && missing > 0, "{missing} buffers");
            }
            self.part.extend(bytes);
            missing -= 1;
            if missing == 0 {
                let frame = self.part.split_off(HEADER_LEN);
                // Until a switch knows a station, all get what is for it.
                if frame.starts_with(&self.mac.0) {
                    self.received.push(number_of(&frame));
                }
                self.part.clear();
            }
        }
        assert_eq!(missing, 0, "part of a packet was shown");
    }
}

/// The number of a packet or segment.
fn number_of(frame: &[u8]) -> u64 {
    let number = frame[NUMBER_AT..].first_chunk().unwrap();
    if frame[12..14] != [8, 0] {
        return u64::from_le_bytes(*number);
    }
    let sequence = frame[SEQUENCE_AT..].first_chunk().unwrap();
    u64::from(u32::from_be_bytes(*sequence) / u32::from(SEGMENT_LEN))
}

/// Guests, and a worker that is not the first one.
struct Lives<D> {
    case: Case,
    journal: OwnedFd,
    worker: Option<(Worker, OtherEnds)>,
    stations: Vec<Station<D>>,
    /// Numbers of the packets to each guest, and behind them to the tap.
    sent: Vec<Vec<u64>>,
    /// A socket stands for the tap; its other end, and what came out there.
    tap: [OwnedFd; 2],
    left_by_tap: Vec<u64>,
    interrupted: usize,
    rng: Rng,
    /// Logs of written pages, if there are any.
    watched: Vec<log::Watched>,
}

impl<D: DriverQueue> Lives<D> {
    fn new(case: Case) -> Self {
        let journal = Journal::create(1, 16).unwrap();
        let stations = (0..case.guests).map(|port| Station::new(&case, mac(port))).collect();
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let tap = socketpair(family, kind, SocketFlags::NONBLOCK, None).unwrap();
        let mut lives = Self {
            case,
            journal,
            worker: None,
            stations,
            sent: vec![Vec::new(); case.guests + 1],
            tap: tap.into(),
            left_by_tap: Vec::new(),
            interrupted: 0,
            rng: Rng::new(case.script),
            watched: Vec::new(),
        };
        lives.start_worker(true);
        lives
    }

    fn start_worker(&mut self, is_first: bool) {
        self.worker = None;
        let journal = Arc::new(Journal::open(&self.journal).unwrap());
        self.interrupted += journal.interrupted();
        let (mut worker, ends) = worker(WorkerPeers::of(1).unwrap().remove(0), Switch::new(7));
        worker.journal = Some(WorkerLine::unlocked(journal.clone(), 0).unwrap());
        let negotiated = Negotiated::new(self.case.features).unwrap();
        for (port, station) in self.stations.iter().enumerate() {
            let id = PortId(u16::try_from(port).unwrap());
            worker.set_notify(id, Policy::Every);
            worker.attach_guest(id, negotiated, (mac(port), 1), &station.memory);
            worker.note_rings(id, Some(7));
        }
        for (port, station) in self.stations.iter().enumerate() {
            for (queue, ring) in [Queue::ToGuest, Queue::FromGuest].into_iter().zip(&station.queues)
            {
                self.case.start::<D>(&mut worker, (port, 0), queue, ring.areas());
            }
        }
        if self.case.has_tap {
            let port = PortId(u16::try_from(self.case.guests).unwrap());
            let end = self.tap[0].try_clone().unwrap();
            let mut tap = Box::new(Tap::new(end, "socket".to_owned(), None));
            tap.set_writes(TapCalls::IoUring);
            worker.attach_tap(port, tap, Some(FromPair { pair: 0, of: 1 })).unwrap();
        }
        let anew =
            ends.1.try_iter().filter(|event| matches!(event, WorkerEvent::StartedAnew { .. }));
        assert_eq!(anew.count(), 0, "a ring has started anew");
        assert!(is_first || self.stations.iter().all(|station| station.part.is_empty()));
        self.worker = Some((worker, ends));
    }

    /// Everything that the worker has to do now.
    fn serve(&mut self) {
        let (worker, _) = self.worker.as_mut().expect("a worker");
        for port in 0..self.case.guests {
            let id = PortId(u16::try_from(port).unwrap());
            worker.on_kick(id, Queue::ToGuest);
            worker.on_kick(id, Queue::FromGuest);
        }
        while let Some(slot) = worker.schedule.ready.pop_front() {
            worker.visit(slot);
        }
    }

    fn guests_move(&mut self) {
        for from in 0..self.case.guests {
            // A packet to all does not wait for room.
            let size = u64::from(self.case.size);
            let most = if self.case.guests > 2 { size } else { self.rng.below(size + 1) };
            self.stations[from].post(&mut self.rng, most);
            for _ in 0..self.rng.below(4) {
                let ends = self.case.guests + usize::from(self.case.has_tap);
                let other = usize::try_from(self.rng.below(ends as u64 - 1)).unwrap();
                let to = (from + 1 + other) % ends;
                let number = self.sent.iter().map(Vec::len).sum::<usize>() as u64;
                if self.stations[from].send(mac(to), mac(from), number, &mut self.rng) {
                    self.sent[to].push(number);
                }
            }
        }
    }

    /// The script, in which the worker makes only so many stores, and the next ones so many.
    fn run(mut self, rounds: u32, kills: &[u64]) -> u64 {
        let mut kills = kills.iter();
        let (mut left, mut stores) = (kills.next().copied().unwrap_or(NEVER), 0);
        let mut killed = 0;
        for round in 0.. {
            if round < rounds {
                self.guests_move();
            } else {
                let size = u64::from(self.case.size);
                self.stations.iter_mut().for_each(|station| station.post(&mut self.rng, size));
            }
            self.look(false);
            let mut served = kill_after(left, || self.serve());
            self.look(true);
            while served.is_err() {
                killed += 1;
                left = kills.next().copied().unwrap_or(NEVER);
                served = kill_after(left, || {
                    self.start_worker(false);
                    self.serve();
                });
                self.look(true);
            }
            self.check_log();
            left -= served.unwrap();
            stores += served.unwrap();
            let before: usize = self.stations.iter().map(|station| station.received.len()).sum();
            self.stations.iter_mut().for_each(Station::take);
            self.take_from_tap();
            let after: usize = self.stations.iter().map(|station| station.received.len()).sum();
            if round >= rounds && before == after {
                break;
            }
        }
        self.check(killed);
        stores
    }

    fn take_from_tap(&mut self) {
        let mut bytes = [0; 1024];
        while let Ok(len @ 1..) = rustix::io::read(&self.tap[1], &mut bytes) {
            let frame = &bytes[HEADER_LEN..len];
            if frame.starts_with(&mac(self.case.guests).0) {
                let number = frame[NUMBER_AT..].first_chunk().unwrap();
                self.left_by_tap.push(u64::from_le_bytes(*number));
            }
        }
    }

    fn check(&mut self, killed: usize) {
        let mut again = 0;
        let arrived = self.stations.iter().map(|station| &station.received);
        for (arrived, sent) in arrived.chain([&self.left_by_tap]).zip(&self.sent) {
            let once: BTreeSet<u64> = arrived.iter().copied().collect();
            assert_eq!(once, sent.iter().copied().collect(), "{killed} killed");
            again += arrived.len() - sent.len();
        }
        let most = self.interrupted.min(killed) * if self.case.has_tap { BATCH_MAX } else { 1 };
        assert!(again <= most, "{again} again in {killed} kills");
    }
}

impl Case {
    fn start<D: DriverQueue>(
        &self,
        worker: &mut Worker,
        (port, pair): (usize, u16),
        queue: Queue,
        areas: Areas,
    ) {
        let options = Negotiated::new(self.features).unwrap().options;
        let setup = QueueSetup { size: self.size, areas, position: Position::FRESH, options };
        let bell = EventFd::new().unwrap().as_fd().try_clone_to_owned().unwrap();
        let kick = Some(kick_fd().into());
        let fds = QueueFds::new(&Callee::default(), kick, Some(bell.into()), None).unwrap();
        let (port, queue) = (PortId(u16::try_from(port).unwrap()), QueueId { pair, queue });
        if D::FORMAT == Format::Packed {
            // The contents of the ring are not enough where there were chains.
            assert_eq!(worker.position_by_ring(port, queue, &setup), Ok(Position::FRESH));
        }
        worker.start_queue(port, queue, &setup, fds).unwrap();
    }
}

fn all_features() -> Vec<Features> {
    let base = Features::VERSION_1;
    let more =
        [Features::INDIRECT_DESC, Features::IN_ORDER, Features::MRG_RXBUF, Features::EVENT_IDX];
    let with = |bits: u32| {
        let set = more.iter().enumerate().filter(|(at, _)| bits >> at & 1 == 1);
        set.fold(base, |all, (_, feature)| all.union(*feature))
    };
    (0..16).map(with).collect()
}

/// Every store of short scripts.
fn every_store<D: DriverQueue>(format: Features, size: u16) {
    let mut kills = 0;
    for (script, features) in (0..).zip(all_features()) {
        let (size, guests) = if script % 8 == 7 { (32, 3) } else { (size, 2) };
        let (features, has_tap) = (features.union(format), false);
        let case = Case { features, size, guests, has_tap, segments: 1, script };
        let stores = Lives::<D>::new(case).run(4, &[]);
        for store in 0..stores {
            Lives::<D>::new(case).run(4, &[store]);
        }
        kills += stores;
    }
    println!("{:?}, {size} entries: {kills} kills", D::FORMAT);
    assert!(kills > 1000, "{kills} kills");
}

#[test]
fn killed_at_every_store_with_split_rings() {
    every_store::<SplitDriver>(Features::empty(), 8);
}

#[test]
fn killed_at_every_store_with_packed_rings() {
    every_store::<PackedDriver>(Features::RING_PACKED, 8);
}

/// Again and again, also while a worker recovers.
fn by_seed<D: DriverQueue>(format: Features) {
    let mut rng = Rng::from_environment("killed", 0x6b11);
    for features in all_features().into_iter().map(|features| features.union(format)) {
        for guests in [2, 3] {
            let script = rng.bits();
            let case = Case { features, size: 64, guests, has_tap: false, segments: 1, script };
            let kills: Vec<u64> = (0..12).map(|_| rng.below(200)).collect();
            Lives::<D>::new(case).run(40, &kills);
        }
    }
}

#[test]
fn killed_again_and_again_with_split_rings() {
    by_seed::<SplitDriver>(Features::empty());
}

#[test]
fn killed_again_and_again_with_packed_rings() {
    by_seed::<PackedDriver>(Features::RING_PACKED);
}

/// A tap reads packets from the senders' memory at the end of a visit. With one guest it is at the
/// other end of a cable.
fn with_a_tap<D: DriverQueue>(format: Features) {
    for (script, guests) in [(0, 1), (1, 1), (2, 2), (3, 2)] {
        let features = all_features()[if script % 2 == 0 { 0 } else { 7 }].union(format);
        let case = Case { features, size: 32, guests, has_tap: true, segments: 1, script };
        let stores = Lives::<D>::new(case).run(6, &[]);
        for store in 0..stores {
            Lives::<D>::new(case).run(6, &[store]);
        }
    }
}

#[test]
fn what_a_tap_has_not_read_is_not_lost() {
    with_a_tap::<SplitDriver>(Features::empty());
    with_a_tap::<PackedDriver>(Features::RING_PACKED);
}
