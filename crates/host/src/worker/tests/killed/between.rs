//! Two workers, of which one hands over to the other what its guest sends: both end between any two
//! stores of either, and the next two go on.

use ringway_switch::Shared;

use super::*;
use crate::journal::watch::JournalWatch;

const SENDER: usize = 0;
const RECEIVER: usize = 1;
/// The sender uses its second pair, which belongs to the second worker.
const PAIRS: [FromPair; 2] = [FromPair { pair: 1, of: 2 }, FromPair { pair: 0, of: 1 }];

struct TwoWorkers<D> {
    case: Case,
    journal: OwnedFd,
    shared: Arc<Shared>,
    workers: Vec<(Worker, OtherEnds)>,
    stations: [Station<D>; 2],
    sent: Vec<u64>,
    /// How many may come twice: the packet that one worker took, the segment that one put.
    twice_max: usize,
    rng: Rng,
}

impl<D: DriverQueue> TwoWorkers<D> {
    fn new(case: Case) -> Self {
        let mut both = Self {
            case,
            journal: Journal::create(2, 16).unwrap(),
            shared: Shared::new(7),
            workers: Vec::new(),
            stations: [SENDER, RECEIVER].map(|port| Station::new(&case, mac(port))),
            sent: Vec::new(),
            twice_max: 0,
            rng: Rng::new(case.script),
        };
        both.start();
        both
    }

    fn start(&mut self) {
        self.workers.clear();
        let watch = JournalWatch::open(&self.journal).unwrap();
        let segments = usize::from(self.case.segments);
        for (FromPair { pair: worker, .. }, most) in PAIRS.into_iter().zip([segments, 1]) {
            self.twice_max += if watch.busy(worker).is_some() { most } else { 0 };
        }
        let journal = Arc::new(Journal::open(&self.journal).unwrap());
        for peers in WorkerPeers::of(2).unwrap() {
            let number = peers.index();
            let (mut worker, ends) = worker(peers, Switch::over(self.shared.clone()));
            worker.journal = Some(WorkerLine::unlocked(journal.clone(), number).unwrap());
            worker.peers.use_journal(Some(&journal));
            self.workers.push((worker, ends));
        }
        let negotiated = Negotiated::new(self.case.features).unwrap();
        for (port, station) in self.stations.iter().enumerate() {
            for (worker, _) in &mut self.workers {
                let (id, pairs) = (PortId(u16::try_from(port).unwrap()), PAIRS[port].of);
                worker.set_notify(id, Policy::Every);
                worker.attach_guest(id, negotiated, (mac(port), pairs), &station.memory);
                worker.note_rings(id, Some(7));
            }
        }
        // The packets in the rings wait for the receiver.
        self.workers.iter_mut().for_each(|(worker, _)| worker.take_arrivals());
        for queue in [Queue::ToGuest, Queue::FromGuest] {
            for (port, station) in self.stations.iter().enumerate() {
                let pair = PAIRS[port].pair;
                let worker = &mut self.workers[usize::from(pair)].0;
                let areas = station.queues[queue as usize].areas();
                self.case.start::<D>(worker, (port, pair), queue, areas);
            }
        }
        self.workers.iter_mut().for_each(|(worker, _)| worker.deliver_handed_over());
    }

    fn serve(&mut self) {
        for (port, FromPair { pair, .. }) in PAIRS.into_iter().enumerate() {
            let (worker, _) = &mut self.workers[usize::from(pair)];
            let id = PortId(u16::try_from(port).unwrap());
            for queue in [Queue::ToGuest, Queue::FromGuest] {
                worker.on_kick(id, queue);
            }
        }
        for (worker, _) in self.workers.iter_mut().rev() {
            worker.take_arrivals();
            while let Some(slot) = worker.schedule.ready.pop_front() {
                worker.visit(slot);
            }
        }
    }

    /// The script, in which workers make only so many stores, and the next ones so many.
    fn run(mut self, kills: &[u64]) -> u64 {
        const ROUNDS: u32 = 6;
        let mut kills = kills.iter();
        let (mut left, mut stores) = (kills.next().copied().unwrap_or(NEVER), 0);
        let mut killed = 0;
        for round in 0.. {
            let size = u64::from(self.case.size);
            let most = if round < ROUNDS { self.rng.below(size / 2) } else { size };
            self.stations[RECEIVER].post(&mut self.rng, most);
            for _ in 0..self.rng.below(if round < ROUNDS { 5 } else { 1 }) {
                self.send();
            }
            let mut served = kill_after(left, || self.serve());
            while served.is_err() {
                killed += 1;
                left = kills.next().copied().unwrap_or(NEVER);
                served = kill_after(left, || {
                    self.start();
                    self.serve();
                });
            }
            left -= served.unwrap();
            stores += served.unwrap();
            let before = self.stations[RECEIVER].received.len();
            self.stations[RECEIVER].take();
            if round >= ROUNDS && before == self.stations[RECEIVER].received.len() {
                break;
            }
        }
        let received = &self.stations[RECEIVER].received;
        let once: BTreeSet<u64> = received.iter().copied().collect();
        assert_eq!(once, self.sent.iter().copied().collect(), "{killed} killed");
        let again = received.len() - self.sent.len();
        assert!(again <= self.twice_max, "{again} again in {killed} kills");
        assert!(killed > 0 || again == 0, "{again} again");
        stores
    }

    fn send(&mut self) {
        let (number, segments) = (self.sent.len() as u64, self.case.segments);
        let (to, from) = (mac(RECEIVER), mac(SENDER));
        let sender = &mut self.stations[SENDER];
        let has_sent = match segments {
            1 => sender.send(to, from, number, &mut self.rng),
            _ => sender.send_long(to, from, number, segments),
        };
        if has_sent {
            self.sent.extend(number..number + u64::from(segments));
        }
    }
}

fn every_store<D: DriverQueue>(more: Features, segments: u16) {
    let mut kills = 0;
    for (script, features) in (0..).zip(all_features()) {
        let features = features.union(more);
        let case = Case { features, size: 16, guests: 2, has_tap: false, segments, script };
        let stores = TwoWorkers::<D>::new(case).run(&[]);
        for store in 0..stores {
            TwoWorkers::<D>::new(case).run(&[store]);
        }
        kills += stores;
    }
    println!("{:?}: {kills} kills", D::FORMAT);
    assert!(kills > 1000, "{kills} kills");
}

#[test]
fn what_was_handed_over_is_not_lost_with_split_rings() {
    every_store::<SplitDriver>(Features::empty(), 1);
}

#[test]
fn what_was_handed_over_is_not_lost_with_packed_rings() {
    every_store::<PackedDriver>(Features::RING_PACKED, 1);
}

/// The receiver takes no long packets: it gets segments, and often has room for some only.
#[test]
fn segments_that_have_arrived_do_not_come_again() {
    let long = Features::CSUM.union(Features::HOST_TSO4);
    every_store::<SplitDriver>(long, 5);
    every_store::<PackedDriver>(long.union(Features::RING_PACKED), 5);
}

#[test]
fn what_was_handed_over_outlives_several_kills() {
    let mut rng = Rng::from_environment("killed_between", 0x6b12);
    for features in all_features() {
        let script = rng.bits();
        let case = Case { features, size: 64, guests: 2, has_tap: false, segments: 1, script };
        let kills: Vec<u64> = (0..6).map(|_| rng.below(120)).collect();
        TwoWorkers::<SplitDriver>::new(case).run(&kills);
    }
}
