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
