//! What a front-end or a guest can make the worker do at most.

use ringway_virtq::{Areas, Broken, Why};

use ringway_net::{NEEDS_CSUM, NetHeader};

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

/// The receiver here accepts no partial checksums, so the worker itself writes them.
#[test]
fn a_checksum_does_not_change_what_was_judged() {
    let mut bench = Bench::new(3);
    bench.introduce();
    bench.set(0, PortPolicy { locked_mac: Some(mac(0)), ..PortPolicy::default() });
    let mut tcp = frame(mac(1), mac(0), 0);
    tcp[12..24].copy_from_slice(&[8, 0, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6]);
    // Into the addresses, into the EtherType; and the one right place.
    for (csum_start, csum_offset, passes) in [(0, 6, 0), (10, 2, 0), (34, 16, 1)] {
        let header =
            NetHeader { flags: NEEDS_CSUM, csum_start, csum_offset, ..NetHeader::default() };
        for id in 0..u64::from(QUEUE_SIZE) {
            let at = usize::try_from(SEND_AT + id * SEND_LEN).unwrap();
            bench.guests[0].memory.write(at, &header.encode());
        }
        bench.guests[1].received.clear();
        bench.send(0, &tcp, 1);
        bench.settle();
        assert_eq!(bench.guests[1].received.len(), passes, "{header:?}");
    }
}
