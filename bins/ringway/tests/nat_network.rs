//! The network of a router's guests, where the usual one is this machine's.

mod common;
#[path = "common/nat_guest.rs"]
mod nat_guest;

use std::path::Path;
use std::process::Command;

use common::{Ringway, wait_for};
use nat_guest::{Guest, UDP, datagram};
use ringway_testkit::GuestOptions;

/// Of the usual network of guests.
const TAKEN: &str = "10.0.2.9/24";

/// Runs it where the machine has that address; `None`: that cannot be done here.
fn run(directory: &Path, address: &str, ports: &[&str]) -> Option<Ringway> {
    let namespaces = ["--map-root-user", "--net", "sh", "-c"];
    let program = env!("CARGO_BIN_EXE_ringway");
    let line = format!(
        "ip link set lo up && ip link add up0 type veth peer name up1 && \
         ip addr add {address} dev up0 && ip link set up1 up && \
         ip link set up0 up && exec {program} \"$@\""
    );
    let tried = Command::new("unshare")
        .args(namespaces)
        .arg("ip link add up0 type veth peer name up1")
        .output()
        .is_ok_and(|tried| tried.status.success());
    if !tried {
        println!("skipped: no network namespace, or no link in it, can be made here");
        return None;
    }
    let arguments: Vec<&str> = ports.iter().flat_map(|port| ["--port", port]).collect();
    let mut command = Command::new("unshare");
    command.args(namespaces).args([&line, "sh"]);
    Some(Ringway::run_by(command, directory, &arguments))
}

/// Does that in the network of that ringway.
fn is_done_there(ringway: &Ringway, line: &str) -> bool {
    let pid = ringway.pid().as_raw_nonzero().to_string();
    let done = Command::new("nsenter")
        .args(["--preserve-credentials", "--user", "--net", "--target", &pid])
        .args(["sh", "-c", line])
        .status();
    done.is_ok_and(|done| done.success())
}

#[test]
fn guests_get_a_network_that_is_free_and_an_overlap_is_told() {
    let directory = tempfile::tempdir().expect("a directory");
    let Some(ringway) = run(directory.path(), TAKEN, &["net=nat:"]) else { return };
    ringway.assert_logged("guests have 10.0.3.0/24");
    assert!(ringway.told(&["stats", "net"]).contains("guests: 10.0.3.0/24"));
    assert!(is_done_there(&ringway, "ip route add 10.0.3.128/25 dev up0"));
    // All are looked at once a minute, and soon after a router has changed.
    ringway.told(&["port", "set", "net", "mtu=1400"]);
    let warned = || {
        let log = ringway.log();
        let warning = "range=10.0.3.0/24: this machine reaches 10.0.3.128/25 by up0";
        log.contains(warning).then_some(())
    };
    wait_for("a warning", warned);
    assert!(ringway.told(&["stats", "net"]).contains("guests: 10.0.3.0/24"), "it stays");
    let why = ringway.told(&["why", "net"]);
    assert!(why.contains("guests do not reach a network of this machine"), "{why}");
}

#[test]
fn a_router_whose_range_is_taken_away_gets_a_network_that_is_free() {
    let directory = tempfile::tempdir().expect("a directory");
    let ports = ["net=nat:,range=10.9.0.0/24"];
    let Some(ringway) = run(directory.path(), TAKEN, &ports) else { return };
    assert!(ringway.told(&["stats", "net"]).contains("guests: 10.9.0.0/24"));
    ringway.told(&["port", "set", "net", "range=default"]);
    assert!(ringway.told(&["stats", "net"]).contains("guests: 10.0.3.0/24"));
    ringway.told(&["upgrade"]);
    assert!(ringway.told(&["stats", "net"]).contains("guests: 10.0.3.0/24"), "it stays");
}

#[test]
fn a_resolver_behind_a_link_is_asked_as_soon_as_the_link_is_there() {
    let directory = tempfile::tempdir().expect("a directory");
    let ports = ["vm0=vm:vm0.sock", "net=nat:,dns=fe80::1%link0"];
    let Some(ringway) = run(directory.path(), "192.0.2.9/24", &ports) else { return };
    let mut guest = Guest::new(directory.path(), "vm0", &GuestOptions::default());
    let pid = ringway.data_plane().as_raw_nonzero();
    // Sockets that go to port 53 of some address.
    let asks = || {
        let sockets = std::fs::read_to_string(format!("/proc/{pid}/net/udp6")).unwrap_or_default();
        let to = |line: &str| line.split_whitespace().nth(2).map(str::to_owned);
        sockets.lines().filter_map(to).any(|to| to.starts_with("000080FE") && to.ends_with(":0035"))
    };
    assert!(!asks());
    // IPv6 begins when the link is up.
    let made = "ip link add link0 type veth peer name link1 && ip link set link1 up && \
                ip link set link0 up && ip -6 route add fe80::1/128 dev link0";
    if !is_done_there(&ringway, made) {
        return println!("skipped: no such link, or no IPv6, can be made here");
    }
    let question = [7, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, b'a', 0, 0, 1, 0, 1];
    let mut port = 5000;
    wait_for("a question", || {
        port += 1;
        guest.send_to([10, 0, 2, 3], UDP, &datagram([port, 53], &question));
        asks().then_some(())
    });
}
