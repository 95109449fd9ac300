//! Guest memory: what a front-end may not do, and what happens when it takes memory away.

mod common;

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use common::{memory_file, request};
use ringway_host::{GuestMemory, LogRequest, MemoryError, install_bus_guard};
use ringway_virtq::REGIONS_MAX;

const PAGE: u64 = 4096;

#[test]
fn regions_show_the_bytes_of_their_files() {
    let file = memory_file(4 * PAGE);
    rustix::io::pwrite(&file, b"first", 0).expect("pwrite");
    rustix::io::pwrite(&file, b"odd", 2 * PAGE + 3).expect("pwrite");
    let memory = GuestMemory::map(vec![
        request(&file, 0x10_0000, PAGE, 0),
        request(&file, 0x1000, PAGE, 2 * PAGE + 3),
    ]);
    let memory = memory.expect("two good regions");
    let regions = memory.regions();
    let read = |address, len: u32| {
        let slice = regions.slice(address, len).expect("inside");
        common::gathered(&[slice])
    };
    assert_eq!(read(0x10_0000, 5), b"first");
    assert_eq!(read(0x1000, 3), b"odd", "the offset need not be page aligned");
    regions.slice(0x1000 + PAGE - 4, 4).expect("the end").write(0, b"last");
    let mut last = [0; 4];
    rustix::io::pread(&file, &mut last, 3 * PAGE + 3 - 4).expect("pread");
    assert_eq!(&last, b"last", "what we write is in the file");
    assert!(regions.slice(0x1000 + PAGE - 4, 5).is_none());
    assert!(!memory.torn());
}

#[test]
fn bad_regions_are_refused_by_name() {
    let file = memory_file(2 * PAGE);
    let refusal = |guest_address, size, offset| {
        let memory = GuestMemory::map(vec![request(&file, guest_address, size, offset)]);
        memory.expect_err("a bad region")
    };
    assert!(matches!(refusal(0x1000, 0, 0), MemoryError::Empty { guest_address: 0x1000 }));
    assert!(matches!(refusal(0, PAGE, u64::MAX), MemoryError::Overflow { .. }));
    assert!(matches!(refusal(0, u64::MAX, 1), MemoryError::Overflow { .. }));
    assert!(matches!(refusal(u64::MAX, PAGE, 0), MemoryError::Overflow { .. }));
    let short = refusal(0x1000, PAGE + 1, PAGE);
    assert_eq!(
        short.to_string(),
        "memory region at 0x1000: its file has 0x2000 bytes, it needs 0x2001"
    );
    assert!(GuestMemory::map(vec![request(&file, 0, PAGE, PAGE)]).is_ok(), "just long enough");
}

#[test]
fn a_file_that_cannot_be_mapped_is_an_error() {
    let (read_end, _write_end) = rustix::pipe::pipe().expect("pipe");
    let refusal = GuestMemory::map(vec![request(&read_end, 0, PAGE, 0)]).expect_err("a pipe");
    assert!(matches!(refusal, MemoryError::Served { guest_address: 0 }), "{refusal}");
    let sealed = rustix::fs::memfd_create("sealed", rustix::fs::MemfdFlags::ALLOW_SEALING);
    let sealed = sealed.expect("memfd");
    rustix::fs::ftruncate(&sealed, PAGE).expect("ftruncate");
    rustix::fs::fcntl_add_seals(&sealed, rustix::fs::SealFlags::WRITE).expect("seal");
    let refusal = GuestMemory::map(vec![request(&sealed, 0, PAGE, 0)]).expect_err("read-only");
    assert!(matches!(refusal, MemoryError::Map { .. }), "{refusal}");
}

#[test]
fn tables_have_a_limit_and_no_overlaps() {
    let file = memory_file(PAGE);
    let table = |count: u64| (0..count).map(|at| request(&file, at * PAGE, PAGE, 0)).collect();
    let full = GuestMemory::map(table(REGIONS_MAX as u64)).expect("a full table");
    assert_eq!(full.len(), REGIONS_MAX);
    let one_more = request(&file, 1 << 40, PAGE, 0);
    assert!(matches!(full.with(one_more), Err(MemoryError::TooMany(510))));
    let too_many = GuestMemory::map(table(REGIONS_MAX as u64 + 1));
    assert!(matches!(too_many, Err(MemoryError::TooMany(510))));
    let overlapping = vec![request(&file, 0, PAGE, 0), request(&file, PAGE - 1, PAGE, 0)];
    assert!(matches!(GuestMemory::map(overlapping), Err(MemoryError::Overlap)));
}

#[test]
fn tables_are_values() {
    let file = memory_file(2 * PAGE);
    let one = GuestMemory::empty().with(request(&file, 0, PAGE, 0)).expect("the first");
    let two = one.with(request(&file, PAGE, PAGE, PAGE)).expect("the second");
    assert!(matches!(two.with(request(&file, 1, 1, 0)), Err(MemoryError::Overlap)));
    assert_eq!((one.len(), two.len()), (1, 2));
    assert_eq!(two.without(0, PAGE - 1).len(), 2, "no region of that size");
    let other = two.without(0, PAGE);
    drop((one, two));
    let regions = other.regions();
    assert!(regions.slice(0, 1).is_none());
    regions.slice(PAGE, 1).expect("still mapped").write(0, b"x");
    assert!(other.without(PAGE, PAGE).is_empty());
}

#[test]
fn memory_that_a_front_end_takes_away_reads_as_zeroes_and_is_torn() {
    install_bus_guard().expect("handler");
    let file = memory_file(8 * PAGE);
    rustix::io::pwrite(&file, &[0xaa; 32], 5 * PAGE).expect("pwrite");
    let memory = GuestMemory::map(vec![request(&file, 0, 8 * PAGE, 0)]).expect("a good region");
    let kept = memory_file(PAGE);
    let memory = memory.with(request(&kept, 1 << 20, PAGE, 0)).expect("another");
    let regions = memory.regions();
    let slice = regions.slice(5 * PAGE, 32).expect("inside");
    assert_eq!(common::gathered(&[slice]), [0xaa; 32]);
    rustix::fs::ftruncate(&file, 0).expect("ftruncate");
    assert!(!memory.torn(), "it was not touched");
    assert_eq!(common::gathered(&[slice]), [0; 32]);
    assert!(memory.torn());
    slice.write(0, b"lost");
    assert_eq!(slice.load_u16(0), u16::from_le_bytes(*b"lo"));
    let rest = memory.without(0, 8 * PAGE);
    assert!(!rest.torn(), "the other region is whole");
    drop((memory, rest));
    let fresh = GuestMemory::map(vec![request(&kept, 0, PAGE, 0)]).expect("a good region");
    assert!(!fresh.torn(), "what the table says of an earlier mapping does not count");
}

/// A log of so many bytes of a file.
fn log_of(file: &impl AsFd, size: u64, offset: u64) -> LogRequest {
    let fd = file.as_fd().try_clone_to_owned().expect("an fd");
    LogRequest { size, offset, fd: fd.into() }
}

#[test]
fn pages_are_marked_in_the_log_that_came_last() {
    let (file, log, next) = (memory_file(16 * PAGE), memory_file(PAGE), memory_file(2 * PAGE));
    let memory = GuestMemory::map(vec![request(&file, 0, 16 * PAGE, 0)]).expect("good");
    let byte = |file: &OwnedFd, at| {
        let mut byte = [0];
        rustix::io::pread(file, &mut byte, at).expect("pread");
        byte[0]
    };
    let mark = |memory: &GuestMemory, page| {
        let regions = memory.regions();
        regions.mark(regions.slice(page * PAGE, 4).expect("inside"));
    };
    // As short as it can be, not at a page.
    let logged = memory.with_log(log_of(&log, 2, 33)).expect("a log");
    mark(&logged, 9);
    mark(&memory, 1);
    assert_eq!([32, 33, 34, 35].map(|at| byte(&log, at)), [0, 0, 2, 0]);
    // Other memory has the same log, another log takes its place.
    let more = logged.with(request(&file, 1 << 20, PAGE, 0)).expect("more");
    mark(&more, 8);
    assert_eq!(byte(&log, 34), 3);
    let again = more.with_log(log_of(&next, 2 * PAGE, 0)).expect("another");
    drop((logged, more));
    mark(&again, 15);
    mark(&again.without_log(), 0);
    assert_eq!((byte(&log, 34), byte(&next, 0), byte(&next, 1)), (3, 0, 0x80));
}

#[test]
fn bad_logs_are_refused_by_name_and_the_one_before_stays() {
    let (file, log) = (memory_file(PAGE), memory_file(PAGE));
    let memory = GuestMemory::map(vec![request(&file, 0, PAGE, 0)]).expect("good");
    let memory = memory.with_log(log_of(&log, 8, 0)).expect("a log");
    let refusal = |request| memory.with_log(request).expect_err("no log");
    assert!(matches!(refusal(log_of(&log, 0, 0)), MemoryError::Empty { .. }));
    assert!(matches!(refusal(log_of(&log, PAGE + 1, 0)), MemoryError::ShortFile { .. }));
    assert!(matches!(refusal(log_of(&log, PAGE, 1)), MemoryError::ShortFile { .. }));
    assert!(matches!(refusal(log_of(&log, PAGE, u64::MAX)), MemoryError::Overflow { .. }));
    let (read_end, _write_end) = rustix::pipe::pipe().expect("pipe");
    assert!(matches!(refusal(log_of(&read_end, PAGE, 0)), MemoryError::Served { .. }));
    let device = std::fs::File::open("/dev/zero").expect("a device");
    assert!(matches!(refusal(log_of(&device, PAGE, 0)), MemoryError::Served { .. }));
    let reads = std::fs::File::open("/proc/self/exe").expect("this program");
    assert!(matches!(refusal(log_of(&reads, PAGE, 0)), MemoryError::Map { .. }));
    let regions = memory.regions();
    regions.mark(regions.slice(0, 1).expect("inside"));
    let mut byte = [0];
    rustix::io::pread(&log, &mut byte, 0).expect("pread");
    assert_eq!(byte, [1]);
}

#[test]
fn a_log_that_a_front_end_takes_away_is_torn_memory() {
    install_bus_guard().expect("handler");
    let (file, log) = (memory_file(PAGE), memory_file(PAGE));
    let memory = GuestMemory::map(vec![request(&file, 0, PAGE, 0)]).expect("good");
    let memory = memory.with_log(log_of(&log, PAGE, 0)).expect("a log");
    rustix::fs::ftruncate(&log, 0).expect("ftruncate");
    assert!(!memory.torn(), "it was not touched");
    let regions = memory.regions();
    regions.mark(regions.slice(0, 1).expect("inside"));
    assert!(memory.torn());
    assert!(!memory.without_log().torn());
}

#[test]
fn many_threads_may_fault_in_the_same_mapping_at_once() {
    install_bus_guard().expect("handler");
    for _ in 0..20 {
        let file = memory_file(64 * PAGE);
        let memory = GuestMemory::map(vec![request(&file, 0, 64 * PAGE, 0)]).expect("good");
        rustix::fs::ftruncate(&file, 0).expect("ftruncate");
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let memory = memory.clone();
                scope.spawn(move || {
                    let regions = memory.regions();
                    for page in 0..64 {
                        let page = (page + thread * 16) % 64;
                        regions.slice(page * PAGE, 4).expect("inside").write(0, b"text");
                    }
                });
            }
        });
        assert!(memory.torn());
    }
}

/// Set in the process that is to end by SIGBUS.
const VICTIM: &str = "RINGWAY_BUS_VICTIM";

#[test]
fn a_bus_error_that_is_not_the_front_ends_still_ends_the_process() {
    let Ok(kind) = std::env::var(VICTIM) else {
        for kind in ["access", "kill"] {
            let program = std::env::current_exe().expect("this program");
            let name = "a_bus_error_that_is_not_the_front_ends_still_ends_the_process";
            let mut child = Command::new(program);
            let ended = child.args(["--exact", name]).env(VICTIM, kind).output().expect("child");
            assert_eq!(ended.status.signal(), Some(libc::SIGBUS), "{kind}: {ended:?}");
        }
        return;
    };
    install_bus_guard().expect("handler");
    if kind == "kill" {
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::BUS)
            .expect("kill");
        // The signal may go to another thread; either way the process ends.
        std::thread::sleep(common::HANG_TIMEOUT);
        return;
    }
    let file = memory_file(PAGE);
    let flags = rustix::mm::MapFlags::SHARED;
    let protection = rustix::mm::ProtFlags::READ;
    // SAFETY: a new mapping, which no other code uses; the read ends this process.
    unsafe {
        let mapped = rustix::mm::mmap(std::ptr::null_mut(), 4096, protection, flags, &file, 0);
        let mapped = mapped.expect("mmap").cast::<u8>();
        rustix::fs::ftruncate(&file, 0).expect("ftruncate");
        std::hint::black_box(mapped.read_volatile());
    }
}
