//! The network of a router's guests, where the usual one is this machine's.

mod common;

use std::path::Path;
use std::process::Command;

use common::{Ringway, wait_for};

/// Runs it where 10.0.2.0/24 is a network of the machine; `None`: that cannot be done here.
fn run(directory: &Path, port: &str) -> Option<Ringway> {
    let namespaces = ["--map-root-user", "--net", "sh", "-c"];
    let program = env!("CARGO_BIN_EXE_ringway");
    let line = format!(
        "ip link set lo up && ip link add up0 type veth peer name up1 && \
         ip addr add 10.0.2.9/24 dev up0 && ip link set up1 up && \
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
    let mut command = Command::new("unshare");
    command.args(namespaces).args([&line, "sh"]);
    Some(Ringway::run_by(command, directory, &["--port", port]))
}

#[test]
fn guests_get_a_network_that_is_free_and_an_overlap_is_told() {
    let directory = tempfile::tempdir().expect("a directory");
    let Some(ringway) = run(directory.path(), "net=nat:") else { return };
    ringway.assert_logged("guests have 10.0.3.0/24");
    assert!(ringway.told(&["stats", "net"]).contains("guests: 10.0.3.0/24"));
    let pid = ringway.pid().as_raw_nonzero().to_string();
    let done = Command::new("nsenter")
        .args(["--preserve-credentials", "--user", "--net", "--target", &pid])
        .args(["ip", "route", "add", "10.0.3.128/25", "dev", "up0"])
        .status();
    assert!(done.is_ok_and(|done| done.success()));
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
    let Some(ringway) = run(directory.path(), "net=nat:,range=10.9.0.0/24") else { return };
    assert!(ringway.told(&["stats", "net"]).contains("guests: 10.9.0.0/24"));
    ringway.told(&["port", "set", "net", "range=default"]);
    assert!(ringway.told(&["stats", "net"]).contains("guests: 10.0.3.0/24"));
    ringway.told(&["upgrade"]);
    assert!(ringway.told(&["stats", "net"]).contains("guests: 10.0.3.0/24"), "it stays");
}
