//! `ringway fdb`: what the switch has learned from real packets, and what is configured.

mod common;

use std::path::Path;

use common::{Ringway, wait_for};
use ringway_driver::Sent;
use ringway_testkit::{AnyUserGuest, GuestOptions};
use serde_json::Value;

/// More addresses than one answer has.
const STATIONS: u16 = 700;

fn guest(directory: &Path, name: &str) -> AnyUserGuest {
    let socket = directory.join(format!("{name}.sock"));
    wait_for("a guest", || AnyUserGuest::attach(&socket, &GuestOptions::default()).ok())
}

/// A packet of station `number` to another one that is not there.
fn frame(number: u16) -> [u8; 60] {
    let mut frame = [0; 60];
    frame[..6].copy_from_slice(&[2, 0, 0, 0xff, 0xff, 0xff]);
    let [high, low] = number.to_be_bytes();
    frame[6..12].copy_from_slice(&[2, 0, 0, 0, high, low]);
    frame
}

fn entries(ringway: &Ringway, arguments: &[&str]) -> Vec<Value> {
    let told = ringway.told(&[&["fdb", "--json"], arguments].concat());
    let reply: Value = serde_json::from_str(&told).expect("JSON");
    reply["addresses"].as_array().expect("a list").clone()
}

#[test]
fn addresses_are_told_with_port_vlan_age_and_kind() {
    let directory = tempfile::tempdir().expect("a directory");
    let ports = [
        "--port",
        "a=vm:a.sock,mac=52:54:00:00:00:01",
        "--port",
        "b=vm:b.sock,static_macs=52:54:00:00:00:09,vlan=7",
        "--port",
        "c=vm:c.sock,locked_mac=52:54:00:00:00:03",
    ];
    let ringway = Ringway::run(directory.path(), &ports);
    let mut a = guest(directory.path(), "a");
    let mut own = frame(0);
    own[6..12].copy_from_slice(&a.mac());
    for frame in std::iter::once(own).chain((1..=STATIONS).map(frame)) {
        wait_for("room", || matches!(a.send(&frame).expect("connected"), Sent::Done).then_some(()));
        a.flush();
    }
    let all = || entries(&ringway, &[]);
    let wanted = usize::from(STATIONS) + 3;
    wait_for("all of them", || (all().len() == wanted).then_some(()));
    let of = |mac: &str| all().into_iter().find(|entry| entry["mac"] == mac).expect(mac);
    assert_eq!(of("52:54:00:00:00:01")["kind"], "own");
    let learned = of("02:00:00:00:00:05");
    assert_eq!((&learned["kind"], &learned["port"]), (&"learned".into(), &"a".into()));
    assert!(learned["vlan"].is_null() && learned["age_s"].as_u64().is_some_and(|age| age < 60));
    let fixed = of("52:54:00:00:00:09");
    assert_eq!((&fixed["kind"], &fixed["vlan"]), (&"static".into(), &7.into()));
    assert!(fixed["age_s"].is_null());
    assert_eq!(of("52:54:00:00:00:03")["kind"], "locked");
    assert_eq!(entries(&ringway, &["--port", "b"]).len(), 1);
    assert_eq!(entries(&ringway, &["--vlan", "7"]).len(), 1);
    assert_eq!(entries(&ringway, &["--vlan", "8"]).len(), 0);
    let text = ringway.told(&["fdb", "--port", "b"]);
    assert!(text.contains("52:54:00:00:00:09") && text.contains("static"), "{text}");
    let refused = ringway.refused(&["fdb", "--port", "d"]);
    assert!(refused.contains("there is no port called \"d\""), "{refused}");
    assert!(ringway.told(&["fdb", "--vlan", "9"]).starts_with("no addresses"));
}

#[test]
fn learned_addresses_are_forgotten_and_learned_again() {
    let directory = tempfile::tempdir().expect("a directory");
    let ports = ["a=vm:a.sock", "b=vm:b.sock", "c=vm:c.sock,static_macs=52:54:00:00:00:09"];
    let arguments: Vec<&str> = ports.iter().flat_map(|port| ["--port", port]).collect();
    let mut ringway = Ringway::run(directory.path(), &arguments);
    let mut guests = ["a", "b"].map(|name| guest(directory.path(), name));
    let mut say = |at: usize, numbers: std::ops::Range<u16>| {
        for frame in numbers.map(frame) {
            let guest = &mut guests[at];
            wait_for("room", || {
                matches!(guest.send(&frame).expect("connected"), Sent::Done).then_some(())
            });
            guest.flush();
        }
    };
    say(0, 1..4);
    say(1, 11..13);
    let count = |ringway: &Ringway| entries(ringway, &[]).len();
    wait_for("all of them", || (count(&ringway) == 6).then_some(()));
    assert_eq!(ringway.told(&["fdb", "flush", "--port", "b"]), "2 addresses forgotten\n");
    assert_eq!(count(&ringway), 4);
    say(1, 11..13);
    wait_for("they are learned again", || (count(&ringway) == 6).then_some(()));
    assert_eq!(ringway.told(&["fdb", "flush", "--vlan", "7"]), "0 addresses forgotten\n");
    let told: Value =
        serde_json::from_str(&ringway.told(&["fdb", "flush", "--json"])).expect("JSON");
    assert_eq!((&told["flushed"], &told["ok"]), (&5.into(), &true.into()));
    let left = entries(&ringway, &[]);
    assert_eq!((left.len(), &left[0]["kind"]), (1, &"static".into()), "it is configured");
    // The next data plane does not remember them.
    ringway.told(&["upgrade"]);
    assert_eq!(count(&ringway), 1);
    let refused = ringway.refused(&["fdb", "flush", "--port", "d"]);
    assert!(refused.contains("there is no port called \"d\""), "{refused}");
    ringway.must_end_soon(std::time::Duration::from_secs(5));
}

#[test]
fn stations_are_forgotten_after_the_time_that_was_set() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("ringway.toml");
    let write = |age: &str| {
        let ports = ["a", "b", "c"].map(|name| format!("[port.{name}]\nvm = \"{name}.sock\"\n"));
        let text = format!("[ringway]\n{age}{}", ports.concat());
        std::fs::write(&file, text).expect("written");
    };
    write("");
    let ringway = Ringway::run(directory.path(), &["--config", "ringway.toml"]);
    let mut a = guest(directory.path(), "a");
    let mut say = || {
        wait_for("room", || {
            matches!(a.send(&frame(1)).expect("connected"), Sent::Done).then_some(())
        });
        a.flush();
    };
    say();
    wait_for("the station", || (entries(&ringway, &[]).len() == 1).then_some(()));
    write("fdb_age = 1\n");
    assert!(ringway.told(&["reload"]).contains("fdb_age: 300 → 1"));
    wait_for("it is forgotten", || entries(&ringway, &[]).is_empty().then_some(()));
    // Another data plane is told the same.
    ringway.told(&["upgrade"]);
    say();
    wait_for("the station", || (entries(&ringway, &[]).len() == 1).then_some(()));
    wait_for("it is forgotten again", || entries(&ringway, &[]).is_empty().then_some(()));
}
