//! A guest's memory, its copy, and the log that says what the copy lacks.

use std::collections::BTreeSet;

use ringway_testkit::TestMemory;
use ringway_virtq::{DirtyLog, LOG_PAGE_LEN, Regions, SharedSlice};

const PAGE: usize = LOG_PAGE_LEN as usize;

/// Bytes of a log that has all pages of the guest.
const LOG_LEN: u64 = 0x2_1000;

/// The outcome of one round.
pub struct Round {
    /// Pages that the device has changed.
    pub changed: BTreeSet<u64>,
    /// Pages that were marked.
    pub marked: BTreeSet<u64>,
    /// The copy is the same as the memory.
    pub is_same: bool,
    /// A queue has started in it.
    pub has_started: bool,
}

/// The guest, as a front-end sees it.
pub struct Guest {
    pub memory: TestMemory,
    log: TestMemory,
    bits: SharedSlice,
    /// Each region as it was looked at last, and its copy.
    known: Vec<Vec<u8>>,
    copy: Vec<Vec<u8>>,
    changed: BTreeSet<u64>,
    marked: BTreeSet<u64>,
}

impl Guest {
    pub const RINGS_AT: u64 = 0x10_0000;
    pub const DATA_AT: u64 = 0x40_0000;
    pub const MORE_AT: u64 = 0x1_0000_0000;
    pub const MORE_LEN: u64 = 0x6_0000;

    /// With so many pages for data in the first of its two regions for that.
    pub fn new(pages: u64) -> Self {
        let data = (Self::DATA_AT, pages * LOG_PAGE_LEN);
        let regions = [(Self::RINGS_AT, 0x4_0000), data, (Self::MORE_AT, Self::MORE_LEN)];
        let memory = TestMemory::new(&regions).unwrap();
        let log = TestMemory::new(&[(0, LOG_LEN)]).unwrap();
        let bits = log.region(0);
        let known: Vec<Vec<u8>> = (0..3).map(|at| read(memory.region(at))).collect();
        let (changed, marked) = (BTreeSet::new(), BTreeSet::new());
        Self { memory, log, bits, copy: known.clone(), known, changed, marked }
    }

    /// All memory, with the log.
    pub fn regions(&self) -> Regions {
        self.memory.regions().with_log(Some(DirtyLog::new(self.bits)))
    }

    /// A new log; of the one before, no bit may be set any more.
    pub fn new_log(&mut self) -> TestMemory {
        let log = TestMemory::new(&[(0, LOG_LEN)]).unwrap();
        self.bits = log.region(0);
        std::mem::replace(&mut self.log, log)
    }

    /// A log that ends in front of the data, and what is behind it.
    pub fn short_log(&self) -> (SharedSlice, SharedSlice) {
        self.bits.split_at((Self::DATA_AT / LOG_PAGE_LEN / 8) as usize)
    }

    /// The log is that one from now on.
    pub fn bind(&mut self, bits: SharedSlice) {
        self.bits = bits;
    }

    /// The pages that are marked now.
    pub fn marks(&self) -> BTreeSet<u64> {
        let bytes = read(self.bits);
        let set = bytes.iter().enumerate().filter(|(_, byte)| **byte != 0);
        let bits = set.flat_map(|(at, byte)| (0..8).map(move |bit| (8 * at as u64 + bit, *byte)));
        bits.filter(|(page, byte)| byte >> (page % 8) & 1 != 0).map(|(page, _)| page).collect()
    }

    /// The copy is made, of all memory.
    pub fn copy_all(&mut self) {
        self.bits.zero();
        self.known = (0..3).map(|at| read(self.memory.region(at))).collect();
        self.copy = self.known.clone();
        self.changed.clear();
        self.marked.clear();
    }

    /// The driver has stored something.
    pub fn note_driver(&mut self) {
        for at in 0..3 {
            let now = read(self.memory.region(at));
            for page in different(&now, &self.known[at]) {
                let bytes = page * PAGE..(page + 1) * PAGE;
                for byte in bytes.filter(|byte| now[*byte] != self.known[at][*byte]) {
                    self.copy[at][byte] = now[byte];
                }
            }
            self.known[at] = now;
        }
    }

    /// The device has stored something.
    pub fn note_device(&mut self) {
        for at in 0..3 {
            let now = read(self.memory.region(at));
            let first = self.memory.ranges()[at].0 / LOG_PAGE_LEN;
            let pages = different(&now, &self.known[at]);
            self.changed.extend(pages.into_iter().map(|page| first + page as u64));
            self.known[at] = now;
        }
    }

    /// Takes all bits, and copies these pages.
    pub fn take(&mut self) {
        let marks = self.marks();
        self.bits.zero();
        for (at, &(address, len)) in self.memory.ranges().iter().enumerate() {
            let first = address / LOG_PAGE_LEN;
            for page in marks.range(first..first + len / LOG_PAGE_LEN) {
                let from = (page - first) as usize * PAGE;
                let page = self.memory.region(at).slice(from, PAGE).unwrap();
                page.read(0, &mut self.copy[at][from..from + PAGE]);
            }
        }
        self.marked.extend(marks);
    }

    /// The device stands still.
    pub fn end_round(&mut self, has_started: bool) -> Round {
        self.take();
        let is_same = (0..3).all(|at| read(self.memory.region(at)) == self.copy[at]);
        let (changed, marked) = (self.changed.clone(), self.marked.clone());
        self.copy_all();
        Round { changed, marked, is_same, has_started }
    }
}

fn read(memory: SharedSlice) -> Vec<u8> {
    let mut bytes = vec![0; memory.len()];
    memory.read(0, &mut bytes);
    bytes
}

/// The pages that differ.
fn different(now: &[u8], before: &[u8]) -> Vec<usize> {
    let pages = now.chunks(PAGE).zip(before.chunks(PAGE)).enumerate();
    pages.filter(|(_, (now, before))| now != before).map(|(page, _)| page).collect()
}
