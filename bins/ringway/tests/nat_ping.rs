//! Pings through a router, whatever rule is at a port.

mod common;
#[path = "common/far.rs"]
mod far;
#[path = "common/nat_guest.rs"]
mod nat_guest;

use std::net::Ipv6Addr;

use common::Ringway;
use far::{FAR, FAR_6, Far};
use nat_guest::{Guest, word};
use ringway_net::offload::Sum;
use ringway_testkit::GuestOptions;

const ICMP: u8 = 1;
const ICMP_6: u8 = 58;

/// A complete checksum of what is behind the IP header.
fn is_sum_right(frame: &[u8]) -> bool {
    if frame[12..14] == [8, 0] {
        let end = 14 + usize::from(word(frame, 16));
        return Sum::default().add_bytes(&frame[34..end]).fold() == 0xffff;
    }
    let end = 54 + usize::from(word(frame, 18));
    let sum = Sum::default().add_bytes(&frame[22..54]).add_word(word(frame, 18));
    sum.add_word(u16::from(ICMP_6)).add_bytes(&frame[54..end]).fold() == 0xffff
}

fn ping(guest: &mut Guest, number: u8, own6: Ipv6Addr, rule: &str) {
    let request = |kind| [kind, 0, 0, 0, 0x42, 0x42, 0, number, b'h', b'i', b'!'];
    guest.send_to(FAR, ICMP, &request(8));
    let is_reply = |frame: &[u8]| frame[12..14] == [8, 0] && frame[23] == ICMP && frame[34] == 0;
    let reply = guest.receive_frame(|frame| is_reply(frame) && frame[41] == number);
    assert!(is_sum_right(&reply) && reply[42..45] == *b"hi!", "{rule}: {reply:?}");
    guest.send_to6([own6, FAR_6.parse().expect("an address")], ICMP_6, &request(128));
    let is_reply = |frame: &[u8]| frame[12..14] == [0x86, 0xdd] && frame[20] == ICMP_6;
    let reply = guest.receive_frame(|frame| is_reply(frame) && frame[54] == 129);
    assert!(is_sum_right(&reply) && reply[61] == number, "{rule}: {reply:?}");
}

#[test]
fn pings_are_answered_whatever_rule_is_at_a_port() {
    let directory = tempfile::tempdir().expect("a directory");
    let ports = ["--port", "a=vm:a.sock", "--port", "net=nat:,range=10.0.2.0/24+fd00:9::/64"];
    let Some(ringway) = Ringway::run_in_namespace(directory.path(), &ports) else {
        return println!("skipped: no network namespace can be made here");
    };
    let Some(_far) = Far::new(&ringway) else {
        return println!("skipped: no link to another namespace can be made here");
    };
    let mut guest = Guest::new(directory.path(), "a", &GuestOptions::default());
    let own6: Ipv6Addr = "fd00:9::99".parse().expect("an address");
    let mac = guest.nic.mac().map(|byte| format!("{byte:02x}")).join(":");
    let ip = std::net::Ipv4Addr::from(guest.address());
    ping(&mut guest, 0, own6, "none");
    for (number, (at, rule, without)) in [
        ("a", "rate_to_guest=100M".to_owned(), "rate_to_guest=default"),
        ("a", "storm=10000".to_owned(), "storm=default"),
        ("a", format!("locked_mac={mac}"), "locked_mac=default"),
        ("a", format!("locked_ips={ip}+{own6}"), "locked_ips=default"),
        ("a", "isolated=on".to_owned(), "isolated=default"),
        ("a", "vlan=7".to_owned(), "vlan=default"),
    ]
    .into_iter()
    .enumerate()
    {
        let of_router = match rule.as_str() {
            "isolated=on" => Some(["uplink=on", "uplink=default"]),
            "vlan=7" => Some(["vlan=7", "vlan=default"]),
            _ => None,
        };
        ringway.told(&["port", "set", at, &rule]);
        if let Some([with, _]) = of_router {
            ringway.told(&["port", "set", "net", with]);
        }
        ping(&mut guest, u8::try_from(number + 1).expect("few"), own6, &rule);
        ringway.told(&["port", "set", at, without]);
        if let Some([_, without]) = of_router {
            ringway.told(&["port", "set", "net", without]);
        }
    }
}
