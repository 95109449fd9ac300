//! A router whose host has too little, or has just begun anew.

mod lab;

use std::net::SocketAddr;

use lab::host::Answer;
use lab::packets::{REMOTE, packet, segment, tcp, udp};
use lab::{GUEST, Lab};
use ringway_nat::{Action, Actions, Client, Close, Event, Failure, Guest, Refusal};

const OTHER: Guest = Guest(4);
const SYN: u8 = 2;
const ACK: u8 = 16;
const RST_ACK: u8 = 20;

fn from_16(mut frame: Vec<u8>) -> Vec<u8> {
    frame[29] = 16;
    frame
}

fn syn(port: u16, to: u16) -> Vec<u8> {
    packet(REMOTE, 6, &tcp((port, to), (1000, 0), SYN, &[&[], &[]]))
}

#[test]
fn connections_of_a_router_before_are_reset_at_once_however_many() {
    for (is_second, golden) in [(false, 200..300), (true, 1000..1001)] {
        let mut lab = Lab::scripted();
        if is_second {
            lab.nat.reset_freely_until(lab.now.plus(60_000_000_000));
        }
        for port in 0..1000 {
            lab.send(&packet(REMOTE, 6, &tcp((4000 + port, 80), (1, 7), ACK, &[&[], b"data"])));
            if port % 32 == 0 {
                lab.step();
            }
        }
        for _ in 0..20 {
            lab.step();
        }
        assert!(golden.contains(&lab.seen.len()), "{is_second}: {}", lab.seen.len());
    }
}

#[test]
fn that_is_over_after_a_minute_and_does_not_hold_for_new_connections() {
    let mut lab = Lab::scripted();
    lab.nat.reset_freely_until(lab.now.plus(60_000_000_000));
    lab.host.answer = Answer::Fails(Failure::Reset);
    lab.now = lab.now.plus(60_000_000_000);
    for _ in 0..300 {
        lab.send(&segment(1, 7, ACK, &[], b"data"));
        lab.step();
    }
    assert!(lab.seen.len() < 250, "{}", lab.seen.len());
}

/// Ports are scarce for each place: the guest that has most of them there gives one up.
#[test]
fn a_guest_without_a_port_gets_one_of_the_guest_that_has_most() {
    let mut lab = Lab::scripted();
    lab.nat.add_guest(OTHER, "vm1");
    for port in 0..30 {
        lab.send(&syn(4000 + port, 80));
    }
    for port in 0..40 {
        lab.send(&syn(5000 + port, 81));
    }
    lab.step();
    lab.host.answer = Answer::Fails(Failure::NoPort);
    lab.sender = OTHER;
    lab.send(&from_16(syn(6000, 80)));
    // The second try succeeds.
    lab.host.answer = Answer::Connects;
    lab.step();
    lab.step();
    let closed: Vec<_> = lab.host.fakes.values().filter(|it| it.closed.is_some()).collect();
    assert_eq!(closed.len(), 1);
    assert_eq!(closed[0].closed, Some(Close::Reset), "its port is free at once");
    assert!(format!("{:?}", closed[0].to).contains(":80"), "one to the same place");
    assert_eq!((lab.nat.flows_of(GUEST), lab.nat.flows_of(OTHER)), (69, 1));
    let answered = lab.frames_for(OTHER);
    assert!(answered.iter().all(|frame| frame[47] & 4 == 0), "no reset");
}

#[test]
fn where_no_guest_has_more_it_is_told_at_once() {
    let mut lab = Lab::scripted();
    lab.host.answer = Answer::Fails(Failure::NoPort);
    lab.send(&syn(4000, 80));
    lab.step();
    assert_eq!((lab.seen.len(), lab.seen[0][47]), (1, RST_ACK));
    lab.seen.clear();
    lab.host.answer = Answer::Connects;
    lab.send(&packet(REMOTE, 17, &udp(4000, 7, b"x")));
    let flow = lab.host.fakes.values().last().expect("a socket").flow;
    lab.tell(flow, Event::Failed(Failure::NoPort));
    lab.step();
    assert_eq!(lab.seen[0][34..36], [3, 3], "port unreachable");
    assert_eq!(lab.nat.flows_of(GUEST), 0);
}

fn datagram(to: u8, port: u16) -> Vec<u8> {
    packet([198, 51, 100, to], 17, &udp(port, 7, b"x"))
}

/// Many flows from one port have one port outside: to end one of them makes none free.
#[test]
fn a_flow_of_datagrams_that_has_a_port_alone_gives_it_up() {
    let mut lab = Lab::scripted();
    lab.nat.add_guest(OTHER, "vm1");
    for to in 0..50 {
        lab.send(&datagram(to, 4000));
    }
    for port in 5000..5003 {
        lab.now = lab.now.plus(1000);
        lab.send(&datagram(7, port));
    }
    lab.sender = OTHER;
    lab.send(&from_16(datagram(7, 6000)));
    let fake = |lab: &Lab, number: usize| lab.host.fakes.values().nth(number).expect("one").flow;
    let (oldest, new) = (fake(&lab, 50), fake(&lab, 53));
    let mut actions = Actions::new();
    let failed = Event::Failed(Failure::NoPort);
    assert_eq!(lab.nat.on_socket(new, failed, lab.now, &mut actions), None, "it is not given up");
    let done: Vec<Action> = actions.drain().collect();
    let [Action::Close { flow, how: Close::Reset }, Action::Open { flow: again, .. }] = done[..]
    else {
        panic!("{done:?}")
    };
    assert_eq!((flow, again), (oldest, new));
    let given_up = lab.nat.on_socket(new, failed, lab.now, &mut actions);
    assert_eq!(given_up, Some(Refusal::NoPort));
}

/// A client's datagrams come by a socket that listens.
#[test]
fn clients_from_outside_have_no_port_to_give_up() {
    let mut lab = Lab::scripted();
    lab.nat.add_guest(OTHER, "vm1");
    lab::lease(&mut lab);
    let (at, mut actions) = (SocketAddr::from(([192, 0, 2, 1], 53)), Actions::new());
    for port in 2000..2020 {
        let client = Client { from: ([198, 51, 100, 7], port).into(), at };
        assert!(
            lab.nat.accept_datagram(lab::port(GUEST, 53), client, lab.now, &mut actions).is_some()
        );
    }
    lab.sender = OTHER;
    lab.send(&from_16(datagram(7, 6000)));
    let new = lab.host.one().flow;
    let failed = Event::Failed(Failure::NoPort);
    let given_up = lab.nat.on_socket(new, failed, lab.now, &mut actions);
    assert_eq!((given_up, lab.nat.flows_of(GUEST)), (Some(Refusal::NoPort), 20));
}
