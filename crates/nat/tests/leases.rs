//! The addresses that guests are leased where others use addresses without a lease.

mod lab;

use lab::packets::{REMOTE, dhcp, packet, udp};
use lab::{GUEST, Lab, MAC};
use ringway_nat::{Guest, Refusal, Verdict};
use ringway_net::MacAddress;

const OTHER: Guest = Guest(4);
const DISCOVER: u8 = 1;
const REQUEST: u8 = 3;

fn two_guests() -> Lab {
    let mut lab = Lab::scripted();
    lab.nat.add_guest(OTHER, "vm1");
    lab
}

/// The addresses leased behind a port.
fn leased(lab: &Lab, port: &str) -> Vec<[u8; 4]> {
    let all = lab.nat.services().leases().all();
    all.filter(|(behind, _)| *behind == port).map(|(_, address)| address.octets()).collect()
}

/// The same packet from another address.
fn from(address: [u8; 4], mut frame: Vec<u8>) -> Vec<u8> {
    frame[26..30].copy_from_slice(&address);
    frame
}

#[test]
fn an_address_that_another_guest_uses_is_not_leased() {
    let mut lab = two_guests();
    let datagram = from([10, 0, 2, 50], packet(REMOTE, 17, &udp(4000, 7, b"x")));
    lab.send(&datagram);
    lab.sender = OTHER;
    for number in 50..58u8 {
        lab.send(&dhcp(REQUEST, u16::from(number), Some([10, 0, 2, number])));
    }
    assert!(!leased(&lab, "vm1").contains(&[10, 0, 2, 50]), "{:?}", leased(&lab, "vm1"));
    assert_eq!(leased(&lab, "vm1")[1], [10, 0, 2, 51]);
    lab.sender = GUEST;
    lab.send(&datagram);
    assert_eq!(lab.verdicts.last(), Some(&Verdict::Done), "it is the first one's as before");
    assert_eq!(lab.host.one().datagrams_out.len(), 2);
    lab.sender = OTHER;
    lab.send(&datagram);
    assert_eq!(lab.verdicts.last(), Some(&Verdict::Refused(Refusal::SpoofedSource)));
}

#[test]
fn an_address_is_free_again_an_hour_after_it_was_used_or_when_its_port_goes() {
    for goes in [false, true] {
        let mut lab = two_guests();
        lab.send(&from([10, 0, 2, 50], packet(REMOTE, 17, &udp(4000, 7, b"x"))));
        if goes {
            let mut actions = ringway_nat::Actions::new();
            while lab.nat.remove_guest(GUEST, &mut actions) {
                let _ = actions.drain();
            }
        } else {
            lab.now = lab.now.plus(3_601_000_000_000);
            lab.step();
        }
        lab.sender = OTHER;
        lab.send(&dhcp(REQUEST, 1, Some([10, 0, 2, 50])));
        assert_eq!(leased(&lab, "vm1"), [[10, 0, 2, 50]], "{goes}");
    }
}

#[test]
fn the_addresses_that_a_guest_used_last_are_not_leased() {
    let mut lab = two_guests();
    for number in 15..23 {
        lab.send(&from([10, 0, 2, number], packet(REMOTE, 17, &udp(4000, 7, b"x"))));
    }
    lab.sender = OTHER;
    lab.send(&dhcp(DISCOVER, 1, Some([10, 0, 2, 16])));
    assert_eq!(leased(&lab, "vm1"), [[10, 0, 2, 23]]);
}

/// One that has flows from each address of its network leaves the others all but a few.
#[test]
fn a_guest_that_uses_all_addresses_keeps_none_from_the_others() {
    let mut lab = two_guests();
    for number in 15..255 {
        lab.send(&from([10, 0, 2, number], packet(REMOTE, 17, &udp(4000, 7, b"x"))));
    }
    assert_eq!(lab.nat.flows_of(GUEST), 240);
    lab.sender = OTHER;
    for mac in 0..7 {
        lab.send(&dhcp(DISCOVER, mac, None));
    }
    // The address that it used last is its own.
    lab.send(&dhcp(DISCOVER, 9, Some([10, 0, 2, 254])));
    assert_eq!(leased(&lab, "vm1"), [15, 16, 17, 18, 19, 20, 21, 22].map(|it| [10, 0, 2, it]));
    lab.sender = GUEST;
    lab.send(&from([10, 0, 2, 254], packet(REMOTE, 17, &udp(4000, 7, b"x"))));
    assert_eq!(lab.verdicts.last(), Some(&Verdict::Done));
}

#[test]
fn who_says_by_arp_that_it_has_an_address_uses_it() {
    let mut lab = two_guests();
    let mut arp = [&[0xff; 6][..], &MAC, &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1], &MAC].concat();
    arp.extend([10, 0, 2, 15, 0, 0, 0, 0, 0, 0, 10, 0, 2, 99]);
    arp.resize(60, 0);
    lab.send(&arp);
    let stations = lab.nat.stations(lab.now);
    let station = stations.iter().find(|it| it.mac == MacAddress(MAC)).expect("it was seen");
    assert_eq!(station.addresses, [std::net::IpAddr::from([10, 0, 2, 15])]);
    lab.sender = OTHER;
    lab.send(&dhcp(DISCOVER, 1, None));
    assert_eq!(leased(&lab, "vm1"), [[10, 0, 2, 16]]);
}

#[test]
fn the_next_router_knows_what_this_one_has_noted() {
    let mut lab = two_guests();
    lab::lease(&mut lab);
    assert!(lab.nat.takes_news(lab.now));
    assert!(!lab.nat.takes_news(lab.now), "nothing since then");
    lab.sender = OTHER;
    lab.send(&dhcp(DISCOVER, 77, None));
    lab.sender = GUEST;
    lab.send(&from([10, 0, 2, 50], packet(REMOTE, 17, &udp(4000, 7, b"x"))));
    lab.send(&lab::packets::packet6(lab::packets::REMOTE_6, 17, &udp(4000, 7, b"x")));
    assert!(lab.nat.takes_news(lab.now));
    lab.send(&from([10, 0, 2, 50], packet(REMOTE, 17, &udp(4000, 7, b"x"))));
    assert!(!lab.nat.takes_news(lab.now), "it has used that before");
    let notes = lab.nat.notes(lab.now);
    let leased = |lab: &Lab| [leased(lab, "vm0"), leased(lab, "vm1")];
    let before = leased(&lab);
    assert_eq!(before, [[[10, 0, 2, 15]], [[10, 0, 2, 16]]]);
    let mut next = two_guests();
    next.nat.remember(&notes, next.now);
    assert_eq!(leased(&next), before);
    assert_eq!(next.nat.notes(next.now), notes);
    assert!(!next.nat.stations(next.now).is_empty());
    // A new guest gets none of them, and no guest loses its own.
    let third = Guest(5);
    next.nat.add_guest(third, "vm2");
    next.sender = third;
    next.send(&dhcp(DISCOVER, 1, Some([10, 0, 2, 50])));
    assert_eq!(self::leased(&next, "vm2"), [[10, 0, 2, 17]]);
    next.sender = GUEST;
    for address in [[10, 0, 2, 15], [10, 0, 2, 50]] {
        next.send(&from(address, packet(REMOTE, 17, &udp(4000, 7, b"x"))));
        assert_eq!(next.verdicts.last(), Some(&Verdict::Done), "{address:?}");
    }
    // A lease that does not fit is left out.
    let wrong = ringway_nat::Note { address: [192, 0, 2, 1].into(), ..notes[0] };
    let unknown = ringway_nat::Note { guest: Guest(9), ..notes[0] };
    let mut other = two_guests();
    other.nat.remember(&[wrong, unknown], other.now);
    assert_eq!(other.nat.notes(other.now), []);
}

/// A lease that is over would hold again, and its station is perhaps not there any more.
#[test]
fn only_leases_that_hold_are_noted() {
    let mut lab = two_guests();
    lab.send(&dhcp(DISCOVER, 1, None));
    lab.now = lab.now.plus(1_800_000_000_000);
    lab.send(&dhcp(DISCOVER, 2, None));
    assert!(lab.nat.takes_news(lab.now));
    assert_eq!(lab.nat.notes(lab.now).len(), 2);
    assert!(!lab.nat.takes_news(lab.now), "nothing since then");
    lab.now = lab.now.plus(1_801_000_000_000);
    assert!(lab.nat.takes_news(lab.now), "one is over");
    let notes = lab.nat.notes(lab.now);
    let macs: Vec<MacAddress> = notes.iter().map(|note| note.mac).collect();
    assert_eq!(macs, [MacAddress([2, 0, 0, 0, 0, 2])]);
    assert!(!lab.nat.takes_news(lab.now), "that is known");
    assert_eq!(leased(&lab, "vm0").len(), 2, "until another needs it");
}

/// A station that says nothing by itself, and answers.
#[test]
fn an_address_for_which_another_guest_answers_is_not_leased() {
    for answers in [true, false] {
        let mut lab = two_guests();
        lab.sender = OTHER;
        lab.send(&dhcp(DISCOVER, 1, None));
        assert_eq!(leased(&lab, "vm1"), [[10, 0, 2, 15]], "it is offered");
        let asked = lab.frames_for(GUEST);
        let is_question = |frame: &&Vec<u8>| frame[12..14] == [8, 6] && frame[20..22] == [0, 1];
        let question = asked.iter().find(is_question).expect("it is asked for");
        assert_eq!((&question[..6], &question[38..42]), (&[0xff; 6][..], &[10, 0, 2, 15][..]));
        if answers {
            let gateway = lab.nat.plan().mac().0;
            let mut arp = [&gateway[..], &MAC, &[8, 6, 0, 1, 8, 0, 6, 4, 0, 2], &MAC].concat();
            arp.extend([10, 0, 2, 15]);
            arp.extend([&gateway[..], &[10, 0, 2, 2]].concat());
            arp.resize(60, 0);
            lab.sender = GUEST;
            lab.send(&arp);
            lab.sender = OTHER;
        }
        lab.send(&dhcp(REQUEST, 1, Some([10, 0, 2, 15])));
        let kind = lab.frames_for(OTHER).last().expect("an answer")[284];
        let golden = if answers { (6, [10, 0, 2, 16]) } else { (5, [10, 0, 2, 15]) };
        assert_eq!((kind, leased(&lab, "vm1")[0]), golden);
        lab.frames_for(GUEST);
        lab.send(&dhcp(REQUEST, 1, Some(golden.1)));
        assert!(lab.frames_for(GUEST).is_empty(), "it is asked for once");
    }
}

/// A guest that is offered one address after another asks for itself only.
#[test]
fn no_guest_has_all_questions_for_addresses_that_are_offered() {
    let mut lab = two_guests();
    lab.nat.add_guest(Guest(5), "vm2");
    lab.sender = OTHER;
    for mac in 0..8 {
        lab.send(&dhcp(DISCOVER, mac, None));
    }
    let asked = |lab: &mut Lab| {
        let frames = lab.frames_for(GUEST);
        frames.iter().filter(|frame| frame[12..14] == [8, 6]).count()
    };
    assert_eq!(asked(&mut lab), 2, "twice at once");
    lab.sender = Guest(5);
    lab.send(&dhcp(DISCOVER, 77, None));
    assert_eq!(asked(&mut lab), 1);
}
