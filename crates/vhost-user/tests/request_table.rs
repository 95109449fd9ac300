//! Each request in each state of a ring, and whole sessions in the orders of known front-ends: what
//! is replied and what happens, in `golden/requests.txt` and `golden/orders.txt`.
//!
//! After a change that is meant, `RINGWAY_GOLDEN=write cargo test -p ringway-vhost-user --test
//! request_table` writes both anew; what differs is read before it is committed.

mod common;

use std::fmt::Write;
use std::path::Path;

use common::{Backend, NEED_REPLY, fds, message, ring_addresses, u32s, u64s};
use ringway_virtq::Position;

const BIT_30: u64 = common::BIT_30;
const VERSION_1: u64 = 1 << 32;
const RING_PACKED: u64 = 1 << 34;

/// States of ring 1, a transmitq, by what was sent to get there.
const STATES: [(&str, &[&str]); 11] = [
    ("nothing said", &[]),
    ("features", &["features"]),
    ("memory", &["features", "memory"]),
    ("described", &["features", "memory", "size 1", "base 1 0", "address 1"]),
    ("started, enabled or not unsaid", &[START, "set-kick 1"]),
    ("started, disabled", &[START, "set-kick 1", "disable 1"]),
    ("running", &[START, "set-kick 1", "enable 1"]),
    ("stopped by its base", &[START, "set-kick 1", "enable 1", "get-base 1"]),
    ("after a status of 0", &[START, "set-kick 1", "enable 1", "status 0"]),
    ("after RESET_DEVICE", &[START, "set-kick 1", "enable 1", "reset-device"]),
    ("its start has failed", &[START, "set-kick 1", "fails", "enable 1"]),
];

/// All up to the kick fd.
const START: &str = "features, memory, size 1, base 1 0, address 1, set-call 1";

const REQUESTS: [&str; 36] = [
    "owner",
    "get-features",
    "features",
    "packed-features",
    "protocol-features",
    "memory",
    "add-memory",
    "remove-memory",
    "size 1",
    "address 1",
    "base 1 7",
    "get-base 1",
    "set-kick 1",
    "no-kick 1",
    "set-call 1",
    "set-error 1",
    "enable 1",
    "disable 1",
    "status 15",
    "status 0",
    "get-status",
    "reset-owner",
    "reset-device",
    "get-config",
    "set-config",
    "get-queue-num",
    "get-max-mem-slots",
    "get-protocol-features",
    "channel",
    "rarp",
    "mtu",
    "log-base",
    "inflight",
    "unknown",
    "kicked 1",
    "kicked-quiet 1",
];

/// The requests of front-ends that start, stop and go on. Rings 0 and 1; a device that stops has
/// used three.
const ORDERS: [(&str, &[&str]); 10] = [
    ("QEMU 7.2: start, stop, cont", &[QEMU, "status 0, get-base 0, get-base 1", QEMU_AGAIN]),
    (
        "QEMU 10: start, stop, cont, guest reset",
        &["reset-device", QEMU, "get-base 0, get-base 1, status 0", QEMU_AGAIN, "reset-device"],
    ),
    ("QEMU: info virtio-queue-status", &[QEMU, "get-base 0, kicked 1, kicked-quiet 1"]),
    ("QEMU: the same while its guest is idle", &[QEMU, "get-base 0, quiet"]),
    (
        "QEMU 7.2 with two pairs: memory once for each",
        &[QEMU, "add-memory, add-memory", "remove-memory, remove-memory"],
    ),
    ("DPDK virtio-user: start, stop, start", &[DPDK, "get-base 0, get-base 1, status 0", DPDK]),
    ("DPDK virtio-user, packed", &["packed-features", DPDK_PACKED, "get-base 1, base 1 32771"]),
    ("User Mode Linux: the module twice", &[UML, "disable 1, disable 0, get-features", UML]),
    (
        "Cloud Hypervisor: start, pause, resume, reset",
        &[
            "owner, features, memory",
            "size 0, address 0, base 0 0, set-call 0, set-kick 0, size 1, address 1, base 1 0",
            "set-call 1, set-kick 1, enable 0, enable 1",
            "disable 0, disable 1, enable 0, enable 1",
            "disable 0, get-base 0, disable 1, get-base 1",
        ],
    ),
    (
        "crosvm: start, suspend, resume",
        &[
            "owner, features, memory, size 0, address 0, base 0 0, set-call 0, set-kick 0, \
             enable 0",
            "size 1, address 1, base 1 0, set-call 1, set-kick 1, enable 1",
            "get-base 0, get-base 1",
            "size 0, address 0, base 0 3, set-call 0, set-kick 0, enable 0",
            "size 1, address 1, base 1 3, set-call 1, set-kick 1, enable 1",
        ],
    ),
];

const QEMU: &str = "set-call 0, set-error 0, set-call 1, set-error 1, enable 0, enable 1, \
    features, get-status, status 11, memory, size 0, base 0 0, address 0, set-kick 0, set-call 0, \
    size 1, base 1 0, address 1, set-kick 1, set-call 1, status 15";
const QEMU_AGAIN: &str = "enable 0, enable 1, features, status 8, memory, size 0, base 0 3, \
    address 0, set-kick 0, set-call 0, size 1, base 1 3, address 1, set-kick 1, set-call 1, \
    status 15";
const DPDK: &str = "set-call 0, set-call 1, features, status 11, memory, size 0, base 0 0, \
    address 0, set-kick 0, size 1, base 1 0, address 1, set-kick 1, enable 0, enable 1, status 15";
const DPDK_PACKED: &str =
    "memory, size 1, base 1 32768, address 1, set-kick 1, enable 1, status 15";
const UML: &str = "features, features-without-30, features, memory, set-call 0, size 0, base 0 0, \
    address 0, set-call 1, size 1, base 1 0, address 1, set-kick 0, enable 0, set-kick 1, enable 1";

/// A request by its name: number, payload, descriptors.
fn request(step: &str) -> (u32, Vec<u8>, usize) {
    let mut words = step.split(' ');
    let name = words.next().unwrap_or_default();
    let mut number = || words.next().map_or(0, |word| word.parse::<u32>().expect("a number"));
    let region = u64s(&[0x10_0000, 0x10_0000, 0x7000_0000, 0]);
    let more = u64s(&[0, 0x90_0000, 0x1000, 0x9000_0000, 0]);
    match name {
        "get-features" => (1, vec![], 0),
        "features" => (2, u64s(&[VERSION_1 | BIT_30]), 0),
        "features-without-30" => (2, u64s(&[VERSION_1]), 0),
        "packed-features" => (2, u64s(&[VERSION_1 | BIT_30 | RING_PACKED]), 0),
        "owner" => (3, vec![], 0),
        "reset-owner" => (4, vec![], 0),
        "memory" => (5, [u32s(&[1, 0]), region].concat(), 1),
        "log-base" => (6, u64s(&[0, 0]), 1),
        "size" => (8, u32s(&[number(), 256]), 0),
        "address" => {
            let ring = number();
            (9, ring_addresses(ring, 0x7000_0000 + u64::from(ring) * 0x4000), 0)
        }
        "base" => (10, u32s(&[number(), number()]), 0),
        "get-base" => (11, u32s(&[number(), 0]), 0),
        "set-kick" => (12, u64s(&[number().into()]), 1),
        "no-kick" => (12, u64s(&[u64::from(number()) | 0x100]), 0),
        "set-call" => (13, u64s(&[number().into()]), 1),
        "set-error" => (14, u64s(&[number().into()]), 1),
        "get-protocol-features" => (15, vec![], 0),
        "protocol-features" => (16, u64s(&[1 << 3]), 0),
        "get-queue-num" => (17, vec![], 0),
        "enable" => (18, u32s(&[number(), 1]), 0),
        "disable" => (18, u32s(&[number(), 0]), 0),
        "rarp" => (19, u64s(&[0x5452]), 0),
        "mtu" => (20, u64s(&[1500]), 0),
        "channel" => (21, vec![], 1),
        "get-config" => (24, u32s(&[0, 6, 0]), 0),
        "set-config" => (25, u32s(&[0, 1, 0, 7]), 0),
        "inflight" => (31, vec![0; 24], 0),
        "reset-device" => (34, vec![], 0),
        "get-max-mem-slots" => (36, vec![], 0),
        "add-memory" => (37, more, 1),
        "remove-memory" => (38, more, 0),
        "status" => (39, u64s(&[number().into()]), 0),
        "get-status" => (40, vec![], 0),
        "unknown" => (99, vec![], 0),
        _ => panic!("{step}: no such request"),
    }
}

/// Sends one request, or lets the guest kick; reply and effects in one line.
fn take(backend: &mut Backend, step: &str) -> String {
    let (first, rest) = step.split_once(' ').unwrap_or((step, ""));
    if let "kicked" | "kicked-quiet" | "quiet" = first {
        let watched = backend.watched.clone();
        let kicked: Vec<u16> = rest.parse().into_iter().collect();
        let effects = backend.kick(&kicked, first != "kicked");
        return line("-", effects, &watched, backend);
    }
    let (code, payload, fd_count) = request(step);
    let watched = backend.watched.clone();
    let step = backend.send(&message(code, NEED_REPLY, &payload), fds(fd_count));
    let reply = match step.reply.as_deref().map(|reply| &reply[12..]) {
        None => "-".to_string(),
        Some([]) => "empty".to_string(),
        Some(bytes) if code == 11 => {
            format!("base {}", u32::from_le_bytes(bytes[4..].try_into().expect("a base")))
        }
        Some(bytes) => match <[u8; 8]>::try_from(bytes).map(u64::from_le_bytes) {
            Ok(number) => format!("{number:#x}"),
            Err(_) => format!("{} bytes", bytes.len()),
        },
    };
    let reply = step.refused.map_or(reply.clone(), |why| format!("{reply} ({why})"));
    line(&reply, step.effects, &watched, backend)
}

fn line(reply: &str, effects: Vec<String>, watched: &str, backend: &Backend) -> String {
    let watch = (watched != backend.watched).then(|| backend.watched.clone());
    let effects: Vec<String> = watch.into_iter().chain(effects).collect();
    match effects.is_empty() {
        true => reply.to_string(),
        false => format!("{reply} => {}", effects.join("; ")),
    }
}

fn steps<'a>(steps: &'a [&'a str]) -> impl Iterator<Item = &'a str> {
    steps.iter().flat_map(|step| step.split(", ").map(str::trim))
}

fn backend() -> Backend {
    let mut backend = Backend::new();
    backend.stands_at = Position { available: 3, used: 3, ..Position::FRESH };
    backend
}

fn in_state(said: &[&str]) -> Backend {
    let mut backend = backend();
    for step in steps(said) {
        if step == "fails" {
            backend.succeeds = false;
        } else {
            take(&mut backend, step);
        }
    }
    backend.succeeds = true;
    backend
}

fn compare(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("RINGWAY_GOLDEN").is_some() {
        std::fs::write(&path, text).expect("a file that can be written");
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    for (at, (line, expected)) in text.lines().zip(expected.lines()).enumerate() {
        assert_eq!(line, expected, "{name}, line {}", at + 1);
    }
    assert_eq!(text.lines().count(), expected.lines().count(), "lines of {name}");
}

#[test]
fn each_request_in_each_state_of_a_ring() {
    let mut text = String::new();
    for (state, said) in STATES {
        writeln!(text, "{state}").expect("text");
        for request in REQUESTS {
            let outcome = take(&mut in_state(said), request);
            writeln!(text, "    {request:<22}{outcome}").expect("text");
        }
    }
    compare("requests.txt", &text);
}

#[test]
fn the_orders_of_known_front_ends() {
    let mut text = String::new();
    for (name, said) in ORDERS {
        writeln!(text, "{name}").expect("text");
        let mut backend = backend();
        for step in steps(said) {
            let outcome = take(&mut backend, step);
            writeln!(text, "    {step:<22}{outcome}").expect("text");
        }
        let running: Vec<u16> = backend.session.running().collect();
        writeln!(text, "    running: {running:?}").expect("text");
    }
    compare("orders.txt", &text);
}
