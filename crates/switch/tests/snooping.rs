//! Multicast snooping: who gets what, and that no port can spoil it for others.

mod common;

use common::*;
use ringway_net::{DropReason, MacAddress};
use ringway_switch::{GROUPS_PER_PORT_MAX, PortPolicy};

/// The group 239.1.2.3 on the wire.
const GROUP_MAC: MacAddress = MacAddress([1, 0, 0x5e, 1, 2, 3]);
const GROUP: [u8; 4] = [239, 1, 2, 3];
const GROUP_V6: [u8; 16] = [0xff, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x12, 0x34];
const GROUP_V6_MAC: MacAddress = MacAddress([0x33, 0x33, 0, 0, 0x12, 0x34]);
const HOST: [u8; 4] = [10, 0, 0, 1];
const LINK_LOCAL: [u8; 16] = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];

/// Port 0 is the uplink, 1 to 3 are guests.
fn bench() -> Bench {
    let uplink = PortPolicy { is_uplink: true, ..PortPolicy::default() };
    let guest = PortPolicy::default();
    let mut bench = Bench::new(&[uplink, guest.clone(), guest.clone(), guest]);
    bench.switch.snoop_multicast(true);
    bench
}

fn igmp(from: u16, message: &[u8]) -> Vec<u8> {
    let ip = ipv4(IGMP, HOST, [224, 0, 0, 22], message);
    ethernet(MacAddress([1, 0, 0x5e, 0, 0, 22]), mac(u32::from(from)), IPV4, &ip)
}

fn mld(from: u16, message: &[u8]) -> Vec<u8> {
    let ip = ipv6(0, LINK_LOCAL, &hop_by_hop(ICMPV6, message));
    ethernet(MacAddress([0x33, 0x33, 0, 0, 0, 22]), mac(u32::from(from)), IPV6, &ip)
}

fn igmp_short(kind: u8, group: [u8; 4]) -> Vec<u8> {
    [&[kind, 0, 0, 0], &group[..]].concat()
}

fn igmp3(records: &[(u8, u8, [u8; 4])]) -> Vec<u8> {
    let count = u8::try_from(records.len()).unwrap();
    let mut message = vec![0x22, 0, 0, 0, 0, 0, 0, count];
    for (kind, sources, group) in records {
        message.extend([*kind, 0, 0, *sources]);
        message.extend(group);
        message.extend(std::iter::repeat_n([10, 9, 8, 7], usize::from(*sources)).flatten());
    }
    message
}

fn query(bench: &mut Bench) {
    bench.send(0, &igmp(100, &igmp_short(0x11, [0; 4]))).unwrap();
    bench.send(0, &mld(100, &[&[130, 0, 0, 0, 0, 0, 0, 0], &[0; 16][..]].concat())).unwrap();
}

/// The ports that get a packet to the group from the uplink.
fn members(bench: &mut Bench) -> Vec<u16> {
    bench.reached(0, &ethernet(GROUP_MAC, mac(100), IPV4, &ipv4(UDP, HOST, GROUP, &[0; 20])))
}

fn members_v6(bench: &mut Bench) -> Vec<u16> {
    bench.reached(0, &ethernet(GROUP_V6_MAC, mac(100), IPV6, &ipv6(UDP, LINK_LOCAL, &[0; 20])))
}

#[test]
fn without_a_querier_everybody_gets_everything() {
    let mut bench = bench();
    bench.send(1, &igmp(1, &igmp_short(0x16, GROUP))).unwrap();
    assert_eq!(members(&mut bench), [1, 2, 3]);
    query(&mut bench);
    assert_eq!(members(&mut bench), [1]);
    bench.wait_ms(300_000);
    assert_eq!(members(&mut bench), [1, 2, 3], "the querier is gone");
}

#[test]
fn members_of_every_version_get_their_group_and_routers_all() {
    for report in [igmp_short(0x12, GROUP), igmp_short(0x16, GROUP), igmp3(&[(4, 0, GROUP)])] {
        let mut bench = bench();
        query(&mut bench);
        assert_eq!(members(&mut bench), [0; 0]);
        assert_eq!(bench.reached(2, &igmp(2, &report)), [0], "reports are for routers");
        assert_eq!(members(&mut bench), [2]);
        let from_guest = ethernet(GROUP_MAC, mac(3), IPV4, &ipv4(UDP, HOST, GROUP, &[0; 20]));
        assert_eq!(bench.reached(3, &from_guest), [0, 2]);
    }
    let (one, two) = (
        [&[131, 0, 0, 0, 0, 0, 0, 0], &GROUP_V6[..]].concat(),
        [&[143, 0, 0, 0, 0, 0, 0, 1, 4, 0, 0, 0], &GROUP_V6[..]].concat(),
    );
    for report in [one, two] {
        let mut bench = bench();
        query(&mut bench);
        assert_eq!(bench.reached(3, &mld(3, &report)), [0]);
        assert_eq!(members_v6(&mut bench), [3]);
        assert_eq!(members(&mut bench), [0; 0], "the other family");
    }
}

#[test]
fn who_leaves_loses_the_group_soon_and_not_for_others() {
    for leave in [igmp_short(0x17, GROUP), igmp3(&[(3, 0, GROUP)])] {
        let mut bench = bench();
        query(&mut bench);
        for port in [1, 2] {
            bench.send(port, &igmp(port, &igmp_short(0x16, GROUP))).unwrap();
        }
        bench.send(1, &igmp(1, &leave)).unwrap();
        assert_eq!(members(&mut bench), [1, 2], "there may be another host behind the port");
        bench.wait_ms(9_000);
        assert_eq!(members(&mut bench), [2]);
    }
}

#[test]
fn one_report_can_speak_of_many_groups() {
    let mut bench = bench();
    query(&mut bench);
    let report = igmp3(&[(2, 2, [239, 9, 9, 9]), (6, 0, [239, 9, 9, 8]), (5, 1, GROUP)]);
    bench.send(1, &igmp(1, &report)).unwrap();
    assert_eq!(members(&mut bench), [1]);
    let blocked = MacAddress([1, 0, 0x5e, 9, 9, 8]);
    assert_eq!(bench.reached(0, &plain(blocked, mac(100))), [0; 0]);
}

#[test]
fn what_everybody_needs_is_never_held_back() {
    let mut bench = bench();
    query(&mut bench);
    let needed =
        [[1, 0, 0x5e, 0, 0, 251], [0x33, 0x33, 0, 0, 0, 1], [0x33, 0x33, 0xff, 1, 2, 3], [0xff; 6]];
    for address in needed {
        assert_eq!(bench.reached(0, &plain(MacAddress(address), mac(100))), [1, 2, 3]);
    }
}

#[test]
fn a_guest_cannot_play_the_router() {
    let mut bench = bench();
    bench.send(1, &igmp(1, &igmp_short(0x11, [0; 4]))).unwrap();
    assert_eq!(members(&mut bench), [1, 2, 3], "no port believes in that querier");
    query(&mut bench);
    bench.send(1, &igmp(1, &igmp_short(0x11, [0; 4]))).unwrap();
    assert_eq!(members(&mut bench), [0; 0], "nor in that router");
    // Where no uplink is named, routers may be anywhere, but not behind a lock.
    let locked = PortPolicy { locked_mac: Some(mac(0)), ..PortPolicy::default() };
    let mut bench = Bench::new(&[locked, PortPolicy::default(), PortPolicy::default()]);
    bench.switch.snoop_multicast(true);
    let query = |from: u16| igmp(from, &igmp_short(0x11, [0; 4]));
    bench.send(0, &query(0)).unwrap();
    let packet = plain(GROUP_MAC, mac(2));
    assert_eq!(bench.reached(2, &packet), [0, 1]);
    bench.send(1, &query(1)).unwrap();
    assert_eq!(bench.reached(2, &packet), [1]);
}

#[test]
fn a_guest_that_joins_everything_spoils_nothing_for_others() {
    let mut bench = bench();
    query(&mut bench);
    for n in 0..50_000u32 {
        let [_, b, c, d] = n.to_be_bytes();
        let report = igmp3(&[(4, 0, [239, b, c, d]), (4, 0, [238, d, c, b])]);
        bench.send(1, &igmp(1, &report)).unwrap();
    }
    for n in 0..GROUPS_PER_PORT_MAX {
        let group = [239, 77, 0, u8::try_from(n).unwrap()];
        bench.send(2, &igmp(2, &igmp_short(0x16, group))).unwrap();
    }
    for n in 0..GROUPS_PER_PORT_MAX {
        let address = MacAddress([1, 0, 0x5e, 77, 0, u8::try_from(n).unwrap()]);
        assert_eq!(bench.reached(0, &plain(address, mac(100))), [1, 2]);
    }
    assert_eq!(members(&mut bench), [1], "only the greedy one gets what it does not need");
}

#[test]
fn a_vlan_has_its_own_members() {
    use ringway_switch::Vlan;
    let access = |number| PortPolicy { vlan: Vlan::Access(vlan(number)), ..PortPolicy::default() };
    let mut bench = Bench::new(&[access(1), access(1), access(1), access(2), access(2)]);
    bench.switch.snoop_multicast(true);
    bench.send(0, &igmp(0, &igmp_short(0x11, [0; 4]))).unwrap();
    bench.send(1, &igmp(1, &igmp_short(0x16, GROUP))).unwrap();
    assert_eq!(bench.reached(2, &plain(GROUP_MAC, mac(2))), [0, 1]);
    assert_eq!(bench.reached(3, &plain(GROUP_MAC, mac(3))), [4], "no querier there");
}

#[test]
fn reports_that_are_cut_off_or_lie_are_survived() {
    let mut bench = bench();
    query(&mut bench);
    let honest = igmp(1, &igmp3(&[(4, 3, GROUP), (4, 0, [239, 4, 4, 4])]));
    for len in 0..honest.len() {
        match bench.send(1, &honest[..len]) {
            Err(reason) => assert_eq!((reason, len < 14), (DropReason::Malformed, true)),
            Ok(_) => assert!(len >= 14),
        }
    }
    // Counts far beyond the bytes: the port gets all groups, no other does.
    for lie in [vec![0x22, 0, 0, 0, 0, 0, 0xff, 0xff], igmp3(&[(4, 255, [239, 5, 5, 5])])] {
        let mut message = lie;
        message[7] = 0xff;
        bench.send(2, &igmp(2, &message)).unwrap();
    }
    assert!(!members(&mut bench).contains(&3));
    assert!(members(&mut bench).contains(&2));
}
