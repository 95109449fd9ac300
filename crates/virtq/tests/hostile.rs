//! A peer that writes anything, anywhere, at any time: no panic, no loop without end, no element
//! outside the regions.
//!
//! How: random bytes with a bias towards plausible values, because pure noise never gets past the
//! first check. A failing seed is printed; `RINGWAY_SEED=n` replays it (except the races).

mod common;

use std::sync::atomic::{AtomicBool, Ordering};

use common::{Memory, Rng, Seed};
use ringway_virtq::{
    AreaSizes, Areas, Arm, Broken, BufferId, DeviceQueue, DriverQueue, ELEMENTS_MAX, Elements,
    Format, Layout, PackedDevice, PackedDriver, Position, QueueOptions, QueueSetup, Region,
    Regions, SharedSlice, SplitDevice, SplitDriver, Why,
};

const ROUNDS: u32 = 6000;
const PEEKS_PER_ROUND: u32 = 24;
/// Guest-physical ranges with holes between them; rings and data are anywhere in them.
const RANGES: [(u64, u32); 3] = [(0x1000, 0x3000), (0x8000, 0x1000), (0x1_0000_0000, 0x2000)];
const MEMORY_LEN: usize = 0x6000;

fn regions(memory: SharedSlice) -> Regions {
    let mut offset = 0;
    let table = RANGES.map(|(guest_address, len)| {
        let memory = memory.slice(offset, len as usize).expect("inside");
        offset += len as usize;
        Region { guest_address, memory }
    });
    Regions::new(table.to_vec()).expect("apart")
}

fn random_address(rng: &mut Rng) -> u64 {
    let (start, len) = RANGES[rng.index(RANGES.len())];
    match rng.below(40) {
        0 => rng.next(),
        1 => u64::MAX - u64::from(rng.below(64)),
        2 => start + u64::from(len) - u64::from(rng.below(64)),
        3..20 => start + u64::from(rng.below(len)),
        _ => start + u64::from(rng.below(len / 16) * 16),
    }
}

fn random_len(rng: &mut Rng) -> u32 {
    match rng.below(60) {
        0 => 0,
        1 => u32::MAX - rng.below(64),
        2..30 => 16 * (1 + rng.below(4)),
        _ => 1 + rng.below(128),
    }
}

fn random_flags(rng: &mut Rng) -> u16 {
    const PLAUSIBLE: [u16; 16] = [0, 0, 0, 0, 0, 2, 2, 2, 2, 2, 1, 3, 4, 4, 4, 6];
    let wraps = [0, 1 << 7, 1 << 15, 1 << 7 | 1 << 15];
    match rng.below(20) {
        0 => rng.word(),
        _ => PLAUSIBLE[rng.index(PLAUSIBLE.len())] | wraps[rng.index(4)],
    }
}

/// Descriptors at every multiple of 16, in either format.
fn fill_with_descriptors(rng: &mut Rng, memory: SharedSlice, size: u16, format: Format) {
    for at in (0..memory.len()).step_by(16) {
        memory.store_u64(at, random_address(rng));
        memory.store_u32(at + 8, random_len(rng));
        let small = if rng.one_in(40) { rng.word() } else { rng.small(u32::from(size)) };
        let flags = random_flags(rng);
        let (third, fourth) =
            if format == Format::Split { (flags & 7, small) } else { (small, flags) };
        memory.store_u16(at + 12, third);
        memory.store_u16(at + 14, fourth);
    }
}

fn random_options(rng: &mut Rng) -> QueueOptions {
    QueueOptions {
        event_idx: rng.one_in(2),
        indirect: !rng.one_in(3),
        in_order: rng.one_in(2),
        notify_on_empty: rng.one_in(2),
    }
}

fn random_setup(rng: &mut Rng, format: Format) -> QueueSetup {
    let sizes: &[u16] =
        if format == Format::Split { &[1, 2, 4, 8, 64] } else { &[1, 2, 3, 5, 8, 61] };
    let size = if rng.one_in(30) { rng.word() } else { sizes[rng.index(sizes.len())] };
    let areas = match rng.below(20) {
        0 => Areas::new(random_address(rng), random_address(rng), random_address(rng)),
        _ => Areas::new(0x1000, 0x8000, 0x1_0000_0000),
    };
    let mut word = || match rng.below(4) {
        0 => rng.word(),
        1 => 0,
        _ => rng.small(u32::from(size.max(1))),
    };
    let (available, used) = (word(), word());
    let (available_wrap, used_wrap) = (rng.one_in(2), rng.one_in(2));
    let mut position = Position { available, used, available_wrap, used_wrap };
    if !rng.one_in(4) {
        (position.used, position.used_wrap) = (available, available_wrap);
    }
    QueueSetup { size, areas, position, options: random_options(rng) }
}

/// Writes nonsense into the words that a driver writes.
fn scribble(rng: &mut Rng, regions: &Regions, setup: &QueueSetup, available: u16, format: Format) {
    let size = setup.size;
    let sizes = AreaSizes::of(format, size);
    let Some(driver) = regions.slice(setup.areas.driver, sizes.driver) else { return };
    if !(driver.as_ptr() as usize).is_multiple_of(4) {
        return;
    }
    match format {
        Format::Split => {
            let ahead = if rng.one_in(30) { rng.word() } else { rng.small(u32::from(size) + 1) };
            driver.store_u16(0, rng.word());
            driver.store_u16(2, available.wrapping_add(ahead));
            for entry in 0..usize::from(size) {
                let head = if rng.one_in(40) { rng.word() } else { rng.small(u32::from(size)) };
                driver.store_u16(4 + 2 * entry, head);
            }
            driver.store_u16(4 + 2 * usize::from(size), rng.word());
        }
        Format::Packed => driver.store_u32(0, rng.below(u32::MAX)),
    }
}

/// Every byte of every element is inside the regions' host memory.
fn check_elements(elements: &Elements, memory: SharedSlice) {
    let all = || elements.readable().iter().chain(elements.writable());
    assert!(all().count() <= ELEMENTS_MAX);
    let start = memory.as_ptr() as usize;
    for element in all() {
        let at = element.as_ptr() as usize;
        assert!(at >= start && at + element.len() <= start + MEMORY_LEN, "outside memory");
        assert!(!element.is_empty());
    }
}

/// Counts and errors of one format, to see that the test reaches all of it.
#[derive(Default)]
struct Seen {
    buffers: u32,
    indirect_elements: u32,
    whys: Vec<Why>,
}

impl Seen {
    fn broken(&mut self, broken: Broken) {
        if !self.whys.contains(&broken.0) {
            self.whys.push(broken.0);
        }
    }
}

fn use_device<V: DeviceQueue>(
    rng: &mut Rng,
    setup: &QueueSetup,
    memory: SharedSlice,
    seen: &mut Seen,
) -> Result<(), Broken> {
    let regions = regions(memory);
    let mut elements = Elements::new();
    let mut device = V::start(setup, &regions)?;
    let mut at = device.cursor();
    for _ in 0..PEEKS_PER_ROUND {
        if rng.one_in(3) {
            let available = device.position().available;
            scribble(rng, &regions, setup, available, V::FORMAT);
        }
        if let Some(head) = device.peek(&mut at, &regions, &mut elements)? {
            seen.buffers += 1;
            let count = elements.readable().len() + elements.writable().len();
            seen.indirect_elements += u32::from(count > usize::from(head.descriptors));
            check_elements(&elements, memory);
            for element in elements.writable() {
                element.write(0, &[0xff]);
            }
            device.pop(head);
            device.add_used(head, rng.below(100));
        }
        if rng.one_in(3) {
            device.publish();
        }
        if rng.one_in(3) {
            device.must_call();
        }
        if rng.one_in(4) {
            device.arm_kicks([Arm::Never, Arm::Next, Arm::After(rng.word())][rng.index(3)]);
            device.arm_kicks_behind(at);
        }
        if rng.one_in(10) {
            device.rebind(&setup.areas, &regions)?;
            at = device.cursor();
        }
    }
    Ok(())
}

fn hostile_driver<V: DeviceQueue>(default_seed: u64) -> Seen {
    let mut seed = Seed::new(default_seed);
    let mut memory = Memory::new(MEMORY_LEN);
    let shared = memory.share();
    let mut seen = Seen::default();
    for round in 0..ROUNDS {
        seed.case = format!("{:?} round {round}", V::FORMAT);
        let rng = &mut Rng::new(seed.value + u64::from(round));
        let setup = random_setup(rng, V::FORMAT);
        fill_with_descriptors(rng, shared, setup.size.max(1), V::FORMAT);
        if V::FORMAT == Format::Packed && !rng.one_in(4) {
            make_available(rng, &setup, shared);
        }
        if let Err(broken) = use_device::<V>(rng, &setup, shared, &mut seen) {
            seen.broken(broken);
        }
    }
    let Seen { buffers, indirect_elements, .. } = seen;
    assert!(buffers > ROUNDS / 4 && indirect_elements > 10, "{buffers} {indirect_elements}");
    seen
}

/// Gives the descriptors from the available position on the right wrap flags.
fn make_available(rng: &mut Rng, setup: &QueueSetup, memory: SharedSlice) {
    if setup.size > 64 {
        return;
    }
    let (mut at, mut wrap) = (setup.position.available, setup.position.available_wrap);
    for _ in 0..rng.small(u32::from(setup.size) + 1) {
        at = if at >= setup.size { 0 } else { at };
        let offset = 16 * usize::from(at) + 14;
        let bits = if wrap { 1 << 7 } else { 1 << 15 };
        memory.store_u16(offset, memory.load_u16(offset) & 0x7f7f | bits);
        at += 1;
        if at == setup.size {
            wrap = !wrap;
        }
    }
}

const CHAIN_ERRORS: [Why; 7] = [
    Why::ChainTooLong,
    Why::ZeroLength,
    Why::OutsideMemory,
    Why::ReadableAfterWritable,
    Why::BadIndirect,
    Why::BadIndirectLength,
    Why::BadIndex,
];

#[test]
fn a_split_device_survives_any_driver() {
    let seen = hostile_driver::<SplitDevice>(0x5eed);
    for why in CHAIN_ERRORS.into_iter().chain([Why::BadArea, Why::IndexJump]) {
        assert!(seen.whys.contains(&why), "the test never reached {why:?}");
    }
}

#[test]
fn a_packed_device_survives_any_driver() {
    let seen = hostile_driver::<PackedDevice>(0xfeed);
    for why in CHAIN_ERRORS.into_iter().chain([Why::BadArea, Why::IndexJump]) {
        assert!(seen.whys.contains(&why), "the test never reached {why:?}");
    }
}

/// Ends the writing thread even if the test panics, so that a failure does not hang.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A thread writes descriptors and indexes while the device reads them.
fn racing_driver<V: DeviceQueue>() {
    let mut memory = Memory::new(MEMORY_LEN);
    let shared = memory.share();
    let stop = AtomicBool::new(false);
    let setup = QueueSetup {
        size: 8,
        areas: Areas::new(0x1000, 0x8000, 0x1_0000_0000),
        position: Position::FRESH,
        options: QueueOptions { indirect: true, event_idx: true, ..QueueOptions::default() },
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut rng = Rng::new(1);
            while !stop.load(Ordering::Relaxed) {
                // Mostly the ring itself.
                let near = if rng.one_in(4) { MEMORY_LEN / 16 } else { 8 };
                let at = 16 * rng.index(near);
                let piece = shared.slice(at, 16).expect("inside");
                fill_with_descriptors(&mut rng, piece, 8, V::FORMAT);
                scribble(&mut rng, &regions(shared), &setup, 0, V::FORMAT);
            }
        });
        let _stop = StopOnDrop(&stop);
        let mut rng = Rng::new(2);
        let mut seen = Seen::default();
        for _ in 0..ROUNDS {
            // The ring is filled here as well, so that buffers come however the threads run.
            fill_with_descriptors(&mut rng, shared.slice(0, 128).expect("inside"), 8, V::FORMAT);
            if V::FORMAT == Format::Packed {
                make_available(&mut rng, &setup, shared);
            }
            if let Err(broken) = use_device::<V>(&mut rng, &setup, shared, &mut seen) {
                seen.broken(broken);
            }
        }
        assert!(seen.buffers > ROUNDS / 10 && seen.whys.len() > 2, "{}", seen.buffers);
    });
}

#[test]
fn a_split_device_survives_a_racing_driver() {
    racing_driver::<SplitDevice>();
}

#[test]
fn a_packed_device_survives_a_racing_driver() {
    racing_driver::<PackedDevice>();
}

fn random_used_len(rng: &mut Rng) -> u32 {
    if rng.one_in(30) { random_len(rng) } else { 10 * rng.below(4) }
}

/// Writes nonsense into the words that a device writes.
fn scribble_used(rng: &mut Rng, ring: SharedSlice, layout: &Layout, size: u16, format: Format) {
    let device = ring.split_at(layout.device as usize).1;
    match format {
        Format::Split => {
            let index = device.load_u16(2);
            let ahead = if rng.one_in(50) { rng.word() } else { rng.small(4) };
            device.store_u16(2, index.wrapping_add(ahead));
            device.store_u16(0, rng.word());
            for entry in 0..usize::from(size) {
                let id = if rng.one_in(90) { rng.word() } else { rng.small(u32::from(size)) };
                device.store_u32(4 + 8 * entry, u32::from(id));
                device.store_u32(8 + 8 * entry, random_used_len(rng));
            }
            device.store_u16(4 + 8 * usize::from(size), rng.word());
        }
        Format::Packed => {
            device.store_u32(0, rng.below(u32::MAX));
            let at = 16 * rng.index(usize::from(size));
            ring.store_u32(at + 8, random_used_len(rng));
            let id = if rng.one_in(90) { rng.word() } else { rng.small(u32::from(size)) };
            ring.store_u16(at + 12, id);
            ring.store_u16(at + 14, random_flags(rng));
        }
    }
}

fn hostile_device<D: DriverQueue>(default_seed: u64) {
    let mut seed = Seed::new(default_seed);
    let (mut returned, mut whys) = (0u32, Vec::new());
    for round in 0..ROUNDS {
        seed.case = format!("{:?} round {round}", D::FORMAT);
        let rng = &mut Rng::new(seed.value + u64::from(round));
        let size = match D::FORMAT {
            Format::Split => [1, 2, 4, 8][rng.index(4)],
            Format::Packed => [1, 2, 3, 5, 7, 8][rng.index(6)],
        };
        let options = random_options(rng);
        let layout = Layout::of(D::FORMAT, size, options);
        let mut memory = Memory::new(layout.len as usize);
        let ring = memory.share();
        let mut driver = D::new(ring, Memory::BASE, size, options);
        let mut in_flight = vec![None; usize::from(size)];
        for _ in 0..40 {
            let id = rng.index(in_flight.len());
            if in_flight[id].is_none() {
                let elements = [(0x100, 10), (0x200, 20), (0x300, 30)];
                let (readable, writable) = elements.split_at(rng.index(4));
                let sum: u32 = writable.iter().map(|&(_, len)| len).sum();
                let added =
                    driver.add(readable, writable, BufferId(u16::try_from(id).expect("small")));
                in_flight[id] = added.ok().map(|()| sum);
            }
            if rng.one_in(2) {
                driver.publish();
                driver.must_kick();
            }
            scribble_used(rng, ring, &layout, size, D::FORMAT);
            driver.arm_calls([Arm::Never, Arm::Next, Arm::After(rng.word())][rng.index(3)]);
            for _ in 0..=size {
                match driver.pop_used() {
                    Ok(None) => break,
                    Ok(Some(used)) => {
                        let room = in_flight[usize::from(used.id.0)].take();
                        assert!(used.len <= room.expect("was in flight"));
                        returned += 1;
                    }
                    Err(Broken(why)) if whys.contains(&why) => break,
                    Err(Broken(why)) => whys.push(why),
                }
            }
            assert!(driver.free() <= size);
            let left = in_flight.iter().filter(|left| left.is_some()).count();
            assert!(usize::from(size - driver.free()) >= left, "descriptors are conserved");
        }
    }
    assert!(returned > ROUNDS / 4, "{returned}");
    for why in [Why::BadIndex, Why::NotInFlight, Why::UsedTooLong] {
        assert!(whys.contains(&why), "the test never reached {why:?}");
    }
}

#[test]
fn a_split_driver_survives_any_device() {
    hostile_device::<SplitDriver>(0xabc);
}

#[test]
fn a_packed_driver_survives_any_device() {
    hostile_device::<PackedDriver>(0xdef);
}
