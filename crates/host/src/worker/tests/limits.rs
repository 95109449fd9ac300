//! The most work that a front-end or a guest can make the worker do.

use std::thread::sleep;

use ringway_net::{NEEDS_CSUM, NetHeader};
use ringway_switch::RateLimit;
use ringway_virtq::{Areas, Broken, Why};

use super::*;
use crate::memory::ring_words::{Entry, SegmentsDone};
use crate::peers::ring::HandedOver;
use crate::port::Carrier;
use crate::port::hold_credit::{HOLD_MAX_NS, Taken};
use crate::worker::announce::AnnounceTo;
use crate::worker::holds::Hold;
use crate::{KickFd, NotifyFd};

const POLL_PAUSE: Duration = Duration::from_millis(1);

/// Memory of its own, somewhere else.
fn memory_at(base: u64) -> GuestMemory {
    let fd = rustix::fs::memfd_create("moved", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&fd, MEMORY_LEN).unwrap();
    let request =
        MemoryRequest { guest_address: base, size: MEMORY_LEN, mmap_offset: 0, fd: fd.into() };
    GuestMemory::map(vec![request]).unwrap()
}

#[test]
fn memory_that_moves_takes_its_rings_along() {
    let mut bench = Bench::new(1);
    let by = 4 * MEMORY_LEN;
    let shifted =
        |areas: Areas| Areas::new(areas.descriptor + by, areas.driver + by, areas.device + by);
    let queues = [Queue::ToGuest, Queue::FromGuest].map(|queue| QueueId { pair: 0, queue });
    let moved: Vec<(QueueId, Areas)> = queues
        .into_iter()
        .zip(bench.guests[0].queues.each_ref().map(|q| shifted(q.areas())))
        .collect();
    let worker = &mut bench.worker;
    assert_eq!(worker.set_memory_at(PortId(0), memory_at(BASE + by), &moved), Ok(()));
    // Rings that are nowhere are left alone until there is memory again in which they are.
    let nowhere = Err(Broken(Why::BadArea));
    assert_eq!(worker.set_memory_at(PortId(0), GuestMemory::empty(), &[]), nowhere);
    assert_eq!(worker.set_memory_at(PortId(0), memory_at(BASE), &[]), nowhere);
    assert_eq!(worker.set_memory_at(PortId(0), memory_at(BASE + by), &[]), Ok(()));
}

/// A kick overtakes the message that adds the memory: it goes through one process more.
#[test]
fn a_queue_whose_guest_uses_memory_that_is_being_added_goes_on_with_it() {
    let mut bench = Bench::new(2);
    bench.introduce();
    let added = BASE + MEMORY_LEN;
    let len = u32::try_from(HEADER_LEN + 60).unwrap();
    let guest = &mut bench.guests[0];
    while guest.queues[1].pop_used().unwrap().is_some() {}
    guest.queues[1].add(&[(added, len)], &[], BufferId(0)).unwrap();
    guest.queues[1].publish();
    bench.worker.on_kick(PortId(0), Queue::FromGuest);
    bench.settle();
    assert_eq!(bench.guests[1].received, [[0u8; 0]; 0]);
    let fd = rustix::fs::memfd_create("added", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&fd, MEMORY_LEN).unwrap();
    let text = [&[0; HEADER_LEN][..], &frame(mac(1), mac(0), 5)].concat();
    rustix::io::pwrite(&fd, &text, 0).unwrap();
    let request =
        MemoryRequest { guest_address: added, size: MEMORY_LEN, mmap_offset: 0, fd: fd.into() };
    let memory = bench.worker.ports.guest(PortId(0)).unwrap().memory.with(request).unwrap();
    assert_eq!(bench.worker.set_memory_at(PortId(0), memory, &[]), Ok(()));
    bench.settle();
    assert_eq!(bench.guests[1].received, [frame(mac(1), mac(0), 5)]);
    let broken_and_mended =
        bench.other_ends.1.try_iter().filter(|event| {
            matches!(event, WorkerEvent::Broken { .. } | WorkerEvent::GoesOn { .. })
        });
    assert_eq!(broken_and_mended.count(), 2);
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

#[test]
fn a_receiver_that_has_kept_others_waiting_does_not_get_another_wait() {
    let mut bench = Bench::new(3);
    bench.introduce();
    let start = now();
    let port = &mut bench.worker.ports.slots[1];
    // As if it had just let a whole wait go by.
    let taken = Taken { packets: u64::MAX, bytes: u64::MAX };
    port.room.credit.wait(Nanos(start.0 - HOLD_MAX_NS), taken);
    port.room.credit.end(start);
    for _ in 0..2 {
        bench.send(0, &frame(mac(1), mac(0), 1), usize::from(QUEUE_SIZE));
        while let Some(port) = bench.worker.schedule.ready.pop_front() {
            bench.worker.visit(port);
        }
    }
    let until = bench.worker.schedule.holds.of(PortId(0)).unwrap().until.unwrap();
    assert!(until < now().plus(HOLD_MAX_NS / 2));
}

#[test]
fn a_wait_without_end_ends_with_the_cable() {
    let mut bench = Bench::new(2);
    let hold = Hold { to: Some(RoomAt::Slot(PortId(1))), until: None };
    bench.worker.schedule.holds.add(PortId(0), hold);
    bench.worker.snoop_multicast(true);
    assert!(bench.worker.schedule.holds.is_empty());
    assert_eq!(bench.worker.schedule.ready.front(), Some(&PortId(0)));
}

/// A receiver without buffers is charged for as long as a packet waits for it, and no longer.
#[test]
fn a_receiver_is_not_charged_when_the_packet_that_waited_is_gone() {
    type Ending = fn(&mut Worker);
    let ends: [(&str, Ending); 5] = [
        ("its guest is gone", |worker| worker.detach(PortId(0))),
        ("its port is removed", |worker| worker.remove_port(PortId(0))),
        ("its port has another policy", |worker| {
            worker.set_policy(PortId(0), PortPolicy::default()).unwrap();
        }),
        ("its receiver has room", |worker| worker.on_kick(PortId(1), Queue::ToGuest)),
        ("its time is over", |worker| {
            sleep(Duration::from_nanos(HOLD_MAX_NS));
            end_expired_holds(worker);
        }),
    ];
    for (why, end) in ends {
        let mut bench = Bench::new(3);
        bench.introduce();
        for _ in 0..2 {
            bench.send(0, &frame(mac(1), mac(0), 1), usize::from(QUEUE_SIZE));
            while let Some(port) = bench.worker.schedule.ready.pop_front() {
                bench.worker.visit(port);
            }
        }
        assert!(bench.worker.schedule.holds.of(PortId(0)).is_some(), "one packet waits for room");
        assert!(bench.worker.ports.slots[1].room.credit.is_waiting());
        end(&mut bench.worker);
        assert!(!bench.worker.ports.slots[1].room.credit.is_waiting(), "{why}");
    }
}

#[test]
fn what_was_handed_over_for_a_port_that_is_gone_reaches_no_other() {
    let mut bench = Bench::new(2);
    bench.worker.remove_port(PortId(1));
    bench.guests[1] = Guest::attach(&mut bench.worker, 1);
    bench.guests[1].post_all();
    let payload = [bench.guests[0].memory.slice(0, 60).unwrap()];
    for generation in [0, 1] {
        let header = NetHeader::default();
        let entry = Entry { from: 0, port: 1, pair: 0, generation, header, len: 60, at: 0 };
        let segments_done = SegmentsDone(bench.guests[0].memory.slice(64, 8).unwrap());
        let handed = HandedOver { entry, payload, segments_done };
        let Worker { ports, schedule, buffers, .. } = &mut bench.worker;
        let completion = &mut buffers.completion;
        let (observers, journal) = (None, None);
        let mut arrivals = Arrivals { ports, schedule, completion, observers, journal, work: 0 };
        assert!(!arrivals.deliver(&handed));
        let flush = crate::pace::Flush::at_end();
        let note = crate::journal::worker_line::VisitNote::of(None, None);
        schedule.flush_dirty(crate::forward::VisitEnd::Idle, flush, ports, note);
        assert_eq!(bench.guests[1].receive(), usize::from(generation));
    }
}

#[test]
fn a_worker_does_its_jobs_in_order_until_it_is_stopped() {
    let mut bench = Bench::new(0);
    let (done, answers) = mpsc::channel();
    let job = |number| {
        let done = done.clone();
        Job::new(move |_| done.send(number).unwrap())
    };
    for job in [job(1), job(2), Job::Stop, job(3)] {
        bench.other_ends.0.send(job).unwrap();
    }
    assert!(!bench.worker.do_jobs());
    assert_eq!(answers.try_iter().collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn jobs_leave_time_for_packets() {
    let mut bench = Bench::new(2);
    let (jobs, _) = &bench.other_ends;
    for _ in 0..=JOBS_MAX {
        jobs.send(Job::new(|_| ())).unwrap();
    }
    assert!(bench.worker.do_jobs());
    assert!(bench.worker.control.bell().drain(), "it comes back to them");
    assert!(bench.worker.do_jobs());
    assert!(!bench.worker.control.bell().drain());
}

#[test]
fn a_guest_is_heard_before_anything_is_handed_to_it() {
    for ports in [2, 3] {
        let mut bench = Bench::new(ports);
        bench.introduce();
        let mut moved = |carrier| {
            bench.worker.set_link(PortId(0), carrier);
            bench.send(0, &frame(mac(1), mac(0), 1), 1);
            bench.send(1, &frame(mac(0), mac(1), 1), 1);
            bench.settle();
            [1, 0].map(|guest| std::mem::take(&mut bench.guests[guest].received).len())
        };
        assert_eq!(moved(Carrier::Down), [0, 0]);
        assert_eq!(moved(Carrier::Rising), [1, 0]);
        assert_eq!(moved(Carrier::Up), [1, 1]);
        assert_eq!(bench.drops(0, DropReason::LinkDown)[0], 2);
    }
}

#[test]
fn an_announcement_is_a_packet_like_any_other() {
    let mut bench = Bench::new(2);
    let announced = |bench: &mut Bench| {
        bench.worker.announce(PortId(0), mac(0), AnnounceTo::All);
        bench.guests[1].receive()
    };
    assert_eq!(announced(&mut bench), 1);
    bench.worker.set_link(PortId(0), Carrier::Down);
    assert_eq!(announced(&mut bench), 0, "its link is down");
    bench.worker.set_link(PortId(0), Carrier::Up);
    // The first is paid for after minutes.
    let slow = RateLimit { bits_per_second: 1, packets_per_second: 0, burst_us: 1 };
    bench.set(0, PortPolicy { rate_from_guest: slow, ..PortPolicy::default() });
    assert_eq!([announced(&mut bench), announced(&mut bench)], [1, 0]);
    bench.set(0, PortPolicy::default());
    bench.set(1, PortPolicy { rate_to_guest: slow, ..PortPolicy::default() });
    assert_eq!([announced(&mut bench), announced(&mut bench)], [1, 0]);
}

#[test]
fn uplinks_are_told_where_a_guest_is_and_guests_are_not() {
    let mut bench = Bench::new(3);
    bench.set(2, PortPolicy { is_uplink: true, ..PortPolicy::default() });
    bench.worker.announce(PortId(0), mac(0), AnnounceTo::Uplinks);
    assert_eq!([1, 2].map(|guest| bench.guests[guest].receive()), [0, 1]);
    let shared = bench.worker.bridge.switch.shared();
    assert_eq!(shared.heard(PortId(0)), 0, "the guest has said nothing");
}

#[test]
fn a_queue_without_a_kick_fd_is_looked_at_now_and_then() {
    let mut bench = Bench::new(2);
    assert_eq!(sleep_at_most(&bench.worker), None);
    bench.worker.set_notify_fd_at(PortId(0), Queue::FromGuest, NotifyFd::Kick(None));
    bench.settle();
    bench.guests[0].send(&frame(MacAddress::BROADCAST, mac(0), 1), 1);
    assert!(sleep_at_most(&bench.worker).is_some_and(|at_most| at_most <= POLL_PAUSE));
    bench.worker.ports.guest(PortId(0)).unwrap().poll_at = Some(Nanos(0));
    bench.worker.end_timers();
    bench.settle();
    assert_eq!(bench.guests[1].received.len(), 1);
    bench.worker.set_notify_fd_at(
        PortId(0),
        Queue::FromGuest,
        NotifyFd::Kick(KickFd::new(kick_fd()).ok()),
    );
    bench.settle();
    assert_eq!(sleep_at_most(&bench.worker), None);
}

#[test]
fn a_packet_whose_kick_was_lost_is_found_by_a_late_look() {
    let mut bench = Bench::new(2);
    bench.introduce();
    bench.send(0, &frame(mac(1), mac(0), 1), 1);
    while bench.step().is_some() {}
    let late = bench.worker.ports.guest(PortId(0)).unwrap().late_look_at;
    assert!(late.is_some() && sleep_at_most(&bench.worker).is_some(), "it is looked at again");
    bench.guests[0].send(&frame(mac(1), mac(0), 2), 1);
    bench.worker.ports.guest(PortId(0)).unwrap().late_look_at = Some(Nanos(0));
    bench.worker.end_timers();
    while bench.step().is_some() {}
    assert_eq!(bench.guests[1].received.len(), 2);
    // The one after a look that finds nothing is the last.
    bench.worker.ports.guest(PortId(0)).unwrap().late_look_at = Some(Nanos(0));
    bench.worker.end_timers();
    while bench.step().is_some() {}
    assert_eq!(bench.worker.ports.guest(PortId(0)).unwrap().late_look_at, None);
}

/// How many packets of a visit a guest gets whose first one is in 128 pieces.
fn got_behind_pieces(guests: usize, to: MacAddress) -> usize {
    let mut bench = Bench::new(guests);
    bench.introduce();
    let guest = &mut bench.guests[0];
    let id = guest.free.pop().unwrap();
    let at = BASE + SEND_AT + u64::from(id) * SEND_LEN;
    let bytes = frame(to, mac(0), 1);
    guest.memory.write(usize::try_from(at - BASE).unwrap() + HEADER_LEN, &bytes);
    let mut elements = vec![(at, u32::try_from(HEADER_LEN).unwrap())];
    elements.extend((0..128).map(|offset| (at + 12 + offset, 1)));
    guest.queues[1].add(&elements, &[], BufferId(id)).unwrap();
    bench.send(0, &frame(mac(1), mac(0), 1), 100);
    let (_, got) = bench.step().unwrap();
    got[1]
}

#[test]
fn a_packet_in_very_many_pieces_takes_more_of_a_visit() {
    // Two units for the pieces, and one for each copy.
    assert_eq!(got_behind_pieces(2, mac(1)), 1 + 64 - 3);
    assert_eq!(got_behind_pieces(3, MacAddress::BROADCAST), 1 + 64 - 4);
}

#[test]
fn what_goes_nowhere_takes_its_share_of_a_visit() {
    let mut bench = Bench::new(3);
    bench.introduce();
    let before = bench.worker.effort.packets;
    bench.send(0, &frame(mac(0), mac(0), 1), usize::from(QUEUE_SIZE));
    assert!(bench.step().is_some());
    assert_eq!(bench.worker.effort.packets - before, 64);
}
