//! Front-ends that copy a guest's memory while its rings run: what is answered, to the byte, in the
//! orders in which QEMU 7.2, QEMU 10 and Cloud Hypervisor were seen to send; and logs in which
//! nothing can be marked.

mod common;

use common::{
    Backend, FLAGS, LOG_ALL, NEED_REPLY, ack, message, offer_with_log, offer_with_state, reply,
    u32s, u64s,
};
use ringway_virtq::Position;

const SPLIT: u64 = 1 << 32 | common::BIT_30;
const PACKED: u64 = SPLIT | 1 << 34;
/// Of QEMU, with LOG_SHMFD.
const PROTOCOL_FEATURES: u64 = common::PROTOCOL_FEATURES & !(1 << 9) | 1 << 1;
const DEVICE_STATE: u64 = 1 << 19;
const NOTHING: [&str; 0] = [];

/// A device with so many pairs, whose rings run in 128 MiB of memory at guest address 0.
fn running(features: u64, pairs: u16) -> Backend {
    let mut backend = Backend::with(offer_with_state(pairs));
    backend.ack(16, &u64s(&[PROTOCOL_FEATURES | DEVICE_STATE | u64::from(pairs > 1)]), 0);
    backend.ack(2, &u64s(&[features]), 0);
    backend.ack(5, &[u32s(&[1, 0]), u64s(&[0, 0x800_0000, 0x7000_0000, 0])].concat(), 1);
    for index in 0..2 * u32::from(pairs) {
        backend.describe_ring(index, 0);
        assert_eq!(backend.ack(18, &u32s(&[index, 1]), 0).len(), 1);
    }
    backend.ack(39, &u64s(&[15]), 0);
    backend.stands_at = Position { available: 9, used: 9, ..Position::FRESH };
    backend
}

/// `SET_LOG_BASE` of so many bytes; the answer to it, of flags 5 and 16 bytes.
fn log_base(backend: &mut Backend, len: u64, effects: &[&str]) {
    let payload = u64s(&[len, 0]);
    backend.step(&message(6, FLAGS, &payload), 1, effects, reply(6, &payload));
}

fn set_features(backend: &mut Backend, features: u64, effects: &[&str]) {
    backend.step(&message(2, NEED_REPLY, &u64s(&[features])), 0, effects, ack(2));
    backend.step(&message(40, FLAGS, &[]), 0, &[], reply(40, &u64s(&[15])));
}

/// `SET_VRING_ADDR` as before, with or without the log flag.
fn addresses(index: u32, flags: u32, log: u64) -> Vec<u8> {
    let at = 0x7000_0000;
    [u32s(&[index, flags]), u64s(&[at, at + 0x2000, at + 0x1000, log])].concat()
}

fn set_addresses(backend: &mut Backend, rings: std::ops::Range<u32>, flags: u32) {
    for index in rings {
        let bytes = message(9, NEED_REPLY, &addresses(index, flags, 0x2000));
        backend.step(&bytes, 0, &[], ack(9));
    }
}

fn begin(backend: &mut Backend, features: u64) {
    log_base(backend, 0x1000, &["log 0x1000@0x0"]);
    set_features(backend, features | LOG_ALL, &["logging true"]);
    set_addresses(backend, 0..2, 1);
}

#[test]
fn rings_run_on_when_qemu_begins_and_cancels() {
    for features in [SPLIT, PACKED] {
        let mut backend = running(features, 1);
        for _ in 0..2 {
            begin(&mut backend, features);
            assert_eq!(backend.session.running().count(), 2);
            assert_eq!(backend.session.features(), Some(features & !common::BIT_30));
            set_features(&mut backend, features, &["no log", "logging false"]);
            set_addresses(&mut backend, 0..2, 0);
            assert_eq!(backend.session.running().count(), 2);
        }
    }
}

/// QEMU 7.2 tells the log once for each pair, QEMU 10 does not.
#[test]
fn a_second_pair_is_told_the_same_again_or_only_its_addresses() {
    for tells_again in [true, false] {
        let mut backend = running(SPLIT, 2);
        begin(&mut backend, SPLIT);
        if tells_again {
            log_base(&mut backend, 0x1000, &["log 0x1000@0x0"]);
        }
        set_features(&mut backend, SPLIT | LOG_ALL, &NOTHING);
        set_addresses(&mut backend, 2..4, 1);
        assert_eq!(backend.session.running().count(), 4);
    }
}

#[test]
fn a_source_that_stops_stays_stopped() {
    for status_first in [true, false] {
        let mut backend = running(SPLIT, 1);
        begin(&mut backend, SPLIT);
        let stop_all = ["stop 0", "stop 1", "no log", "logging false", "reset"];
        if status_first {
            backend.step(&message(39, FLAGS, &u64s(&[0])), 0, &stop_all, None);
        }
        for index in 0..2u32 {
            assert_eq!(backend.session.is_stopped(), status_first);
            let stop = format!("stop {index}");
            let effects: &[&str] = if status_first { &[] } else { &[&stop] };
            let base = reply(11, &u32s(&[index, 9]));
            backend.step(&message(11, FLAGS, &u32s(&[index, 0])), 0, effects, base);
            assert!(!backend.session.may_go_on());
            assert_eq!(backend.kick(&[0, 1], true), NOTHING, "its memory is copied");
            assert!(!backend.session.goes_on_when_quiet());
        }
        if !status_first {
            backend.step(&message(39, FLAGS, &u64s(&[0])), 0, &stop_all[2..], None);
        }
        assert_eq!(backend.session.log_len(), None);
        assert!(backend.session.is_stopped());
    }
}

#[test]
fn a_device_has_stopped_when_all_its_rings_were_told_to() {
    let mut backend = running(SPLIT, 2);
    for index in 0..4 {
        assert!(!backend.session.is_stopped(), "ring {index} and others run");
        backend.ack(18, &u32s(&[index, 0]), 0);
    }
    assert!(backend.session.is_stopped() && !backend.session.may_go_on());
    backend.ack(18, &u32s(&[0, 1]), 0);
    assert!(!backend.session.is_stopped());
    let mut backend = running(SPLIT, 1);
    assert_eq!([backend.base(0), backend.base(1)], [9, 9]);
    assert!(backend.session.is_stopped() && backend.session.may_go_on(), "it may only be asked");
    // A ring that waits for a log has not stopped: its guest is here.
    let mut backend = running(SPLIT, 1);
    backend.ack(2, &u64s(&[SPLIT | LOG_ALL]), 0);
    assert!(backend.session.waits_for_log() && !backend.session.is_stopped());
}

/// Someone asks where rings stand while a guest is being migrated.
#[test]
fn a_ring_that_was_only_asked_for_goes_on_when_logging_ends() {
    let mut backend = running(SPLIT, 1);
    begin(&mut backend, SPLIT);
    assert_eq!(backend.base(0), 9);
    assert_eq!(backend.kick(&[0, 1], true), NOTHING);
    set_features(&mut backend, SPLIT, &["no log", "logging false"]);
    assert!(backend.session.goes_on_when_quiet());
    let areas = "at 0x0/0x1000/0x2000";
    let start = format!("start 0 split 256 {areas} base 0x9 kick call");
    assert_eq!(backend.kick(&[], true), [start]);
}

/// After a save to a file: nothing of it is told as new.
#[test]
fn a_guest_that_was_saved_goes_on() {
    let mut backend = running(SPLIT, 1);
    begin(&mut backend, SPLIT);
    assert_eq!([backend.base(0), backend.base(1)], [9, 9]);
    backend.ack(39, &u64s(&[0]), 0);
    backend.ack(18, &u32s(&[0, 1]), 0);
    backend.ack(18, &u32s(&[1, 1]), 0);
    assert_eq!(backend.ack(2, &u64s(&[SPLIT]), 0), ["features 0x100000000"]);
    backend.ack(39, &u64s(&[8]), 0);
    for index in 0..2 {
        let start = format!("start {index} split 256 at 0x0/0x1000/0x2000 base 0x9 kick call");
        backend.ack(8, &u32s(&[index, 256]), 0);
        backend.ack(10, &u32s(&[index, 9]), 0);
        backend.ack(9, &addresses(index, 0, 0), 0);
        assert_eq!(backend.ack(12, &u64s(&[index.into()]), 1), [start]);
        backend.ack(13, &u64s(&[index.into()]), 1);
    }
}

/// The destination refuses at the very end, or the guest reboots meanwhile: kicks come before the
/// log.
#[test]
fn a_device_that_starts_while_it_is_logged_waits_for_the_log() {
    let mut backend = running(SPLIT, 1);
    begin(&mut backend, SPLIT);
    assert_eq!([backend.base(0), backend.base(1)], [9, 9]);
    backend.ack(39, &u64s(&[0]), 0);
    let effects = backend.ack(2, &u64s(&[SPLIT | LOG_ALL]), 0);
    assert_eq!(effects, ["features 0x100000000", "logging true"]);
    backend.ack(39, &u64s(&[8]), 0);
    for index in 0..2 {
        backend.ack(18, &u32s(&[index, 1]), 0);
        backend.ack(8, &u32s(&[index, 256]), 0);
        backend.ack(10, &u32s(&[index, 9]), 0);
        assert_eq!(backend.ack(9, &addresses(index, 1, 0x2000), 0), NOTHING);
        assert_eq!(backend.ack(12, &u64s(&[index.into()]), 1), NOTHING);
        assert_eq!(backend.ack(13, &u64s(&[index.into()]), 1), NOTHING);
    }
    assert!(backend.session.waits_for_log());
    let start = |index| format!("start {index} split 256 at 0x0/0x1000/0x2000 base 0x9 kick call");
    let effects = ["log 0x1000@0x0", &start(0), &start(1)];
    log_base(&mut backend, 0x1000, &effects);
    assert!(!backend.session.waits_for_log());
    backend.ack(39, &u64s(&[15]), 0);
    set_features(&mut backend, SPLIT, &["no log", "logging false"]);
    assert_eq!(backend.session.running().count(), 2);
}

/// Cloud Hypervisor gives a new log in each round, of no more bytes than it needs.
#[test]
fn a_new_log_takes_the_place_of_the_one_before() {
    let mut backend = running(SPLIT, 1);
    begin(&mut backend, SPLIT);
    for _ in 0..3 {
        log_base(&mut backend, 0x1000, &["log 0x1000@0x0"]);
        assert_eq!(backend.session.running().count(), 2);
    }
}

#[test]
fn a_log_for_the_used_ring_may_be_elsewhere() {
    let mut backend = running(SPLIT, 1);
    begin(&mut backend, SPLIT);
    let moved = ["rebind 0 0x0/0x1000/0x2000"];
    assert_eq!(backend.ack(9, &addresses(0, 1, 0x5000), 0), moved);
    assert_eq!(backend.ack(9, &addresses(0, 0, 0x5000), 0), moved, "where it is");
}

#[test]
fn without_a_log_that_has_all_pages_rings_wait_and_the_front_end_is_told_yes() {
    let wrong = [(0, 0, 1), (0x1000, 0, 0), (0xfff, 0, 1), (0x1000, u64::MAX - 0xffe, 1)];
    for (len, offset, fd_count) in wrong {
        let mut backend = running(SPLIT, 1);
        set_features(&mut backend, SPLIT | LOG_ALL, &["stop 0", "stop 1", "logging true"]);
        let bytes = message(6, FLAGS, &u64s(&[len, offset]));
        let step = backend.send(&bytes, common::fds(fd_count));
        assert_eq!(step.reply, reply(6, &u64s(&[len, offset])));
        let why = step.refused.expect("a reason").to_string();
        assert!(why.starts_with("log of written pages: "), "{why}");
        assert!(backend.session.waits_for_log());
        assert_eq!(backend.session.running().count(), 0);
        assert_eq!(backend.kick(&[0, 1], true), NOTHING);
        let start = "split 256 at 0x0/0x1000/0x2000 base 0x9 kick call";
        let starts = [format!("start 0 {start}"), format!("start 1 {start}")];
        let effects = match fd_count {
            0 => backend.send(&message(6, FLAGS, &u64s(&[0x1001, 0])), common::fds(1)).effects,
            _ => backend.ack(2, &u64s(&[SPLIT]), 0),
        };
        assert!(effects.ends_with(&starts), "{effects:?}");
        assert_eq!(backend.session.running().count(), 2);
    }
}

/// Rings stop before the old log goes, and the new one is not there.
#[test]
fn a_log_that_cannot_be_mapped_stops_the_rings() {
    let mut backend = running(SPLIT, 1);
    begin(&mut backend, SPLIT);
    backend.refuses_logs = true;
    log_base(&mut backend, 0x1000, &["log 0x1000@0x0"]);
    assert!(backend.session.waits_for_log());
    assert_eq!(backend.session.running().count(), 0);
    let start = |index| format!("start {index} split 256 at 0x0/0x1000/0x2000 base 0x9 kick call");
    let effects = ["log 0x1000@0x0", &start(0), &start(1)];
    log_base(&mut backend, 0x1000, &effects);
    assert_eq!(backend.session.running().count(), 0, "as little");
    backend.refuses_logs = false;
    log_base(&mut backend, 0x1000, &effects);
    assert_eq!(backend.session.running().count(), 2);
    // One that no ring needs yet.
    set_features(&mut backend, SPLIT, &["no log", "logging false"]);
    backend.refuses_logs = true;
    log_base(&mut backend, 0x1000, &["log 0x1000@0x0"]);
    assert_eq!(backend.session.running().count(), 2);
}

#[test]
fn memory_beyond_the_log_makes_rings_wait_until_there_is_a_longer_one() {
    let mut backend = running(SPLIT, 1);
    begin(&mut backend, SPLIT);
    let more = u64s(&[0, 0x1_0000_0000, 0x10_0000, 0x9000_0000, 0]);
    let added = "add memory 0x100000000+0x100000@0x90000000/0x0";
    assert_eq!(backend.ack(37, &more, 1), ["stop 0", "stop 1", added]);
    let start = |index| format!("start {index} split 256 at 0x0/0x1000/0x2000 base 0x9 kick call");
    log_base(&mut backend, 0x2_0020, &["log 0x20020@0x0", &start(0), &start(1)]);
    assert_eq!(backend.ack(38, &more, 0), ["remove memory 0x100000000"]);
}

#[test]
fn logging_needs_the_file() {
    let mut backend = Backend::with(offer_with_log(1));
    backend.ack(16, &u64s(&[PROTOCOL_FEATURES & !2]), 0);
    let why = backend.nack(2, &u64s(&[SPLIT | LOG_ALL]), 0);
    assert_eq!(why, "LOG_ALL: the protocol feature LOG_SHMFD was not accepted");
    backend.nack(7, &[], 1);
    backend.ack(16, &u64s(&[PROTOCOL_FEATURES]), 0);
    assert_eq!(backend.ack(7, &[], 1), NOTHING, "its fd is closed");
    backend.ack(2, &u64s(&[SPLIT | LOG_ALL]), 0);
    backend.nack(16, &u64s(&[PROTOCOL_FEATURES & !2]), 0);
    let mut backend = Backend::negotiated(SPLIT);
    assert_eq!(
        backend.nack(2, &u64s(&[SPLIT | LOG_ALL]), 0),
        "features 0x4000000 were not offered"
    );
    backend.nack(16, &u64s(&[2]), 0);
}

#[test]
fn bit_26_comes_and_goes_as_often_as_it_likes() {
    let mut backend = running(SPLIT, 1);
    for round in 0..10_000 {
        match round % 3 {
            0 => begin(&mut backend, SPLIT),
            1 => set_features(&mut backend, SPLIT | LOG_ALL, &NOTHING),
            _ => set_features(&mut backend, SPLIT, &["no log", "logging false"]),
        }
    }
    assert_eq!(backend.session.running().count(), 2);
}

/// `SET_DEVICE_STATE_FD`, in phase 0; it is answered by 0x100 and flags 5.
fn transfer(backend: &mut Backend, direction: u32, effect: &str) {
    let request = message(42, FLAGS, &u32s(&[direction, 0]));
    backend.step(&request, 1, &[effect], reply(42, &[0, 1, 0, 0, 0, 0, 0, 0]));
    backend.step(&message(43, FLAGS, &[]), 0, &["check"], reply(43, &u64s(&[0])));
}

/// QEMU 10 asks for the bases first, Cloud Hypervisor for nothing else.
#[test]
fn a_source_saves_its_state_when_it_has_stopped() {
    for tells_status in [true, false] {
        let mut backend = running(SPLIT, 1);
        begin(&mut backend, SPLIT);
        assert_eq!([backend.base(0), backend.base(1)], [9, 9]);
        if tells_status {
            let effects = ["no log", "logging false", "reset"];
            backend.step(&message(39, FLAGS, &u64s(&[0])), 0, &effects, None);
        }
        transfer(&mut backend, 0, "transfer Save");
        assert!(!backend.session.goes_on_when_quiet());
        assert_eq!(backend.kick(&[0, 1], true), NOTHING, "its state has left");
        // It goes on all the same.
        backend.ack(2, &u64s(&[SPLIT]), 0);
        for index in 0..2 {
            let start = format!("start {index} split 256 at 0x0/0x1000/0x2000 base 0x9 kick call");
            backend.ack(10, &u32s(&[index, 9]), 0);
            if tells_status {
                backend.ack(8, &u32s(&[index, 256]), 0);
                backend.ack(9, &addresses(index, 0, 0), 0);
                backend.ack(18, &u32s(&[index, 1]), 0);
            }
            assert_eq!(backend.ack(12, &u64s(&[index.into()]), 1), [start]);
        }
    }
}

#[test]
fn a_destination_loads_its_state_before_anything_else() {
    let mut backend = Backend::with(offer_with_state(1));
    backend.ack(16, &u64s(&[PROTOCOL_FEATURES | DEVICE_STATE]), 0);
    transfer(&mut backend, 1, "transfer Load");
    backend.ack(18, &u32s(&[0, 1]), 0);
    backend.ack(2, &u64s(&[SPLIT]), 0);
    backend.ack(39, &u64s(&[8]), 0);
    backend.ack(5, &[u32s(&[1, 0]), u64s(&[0, 0x800_0000, 0x7000_0000, 0])].concat(), 1);
    backend.ack(8, &u32s(&[0, 256]), 0);
    backend.ack(10, &u32s(&[0, 9]), 0);
    backend.ack(9, &addresses(0, 0, 0), 0);
    let start = ["start 0 split 256 at 0x0/0x1000/0x2000 base 0x9 kick"];
    assert_eq!(backend.ack(12, &u64s(&[0]), 1), start);
}

/// Bit 8 says that no descriptor comes back; the byte below it, that it is refused.
#[test]
fn a_transfer_that_makes_no_sense_is_refused() {
    let refused = reply(42, &[1, 1, 0, 0, 0, 0, 0, 0]);
    let why_of = |backend: &mut Backend, payload: &[u32], fd_count| {
        let step = backend.send(&message(42, FLAGS, &u32s(payload)), common::fds(fd_count));
        assert_eq!((step.effects, step.reply), (vec![], refused.clone()));
        step.refused.expect("a reason").to_string()
    };
    let mut backend = running(SPLIT, 1);
    for direction in [0, 1] {
        let why = why_of(&mut backend, &[direction, 0], 1);
        assert_eq!(why, "SET_DEVICE_STATE_FD: ring 0 runs");
    }
    assert_eq!([backend.base(0), backend.base(1)], [9, 9]);
    for [direction, phase] in [[2, 0], [u32::MAX, 0], [0, 1], [1, 1]] {
        let why = why_of(&mut backend, &[direction, phase], 1);
        let expected =
            format!("SET_DEVICE_STATE_FD: direction {direction} in phase {phase} is not known");
        assert_eq!(why, expected);
    }
    let why = why_of(&mut backend, &[0, 0], 0);
    assert_eq!(why, "SET_DEVICE_STATE_FD: no file descriptor came with it");
    let why = why_of(&mut backend, &[0], 1);
    assert_eq!(why, "SET_DEVICE_STATE_FD: its payload of 4 bytes is too short");
    // One that cannot begin, and one that has not gone well.
    backend.succeeds = false;
    let request = message(42, FLAGS, &u32s(&[0, 0]));
    backend.step(&request, 1, &["transfer Save"], refused.clone());
    backend.step(&message(43, FLAGS, &[]), 0, &["check"], reply(43, &u64s(&[1])));
    backend.succeeds = true;
    let accepted = "the protocol feature DEVICE_STATE was not accepted";
    for (offer, why) in [(offer_with_state(1), accepted), (offer_with_log(1), "not offered")] {
        let mut backend = Backend::with(offer);
        assert_eq!(why_of(&mut backend, &[1, 0], 1), format!("SET_DEVICE_STATE_FD: {why}"));
        let step = backend.send(&message(43, FLAGS, &[]), vec![]);
        assert_eq!(step.reply, reply(43, &u64s(&[1])));
        let refused = step.refused.expect("a reason").to_string();
        assert_eq!(refused, format!("CHECK_DEVICE_STATE: {why}"));
    }
    let mut backend = Backend::with(offer_with_log(1));
    backend.nack(16, &u64s(&[DEVICE_STATE]), 0);
}
