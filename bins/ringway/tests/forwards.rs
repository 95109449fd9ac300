//! Where a router listens for guests: places that are taken are tried again.

mod common;

use std::net::{TcpListener, UdpSocket};

use common::{Ringway, wait_for};
use serde_json::Value;

fn nat(ringway: &Ringway) -> Value {
    let stats: Value = serde_json::from_str(&ringway.told(&["stats", "--json"])).expect("JSON");
    stats["ports"][0]["nat"].clone()
}

fn count(list: &Value) -> usize {
    list.as_array().map_or(0, Vec::len)
}

#[test]
fn a_place_that_is_taken_is_listened_at_when_it_is_free() {
    let directory = tempfile::tempdir().expect("a directory");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("an address").port();
    let forward = format!("tcp:127.0.0.1:{port}:vm0:80");
    let router = format!("net=nat:,forward={forward}");
    let ringway = Ringway::run(directory.path(), &["--port", &router]);
    let now = nat(&ringway);
    assert_eq!(count(&now["forwards"]), 0, "{now}");
    let failed = now["failed_forwards"][0].as_str().expect("a text").to_owned();
    assert!(failed.contains(&format!("127.0.0.1:{port}")) && failed.contains("in use"), "{failed}");
    assert!(ringway.told(&["stats"]).contains("not yet"), "for people too");
    let shown = ringway.told(&["port", "show", "net", "--json"]);
    let shown: Value = serde_json::from_str(&shown).expect("JSON");
    let forward_shown = &shown["forwards"][0];
    assert_eq!((&forward_shown["state"], &forward_shown["to"]), (&"failed".into(), &80.into()));
    assert!(forward_shown["error"].as_str().is_some_and(|why| why.contains("in use")), "{shown}");
    assert_eq!((count(&shown["guests"]), &shown["flows_count"]), (0, &0.into()));
    assert!(ringway.told(&["port", "show", "net"]).contains("not yet: "), "for people too");
    // It hinders no other change; what is newly wanted and taken does.
    let other = TcpListener::bind("127.0.0.1:0").expect("a port");
    let wanted = format!("{forward}+tcp:{}:vm0:81", other.local_addr().expect("an address"));
    let refused = ringway.refused(&["port", "set", "net", &format!("forward={wanted}")]);
    assert!(refused.contains("in use"), "{refused}");
    drop(other);
    ringway.told(&["port", "set", "net", &format!("forward={wanted}")]);
    assert_eq!(count(&nat(&ringway)["forwards"]), 1);
    drop(taken);
    wait_for("both places", || (count(&nat(&ringway)["forwards"]) == 2).then_some(()));
    assert_eq!(count(&nat(&ringway)["failed_forwards"]), 0);
}

/// Who is behind it is asked of routers only, and only of ports that exist; others are shown as
/// `ringway stats` has them.
#[test]
fn what_is_no_router_has_no_guests_behind_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let ports = ["--port", "net=nat:", "--port", "vm0=vm:"];
    let ringway = Ringway::run(directory.path(), &ports);
    let refused = ringway.refused(&["port", "show", "vm0", "--guest", "vm0"]);
    assert!(refused.contains("no router"), "{refused}");
    let shown = ringway.told(&["port", "show", "vm0"]);
    assert!(shown.contains("waiting") && !shown.contains("nat:"), "{shown}");
    let refused = ringway.refused(&["port", "show", "vm7"]);
    assert!(refused.contains("vm7"), "{refused}");
    let listed = ringway.told(&["port", "ls", "vm0"]);
    assert!(listed.contains("vm0") && !listed.contains("nat:"), "{listed}");
    let refused = ringway.refused(&["port", "show", "net", "--guest", "vm1"]);
    assert!(refused.contains("did you mean vm0?"), "{refused}");
    let shown = ringway.told(&["port", "show", "net", "--guest", "vm0"]);
    assert_eq!(shown, "no guest has an address\n0 flows\n");
}

/// Where a forward of datagrams goes, its place is free at once, and others come to their guest.
#[test]
fn places_of_datagrams_come_and_go() {
    let directory = tempfile::tempdir().expect("a directory");
    let free = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let at = free.local_addr().expect("an address");
    drop(free);
    let router = format!("net=nat:,forward=udp:{at}:vm0:53");
    let ringway = Ringway::run(directory.path(), &["--port", &router]);
    assert_eq!(nat(&ringway)["forwards"][0], format!("udp {at} to vm0:53"));
    let client = UdpSocket::bind("127.0.0.1:0").expect("a port");
    for _ in 0..1000 {
        // No guest has an address: they are dropped, and nothing stays behind.
        client.send_to(b"?", at).expect("it listens");
    }
    ringway.told(&["port", "set", "net", "forward=default"]);
    UdpSocket::bind(at).expect("its place is free");
}
