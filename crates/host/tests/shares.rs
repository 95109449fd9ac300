//! The room that greedy guests leave to others. In a process of its own: tests of others need
//! regions, too.

mod common;

use common::{memory_file, request};
use ringway_host::{GuestMemory, LogRequest, MemoryError};
use ringway_virtq::REGIONS_MAX;

const PAGE: u64 = 4096;

#[test]
fn files_that_claim_to_be_endless_leave_addresses_to_others() {
    const TIB: u64 = 1 << 40;
    let file = memory_file(256 * TIB);
    let map = |tib: u64| GuestMemory::map(vec![request(&file, 0, tib * TIB, 0)]);
    assert!(map(17).is_err());
    let in_two = [0, 8 * TIB].map(|at| request(&file, at, 8 * TIB, 0)).into();
    let in_two = GuestMemory::map(in_two).expect("just short enough");
    assert!(matches!(in_two.with(request(&file, 64 * TIB, PAGE, 0)), Err(MemoryError::TooLong(_))));
    // A greedy guest leaves enough to others.
    let second = map(7).expect("less than is left");
    let refusal = map(7).expect_err("more than it leaves");
    assert!(matches!(refusal, MemoryError::NoAddresses { .. }), "{refusal}");
    drop(second);
    assert!(map(7).is_ok(), "they are given back");
}

#[test]
fn greedy_guests_leave_regions_to_others() {
    let file = memory_file(PAGE);
    let table = |count: u64| (0..count).map(|at| request(&file, at * PAGE, PAGE, 0)).collect();
    let full = || GuestMemory::map(table(REGIONS_MAX as u64));
    let greedy: Vec<GuestMemory> = std::iter::from_fn(|| full().ok()).take(30).collect();
    assert!((9..30).contains(&greedy.len()), "{} full tables", greedy.len());
    assert!(matches!(full(), Err(MemoryError::NoGuard)));
    // An honest guest, and later it gets more memory, and is migrated.
    let memory = GuestMemory::map(table(8)).expect("its reserve");
    let more = memory.with(request(&file, 1 << 40, PAGE, 0)).expect("its reserve");
    let replaced = more.replaced_by(table(9)).expect("while the old one is still there");
    assert_eq!(replaced.len(), 9);
    let fd = file.try_clone().expect("an fd").into();
    let logged = replaced.with_log(LogRequest { size: PAGE, offset: 0, fd });
    assert!(logged.is_ok(), "its reserve");
    drop(greedy);
    full().expect("it is given back");
}
