//! Taps that come, change and go, in a network namespace of their own.

mod common;

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use common::{Ringway, wait_for};
use nix::sched::CloneFlags;
use ringway_host::{Tap, TapOptions};
use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};

/// A number that no program here gives a descriptor by itself.
const PASSED: i32 = 700;

/// How often a tap is added and removed.
const CYCLES: usize = 20;

#[test]
fn a_tap_is_made_changed_and_closed() {
    let directory = tempfile::tempdir().expect("a directory");
    let ports = ["--port", "vm0=vm:vm0.sock"];
    let Some(ringway) = Ringway::run_in_namespace(directory.path(), &ports) else {
        println!("skipped: no network namespace or no /dev/net/tun here");
        return;
    };
    let shown = || ringway.inside(&["ip", "-o", "link", "show"]);
    // With the connection of the last question, which may not have been noticed to be over.
    let fds = ringway.fds();
    for cycle in 0..CYCLES {
        ringway.told(&["port", "add", "up=tap:rwt0,mtu=1400"]);
        assert!(shown().contains("rwt0"), "{cycle}");
        ringway.told(&["port", "remove", "up"]);
        assert!(!shown().contains("rwt0"), "{cycle}: it is closed when the answer comes");
        wait_for("all fds closed", || (ringway.fds() <= fds).then_some(()));
    }
    ringway.told(&["port", "add", "up=tap:rwt0,mtu=1400"]);
    assert!(shown().contains("mtu 1400"), "{}", shown());
    ringway.told(&["port", "set", "up", "mtu=9000"]);
    assert!(shown().contains("mtu 9000"), "{}", shown());
    ringway.told(&["port", "set", "up", "link=down"]);
    wait_for("no carrier", || (!shown().contains("LOWER_UP")).then_some(()));
    ringway.told(&["port", "set", "up", "link=up"]);
    wait_for("a carrier", || shown().contains("LOWER_UP").then_some(()));
    // A change that the kernel refuses changes nothing.
    ringway.inside(&["ip", "link", "set", "rwt0", "down"]);
    ringway.inside(&["ip", "link", "set", "rwt0", "name", "other"]);
    let complaint = ringway.refused(&["port", "set", "up", "mtu=1500"]);
    assert!(complaint.contains("rwt0"), "{complaint}");
    assert!(ringway.told(&["port", "list", "--toml"]).contains("mtu = 9000"));
}

#[test]
fn a_tap_is_opened_with_as_many_queues_as_workers_can_use() {
    let directory = tempfile::tempdir().expect("a directory");
    let arguments = ["--workers", "3", "--port", "vm0=vm:vm0.sock"];
    let Some(ringway) = Ringway::run_in_namespace(directory.path(), &arguments) else {
        println!("skipped: no network namespace or no /dev/net/tun here");
        return;
    };
    for (asked, opened) in [(1, None), (2, Some(2)), (3, Some(3)), (8, Some(3))] {
        ringway.told(&["port", "add", &format!("up=tap:rwt0,queues={asked}")]);
        let shown = ringway.inside(&["ip", "-details", "link", "show", "rwt0"]);
        let words: Vec<&str> = shown.split_whitespace().collect();
        let queues = words.windows(2).find(|pair| pair[0] == "numqueues").map(|pair| pair[1]);
        let opened: Option<String> = opened.map(|opened: u8| opened.to_string());
        assert_eq!(queues.map(str::to_owned), opened, "{asked} queues: {shown}");
        ringway.told(&["port", "remove", "up"]);
    }
}

#[test]
fn a_tap_that_was_made_anew_says_what_it_was_a_part_of() {
    let directory = tempfile::tempdir().expect("a directory");
    let ports = ["--port", "vm0=vm:vm0.sock", "--port", "up=tap:rwt0"];
    let Some(ringway) = Ringway::run_in_namespace(directory.path(), &ports) else {
        println!("skipped: no network namespace or no /dev/net/tun here");
        return;
    };
    let bridge = "ip link add br7 type bridge && ip link set rwt0 master br7 && echo done";
    if !ringway.inside(&["sh", "-c", bridge]).contains("done") {
        println!("skipped: no bridges here");
        return;
    }
    assert!(!ringway.told(&["stats"]).contains("new interface"));
    ringway.inside(&["ip", "link", "del", "rwt0"]);
    let is_there = || ringway.inside(&["ip", "link", "show", "rwt0"]).contains("rwt0");
    wait_for("another one", || is_there().then_some(()));
    wait_for("it serves", || (ringway.state("up")? == "running").then_some(()));
    let said = "rwt0 is a new interface";
    ringway.assert_logged(said);
    assert!(ringway.log().contains("was in br7: ip link set rwt0 master br7 up"));
    assert!(ringway.told(&["stats"]).replace("\n", " ").contains("new interface"));
    assert!(ringway.told(&["why", "up"]).contains("its interface was deleted and made anew"));
    ringway.inside(&["ip", "link", "set", "rwt0", "master", "br7"]);
    assert!(!ringway.told(&["stats", "--json"]).contains(said), "it is a part of it again");
    assert!(!ringway.told(&["why", "up"]).contains("made anew"));
}

/// One that was in no bridge is used again when it has addresses; that it sends says nothing.
#[test]
fn a_tap_that_was_made_anew_is_used_by_its_addresses() {
    let directory = tempfile::tempdir().expect("a directory");
    let ports = ["--port", "vm0=vm:vm0.sock", "--port", "up=tap:rwt0"];
    let Some(ringway) = Ringway::run_in_namespace(directory.path(), &ports) else {
        println!("skipped: no network namespace or no /dev/net/tun here");
        return;
    };
    ringway.inside(&["ip", "link", "del", "rwt0"]);
    let is_new = || ringway.told(&["stats"]).replace('\n', " ").contains("new interface");
    wait_for("another one", || is_new().then_some(()));
    assert!(ringway.told(&["why", "up"]).contains("its interface was deleted and made anew"));
    ringway.inside(&["ip", "address", "add", "192.0.2.1/24", "dev", "rwt0"]);
    assert!(!is_new());
}

#[test]
fn a_tap_that_is_deleted_fails_visibly_and_is_opened_again() {
    let directory = tempfile::tempdir().expect("a directory");
    let arguments = ["--workers", "2", "--port", "vm0=vm:vm0.sock"];
    let Some(ringway) = Ringway::run_in_namespace(directory.path(), &arguments) else {
        println!("skipped: no network namespace or no /dev/net/tun here");
        return;
    };
    for queues in [1, 2] {
        ringway.told(&["port", "add", &format!("up=tap:rwt0,queues={queues}")]);
        assert_eq!(ringway.state("up").as_deref(), Some("running"));
        // Something else has its name, so that it cannot be opened again yet.
        let taken = "ip link del rwt0 && ip tuntap add dev rwt0 mode tun";
        ringway.inside(&["sh", "-c", taken]);
        wait_for("the failure", || (ringway.state("up")? == "failed").then_some(()));
        // Not a tap, or not one of two queues.
        wait_for("an attempt", || ringway.error("up")?.starts_with("rwt0: i").then_some(()));
        ringway.assert_logged("interface is gone");
        let list = ringway.told(&["port", "list", "--json"]);
        assert!(list.contains("\"failed\""), "{list}");
        ringway.inside(&["ip", "tuntap", "del", "dev", "rwt0", "mode", "tun"]);
        wait_for("it is open again", || (ringway.state("up")? == "running").then_some(()));
        assert_eq!(ringway.error("up"), None);
        // The host asks for a neighbour: that is a packet.
        ringway.inside(&["ip", "addr", "add", "10.97.9.1/24", "dev", "rwt0"]);
        let received = || {
            ringway.inside(&["ping", "-c", "1", "-W", "1", "10.97.9.2"]);
            let stats = ringway.told(&["stats", "--json"]);
            let stats: serde_json::Value = serde_json::from_str(&stats).expect("JSON");
            let ports = stats["ports"].as_array()?;
            let up = ports.iter().find(|port| port["name"] == "up")?;
            (up["from_guest"]["packets"].as_u64()? > 0).then_some(())
        };
        wait_for("a packet", received);
        ringway.told(&["port", "remove", "up"]);
    }
}

/// A tap in a network namespace of this thread's own, which programs that it starts inherit.
fn inherited_tap() -> Option<OwnedFd> {
    nix::sched::unshare(CloneFlags::CLONE_NEWNET).ok()?;
    let tap = Tap::open(&TapOptions { name: "rwt0".to_owned(), mtu: None }).ok()?;
    let passed = fcntl_dupfd_cloexec(tap.as_fd(), PASSED).expect("a number");
    fcntl_setfd(&passed, FdFlags::empty()).expect("ours");
    Some(passed)
}

#[test]
fn a_tap_that_was_passed_is_served_and_nothing_else_inherits_it() {
    let serves = || {
        let directory = tempfile::tempdir().expect("a directory");
        let Some(passed) = inherited_tap() else {
            println!("skipped: no network namespace of its own, or no /dev/net/tun here");
            return;
        };
        let number = passed.as_raw_fd();
        let port = format!("up=tap-fd:{number}");
        let ringway = Ringway::run(directory.path(), &["--port", &port]);
        assert_eq!((ringway.error("up"), ringway.state("up")), (None, Some("running".to_owned())));
        let fds = format!("/proc/{}/fd", ringway.data_plane().as_raw_nonzero());
        let its = std::fs::read_dir(fds).expect("it runs");
        let named =
            its.filter(|fd| fd.as_ref().is_ok_and(|fd| *fd.file_name() == *number.to_string()));
        assert_eq!(named.count(), 0, "it has a copy");
    };
    std::thread::scope(|scope| scope.spawn(serves).join()).expect("as it should be");
}
