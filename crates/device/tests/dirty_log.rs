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
    DeviceQueue, DriverQueue, Mark, PackedDevice, PackedDriver, SplitDevice, SplitDriver, leave_out,
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
