//! Guests that come from another router, with their addresses.

mod lab;

use std::collections::HashMap;
use std::net::IpAddr;

use lab::packets::{REMOTE, dhcp, packet, udp};
use lab::{GUEST, Lab, MAC};
use proptest::prelude::*;
use ringway_nat::{ADDRESSES_PER_PORT_MAX, LEASES_PER_PORT_MAX, STATIONS_PER_PORT_MAX};
use ringway_nat::{Actions, ArrivalError, Guest, LeaseState, Note, Refusal, StationState, Verdict};
use ringway_net::MacAddress;

const OTHER: Guest = Guest(4);
const REQUEST: u8 = 3;

fn two_guests() -> Lab {
    let mut lab = Lab::scripted();
    lab.nat.add_guest(OTHER, "vm1");
    lab
}

/// A datagram from that address and MAC address; `true`: the router takes it.
fn sends(lab: &mut Lab, guest: Guest, mac: [u8; 6], address: [u8; 4]) -> bool {
    let mut frame = packet(REMOTE, 17, &udp(4000, 7, b"x"));
    frame[6..12].copy_from_slice(&mac);
    frame[26..30].copy_from_slice(&address);
    lab.sender = guest;
    lab.send(&frame);
    let is_refused = lab.verdicts.last() == Some(&Verdict::Refused(Refusal::SpoofedSource));
    assert!(is_refused || lab.verdicts.last() == Some(&Verdict::Done));
    !is_refused
}

fn leased(mac: [u8; 6], address: [u8; 4], left_s: u32) -> StationState {
    let lease = Some(LeaseState { address: address.into(), left_s });
    StationState { name: "vm0".into(), mac: MacAddress(mac), lease, addresses: Vec::new() }
}

#[test]
fn a_guest_goes_on_with_its_addresses_behind_another_router() {
    let mut source = two_guests();
    // The first address is another guest's there.
    source.sender = OTHER;
    source.send(&dhcp(REQUEST, 77, Some([10, 0, 2, 15])));
    source.sender = GUEST;
    source.send(&dhcp(REQUEST, 9, Some([10, 0, 2, 20])));
    source.now = source.now.plus(600_000_000_000);
    assert!(sends(&mut source, GUEST, MAC, [10, 0, 2, 20]));
    assert!(sends(&mut source, GUEST, MAC, [10, 0, 2, 50]));
    source.send(&lab::packets::packet6(lab::packets::REMOTE_6, 17, &udp(4000, 7, b"x")));
    let state = source.nat.guest_state(GUEST, source.now);
    let six = IpAddr::V6(lab::guest6());
    let addresses = vec![six, [10, 0, 2, 50].into()];
    assert_eq!(state, [StationState { addresses, ..leased(MAC, [10, 0, 2, 20], 3000) }]);

    let mut here = two_guests();
    assert_eq!(here.nat.accept_guest(OTHER, &state, here.now, &mut Actions::new()), Ok(()));
    // It is the name of the port here that counts.
    let state_here = here.nat.guest_state(OTHER, here.now);
    assert_eq!(state_here, [StationState { name: "vm1".into(), ..state[0].clone() }]);
    for address in [[10, 0, 2, 20], [10, 0, 2, 50]] {
        assert!(sends(&mut here, OTHER, MAC, address));
        assert!(!sends(&mut here, GUEST, [2, 0, 0, 0, 0, 8], address));
    }
    // A lease is not longer than the router's own.
    let long = [leased(MAC, [10, 0, 2, 20], u32::MAX)];
    assert_eq!(here.nat.accept_guest(OTHER, &long, here.now, &mut Actions::new()), Ok(()));
    let lease = here.nat.guest_state(OTHER, here.now)[0].lease.expect("a lease");
    assert_eq!(lease.left_s, 3600);
    assert_eq!(here.nat.guest_state(GUEST, here.now), []);
}

#[test]
fn a_refusal_says_which_address_and_whose() {
    let mut lab = two_guests();
    lab.sender = OTHER;
    lab.send(&dhcp(REQUEST, 77, Some([10, 0, 2, 20])));
    assert!(sends(&mut lab, OTHER, [2, 0, 0, 0, 0, 77], [10, 0, 2, 50]));
    let now = lab.now;
    let mut why = |state: &[StationState]| {
        let checked = lab.nat.check_guest(GUEST, state, now);
        assert_eq!(lab.nat.accept_guest(GUEST, state, now, &mut Actions::new()), checked);
        checked.expect_err("refused").to_string()
    };
    let used = |address: [u8; 4]| {
        let addresses = vec![IpAddr::from(address)];
        StationState { lease: None, addresses, ..leased(MAC, [0; 4], 0) }
    };
    assert_eq!(why(&[leased(MAC, [10, 0, 2, 20], 9)]), "10.0.2.20 is another guest's: vm1");
    assert_eq!(why(&[used([10, 0, 2, 50])]), "10.0.2.50 is another guest's: vm1");
    let outside = "192.0.2.7 is not in the router's network";
    assert_eq!(why(&[leased(MAC, [192, 0, 2, 7], 9)]), outside);
    assert_eq!(why(&[used([192, 0, 2, 7])]), outside);
    assert_eq!(why(&[used([10, 0, 2, 2])]), "10.0.2.2 is not in the router's network");
    assert_eq!(why(&[leased(MAC, [10, 0, 2, 7], 9)]), "10.0.2.7 is not in the router's network");
    let many = |count| vec![used([10, 0, 2, 60]); count];
    assert_eq!(why(&many(STATIONS_PER_PORT_MAX + 1)), "too many stations behind one port");
    assert_eq!(why(&many(ADDRESSES_PER_PORT_MAX + 1)), "too many addresses behind one port");
    let leases = vec![leased(MAC, [10, 0, 2, 60], 9); LEASES_PER_PORT_MAX + 1];
    assert_eq!(why(&leases), "there is no room for so many leases");
    assert_eq!(
        why(&[leased([1; 6], [10, 0, 2, 60], 9)]),
        "01:01:01:01:01:01 is no station's address"
    );
    let nowhere = lab.nat.accept_guest(Guest(9), &[], now, &mut Actions::new());
    assert_eq!(nowhere, Err(ArrivalError::NoPort));
    assert_eq!(lab.nat.guest_state(GUEST, now), []);
}

/// Each ringway has another network of IPv6, where `range` names none.
#[test]
fn addresses_of_another_network_of_ipv6_are_left_behind() {
    let mut lab = two_guests();
    let addresses = vec!["fd00:1::9".parse().unwrap(), lab::guest6().into()];
    let state = StationState { addresses, ..leased(MAC, [10, 0, 2, 20], 9) };
    assert_eq!(lab.nat.accept_guest(GUEST, &[state], lab.now, &mut Actions::new()), Ok(()));
    let known = &lab.nat.guest_state(GUEST, lab.now)[0];
    assert_eq!(known.addresses, [IpAddr::from(lab::guest6())]);
}

/// Another guest is behind the port now, or the same one as it was before.
#[test]
fn leases_that_came_stand_in_place_of_those_of_their_port() {
    let mut lab = two_guests();
    for number in 0..8 {
        lab.send(&dhcp(REQUEST, u16::from(number), Some([10, 0, 2, 20 + number])));
    }
    let before = lab.nat.guest_state(GUEST, lab.now);
    assert_eq!(lab.nat.accept_guest(GUEST, &[], lab.now, &mut Actions::new()), Ok(()));
    assert_eq!(lab.nat.guest_state(GUEST, lab.now), before);
    let came: Vec<StationState> =
        (3..9u8).map(|last| leased([2, 0, 0, 0, 9, last], [10, 0, 2, 20 + last], 9)).collect();
    assert_eq!(lab.nat.accept_guest(GUEST, &came, lab.now, &mut Actions::new()), Ok(()));
    assert_eq!(lab.nat.guest_state(GUEST, lab.now), came);
}

fn station() -> impl Strategy<Value = StationState> {
    let address =
        || prop_oneof![9 => (2u8..40).prop_map(|last| [10, 0, 2, last]), 1 => any::<[u8; 4]>()];
    let six = any::<u8>().prop_map(|last| {
        let mut octets = lab::guest6().octets();
        // None that comes with a lease.
        (octets[14], octets[15]) = (1, last);
        IpAddr::from(octets)
    });
    let one = prop_oneof![address().prop_map(IpAddr::from), six];
    let mac =
        prop_oneof![9 => (0u8..6).prop_map(|last| [2, 0, 0, 0, 0, last]), 1 => any::<[u8; 6]>()];
    let lease = proptest::option::of((address(), any::<u32>()));
    (mac, lease, proptest::collection::vec(one, 0..5)).prop_map(|(mac, lease, addresses)| {
        let lease = lease.map(|(it, left_s)| LeaseState { address: it.into(), left_s });
        StationState { name: "x".into(), mac: MacAddress(mac), lease, addresses }
    })
}

/// The port behind which each address is. A guest that uses more than it may have leases can lose
/// one to another guest's lease; leases come first.
fn owners(notes: &[Note]) -> HashMap<IpAddr, Guest> {
    let mut owners = HashMap::new();
    for note in notes {
        let (owner, is_leased) =
            *owners.entry(note.address).or_insert((note.guest, note.is_leased));
        let is_fine = owner == note.guest || is_leased != note.is_leased;
        assert!(is_fine, "{} is of two guests", note.address);
    }
    owners.into_iter().map(|(address, (owner, _))| (address, owner)).collect()
}

proptest! {
    /// The state that a front-end may hand over is all there, or nothing of it; no other port
    /// loses anything.
    #[test]
    fn any_state_is_accepted_as_a_whole_or_refused(
        moves in proptest::collection::vec(
            (0u16..3, 0u8..3, 15u8..40, proptest::collection::vec(station(), 0..5)), 1..30,
        ),
    ) {
        let mut lab = two_guests();
        lab.nat.add_guest(Guest(5), "vm2");
        for (guest, kind, last, state) in moves {
            let guest = Guest(3 + guest);
            lab.now = lab.now.plus(40_000_000_000);
            let before = lab.nat.notes(lab.now);
            match kind {
                0 => {
                    lab.sender = guest;
                    lab.send(&dhcp(REQUEST, guest.0, Some([10, 0, 2, last])));
                }
                1 => {
                    sends(&mut lab, guest, [2, 0, 0, 0, 1, last], [10, 0, 2, last]);
                }
                _ => {
                    let result = lab.nat.accept_guest(guest, &state, lab.now, &mut Actions::new());
                    let notes = lab.nat.notes(lab.now);
                    if result.is_err() {
                        prop_assert_eq!(notes, before);
                        continue;
                    }
                    let (had, has) = (owners(&before), owners(&notes));
                    for (address, owner) in had.iter().filter(|(_, owner)| **owner != guest) {
                        prop_assert_eq!(has.get(address), Some(owner));
                    }
                    for station in &state {
                        let leased = station.lease.map(|lease| IpAddr::from(lease.address));
                        for address in station.addresses.iter().copied().chain(leased) {
                            prop_assert_eq!(has.get(&address), Some(&guest));
                        }
                    }
                    let own = lab.nat.guest_state(guest, lab.now);
                    prop_assert!(own.len() <= STATIONS_PER_PORT_MAX);
                    prop_assert_eq!(lab.nat.check_guest(guest, &own, lab.now), Ok(()));
                }
            }
        }
        owners(&lab.nat.notes(lab.now));
    }
}
