//! Records that say anything: a device continues inside its ring, or not at all.
//!
//! How: rings and records of random and of nearly right content (`RINGWAY_SEED=n` replays them).
#![cfg(not(loom))]

mod common;

use common::{Memory, Rng, Seed};
use ringway_virtq::{
    AreaSizes, Areas, Broken, DeviceQueue, Elements, Format, PackedDevice, Position, QueueOptions,
    QueueSetup, RingRecord, SplitDevice, Why,
};

const CASES: usize = 60_000;
const SIZES: [u16; 4] = [1, 2, 8, 256];
/// Where the parts of a ring and its record are, from the start of the memory.
const PARTS: [u64; 4] = [0, 0x2000, 0x3000, 0x4000];
const MEMORY_LEN: usize = 0x6000;

fn random_word(rng: &mut Rng, size: u16) -> u64 {
    let near = |rng: &mut Rng| u64::from(rng.below(2 * u32::from(size) + 2));
    match rng.below(4) {
        0 => rng.next(),
        // A place, and a number of entries.
        1 => {
            let flags = [0x80u64, 0x8000, 0x8080, 0][rng.index(4)];
            flags << 16 | near(rng) | near(rng) << 32
        }
        // Two indexes.
        2 => near(rng) | near(rng) << 32,
        _ => near(rng),
    }
}

fn any_record<V: DeviceQueue>(options: QueueOptions) {
    let mut seed = Seed::new(0xbad);
    seed.case = format!("{:?}", V::FORMAT);
    let mut rng = Rng::new(seed.value);
    let (mut recovered, mut refused) = (0u32, 0u32);
    let mut memory = Memory::new(MEMORY_LEN);
    let (regions, shared) = (memory.regions(), memory.share());
    let [descriptor, driver, device, record_at] = PARTS;
    let place = |at: u64| Memory::BASE + at;
    let areas = Areas::new(place(descriptor), place(driver), place(device));
    for _ in 0..CASES {
        let size = SIZES[rng.index(SIZES.len())];
        let sizes = AreaSizes::of(V::FORMAT, size);
        let parts =
            [(descriptor, sizes.descriptor), (driver, sizes.driver), (device, sizes.device)];
        for (at, len) in parts {
            for at in (at..at + u64::from(len) - 1).step_by(2) {
                let word = if rng.one_in(2) { rng.word() } else { rng.small(u32::from(size) + 1) };
                shared.store_u16(usize::try_from(at).unwrap(), word);
            }
        }
        let record_at = usize::try_from(record_at).unwrap();
        let word = shared.slice(record_at, RingRecord::WORD_LEN).unwrap();
        let entries_len = RingRecord::entries_len(V::FORMAT, size);
        let entries = shared.slice(record_at + 8, entries_len).unwrap();
        word.store_u64(0, random_word(&mut rng, size));
        for at in (0..entries_len).step_by(8) {
            // An entry's first word, or how many descriptors it is.
            let right = match at % 16 {
                0 => u64::from(rng.small(u32::from(size))) << 32 | u64::from(rng.small(2)) << 49,
                _ => (u64::from(rng.small(3)) + 1) | u64::from(rng.small(2)) << 16,
            };
            entries.store_u64(at, if rng.one_in(50) { rng.next() } else { right });
        }
        let setup = QueueSetup { size, areas, position: Position::FRESH, options };
        match V::recover(&setup, &regions, RingRecord::at(word, entries)) {
            Err(Broken(why)) => {
                assert!(matches!(why, Why::BadRecord | Why::OtherRing), "{why}");
                refused += 1;
            }
            Ok(mut queue) => {
                recovered += 1;
                let Position { available, used, .. } = queue.position();
                let is_inside = available < size && used < size;
                assert!(V::FORMAT == Format::Split || is_inside, "{available} {used} of {size}");
                let (mut at, mut elements) = (queue.cursor(), Elements::new());
                if let Ok(Some(head)) = queue.peek(&mut at, &regions, &mut elements) {
                    queue.pop(head);
                    queue.add_used(head, 0);
                    queue.keep();
                }
                queue.publish();
            }
        }
    }
    println!("{:?}: {recovered} recovered, {refused} refused", V::FORMAT);
    assert!(recovered > 300 && refused > 300, "{recovered} recovered, {refused} refused");
}

#[test]
fn any_record_of_a_split_ring() {
    any_record::<SplitDevice>(QueueOptions::default());
}

#[test]
fn any_record_of_a_packed_ring() {
    any_record::<PackedDevice>(QueueOptions { in_order: true, ..QueueOptions::default() });
}
