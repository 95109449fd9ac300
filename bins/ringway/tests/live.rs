//! Changes to a running ringway that say so: the file that is read again, and the log.

mod common;

use std::fs;
use std::process::Command;

use common::{Ringway, wait_for};
use ringway_testkit::{AnyUserGuest, GuestOptions};
use serde_json::Value;

fn file(text: &str, directory: &tempfile::TempDir) -> String {
    let path = directory.path().join("ringway.toml");
    fs::write(&path, text).expect("a file");
    path.to_str().expect("text").to_owned()
}

#[test]
fn reload_says_what_changed_from_what_to_what() {
    let directory = tempfile::tempdir().expect("a directory");
    let before = "[port.a]\nvm = \"a.sock\"\nmtu = 1500\n[port.b]\nvm = \"b.sock\"\n";
    let path = file(before, &directory);
    let ringway = Ringway::run(directory.path(), &["--config", &path]);
    assert_eq!(ringway.told(&["reload"]), "read again: it says the same as before\n");
    file(
        "[ringway]\nsnoop_multicast = true\n[port.a]\nvm = \"a.sock\"\nmtu = 9000\nvlan = 7\n\
          [port.c]\nvm = \"c.sock\"\n",
        &directory,
    );
    assert_eq!(
        ringway.told(&["reload"]),
        "snoop_multicast: off → on\na: mtu: 1500 → 9000\na: vlan: default → 7\n\
         b: kind: vm:b.sock → no port\nc: kind: no port → vm:c.sock\n"
    );
    assert_eq!(ringway.names(), ["a", "c"]);
    file(before, &directory);
    let told: Value = serde_json::from_str(&ringway.told(&["reload", "--json"])).expect("JSON");
    assert_eq!(told["changes"][0]["key"], "snoop_multicast");
    assert_eq!(told["changes"].as_array().expect("a list").len(), 5);
    file("[port.a]\nvm = \"a.sock\"\nmtu = 1\nvlam = 7\n", &directory);
    let why = ringway.refused(&["reload"]);
    assert!(why.contains("did you mean vlan?") && why.contains("mtu"), "{why}");
    let json = ringway.refused(&["reload", "--json"]);
    let refusal: Value = serde_json::from_str(&json).expect("one line of JSON");
    assert_eq!((json.lines().count(), &refusal["ok"]), (1, &false.into()));
    assert_eq!(ringway.names(), ["a", "b"]);
    let other = tempfile::tempdir().expect("a directory");
    let without = Ringway::run(other.path(), &["--port", "a=vm:a.sock"]);
    assert!(without.refused(&["reload"]).contains("there is no file to read again"));
}

#[test]
fn both_processes_log_what_is_asked_for_and_so_does_the_next_one() {
    let directory = tempfile::tempdir().expect("a directory");
    let ringway = Ringway::run(directory.path(), &["--port", "a=vm:a.sock"]);
    let socket = directory.path().join("a.sock");
    let connect =
        || wait_for("a guest", || AnyUserGuest::attach(&socket, &GuestOptions::default()).ok());
    drop(connect());
    let debug = || ringway.log().matches("DEBUG").count();
    assert_eq!(debug(), 0);
    assert_eq!(ringway.told(&["log", "debug"]), "log: info → debug\n");
    drop(connect());
    wait_for("lines of the data plane", || (debug() > 0).then_some(()));
    assert_eq!(ringway.told(&["upgrade", "--json"]).matches("\"ok\":true").count(), 1);
    let before = debug();
    drop(connect());
    wait_for("lines of the next one", || (debug() > before).then_some(()));
    assert_eq!(ringway.told(&["log", "off"]), "log: debug → off\n");
    let lines = ringway.log().lines().count();
    drop(connect());
    assert_eq!(ringway.told(&["log", "warn,ringway_host=info"]).lines().count(), 1);
    assert_eq!(ringway.log().lines().count(), lines);
    let why = ringway.refused(&["log", "inof"]);
    assert!(why.contains("did you mean info?"), "{why}");
}

#[test]
fn lists_of_processes_show_what_the_data_plane_is() {
    let directory = tempfile::tempdir().expect("a directory");
    let ringway = Ringway::run(directory.path(), &["--port", "a=vm:a.sock"]);
    let place = format!("/proc/{}/comm", ringway.data_plane().as_raw_nonzero());
    assert_eq!(std::fs::read_to_string(place).expect("it runs"), "ringway-plane\n");
}

#[test]
fn short_names_of_commands_and_the_commit_are_there() {
    let directory = tempfile::tempdir().expect("a directory");
    let ringway = Ringway::run(directory.path(), &["--port", "a=vm:a.sock"]);
    assert_eq!(ringway.told(&["port", "ls"]), ringway.told(&["port", "list"]));
    assert_eq!(ringway.told(&["ls"]), ringway.told(&["port", "list"]));
    assert!(ringway.told(&["show"]).contains("waiting"));
    assert_eq!(ringway.told(&["rm", "a"]), "a: removed\n");
    let version = Command::new(env!("CARGO_BIN_EXE_ringway")).arg("--version").output();
    let version = String::from_utf8(version.expect("it runs").stdout).expect("text");
    let commit = Command::new("git").args(["rev-parse", "--short=12", "HEAD"]).output();
    let commit = commit.ok().filter(|it| it.status.success());
    let Some(commit) = commit.and_then(|it| String::from_utf8(it.stdout).ok()) else {
        return println!("skipped: this is no Git repository");
    };
    assert_eq!(version, format!("ringway {} ({})\n", env!("CARGO_PKG_VERSION"), commit.trim()));
}
