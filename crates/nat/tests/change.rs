//! A router whose options change while guests use it.

mod lab;

use std::hash::RandomState;

use lab::packets::{REMOTE, REMOTE_6, packet, packet6, segment, udp};
use lab::{GUEST, Lab, guest6, plan};
use ringway_nat::{Actions, Limits, Nat, Plan, Prefix6, Refusal, Verdict};

const SYN: u8 = 2;
const SOLICIT: [u8; 8] = [133, 0, 0, 0, 0, 0, 0, 0];

#[test]
fn a_change_of_host_or_mtu_ends_no_flow() {
    let mut lab = Lab::scripted();
    let host = Some([10, 0, 2, 2].into());
    lab.send(&segment(1000, 0, SYN, &[], &[]));
    for (plan, flows) in [
        (Plan { host, ..plan() }, 2),
        (Plan { host, mtu: 1400, ..plan() }, 2),
        (Plan { mtu: 1400, ..plan() }, 2),
    ] {
        let before = lab.nat.plan().host;
        assert!(lab.nat.set_plan(&plan));
        assert_eq!(lab.nat.flows_to([10, 0, 2, 2].into()).len(), usize::from(before.is_some()));
        lab.send(&packet([10, 0, 2, 2], 17, &udp(4000, 7, b"x")));
        assert_eq!(lab.nat.flows_of(GUEST), flows, "with the one to the loopback");
    }
    let mut actions = Actions::new();
    for flow in lab.nat.flows_to([10, 0, 2, 2].into()) {
        lab.nat.end_flow(flow, &mut actions);
    }
    assert_eq!(lab.nat.flows_of(GUEST), 1);
}

/// The guest sees who comes from the host's loopback as the gateway.
#[test]
fn what_came_from_outside_does_not_go_to_the_loopback() {
    let mut lab = Lab::scripted();
    let gateway = std::net::IpAddr::from([10, 0, 2, 2]);
    assert!(lab.nat.set_plan(&Plan { host: Some(gateway), ..plan() }));
    lab::lease(&mut lab);
    let (from, mut actions) =
        (std::net::SocketAddr::from(([127, 0, 0, 1], 50_000)), Actions::new());
    let at = std::net::SocketAddr::from(([127, 0, 0, 1], 5353));
    let client = ringway_nat::Client { from, at };
    assert!(
        lab.nat.accept(lab::port(GUEST, 80), lab::caller(from, 1), lab.now, &mut actions).is_some()
    );
    assert!(lab.nat.accept_datagram(lab::port(GUEST, 53), client, lab.now, &mut actions).is_some());
    assert_eq!(lab.nat.flows_to(gateway), []);
    lab.send(&packet([10, 0, 2, 2], 17, &udp(4000, 7, b"x")));
    assert_eq!(lab.nat.flows_to(gateway).len(), 1);
}

/// Options of an advertisement that name networks: the network, its flags, and for how long it is
/// valid and preferred.
fn prefixes(frame: &[u8]) -> Vec<(Vec<u8>, u8, u32, u32)> {
    let (mut at, mut found) = (54 + 16, Vec::new());
    while at + 8 <= frame.len() && frame[at + 1] > 0 {
        let number = |from: usize| u32::from_be_bytes(*frame[from..].first_chunk().expect("4"));
        if frame[at] == 3 {
            let network = frame[at + 16..at + 32].to_vec();
            found.push((network, frame[at + 3], number(at + 4), number(at + 8)));
        }
        at += 8 * usize::from(frame[at + 1]);
    }
    found
}

#[test]
fn guests_are_told_that_a_network_is_over() {
    let old = plan().prefix6.expect("one").network().octets().to_vec();
    for prefix6 in [Some(Prefix6::local(9)), None] {
        let mut lab = Lab::scripted();
        lab.nat = Nat::new(Plan { prefix6, ..plan() }, Limits::default(), RandomState::new());
        lab.nat.add_guest(GUEST, "vm0");
        lab.nat.retire(&plan());
        lab.step();
        let unasked = lab.seen.pop().expect("an advertisement");
        let mut request = packet6([0xff02, 0, 0, 0, 0, 0, 0, 2], 58, &SOLICIT);
        request[..6].copy_from_slice(&[0x33, 0x33, 0, 0, 0, 2]);
        request[21] = 255;
        request[22..38].fill(0);
        lab.send(&request);
        lab.step();
        let asked = lab.seen.pop().expect("an advertisement");
        for advert in [unasked, asked] {
            let found = prefixes(&advert);
            assert!(found.contains(&(old.clone(), 0xc0, 0, 0)), "{found:?}");
            assert_eq!(found.len(), 1 + usize::from(prefix6.is_some()));
            let router_lifetime = u16::from_be_bytes([advert[60], advert[61]]);
            assert_eq!(router_lifetime > 0, prefix6.is_some());
        }
    }
}

#[test]
fn what_comes_from_a_network_of_before_is_answered() {
    let mut lab = Lab::scripted();
    let mut other = packet(REMOTE, 17, &udp(4000, 7, b"x"));
    other[26..30].copy_from_slice(&[10, 0, 9, 15]);
    lab.send(&other);
    let mut other = packet6(REMOTE_6, 17, &udp(4000, 7, b"x"));
    other[22..38].copy_from_slice(&"fd77::5".parse::<std::net::Ipv6Addr>().expect("one").octets());
    assert_ne!(guest6().octets(), other[22..38]);
    lab.send(&other);
    lab.step();
    assert!(lab.verdicts.iter().all(|it| *it == Verdict::Refused(Refusal::SpoofedSource)));
    let [first, second] = &lab.seen[..] else { panic!("{}", lab.seen.len()) };
    assert_eq!((first[34], first[35], &first[30..34]), (3, 13, &[10, 0, 9, 15][..]));
    assert_eq!((second[54], second[55]), (1, 5), "its source address failed the policy");
}
