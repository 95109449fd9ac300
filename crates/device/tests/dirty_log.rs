//! The log of written pages: a front-end that copies a guest's memory while the device serves its
//! queues, and compares at the end.
//!
//! How: what driver and device do is taken by turns from a seed (`RINGWAY_SEED=n` replays it). The
//! driver's stores are no business of the device: the copy gets them at once. Of the device's, the
//! copy gets only pages that are marked, at the moment at which the front-end takes their bits. In
//! each round, which ends with another log, every page that the device has changed is marked, at
//! most [`OTHERS_MAX`] more are, and the copy is the same as the memory. Without any single mark
//! that fails.
#![allow(clippy::cast_possible_truncation, reason = "small numbers that the tests choose")]

mod common;

use common::guest::{Guest, Round};
use common::serve::Served;
use ringway_testkit::Rng;
use ringway_virtq::{
    DeviceQueue, DriverQueue, LOG_PAGE_LEN, Mark, PackedDevice, PackedDriver, SplitDevice,
    SplitDriver, leave_out,
};

/// Pages that may be marked and are as they were.
const OTHERS_MAX: usize = 16;
/// Cases of each format.
const CASES: u64 = 24;
/// Rounds of a case, and steps of a round.
const ROUNDS: u32 = 6;
const STEPS: u32 = 60;

/// One case; `Err`: what is wrong with the log.
fn case<D: DriverQueue, V: DeviceQueue>(seed: u64) -> Result<(), String> {
    let mut served = Served::<D, V>::new(Rng::new(seed));
    for _ in 0..ROUNDS {
        served.begin_round();
        for _ in 0..STEPS {
            served.step();
        }
        let Round { changed, marked, is_same, has_started } = served.end_round();
        if let Some(page) = changed.difference(&marked).next() {
            return Err(format!("page {page:#x} has changed and is not marked"));
        }
        if !is_same {
            return Err("a page has changed after it was marked last".into());
        }
        let others = marked.difference(&changed).count();
        if others > OTHERS_MAX && !has_started {
            return Err(format!("{others} pages are marked and have not changed"));
        }
    }
    Ok(())
}

fn cases<D: DriverQueue, V: DeviceQueue>(rng: &mut Rng) -> Result<(), String> {
    (0..CASES).try_for_each(|_| case::<D, V>(rng.bits()))
}

#[test]
fn all_that_a_device_writes_is_marked() {
    let mut rng = Rng::from_environment("dirty log", 0xd1_47);
    cases::<SplitDriver, SplitDevice>(&mut rng).unwrap();
    cases::<PackedDriver, PackedDevice>(&mut rng).unwrap();
}

#[test]
fn a_mark_that_is_missing_is_noticed() {
    let common = [Mark::Buffers, Mark::Armed, Mark::Unused];
    let split = common.into_iter().chain([Mark::UsedEntries, Mark::UsedIndex]);
    for mark in split {
        leave_out(Some(mark));
        assert!(cases::<SplitDriver, SplitDevice>(&mut Rng::new(1)).is_err(), "split: {mark:?}");
    }
    for mark in common.into_iter().chain([Mark::Descriptors]) {
        leave_out(Some(mark));
        assert!(cases::<PackedDriver, PackedDevice>(&mut Rng::new(1)).is_err(), "packed: {mark:?}");
    }
    leave_out(None);
}

/// However many packets pass, a round marks what is posted and the ring.
#[test]
fn buffers_in_a_loop_are_marked_once_a_round() {
    fn most<D: DriverQueue, V: DeviceQueue>() -> usize {
        let mut served = Served::<D, V>::looping(256);
        let rounds = (0..3).map(|_| {
            served.begin_round();
            (0..10_000).for_each(|_| served.pass_one());
            served.end_round().marked.len()
        });
        rounds.max().unwrap()
    }
    for marked in [most::<SplitDriver, SplitDevice>(), most::<PackedDriver, PackedDevice>()] {
        assert!((256..=260).contains(&marked), "{marked} pages");
    }
}

/// How a front-end copies: bytes of memory, bytes a second, and for how long a guest may stand
/// still, where QEMU has 300 ms.
const MEMORY_LEN: f64 = (1 << 30) as f64;
const COPIED_PER_S: f64 = 1e9;
const DOWNTIME_S: f64 = 0.002;
/// Packets of 64 bytes a second to the guest.
const PACKETS_PER_S: f64 = 1e6;
/// No page is marked for the first time after so many packets, in buffers that are used in turn.
const PACKETS_MAX: f64 = 2000.0;
/// A migration in more rounds does not end.
const ROUNDS_MAX: u32 = 30;

/// In how many rounds all that is marked meanwhile is copied, until the rest is moved while the
/// guest stands still; `None`: never. Told is how many pages so many packets mark.
fn rounds_of_copying(mut pages_marked: impl FnMut(f64) -> f64) -> Option<u32> {
    let mut left = MEMORY_LEN;
    let needs_round = |left: f64| left / COPIED_PER_S > DOWNTIME_S;
    for round in 0..ROUNDS_MAX {
        if !needs_round(left) {
            return Some(round);
        }
        left = pages_marked(left / COPIED_PER_S * PACKETS_PER_S) * LOG_PAGE_LEN as f64;
    }
    None
}

/// A guest of 1 GiB that gets a million packets a second can be moved at 1 GB/s: the pages are
/// those that a real device marks for as many packets.
#[test]
fn a_migration_under_a_million_packets_a_second_ends() {
    fn rounds<D: DriverQueue, V: DeviceQueue>() -> Option<u32> {
        let mut served = Served::<D, V>::looping(256);
        rounds_of_copying(|packets| {
            served.begin_round();
            (0..packets.min(PACKETS_MAX) as u32).for_each(|_| served.pass_one());
            served.end_round().marked.len() as f64
        })
    }
    assert_eq!(rounds::<SplitDriver, SplitDevice>(), Some(1));
    assert_eq!(rounds::<PackedDriver, PackedDevice>(), Some(1));
    // With a page for each packet it would not.
    assert_eq!(rounds_of_copying(|packets| packets), None);
}

/// Nothing is marked beyond a log that is too short, nor beside it.
#[test]
fn no_bit_is_set_outside_the_log() {
    let mut guest = Guest::new(0x20);
    let (log, behind) = guest.short_log();
    guest.bind(log);
    let end = guest.memory.regions().slice(Guest::DATA_AT, 4096).unwrap();
    guest.regions().mark(end);
    assert!(guest.marks().is_empty(), "its page has no bit");
    let mut bytes = [0xff; 16];
    behind.read(0, &mut bytes);
    assert_eq!(bytes, [0; 16]);
    guest.regions().mark(guest.memory.regions().slice(Guest::RINGS_AT, 1).unwrap());
    assert_eq!(guest.marks().into_iter().collect::<Vec<_>>(), [Guest::RINGS_AT / 4096]);
}
