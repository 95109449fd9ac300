//! The log of written pages of guests whose workers are killed: whatever any of them has changed is
//! marked as soon as the next one serves.

use super::*;
use crate::LogRequest;

const PAGE: usize = 4096;

/// One guest's log, and the pages that workers have changed.
pub(super) struct Watched {
    log: OwnedFd,
    bytes: SharedSlice,
    /// The memory as it was looked at last.
    known: Vec<u8>,
    changed: BTreeSet<usize>,
}

impl Watched {
    fn new<D>(station: &mut Station<D>) -> Self {
        let log = rustix::fs::memfd_create("log", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        // As short as it can be.
        let size = (BASE + MEMORY_LEN).div_ceil(8 * PAGE as u64);
        rustix::fs::ftruncate(&log, size).unwrap();
        let fd = log.try_clone().unwrap().into();
        station.memory = station.memory.with_log(LogRequest { size, offset: 0, fd }).unwrap();
        let (bytes, known, changed) = (station.bytes, Vec::new(), BTreeSet::new());
        let mut watched = Self { log, bytes, known, changed };
        watched.look(false);
        watched
    }

    /// A worker has stored something, or the guest.
    fn look(&mut self, is_worker: bool) {
        let mut now = vec![0; self.bytes.len()];
        self.bytes.read(0, &mut now);
        let pages = now.chunks(PAGE).zip(self.known.chunks(PAGE)).enumerate();
        let changed = pages.filter(|(_, (now, before))| is_worker && now != before);
        self.changed.extend(changed.map(|(page, _)| page));
        self.known = now;
    }

    fn unmarked(&self) -> Vec<usize> {
        let mut bits = vec![0; 4096];
        let len = rustix::io::pread(&self.log, &mut bits[..], 0).unwrap();
        let first = usize::try_from(BASE).unwrap() / PAGE;
        let is_marked =
            |page: usize| bits[..len].get(page / 8).is_some_and(|byte| byte >> (page % 8) & 1 != 0);
        self.changed.iter().copied().filter(|page| !is_marked(first + page)).collect()
    }
}

impl<D: DriverQueue> Lives<D> {
    /// The worker is told of a log for each guest.
    pub(super) fn with_log(mut self) -> Self {
        self.watched = self.stations.iter_mut().map(Watched::new).collect();
        let (worker, _) = self.worker.as_mut().expect("a worker");
        for (port, station) in self.stations.iter().enumerate() {
            let id = PortId(u16::try_from(port).unwrap());
            worker.set_memory(id, &station.memory, &[]).expect("the same memory");
        }
        self
    }

    /// A worker has stored something, or guests have.
    pub(super) fn look(&mut self, is_worker: bool) {
        self.watched.iter_mut().for_each(|watched| watched.look(is_worker));
    }

    /// All that a worker does now is done.
    pub(super) fn check_log(&self) {
        for watched in &self.watched {
            assert_eq!(watched.unmarked(), [0; 0], "pages that have changed");
        }
    }
}

fn logged<D: DriverQueue>(format: Features) {
    let mut kills = 0;
    for script in [0, 3, 6, 9, 15] {
        let features = all_features()[script].union(format);
        // With a tap on a cable, or three guests on a switch.
        let (guests, has_tap) = if script % 2 == 0 { (3, false) } else { (1, true) };
        let case = Case { features, size: 32, guests, has_tap, segments: 1, script: script as u64 };
        let stores = Lives::<D>::new(case).with_log().run(3, &[]);
        for store in 0..stores {
            Lives::<D>::new(case).with_log().run(3, &[store]);
        }
        kills += stores;
    }
    println!("{:?}: {kills} kills", D::FORMAT);
    assert!(kills > 300, "{kills} kills");
}

#[test]
fn what_killed_workers_have_written_is_marked_in_split_rings() {
    logged::<SplitDriver>(Features::empty());
}

#[test]
fn what_killed_workers_have_written_is_marked_in_packed_rings() {
    logged::<PackedDriver>(Features::RING_PACKED);
}
