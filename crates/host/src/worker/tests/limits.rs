//! What a front-end or a guest can make the worker do at most.

use ringway_virtq::{Areas, Broken, Why};

use super::*;

/// Memory of its own, somewhere else.
fn memory_at(base: u64) -> GuestMemory {
    let fd = rustix::fs::memfd_create("moved", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&fd, MEMORY_LEN).unwrap();
    let request = MemoryRequest { guest_address: base, size: MEMORY_LEN, mmap_offset: 0, fd };
    GuestMemory::map(vec![request]).unwrap()
}

#[test]
fn memory_that_moves_takes_its_rings_along() {
    let mut bench = Bench::new(1);
    let by = 4 * MEMORY_LEN;
    let shifted = |areas: Areas| Areas {
        descriptor: areas.descriptor + by,
        driver: areas.driver + by,
        device: areas.device + by,
    };
    let queues = [Queue::ToGuest, Queue::FromGuest].map(|queue| QueueId { pair: 0, queue });
    let moved: Vec<(QueueId, Areas)> = queues
        .into_iter()
        .zip(bench.guests[0].queues.each_ref().map(|q| shifted(q.areas())))
        .collect();
    let worker = &mut bench.worker;
    assert_eq!(worker.set_memory(PortId(0), memory_at(BASE + by), &moved), Ok(()));
    // Rings that are nowhere are left alone until there is memory again in which they are.
    let nowhere = Err(Broken(Why::BadArea));
    assert_eq!(worker.set_memory(PortId(0), GuestMemory::empty(), &[]), nowhere);
    assert_eq!(worker.set_memory(PortId(0), memory_at(BASE), &[]), nowhere);
    assert_eq!(worker.set_memory(PortId(0), memory_at(BASE + by), &[]), Ok(()));
}
