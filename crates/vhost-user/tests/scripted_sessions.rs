//! The sessions of known front-ends, message by message: what each must lead to.
//!
//! User Mode Linux 6.1, QEMU 7.2 and DPDK 22.11's virtio-user, in the order in which they send.

mod common;

use common::{Backend, FEATURES, FLAGS, NEED_REPLY, ack, hex, message, reply, u32s, u64s};
use ringway_virtq::Position;

/// Rings of User Mode Linux: guest address = user address.
const UML_RING: u64 = 0x400_0000;

/// Up to the end of the guest kernel's boot.
fn boot_uml(backend: &mut Backend) {
    let offered = FEATURES | common::BIT_30;
    backend.step(&hex("03000000 01000000 00000000"), 0, &[], None);
    let features = reply(1, &u64s(&[offered]));
    backend.step(&hex("01000000 01000000 00000000"), 0, &[], features);
    let protocol_features = reply(15, &u64s(&[common::PROTOCOL_FEATURES]));
    backend.step(&hex("0f000000 01000000 00000000"), 0, &[], protocol_features);
    // REPLY_ACK is turned on before the message that accepts it is sent.
    let accept = hex("10000000 09000000 08000000 2802000000000000");
    backend.step(&accept, 0, &[], Some(hex("10000000 05000000 08000000 0000000000000000")));
    backend.step(&hex("15000000 09000000 00000000"), 1, &["channel"], ack(21));
}

/// The module is loaded: features, configuration, memory. `features` without bit 30 come second.
fn probe_uml(backend: &mut Backend, features: u64) {
    let told = format!("features {:#x}", features & !common::BIT_30);
    backend.step(&message(2, NEED_REPLY, &u64s(&[features])), 0, &[&told], ack(2));
    for len in 1..=6u32 {
        let field = [u32s(&[0, len, 0]), vec![0xaa; len as usize]].concat();
        let answer = [u32s(&[0, len, 0]), common::CONFIG[..len as usize].to_vec()].concat();
        backend.step(&message(24, NEED_REPLY, &field), 0, &[], reply(24, &answer));
    }
    let memory = hex("05000000 09000000 48000000
         01000000 00000000
         00e03f0300000000 0020c00c00000000 00e03f0300000000 00e03f0300000000
         0000000000000000 0000000000000000 0000000000000000 0000000000000000");
    let told = "memory 0x33fe000+0xcc02000@0x33fe000/0x33fe000";
    backend.step(&memory, 1, &[told], ack(5));
}

fn set_up_uml_ring(backend: &mut Backend, index: u32) {
    let ring = UML_RING + u64::from(index) * 0x1_0000;
    let addresses = [u32s(&[index, 0]), u64s(&[ring, ring + 0x3000, ring + 0x2000, u64::MAX])];
    backend.step(&message(13, NEED_REPLY, &u64s(&[index.into()])), 1, &[], ack(13));
    backend.step(&message(8, NEED_REPLY, &u32s(&[index, 256])), 0, &[], ack(8));
    backend.step(&message(10, NEED_REPLY, &u32s(&[index, 0])), 0, &[], ack(10));
    backend.step(&message(9, NEED_REPLY, &addresses.concat()), 0, &[], ack(9));
}

fn start_uml_rings(backend: &mut Backend, format: &str, base: &str) {
    (0..3).for_each(|index| set_up_uml_ring(backend, index));
    for (index, ring) in [(0u32, 0x400), (1, 0x401), (2, 0x402)] {
        let kick = message(12, NEED_REPLY, &u64s(&[index.into()]));
        backend.step(&kick, 1, &[], ack(12));
        let enable = message(18, NEED_REPLY, &u32s(&[index, 1]));
        let areas = format!("{ring:#x}0000/{ring:#x}2000/{ring:#x}3000");
        let start = format!("start {index} {format} 256 at {areas} base {base} kick call");
        backend.step(&enable, 0, &[&start], ack(18));
    }
}

fn remove_uml_module(backend: &mut Backend) {
    for index in [2, 1, 0] {
        let disable = message(18, NEED_REPLY, &u32s(&[index, 0]));
        let stop = format!("stop {index}");
        // The packets that the guest has just sent in its transmitq go nowhere.
        let effects = if index == 1 { vec![&*stop, "discard 1"] } else { vec![&*stop] };
        backend.step(&disable, 0, &effects, ack(18));
    }
    let features = reply(1, &u64s(&[FEATURES | common::BIT_30]));
    backend.step(&message(1, FLAGS, &[]), 0, &[], features);
}

#[test]
fn user_mode_linux_split_then_the_module_is_loaded_again() {
    let mut backend = Backend::new();
    boot_uml(&mut backend);
    for _ in 0..2 {
        probe_uml(&mut backend, 0x1_7001_8028);
        start_uml_rings(&mut backend, "split", "0x0");
        backend.stands_at = Position { available: 77, used: 77, ..Position::FRESH };
        remove_uml_module(&mut backend);
    }
}

#[test]
fn user_mode_linux_packed_starts_fresh_although_it_says_wrap_counter_0() {
    let mut backend = Backend::new();
    boot_uml(&mut backend);
    for _ in 0..2 {
        probe_uml(&mut backend, 0x5_7001_8028);
        start_uml_rings(&mut backend, "packed", "0x80008000");
        let (available_wrap, used_wrap) = (false, false);
        backend.stands_at = Position { available: 3, available_wrap, used: 3, used_wrap };
        remove_uml_module(&mut backend);
    }
}

#[test]
fn user_mode_linux_that_loses_bit_30_starts_its_rings_with_the_kick() {
    let mut backend = Backend::new();
    boot_uml(&mut backend);
    let first = message(2, NEED_REPLY, &u64s(&[0x1_7001_8028]));
    backend.step(&first, 0, &["features 0x130018028"], ack(2));
    probe_uml(&mut backend, 0x1_3001_8020);
    set_up_uml_ring(&mut backend, 0);
    let start = "start 0 split 256 at 0x4000000/0x4002000/0x4003000 base 0x0 kick call";
    backend.step(&message(12, NEED_REPLY, &u64s(&[0])), 1, &[start], ack(12));
}

/// Device bring-up of QEMU, until the guest's driver is ready.
fn boot_qemu(backend: &mut Backend) {
    let features = reply(1, &u64s(&[FEATURES | common::BIT_30]));
    backend.step(&message(1, FLAGS, &[]), 0, &[], features.clone());
    let offered = reply(15, &u64s(&[common::PROTOCOL_FEATURES]));
    backend.step(&message(15, FLAGS, &[]), 0, &[], offered);
    let accepted = common::PROTOCOL_FEATURES & !(1 << 9);
    backend.step(&message(16, FLAGS, &u64s(&[accepted])), 0, &[], None);
    backend.step(&message(21, NEED_REPLY, &[]), 1, &["channel"], ack(21));
    backend.step(&message(3, FLAGS, &[]), 0, &[], None);
    backend.step(&message(1, FLAGS, &[]), 0, &[], features);
    for index in 0..2 {
        backend.step(&message(13, FLAGS, &u64s(&[index])), 1, &[], None);
        backend.step(&message(14, FLAGS, &u64s(&[index])), 1, &[], None);
    }
    for _ in 0..3 {
        for index in 0..2 {
            backend.step(&message(18, NEED_REPLY, &u32s(&[index, 1])), 0, &[], ack(18));
        }
    }
}

/// The guest's driver is ready: below and above the VGA hole the memory is one file.
fn start_qemu(backend: &mut Backend, features: u64, base: u32, start: &str) {
    let told = format!("features {features:#x}");
    let accept = message(2, FLAGS, &u64s(&[features | common::BIT_30]));
    backend.step(&accept, 0, &[&told], None);
    let status = backend.send(&message(40, FLAGS, &[]), vec![]).reply;
    assert!(status.is_some());
    backend.step(&message(39, FLAGS, &u64s(&[11])), 0, &[], None);
    let low = u64s(&[0, 0xa_0000, 0x7f00_0000_0000, 0]);
    let high = u64s(&[0xc_0000, 0x1ff4_0000, 0x7f00_000c_0000, 0xc_0000]);
    let table = message(5, NEED_REPLY, &[u32s(&[2, 0]), low, high].concat());
    let memory = "memory 0x0+0xa0000@0x7f0000000000/0x0 0xc0000+0x1ff40000@0x7f00000c0000/0xc0000";
    backend.step(&table, 2, &[memory], ack(5));
    for index in 0..2u32 {
        let ring = 0x7f00_0100_0000;
        backend.step(&message(8, FLAGS, &u32s(&[index, 256])), 0, &[], None);
        backend.step(&message(10, FLAGS, &u32s(&[index, base])), 0, &[], None);
        backend.step(&message(9, FLAGS, &common::ring_addresses(index, ring)), 0, &[], None);
        let areas = "at 0x1000000/0x1001000/0x1002000";
        let start = format!("start {index} {start} {areas} base {base:#x} kick call error");
        backend.step(&message(12, FLAGS, &u64s(&[index.into()])), 1, &[&start], None);
        let call = format!("set {index} call");
        backend.step(&message(13, FLAGS, &u64s(&[index.into()])), 1, &[&call], None);
    }
    backend.step(&message(39, FLAGS, &u64s(&[15])), 0, &[], None);
}

fn stop_qemu(backend: &mut Backend, base: u32) {
    for index in 0..2 {
        let stop = format!("stop {index}");
        let answer = reply(11, &u32s(&[index, base]));
        backend.step(&message(11, FLAGS, &u32s(&[index, 0])), 0, &[&stop], answer);
    }
    backend.step(&message(39, FLAGS, &u64s(&[0])), 0, &["reset"], None);
}

#[test]
fn qemu_enables_before_it_negotiates_and_reboots_its_guest() {
    let mut backend = Backend::new();
    boot_qemu(&mut backend);
    start_qemu(&mut backend, 0x1_3001_8020, 0, "split 256");
    backend.stands_at = Position { available: 0xbeef, used: 0xbeef, ..Position::FRESH };
    stop_qemu(&mut backend, 0xbeef);
    // The wish to have the rings enabled comes again with every start.
    for index in 0..2 {
        backend.step(&message(18, NEED_REPLY, &u32s(&[index, 1])), 0, &[], ack(18));
    }
    start_qemu(&mut backend, 0x1_3001_8020, 0, "split 256");
}

#[test]
fn qemu_packed_continues_where_it_was_told() {
    let mut backend = Backend::new();
    boot_qemu(&mut backend);
    start_qemu(&mut backend, 0x5_3001_8020, 0x8000_8000, "packed 256");
    backend.stands_at =
        Position { available: 5, available_wrap: false, used: 255, used_wrap: true };
    stop_qemu(&mut backend, 0x80ff_0005);
    for index in 0..2 {
        backend.step(&message(18, NEED_REPLY, &u32s(&[index, 1])), 0, &[], ack(18));
    }
    start_qemu(&mut backend, 0x5_3001_8020, 0x80ff_0005, "packed 256");
}

#[test]
fn dpdk_virtio_user_packed_gives_only_half_of_the_position() {
    let mut backend = Backend::new();
    backend.step(&message(3, FLAGS, &[]), 0, &[], None);
    let features = reply(1, &u64s(&[FEATURES | common::BIT_30]));
    backend.step(&message(1, FLAGS, &[]), 0, &[], features);
    let offered = reply(15, &u64s(&[common::PROTOCOL_FEATURES]));
    backend.step(&message(15, FLAGS, &[]), 0, &[], offered);
    backend.step(&message(16, FLAGS, &u64s(&[1 << 3 | 1 << 16])), 0, &[], None);
    for index in 0..2 {
        backend.step(&message(13, FLAGS, &u64s(&[index])), 1, &[], None);
    }
    let accept = message(2, FLAGS, &u64s(&[0x5_0001_8020 | common::BIT_30]));
    backend.step(&accept, 0, &["features 0x500018020"], None);
    backend.step(&message(39, NEED_REPLY, &u64s(&[11])), 0, &[], ack(39));
    backend.step(&message(40, FLAGS, &[]), 0, &[], reply(40, &u64s(&[11])));
    let region = u64s(&[0x1_0000_0000, 0x400_0000, 0x1_0000_0000, 0]);
    let table = message(5, NEED_REPLY, &[u32s(&[1, 0]), region].concat());
    let memory = "memory 0x100000000+0x4000000@0x100000000/0x0";
    backend.step(&table, 1, &[memory], ack(5));
    for index in 0..2u32 {
        let addresses = common::ring_addresses(index, 0x1_0010_0000);
        backend.step(&message(8, FLAGS, &u32s(&[index, 256])), 0, &[], None);
        backend.step(&message(10, FLAGS, &u32s(&[index, 0x8000])), 0, &[], None);
        backend.step(&message(9, FLAGS, &addresses), 0, &[], None);
        backend.step(&message(12, FLAGS, &u64s(&[index.into()])), 1, &[], None);
    }
    for index in 0..2u32 {
        let areas = "at 0x100100000/0x100101000/0x100102000";
        let start = format!("start {index} packed 256 {areas} base 0x80008000 kick call");
        backend.step(&message(18, NEED_REPLY, &u32s(&[index, 1])), 0, &[&start], ack(18));
    }
}
