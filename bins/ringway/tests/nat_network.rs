//! The network of a router's guests, where the usual one is this machine's.

mod common;

use std::process::Command;

use common::{Ringway, wait_for};

#[test]
fn guests_get_a_network_that_is_free_and_an_overlap_is_told() {
    let directory = tempfile::tempdir().expect("a directory");
    let program = env!("CARGO_BIN_EXE_ringway");
    let line = format!(
        "ip link set lo up && ip link add up0 type veth peer name up1 && \
         ip addr add 10.0.2.9/24 dev up0 && ip link set up1 up && \
         ip link set up0 up && exec {program} \"$@\""
    );
    let namespaces = ["--map-root-user", "--net", "sh", "-c"];
    let tried = Command::new("unshare")
        .args(namespaces)
        .arg("ip link add up0 type veth peer name up1")
        .output()
        .is_ok_and(|tried| tried.status.success());
    if !tried {
        return println!("skipped: no network namespace, or no link in it, can be made here");
    }
    let mut command = Command::new("unshare");
    command.args(namespaces).args([&line, "sh"]);
    let ringway = Ringway::run_by(command, directory.path(), &["--port", "net=nat:"]);
    ringway.assert_logged("guests have 10.0.3.0/24");
    assert!(ringway.told(&["stats", "net"]).contains("guests: 10.0.3.0/24"));
    let pid = ringway.pid().as_raw_nonzero().to_string();
    let done = Command::new("nsenter")
        .args(["--preserve-credentials", "--user", "--net", "--target", &pid])
        .args(["ip", "route", "add", "10.0.3.128/25", "dev", "up0"])
        .status();
    assert!(done.is_ok_and(|done| done.success()));
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
