//! `ringway why FROM TO`: what holds a flow back is named with the port at which it is, of both
//! ends, and so is what the switch would do with its packets.

mod common;

use std::path::Path;

use common::{Ringway, wait_for};
use ringway_driver::Sent;
use ringway_testkit::{AnyUserGuest, GuestOptions};
use serde_json::Value;

/// A switch with these options at ports a, b and c, and guests at the first two that have said
/// where they are.
fn scene(options: [&str; 3]) -> (tempfile::TempDir, Ringway, [AnyUserGuest; 2]) {
    let directory = tempfile::tempdir().expect("a directory");
    let port = |(name, options)| format!("{name}=vm:{name}.sock{options}");
    let ports: Vec<String> = ["a", "b", "c"].into_iter().zip(options).map(port).collect();
    let arguments: Vec<&str> = ports.iter().flat_map(|port| ["--port", port]).collect();
    let ringway = Ringway::run(directory.path(), &arguments);
    let mut guests = ["a", "b"].map(|name| guest(directory.path(), name));
    for guest in &mut guests {
        say_hello(guest);
    }
    (directory, ringway, guests)
}

fn guest(directory: &Path, name: &str) -> AnyUserGuest {
    let socket = directory.join(format!("{name}.sock"));
    wait_for("a guest", || AnyUserGuest::attach(&socket, &GuestOptions::default()).ok())
}

fn say_hello(guest: &mut AnyUserGuest) {
    let mut frame = [0; 60];
    frame[..6].fill(0xff);
    frame[6..12].copy_from_slice(&guest.mac());
    frame[12..34].copy_from_slice(&[
        8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 2, 255, 255, 255, 255,
    ]);
    let sent = guest.send(&frame).expect("connected");
    assert_eq!(sent, Sent::Done);
    guest.flush();
}

/// Findings as `port: what`, the weightiest first.
fn found(ringway: &Ringway, words: &[&str]) -> Vec<String> {
    let told = ringway.told(&[&["why", "--json"], words].concat());
    let reply: Value = serde_json::from_str(&told).expect("JSON");
    let findings = reply["findings"].as_array().expect("a list").iter();
    let text = |finding: &Value, key: &str| finding[key].as_str().expect("text").to_owned();
    findings.map(|it| format!("{}: {}", text(it, "port"), text(it, "what"))).collect()
}

#[test]
fn a_flow_that_nothing_holds_back_is_said_to_be_fine() {
    let (_directory, ringway, [a, b]) = scene(["", ",locked_ips=10.0.0.2", ""]);
    let text = ringway.told(&["why", "a", "b"]);
    assert_eq!(text, "a → b: nothing holds it back (0 b/s from a, 0 b/s to b)\n");
    let mac = |guest: &AnyUserGuest| guest.mac().map(|byte| format!("{byte:02x}")).join(":");
    assert!(found(&ringway, &[&mac(&a), &mac(&b), "proto=tcp"]).is_empty());
}

#[test]
fn both_ends_and_both_ways_are_looked_at() {
    let (_directory, ringway, _guests) = scene(["", ",locked_ips=10.0.0.2", ",link=down"]);
    // The answer would come from an address that b may not use.
    assert_eq!(found(&ringway, &["a", "b", "dst_ip=10.0.0.9"]), ["b: locked addresses"]);
    assert!(found(&ringway, &["a", "10.0.0.2:80"]).is_empty());
    let ends = found(&ringway, &["a", "c"]);
    assert_eq!(ends[0], "c: the link is down");
    assert!(ends.contains(&"c: no front-end is connected".to_owned()), "{ends:?}");
}

#[test]
fn what_the_switch_would_refuse_is_told_without_a_packet() {
    let (_directory, ringway, _guests) = scene([",vlan=7", ",vlan=8", ",vlan=7"]);
    assert_eq!(
        found(&ringway, &["a", "b"]),
        ["a: the VLAN"],
        "all that follows from it is not said"
    );
    let text = ringway.told(&["why", "a", "b"]);
    let said = "a: the VLAN: a has vlan=7, b has vlan=8\n    ringway port set a vlan=8\n";
    assert!(text.contains(said), "{text}");
    let (_directory, ringway, _guests) = scene([",isolated=on", ",isolated=on", ""]);
    let isolated = found(&ringway, &["a", "b"]);
    assert_eq!(isolated[..2], ["a: isolation", "b: isolation"], "{isolated:?}");
    let text = ringway.told(&["why", "a"]);
    let said = "isolation: isolated=on, and no port of its VLAN has uplink=on";
    assert!(text.contains(said), "{text}");
}

#[test]
fn a_trunk_and_an_access_port_find_each_other_with_the_tag_of_each() {
    let (_directory, ringway, _guests) = scene([",trunk=5+7", ",vlan=7", ""]);
    // Packets of `a` without a tag went nowhere.
    let found = found(&ringway, &["a", "b", "vlan=7"]);
    assert_eq!(found, ["b: the address is not known"]);
}

#[test]
fn addresses_that_are_elsewhere_or_nowhere_are_told() {
    let (_directory, ringway, [a, b]) = scene(["", "", ""]);
    let nowhere = found(&ringway, &["a", "52:54:00:77:77:77"]);
    assert_eq!(nowhere, ["a: the address is not known"]);
    let mac = |guest: &AnyUserGuest| guest.mac().map(|byte| format!("{byte:02x}")).join(":");
    let why = ringway.refused(&["why", "a", &mac(&a)]);
    assert!(why.contains("are behind the same port"), "{why}");
    let why = ringway.refused(&["why", "a", "10.0.0.9"]);
    assert!(why.contains("no port is known to have it"), "{why}");
    let why = ringway.refused(&["why", "a", "d"]);
    assert!(why.contains("there is no port called \"d\""), "{why}");
    let why = ringway.refused(&["why", "a", "b", "dst_prt=1"]);
    assert!(why.contains("did you mean dst_port?"), "{why}");
    drop(b);
}
