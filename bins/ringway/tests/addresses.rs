//! A neighbour that sends in the name of another guest gets none of its packets.

mod common;

use std::time::Duration;

use common::{Ringway, wait_for};
use ringway_testkit::{AnyUserGuest, GuestOptions};
use serde_json::Value;

const PORTS: [&str; 6] = [
    "--port",
    "victim=vm:victim.sock",
    "--port",
    "thief=vm:thief.sock",
    "--port",
    "peer=vm:peer.sock",
];

/// From the third guest to the first.
const PACKETS: usize = 200;

fn frame(to: [u8; 6], from: [u8; 6]) -> Vec<u8> {
    let mut frame = [&to[..], &from, &[0x88, 0xb5]].concat();
    frame.resize(64, 0);
    frame
}

fn send(guest: &mut AnyUserGuest, frame: &[u8]) {
    let _ = guest.wait_room(Duration::ZERO);
    let _ = guest.send(frame).expect("a device");
    guest.flush();
}

/// Packets to that address that have come, once nothing more comes.
fn received(guest: &mut AnyUserGuest, to: [u8; 6]) -> usize {
    let mut count = 0;
    loop {
        while let Some((_, packet)) = guest.receive().expect("a device") {
            count += usize::from(packet.starts_with(&to));
        }
        guest.flush();
        if !guest.wait_call(Duration::from_millis(100)).expect("a device") {
            return count;
        }
    }
}

fn of_port(ringway: &Ringway, name: &str) -> Value {
    let stats: Value = serde_json::from_str(&ringway.told(&["stats", "--json"])).expect("JSON");
    let ports = stats["ports"].as_array().expect("ports");
    ports.iter().find(|port| port["name"] == name).expect("a port").clone()
}

#[test]
fn a_guests_address_is_its_own_until_it_goes() {
    let directory = tempfile::tempdir().expect("a directory");
    let ringway = Ringway::run(directory.path(), &PORTS);
    let [mut victim, mut thief, mut peer] = ["victim", "thief", "peer"].map(|name| {
        let socket = directory.path().join(format!("{name}.sock"));
        wait_for("a guest", || AnyUserGuest::attach(&socket, &GuestOptions::default()).ok())
    });
    let (own, from) = (victim.mac(), peer.mac());
    send(&mut victim, &frame([0xff; 6], own));
    wait_for("it to be known", || (received(&mut peer, [0xff; 6]) > 0).then_some(()));
    for _ in 0..PACKETS {
        send(&mut thief, &frame([0xff; 6], own));
        send(&mut peer, &frame(own, from));
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!((received(&mut victim, own), received(&mut thief, own)), (PACKETS, 0));
    let drops = of_port(&ringway, "thief")["from_guest"]["drops"]["spoofed_mac"].as_u64();
    assert_eq!(drops, Some(PACKETS as u64));
    let told = || ringway.log().matches("which belongs to port victim").count();
    wait_for("a line of the log", || (told() > 0).then_some(()));
    assert_eq!(told(), 1, "{}", ringway.log());
    assert_eq!(of_port(&ringway, "thief")["moved_addresses"], 0);
    // One that has gone, or was stopped to run elsewhere, has no claim.
    victim.detach().expect("connected");
    wait_for("its end", || (ringway.state("victim")? == "waiting").then_some(()));
    send(&mut thief, &frame([0xff; 6], own));
    send(&mut peer, &frame(own, from));
    assert_eq!(received(&mut thief, own), 1);
}
