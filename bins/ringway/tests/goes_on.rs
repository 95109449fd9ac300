//! What is counted and learned goes on when the data plane is killed or replaced.

mod common;

use std::path::Path;
use std::time::Duration;

use common::{Ringway, wait_for};
use ringway_testkit::{AnyUserGuest, GuestOptions, Traffic};
use rustix::process::{Signal, kill_process};
use serde_json::Value;

fn guest(directory: &Path, name: &str) -> AnyUserGuest {
    let socket = directory.join(format!("{name}.sock"));
    wait_for("a guest", || AnyUserGuest::attach(&socket, &GuestOptions::default()).ok())
}

fn stats(ringway: &Ringway) -> Value {
    serde_json::from_str(&ringway.told(&["stats", "--json"])).expect("JSON")
}

/// All numbers of both directions of a port, with what was dropped.
fn counts(ringway: &Ringway, port: &str) -> Vec<(String, u64)> {
    let stats = stats(ringway);
    let ports = stats["ports"].as_array().expect("ports");
    let port = ports.iter().find(|it| it["name"] == port).expect("that port");
    let mut counts = Vec::new();
    for way in ["to_guest", "from_guest"] {
        for key in ["packets", "bytes", "kicks", "calls"] {
            counts.push((format!("{way} {key}"), port[way][key].as_u64().expect("a number")));
        }
        let drops = port[way]["drops"].as_object().expect("drops");
        let drops =
            drops.iter().map(|(why, count)| (format!("{way} {why}"), count.as_u64().unwrap_or(0)));
        counts.extend(drops);
    }
    counts
}

fn learned(ringway: &Ringway) -> Vec<(String, String)> {
    let reply: Value = serde_json::from_str(&ringway.told(&["fdb", "--json"])).expect("JSON");
    let addresses = reply["addresses"].as_array().expect("a list").iter();
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let mut all: Vec<_> = addresses.map(|it| (text(&it["mac"]), text(&it["port"]))).collect();
    all.sort();
    all
}

fn kill(ringway: &Ringway) {
    let deaths = stats(ringway)["data_plane"]["deaths"].as_u64().expect("a number");
    kill_process(ringway.data_plane(), Signal::KILL).expect("it runs");
    let is_next = || stats(ringway)["data_plane"]["deaths"] == deaths + 1;
    wait_for("the next one", || is_next().then_some(()));
}

#[test]
fn counters_and_addresses_are_those_of_the_data_plane_before() {
    let directory = tempfile::tempdir().expect("a directory");
    let ports = ["--port", "a=vm:a.sock", "--port", "b=vm:b.sock", "--port", "idle=vm:idle.sock"];
    for workers in ["1", "2"] {
        let arguments = [&ports[..], &["--workers", workers]].concat();
        let mut ringway = Ringway::run(directory.path(), &arguments);
        let mut guests = [guest(directory.path(), "a"), guest(directory.path(), "b")];
        let mut between = Traffic::new([guests[0].mac(), guests[1].mac()], 1, 1514);
        between.settle(&mut guests).expect("they hear each other");
        between.exchange(&mut guests, 200).expect("undisturbed");
        wait_for("both addresses", || (learned(&ringway).len() == 2).then_some(()));
        // Until they are noted.
        std::thread::sleep(Duration::from_millis(500));
        let known = learned(&ringway);
        for is_upgrade in [false, true, false] {
            let before = ["a", "b", "idle"].map(|port| counts(&ringway, port));
            assert!(before[0][0].1 >= 200, "{before:?}");
            match is_upgrade {
                true => drop(ringway.told(&["upgrade"])),
                false => kill(&ringway),
            }
            assert_eq!(learned(&ringway), known);
            // Guests are called once more by the next one, and looked at.
            let is_notice = |name: &str| name.ends_with("kicks") || name.ends_with("calls");
            for (port, before) in ["a", "b", "idle"].iter().zip(&before) {
                for ((name, was), (_, is)) in before.iter().zip(counts(&ringway, port)) {
                    let is_same = if is_notice(name) { is >= *was } else { is == *was };
                    assert!(is_same, "{port}: {name}: {was}, then {is}");
                }
            }
            between.exchange(&mut guests, 50).expect("they go on");
            assert_eq!(counts(&ringway, "idle"), before[2], "nothing is flooded");
            let after = counts(&ringway, "a");
            assert!(after[0].1 >= before[0][0].1 + 50, "{before:?}, then {after:?}");
        }
        // Another port of the same number begins anew.
        ringway.told(&["port", "remove", "b"]);
        ringway.told(&["port", "add", "b=vm:b.sock"]);
        kill(&ringway);
        assert!(counts(&ringway, "b").iter().all(|(_, count)| *count == 0));
        ringway.must_end_soon(Duration::from_secs(5));
    }
}
