//! Leases, names and forwards of a router outlive data planes, and ringway itself.

mod common;
#[path = "common/nat_guest.rs"]
mod nat_guest;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use common::{LIMIT, Ringway, wait_for};
use nat_guest::{Guest, UDP, datagram};
use ringway_extent::Extent;
use ringway_testkit::GuestOptions;
use rustix::process::{Signal, kill_process};
use serde_json::Value;

const ICMP: u8 = 1;
const TCP: u8 = 6;
const DNS: [u8; 4] = [10, 0, 2, 3];
const GATEWAY: [u8; 4] = [10, 0, 2, 2];

fn options(last: u8) -> GuestOptions {
    GuestOptions { mac: [2, 0x72, 0x77, 0, 0, last], ..GuestOptions::default() }
}

/// It gets an answer from the router, which it may have to wait for.
fn ping(guest: &mut Guest, number: u8) {
    let mut tries = 0u32;
    wait_for("an answer to a ping", || {
        if tries.is_multiple_of(20) {
            guest.send_to(GATEWAY, ICMP, &[8, 0, 0, 0, 1, 1, 0, number]);
        }
        tries += 1;
        let (_, frame) = guest.nic.receive().expect("a good device")?;
        (frame[23] == ICMP && frame[34] == 0 && frame[41] == number).then_some(())
    });
}

/// The router's answer for that name.
fn address_of(guest: &mut Guest, name: &str) -> [u8; 4] {
    let mut question = vec![7, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        question.push(u8::try_from(label.len()).expect("short"));
        question.extend(label.as_bytes());
    }
    question.extend([0, 0, 1, 0, 1]);
    guest.send_to(DNS, UDP, &datagram([5353, 53], &question));
    let answer = guest.receive(UDP, |payload| payload[..2] == [0, 53] && payload[8..10] == [7, 7]);
    *answer.last_chunk().expect("an address")
}

/// A client comes by the forward, and the guest is asked.
fn is_forwarded(guest: &mut Guest, at: SocketAddr) {
    let client = std::thread::spawn(move || {
        let mut client = TcpStream::connect_timeout(&at, LIMIT).expect("it listens");
        client.set_read_timeout(Some(Duration::from_millis(1))).expect("a timeout");
        let _ = client.write(b"?");
        let _ = client.read(&mut [0]);
    });
    let syn = guest.receive(TCP, |segment| segment[13] == 2);
    assert_eq!(syn[22..24], 80u16.to_be_bytes());
    client.join().expect("no panic");
}

fn leased(ringway: &Ringway) -> Vec<(String, String)> {
    let shown = ringway.told(&["port", "show", "net", "--json"]);
    let shown: Value = serde_json::from_str(&shown).expect("JSON");
    let guests = shown["guests"].as_array().expect("guests").iter();
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let all = guests.map(|it| (text(&it["port"]), text(&it["addresses"][0])));
    let mut all: Vec<_> = all.collect();
    all.sort();
    all
}

fn free_address() -> SocketAddr {
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    free.local_addr().expect("an address")
}

fn run(directory: &Path, at: SocketAddr) -> Ringway {
    let router = format!("net=nat:,forward=tcp:{at}:b:80");
    let ports = ["a=vm:a.sock", "b=vm:b.sock", "c=vm:c.sock", "d=vm:d.sock", &router];
    Ringway::run(directory, &ports.map(|port| ["--port", port]).concat())
}

#[test]
fn leases_names_and_forwards_outlive_data_planes_and_ringway() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = free_address();
    let mut ringway = run(directory.path(), at);
    let guest = |port, last| Guest::new(directory.path(), port, &options(last));
    let (mut a, mut b) = (guest("a", 1), guest("b", 2));
    assert_eq!([a.address(), b.address()], [[10, 0, 2, 15], [10, 0, 2, 16]]);
    let known = leased(&ringway);
    let mut others = Vec::new();
    for (number, way) in (1..).zip(["killed", "upgraded", "stopped"]) {
        // Until the supervisor knows of them.
        std::thread::sleep(Duration::from_millis(400));
        match way {
            "killed" => kill_process(ringway.data_plane(), Signal::KILL).expect("it runs"),
            "upgraded" => drop(ringway.told(&["upgrade"])),
            _ => {
                ringway.must_end_soon(LIMIT);
                ringway = run(directory.path(), at);
                let again = |port, last, it: &Guest| {
                    Guest::again(directory.path(), port, &options(last), it.address())
                };
                (a, b) = (again("a", 1, &a), again("b", 2, &b));
            }
        }
        ping(&mut a, number);
        let now = leased(&ringway);
        assert!(known.iter().all(|it| now.contains(it)), "{way}: {now:?}");
        assert_eq!(address_of(&mut a, "b.internal"), [10, 0, 2, 16], "{way}");
        is_forwarded(&mut b, at);
        if way != "stopped" {
            let new = guest(["c", "d"][usize::from(number) - 1], 2 + number);
            assert_eq!(new.address(), [10, 0, 2, 16 + number], "{way}");
            others.push(new);
        }
        for it in [&mut a, &mut b] {
            ping(it, 100 + number);
        }
    }
    assert_eq!(leased(&ringway).len(), 4);
}

/// Ends, each followed by a guest that is new.
const ENDS: Extent = Extent::new("RINGWAY_ENDS", 6, 60);

/// Whatever ends, a guest that is new gets an address that no other one has, and the others go on
/// within the time that such an end may take.
#[test]
fn a_new_guest_gets_no_address_that_is_in_use_whatever_has_ended() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = free_address();
    let mut ringway = run(directory.path(), at);
    let guest = |port, last| Guest::new(directory.path(), port, &options(last));
    let (mut a, mut b) = (guest("a", 1), guest("b", 2));
    let others = [a.address(), b.address()];
    for round in 1..=u8::try_from(ENDS.announced()).expect("few") {
        // Until the supervisor knows of them; of deaths in a row the later ones wait.
        std::thread::sleep(Duration::from_millis(500));
        match round % 3 {
            0 => kill_process(ringway.data_plane(), Signal::KILL).expect("it runs"),
            1 => drop(ringway.told(&["upgrade"])),
            _ => {
                ringway.must_end_soon(LIMIT);
                ringway = run(directory.path(), at);
                let again = |port, last, address| {
                    Guest::again(directory.path(), port, &options(last), address)
                };
                (a, b) = (again("a", 1, others[0]), again("b", 2, others[1]));
            }
        }
        let new = guest("c", 2 + round);
        assert!(!others.contains(&new.address()), "round {round}: {:?}", new.address());
        ping(&mut a, round);
        assert_eq!(address_of(&mut a, "b.internal"), others[1], "round {round}");
        is_forwarded(&mut b, at);
    }
}

/// Only `range` takes leases away.
#[test]
fn a_change_of_host_or_mtu_takes_no_lease_away() {
    let directory = tempfile::tempdir().expect("a directory");
    let ports = ["--port", "a=vm:a.sock", "--port", "net=nat:"];
    let ringway = Ringway::run(directory.path(), &ports);
    let mut guest = Guest::new(directory.path(), "a", &options(1));
    let known = leased(&ringway);
    for (number, change) in (1..).zip(["host=10.0.2.2", "host=default", "mtu=1400"]) {
        ringway.told(&["port", "set", "net", change]);
        assert_eq!(leased(&ringway), known, "{change}");
        ping(&mut guest, number);
    }
    ringway.told(&["port", "set", "net", "range=10.0.9.0/24"]);
    assert_eq!(leased(&ringway), []);
}

/// The next port may get the number of one that was removed.
#[test]
fn a_port_that_is_added_has_no_stations_of_one_that_was_removed() {
    let directory = tempfile::tempdir().expect("a directory");
    let ports = ["--port", "a=vm:a.sock", "--port", "net=nat:"];
    let ringway = Ringway::run(directory.path(), &ports);
    let guest = Guest::new(directory.path(), "a", &options(1));
    assert_eq!(leased(&ringway).len(), 1);
    // Until the supervisor knows of it.
    std::thread::sleep(Duration::from_millis(400));
    drop(guest);
    ringway.told(&["port", "remove", "a"]);
    ringway.told(&["port", "add", "b=vm:b.sock"]);
    kill_process(ringway.data_plane(), Signal::KILL).expect("it runs");
    let guest = Guest::new(directory.path(), "b", &options(2));
    assert_eq!(guest.address(), [10, 0, 2, 15]);
    assert_eq!(leased(&ringway), [("b".to_owned(), "10.0.2.15".to_owned())]);
}

/// Leases that cannot be written are said once, and written as soon as they can be.
#[test]
fn leases_that_could_not_be_written_are_written_later() {
    let directory = tempfile::tempdir().expect("a directory");
    let state = directory.path().join("state");
    std::fs::write(&state, "").expect("room");
    let mut command = Command::new("sh");
    let line = format!(
        "STATE_DIRECTORY={} exec {} \"$@\"",
        state.display(),
        env!("CARGO_BIN_EXE_ringway")
    );
    command.args(["-c", &line, "sh"]);
    let ports = ["--port", "a=vm:a.sock", "--port", "net=nat:"];
    let ringway = Ringway::run_by(command, directory.path(), &ports);
    let _guest = Guest::new(directory.path(), "a", &options(1));
    let warned = || ringway.log().matches("leases do not outlive this ringway").count();
    wait_for("a warning", || (warned() > 0).then_some(()));
    // It is tried again meanwhile.
    std::thread::sleep(Duration::from_millis(2500));
    assert_eq!(warned(), 1);
    std::fs::remove_file(&state).expect("ours");
    std::fs::create_dir(&state).expect("room");
    let is_of_routers = |entry: std::io::Result<std::fs::DirEntry>| {
        entry.is_ok_and(|entry| entry.file_name().to_string_lossy().starts_with("routers-"))
    };
    wait_for("the file", || std::fs::read_dir(&state).ok()?.any(is_of_routers).then_some(()));
}

/// As after a time without a router that knew of it: the guest uses what another one was given.
#[test]
fn a_guest_with_the_address_of_another_is_named_with_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let ports = ["a=vm:a.sock", "b=vm:b.sock", "net=nat:"];
    let ringway = Ringway::run(directory.path(), &ports.map(|port| ["--port", port]).concat());
    let b = Guest::new(directory.path(), "b", &options(2));
    let mut a = Guest::again(directory.path(), "a", &options(1), b.address());
    a.send_to([192, 0, 2, 1], UDP, &datagram([1000, 9], b"?"));
    let refused = || {
        let stats: Value = serde_json::from_str(&ringway.told(&["stats", "--json"])).expect("JSON");
        let ports = stats["ports"].as_array().expect("ports").clone();
        let net = ports.into_iter().find(|port| port["name"] == "net")?;
        net["nat"]["refused"]["spoofed_source"].as_u64()
    };
    wait_for("a refusal", refused);
    for port in ["a", "net"] {
        let told = ringway.told(&["why", port]);
        let right = "a sends from 10.0.2.15, which b has leased (1 packet refused: spoofed_source)";
        assert!(told.contains(right), "{told}");
    }
    assert!(!ringway.told(&["why", "b"]).contains("a sends from"));
}
