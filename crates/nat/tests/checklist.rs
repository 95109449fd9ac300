//! The tricks that hostile guests try, one test for each: no guest gets where it must not, and none
//! takes from another.

mod lab;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use lab::host::Answer;
use lab::packets::{REMOTE, REMOTE_6, dhcp, packet, packet6, tcp, udp};
use lab::{GUEST, Lab, MAC, guest6, plan};
use ringway_nat::{
    Action, Actions, Client, Close, Event, Guest, Limits, Nat, Plan, Protocol, Refusal, Target,
    Verdict,
};
use ringway_net::MacAddress;

const OTHER: Guest = Guest(4);
const SYN: u8 = 2;

fn refused(lab: &mut Lab, frame: &[u8]) -> Option<Refusal> {
    lab.send(frame);
    match lab.verdicts.pop() {
        Some(Verdict::Refused(why)) => Some(why),
        _ => None,
    }
}

fn syn(to: [u8; 4], ports: (u16, u16)) -> Vec<u8> {
    packet(to, 6, &tcp(ports, (1000, 0), SYN, &[&[], &[]]))
}

fn syn6(to: Ipv6Addr, ports: (u16, u16)) -> Vec<u8> {
    packet6(to.segments(), 6, &tcp(ports, (1000, 0), SYN, &[&[], &[]]))
}

/// The same frame as another guest with address 10.0.2.16 sends it.
fn of_other(mut frame: Vec<u8>) -> Vec<u8> {
    (frame[11], frame[29]) = (77, 16);
    frame
}

fn with_other(limits: Limits) -> Lab {
    let mut lab = Lab::new(1);
    lab.nat = Nat::new(plan(), limits, std::hash::RandomState::new());
    lab.nat.add_guest(GUEST, "vm0");
    lab.nat.add_guest(OTHER, "vm1");
    lab.step();
    lab.frames_for(OTHER);
    lab.seen.clear();
    lab
}

fn count(lab: &Lab, why: Refusal) -> usize {
    lab.verdicts.iter().filter(|it| **it == Verdict::Refused(why)).count()
}

/// The other guest opens a connection, and hears of it in the same millisecond.
fn other_connects(lab: &mut Lab) {
    let before = lab.host.fakes.len();
    lab.sender = OTHER;
    lab.send(&of_other(syn(REMOTE, (50_000, 443))));
    lab.sender = GUEST;
    assert_eq!(lab.verdicts.pop(), Some(Verdict::Done));
    assert_eq!(lab.host.fakes.len(), before + 1);
    let is_its = |it: &&lab::host::Fake| it.to == Target::Address((REMOTE, 443).into());
    let flow = lab.host.fakes.values().rev().find(is_its).expect("its socket").flow;
    lab.tell(flow, Event::Connected { room: 50_000 });
    let frames = lab.frames_for(OTHER);
    assert!(frames.iter().any(|frame| frame[47] == 0x12), "SYN and ACK: {frames:?}");
}

#[test]
fn loopback_is_out_of_reach_by_every_name() {
    let mut lab = Lab::new(1);
    for to in [[127, 0, 0, 1], [127, 5, 5, 5], [0, 0, 0, 0], [0, 0, 0, 1], [127, 0, 0, 53]] {
        for frame in [
            syn(to, (4000, 80)),
            packet(to, 17, &udp(4000, 53, b"x")),
            packet(to, 1, &[8, 0, 0, 0, 1, 1, 0, 1]),
        ] {
            assert_eq!(refused(&mut lab, &frame), Some(Refusal::Denied), "{to:?}");
        }
    }
    for to in ["::", "::1", "::ffff:127.0.0.1", "::127.0.0.1", "::ffff:0.0.0.0", "64:ff9b::7f00:1"]
    {
        let to: Ipv6Addr = to.parse().unwrap();
        for frame in [
            syn6(to, (4000, 80)),
            packet6(to.segments(), 17, &udp(4000, 53, b"x")),
            packet6(to.segments(), 58, &[128, 0, 0, 0, 1, 1, 0, 1]),
        ] {
            assert_eq!(refused(&mut lab, &frame), Some(Refusal::Denied), "{to}");
        }
    }
    assert!(lab.host.fakes.is_empty(), "no socket was opened");
}

#[test]
fn metadata_and_link_local_addresses_are_out_of_reach() {
    let mut lab = Lab::new(1);
    for to in [[169, 254, 169, 254], [169, 254, 1, 1], [100, 100, 100, 200]] {
        assert_eq!(refused(&mut lab, &syn(to, (4000, 80))), Some(Refusal::Denied), "{to:?}");
    }
    for to in ["fe80::1", "fd00:ec2::254", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe"] {
        let frame = syn6(to.parse().unwrap(), (4000, 80));
        assert_eq!(refused(&mut lab, &frame), Some(Refusal::Denied), "{to}");
    }
    assert!(lab.host.fakes.is_empty());
}

/// A plan that is set anew holds for the next flow, and ends none.
#[test]
fn networks_that_are_denied_are_out_of_reach_of_new_flows() {
    let mut lab = Lab::new(1);
    lab.send(&syn(REMOTE, (4000, 80)));
    let denied = Plan { deny: vec!["0.0.0.0/0".parse().unwrap()], ..plan() };
    assert!(lab.nat.set_plan(&denied), "the same router");
    assert_eq!(refused(&mut lab, &syn(REMOTE, (4001, 80))), Some(Refusal::Denied));
    let question = packet(REMOTE, 17, &udp(4000, 123, b"x"));
    assert_eq!(refused(&mut lab, &question), Some(Refusal::Denied));
    assert_eq!(lab.nat.flows_of(GUEST), 1);
    let but_one = Plan { allow: vec![IpAddr::from(REMOTE).to_string().parse().unwrap()], ..denied };
    assert!(lab.nat.set_plan(&but_one));
    lab.send(&syn(REMOTE, (4001, 80)));
    assert_eq!(lab.nat.flows_of(GUEST), 2);
}

#[test]
fn groups_and_reserved_addresses_are_out_of_reach_and_not_answered() {
    let mut lab = Lab::new(1);
    for to in [[224, 0, 0, 251], [239, 255, 255, 250], [255, 255, 255, 255], [10, 0, 2, 255]] {
        let frame = packet(to, 17, &udp(4000, 1900, b"x"));
        assert_eq!(refused(&mut lab, &frame), Some(Refusal::Denied), "{to:?}");
    }
    let frame = packet6([0xff02, 0, 0, 0, 0, 0, 0, 0xfb], 17, &udp(5353, 5353, b"x"));
    assert_eq!(refused(&mut lab, &frame), Some(Refusal::Denied));
    lab.step();
    assert!(lab.seen.is_empty(), "no error about a group (RFC 1122 §3.2.2)");
    assert_eq!(refused(&mut lab, &syn([240, 0, 0, 1], (4000, 80))), Some(Refusal::Denied));
    assert!(lab.host.fakes.is_empty());
}

#[test]
fn no_port_of_the_router_itself_is_open() {
    let limits = Limits { new_flows_per_second: 100_000, ..Limits::default() };
    let mut lab = with_other(limits);
    let plan = plan();
    for port in (1..=1024).chain([3128, 5353, 8080, 9477]) {
        let own = [plan.gateway4(), plan.dns4()].map(|own| own.octets());
        for to in own.into_iter().filter(|to| *to != plan.dns4().octets() || port != 53) {
            assert_eq!(refused(&mut lab, &syn(to, (4000, port))), Some(Refusal::Denied), "{port}");
        }
        let frame = syn6(plan.gateway6().unwrap(), (4000, port));
        assert_eq!(refused(&mut lab, &frame), Some(Refusal::Denied), "{port}");
    }
    assert!(lab.host.fakes.is_empty());
}

#[test]
fn guests_do_not_reach_each_other_through_the_router() {
    let mut lab = with_other(Limits::default());
    assert_eq!(refused(&mut lab, &syn([10, 0, 2, 16], (4000, 80))), Some(Refusal::Denied));
    let other = Ipv6Addr::from_bits(guest6().to_bits() + 1);
    assert_eq!(refused(&mut lab, &syn6(other, (4000, 80))), Some(Refusal::Denied));
    assert!(lab.frames_for(OTHER).is_empty());
}

#[test]
fn sources_that_are_not_the_guests_own_are_refused_and_counted() {
    let mut lab = with_other(Limits::default());
    lab.sender = OTHER;
    let discover = dhcp(1, 77, None);
    lab.send(&discover);
    lab.send(&dhcp(3, 77, Some([10, 0, 2, 15])));
    (lab.sender, lab.verdicts) = (GUEST, Vec::new());
    let sources = [
        [10, 0, 2, 15],
        [10, 0, 2, 2],
        [10, 0, 2, 3],
        [10, 0, 2, 255],
        [10, 0, 3, 15],
        [127, 0, 0, 1],
        [224, 0, 0, 1],
        [198, 51, 100, 9],
        [0, 0, 0, 0],
        [255, 255, 255, 255],
    ];
    for source in sources {
        let mut frame = packet(REMOTE, 17, &udp(4000, 7, b"x"));
        frame[26..30].copy_from_slice(&source);
        lab.send(&frame);
    }
    for source in ["::", "::1", "2001:db8::9", "ff02::1", "fe80::99"] {
        let mut frame = packet6(REMOTE_6, 17, &udp(4000, 7, b"x"));
        frame[22..38].copy_from_slice(&source.parse::<Ipv6Addr>().unwrap().octets());
        lab.send(&frame);
    }
    assert_eq!(count(&lab, Refusal::SpoofedSource), 15, "{:?}", lab.verdicts);
    assert!(lab.host.fakes.is_empty());
}

/// The frame of a guest whose question is whether an address of IPv6 is free.
fn trial(address: Ipv6Addr) -> Vec<u8> {
    let message = [&[135, 0, 0, 0, 0, 0, 0, 0][..], &address.octets()].concat();
    let mut frame = packet6([0xff02, 0, 0, 0, 0, 0, 0, 1], 58, &message);
    frame[..6].copy_from_slice(&[0x33, 0x33, 0, 0, 0, 1]);
    frame[21] = 255;
    frame[22..38].fill(0);
    frame
}

/// The ports of stations that the router knows by that address.
fn holder(lab: &Lab, address: Ipv6Addr) -> Vec<String> {
    let stations = lab.nat.stations(lab.now).into_iter();
    let theirs = stations.filter(|station| station.addresses.contains(&address.into()));
    theirs.map(|station| station.port).collect()
}

/// The guest that tries or uses an address of IPv6 first keeps it, whatever another guest sends
/// from there.
#[test]
fn an_address_of_ipv6_stays_with_the_first_guest_that_has_it() {
    let mut lab = with_other(Limits::default());
    let plan = Plan { domains: vec!["internal".to_owned()], ..plan() };
    assert!(lab.nat.set_plan(&plan));
    lab.send(&trial(guest6()));
    assert_eq!(holder(&lab, guest6()), ["vm0"]);
    let question = b"\x07\x07\x01\0\0\x01\0\0\0\0\0\0\x03vm0\x08internal\0\0\x1c\0\x01";
    let [dns, gateway] = [plan.dns6(), plan.gateway6()].map(|it| it.unwrap().segments());
    let mut solicitation = packet6(gateway, 58, &[133, 0, 0, 0, 0, 0, 0, 0]);
    solicitation[21] = 255;
    let frames = [
        packet6(REMOTE_6, 17, &udp(4000, 7, b"x")),
        syn6(REMOTE_6.into(), (4000, 80)),
        packet6(REMOTE_6, 58, &[128, 0, 0, 0, 0, 1, 0, 1]),
        packet6(REMOTE_6, 44, &[17, 0, 0, 1, 0, 0, 7, 7, 0, 0, 0, 0, 0, 0, 0, 0]),
        packet6(dns, 17, &udp(4000, 53, question)),
        packet6(gateway, 58, &[128, 0, 0, 0, 0, 1, 0, 1]),
        solicitation,
    ];
    (lab.sender, lab.verdicts) = (OTHER, Vec::new());
    for frame in &frames {
        lab.send(frame);
    }
    lab.send(&trial(guest6()));
    assert_eq!(count(&lab, Refusal::SpoofedSource), frames.len(), "{:?}", lab.verdicts);
    assert!(lab.host.fakes.is_empty());
    // It is told that the address is not its own.
    let told = lab.frames_for(OTHER);
    assert!(!told.is_empty() && told.iter().all(|frame| frame[54..56] == [1, 5]), "{told:?}");
    assert_eq!(holder(&lab, guest6()), ["vm0"]);
    // Its own guest still has it, and loses it by an hour of silence, or by going.
    (lab.sender, lab.verdicts) = (GUEST, Vec::new());
    lab.send(&frames[0]);
    lab.sender = OTHER;
    lab.now = lab.now.plus(3_599_000_000_000);
    lab.send(&frames[0]);
    lab.now = lab.now.plus(1_000_000_000);
    lab.send(&frames[0]);
    lab.sender = GUEST;
    lab.send(&frames[0]);
    let spoofed = Verdict::Refused(Refusal::SpoofedSource);
    assert_eq!(lab.verdicts, [Verdict::Done, spoofed, Verdict::Done, spoofed]);
    assert_eq!(holder(&lab, guest6()), ["vm1"]);
    while lab.nat.remove_guest(OTHER, &mut ringway_nat::Actions::new()) {}
    lab.send(&frames[0]);
    assert_eq!(
        (lab.verdicts.pop(), holder(&lab, guest6())),
        (Some(Verdict::Done), vec!["vm0".into()])
    );
}

/// A guest that asks with ever new MAC addresses gets a few, and others still get theirs.
#[test]
fn a_guest_that_takes_all_leases_leaves_some_to_others() {
    let mut lab = with_other(Limits::default());
    for mac in 100..3000 {
        lab.send(&dhcp(1, mac, None));
        lab.send(&dhcp(3, mac, None));
        lab.step();
    }
    let stations = lab.nat.stations(lab.now);
    assert_eq!(stations.len(), ringway_nat::LEASES_PER_PORT_MAX);
    // It was asked whether it has what the other one was offered.
    lab.frames_for(OTHER);
    lab.sender = OTHER;
    lab.send(&dhcp(1, 77, None));
    let answers = lab.frames_for(OTHER);
    assert_eq!(answers.len(), 1, "an offer");
    let leased = lab.nat.services().leases().address_of("vm1", MacAddress([2, 0, 0, 0, 0, 77]));
    assert!(leased.is_some(), "{answers:?}");
}

#[test]
fn addresses_of_ports_that_are_gone_go_to_others() {
    let mut lab = with_other(Limits::default());
    lab.sender = OTHER;
    for number in 0..600 {
        let name = format!("pod{number}");
        lab.nat.add_guest(OTHER, &name);
        lab.send(&dhcp(1, 50, None));
        let leased = lab.nat.services().leases().address_of(&name, MacAddress([2, 0, 0, 0, 0, 50]));
        assert!(leased.is_some(), "{name}: the network has 240 addresses");
        while lab.nat.remove_guest(OTHER, &mut ringway_nat::Actions::new()) {}
    }
}

/// A guest with a fixed address is not kept from it by a port that was there before.
#[test]
fn an_address_of_a_port_that_is_gone_may_be_used_and_comes_back_with_the_port() {
    let mut lab = with_other(Limits::default());
    let question = packet(REMOTE, 17, &udp(4000, 123, b"x"));
    lab.send(&dhcp(1, 9, None));
    lab.sender = OTHER;
    let refused_to_other = |lab: &mut Lab| {
        lab.verdicts.clear();
        lab.send(&question);
        lab.verdicts.pop() == Some(Verdict::Refused(Refusal::SpoofedSource))
    };
    assert!(refused_to_other(&mut lab), "it is leased to the guest behind vm0");
    while lab.nat.remove_guest(GUEST, &mut Actions::new()) {}
    assert!(!refused_to_other(&mut lab), "vm0 is gone");
    lab.nat.add_guest(GUEST, "vm0");
    assert!(refused_to_other(&mut lab), "it is there again, and keeps its lease");
}

#[test]
fn flows_beyond_the_bound_are_reset_and_other_guests_go_on() {
    let mut lab = with_other(Limits { flows_per_guest: 16, ..Limits::default() });
    for port in 0..40 {
        lab.send(&syn(REMOTE, (4000 + port, 80)));
    }
    assert_eq!((lab.nat.flows_of(GUEST), count(&lab, Refusal::FlowLimit)), (16, 24));
    lab.step();
    let resets = lab.seen.iter().filter(|frame| frame[23] == 6 && frame[47] == 0x14);
    assert_eq!(resets.count(), 24, "each is told");
    other_connects(&mut lab);
    // Connections that were there are still there.
    assert!(lab.host.fakes.values().all(|fake| fake.closed.is_none()));
}

#[test]
fn the_more_connections_a_guest_has_the_less_memory_each_new_one_gets() {
    let mut lab = with_other(Limits { connecting_per_guest: 1024, ..Limits::default() });
    let mut open = |count: u16| {
        for _ in lab.nat.flows_of(GUEST)..usize::from(count) {
            let port = 4000 + u16::try_from(lab.nat.flows_of(GUEST)).unwrap();
            lab.send(&syn(REMOTE, (port, 80)));
        }
        lab.nat.buffer_len_max(GUEST)
    };
    assert_eq!([open(64), open(65), open(512)], [None, Some(256 << 10), Some(256 << 10)]);
    assert_eq!(open(513), Some(64 << 10));
    assert_eq!(lab.nat.buffer_len_max(OTHER), None);
}

#[test]
fn the_bound_of_all_flows_takes_no_flow_from_another_guest() {
    let mut lab = with_other(Limits { flows: 20, ..Limits::default() });
    other_connects(&mut lab);
    for port in 0..40 {
        lab.send(&packet(REMOTE, 17, &udp(4000 + port, 7, b"x")));
        lab.send(&syn(REMOTE, (4000 + port, 80)));
    }
    assert_eq!((lab.nat.flows_of(OTHER), lab.nat.flows_of(GUEST)), (1, 19));
    assert!(count(&lab, Refusal::FlowLimit) > 0);
}

#[test]
fn a_guest_gets_its_share_of_flows_where_others_have_all() {
    let mut lab = with_other(Limits { flows: 20, ..Limits::default() });
    for port in 0..20 {
        lab.send(&packet(REMOTE, 17, &udp(4000 + port, 7, b"x")));
    }
    assert_eq!(lab.nat.flows_of(GUEST), 20);
    other_connects(&mut lab);
    lab.sender = OTHER;
    for port in 0..40 {
        lab.send(&of_other(packet(REMOTE, 17, &udp(4000 + port, 7, b"x"))));
    }
    assert_eq!((lab.nat.flows_of(OTHER), lab.nat.flows_of(GUEST)), (10, 10));
}

#[test]
fn what_comes_from_outside_gets_a_share_of_flows_where_other_guests_have_all() {
    for is_stream in [true, false] {
        let mut lab = with_other(Limits { flows: 20, ..Limits::default() });
        for port in 0..20 {
            lab.send(&packet(REMOTE, 17, &udp(4000 + port, 7, b"x")));
        }
        lab.sender = OTHER;
        lab.send(&dhcp(1, 77, None));
        let now = lab.now;
        let mut accept = |port: u16| {
            let (from, mut actions) = (SocketAddr::from(([198, 51, 100, 7], port)), Actions::new());
            let flow = match is_stream {
                true => {
                    lab.nat.accept(lab::port(OTHER, 80), lab::caller(from, 1000), now, &mut actions)
                }
                false => {
                    let client = Client { from, at: ([192, 0, 2, 1], 53).into() };
                    lab.nat.accept_datagram(lab::port(OTHER, 53), client, now, &mut actions)
                }
            };
            let ended: Vec<_> = actions.drain().collect();
            (flow, ended, [OTHER, GUEST].map(|guest| lab.nat.flows_of(guest)))
        };
        let (flow, ended, flows) = accept(5000);
        assert!(flow.is_some() && matches!(ended[..], [Action::Close { .. }]), "{ended:?}");
        assert_eq!(flows, [1, 19]);
        let flows = (5001..5040).map(accept).last().map(|(_, _, flows)| flows);
        assert_eq!(flows, Some([10, 10]));
    }
}

#[test]
fn dead_addresses_stop_neither_other_protocols_nor_other_guests() {
    let mut lab = with_other(Limits::default());
    lab.host.answer = Answer::Silence;
    for port in 0..400 {
        lab.send(&syn([192, 0, 2, 1], (4000 + port, 80)));
    }
    assert_eq!((lab.nat.flows_of(GUEST), count(&lab, Refusal::FlowLimit)), (256, 144));
    lab.verdicts.clear();
    lab.send(&packet(REMOTE, 17, &udp(4000, 7, b"x")));
    assert_eq!(lab.verdicts, [Verdict::Done]);
    other_connects(&mut lab);
    // The kernel gives up, and so there is room again.
    let flows: Vec<_> = lab.host.fakes.values().map(|fake| (fake.flow, fake.to)).collect();
    let dead = Target::Address(([192, 0, 2, 1], 80).into());
    for (flow, _) in flows.into_iter().filter(|(_, to)| *to == dead) {
        lab.tell(flow, Event::Failed(ringway_nat::Failure::TimedOut));
    }
    lab.now = lab.now.plus(1_000_000_000);
    lab.verdicts.clear();
    lab.send(&syn(REMOTE, (9000, 80)));
    assert_eq!(lab.verdicts, [Verdict::Done]);
}

#[test]
fn connections_that_wait_for_the_other_end_need_no_timer_for_a_minute() {
    let mut lab = Lab::new(1);
    lab.host.answer = Answer::Silence;
    for port in 0..256 {
        lab.send(&syn(REMOTE, (4000 + port, 80)));
    }
    let at = lab.nat.deadline().expect("they end at some time");
    assert!(at.since(lab.now) > 60_000_000_000, "{at:?}");
}

#[test]
fn a_port_scan_delays_no_other_guest() {
    let mut lab = with_other(Limits::default());
    for port in 1..=u16::MAX {
        lab.send(&syn(REMOTE, (40_000, port)));
        if port % 8192 == 0 {
            lab.host.fakes.values_mut().for_each(|fake| fake.ends = true);
            other_connects(&mut lab);
            lab.sender = OTHER;
            let mut end = of_other(syn(REMOTE, (50_000, 443)));
            (end[41], end[47]) = (0xe9, 4);
            lab.send(&end);
            lab.sender = GUEST;
        }
    }
    assert!(lab.nat.flows_of(GUEST) <= 256, "{}", lab.nat.flows_of(GUEST));
    assert!(count(&lab, Refusal::FlowRate) > 50_000, "{}", count(&lab, Refusal::FlowRate));
}

#[test]
fn new_flows_of_one_guest_are_slowed_and_not_those_of_another() {
    let mut lab = with_other(Limits::default());
    for port in 0..11_000 {
        lab.send(&packet(REMOTE, 17, &udp(4000 + port, 7, b"x")));
    }
    assert_eq!(count(&lab, Refusal::FlowRate), 1000);
    other_connects(&mut lab);
}

#[test]
fn questions_beyond_the_bound_take_the_guests_oldest_question() {
    let mut lab = with_other(Limits { new_flows_per_second: 100_000, ..Limits::default() });
    lab.send(&packet(REMOTE, 17, &udp(4000, 7, b"x")));
    let dns = plan().dns4().octets();
    for port in 0..300 {
        lab.now = lab.now.plus(1_000_000);
        let (mut question, to) = (vec![7, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0], dns);
        question.extend(b"\x07example\x03org\x00\x00\x01\x00\x01");
        lab.send(&packet(to, 17, &udp(5000 + port, 53, &question)));
    }
    assert_eq!(lab.nat.flows_of(GUEST), 256 + 1, "and what is no question stays");
    let mut of_resolver = lab.host.fakes.values().filter(|it| it.to == Target::Resolver(GUEST));
    assert!(of_resolver.next().is_some_and(|oldest| oldest.closed.is_some()));
    assert_eq!(of_resolver.filter(|it| it.closed.is_some()).count(), 43);
}

#[test]
fn echo_flows_beyond_the_bound_take_the_guests_oldest_echo() {
    let mut lab = with_other(Limits::default());
    lab.send(&packet(REMOTE, 17, &udp(4000, 7, b"x")));
    for id in 0..100 {
        lab.now = lab.now.plus(1_000_000);
        lab.send(&packet(REMOTE, 1, &[8, 0, 0, 0, 1, id, 0, 1]));
    }
    assert_eq!(lab.nat.flows_of(GUEST), 64 + 1);
    let echoes = lab.host.fakes.values().filter(|it| it.protocol == Protocol::Echo);
    let closed: Vec<bool> = echoes.map(|it| it.closed.is_some()).collect();
    assert!(closed.iter().take(36).all(|closed| *closed) && closed.iter().skip(36).all(|it| !it));
}

#[test]
fn no_echo_is_invented() {
    let mut lab = Lab::new(1);
    lab.send(&packet([192, 0, 2, 99], 1, &[8, 0, 0, 0, 1, 1, 0, 1]));
    lab.send(&packet6(REMOTE_6, 58, &[128, 0, 0, 0, 1, 1, 0, 1]));
    for _ in 0..5000 {
        lab.step();
    }
    assert_eq!((lab.seen.len(), lab.host.fakes.len()), (0, 2), "two were asked, none answered");
}

#[test]
fn errors_and_resets_to_a_guest_are_bounded() {
    let mut lab = with_other(Limits::default());
    let mut told = 0;
    for _ in 0..100 {
        for _ in 0..20 {
            lab.send(&syn([127, 0, 0, 1], (4000, 80)));
            lab.send(&packet(REMOTE, 6, &tcp((1, 2), (3, 4), 0x10, &[&[], &[]])));
        }
        told += lab.frames_for(GUEST).len();
        lab.now = lab.now.plus(10_000_000);
    }
    assert!((200..=320).contains(&told), "{told} in a second, 200 of them at once");
}

#[test]
fn addresses_of_ipv6_that_are_remembered_are_bounded() {
    let mut lab = Lab::new(1);
    for last in 0..200 {
        let mut frame = packet6(REMOTE_6, 17, &udp(4000, 7, b"x"));
        frame[37] = last;
        lab.send(&frame);
    }
    let stations = lab.nat.stations(lab.now);
    assert_eq!((stations.len(), stations[0].addresses.len()), (1, 16));
}

#[test]
fn headers_that_are_cut_short_are_survived_and_refused() {
    for (whole, header_len) in [
        (syn(REMOTE, (4000, 80))[..54].to_vec(), 54),
        (packet(REMOTE, 17, &udp(4000, 7, b"x"))[..43].to_vec(), 43),
        (packet(REMOTE, 1, &[8, 0, 0, 0, 1, 1, 0, 1])[..42].to_vec(), 42),
        (syn6(REMOTE_6.into(), (4000, 80)), 74),
        (packet6(REMOTE_6, 17, &udp(4000, 7, b"x")), 63),
    ] {
        for len in 0..header_len {
            let mut lab = Lab::new(1);
            assert_eq!(refused(&mut lab, &whole[..len]), Some(Refusal::Malformed), "{len}");
            assert!(lab.host.fakes.is_empty());
        }
    }
}

#[test]
fn lengths_that_do_not_fit_are_refused() {
    let good = packet(REMOTE, 17, &udp(4000, 7, b"12345"));
    let good6 = packet6(REMOTE_6, 17, &udp(4000, 7, b"12345"));
    let tcp_good = syn(REMOTE, (4000, 80));
    let with = |frame: &[u8], at: usize, bytes: &[u8]| {
        let mut frame = frame.to_vec();
        frame[at..at + bytes.len()].copy_from_slice(bytes);
        frame
    };
    for bad in [
        with(&good, 14, &[0x44]),
        with(&good, 14, &[0x4f]),
        with(&good, 14, &[0x65]),
        with(&good, 16, &[0, 19]),
        with(&good, 16, &[0xff, 0xff]),
        with(&good, 38, &[0, 7]),
        with(&good, 38, &[0, 200]),
        with(&good6, 18, &[0xff, 0xff]),
        with(&good6, 18, &[0, 7]),
        with(&good6, 58, &[0, 200]),
        with(&tcp_good, 46, &[0x40]),
        with(&tcp_good, 46, &[0xf0]),
    ] {
        let mut lab = Lab::new(1);
        assert_eq!(refused(&mut lab, &bad), Some(Refusal::Malformed), "{bad:02x?}");
        assert!(lab.host.fakes.is_empty());
    }
}

/// Jumbograms, and chains of headers that end nowhere.
#[test]
fn odd_headers_of_ipv6_are_survived() {
    let mut lab = Lab::new(1);
    let mut jumbo = packet6(REMOTE_6, 0, &[17, 0, 0xc2, 4, 0, 1, 0, 0, 0, 0, 0, 0]);
    jumbo[18..20].fill(0);
    lab.send(&jumbo);
    for next in [0, 43, 60, 44, 51, 50, 59, 135] {
        for len in [0, 1, 2, 255] {
            let headers = [next, len].repeat(40);
            lab.send(&packet6(REMOTE_6, next, &headers));
        }
    }
    assert!(lab.verdicts.iter().all(|it| matches!(it, Verdict::Refused(_))), "{:?}", lab.verdicts);
    assert!(lab.host.fakes.is_empty());
}

/// A guest that waits in front of its unread data is not waited for without end.
#[test]
fn a_guest_that_never_takes_its_data_is_reset_after_a_quarter_of_an_hour() {
    const ACK: u8 = 0x10;
    let mut lab = Lab::scripted();
    lab.send(&lab::packets::segment(1000, 0, SYN, &[], &[]));
    lab.step();
    lab.step();
    let syn_ack = lab.seen.last().expect("an answer").clone();
    let ack = u32::from_be_bytes(*syn_ack[38..].first_chunk().unwrap()).wrapping_add(1);
    let mut closed = lab::packets::segment(1001, ack, ACK, &[], &[]);
    closed[48..50].fill(0);
    lab.send(&closed);
    lab.host.one().outgoing = vec![7; 3000].into();
    let started = lab.now;
    while lab.host.one().closed.is_none() {
        lab.seen.clear();
        for _ in 0..10 {
            lab.step();
        }
        lab.now = lab.now.plus(990_000_000);
        // It answers each question, and its window stays closed.
        if !lab.seen.is_empty() {
            lab.send(&closed);
        }
        assert!(lab.now.since(started) < 20 * 60_000_000_000, "too late");
    }
    assert_eq!(lab.host.one().closed, Some(Close::Reset));
    assert!(lab.now.since(started) >= 15 * 60_000_000_000, "{:?}", lab.now.since(started));
}

/// Helpers that look into streams have been a way in elsewhere: here data is only data.
#[test]
fn what_looks_like_an_address_in_a_stream_opens_nothing() {
    const ACK: u8 = 0x10;
    let mut lab = Lab::scripted();
    let ports = (40_000, 21);
    lab.send(&packet(REMOTE, 6, &tcp(ports, (1000, 0), SYN, &[&[], &[]])));
    lab.step();
    lab.step();
    let syn_ack = lab.seen.last().expect("an answer").clone();
    let ack = u32::from_be_bytes(*syn_ack[38..].first_chunk().unwrap()).wrapping_add(1);
    let line = b"PORT 127,0,0,1,0,22\r\n";
    lab.send(&packet(REMOTE, 6, &tcp(ports, (1001, ack), ACK, &[&[], line])));
    for _ in 0..100 {
        lab.step();
    }
    assert_eq!((&lab.host.one().received[..], lab.nat.flows_of(GUEST)), (&line[..], 1));
}

#[test]
fn a_socket_that_is_closed_wakes_no_later_flow() {
    let mut lab = Lab::new(1);
    lab.send(&packet(REMOTE, 17, &udp(4000, 7, b"x")));
    let old = lab.host.one().flow;
    for _ in 0..35_000 {
        lab.step();
    }
    lab.send(&packet(REMOTE, 17, &udp(4001, 7, b"x")));
    let new = lab.host.fakes.values().last().unwrap().flow;
    assert_eq!((new.index(), new == old), (old.index(), false), "the same place");
    lab.tell(old, Event::Readable);
    lab.tell(old, Event::Failed(ringway_nat::Failure::Reset));
    lab.step();
    assert_eq!((lab.nat.flows_of(GUEST), lab.seen.len()), (1, 0));
}

/// Each guest is a router's guest for itself: what one asks or answers is never another's.
#[test]
fn identifiers_and_ports_alike_are_told_apart_by_guest() {
    let mut lab = with_other(Limits::default());
    let request = [8, 0, 0, 0, 0x42, 0x42, 0, 1];
    lab.send(&packet(REMOTE, 1, &request));
    lab.sender = OTHER;
    lab.send(&of_other(packet(REMOTE, 1, &request)));
    let flows: Vec<_> = lab.host.fakes.values().map(|fake| fake.flow).collect();
    assert_eq!(flows.len(), 2);
    let second = lab.host.fakes.get_mut(&flows[1].to_u64()).unwrap();
    second.datagrams_in = [vec![0, 0, 0, 0, 9, 9, 0, 1]].into();
    lab.tell(flows[1], Event::Readable);
    assert!(lab.frames_for(GUEST).is_empty());
    let answers = lab.frames_for(OTHER);
    assert_eq!((answers.len(), &answers[0][30..34]), (1, &[10, 0, 2, 16][..]));
}

/// With `host=`, and only with it, the host's loopback is reached: by that address alone.
#[test]
fn the_hosts_loopback_has_one_address_at_most() {
    let mut lab = Lab::new(1);
    let host = Some(Ipv4Addr::new(10, 0, 2, 2).into());
    let plan = Plan { host, ..plan() };
    lab.nat = Nat::new(plan, Limits::default(), std::hash::RandomState::new());
    lab.nat.add_guest(GUEST, "vm0");
    assert_eq!(refused(&mut lab, &syn([127, 0, 0, 1], (4000, 80))), Some(Refusal::Denied));
    assert_eq!(refused(&mut lab, &syn([10, 0, 2, 2], (4000, 80))), None);
    assert_eq!(lab.host.one().to, Target::Loopback(([127, 0, 0, 1], 80).into()));
}

#[test]
fn frames_of_other_stations_and_groups_lead_nowhere() {
    let mut lab = Lab::new(1);
    let good = packet(REMOTE, 17, &udp(4000, 7, b"x"));
    for to in [[2, 0, 0, 0, 0, 1], [0xff; 6], [1, 0, 0x5e, 0, 0, 1]] {
        let mut frame = good.clone();
        frame[..6].copy_from_slice(&to);
        assert_eq!(refused(&mut lab, &frame), Some(Refusal::NotForUs), "{to:02x?}");
    }
    for from in [[0xff; 6], [1, 0, 0x5e, 0, 0, 1], [0; 6]] {
        let mut frame = good.clone();
        frame[6..12].copy_from_slice(&from);
        assert_eq!(refused(&mut lab, &frame), Some(Refusal::Malformed), "{from:02x?}");
    }
    assert_eq!(refused(&mut lab, &good), None, "the guest's own: {MAC:02x?}");
}
