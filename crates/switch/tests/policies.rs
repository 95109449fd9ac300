//! One test per policy of a port.

mod common;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use common::*;
use ringway_net::DropReason;
use ringway_switch::{
    AGE_MAX_MS, FalseClaim, PolicyError, PortId, PortPolicy, RateLimit, Room, Step, TagChange,
    Vlan, VlanSet,
};

fn policy() -> PortPolicy {
    PortPolicy::default()
}

fn access(number: u16) -> PortPolicy {
    PortPolicy { vlan: Vlan::Access(vlan(number)), ..policy() }
}

fn trunk(numbers: &[u16], native: Option<u16>) -> PortPolicy {
    let tagged: VlanSet = numbers.iter().map(|number| vlan(*number)).collect();
    PortPolicy { vlan: Vlan::Trunk { tagged, native: native.map(vlan) }, ..policy() }
}

const CUSTOMER: u16 = 0x8100;
const SERVICE: u16 = 0x88a8;

#[test]
fn access_ports_reach_only_their_vlan_and_never_send_tags() {
    let mut bench = Bench::new(&[access(10), access(10), access(20), policy()]);
    let frame = plain(BROADCAST, mac(1));
    assert_eq!(bench.send(0, &frame), Ok(vec![(PortId(1), TagChange::Keep)]));
    assert_eq!(bench.reached(2, &plain(mac(1), mac(2))), [0; 0], "known in the other VLAN only");
    assert_eq!(bench.reached(3, &plain(mac(1), mac(3))), [0; 0], "no VLAN is a world of its own");
    for tag in [tagged(&frame, CUSTOMER, 10), tagged(&frame, CUSTOMER, 20)] {
        assert_eq!(bench.send(0, &tag), Err(DropReason::Vlan));
    }
    assert_eq!(bench.send(0, &tagged(&frame, SERVICE, 10)), Err(DropReason::Vlan));
    // A tag with a priority only is no VLAN; it is taken off.
    let priority = tagged(&frame, CUSTOMER, 0xe000);
    assert_eq!(bench.send(0, &priority), Ok(vec![(PortId(1), TagChange::Strip)]));
}

#[test]
fn trunk_ports_tell_vlans_apart_by_tags() {
    let mut bench = Bench::new(&[access(10), access(20), trunk(&[10, 20], None)]);
    let frame = plain(BROADCAST, mac(1));
    assert_eq!(bench.send(0, &frame), Ok(vec![(PortId(2), TagChange::Insert(10))]));
    assert_eq!(bench.send(1, &frame), Ok(vec![(PortId(2), TagChange::Insert(20))]));
    let from_trunk = plain(mac(1), mac(9));
    for (number, port) in [(10, 0), (20, 1)] {
        let went = bench.send(2, &tagged(&from_trunk, CUSTOMER, number));
        assert_eq!(went, Ok(vec![(PortId(port), TagChange::Strip)]));
    }
    assert_eq!(bench.send(2, &from_trunk), Err(DropReason::Vlan), "no native VLAN");
    for tag in [30, 4095] {
        assert_eq!(bench.send(2, &tagged(&frame, CUSTOMER, tag)), Err(DropReason::Vlan));
    }
    let priority = tagged(&frame, CUSTOMER, 0x6000);
    assert_eq!(bench.send(0, &priority), Ok(vec![(PortId(2), TagChange::Replace(0x600a))]));
}

#[test]
fn a_native_vlan_has_no_tags_and_nothing_hides_behind_one() {
    let mut bench = Bench::new(&[trunk(&[10], Some(1)), trunk(&[1, 10], None), access(1)]);
    let frame = plain(BROADCAST, mac(1));
    let went = [(PortId(1), TagChange::Insert(1)), (PortId(2), TagChange::Keep)];
    assert_eq!(bench.send(0, &frame), Ok(went.to_vec()));
    // Without its outer tag it would be a packet of VLAN 10 on the first trunk.
    let twice = tagged(&tagged(&frame, CUSTOMER, 10), CUSTOMER, 1);
    assert_eq!(bench.reached(1, &twice), [0; 0]);
    assert_eq!(bench.reached(1, &tagged(&frame, CUSTOMER, 1)), [0, 2]);
    let both = trunk(&[1], Some(1));
    assert_eq!(both.check(), Err(PolicyError::NativeTagged(vlan(1))));
    // A switch further on might take the outer tag off.
    let hidden = tagged(&tagged(&frame, CUSTOMER, 10), CUSTOMER, 0x2000);
    for port in [0, 2] {
        assert_eq!(bench.send(port, &hidden), Err(DropReason::Vlan));
    }
}

#[test]
fn a_port_that_changes_its_vlan_is_learned_anew() {
    let mut bench = Bench::new(&[access(10), access(10), access(20)]);
    bench.send(0, &plain(BROADCAST, mac(1))).unwrap();
    assert_eq!(bench.reached(1, &plain(mac(1), mac(2))), [0]);
    bench.switch.set_port(PortId(0), access(20)).unwrap();
    assert_eq!(bench.reached(1, &plain(mac(1), mac(2))), [0; 0]);
    assert_eq!(bench.reached(2, &plain(mac(1), mac(3))), [0]);
}

#[test]
fn isolated_ports_reach_uplinks_only() {
    let isolated = PortPolicy { isolated: true, ..policy() };
    let uplink = PortPolicy { is_uplink: true, ..policy() };
    let mut bench = Bench::new(&[isolated.clone(), isolated, uplink, policy()]);
    assert_eq!(bench.reached(0, &plain(BROADCAST, mac(1))), [2]);
    assert_eq!(bench.reached(1, &plain(BROADCAST, mac(2))), [2]);
    assert_eq!(bench.reached(2, &plain(BROADCAST, mac(3))), [0, 1, 3]);
    assert_eq!(bench.reached(3, &plain(BROADCAST, mac(4))), [2]);
    assert_eq!(bench.send(0, &plain(mac(2), mac(1))), Err(DropReason::Isolated));
    assert_eq!(bench.send(3, &plain(mac(2), mac(4))), Err(DropReason::Isolated));
    assert_eq!(bench.reached(0, &plain(mac(3), mac(1))), [2]);
}

#[test]
fn a_locked_mac_cannot_be_left_or_taken() {
    let locked = PortPolicy { locked_mac: Some(mac(1)), ..policy() };
    let mut bench = Bench::new(&[locked, policy(), policy()]);
    assert_eq!(bench.send(0, &plain(BROADCAST, mac(2))), Err(DropReason::SpoofedMac));
    let lie = ethernet(BROADCAST, mac(1), ARP, &arp(mac(2), [10, 0, 0, 1]));
    assert_eq!(bench.send(0, &lie), Err(DropReason::SpoofedMac));
    let hidden = tagged(&tagged(&lie, CUSTOMER, 5), SERVICE, 6);
    assert_eq!(bench.send(0, &hidden), Err(DropReason::SpoofedMac));
    assert_eq!(bench.reached(0, &plain(BROADCAST, mac(1))), [1, 2]);
    // No other port has the address, from the beginning.
    assert_eq!(bench.send(1, &plain(BROADCAST, mac(1))), Err(DropReason::SpoofedMac));
    assert_eq!(bench.reached(1, &plain(mac(1), mac(3))), [0]);
    // Packets for unknown stations cannot be for this port.
    assert_eq!(bench.reached(1, &plain(mac(77), mac(3))), [2]);
}

fn locked_ips(ips: &[IpAddr]) -> PortPolicy {
    PortPolicy { locked_mac: Some(mac(1)), locked_ips: ips.to_vec(), ..policy() }
}

#[test]
fn locked_ips_hold_for_arp_and_ipv4() {
    let own = [10, 0, 0, 1];
    let mut bench = Bench::new(&[locked_ips(&[IpAddr::V4(Ipv4Addr::from(own))]), policy()]);
    let mut send = |ethertype, payload: &[u8]| {
        bench.send(0, &ethernet(BROADCAST, mac(1), ethertype, payload)).map(|_| ())
    };
    let spoofed = Err(DropReason::SpoofedIp);
    assert_eq!(send(ARP, &arp(mac(1), own)), Ok(()));
    let probe = |target: [u8; 4]| [&arp(mac(1), [0; 4])[..24], &target].concat();
    assert_eq!(send(ARP, &probe(own)), Ok(()));
    assert_eq!(send(ARP, &probe([10, 0, 0, 2])), spoofed, "keeps another from its address");
    assert_eq!(send(ARP, &arp(mac(1), [10, 0, 0, 2])), spoofed);
    assert_eq!(send(ARP, &arp(mac(1), own)[..16]), spoofed, "cut off");
    let all = [255; 4];
    assert_eq!(send(IPV4, &ipv4(UDP, own, all, &[0; 8])), Ok(()));
    assert_eq!(send(IPV4, &ipv4(UDP, [10, 0, 0, 2], all, &[0; 8])), spoofed);
    let dhcp = [0, 68, 0, 67, 0, 8, 0, 0];
    assert_eq!(send(IPV4, &ipv4(UDP, [0; 4], all, &dhcp)), Ok(()), "asks for its address");
    assert_eq!(send(IPV4, &ipv4(UDP, [0; 4], all, &[0; 8])), spoofed);
    assert_eq!(send(IPV4, &ipv4(6, [0; 4], all, &dhcp)), spoofed);
    assert_eq!(send(IPV4, &ipv4(UDP, own, all, &[])[..15]), spoofed, "cut off");
    assert_eq!(send(IPV6, &ipv6(UDP, [0xfe; 16], &[0; 8])), spoofed, "no IPv6 address listed");
    assert_eq!(send(0x88b5, &[0; 46]), spoofed, "neither ARP nor IP");
}

const OWN_V6: [u8; 16] = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];

/// A neighbour discovery message of that type with one link-layer address option.
fn discovery(kind: u8, target: [u8; 16], option: u8, address: u32) -> Vec<u8> {
    [&[kind, 0, 0, 0, 0, 0, 0, 0], &target[..], &[option, 1], &mac(address).0].concat()
}

/// The one that is not the port's, and not the first of its kind.
#[test]
fn what_a_packet_claims_falsely_is_noted() {
    let own = [0xfd; 16];
    let mut bench = Bench::new(&[locked_ips(&[IpAddr::from(own)]), policy(), policy()]);
    let mut noted = |kind, target, options: [(u8, u32); 2]| {
        let [(first, its), (second, other)] = options;
        let second = [&[second, 1][..], &mac(other).0].concat();
        let message = [discovery(kind, target, first, its), second].concat();
        let frame = ethernet(BROADCAST, mac(1), IPV6, &ipv6(ICMPV6, own, &message));
        let mut steps = Vec::new();
        bench.switch.decide_noted(PortId(0), &frame, bench.now_ns, &mut steps);
        steps.into_iter().find_map(|step| match step {
            Step::Addresses(claim) => claim.err(),
            _ => None,
        })
    };
    assert_eq!(noted(136, own, [(1, 7), (2, 1)]), None);
    assert_eq!(noted(136, own, [(1, 1), (2, 7)]), Some(FalseClaim::Mac(mac(7))));
    let other = [0xfe; 16];
    assert_eq!(noted(136, other, [(1, 1), (2, 1)]), Some(FalseClaim::Ip(other.into())));
    let router = Some(FalseClaim::Router { is_redirect: false });
    assert_eq!(noted(134, own, [(1, 1), (2, 1)]), router);
}

#[test]
fn locked_ips_hold_for_ipv6_and_neighbour_discovery() {
    let mut bench = Bench::new(&[locked_ips(&[IpAddr::V6(Ipv6Addr::from(OWN_V6))]), policy()]);
    let mut send = |source: [u8; 16], next, payload: &[u8]| {
        let ip = ipv6(next, source, payload);
        bench.send(0, &ethernet(BROADCAST, mac(1), IPV6, &ip)).map(|_| ())
    };
    let (other, spoofed) = ([0xfd; 16], Err(DropReason::SpoofedIp));
    assert_eq!(send(OWN_V6, UDP, &[0; 8]), Ok(()));
    assert_eq!(send(other, UDP, &[0; 8]), spoofed);
    assert_eq!(send([0; 16], UDP, &[0; 8]), spoofed);
    assert_eq!(send(OWN_V6, ICMPV6, &discovery(135, other, 1, 1)), Ok(()), "asks for another");
    assert_eq!(send([0; 16], ICMPV6, &discovery(135, OWN_V6, 1, 1)[..24]), Ok(()), "is it free?");
    assert_eq!(send([0; 16], ICMPV6, &discovery(135, other, 1, 1)[..24]), spoofed, "and another?");
    let report = [143, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(send([0; 16], 0, &hop_by_hop(ICMPV6, &report)), Ok(()), "has no address yet");
    let too_big = [2, 0, 0, 0, 0, 0, 5, 0];
    assert_eq!(send([0; 16], ICMPV6, &too_big), spoofed, "says something else");
    let part = [&[ICMPV6, 0, 0, 8, 0, 0, 0, 7], &report[..]].concat();
    assert_eq!(send([0; 16], 44, &part), spoofed, "or any part of it");
    assert_eq!(send(OWN_V6, ICMPV6, &discovery(136, OWN_V6, 2, 1)), Ok(()));
    assert_eq!(send(OWN_V6, ICMPV6, &discovery(136, other, 2, 1)), spoofed, "claims another");
    let link = Err(DropReason::SpoofedMac);
    assert_eq!(send(OWN_V6, ICMPV6, &discovery(136, OWN_V6, 2, 2)), link);
    assert_eq!(send(OWN_V6, ICMPV6, &discovery(135, other, 1, 2)), link);
    assert_eq!(send(OWN_V6, ICMPV6, &discovery(134, other, 1, 1)), spoofed, "is no router");
    assert_eq!(send(OWN_V6, ICMPV6, &discovery(137, other, 1, 1)), spoofed);
    let claim = discovery(136, other, 2, 1);
    assert_eq!(send(OWN_V6, 0, &hop_by_hop(ICMPV6, &claim)), spoofed, "behind a header");
    let fragment = [&[ICMPV6, 0, 0, 1, 0, 0, 0, 7], &claim[..]].concat();
    assert_eq!(send(OWN_V6, 44, &fragment), spoofed, "in a fragment");
    let endless: Vec<u8> = std::iter::repeat_n([0, 0, 1, 4, 0, 0, 0, 0], 20).flatten().collect();
    assert_eq!(send(OWN_V6, 0, &endless), spoofed, "more headers than anybody needs");
    assert_eq!(send(OWN_V6, ICMPV6, &[136]), spoofed, "cut off");
}

#[test]
fn static_addresses_neither_age_nor_move() {
    let owner = PortPolicy { static_macs: vec![mac(1)], ..policy() };
    let mut bench = Bench::new(&[owner.clone(), policy(), policy()]);
    assert_eq!(bench.reached(1, &plain(mac(1), mac(2))), [0], "before it has said a word");
    assert_eq!(bench.send(1, &plain(BROADCAST, mac(1))), Err(DropReason::SpoofedMac));
    bench.wait_ms(3 * AGE_MAX_MS);
    assert_eq!(bench.reached(1, &plain(mac(1), mac(2))), [0]);
    let taken = bench.switch.set_port(PortId(1), owner);
    assert_eq!(taken, Err(PolicyError::MacsTaken(1)));
    bench.switch.set_port(PortId(0), policy()).unwrap();
    assert_eq!(bench.reached(1, &plain(mac(1), mac(2))), [0, 2]);
}

#[test]
fn a_storm_is_cut_and_known_stations_are_not_concerned() {
    let limited = PortPolicy { storm_packets_per_second: 100, ..policy() };
    let mut bench = Bench::new(&[limited, policy()]);
    bench.send(1, &plain(mac(1), mac(9))).unwrap();
    let unknown = |n: u32| if n.is_multiple_of(2) { BROADCAST } else { mac(1000 + n) };
    let mut passed = 0;
    for n in 0..10_000 {
        bench.now_ns += NS_PER_MS / 10;
        match bench.send(0, &plain(unknown(n), mac(1))) {
            Ok(_) => passed += 1,
            Err(reason) => assert_eq!(reason, DropReason::Storm),
        }
        assert_eq!(bench.reached(0, &plain(mac(9), mac(1))), [1]);
        assert_eq!(bench.reached(1, &plain(BROADCAST, mac(9))), [0], "another port's storm");
    }
    // One second: the rate, and a tenth of a second of burst.
    assert!((100..=112).contains(&passed), "{passed}");
}

#[test]
fn a_rate_from_the_guest_makes_it_wait() {
    let rate_from_guest = RateLimit { packets_per_second: 1000, burst_us: 1, bits_per_second: 0 };
    let limited = PortPolicy { rate_from_guest, ..policy() };
    let mut bench = Bench::new(&[limited, policy()]);
    let start_ns = bench.now_ns;
    for _ in 0..1000 {
        let frame = plain(BROADCAST, mac(1));
        if let Err(at_ns) = common::send(&mut bench.switch, PortId(0), &frame, bench.now_ns) {
            assert!(at_ns > bench.now_ns);
            bench.now_ns = at_ns;
            assert!(common::send(&mut bench.switch, PortId(0), &frame, bench.now_ns).is_ok());
        }
    }
    let elapsed_ms = (bench.now_ns - start_ns) / NS_PER_MS;
    assert!((996..=1000).contains(&elapsed_ms), "{elapsed_ms} ms for 1000 packets");
}

#[test]
fn a_rate_to_the_guest_counts_what_is_delivered() {
    let rate_to_guest =
        RateLimit { bits_per_second: 8_000_000, burst_us: 1, packets_per_second: 0 };
    let bench = Bench::new(&[PortPolicy { rate_to_guest, ..policy() }, policy()]);
    let (switch, now_ns) = (&bench.switch, bench.now_ns);
    for _ in 0..5 {
        assert_eq!(switch.room_at(PortId(0), now_ns), Room::Yes, "asking costs nothing");
    }
    switch.delivered(PortId(0), 1000, now_ns);
    let Room::At(at_ns) = switch.room_at(PortId(0), now_ns) else { panic!("room at once") };
    assert!((at_ns - now_ns).abs_diff(NS_PER_MS) < 2000, "{} ns", at_ns - now_ns);
    assert_eq!(switch.room_at(PortId(0), at_ns), Room::Yes);
    assert_eq!(switch.room_at(PortId(1), now_ns), Room::Yes);
}

#[test]
fn nothing_goes_back_where_it_came_from() {
    let mut bench = Bench::new(&[access(1), access(1)]);
    bench.send(0, &plain(BROADCAST, mac(1))).unwrap();
    assert_eq!(bench.send(0, &plain(mac(1), mac(2))), Err(DropReason::NoRoute));
    assert_eq!(bench.reached(0, &plain(BROADCAST, mac(1))), [1]);
}

#[test]
fn policies_survive_every_cut_of_every_frame() {
    let locked = locked_ips(&[IpAddr::V6(Ipv6Addr::from(OWN_V6))]);
    let mut bench = Bench::new(&[locked, trunk(&[5], Some(7)), policy()]);
    bench.switch.snoop_multicast(true);
    let frame = ethernet(
        BROADCAST,
        mac(1),
        IPV6,
        &ipv6(0, OWN_V6, &hop_by_hop(ICMPV6, &discovery(136, OWN_V6, 2, 1))),
    );
    // Without its option the message claims no link-layer address.
    let option_at = frame.len() - 8;
    for len in 0..frame.len() {
        let went = bench.send(0, &frame[..len]);
        let _ = bench.send(1, &tagged(&frame, CUSTOMER, 5)[..len.max(1)]);
        let _ = bench.send(2, &frame[..len]);
        if len < 14 {
            assert_eq!(went, Err(DropReason::Malformed));
        } else if len != option_at {
            assert!(matches!(went, Err(DropReason::SpoofedIp | DropReason::SpoofedMac)), "{len}");
        }
    }
    assert!(bench.send(0, &frame).is_ok());
}

#[test]
fn ip_addresses_are_noted_for_a_port_that_asks_and_not_of_it() {
    let uplink = PortPolicy { notes_ips: true, ..access(10) };
    let mut bench = Bench::new(&[access(10), access(10), uplink.clone(), access(20)]);
    let request = |number: u32, last| {
        ethernet(BROADCAST, mac(number), ARP, &arp(mac(number), [10, 0, 0, last]))
    };
    for (from, number) in [(0, 1), (2, 3), (3, 4)] {
        bench.send(from, &request(number, u8::try_from(number).unwrap())).unwrap();
    }
    bench.send(1, &ethernet(mac(3), mac(2), ARP, &arp(mac(2), [10, 0, 0, 1]))).unwrap();
    let found = |bench: &Bench| -> Vec<_> {
        let seen = bench.switch.shared().seen_ips(bench.now_ns / NS_PER_MS);
        seen.into_iter().map(|it| (it.port.0, it.vlan, it.address, it.ip)).collect()
    };
    let ip = |last| IpAddr::from([10, 0, 0, last]);
    let first = (0, 10, mac(1), ip(1));
    assert_eq!(found(&bench), [first, (3, 20, mac(4), ip(4))], "the second has another's");
    bench.switch.set_link(PortId(0), false);
    assert_eq!(found(&bench)[0], (1, 10, mac(2), ip(1)), "which it gets then");
    bench.wait_ms(AGE_MAX_MS);
    assert_eq!(found(&bench), []);
    bench.switch.set_port(PortId(2), PortPolicy { notes_ips: false, ..uplink }).unwrap();
    bench.send(1, &request(2, 2)).unwrap();
    assert_eq!(found(&bench), [], "no port asks");
}
