//! Guests that stop, go elsewhere and come: where their stations are meanwhile, what is announced
//! and counted, and what the log says. No guest here sends a packet but where that is said.

mod common;

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use common::{Ringway, wait_for};
use ringway_testkit::{Answer, REGIONS, RawFrontEnd, pair};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::write;
use serde_json::Value;

const SET_FEATURES: u32 = 2;
const SET_LOG_BASE: u32 = 6;
const SET_VRING_BASE: u32 = 10;
const GET_VRING_BASE: u32 = 11;
const SET_VRING_ENABLE: u32 = 18;
const SEND_RARP: u32 = 19;
const SET_STATUS: u32 = 39;

const FEATURES: u64 = 1 << 32 | 1 << 30;
const LOG_ALL: u64 = 1 << 26;
/// Bytes of a log that ends with the last page of the memory.
const LOG_LEN: u64 = (REGIONS[1].0 + REGIONS[1].1) / (8 * 4096);

const MAC: [u8; 6] = [0x52, 0x54, 0, 0, 0, 1];

/// A front-end that reads no configuration, as QEMU, without a running queue.
fn connected(directory: &Path, port: &str) -> RawFrontEnd {
    let socket = directory.join(format!("{port}.sock"));
    let mut front_end = wait_for("a port", || RawFrontEnd::connect(&socket).ok());
    let Answer::Number(offered) = front_end.request(15, &[], &[]).expect("a good device") else {
        panic!("no protocol features");
    };
    must(&mut front_end, 16, &(offered & !(1 << 9)).to_le_bytes(), &[]);
    front_end
}

fn must(front_end: &mut RawFrontEnd, code: u32, payload: &[u8], fds: &[&OwnedFd]) {
    let fds: Vec<_> = fds.iter().map(|fd| fd.as_fd()).collect();
    let answer = front_end.request(code, payload, &fds).expect("a good device");
    assert!(answer.is_done(), "{code}: {answer:?}");
}

/// Its queues run.
fn start(front_end: &mut RawFrontEnd) {
    must(front_end, SET_FEATURES, &FEATURES.to_le_bytes(), &[]);
    let (table, file) = (front_end.memory_table(), front_end.memory.file().try_clone_to_owned());
    let file = file.expect("a descriptor");
    must(front_end, 5, &table, &[&file, &file]);
    for index in 0..2 {
        front_end.start_queue(index).expect("a good device");
    }
}

fn running(directory: &Path, port: &str) -> RawFrontEnd {
    let mut front_end = connected(directory, port);
    start(&mut front_end);
    front_end
}

/// How its queues stop.
#[derive(Debug, Clone, Copy)]
enum Stop {
    Bases,
    Status,
    Disable,
}

fn stop(front_end: &mut RawFrontEnd, how: Stop) {
    match how {
        Stop::Bases => {
            for index in 0..2 {
                front_end.request(GET_VRING_BASE, &pair(index, 0), &[]).expect("a base");
            }
        }
        Stop::Status => must(front_end, SET_STATUS, &0_u64.to_le_bytes(), &[]),
        Stop::Disable => {
            (0..2).for_each(|index| must(front_end, SET_VRING_ENABLE, &pair(index, 0), &[]));
        }
    }
}

/// Its memory is copied from now on.
fn begin(front_end: &mut RawFrontEnd) {
    let log = memfd_create("log", MemfdFlags::CLOEXEC).expect("a file");
    ftruncate(&log, LOG_LEN).expect("room");
    let payload = [LOG_LEN, 0].map(u64::to_le_bytes).concat();
    let answer = front_end.request(SET_LOG_BASE, &payload, &[log.as_fd()]);
    assert_eq!(answer.expect("a good device"), Answer::Bytes(payload));
    must(front_end, SET_FEATURES, &(FEATURES | LOG_ALL).to_le_bytes(), &[]);
}

/// Sends a packet from that address, on the transmitq: its first, or the next.
fn say(front_end: &RawFrontEnd, number: u8, source: [u8; 6], to: [u8; 6]) {
    const PACKET_AT: usize = 0x4_0000;
    const LEN: u8 = 12 + 60;
    let memory = front_end.memory.region(0);
    memory.write(PACKET_AT, &[&[0; 12][..], &to, &source, &[0x88, 0xb5]].concat());
    let address = REGIONS[0].0 + PACKET_AT as u64;
    memory.write(0x1000, &[&address.to_le_bytes()[..], &[LEN, 0, 0, 0], &[0; 4]].concat());
    memory.write(0x1000 + 0x800, &[0, 0, number, 0]);
    write(&front_end.kicks[1], &1_u64.to_ne_bytes()).expect("an eventfd");
}

fn port(ringway: &Ringway, name: &str) -> Value {
    let stats: Value = serde_json::from_str(&ringway.told(&["stats", "--json"])).expect("JSON");
    let ports = stats["ports"].as_array().expect("ports");
    ports.iter().find(|port| port["name"] == name).expect("a port").clone()
}

fn counts(ringway: &Ringway, name: &str) -> [u64; 3] {
    let port = port(ringway, name);
    ["moved_addresses", "migrations_in", "migrations_out"]
        .map(|key| port[key].as_u64().unwrap_or_else(|| panic!("{key}: {port}")))
}

/// The port that the address is known at.
fn place(ringway: &Ringway) -> Option<String> {
    let told: Value = serde_json::from_str(&ringway.told(&["fdb", "--json"])).expect("JSON");
    let addresses = told["addresses"].as_array().expect("addresses");
    let known = addresses.iter().find(|it| it["mac"] == "52:54:00:00:00:01");
    known.map(|it| it["port"].as_str().expect("a name").to_owned())
}

fn is_at(ringway: &Ringway, name: &str) {
    wait_for(name, || (place(ringway).as_deref() == Some(name)).then_some(()));
}

fn ringway(directory: &Path, ports: &[&str]) -> Ringway {
    let arguments: Vec<&str> = ports.iter().flat_map(|port| ["--port", port]).collect();
    Ringway::run(directory, &arguments)
}

const PORTS: [&str; 4] = [
    "a=vm:a.sock,mac=52:54:00:00:00:01",
    "b=vm:b.sock,mac=52:54:00:00:00:02",
    "c=vm:c.sock,mac=52:54:00:00:00:03",
    "d=vm:d.sock,mac=52:54:00:00:00:04",
];

/// It goes on exactly where the rings of one stood that has stopped for its migration.
#[test]
fn a_guest_that_stops_for_its_migration_goes_on_at_another_port_unheard() {
    for how in [Stop::Bases, Stop::Status, Stop::Disable] {
        let directory = tempfile::tempdir().expect("a directory");
        let ringway = ringway(directory.path(), &PORTS);
        let mut source = connected(directory.path(), "a");
        start_at(&mut source, 7);
        let mut target = connected(directory.path(), "b");
        say(&source, 8, MAC, [0xff; 6]);
        is_at(&ringway, "a");
        begin(&mut source);
        stop(&mut source, how);
        // Known still, but not to be sent to.
        wait_for("it stops", || place(&ringway).is_none().then_some(()));
        // Other guests are not it.
        let _new = running(directory.path(), "c");
        let mut other = connected(directory.path(), "d");
        start_at(&mut other, 5);
        assert_eq!(place(&ringway), None, "{how:?}");
        start_at(&mut target, 7);
        is_at(&ringway, "b");
        assert_eq!(counts(&ringway, "b"), [1, 1, 0], "{how:?}");
        say(&target, 8, MAC, [0xff; 6]);
        wait_for("it speaks", || (port(&ringway, "b")["from_guest"]["packets"] == 1).then_some(()));
        drop(source);
        wait_for("it has gone", || (counts(&ringway, "a") == [0, 1, 1]).then_some(()));
        assert_eq!(counts(&ringway, "b"), [1, 1, 0], "{how:?}");
        is_at(&ringway, "b");
    }
}

/// As where ports change their addresses between two guests.
#[test]
fn a_guest_that_was_told_the_address_of_one_that_has_stopped_has_it_at_once() {
    let directory = tempfile::tempdir().expect("a directory");
    let ringway = ringway(directory.path(), &PORTS);
    let mut source = running(directory.path(), "a");
    say(&source, 1, MAC, [0xff; 6]);
    is_at(&ringway, "a");
    for change in [["a", "mac=52:54:00:00:00:09"], ["b", "mac=52:54:00:00:00:01"]] {
        ringway.told(&[&["port", "set"][..], &change].concat());
    }
    let mut target = connected(directory.path(), "b");
    stop(&mut source, Stop::Bases);
    wait_for("it stops", || place(&ringway).is_none().then_some(()));
    start(&mut target);
    is_at(&ringway, "b");
    assert_eq!(counts(&ringway, "b"), [1, 0, 0]);
}

#[test]
fn a_guest_that_runs_keeps_its_address() {
    let directory = tempfile::tempdir().expect("a directory");
    let ringway = ringway(directory.path(), &PORTS);
    let source = running(directory.path(), "a");
    say(&source, 1, MAC, [0xff; 6]);
    is_at(&ringway, "a");
    let mut target = connected(directory.path(), "b");
    must(&mut target, SEND_RARP, &rarp(MAC), &[]);
    start(&mut target);
    let mut third = connected(directory.path(), "c");
    must(&mut third, SEND_RARP, &rarp(MAC), &[]);
    start(&mut third);
    std::thread::sleep(Duration::from_millis(200));
    is_at(&ringway, "a");
    assert_eq!(counts(&ringway, "b"), [0; 3]);
    assert_eq!(counts(&ringway, "c"), [0; 3]);
}

fn rarp(mac: [u8; 6]) -> [u8; 8] {
    let mut payload = [0; 8];
    payload[..6].copy_from_slice(&mac);
    payload
}

/// As QEMU sends it at the destination: no features, memory or ring are there.
#[test]
fn an_announcement_that_comes_before_all_else_is_made_when_queues_run() {
    let directory = tempfile::tempdir().expect("a directory");
    let ringway = ringway(directory.path(), &PORTS);
    let mut source = running(directory.path(), "a");
    say(&source, 1, MAC, [0xff; 6]);
    is_at(&ringway, "a");
    let mut target = connected(directory.path(), "c");
    must(&mut target, SEND_RARP, &rarp(MAC), &[]);
    is_at(&ringway, "a");
    stop(&mut source, Stop::Status);
    let heard = running(directory.path(), "d");
    let before = port(&ringway, "d")["to_guest"].clone();
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(port(&ringway, "d")["to_guest"], before, "it is not here yet");
    start(&mut target);
    is_at(&ringway, "c");
    assert_eq!(counts(&ringway, "c"), [1, 0, 0]);
    // Told to all: this one has posted no buffer.
    wait_for("an announcement", || (port(&ringway, "d")["to_guest"] != before).then_some(()));
    drop(heard);
}

/// A driver that is reset, and an operator who only asks where a ring stands.
#[test]
fn a_guest_that_goes_on_is_where_it_was() {
    let directory = tempfile::tempdir().expect("a directory");
    let ringway = ringway(directory.path(), &PORTS);
    let mut source = running(directory.path(), "a");
    say(&source, 1, MAC, [0xff; 6]);
    is_at(&ringway, "a");
    stop(&mut source, Stop::Status);
    wait_for("it stops", || place(&ringway).is_none().then_some(()));
    start(&mut source);
    is_at(&ringway, "a");
    assert_eq!(counts(&ringway, "a"), [0; 3]);
    assert!(!ringway.log().contains("migration"), "{}", ringway.log());
}

#[test]
fn packets_for_a_guest_that_has_stopped_go_to_all() {
    let directory = tempfile::tempdir().expect("a directory");
    let ringway = ringway(directory.path(), &PORTS);
    let mut source = running(directory.path(), "a");
    let sender = running(directory.path(), "c");
    let _other = running(directory.path(), "d");
    say(&source, 1, MAC, [0xff; 6]);
    is_at(&ringway, "a");
    let reached = |name: &str| port(&ringway, name)["to_guest"]["drops"].clone();
    let before = reached("d");
    say(&sender, 1, [0x52, 0x54, 0, 0, 0, 3], MAC);
    let sent = |count: u64| (port(&ringway, "c")["from_guest"]["packets"] == count).then_some(());
    wait_for("a packet", || sent(1));
    assert_eq!(reached("d"), before, "it is known where the guest is");
    stop(&mut source, Stop::Status);
    say(&sender, 2, [0x52, 0x54, 0, 0, 0, 3], MAC);
    wait_for("another packet", || sent(2));
    wait_for("all", || (reached("d") != before).then_some(()));
}

#[test]
fn migrations_are_counted_and_told() {
    let directory = tempfile::tempdir().expect("a directory");
    let ringway = ringway(directory.path(), &PORTS);
    let mut source = running(directory.path(), "a");
    // Cancelled.
    begin(&mut source);
    ringway.assert_logged(&format!("migration begins (log of {} pages)", 8 * LOG_LEN));
    must(&mut source, SET_FEATURES, &FEATURES.to_le_bytes(), &[]);
    ringway.assert_logged("migration ended, the guest stays");
    // Stopped by QEMU 7.2, in the middle of an upgrade of the data plane.
    begin(&mut source);
    stop(&mut source, Stop::Status);
    ringway.assert_logged(" pages marked");
    assert_eq!(counts(&ringway, "a"), [0; 3], "it may go on here");
    ringway.told(&["upgrade"]);
    drop(source);
    wait_for("it goes", || (counts(&ringway, "a") == [0, 0, 1]).then_some(()));
    // It comes to another port, at another base.
    let mut target = connected(directory.path(), "b");
    start_at(&mut target, 7);
    wait_for("it comes", || (counts(&ringway, "b") == [0, 1, 0]).then_some(()));
    ringway.assert_logged("guest came, goes on at 0x7");
    // Its front-end connects again while it runs.
    drop(target);
    wait_for("it has gone", || (port(&ringway, "b")["connected"] == false).then_some(()));
    let mut target = connected(directory.path(), "b");
    start_at(&mut target, 9);
    wait_for("it runs", || (port(&ringway, "b")["state"] == "running").then_some(()));
    assert_eq!(counts(&ringway, "b"), [0, 1, 0]);
    let metrics = ringway.told(&["metrics"]);
    for line in ["migrations_out_total{port=\"a\"} 1", "migrations_in_total{port=\"b\"} 1"] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
    let log = ringway.log();
    assert_eq!(log.matches("guest came").count(), 1, "{log}");
    assert_eq!(log.matches("the guest stays").count(), 1, "{log}");
}

/// A front-end that needs more leaves without a word.
#[test]
fn the_log_has_once_what_a_guest_can_have() {
    let directory = tempfile::tempdir().expect("a directory");
    let ringway = ringway(directory.path(), &["a=vm:a.sock,mac=52:54:00:00:00:01"]);
    let _front_end = running(directory.path(), "a");
    ringway.told(&["upgrade"]);
    let log = ringway.log();
    let offers: Vec<&str> = log.lines().filter(|line| line.contains("offers features")).collect();
    let [offer] = offers[..] else { panic!("{log}") };
    assert!(offer.contains("features 0x") && offer.contains("MAC address 52:54:00:00:00:01, "));
}

/// Queues that go on at that base.
fn start_at(front_end: &mut RawFrontEnd, base: u32) {
    must(front_end, SET_FEATURES, &FEATURES.to_le_bytes(), &[]);
    let (table, file) = (front_end.memory_table(), front_end.memory.file().try_clone_to_owned());
    let file = file.expect("a descriptor");
    must(front_end, 5, &table, &[&file, &file]);
    for index in 0..2 {
        // The used and the available index of a ring that has been used so far.
        for area in [0x400, 0x800] {
            let at = area + 0x1000 * index as usize;
            front_end.memory.region(0).write(at, &[0, 0, base.to_le_bytes()[0], 0]);
        }
        let (size, kick) = (pair(index, 16), front_end.kicks[index as usize % 2].try_clone());
        let (kick, addresses) = (kick.expect("a descriptor"), front_end.addresses(index));
        must(front_end, 8, &size, &[]);
        must(front_end, SET_VRING_BASE, &pair(index, base), &[]);
        must(front_end, 9, &addresses, &[]);
        must(front_end, 12, &u64::from(index).to_le_bytes(), &[&kick]);
        must(front_end, SET_VRING_ENABLE, &pair(index, 1), &[]);
    }
}

/// Bridges behind taps are told of the stop, not of the end of the connection.
#[test]
fn a_guest_that_stops_leaves_the_bridge_at_once_and_comes_back() {
    let directory = tempfile::tempdir().expect("a directory");
    let ports = [
        "a=vm:a.sock,mac=52:54:00:00:00:01",
        "c=vm:c.sock,locked_mac=52:54:00:00:00:03,locked_ips=10.9.0.3",
        "up=tap:rwt0,fdb=sync,neighbours=sync",
    ];
    let arguments: Vec<&str> = ports.iter().flat_map(|port| ["--port", port]).collect();
    let Some(ringway) = Ringway::run_in_namespace(directory.path(), &arguments) else {
        println!("skipped: no network namespace or no /dev/net/tun here");
        return;
    };
    let run = |words: &str| ringway.inside(&words.split(' ').collect::<Vec<_>>());
    run("ip link add br0 type bridge forward_delay 0");
    if !run("ip link show br0").contains("br0") {
        println!("skipped: no bridges here");
        return;
    }
    for words in ["ip link set rwt0 master br0", "ip link set br0 up", "ip link set rwt0 up"] {
        run(words);
    }
    let known = |number: u8| {
        run("bridge fdb show br br0").contains(&format!("52:54:00:00:00:{number:02x}"))
    };
    let answers = || run("ip neigh show dev br0 nud all").contains("10.9.0.3 lladdr");
    let mut guests = ["a", "c"].map(|name| connected(directory.path(), name));
    std::thread::sleep(Duration::from_millis(300));
    assert!(!known(3) && !answers(), "a guest that has not begun is not here");
    for (round, how) in (1..).zip([Stop::Bases, Stop::Status, Stop::Disable, Stop::Status]) {
        guests.iter_mut().for_each(start);
        if round == 1 {
            say(&guests[0], 1, MAC, [0xff; 6]);
        }
        wait_for("all are known", || (known(1) && known(3) && answers()).then_some(()));
        guests.iter_mut().for_each(|guest| stop(guest, how));
        wait_for("they have left", || (!known(1) && !known(3) && !answers()).then_some(()));
    }
    assert!(!ringway.log().contains("front-end gone"), "{}", ringway.log());
}
