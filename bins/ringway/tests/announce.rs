//! Uplinks are told where guests are, in their names.

mod common;

use std::path::Path;
use std::time::Duration;

use common::{Ringway, wait_for};
use ringway_testkit::{Answer, AnyUserGuest, GuestOptions, RawFrontEnd};

fn guest(directory: &Path, name: &str) -> AnyUserGuest {
    let socket = directory.join(format!("{name}.sock"));
    wait_for("a guest", || AnyUserGuest::attach(&socket, &GuestOptions::default()).ok())
}

/// The stations that were announced to this guest since the last look, when nothing more comes.
fn announced(guest: &mut AnyUserGuest) -> Vec<[u8; 6]> {
    let mut all = Vec::new();
    loop {
        while let Some((_, packet)) = guest.receive().expect("connected") {
            assert_eq!((&packet[..6], &packet[12..14]), (&[0xff; 6][..], &[0x80, 0x35][..]));
            assert_eq!(packet[6..12], packet[22..28]);
            all.push(packet[6..12].try_into().expect("six bytes"));
        }
        guest.flush();
        if !guest.wait_call(Duration::from_millis(300)).expect("connected") {
            return all;
        }
    }
}

#[test]
fn uplinks_hear_of_guests_that_come_and_of_links_that_come_up() {
    for workers in ["1", "2"] {
        let directory = tempfile::tempdir().expect("a directory");
        let ports = [
            "up=vm:up.sock,uplink=on",
            "a=vm:a.sock,mac=52:54:00:00:00:01",
            "b=vm:b.sock,mac=52:54:00:00:00:02,announce=off",
            "c=vm:c.sock,mac=52:54:00:00:00:03,locked_mac=52:54:00:00:00:33,link=down",
        ];
        let mut arguments = vec!["--workers", workers];
        arguments.extend(ports.iter().flat_map(|port| ["--port", port]));
        let ringway = Ringway::run(directory.path(), &arguments);
        let mut up = guest(directory.path(), "up");
        // Three times each, and never one that may not be named.
        let mut heard = |what: &str, last: u8, never: &[u8]| {
            let mut count = 0;
            wait_for(what, || {
                for mac in announced(&mut up) {
                    assert!(!never.contains(&mac[5]), "{what}: {mac:?}");
                    count += usize::from(mac == [0x52, 0x54, 0, 0, 0, last]);
                }
                (count >= 3).then_some(())
            });
        };
        let mut a = guest(directory.path(), "a");
        heard("a guest that comes", 1, &[2, 3, 0x33]);
        assert_eq!(announced(&mut a), <[[u8; 6]; 0]>::default(), "it is no uplink");
        let mut b = guest(directory.path(), "b");
        let _c = guest(directory.path(), "c");
        ringway.told(&["port", "set", "c", "link=up"]);
        // The only address that it may use.
        heard("a link that comes up", 0x33, &[2, 3]);
        ringway.told(&["port", "set", "b", "announce=on"]);
        heard("a guest that may be named", 2, &[3]);
        assert_eq!(announced(&mut b), <[[u8; 6]; 0]>::default(), "it is no uplink");
    }
}

#[test]
fn an_uplink_that_comes_up_hears_of_all_guests() {
    let directory = tempfile::tempdir().expect("a directory");
    let arguments =
        ["--port", "a=vm:a.sock,mac=52:54:00:00:00:01", "--port", "up=vm:up.sock,uplink=on"];
    let ringway = Ringway::run(directory.path(), &arguments);
    let _a = guest(directory.path(), "a");
    // Its own announcements are over.
    std::thread::sleep(Duration::from_secs(2));
    let mut up = guest(directory.path(), "up");
    let wanted = [0x52, 0x54, 0, 0, 0, 1];
    wait_for("the guest", || announced(&mut up).contains(&wanted).then_some(()));
    drop(ringway);
}

/// A front-end that reads no configuration, as QEMU, with a guest that is silent.
fn front_end_without_config(socket: &Path) -> RawFrontEnd {
    const VERSION_1_AND_PROTOCOL_FEATURES: u64 = 1 << 32 | 1 << 30;
    const CONFIG: u64 = 1 << 9;
    let mut front_end = RawFrontEnd::connect(socket).expect("it listens");
    front_end.bring_up_with(VERSION_1_AND_PROTOCOL_FEATURES, 0).expect("a good device");
    let Answer::Number(offered) = front_end.request(15, &[], &[]).expect("a good device") else {
        panic!("no protocol features");
    };
    assert!(offered & CONFIG != 0);
    let without = (offered & !CONFIG).to_le_bytes();
    front_end.request(16, &without, &[]).expect("a good device");
    for index in 0..2 {
        front_end.start_queue(index).expect("a good device");
    }
    front_end
}

/// Its monitor may have given the guest another address.
#[test]
fn an_address_that_nobody_was_told_and_nobody_used_is_not_announced() {
    let directory = tempfile::tempdir().expect("a directory");
    let ports = [
        "up=vm:up.sock,uplink=on",
        "a=vm:a.sock,mac=52:54:00:00:00:01",
        "b=vm:b.sock,mac=52:54:00:00:00:02",
        "c=vm:c.sock,mac=52:54:00:00:00:03,locked_mac=52:54:00:00:00:33",
    ];
    let arguments: Vec<&str> = ports.iter().flat_map(|port| ["--port", port]).collect();
    let ringway = Ringway::run(directory.path(), &arguments);
    let mut up = guest(directory.path(), "up");
    let _without = ["a", "c"]
        .map(|name| front_end_without_config(&directory.path().join(format!("{name}.sock"))));
    let _b = guest(directory.path(), "b");
    let mut heard = Vec::new();
    wait_for("the others", || {
        heard.extend(announced(&mut up).iter().map(|mac| mac[5]));
        let is_heard = |last: &u8| heard.iter().filter(|it| *it == last).count() >= 3;
        [2, 0x33].iter().all(is_heard).then_some(())
    });
    assert!(!heard.contains(&1), "{heard:?}");
    assert!(!ringway.told(&["fdb"]).contains("52:54:00:00:00:01"));
}
