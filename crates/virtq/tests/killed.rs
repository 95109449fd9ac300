//! A device that is killed between any two stores, and the one that comes after it.
//!
//! How: a script of what both sides do is run once to count the stores of the device, and then once
//! for each of them, which the device does not live to make. The next one recovers from the ring
//! and the record. Whatever was kept came through: the driver gets each buffer once, with what was
//! written into it, and the device sees no buffer again that it had kept. Where written pages are
//! logged, each page that a killed device has changed is marked by the next one. Small rings are
//! tried at every store, large ones by seed (`RINGWAY_SEED=n` replays it).
#![cfg(not(loom))]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

use common::{Memory, Rng, Seed};
use ringway_virtq::{
    BufferId, DeviceQueue, DirtyLog, DriverQueue, Elements, Format, LOG_PAGE_LEN, Layout, Mark,
    PackedDevice, PackedDriver, Position, QueueOptions, QueueSetup, Regions, RingRecord,
    SharedSlice, SplitDevice, SplitDriver, kill_after, leave_out,
};

/// Payload bytes of one buffer: of each another page, and a bit of the next one.
const SLOT: u64 = LOG_PAGE_LEN;
/// More stores than any script makes.
const NEVER: u64 = 1 << 40;

struct Bench<D, V> {
    driver: D,
    device: Option<V>,
    setup: QueueSetup,
    regions: Regions,
    record: [SharedSlice; 2],
    payload: u64,
    /// Numbers of the buffers in flight by their ids, and how often the device has seen each.
    in_flight: BTreeMap<u16, u64>,
    next: u64,
    seen: BTreeMap<u64, u32>,
    kept: Vec<u64>,
    /// Popped, and kept together with the next.
    open: Vec<u64>,
    returned: Vec<u64>,
    rng: Rng,
    log: Option<Log>,
    _memories: [Memory; 2],
}

/// The log of written pages, and which pages devices have changed.
struct Log {
    bits: SharedSlice,
    /// The memory as it was looked at last.
    known: Vec<u8>,
    changed: BTreeSet<usize>,
    _memory: Memory,
}

impl<D: DriverQueue, V: DeviceQueue> Bench<D, V> {
    fn new(size: u16, options: QueueOptions, seed: u64) -> Self {
        let ring_len = (Layout::of(D::FORMAT, size, options).len as usize).next_multiple_of(4096);
        // The last element of a buffer ends behind it.
        let payload_len = usize::try_from(SLOT).unwrap() * (usize::from(size) + 1);
        let mut memory = Memory::new(ring_len + payload_len);
        let regions = memory.regions();
        let (ring, _) = memory.share().split_at(ring_len);
        let driver = D::new(ring, Memory::BASE, size, options);
        let setup = QueueSetup { size, areas: driver.areas(), position: Position::FRESH, options };
        let mut journal = Memory::new(RingRecord::WORD_LEN + 16 * usize::from(size));
        let (word, entries) = journal.share().split_at(RingRecord::WORD_LEN);
        let entries = entries.slice(0, RingRecord::entries_len(D::FORMAT, size)).unwrap();
        let record = RingRecord::at(word, entries);
        let device = V::start_in(&setup, &regions, record).ok();
        Self {
            driver,
            device,
            setup,
            regions,
            record: [word, entries],
            payload: Memory::BASE + ring_len as u64,
            in_flight: BTreeMap::new(),
            next: 0,
            seen: BTreeMap::new(),
            kept: Vec::new(),
            open: Vec::new(),
            returned: Vec::new(),
            rng: Rng::new(seed),
            log: None,
            _memories: [memory, journal],
        }
    }

    /// Another device is there, which logs.
    fn with_log(size: u16, options: QueueOptions, seed: u64) -> Self {
        let mut bench = Self::new(size, options, seed);
        let len = bench._memories[0].share().len();
        let pages = (Memory::BASE + len as u64) / LOG_PAGE_LEN;
        let mut memory = Memory::new(usize::try_from(pages / 8 + 1).unwrap());
        let bits = memory.share();
        bench.regions = bench.regions.clone().with_log(Some(DirtyLog::new(bits)));
        let record = RingRecord::at(bench.record[0], bench.record[1]);
        bench.device = V::start_in(&bench.setup, &bench.regions, record).ok();
        // The front-end has copied all that is.
        bits.zero();
        bench.log =
            Some(Log { bits, known: vec![0; len], changed: BTreeSet::new(), _memory: memory });
        bench.look(false);
        bench
    }

    /// The driver has stored something, or the device.
    fn look(&mut self, is_device: bool) {
        let Some(log) = &mut self.log else { return };
        let mut now = vec![0; log.known.len()];
        self._memories[0].share().read(0, &mut now);
        let pages = now.chunks(4096).zip(log.known.chunks(4096)).enumerate();
        let changed = pages.filter(|(_, (now, before))| is_device && now != before);
        log.changed.extend(changed.map(|(page, _)| page));
        log.known = now;
    }

    /// Pages that have changed and are not marked.
    fn unmarked(&self) -> Vec<usize> {
        let Some(log) = &self.log else { return Vec::new() };
        let mut bits = vec![0; log.bits.len()];
        log.bits.read(0, &mut bits);
        let first = usize::try_from(Memory::BASE / LOG_PAGE_LEN).unwrap();
        let is_marked = |page: usize| bits[page / 8] >> (page % 8) & 1 != 0;
        log.changed.iter().copied().filter(|page| !is_marked(first + page)).collect()
    }

    /// The driver makes some buffers available: readable or writable, of one to three elements.
    fn add(&mut self) {
        for _ in 0..=self.rng.below(3) {
            let free = (0..self.setup.size).find(|id| !self.in_flight.contains_key(id));
            let id = match (self.driver.next_id(), D::FORMAT) {
                (Some(next), Format::Split) => Some(next.0),
                _ => free,
            };
            let Some(id) = id.filter(|id| !self.in_flight.contains_key(id)) else { break };
            let address = self.payload + u64::from(id) * SLOT;
            let elements = [(address, 4), (address + 2000, 4), (address + 4094, 4)];
            let elements = &elements[..1 + self.rng.index(3)];
            let added = match self.rng.one_in(2) {
                true => self.driver.add(elements, &[], BufferId(id)),
                false => self.driver.add(&[], elements, BufferId(id)),
            };
            if added.is_err() {
                break;
            }
            self.in_flight.insert(id, self.next);
            self.next += 1;
        }
        self.driver.publish();
    }

    fn take(&mut self) {
        while let Some(used) = self.driver.pop_used().expect("a right device") {
            let number = self.in_flight.remove(&used.id.0).expect("in flight");
            if self.open.contains(&number) {
                // Shown, and then the device was killed.
                self.kept.append(&mut self.open);
            }
            assert!(self.kept.contains(&number), "{number} was not kept");
            self.returned.push(number);
        }
    }

    /// The device takes a few buffers, sometimes two as one packet, and sometimes publishes; what
    /// it takes may be kept only then.
    fn serve(&mut self, steps: u32) {
        let base = self.base();
        let device = self.device.as_mut().expect("a device");
        let mut elements = Elements::new();
        let mut is_held = self.rng.one_in(4);
        if is_held {
            device.keep_at_publish();
        }
        for _ in 0..steps {
            let mut at = device.cursor();
            let peeked = device.peek(&mut at, &self.regions, &mut elements);
            let Some(head) = peeked.expect("a right driver") else { break };
            let number = self.in_flight[&id_of(&elements, base)];
            assert!(!self.kept.contains(&number), "{number} was kept, and is seen again");
            *self.seen.entry(number).or_default() += 1;
            let is_more = head.is_writable && self.rng.one_in(4);
            self.open.push(number);
            for (at, element) in (0..).zip(elements.writable()) {
                element.write(0, &[(number % 251) as u8 + 1, at, 0, 0]);
            }
            device.pop(head);
            device.add_used(head, 4 * u32::try_from(elements.writable().len()).unwrap());
            if is_more {
                continue;
            }
            device.keep();
            if !is_held {
                self.kept.append(&mut self.open);
            }
            if self.rng.one_in(3) {
                device.publish();
                self.kept.append(&mut self.open);
                is_held = false;
            }
        }
        device.publish();
        self.kept.append(&mut self.open);
    }

    /// Buffers that the killed device had not kept are open again; the last store may have been the
    /// one.
    fn recover(&mut self) {
        let record = RingRecord::at(self.record[0], self.record[1]);
        let mut device = V::recover(&self.setup, &self.regions, record).expect("a right record");
        // The next buffer that it sees says how far what was kept reached.
        let open = std::mem::take(&mut self.open);
        let (mut at, mut elements, base) = (device.cursor(), Elements::new(), self.base());
        let next = device.peek(&mut at, &self.regions, &mut elements).expect("a right driver");
        let next = next.map(|_| self.in_flight[&id_of(&elements, base)]);
        match (open.first(), next) {
            (Some(first), Some(next)) if *first == next => {
                open.iter().for_each(|number| *self.seen.entry(*number).or_default() -= 1);
            }
            // All of the packet, and nothing behind it.
            (Some(_), next) => {
                let behind = open.last().map(|last| last + 1);
                assert!(next.is_none() || next == behind, "{next:?} behind {open:?}");
                self.kept.extend(open);
            }
            (None, next) => assert!(next.is_none_or(|next| !self.kept.contains(&next)), "{next:?}"),
        }
        self.device = Some(device);
    }

    /// Where the payload is in this process.
    fn base(&self) -> usize {
        self.regions.slice(self.payload, 1).expect("inside").as_ptr().addr()
    }

    /// Runs so many rounds, killed after so many stores of the device, and again after so many
    /// more.
    fn run(&mut self, rounds: u32, kills: &[u64]) -> u64 {
        let mut kills = kills.iter();
        let mut left = kills.next().copied().unwrap_or(NEVER);
        let mut stores = 0;
        for _ in 0..rounds {
            self.add();
            self.look(false);
            let steps = 1 + self.rng.below(6);
            let mut served = kill_after(left, || self.serve(steps));
            self.look(true);
            while served.is_err() {
                if self.rng.one_in(2) {
                    // The driver goes on meanwhile.
                    self.take();
                    self.add();
                    self.look(false);
                }
                left = kills.next().copied().unwrap_or(NEVER);
                served = kill_after(left, || self.recover());
                self.look(true);
                let is_there = served.is_ok();
                assert!(!is_there || self.unmarked().is_empty(), "{:?}", self.unmarked());
            }
            left -= served.unwrap();
            stores += served.unwrap();
            self.take();
            self.look(false);
        }
        let _ = kill_after(NEVER, || self.serve(u32::MAX));
        self.look(true);
        self.take();
        assert_eq!(self.unmarked(), [0; 0], "pages that have changed");
        assert!(self.in_flight.is_empty(), "{:?} never came back", self.in_flight);
        assert_eq!(self.returned, (0..self.next).collect::<Vec<_>>(), "in order");
        assert!(self.seen.values().all(|times| *times == 1), "{:?}", self.seen);
        stores
    }
}

/// Short scripts on rings of these sizes, killed at every store, with a log: how many kills; and
/// in how many cases something was wrong.
fn logged<D: DriverQueue, V: DeviceQueue>(sizes: &[u16]) -> (u64, u64) {
    let (mut kills, mut failures) = (0, 0);
    for (&size, options) in sizes.iter().flat_map(|size| all_options().map(move |o| (size, o))) {
        for script in 0..3 {
            let stores = Bench::<D, V>::with_log(size, options, script).run(6, &[]);
            for store in 0..stores {
                let mut bench = Bench::<D, V>::with_log(size, options, script);
                let again = [store, store % 7];
                let kills = if store % 3 == 0 { &again[..] } else { &again[..1] };
                failures +=
                    u64::from(catch_unwind(AssertUnwindSafe(|| bench.run(6, kills))).is_err());
            }
            kills += stores;
        }
    }
    (kills, failures)
}

#[test]
fn what_a_killed_device_has_written_is_marked_by_the_next_one() {
    for (kills, failures) in [
        logged::<SplitDriver, SplitDevice>(&[2, 8]),
        logged::<PackedDriver, PackedDevice>(&[1, 3, 8]),
    ] {
        println!("{kills} kills");
        assert!(kills > 1000 && failures == 0, "{failures} of {kills} kills");
    }
}

/// Only the start of a device knows that another one was killed.
#[test]
fn a_mark_that_is_missing_at_the_start_is_noticed() {
    for mark in [Mark::Start, Mark::Posted] {
        leave_out(Some(mark));
        let (_, split) = logged::<SplitDriver, SplitDevice>(&[8]);
        let (_, packed) = logged::<PackedDriver, PackedDevice>(&[8]);
        leave_out(None);
        assert!(split > 0 && packed > 0, "{mark:?}: {split}, {packed}");
    }
}

/// The id of the buffer in the elements.
fn id_of(elements: &Elements, base: usize) -> u16 {
    let first = elements.readable().first().or(elements.writable().first()).expect("an element");
    u16::try_from((first.as_ptr().addr() - base) as u64 / SLOT).expect("inside")
}

fn all_options() -> impl Iterator<Item = QueueOptions> {
    (0..8u8).map(|bits| QueueOptions {
        event_idx: bits & 1 != 0,
        indirect: bits & 2 != 0,
        in_order: bits & 4 != 0,
        notify_on_empty: false,
    })
}

/// Every store of short scripts on small rings, and every store of the recovery behind some.
fn every_store<D: DriverQueue, V: DeviceQueue>(sizes: &[u16]) {
    let mut cases = 0;
    for (&size, options) in sizes.iter().flat_map(|size| all_options().map(move |o| (size, o))) {
        for script in 0..3 {
            let stores = Bench::<D, V>::new(size, options, script).run(8, &[]);
            for store in 0..stores {
                let mut bench = Bench::<D, V>::new(size, options, script);
                bench.run(8, &[store]);
                cases += 1;
                for again in (0..4).filter(|_| script == 0) {
                    Bench::<D, V>::new(size, options, script).run(8, &[store, again]);
                }
            }
        }
    }
    println!("{:?}: {cases} kills", D::FORMAT);
    assert!(cases > 1000, "{cases} kills");
}

#[test]
fn killed_at_every_store_to_a_split_ring() {
    every_store::<SplitDriver, SplitDevice>(&[2, 4, 8]);
}

#[test]
fn killed_at_every_store_to_a_packed_ring() {
    every_store::<PackedDriver, PackedDevice>(&[1, 2, 3, 5, 8]);
}

fn by_seed<D: DriverQueue, V: DeviceQueue>(size: u16) {
    let mut seed = Seed::new(0x5eed);
    for case in 0..60 {
        seed.case = format!("{:?}, {size} entries, case {case}", D::FORMAT);
        let mut rng = Rng::new(seed.value.wrapping_add(case));
        for options in all_options() {
            let script = rng.next();
            let kills: Vec<u64> = (0..20).map(|_| u64::from(rng.below(300))).collect();
            Bench::<D, V>::new(size, options, script).run(200, &kills);
        }
    }
}

#[test]
fn killed_again_and_again_on_large_rings() {
    by_seed::<SplitDriver, SplitDevice>(256);
    by_seed::<PackedDriver, PackedDevice>(257);
}
