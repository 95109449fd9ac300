//! Questions for names of guests, as frames: answered by the router, or sent to the resolver.

mod lab;

use lab::packets::dhcp;
use lab::{GUEST, Lab, MAC, guest6, plan};
use ringway_nat::{Actions, Guest, Nat, Plan, Rings, Target};
use ringway_net::MacAddress;

fn named() -> Lab {
    let mut lab = Lab::new(1);
    let plan = Plan { domains: vec!["internal".to_owned()], ..plan() };
    assert!(Nat::set_plan(&mut lab.nat, &plan));
    lab.step();
    lab.seen.clear();
    lab
}

fn question(name: &[&str], kind: u8) -> Vec<u8> {
    let mut message = vec![7, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name {
        message.push(u8::try_from(label.len()).unwrap());
        message.extend(label.as_bytes());
    }
    message.extend([0, 0, kind, 0, 1]);
    message
}

fn datagram(message: &[u8]) -> Vec<u8> {
    let len = u16::try_from(8 + message.len()).unwrap();
    let words = [4000, 53, len, 0].map(u16::to_be_bytes);
    [words.as_flattened(), message].concat()
}

fn ask4(message: &[u8]) -> Vec<u8> {
    let datagram = datagram(message);
    let mut frame = [&plan().mac().0[..], &MAC, &[8, 0]].concat();
    let len = u16::try_from(20 + datagram.len()).unwrap().to_be_bytes();
    frame.extend([0x45, 0, len[0], len[1], 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 2, 15, 10, 0, 2, 3]);
    frame.extend(datagram);
    frame
}

/// A packet of neighbour discovery, or a question to the name server, over IPv6.
fn ipv6(from: [u8; 16], to: [u8; 16], (next, hops): (u8, u8), payload: &[u8]) -> Vec<u8> {
    let mut frame = [&plan().mac().0[..], &MAC, &[0x86, 0xdd, 0x60, 0, 0, 0]].concat();
    frame.extend(u16::try_from(payload.len()).unwrap().to_be_bytes());
    frame.extend([next, hops]);
    frame.extend([from, to].as_flattened());
    frame.extend(payload);
    frame
}

#[test]
fn a_guest_is_known_by_the_address_that_it_tries() {
    let mut lab = named();
    let mut trial = vec![135, 0, 0, 0, 0, 0, 0, 0];
    trial.extend(guest6().octets());
    let all_nodes = "ff02::1".parse::<std::net::Ipv6Addr>().unwrap().octets();
    let mut frame = ipv6([0; 16], all_nodes, (58, 255), &trial);
    frame[..6].copy_from_slice(&[0x33, 0x33, 0, 0, 0, 1]);
    lab.send(&frame);
    let dns6 = plan().dns6().unwrap().octets();
    let asked = datagram(&question(&["vm0", "internal"], 28));
    lab.send(&ipv6(guest6().octets(), dns6, (17, 64), &asked));
    lab.step();
    let answer = lab.seen.last().expect("an answer");
    assert!(answer.ends_with(&guest6().octets()), "{answer:?}");
    assert!(lab.host.fakes.is_empty(), "no resolver was asked");
}

#[test]
fn only_questions_for_guests_are_answered_here() {
    let mut lab = named();
    lab.send(&ask4(&question(&["vm7", "internal"], 1)));
    lab.step();
    let answer = lab.seen.pop().expect("an answer");
    assert_eq!((answer[26..30].to_vec(), answer[45] & 0xf), (vec![10, 0, 2, 3], 3));
    assert!(lab.host.fakes.is_empty());
    lab.send(&ask4(&question(&["example", "org"], 1)));
    lab.step();
    assert_eq!(lab.host.one().to, Target::Resolver(GUEST));
}

/// The station behind a port is another one since, and then the port is gone.
#[test]
fn a_name_leads_where_a_lease_holds_and_ends_with_its_port() {
    let mut lab = named();
    lab.send(&dhcp(1, 9, None));
    lab.now = lab.now.plus(3_601_000_000_000);
    lab.send(&dhcp(3, 77, Some([10, 0, 2, 16])));
    lab.step();
    let asked = ask4(&question(&["vm0", "internal"], 1));
    lab.seen.clear();
    lab.send(&asked);
    lab.step();
    let answer = lab.seen.iter().find(|frame| frame[23] == 17).expect("an answer");
    assert_eq!((answer[49], answer.ends_with(&[10, 0, 2, 16])), (1, true), "{answer:?}");
    while lab.nat.remove_guest(GUEST, &mut Actions::new()) {}
    lab.sender = Guest(4);
    lab.nat.add_guest(Guest(4), "vm1");
    lab.send(&asked);
    let answer = lab.frames_for(Guest(4)).pop().expect("an answer");
    assert_eq!((answer[45] & 0xf, answer[49]), (3, 0), "there is no such guest: {answer:?}");
}

/// Until another guest runs behind its old port, both names lead to it.
#[test]
fn a_name_leads_to_a_guest_that_has_moved() {
    let mut lab = named();
    lab.nat.add_guest(Guest(4), "vm1");
    lab.send(&dhcp(1, 9, None));
    for rings in [(GUEST, Rings::Stop), (Guest(4), Rings::Start(MacAddress(MAC)))] {
        lab.nat.note_rings(rings.0, rings.1, lab.now, &mut Actions::new());
    }
    lab.sender = Guest(4);
    for (name, is_known) in [("vm0", true), ("vm1", true), ("vm0", false)] {
        if !is_known {
            let another = Rings::Start(MacAddress([2, 0, 0, 0, 0, 7]));
            lab.nat.note_rings(GUEST, another, lab.now, &mut Actions::new());
        }
        lab.send(&ask4(&question(&[name, "internal"], 1)));
        let answer = lab.frames_for(Guest(4)).pop().expect("an answer");
        assert_eq!(answer.ends_with(&[10, 0, 2, 15]), is_known, "{name}: {answer:?}");
    }
}
