//! Mapping and unmapping for a long time leaves nothing behind. Alone in its process, because it
//! counts what the process has.

mod common;

use common::{memory_file, request};
use ringway_host::GuestMemory;

fn counts() -> (usize, usize) {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("maps");
    let maps = maps.lines().filter(|line| line.contains("memfd:guest")).count();
    let fds = std::fs::read_dir("/proc/self/fd").expect("fds").count();
    (maps, fds)
}

#[test]
fn ten_thousand_tables_leave_no_mapping_and_no_fd_behind() {
    let file = memory_file(3 << 12);
    let before = counts();
    assert_eq!(before.0, 0);
    for round in 0..10_000u64 {
        let table = vec![request(&file, 0, 0x1000, 0), request(&file, 0x1000, 0x1001, 0xfff)];
        let memory = GuestMemory::map(table).expect("a good table");
        let more = memory.with(request(&file, 1 << 30, 0x1000, 0)).expect("a good region");
        assert!(memory.with(request(&file, 0, 0x1000, 0)).is_err(), "an overlap");
        assert!(memory.with(request(&file, 1 << 30, 1 << 30, 0)).is_err(), "a short file");
        drop(memory);
        let less = more.without(0, 0x1000);
        if round % 1000 == 0 {
            assert_eq!(counts(), (3, before.1), "the fds are closed as soon as mapped");
        }
        drop(more);
        if round % 1000 == 0 {
            assert_eq!(counts(), (2, before.1));
        }
        less.regions().slice(0x1000, 1).expect("mapped").write(0, &[1]);
    }
    assert_eq!(counts(), before);
}
