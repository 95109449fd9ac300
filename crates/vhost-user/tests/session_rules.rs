//! The rules of the session, one by one: what starts a ring, what stops it, what is refused.

mod common;

use common::{Backend, FLAGS, NEED_REPLY, ack, message, offer, reply, ring_addresses, u32s, u64s};
use ringway_vhost_user::{Applied, Offer, Session, codec};
use ringway_virtq::Position;

const SPLIT: u64 = 1 << 32 | common::BIT_30;
const PACKED: u64 = SPLIT | 1 << 34;
const AT: &str = "at 0x100000/0x101000/0x102000";

fn enable(index: u32, on: bool) -> Vec<u8> {
    u32s(&[index, on.into()])
}

fn running(features: u64) -> Backend {
    let mut backend = Backend::negotiated(features);
    assert!(backend.describe_ring(0, 0).is_empty(), "not enabled yet");
    assert_eq!(backend.ack(18, &enable(0, true), 0).len(), 1);
    backend
}

#[test]
fn a_ring_starts_with_whatever_of_its_conditions_comes_last() {
    let table = [u32s(&[1, 0]), u64s(&[0x10_0000, 0x10_0000, 0x7000_0000, 0])].concat();
    let parts: [(u32, Vec<u8>, usize); 7] = [
        (2, u64s(&[SPLIT]), 0),
        (5, table, 1),
        (8, u32s(&[0, 256]), 0),
        (9, ring_addresses(0, 0x7000_0000), 0),
        (12, u64s(&[0]), 1),
        (18, enable(0, true), 0),
        (13, u64s(&[0]), 1),
    ];
    let start = format!("start 0 split 256 {AT} base 0x0 kick call");
    for last in 0..6 {
        let mut backend = Backend::new();
        for (at, (code, payload, fds)) in parts.iter().enumerate() {
            if at != last {
                let effects = backend.ack(*code, payload, *fds);
                assert!(!effects.contains(&start), "started without part {last}");
            }
        }
        let (code, payload, fds) = &parts[last];
        assert_eq!(backend.ack(*code, payload, *fds).last(), Some(&start), "part {last}");
    }
}

#[test]
fn without_bit_30_a_kick_is_enough_and_a_missing_fd_means_polling() {
    let mut backend = Backend::negotiated(1 << 32);
    backend.ack(8, &u32s(&[1, 64]), 0);
    backend.ack(9, &ring_addresses(1, 0x7000_0000), 0);
    let start = format!("start 1 split 64 {AT} base 0x0");
    assert_eq!(backend.ack(12, &u64s(&[1 | 0x100]), 0), [start]);
    assert_eq!(backend.ack(18, &enable(1, false), 0), [""; 0], "enable means nothing here");
}

#[test]
fn disabling_pauses_a_ring_where_it_stands() {
    let mut backend = running(SPLIT);
    // Two buffers are still with the device: the used index is remembered too.
    backend.stands_at = Position { available: 12, used: 10, ..Position::FRESH };
    assert_eq!(backend.ack(18, &enable(0, false), 0), ["stop 0"]);
    assert_eq!(backend.ack(18, &enable(0, false), 0), [""; 0]);
    let start = format!("start 0 split 256 {AT} base 0xc kick call");
    assert_eq!(backend.ack(18, &enable(0, true), 0), [start]);
}

#[test]
fn the_base_stops_a_ring_until_the_next_kick() {
    let mut backend = running(SPLIT);
    backend.stands_at = Position { available: 0xffff, used: 0xffff, ..Position::FRESH };
    assert_eq!(backend.base(0), 0xffff);
    assert_eq!(backend.base(0), 0xffff, "asked again");
    assert_eq!(backend.ack(18, &enable(0, true), 0), [""; 0]);
    let start = format!("start 0 split 256 {AT} base 0xffff kick call");
    assert_eq!(backend.ack(12, &u64s(&[0]), 1), [start]);
}

/// As an operator does with `info virtio-queue-status` in QEMU's monitor.
#[test]
fn a_ring_whose_base_was_only_asked_for_goes_on_when_the_guest_kicks() {
    for kicked in [0, 1] {
        let mut backend = running(SPLIT);
        backend.describe_ring(1, 0);
        backend.ack(18, &enable(1, true), 0);
        backend.stands_at = Position { available: 9, used: 9, ..Position::FRESH };
        assert_eq!(backend.base(0), 9);
        assert_eq!(backend.watched, "watch 0 1", "no kick comes for a receiveq that is full");
        assert!(backend.session.waits_for_quiet());
        assert_eq!(backend.kick(&[kicked], false), [""; 0], "more may follow");
        assert_eq!(backend.kick(&[], true), [""; 0], "there was no kick");
        let start = format!("start 0 split 256 {AT} base 0x9 kick call");
        assert_eq!(backend.kick(&[kicked], true), [start]);
        assert_eq!(backend.watched, "watch");
        assert!(!backend.session.waits_for_quiet());
        // The front-end takes it for stopped, and may set it up anew.
        assert_eq!(backend.ack(10, &u32s(&[0, 9]), 0), ["stop 0"]);
        assert_eq!(backend.kick(&[0, 1], true), [""; 0], "it waits for a kick fd");
        let start = format!("start 0 split 256 {AT} base 0x9 kick call");
        assert_eq!(backend.ack(12, &u64s(&[0]), 1), [start]);
        backend.nack(10, &u32s(&[0, 9]), 0);
    }
}

/// A front-end that tells the status would have told of a stop.
#[test]
fn a_ring_whose_base_was_only_asked_for_goes_on_without_a_kick_if_the_driver_uses_the_device() {
    let mut backend = running(SPLIT);
    backend.ack(39, &u64s(&[15]), 0);
    backend.stands_at = Position { available: 9, used: 9, ..Position::FRESH };
    assert!(!backend.session.goes_on_when_quiet(), "it runs");
    assert_eq!(backend.base(0), 9);
    assert!(backend.session.goes_on_when_quiet());
    assert_eq!(backend.kick(&[], false), [""; 0], "more may follow");
    assert_eq!(backend.kick(&[], true), [format!("start 0 split 256 {AT} base 0x9 kick call")]);
    assert!(!backend.session.goes_on_when_quiet());
}

/// It would be followed by requests to translate addresses.
#[test]
fn a_front_end_that_accepts_access_platform_is_refused_though_it_is_offered() {
    const ACCESS_PLATFORM: u64 = 1 << 33;
    let offer = Offer { features: SPLIT | ACCESS_PLATFORM, ..offer() };
    let mut backend = Backend::with(offer);
    backend.nack(2, &u64s(&[SPLIT | ACCESS_PLATFORM]), 0);
    assert_eq!(backend.session.features(), None);
    assert_eq!(backend.ack(2, &u64s(&[SPLIT]), 0).len(), 1, "a front-end without a vIOMMU");
}

/// QEMU 10 asks where the rings stand, and then sets the status; QEMU 7.2 the other way round.
#[test]
fn a_ring_of_a_device_without_driver_stays_stopped() {
    for order in [[11, 39], [39, 11]] {
        let mut backend = running(SPLIT);
        backend.ack(39, &u64s(&[15]), 0);
        for code in order {
            match code {
                11 => drop(backend.base(0)),
                _ => drop(backend.ack(39, &u64s(&[0]), 0)),
            }
        }
        assert!(!backend.session.goes_on_when_quiet(), "{order:?}");
        assert_eq!(backend.kick(&[], true), [""; 0], "{order:?}");
    }
}

#[test]
fn a_ring_that_is_really_stopped_does_not_go_on_by_a_kick() {
    let stops: [(u32, Vec<u8>); 5] =
        [(39, u64s(&[0])), (34, vec![]), (4, vec![]), (8, u32s(&[0, 256])), (10, u32s(&[0, 0]))];
    for (code, payload) in stops {
        let mut backend = running(SPLIT);
        backend.base(0);
        backend.ack(code, &payload, 0);
        assert_eq!(backend.watched, "watch", "request {code}");
        assert_eq!(backend.kick(&[0], true), [""; 0], "request {code}");
    }
}

#[test]
fn a_transmitq_that_is_started_and_disabled_discards_what_is_sent() {
    let mut backend = Backend::negotiated(PACKED);
    backend.describe_ring(1, 0);
    assert_eq!(backend.watched, "watch 1");
    // It may be enabled in a moment.
    assert_eq!(backend.kick(&[1], false), [""; 0]);
    assert_eq!(backend.kick(&[1], true), ["discard 1"]);
    assert_eq!(backend.ack(18, &enable(1, true), 0).len(), 1);
    assert_eq!(backend.watched, "watch");
    assert_eq!(backend.kick(&[1], true), [""; 0]);
    assert_eq!(backend.ack(18, &enable(1, false), 0), ["stop 1", "discard 1"]);
    assert_eq!(backend.ack(18, &enable(1, false), 0), [""; 0]);
    let (available_wrap, used_wrap) = (false, false);
    backend.stands_at = Position { available: 4, available_wrap, used: 4, used_wrap };
    assert_eq!(backend.kick(&[1], false), ["discard 1"], "at once");
    let start = format!("start 1 packed 256 {AT} base 0x40004 kick call");
    assert_eq!(backend.ack(18, &enable(1, true), 0), [start]);
    // Disabled before it is started.
    let mut backend = Backend::negotiated(SPLIT);
    backend.ack(18, &enable(1, false), 0);
    assert_eq!(backend.describe_ring(1, 0), ["discard 1"]);
    // Stopped is not started.
    assert_eq!(backend.base(1), 0);
    assert_eq!(backend.kick(&[1], false), [""; 0]);
}

#[test]
fn a_receiveq_that_is_started_and_disabled_is_left_alone() {
    let mut backend = running(SPLIT);
    assert_eq!(backend.ack(18, &enable(0, false), 0), ["stop 0"]);
    assert_eq!(backend.watched, "watch");
    assert_eq!(backend.kick(&[0], true), [""; 0]);
}

#[test]
fn a_ring_that_never_ran_tells_the_base_it_was_given() {
    let mut backend = Backend::negotiated(SPLIT);
    assert_eq!(backend.base(2), 0);
    backend.ack(10, &u32s(&[2, 0x1234]), 0);
    assert_eq!(backend.base(2), 0x1234);
    let mut backend = Backend::negotiated(PACKED);
    assert_eq!(backend.base(2), 0x8000_8000);
}

#[test]
fn a_packed_base_is_literal_when_it_is_what_was_answered() {
    let mut backend = running(PACKED);
    let wrapped =
        |available, used| Position { available, available_wrap: false, used, used_wrap: false };
    for (position, base) in [(wrapped(0, 0), 0), (wrapped(3, 0), 3)] {
        backend.stands_at = position;
        assert_eq!(backend.base(0), base);
        backend.ack(10, &u32s(&[0, base]), 0);
        let start = format!("start 0 packed 256 {AT} base {base:#x} kick call");
        assert_eq!(backend.ack(12, &u64s(&[0]), 1), [start]);
    }
    // After a reset, 0 means a fresh ring again.
    backend.ack(34, &[], 0);
    backend.ack(2, &u64s(&[PACKED]), 0);
    backend.describe_ring(0, 0);
    let start = format!("start 0 packed 256 {AT} base 0x80008000 kick call");
    assert_eq!(backend.ack(18, &enable(0, true), 0), [start]);
}

#[test]
fn a_running_ring_keeps_its_size_and_base_but_may_move_and_change_fds() {
    let mut backend = running(SPLIT);
    assert_eq!(backend.nack(8, &u32s(&[0, 128]), 0), "ring 0: cannot be changed while it runs");
    assert_eq!(backend.nack(10, &u32s(&[0, 1]), 0), "ring 0: cannot be changed while it runs");
    let moved = backend.ack(9, &ring_addresses(0, 0x7000_8000), 0);
    assert_eq!(moved, ["rebind 0 0x108000/0x109000/0x10a000"]);
    let outside = "ring 0: its addresses are outside the memory table";
    assert_eq!(backend.nack(9, &ring_addresses(0, 0x6000_0000), 0), outside);
    assert_eq!(backend.ack(13, &u64s(&[0]), 1), ["set 0 call"]);
    assert_eq!(backend.ack(13, &u64s(&[0x100]), 0), ["set 0"]);
    assert_eq!(backend.ack(12, &u64s(&[0]), 1), ["set 0 kick"]);
    assert_eq!(backend.ack(14, &u64s(&[0]), 1), ["set 0 error"]);
    // The ring starts next time with the fds that were set on the way.
    backend.ack(18, &enable(0, false), 0);
    let start = "start 0 split 256 at 0x108000/0x109000/0x10a000 base 0x0 kick error";
    assert_eq!(backend.ack(18, &enable(0, true), 0), [start]);
}

#[test]
fn indexes_are_checked_before_they_are_cut() {
    let mut backend = Backend::negotiated(SPLIT);
    for index in [3u32, 0xff, 0x1_0000, 0x1_0002, u32::MAX] {
        let refused = format!("ring {index}: the device has 3 rings");
        for (code, payload) in [
            (8, u32s(&[index, 256])),
            (9, ring_addresses(index, 0x7000_0000)),
            (10, u32s(&[index, 0])),
            (18, u32s(&[index, 1])),
        ] {
            assert_eq!(backend.nack(code, &payload, 0), refused);
        }
        // No acknowledgement but a reply of its own: an empty one says no.
        let base = message(11, NEED_REPLY, &u32s(&[index, 0]));
        backend.step(&base, 0, &[], reply(11, &[]));
    }
    for index in [3u64, 0xff, 0x200, 0x1_0000, 0x1_0002, 1 << 32, u64::MAX] {
        for code in [12, 13, 14] {
            let refused = backend.nack(code, &u64s(&[index]), 1);
            assert!(refused.ends_with("the device has 3 rings"), "{refused}");
        }
    }
}

#[test]
fn queue_sizes_that_no_ring_can_have_are_refused() {
    let mut split = Backend::negotiated(SPLIT);
    let mut packed = Backend::negotiated(PACKED);
    for size in [0, 32769, 0x1_0000, 0x1_0100, u32::MAX] {
        split.nack(8, &u32s(&[0, size]), 0);
        packed.nack(8, &u32s(&[0, size]), 0);
    }
    for size in [3, 255, 32767] {
        split.nack(8, &u32s(&[0, size]), 0);
        packed.ack(8, &u32s(&[0, size]), 0);
    }
    for size in [1, 2, 32768] {
        split.ack(8, &u32s(&[0, size]), 0);
        packed.ack(8, &u32s(&[0, size]), 0);
    }
    // Told while packed was still possible; it does not become a split ring.
    let mut backend = Backend::new();
    backend.ack(8, &u32s(&[0, 100]), 0);
    backend.ack(2, &u64s(&[1 << 32]), 0);
    let table = [u32s(&[1, 0]), u64s(&[0x10_0000, 0x10_0000, 0x7000_0000, 0])].concat();
    backend.ack(5, &table, 1);
    backend.nack(9, &ring_addresses(0, 0x7000_0000), 0);
    assert_eq!(backend.ack(12, &u64s(&[0]), 1), [""; 0]);
}

#[test]
fn a_ring_that_leaves_its_region_does_not_start() {
    // The last byte of a split ring of 256 with EVENT_IDX: 4 + 8 * 256 + 2 bytes of used ring.
    let event_idx = SPLIT | 1 << 29;
    for (used, starts) in [(0x7010_0000 - 2054, true), (0x7010_0000 - 2053, false)] {
        let mut backend = Backend::negotiated(event_idx);
        backend.ack(8, &u32s(&[0, 256]), 0);
        let at = [u32s(&[0, 0]), u64s(&[0x7000_0000, used, 0x7000_1000, 0])].concat();
        backend.send(&message(9, NEED_REPLY, &at), vec![]);
        backend.ack(18, &enable(0, true), 0);
        assert_eq!(backend.ack(12, &u64s(&[0]), 1).len(), usize::from(starts));
    }
}

#[test]
fn memory_that_goes_stops_the_rings_in_it_and_memory_that_comes_starts_them() {
    let mut backend = running(SPLIT);
    backend.stands_at = Position { available: 9, used: 9, ..Position::FRESH };
    let old = u64s(&[0, 0x10_0000, 0x10_0000, 0x7000_0000, 0]);
    assert_eq!(backend.ack(38, &old, 0), ["stop 0", "remove memory 0x100000"]);
    let added = backend.ack(37, &u64s(&[0, 0x20_0000, 0x8000, 0x7000_0000, 0]), 1);
    let start = "start 0 split 256 at 0x200000/0x201000/0x202000 base 0x9 kick call";
    assert_eq!(added, ["add memory 0x200000+0x8000@0x70000000/0x0", start]);
    // The same ring in other guest-physical memory: it moves along.
    let table = [u32s(&[1, 0]), u64s(&[0x50_0000, 0x8000, 0x7000_0000, 0])].concat();
    let memory = "memory 0x500000+0x8000@0x70000000/0x0";
    assert_eq!(backend.ack(5, &table, 1), [memory, "rebind 0 0x500000/0x501000/0x502000"]);
    assert_eq!(backend.ack(5, &u32s(&[0, 0]), 0), ["stop 0", "memory "]);
}

#[test]
fn memory_tables_that_cannot_be_are_refused_and_change_nothing() {
    let mut backend = running(SPLIT);
    let region = |guest, size, user, offset| u64s(&[guest, size, user, offset]);
    let bad = [
        region(0, 0, 0, 0),
        region(u64::MAX, 2, 0, 0),
        region(0, 2, u64::MAX, 0),
        region(0, 2, 0, u64::MAX),
        region(1, u64::MAX, 0, 0),
    ];
    for region in &bad {
        backend.nack(5, &[u32s(&[1, 0]), region.clone()].concat(), 1);
        backend.nack(37, &[u64s(&[0]), region.clone()].concat(), 1);
    }
    for (first, second) in [(0x1000, 0x1fff), (0x1fff, 0x1000), (0x1000, 0x1000)] {
        let regions = [region(first, 0x1000, 0, 0), region(second, 0x1000, 0x9000, 0)].concat();
        let refused = backend.nack(5, &[u32s(&[2, 0]), regions].concat(), 2);
        assert!(refused.ends_with("overlaps another region"), "{refused}");
    }
    backend.nack(38, &[u64s(&[0]), region(0x10_0000, 0x8000, 0x7000_0000, 0)].concat(), 0);
    assert_eq!(backend.session.running().collect::<Vec<_>>(), [0]);
    // Neighbours, in descending order, are fine; the memory slots are counted.
    let mut backend = Backend::with(Offer { memory_slots_max: 2, ..offer() });
    let regions = [region(0x2000, 0x1000, 0x2000, 0), region(0x1000, 0x1000, 0x1000, 0)].concat();
    backend.ack(5, &[u32s(&[2, 0]), regions].concat(), 2);
    let third = [u64s(&[0]), region(0x9000, 1, 0, 0)].concat();
    assert_eq!(backend.nack(37, &third, 1), "more than 2 memory regions");
}

/// QEMU 7.2 does so, once for each queue pair.
#[test]
fn memory_that_is_added_twice_goes_when_it_is_removed_twice() {
    let mut backend = running(SPLIT);
    let region = |guest, size, user, offset| u64s(&[0, guest, size, user, offset]);
    let more = region(0x90_0000, 0x1000, 0x9000_0000, 0x4000);
    assert_eq!(backend.ack(37, &more, 1), ["add memory 0x900000+0x1000@0x90000000/0x4000"]);
    assert_eq!(backend.ack(37, &more, 1), [""; 0]);
    // A region that differs in anything is another one, in the same place.
    for other in [
        region(0x90_0000, 0x1000, 0x9000_0000, 0),
        region(0x90_0000, 0x1000, 0x9000_1000, 0x4000),
        region(0x90_0000, 0x2000, 0x9000_0000, 0x4000),
        region(0x90_0fff, 0x1000, 0x9000_0000, 0x4000),
    ] {
        assert!(backend.nack(37, &other, 1).ends_with("overlaps another region"));
    }
    for other in [region(0x90_0000, 0x800, 0x9000_0000, 0), region(0x90_0800, 1, 0x9000_0800, 0)] {
        assert!(backend.nack(38, &other, 0).ends_with("not in the table"));
    }
    assert_eq!(backend.ack(38, &more, 0), [""; 0]);
    assert_eq!(backend.ack(38, &more, 0), ["remove memory 0x900000"]);
    assert_eq!(backend.ack(38, &more, 0), [""; 0], "it is gone already");
    // The memory of rings that run: they stop with its last removal.
    let table = region(0x10_0000, 0x10_0000, 0x7000_0000, 0);
    assert_eq!(backend.ack(37, &table, 1), [""; 0], "the same as in the table");
    assert_eq!(backend.ack(38, &table, 0), [""; 0]);
    assert_eq!(backend.ack(38, &table, 0), ["stop 0", "remove memory 0x100000"]);
}

#[test]
fn memory_that_could_not_be_mapped_is_not_believed() {
    let mut backend = running(SPLIT);
    backend.ack(18, &enable(0, false), 0);
    let added = u64s(&[0, 0x90_0000, 0x1000, 0x9000_0000, 0]);
    backend.fail(37, &added, 1);
    assert_eq!(backend.ack(37, &added, 1).len(), 1, "it would be known otherwise");
    // With it go the places of rings in it: the ring is where it was, and moves once more.
    backend.ack(18, &enable(0, true), 0);
    let table = [u32s(&[1, 0]), u64s(&[0x50_0000, 0x8000, 0x7000_0000, 0])].concat();
    backend.fail(5, &table, 1);
    let moved = "rebind 0 0x500000/0x501000/0x502000";
    assert_eq!(backend.ack(5, &table, 1).last().map(String::as_str), Some(moved));
}

#[test]
fn features_that_cannot_be_used_are_not_believed() {
    let mut backend = Backend::new();
    backend.fail(2, &u64s(&[SPLIT]), 0);
    assert_eq!(backend.session.features(), None);
    assert_eq!(backend.ack(2, &u64s(&[SPLIT]), 0), ["features 0x100000000"]);
}

/// Not before: it would fail again behind every request that has nothing to do with it.
#[test]
fn a_ring_whose_start_failed_starts_when_what_it_lacked_may_be_there() {
    let table = [u32s(&[1, 0]), u64s(&[0x10_0000, 0x10_0000, 0x7000_0000, 0])].concat();
    let start = format!("start 0 split 256 {AT} base 0x9 kick call");
    let mends: [(u32, Vec<u8>, usize); 8] = [
        (5, table, 1),
        (37, u64s(&[0, 0x90_0000, 0x1000, 0x9000_0000, 0]), 1),
        (8, u32s(&[0, 256]), 0),
        (9, ring_addresses(0, 0x7000_0000), 0),
        (10, u32s(&[0, 9]), 0),
        (12, u64s(&[0]), 1),
        (13, u64s(&[0]), 1),
        (18, enable(0, true), 0),
    ];
    for (code, payload, fds) in mends {
        let mut backend = Backend::negotiated(SPLIT);
        backend.describe_ring(0, 9);
        backend.fail(18, &enable(0, true), 0);
        assert_eq!(backend.session.running().count(), 0);
        assert_eq!(backend.ack(3, &[], 0), [""; 0], "nothing is different");
        let effects = backend.ack(code, &payload, fds);
        assert_eq!(effects.last(), Some(&start), "request {code}");
    }
}

#[test]
fn features_decide_what_runs() {
    let mut backend = running(SPLIT);
    assert_eq!(backend.ack(2, &u64s(&[SPLIT]), 0), [""; 0], "the same again, as per queue pair");
    assert_eq!(backend.nack(2, &u64s(&[1 << 63]), 0).split(' ').next(), Some("features"));
    // A driver that negotiates something else has started anew: its old ring is history.
    assert_eq!(backend.ack(2, &u64s(&[PACKED]), 0), ["stop 0", "features 0x500000000"]);
    assert_eq!(backend.ack(18, &enable(0, true), 0), [""; 0]);
}

#[test]
fn resets_forget_the_driver_but_not_the_memory_and_the_call_fd() {
    for (code, payload, stood) in [(34, vec![], 0), (39, u64s(&[0]), 9)] {
        let mut backend = running(SPLIT);
        backend.stands_at = Position { available: 9, used: 9, ..Position::FRESH };
        backend.ack(39, &u64s(&[15]), 0);
        assert_eq!(backend.ack(code, &payload, 0), ["stop 0", "reset"]);
        backend.step(&message(40, FLAGS, &[]), 0, &[], reply(40, &u64s(&[0])));
        assert_eq!(backend.session.features(), None);
        assert_eq!(backend.base(0), stood, "a device status of 0 comes first in QEMU 7.2");
        backend.ack(2, &u64s(&[SPLIT]), 0);
        backend.ack(8, &u32s(&[0, 16]), 0);
        backend.ack(9, &ring_addresses(0, 0x7000_0000), 0);
        backend.ack(12, &u64s(&[0]), 1);
        let start = format!("start 0 split 16 {AT} base 0x0 kick call");
        assert_eq!(backend.ack(18, &enable(0, true), 0), [start]);
    }
}

/// QEMU asks behind a device status of 0 where rings stood (7.2) or before it (10), and tells that
/// when the device goes on.
#[test]
fn a_device_that_is_stopped_and_goes_on_continues_where_its_rings_stood() {
    let ahead = Position { available: 5, available_wrap: false, used: 3, used_wrap: false };
    for (features, stands_at) in [(SPLIT, Position { ..Position::FRESH }), (PACKED, ahead)] {
        for status_first in [true, false] {
            let mut backend = running(features);
            for _ in 0..3 {
                backend.stands_at = stands_at;
                if status_first {
                    assert_eq!(backend.ack(39, &u64s(&[0]), 0), ["stop 0", "reset"]);
                }
                let base = backend.base(0);
                if !status_first {
                    assert_eq!(backend.ack(39, &u64s(&[0]), 0), ["reset"]);
                }
                assert_eq!(backend.base(0), base, "asked again");
                backend.ack(18, &enable(0, true), 0);
                backend.ack(2, &u64s(&[features]), 0);
                let start = backend.describe_ring(0, base);
                assert!(start[0].contains(&format!(" base {base:#x} ")), "{start:?}");
            }
        }
    }
}

/// A guest that has rebooted begins with a new ring.
#[test]
fn a_new_base_behind_a_device_status_of_0_counts() {
    let mut backend = running(PACKED);
    let (available_wrap, used_wrap) = (false, false);
    backend.stands_at = Position { available: 3, available_wrap, used: 3, used_wrap };
    backend.ack(39, &u64s(&[0]), 0);
    assert_eq!(backend.base(0), 0x3_0003);
    backend.ack(18, &enable(0, true), 0);
    backend.ack(2, &u64s(&[PACKED]), 0);
    let start = backend.describe_ring(0, 0x8000_8000);
    assert!(start[0].contains(" base 0x80008000 "), "{start:?}");
}

#[test]
fn reset_owner_disables_and_set_owner_does_nothing() {
    let mut backend = running(SPLIT);
    for _ in 0..3 {
        assert_eq!(backend.ack(3, &[], 0), [""; 0]);
    }
    assert_eq!(backend.ack(4, &[], 0), ["stop 0"]);
    assert_eq!(backend.ack(12, &u64s(&[0]), 1), [""; 0]);
    assert_eq!(backend.ack(18, &enable(0, true), 0).len(), 1);
}

#[test]
fn status_is_kept_and_features_ok_means_features() {
    let mut backend = Backend::new();
    backend.ack(39, &u64s(&[11]), 0);
    backend.step(&message(40, FLAGS, &[]), 0, &[], reply(40, &u64s(&[3])));
    backend.ack(2, &u64s(&[SPLIT]), 0);
    backend.ack(39, &u64s(&[11]), 0);
    backend.step(&message(40, FLAGS, &[]), 0, &[], reply(40, &u64s(&[11])));
    backend.nack(39, &u64s(&[0x100]), 0);
}

#[test]
fn configuration_reads_have_exactly_the_size_that_was_asked_for() {
    let mut backend = Backend::new();
    let ask = |offset, size, room| {
        message(24, NEED_REPLY, &[u32s(&[offset, size, 0]), vec![0xee; room]].concat())
    };
    let answer = |offset: u32, bytes: &[u8]| {
        let size = u32::try_from(bytes.len()).unwrap();
        reply(24, &[u32s(&[offset, size, 0]), bytes.to_vec()].concat())
    };
    backend.step(&ask(6, 2, 2), 0, &[], answer(6, &[1, 0]));
    backend.step(&ask(8, 8, 0), 0, &[], answer(8, &[1, 0, 0x28, 0x23, 0, 0, 0, 0]));
    backend.step(&ask(0, 256, 256), 0, &[], answer(0, &[&common::CONFIG[..], &[0; 244]].concat()));
    for (offset, size) in [(0, 257), (256, 1), (u32::MAX, 1), (1, u32::MAX)] {
        backend.step(&ask(offset, size, 0), 0, &[], reply(24, &[]));
    }
    assert!(backend.nack(25, &u32s(&[0, 1, 0, 7]), 0).contains("cannot be written"));
}

#[test]
fn a_change_of_the_configuration_is_told_if_there_is_a_way() {
    let mut backend = Backend::new();
    assert_eq!(backend.session.set_config(vec![1]), None, "nothing negotiated");
    backend.ack(16, &u64s(&[1 << 5 | 1 << 9]), 0);
    assert_eq!(backend.session.set_config(vec![2]), None, "no channel");
    backend.ack(21, &[], 1);
    assert_eq!(backend.session.set_config(vec![2]), None, "no change");
    let notice = backend.session.set_config(vec![3]);
    assert_eq!(notice, Some(u32s(&[2, 1, 0])));
    let ask = message(24, FLAGS, &u32s(&[0, 1, 0]));
    backend.step(&ask, 0, &[], reply(24, &[u32s(&[0, 1, 0]), vec![3]].concat()));
}

#[test]
fn network_requests_become_effects() {
    let mut backend = Backend::new();
    let mac = [0x52, 0x54, 0, 1, 2, 3, 0, 0];
    assert_eq!(backend.ack(19, &mac, 0), ["announce [52, 54, 00, 01, 02, 03]"]);
    assert_eq!(backend.ack(20, &u64s(&[9000]), 0), ["mtu 9000"]);
    for mtu in [0, 67, 65536, 1 << 32 | 1500] {
        backend.nack(20, &u64s(&[mtu]), 0);
    }
}

#[test]
fn queue_pairs_are_told_and_mq_is_offered_only_for_several() {
    for (pairs, mq) in [(1, 0), (4, 1)] {
        let mut backend = Backend::with(Offer { queue_pairs_max: pairs, ..offer() });
        backend.step(&message(17, FLAGS, &[]), 0, &[], reply(17, &u64s(&[pairs.into()])));
        let offered = reply(15, &u64s(&[common::PROTOCOL_FEATURES | mq]));
        backend.step(&message(15, FLAGS, &[]), 0, &[], offered);
        let last = u32::from(2 * pairs);
        backend.ack(18, &enable(last, true), 0);
        backend.nack(18, &enable(last + 1, true), 0);
    }
    let mut backend = Backend::new();
    backend.step(&message(36, FLAGS, &[]), 0, &[], reply(36, &u64s(&[509])));
    backend.nack(16, &u64s(&[1 << 14]), 0);
    backend.nack(16, &u64s(&[1]), 0);
}

#[test]
fn what_is_unknown_or_not_offered_is_refused_and_the_session_goes_on() {
    let mut backend = Backend::new();
    let not_offered = [7, 22, 23, 26, 27, 28, 29, 30, 31, 32, 33, 35, 41];
    for code in not_offered.into_iter().chain([0, 44, 1000, u32::MAX]) {
        backend.nack(code, &[0; 64], 2);
        backend.step(&message(code, FLAGS, &[0; 64]), 2, &[], None);
    }
    backend.step(&message(3, NEED_REPLY, &[]), 0, &[], ack(3));
}

#[test]
fn a_failed_effect_is_told() {
    let mut session = Session::new(offer());
    let request = codec::decode(&message(20, NEED_REPLY, &u64s(&[1500])), vec![]).unwrap();
    let outcome = session.handle(request);
    assert_eq!(session.complete(outcome.pending, Applied::FAILED), common::nack(20));
}
