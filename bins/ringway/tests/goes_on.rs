//! Counters, and all that was learned, go on when the data plane is killed or replaced.

mod common;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use common::{Ringway, wait_for};
use ringway_driver::Sent;
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

/// A packet to a group, or of those who ask for it.
fn igmp(guest: &AnyUserGuest, protocol: u8, content: &[u8]) -> Vec<u8> {
    let len = u8::try_from(20 + content.len()).expect("short");
    let ip = [&[0x45, 0, 0, len, 0, 0, 0, 0, 1, protocol, 0, 0, 10, 0, 0, 1], &GROUP[..]].concat();
    let to = [0x01, 0, 0x5e, 1, 2, 3];
    let mut frame = [&to[..], &guest.mac(), &[8, 0], &ip, content].concat();
    frame.resize(60, 0);
    frame
}

fn send(guest: &mut AnyUserGuest, frame: &[u8]) {
    wait_for("room", || {
        let sent = guest.send(frame).expect("a device");
        guest.flush();
        matches!(sent, Sent::Done).then_some(())
    });
}

/// How many packets of those have come, when one to all has come behind them.
fn heard(guest: &mut AnyUserGuest, frame: &[u8]) -> usize {
    let mut count = 0;
    wait_for("what all get", || {
        guest.flush();
        while let Some((_, packet)) = guest.receive().expect("a device") {
            count += usize::from(packet == frame);
            if packet.starts_with(&[0xff; 6]) {
                return Some(count);
            }
        }
        None
    })
}

const GROUP: [u8; 4] = [239, 1, 2, 3];

/// The first guest asks for groups, the second one wants that one, the third one does not.
#[test]
fn groups_go_on_to_those_who_want_them() {
    let directory = tempfile::tempdir().expect("a directory");
    let ports = ["--port", "a=vm:a.sock", "--port", "b=vm:b.sock", "--port", "c=vm:c.sock"];
    let ringway =
        Ringway::run(directory.path(), &[&ports[..], &["--snoop-multicast", "on"]].concat());
    let [mut a, mut b, mut c] = ["a", "b", "c"].map(|name| guest(directory.path(), name));
    let to_all = [&[0xff; 6][..], &a.mac(), &[0x88, 0xb5], &[0; 46]].concat();
    let to_group = igmp(&a, 17, &[9; 26]);
    let reach = |[a, b, c]: [&mut AnyUserGuest; 3]| {
        send(a, &to_group);
        send(a, &to_all);
        [heard(b, &to_group), heard(c, &to_group)]
    };
    assert_eq!(reach([&mut a, &mut b, &mut c]), [1, 1], "no query was heard");
    let query = igmp(&a, 2, &[0x11, 0, 0, 0, 0, 0, 0, 0]);
    send(&mut a, &query);
    let report = igmp(&b, 2, &[&[0x16, 0, 0, 0], &GROUP[..]].concat());
    send(&mut b, &report);
    let only_b = || (reach([&mut a, &mut b, &mut c]) == [1, 0]).then_some(());
    wait_for("the report", only_b);
    // Until it is noted: a second, and a moment.
    std::thread::sleep(Duration::from_millis(1500));
    for is_upgrade in [false, true, false] {
        match is_upgrade {
            true => drop(ringway.told(&["upgrade"])),
            false => kill(&ringway),
        }
        assert_eq!(reach([&mut a, &mut b, &mut c]), [1, 0]);
    }
}

/// Figures that are no counters: they are so now, or were in the last second; and of the packets
/// that may have come twice, those of the last start of a data plane.
const NO_COUNTERS: [&str; 13] = [
    "/resident_bytes",
    "/open_fds",
    "/data_plane/pid",
    "/data_plane/replayed",
    "/front_end/pid",
    "/last_second/packets",
    "/last_second/polled_ns",
    "/last_second/system_calls",
    "/last_second/wakeups",
    "/nat/sockets",
    "/timer_ns",
    "/wakeups_last_second",
    "/window",
];

/// All numbers, by their places; those of lists by the names of what is in them.
fn numbers(value: &Value, place: &str, all: &mut BTreeMap<String, u64>) {
    match value {
        Value::Number(number) => {
            _ = all.insert(place.to_owned(), number.as_u64().expect("a count"))
        }
        Value::Object(fields) => {
            fields.iter().for_each(|(name, value)| numbers(value, &format!("{place}/{name}"), all));
        }
        Value::Array(values) => {
            for value in values {
                let keys = ["name", "worker", "queue", "direction", "pair"];
                let name: Vec<_> =
                    keys.iter().filter_map(|key| value.get(key)).map(Value::to_string).collect();
                numbers(value, &format!("{place}/{}", name.join(" ")), all);
            }
        }
        _ => {}
    }
}

#[test]
fn no_counter_goes_back() {
    let directory = tempfile::tempdir().expect("a directory");
    let ports = ["a=vm:a.sock", "b=vm:b.sock", "net=nat:"].map(|port| ["--port", port]).concat();
    let ringway = Ringway::run(directory.path(), &[&["--workers", "2"], &ports[..]].concat());
    let mut guests = [guest(directory.path(), "a"), guest(directory.path(), "b")];
    let mut between = Traffic::new([guests[0].mac(), guests[1].mac()], 1, 1514);
    between.settle(&mut guests).expect("they hear each other");
    // A station that moves from one to the other.
    let roaming = [&[0xff; 6][..], &[2, 9, 9, 9, 9, 9], &[0x88, 0xb5], &[0; 46]].concat();
    for round in 0..4 {
        between.exchange(&mut guests, 50).expect("undisturbed");
        guests.iter_mut().for_each(|guest| send(guest, &roaming));
        guests[0].command(99, 99, &[]).expect("an answer");
        let mut before = BTreeMap::new();
        numbers(&stats(&ringway), "", &mut before);
        match round % 2 {
            0 => kill(&ringway),
            _ => drop(ringway.told(&["upgrade"])),
        }
        let mut after = BTreeMap::new();
        wait_for("all of them", || {
            after.clear();
            numbers(&stats(&ringway), "", &mut after);
            before.keys().all(|place| after.contains_key(place)).then_some(())
        });
        for (place, count) in &before {
            let is_counter = !NO_COUNTERS.iter().any(|end| place.ends_with(end));
            assert!(!is_counter || after[place] >= *count, "{place}: {count}, then {after:?}");
        }
        let counted =
            ["/moved_addresses", "/refused_commands", "/total/packets", "/cpu_ns", "/kicks"];
        for end in counted.into_iter().chain(["/nat/refused/malformed"]) {
            let is_any = before.iter().any(|(place, count)| place.ends_with(end) && *count > 0);
            assert!(is_any, "{end}: {before:?}");
        }
    }
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
