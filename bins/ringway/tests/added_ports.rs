//! Ports that were added while a service ran are there when it is started again, whatever its end
//! was and whatever service manager starts it. This test is the service manager.

mod common;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use common::{Ringway, wait_for};
use ringway_testkit::{AnyUserGuest, GuestOptions, Traffic};
use serde_json::Value;

/// As the unit starts it, in the start of the machine of that name.
fn start(directory: &Path, boot: &str) -> Ringway {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringway"));
    command.env("STATE_DIRECTORY", directory).env("RINGWAY_BOOT", boot);
    Ringway::run_by(command, directory, &["--config", "ringway.toml"])
}

fn service() -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    write(&directory, "[ringway]\nno_ports = true\n");
    directory
}

fn write(directory: &tempfile::TempDir, text: &str) {
    std::fs::write(directory.path().join("ringway.toml"), text).expect("written");
}

#[test]
fn added_ports_are_there_after_a_restart_and_after_a_kill() {
    let directory = service();
    let mut ringway = start(directory.path(), "one");
    for port in ["a=vm:a.sock,label=libvirt:g1", "b=vm:b.sock", "c=vm:c.sock", "d=vm:d.sock"] {
        ringway.told(&["port", "add", port]);
    }
    ringway.told(&["port", "add", "e=vm:e.sock", "--until-restart"]);
    ringway.told(&["port", "set", "b", "mtu=1400"]);
    ringway.told(&["port", "remove", "c"]);
    ringway.refused(&["port", "add", "f=vm:/nowhere/f.sock"]);
    let list = |ringway: &Ringway| -> Vec<Value> {
        let list: Value =
            serde_json::from_str(&ringway.told(&["port", "list", "--json"])).expect("JSON");
        let ports = list["ports"].as_array().expect("ports").iter();
        ports.map(|port| port["port"].clone()).collect()
    };
    let mut before = list(&ringway);
    before.retain(|port| port["name"] != "e");
    assert_eq!(before.len(), 3);
    let guest = |name: &str| {
        let socket = directory.path().join(name);
        wait_for("a guest", || AnyUserGuest::attach(&socket, &GuestOptions::default()).ok())
    };
    for round in 0..3 {
        let mut guests = [guest("a.sock"), guest("b.sock")];
        let mut between = Traffic::new([guests[0].mac(), guests[1].mac()], 1, 1514);
        between.settle(&mut guests).expect("they hear each other");
        match round {
            0 => ringway.must_end_soon(Duration::from_secs(5)),
            1 => ringway.kill(),
            _ => {
                ringway.told(&["upgrade"]);
                ringway.must_end_soon(Duration::from_secs(5));
            }
        }
        ringway = start(directory.path(), "one");
        assert_eq!(list(&ringway), before, "{round}");
    }
    drop(ringway);
    let ringway = start(directory.path(), "two");
    assert_eq!(ringway.names(), Vec::<String>::new(), "the machine was started anew");
}

#[test]
fn what_the_file_has_counts_more_and_what_cannot_be_keeps_nothing_else() {
    let directory = service();
    let mut ringway = start(directory.path(), "one");
    for port in ["a=vm:a.sock,mtu=1400", "b=vm:b.sock", "c=vm:c.sock"] {
        ringway.told(&["port", "add", port]);
    }
    ringway.must_end_soon(Duration::from_secs(5));
    // The same port, another one of that name, and one at a place that is taken.
    write(&directory, "[port.a]\nvm = \"a.sock\"\n[port.b]\nvm = \"other.sock\"\n");
    let mut ringway = start(directory.path(), "one");
    assert_eq!(ringway.names(), ["a", "b", "c"]);
    let listed = ringway.told(&["port", "list"]);
    assert!(!listed.contains("mtu=1400") && listed.contains("vm:other.sock"), "{listed}");
    ringway.assert_logged("the configuration has b=vm:other.sock");
    ringway.must_end_soon(Duration::from_secs(5));
    std::fs::write(directory.path().join("added-ports.json"), "{").expect("written");
    let ringway = start(directory.path(), "one");
    assert_eq!(ringway.names(), ["a", "b"]);
    ringway.assert_logged("added-ports.json: ports that were added are not there");
}

/// A thing in the way may be gone at the next start.
#[test]
fn an_added_port_that_cannot_be_opened_again_is_kept_for_the_next_start() {
    let directory = service();
    let mut ringway = start(directory.path(), "one");
    for port in ["a=vm:a.sock", "b=vm:b.sock"] {
        ringway.told(&["port", "add", port]);
    }
    let restart = |mut ringway: Ringway, text: &str, names: &[&str]| {
        ringway.must_end_soon(Duration::from_secs(5));
        write(&directory, text);
        let ringway = start(directory.path(), "one");
        assert_eq!(ringway.names(), names);
        ringway
    };
    let nothing = "[ringway]\nno_ports = true\n";
    let (its_place, its_name) =
        ("[port.other]\nvm = \"b.sock\"\n", "[port.b]\nvm = \"other.sock\"\n");
    ringway = restart(ringway, its_place, &["other", "a"]);
    ringway = restart(ringway, nothing, &["a", "b"]);
    ringway = restart(ringway, its_name, &["b", "a"]);
    ringway = restart(ringway, nothing, &["a", "b"]);
    ringway = restart(ringway, its_place, &["other", "a"]);
    // Another supervisor does not forget it; a user can.
    ringway.told(&["upgrade"]);
    ringway = restart(ringway, its_place, &["other", "a"]);
    ringway.told(&["port", "add", "b=vm:c.sock"]);
    ringway.told(&["port", "remove", "b"]);
    restart(ringway, nothing, &["a"]);
}

/// The user that repairs it finds it as it was, whatever happens to ports of the configuration.
#[test]
fn a_file_that_cannot_be_read_stays_as_it_is_until_a_port_is_added() {
    let directory = service();
    let file = directory.path().join("added-ports.json");
    let text = r#"{"version":1,"boot":"one","ports":[{"name":"a","vm":"a.sock"},"#;
    std::fs::write(&file, text).expect("written");
    let is_kept = || std::fs::read_to_string(&file).expect("a file") == text;
    write(&directory, "[port.f]\nvm = \"f.sock\"\n");
    let mut ringway = start(directory.path(), "one");
    ringway.told(&["port", "set", "f", "mtu=1400"]);
    assert!(is_kept(), "another port was changed");
    ringway.told(&["port", "add", "g=vm:g.sock", "--until-restart"]);
    ringway.told(&["port", "remove", "g"]);
    write(&directory, "[port.f]\nvm = \"f.sock\"\n[port.h]\nvm = \"h.sock\"\n");
    ringway.told(&["reload"]);
    assert!(is_kept(), "the configuration was read again");
    ringway.told(&["upgrade"]);
    ringway.told(&["port", "set", "f", "mtu=1300"]);
    assert!(is_kept(), "another supervisor has come");
    ringway.must_end_soon(Duration::from_secs(5));
    assert!(is_kept(), "it has ended");
    let ringway = start(directory.path(), "one");
    ringway.told(&["port", "add", "b=vm:b.sock"]);
    wait_for("the new port", || {
        std::fs::read_to_string(&file).expect("a file").contains("b.sock").then_some(())
    });
    assert!(!is_kept());
}

/// As `ringway port list --toml` prints them, and otherwise.
#[test]
fn a_file_that_has_an_added_port_makes_it_its_own() {
    let directory = service();
    let ringway = start(directory.path(), "one");
    ringway.told(&["port", "add", "a=vm:a.sock,mtu=1400"]);
    ringway.told(&["port", "add", "b=vm:b.sock"]);
    let saved = ringway.told(&["port", "list", "--toml"]);
    write(&directory, &(saved + "mtu = 1300\n"));
    let told = ringway.told(&["reload"]);
    assert!(told.contains("port b: it was added, and is as the file says now"), "{told}");
    assert!(!told.contains("port a: it was"), "{told}");
    assert!(ringway.told(&["port", "list"]).contains("mtu=1300"));
    // They are the file's: they go with their lines.
    write(&directory, "[ringway]\nno_ports = true\n");
    ringway.told(&["reload"]);
    wait_for("no port", || ringway.names().is_empty().then_some(()));
}

/// Not as it says: it is the file's all the same.
#[test]
fn a_file_that_has_an_added_port_otherwise_than_possible_makes_it_its_own() {
    let directory = service();
    let arguments = ["--config", "ringway.toml"];
    let Some(ringway) = Ringway::run_in_namespace(directory.path(), &arguments) else {
        return println!("skipped: no network namespace or no /dev/net/tun here");
    };
    ringway.told(&["port", "add", "up=tap:rwt0,mtu=1400"]);
    ringway.inside(&["ip", "link", "set", "rwt0", "down"]);
    ringway.inside(&["ip", "link", "set", "rwt0", "name", "other"]);
    write(&directory, "[port.up]\ntap = \"rwt0\"\nmtu = 1300\n");
    let refused = ringway.refused(&["reload"]);
    assert!(refused.contains("port up stays as it was"), "{refused}");
    write(&directory, "[ringway]\nno_ports = true\n");
    ringway.told(&["reload"]);
    wait_for("no port", || ringway.names().is_empty().then_some(()));
}
