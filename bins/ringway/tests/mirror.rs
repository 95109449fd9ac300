//! `mirror=`: the other port gets what the port sends and gets, once each, and disturbs nothing.

mod common;

use std::path::Path;
use std::time::Duration;

use common::{Ringway, wait_for};
use ringway_driver::Sent;
use ringway_testkit::{AnyUserGuest, GuestOptions};

fn guest(directory: &Path, name: &str) -> AnyUserGuest {
    let socket = directory.join(format!("{name}.sock"));
    wait_for("a guest", || AnyUserGuest::attach(&socket, &GuestOptions::default()).ok())
}

fn send(guest: &mut AnyUserGuest, to: [u8; 6], number: u8) -> Vec<u8> {
    let mut frame = vec![number; 60 + usize::from(number)];
    frame[..6].copy_from_slice(&to);
    frame[6..12].copy_from_slice(&guest.mac());
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    wait_for("room", || {
        let sent = guest.send(&frame).expect("connected");
        guest.flush();
        matches!(sent, Sent::Done).then_some(())
    });
    frame
}

/// The packets that have come to a guest, when nothing more comes.
fn received(guest: &mut AnyUserGuest) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    loop {
        while let Some((_, packet)) = guest.receive().expect("connected") {
            all.push(packet);
        }
        guest.flush();
        if !guest.wait_call(Duration::from_millis(100)).expect("connected") {
            return all;
        }
    }
}

#[test]
fn a_mirror_gets_each_packet_of_both_ways_once() {
    for workers in ["1", "2"] {
        let directory = tempfile::tempdir().expect("a directory");
        let ports = ["a=vm:a.sock,mirror=mon", "b=vm:b.sock", "mon=vm:mon.sock"];
        let mut arguments = vec!["--workers", workers];
        arguments.extend(ports.iter().flat_map(|port| ["--port", port]));
        let ringway = Ringway::run(directory.path(), &arguments);
        let [mut a, mut b, mut mon] = ["a", "b", "mon"].map(|name| guest(directory.path(), name));
        let all = [0xff; 6];
        // From now on all know where the mirror is.
        let hello = send(&mut mon, all, 0);
        assert_eq!((received(&mut a), received(&mut b)), (vec![hello.clone()], vec![hello]));
        let mut seen = vec![send(&mut a, all, 1)];
        assert_eq!(received(&mut b), seen);
        seen.push(send(&mut b, a.mac(), 2));
        assert_eq!(received(&mut a), seen[1..]);
        seen.push(send(&mut b, all, 3));
        assert_eq!(received(&mut a), seen[2..]);
        seen.push(send(&mut a, b.mac(), 4));
        assert_eq!(received(&mut b), seen[3..]);
        assert_eq!(received(&mut mon), seen, "{workers} workers");
        // The mirror may be talked to, and sees nothing of that twice.
        let to_mon = send(&mut b, mon.mac(), 5);
        let answer = send(&mut mon, a.mac(), 6);
        assert_eq!((received(&mut mon), received(&mut a)), (vec![to_mon], vec![answer]));
        // It goes, comes again, and is not asked for any more.
        assert!(ringway.told(&["port", "remove", "mon"]).starts_with("mon: removed"));
        let packet = send(&mut a, b.mac(), 7);
        assert_eq!(received(&mut b), [packet]);
        assert_eq!(ringway.told(&["port", "add", "mon=vm:mon.sock"]), "mon: added\n");
        let mut mon = guest(directory.path(), "mon");
        received(&mut mon);
        let packet = send(&mut a, b.mac(), 8);
        assert_eq!(received(&mut mon), [packet]);
        assert_eq!(ringway.told(&["port", "set", "a", "mirror=default"]), "a: changed\n");
        send(&mut a, b.mac(), 9);
        assert!(received(&mut mon).is_empty());
        let flood = send(&mut a, all, 10);
        assert_eq!(received(&mut mon), [flood], "a port like any other");
    }
}

#[test]
fn a_mirror_without_room_disturbs_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let ports = ["a=vm:a.sock,mirror=mon", "b=vm:b.sock", "mon=vm:mon.sock"];
    let arguments: Vec<&str> = ports.iter().flat_map(|port| ["--port", port]).collect();
    let ringway = Ringway::run(directory.path(), &arguments);
    let [mut a, mut b, mut mon] = ["a", "b", "mon"].map(|name| guest(directory.path(), name));
    send(&mut b, [0xff; 6], 1);
    assert_eq!(received(&mut a).len(), 1);
    let sent: Vec<_> = (0..1000u16)
        .map(|number| {
            let frame = send(&mut a, b.mac(), number.to_le_bytes()[0]);
            wait_for("it", || b.receive().expect("connected").filter(|it| it.1 == frame));
            b.flush();
        })
        .collect();
    assert_eq!(sent.len(), 1000);
    let stats = ringway.told(&["stats", "--json"]);
    let stats: serde_json::Value = serde_json::from_str(&stats).expect("JSON");
    let drops = |at: usize, way: &str| stats["ports"][at][way]["drops"].clone();
    assert!(drops(2, "to_guest")["no_room"].as_u64().is_some_and(|count| count > 500), "{stats}");
    let counts = drops(1, "to_guest");
    let counts = counts.as_object().expect("reasons");
    assert!(!counts.is_empty() && counts.values().all(|count| count == 0), "{stats}");
    assert!(received(&mut mon).len() > 100);
}

#[test]
fn a_port_is_no_mirror_of_itself() {
    let directory = tempfile::tempdir().expect("a directory");
    let ringway = Ringway::run(directory.path(), &["--port", "a=vm:a.sock"]);
    let why = ringway.refused(&["port", "set", "a", "mirror=a"]);
    assert!(why.contains("a port cannot be the mirror of itself"), "{why}");
    assert_eq!(ringway.told(&["port", "set", "a", "mirror=later"]), "a: changed\n");
    ringway.assert_logged("mirror=later: there is no such port (yet)");
}
