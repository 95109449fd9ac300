//! `ringway trace` says what becomes of a packet, and that is what becomes of it when a guest sends
//! it; asking changes nothing.

mod common;

use std::path::Path;
use std::time::Duration;

use common::{Ringway, wait_for};
use ringway_driver::Sent;
use ringway_testkit::{AnyUserGuest, GuestOptions};
use serde_json::Value;

fn guest(directory: &Path, name: &str) -> AnyUserGuest {
    let socket = directory.join(format!("{name}.sock"));
    wait_for("a guest", || AnyUserGuest::attach(&socket, &GuestOptions::default()).ok())
}

fn run(directory: &Path, ports: &[&str]) -> Ringway {
    let arguments: Vec<&str> = ports.iter().flat_map(|port| ["--port", port]).collect();
    Ringway::run(directory, &arguments)
}

fn traced(ringway: &Ringway, arguments: &[&str]) -> Value {
    let told = ringway.told(&[&["trace", "--json"], arguments].concat());
    serde_json::from_str(&told).expect("JSON")
}

fn verdict(ringway: &Ringway, arguments: &[&str]) -> String {
    traced(ringway, arguments)["verdict"].as_str().expect("text").to_owned()
}

fn said(ringway: &Ringway, arguments: &[&str], words: &str) {
    let text = ringway.told(&[&["trace"], arguments].concat());
    assert!(text.contains(words), "{arguments:?}: {words} in\n{text}");
}

fn send(guest: &mut AnyUserGuest, to: [u8; 6]) {
    let mut frame = [0; 60];
    frame[..6].copy_from_slice(&to);
    frame[6..12].copy_from_slice(&guest.mac());
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    let sent = guest.send(&frame).expect("connected");
    assert_eq!(sent, Sent::Done);
    guest.flush();
}

/// How many packets come to a guest until none comes any more.
fn received(guest: &mut AnyUserGuest) -> usize {
    let mut count = 0;
    loop {
        while guest.receive().expect("connected").is_some() {
            count += 1;
        }
        guest.flush();
        if !guest.wait_call(Duration::from_millis(100)).expect("connected") {
            return count;
        }
    }
}

#[test]
fn a_switch_without_rules_says_what_it_does_and_does_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let ringway = run(directory.path(), &["a=vm:a.sock", "b=vm:b.sock", "c=vm:c.sock"]);
    let [mut a, mut b] = ["a", "b"].map(|name| guest(directory.path(), name));
    let unknown = traced(&ringway, &["a", "dst=b"]);
    assert_eq!(unknown["verdict"], "flooded");
    assert_eq!(unknown["receivers"][0]["outcome"], "gets it");
    assert_eq!(unknown["receivers"][1]["outcome"], "not: no front-end is connected");
    send(&mut b, [0xff; 6]);
    assert_eq!(received(&mut a), 1);
    said(&ringway, &["a", "dst=b"], "from a: goes to b\n  rules: none has a say in it\n");
    assert_eq!(verdict(&ringway, &["b", "dst=b"]), "dropped: no_route");
    // As long as it is only asked, a is not where b is.
    let mac = b.mac().map(|byte| format!("{byte:02x}")).join(":");
    assert_eq!(verdict(&ringway, &["c", &format!("src={mac}"), "dst=a"]), "dropped: spoofed_mac");
    assert_eq!(verdict(&ringway, &["a", "dst=b"]), "goes to b");
    send(&mut a, b.mac());
    assert_eq!(received(&mut b), 1);
    assert_eq!(
        ringway.told(&["port", "set", "a", "link=down"]),
        "a: changed, and its guest was told\n"
    );
    assert_eq!(verdict(&ringway, &["a", "dst=b"]), "dropped: no_route");
    said(&ringway, &["b"], "→ a: not: its link is down");
}

#[test]
fn each_rule_is_named_where_it_has_a_say() {
    let directory = tempfile::tempdir().expect("a directory");
    let ports = [
        "a=vm:a.sock,vlan=7,locked_ips=10.0.0.1+2001:db8::1,storm=1,rate_from_guest=8k",
        "b=vm:b.sock,trunk=7+8",
        "c=vm:c.sock,vlan=7,isolated=on",
    ];
    let ringway = run(directory.path(), &ports);
    let [mut a, mut b] = ["a", "b"].map(|name| guest(directory.path(), name));
    let from_a = ["a", "src_ip=10.0.0.1", "dst_ip=10.0.0.9"];
    said(&ringway, &from_a, "locked addresses: allow it");
    said(&ringway, &from_a, "VLAN: 7");
    said(&ringway, &from_a, "→ b: gets it, with a tag for VLAN 7");
    said(&ringway, &from_a, "→ c: not: isolated");
    assert_eq!(
        verdict(&ringway, &["a", "src_ip=10.0.0.2", "dst_ip=10.0.0.9"]),
        "dropped: spoofed_ip"
    );
    assert_eq!(verdict(&ringway, &["a", "vlan=7", "type=arp"]), "dropped: vlan");
    assert_eq!(verdict(&ringway, &["b", "vlan=9"]), "dropped: vlan");
    said(&ringway, &["b", "vlan=7", "dst=all"], "→ a: gets it, without its tag");
    assert_eq!(
        verdict(&ringway, &["a", "dst=01:80:c2:00:00:0e", "src_ip=10.0.0.1"]),
        "dropped: no_route"
    );
    figures_are_named(&ringway);
    // The answers of the meters in a trace are their own, too.
    let mut frame = [0; 1500];
    frame[..6].fill(0xff);
    frame[6..12].copy_from_slice(&a.mac());
    frame[12..14].copy_from_slice(&[0x08, 0x06]);
    let arp = [0, 1, 8, 0, 6, 4, 0, 1];
    frame[14..22].copy_from_slice(&arp);
    frame[22..28].copy_from_slice(&a.mac());
    frame[28..32].copy_from_slice(&[10, 0, 0, 1]);
    assert_eq!(a.send(&frame).expect("connected"), Sent::Done);
    a.flush();
    assert_eq!(received(&mut b), 1);
    let waits = traced(&ringway, &from_a);
    assert!(waits["verdict"].as_str().expect("text").starts_with("waits for "), "{waits}");
    assert_eq!(waits["steps"][0]["outcome"], "used up");
    let why = ringway.refused(&["trace", "a", "dst_prt=1"]);
    assert!(why.contains("did you mean dst_port?"), "{why}");
    let why = ringway.refused(&["trace", "d"]);
    assert!(why.contains("there is no port called \"d\": use one of"), "{why}");
}

/// Of the scene below: what a rule refuses, and what it compares that with.
fn figures_are_named(ringway: &Ringway) {
    let locked = "10.0.0.1, 2001:db8::1";
    said(ringway, &["a", "src_ip=10.0.0.2"], &format!("10.0.0.2 is not in {locked}"));
    let arp = ["a", "arp_op=reply", "src_ip=10.0.0.9"];
    said(ringway, &arp, &format!("10.0.0.9 is not in {locked}"));
    let router = ["a", "icmp_type=ra", "src_ip=2001:db8::1"];
    assert_eq!(verdict(ringway, &router), "dropped: spoofed_ip");
    said(ringway, &router, "router advertisements come from routers");
    let foreign = ["a", "nd_target=2001:db8::9", "src_ip=2001:db8::1"];
    said(ringway, &foreign, &format!("2001:db8::9 is not in {locked}"));
    // A guest that has no address yet only asks for one.
    let none = ["a", "src_ip=0.0.0.0", "dst_ip=10.0.0.9", "proto=udp"];
    said(ringway, &none, &format!("0.0.0.0 is not in {locked}"));
    said(ringway, &["a", "type=0x88cc"], "type 0x88cc is neither ARP");
    said(ringway, &["a", "vlan=7", "type=arp"], "tag 7: a port with vlan=7 sends without tags");
    said(ringway, &["b", "vlan=9"], "tag 9 is not in trunk=7,8");
    said(ringway, &["b"], "there is no tag, and the trunk has no native VLAN");
    assert_eq!(verdict(ringway, &["b", "vlan=8"]), "flooded, and no port gets it");
    // A tag that has a priority only is none.
    assert_eq!(verdict(ringway, &["a", "vlan=0", "src_ip=10.0.0.1"]), "flooded");
    // A source that is not typed is the port's own, and the reply says so.
    let own = traced(ringway, &["a", "dst_ip=10.0.0.9", "proto=tcp"]);
    assert_eq!(own["verdict"], "flooded");
    assert_eq!(own["steps"][0]["outcome"], "10.0.0.1, of its locked_ips");
    said(ringway, &["10.0.0.1", "dst_ip=10.0.0.9"], "from a: flooded");
    said(ringway, &["a", "proto=icmp6"], "icmp_type: depends on it");
}

/// The same packet, however it is given.
#[test]
fn a_packet_comes_in_digits_or_from_a_capture() {
    let directory = tempfile::tempdir().expect("a directory");
    let ringway = run(directory.path(), &["a=vm:a.sock", "b=vm:b.sock,mirror=m", "m=vm:m.sock"]);
    let _b = guest(directory.path(), "b");
    let digits = "01 80 c2 00 00 0e 52 54 00 00 00 01 88 cc".replace(' ', "");
    assert_eq!(verdict(&ringway, &["a", "--packet", &digits]), "dropped: no_route");
    let why = ringway.refused(&["trace", "a", "--packet", "0"]);
    assert!(why.contains("not pairs of hexadecimal digits"), "{why}");
    let why = ringway.refused(&["trace", "a", "vlan=7", "--packet", &digits]);
    assert!(why.contains("has all its fields"), "{why}");
    let mut file = [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65535, 1].map(u32::to_le_bytes).concat();
    for first in [0xff, 0x01] {
        file.extend([0_u32, 0, 14, 14].map(u32::to_le_bytes).concat());
        file.extend([first, 0x80, 0xc2, 0, 0, 0x0e, 0x52, 0x54, 0, 0, 0, 1, 0x88, 0xcc]);
    }
    let place = directory.path().join("two.pcap");
    std::fs::write(&place, file).expect("a file");
    let place = place.to_str().expect("text");
    assert_eq!(verdict(&ringway, &["a", "--pcap", place]), "flooded");
    assert_eq!(verdict(&ringway, &["a", "--pcap", &format!("{place}:2")]), "dropped: no_route");
    let why = ringway.refused(&["trace", "a", "--pcap", &format!("{place}:3")]);
    assert!(why.contains("it has no packet 3"), "{why}");
    said(&ringway, &["b", "src=52:54:00:00:00:09"], "→ m: gets a copy: it is the mirror of b");
    assert!(!ringway.told(&["trace", "a", "--packet", &digits]).contains("a copy"));
}

#[test]
fn a_flood_that_no_port_gets_is_told_with_its_vlan() {
    let directory = tempfile::tempdir().expect("a directory");
    let ports = ["a=vm:a.sock,vlan=7", "b=vm:b.sock", "c=vm:c.sock,vlan=8"];
    let ringway = run(directory.path(), &ports);
    let none = "flooded, and no port gets it: no other one is in";
    assert_eq!(verdict(&ringway, &["a"]), format!("{none} VLAN 7"));
    assert_eq!(verdict(&ringway, &["b"]), format!("{none} no VLAN"));
}

#[test]
fn a_cable_looks_at_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let ringway = run(directory.path(), &["a=vm:a.sock", "b=vm:b.sock"]);
    said(&ringway, &["a"], "cable: two ports without rules: no packet is looked at");
}
