//! A device that is killed between any two stores, and the one that comes after it.
//!
//! How: a script of what both sides do is run once to count the stores of the device, and then once
//! for each of them, which the device does not live to make. The next one recovers from the ring
//! and the record. Whatever was kept came through: the driver gets each buffer once, with what was
//! written into it, and the device sees no buffer again that it had kept. Small rings are tried at
//! every store, large ones by seed (`RINGWAY_SEED=n` replays it).
#![cfg(not(loom))]

mod common;

use std::collections::BTreeMap;

use common::{Memory, Rng, Seed};
use ringway_virtq::{
    BufferId, DeviceQueue, DriverQueue, Elements, Format, Layout, PackedDevice, PackedDriver,
    Position, QueueOptions, QueueSetup, Regions, RingRecord, SharedSlice, SplitDevice, SplitDriver,
    kill_after,
};

/// Payload bytes of one buffer.
const SLOT: u64 = 16;
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
    _memories: [Memory; 2],
}

impl<D: DriverQueue, V: DeviceQueue> Bench<D, V> {
    fn new(size: u16, options: QueueOptions, seed: u64) -> Self {
        let ring_len = Layout::of(D::FORMAT, size, options).len as usize;
        let payload_len = usize::try_from(SLOT).unwrap() * usize::from(size);
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
            _memories: [memory, journal],
        }
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
            let elements = [(address, 4), (address + 4, 4), (address + 8, 4)];
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
            device.pop(head);
            device.add_used(head, if head.is_writable { 4 } else { 0 });
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
            let steps = 1 + self.rng.below(6);
            let mut served = kill_after(left, || self.serve(steps));
            while served.is_err() {
                if self.rng.one_in(2) {
                    // The driver goes on meanwhile.
                    self.take();
                    self.add();
                }
                left = kills.next().copied().unwrap_or(NEVER);
                served = kill_after(left, || self.recover());
            }
            left -= served.unwrap();
            stores += served.unwrap();
            self.take();
        }
        let _ = kill_after(NEVER, || self.serve(u32::MAX));
        self.take();
        assert!(self.in_flight.is_empty(), "{:?} never came back", self.in_flight);
        assert_eq!(self.returned, (0..self.next).collect::<Vec<_>>(), "in order");
        assert!(self.seen.values().all(|times| *times == 1), "{:?}", self.seen);
        stores
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
