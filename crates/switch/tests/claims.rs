//! The address that a guest was told is its own: who may use it, and when it is free again.

mod common;

use common::*;
use ringway_net::{DropReason, MacAddress};
use ringway_switch::{AddressNews, PortId, PortPolicy, Vlan, VlanSet};

const OWNER: PortId = PortId(0);
const OTHER: PortId = PortId(1);
const OWN: u32 = 7;

/// The state before another port sends with the owner's address.
type Before = fn(&mut Bench);

fn claimed(bench: &mut Bench) {
    assert!(bench.switch.claim(OWNER, mac(OWN)));
}

/// Owner, another port, and a third that asks where the owner is.
fn ports() -> Bench {
    Bench::new(&[PortPolicy::default(), PortPolicy::default(), PortPolicy::default()])
}

fn heard(bench: &mut Bench, port: u16) {
    bench.reached(port, &plain(BROADCAST, mac(OWN)));
}

const FOLLOWED: Result<(), DropReason> = Ok(());
const REFUSED: Result<(), DropReason> = Err(DropReason::SpoofedMac);

const CASES: [(&str, Before, Result<(), DropReason>); 9] = [
    ("nothing is claimed", |_| {}, FOLLOWED),
    ("the owner has said nothing yet", claimed, REFUSED),
    (
        "the owner was heard",
        |bench| {
            claimed(bench);
            heard(bench, 0);
        },
        REFUSED,
    ),
    (
        "the owner was not heard for long",
        |bench| {
            claimed(bench);
            heard(bench, 0);
            bench.wait_ms(3_600_000);
        },
        REFUSED,
    ),
    (
        "the other one had it before",
        |bench| {
            heard(bench, 1);
            claimed(bench);
        },
        REFUSED,
    ),
    (
        "what was learned is forgotten, the claim is not",
        |bench| {
            claimed(bench);
            bench.switch.forget(OWNER);
        },
        REFUSED,
    ),
    (
        "the owner has gone, or its link is down",
        |bench| {
            claimed(bench);
            bench.switch.release(OWNER);
        },
        FOLLOWED,
    ),
    (
        "the owner's port is removed",
        |bench| {
            claimed(bench);
            bench.switch.remove_port(OWNER);
        },
        FOLLOWED,
    ),
    (
        "the owner has claimed another one",
        |bench| {
            claimed(bench);
            assert!(bench.switch.claim(OWNER, mac(OWN + 1)));
        },
        FOLLOWED,
    ),
];

#[test]
fn who_may_use_a_guests_own_address() {
    let fixed_to_other = || PortPolicy { static_macs: vec![mac(OWN)], ..PortPolicy::default() };
    for (case, before, expected) in CASES {
        let mut bench = ports();
        before(&mut bench);
        let went = bench.send(1, &plain(BROADCAST, mac(OWN))).map(|_| ());
        assert_eq!(went, expected, "{case}");
        let owner_reached = bench.reached(2, &plain(mac(OWN), mac(50))) == [1];
        assert_eq!(owner_reached, expected.is_ok(), "{case}: packets for the address");
    }
    let mut bench = ports();
    claimed(&mut bench);
    bench.switch.set_port(OTHER, fixed_to_other()).expect("sensible");
    assert!(bench.send(1, &plain(BROADCAST, mac(OWN))).is_ok(), "configuration counts more");
}

#[test]
fn other_addresses_go_where_they_like() {
    let mut bench = ports();
    claimed(&mut bench);
    // A bridge in the owner's guest, and stations behind an uplink that move.
    for n in 100..120 {
        assert_eq!(bench.reached(0, &plain(BROADCAST, mac(n))), [1, 2]);
        assert_eq!(bench.reached(1, &plain(BROADCAST, mac(n))), [0, 2]);
        assert_eq!(bench.reached(2, &plain(mac(n), mac(50))), [1]);
    }
    assert_eq!(bench.switch.moved_to(OTHER), 20);
    assert_eq!(bench.switch.moved_to(OWNER), 0);
}

#[test]
fn an_address_is_its_owners_in_its_own_vlans() {
    let access = |number| PortPolicy { vlan: Vlan::Access(vlan(number)), ..PortPolicy::default() };
    let trunk = || {
        let vlan = Vlan::Trunk { tagged: VlanSet::all(), native: None };
        PortPolicy { vlan, ..PortPolicy::default() }
    };
    let table = [
        (access(2), access(2), REFUSED),
        (access(2), access(3), Ok(())),
        (access(2), PortPolicy::default(), Ok(())),
        (trunk(), access(3), REFUSED),
    ];
    for (owner, other, expected) in table {
        let mut bench = Bench::new(&[PortPolicy::default(), other]);
        claimed(&mut bench);
        // The claim follows the policy.
        bench.switch.set_port(OWNER, owner).expect("sensible");
        let went = bench.send(1, &plain(BROADCAST, mac(OWN))).map(|_| ());
        assert_eq!(went, expected, "{:?}", bench.switch.policy(OTHER));
    }
}

#[test]
fn an_address_has_one_owner() {
    let mut bench = ports();
    claimed(&mut bench);
    claimed(&mut bench);
    assert!(!bench.switch.claim(OTHER, mac(OWN)));
    assert!(!bench.switch.claim(OTHER, BROADCAST) && !bench.switch.claim(OTHER, MacAddress::ZERO));
    bench.switch.release(OWNER);
    assert!(bench.switch.claim(OTHER, mac(OWN)));
    assert_eq!(bench.send(0, &plain(BROADCAST, mac(OWN))), Err(DropReason::SpoofedMac));
}

#[test]
fn moves_and_refusals_are_told_once() {
    let mut bench = ports();
    claimed(&mut bench);
    assert!(!bench.switch.has_news());
    let news = |from, to, is_refused| AddressNews { address: mac(OWN), from, to, is_refused };
    for _ in 0..3 {
        let _ = bench.send(1, &plain(BROADCAST, mac(OWN)));
    }
    assert_eq!(bench.switch.take_news(), Some(news(OWNER, OTHER, true)));
    assert_eq!(bench.switch.take_news(), None);
    bench.switch.release(OWNER);
    bench.reached(0, &plain(BROADCAST, mac(OWN)));
    assert_eq!(bench.switch.take_news(), None, "it was nowhere before");
    bench.reached(1, &plain(BROADCAST, mac(OWN)));
    assert_eq!(bench.switch.take_news(), Some(news(OWNER, OTHER, false)));
}

/// A guest that was heard at the owner's port has stopped there, as in front of its migration.
fn stopped() -> Bench {
    let mut bench = ports();
    claimed(&mut bench);
    heard(&mut bench, 0);
    bench.switch.release(OWNER);
    bench.switch.set_stopped(OWNER, true);
    bench
}

#[test]
fn packets_for_a_guest_that_has_stopped_go_everywhere_until_it_goes_on() {
    let mut bench = stopped();
    assert_eq!(bench.reached(2, &plain(mac(OWN), mac(50))), [0, 1], "it may be anywhere");
    bench.switch.set_stopped(OWNER, false);
    assert_eq!(bench.reached(2, &plain(mac(OWN), mac(50))), [0], "it has said nothing since");
    let fixed = PortPolicy { static_macs: vec![mac(9)], ..PortPolicy::default() };
    bench.switch.set_port(OWNER, fixed).expect("sensible");
    for (is_stopped, reached) in [(true, &[0, 1][..]), (false, &[0])] {
        bench.switch.set_stopped(OWNER, is_stopped);
        assert_eq!(bench.reached(2, &plain(mac(9), mac(50))), reached, "{is_stopped}");
    }
}

/// It has moved to another host.
#[test]
fn a_configured_station_may_be_behind_an_uplink_while_its_guest_has_stopped() {
    let fixed = || PortPolicy { static_macs: vec![mac(9)], ..PortPolicy::default() };
    let uplink = || PortPolicy { is_uplink: true, ..PortPolicy::default() };
    let says = plain(BROADCAST, mac(9));
    for by_policy in [true, false] {
        let behind = if by_policy { uplink() } else { PortPolicy::default() };
        let mut bench = Bench::new(&[fixed(), behind, PortPolicy::default()]);
        if !by_policy {
            bench.switch.leads_to_a_network(OTHER);
        }
        for (is_stopped, expected) in [(false, REFUSED), (true, FOLLOWED), (false, REFUSED)] {
            bench.switch.set_stopped(OWNER, is_stopped);
            assert_eq!(bench.send(1, &says).map(|_| ()), expected, "{is_stopped}");
            assert_eq!(bench.send(2, &says).map(|_| ()), REFUSED, "a guest is not another one");
        }
        assert_eq!(bench.reached(2, &plain(mac(9), mac(50))), [0], "it is not learned there");
    }
}

#[test]
fn a_station_moves_unheard_from_a_port_that_has_stopped_and_counts_as_one_move() {
    let mut bench = stopped();
    assert!(bench.switch.claim(OTHER, mac(OWN)) && bench.switch.claim(OTHER, mac(OWN)));
    assert_eq!(bench.reached(2, &plain(mac(OWN), mac(50))), [1]);
    assert_eq!((bench.switch.moved_to(OTHER), bench.switch.moved_to(OWNER)), (1, 0));
    let (address, from, to) = (mac(OWN), OWNER, OTHER);
    let news = AddressNews { address, from, to, is_refused: false };
    assert_eq!(bench.switch.take_news(), Some(news));
    // Then it speaks, and its old port goes.
    heard(&mut bench, 1);
    bench.switch.forget(OWNER);
    assert_eq!((bench.switch.moved_to(OTHER), bench.switch.take_news()), (1, None));
    assert_eq!(bench.reached(2, &plain(mac(OWN), mac(50))), [1]);
}

#[test]
fn no_station_moves_unheard_from_a_port_that_runs_or_that_it_is_configured_at() {
    let mut bench = ports();
    heard(&mut bench, 0);
    bench.switch.claim(OTHER, mac(OWN));
    assert_eq!(bench.switch.moved_to(OTHER), 0, "its guest runs");
    let fixed = PortPolicy { static_macs: vec![mac(OWN)], ..PortPolicy::default() };
    bench.switch.release(OTHER);
    bench.switch.set_port(OWNER, fixed).expect("sensible");
    bench.switch.set_stopped(OWNER, true);
    bench.switch.claim(OTHER, mac(OWN));
    assert_eq!(bench.switch.moved_to(OTHER), 0, "it is configured");
    let mut bench = stopped();
    assert!(bench.switch.claim(PortId(2), mac(OWN)));
    bench.reached(2, &plain(BROADCAST, mac(OWN)));
    assert!(!bench.switch.claim(OTHER, mac(OWN)), "it is at a third one by now");
    assert_eq!(bench.switch.moved_to(OTHER), 0);
}
