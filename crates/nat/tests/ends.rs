//! How connections begin and end, as a guest sees it.

mod lab;

use lab::host::Answer;
use lab::{GUEST, Lab};
use ringway_nat::{Close, Failure, Problem, Target};
use smoltcp::iface::SocketHandle;
use smoltcp::socket::tcp::{Socket, SocketBuffer, State};
use smoltcp::wire::IpAddress;

const REMOTE: IpAddress = IpAddress::v4(198, 51, 100, 7);

fn connect(lab: &mut Lab, to: IpAddress, port: u16) -> SocketHandle {
    let buffer = || SocketBuffer::new(vec![0; 20_000]);
    let mut socket = Socket::new(buffer(), buffer());
    socket.connect(lab.interface.context(), (to, port), 40_000).unwrap();
    lab.sockets.add(socket)
}

fn state(lab: &Lab, handle: SocketHandle) -> State {
    lab.sockets.get::<Socket>(handle).state()
}

fn steps(lab: &mut Lab, ms: u32) {
    for _ in 0..ms {
        lab.step();
    }
}

fn established(lab: &mut Lab) -> SocketHandle {
    let handle = connect(lab, REMOTE, 80);
    steps(lab, 20);
    assert_eq!(state(lab, handle), State::Established);
    handle
}

/// ICMP errors to the guest: type, code, and what is quoted.
fn errors(lab: &Lab) -> Vec<(u8, u8, Vec<u8>)> {
    let icmp = lab.seen.iter().filter(|frame| frame[12..14] == [8, 0] && frame[23] == 1);
    icmp.map(|frame| (frame[34], frame[35], frame[42..].to_vec())).collect()
}

#[test]
fn no_answer_before_the_other_end_is_connected() {
    let mut lab = Lab::new(1);
    lab.host.answer = Answer::Silence;
    let handle = connect(&mut lab, REMOTE, 80);
    steps(&mut lab, 5000);
    assert_eq!(state(&lab, handle), State::SynSent);
    assert_eq!(lab.host.fakes.len(), 1, "the SYN again opens nothing");
    assert_eq!(lab.host.one().to, Target::Address(([198, 51, 100, 7], 80).into()));
}

#[test]
fn refused_is_refused() {
    let mut lab = Lab::new(1);
    lab.host.answer = Answer::Fails(Failure::Reset);
    let handle = connect(&mut lab, REMOTE, 80);
    steps(&mut lab, 20);
    assert_eq!(state(&lab, handle), State::Closed);
    assert_eq!(lab.host.one().closed, Some(Close::Reset));
    assert_eq!(lab.nat.flows_of(GUEST), 0);
}

#[test]
fn unreachable_is_told_by_icmp() {
    for (problem, code) in
        [(Problem::NetworkUnreachable, 0), (Problem::HostUnreachable, 1), (Problem::Prohibited, 13)]
    {
        let mut lab = Lab::new(1);
        lab.host.answer = Answer::Fails(Failure::Unreachable(problem));
        connect(&mut lab, REMOTE, 80);
        steps(&mut lab, 20);
        let (kind, found, quote) = errors(&lab).remove(0);
        assert_eq!((kind, found), (3, code));
        assert_eq!(quote[12..24], [10, 0, 2, 15, 198, 51, 100, 7, 0x9c, 0x40, 0, 80]);
        assert_eq!((lab.nat.flows_of(GUEST), lab.host.one().closed), (0, Some(Close::Reset)));
    }
}

#[test]
fn places_that_guests_must_not_reach_are_prohibited() {
    for to in [[127, 0, 0, 1], [169, 254, 169, 254], [0, 0, 0, 1], [10, 0, 2, 2]] {
        let mut lab = Lab::new(1);
        connect(&mut lab, std::net::Ipv4Addr::from(to).into(), 80);
        steps(&mut lab, 50);
        assert!(lab.host.fakes.is_empty(), "{to:?}");
    }
    let mut lab = Lab::new(1);
    connect(&mut lab, IpAddress::v4(169, 254, 169, 254), 80);
    steps(&mut lab, 50);
    assert_eq!(errors(&lab)[0].1, 13);
    let mut lab = Lab::new(1);
    connect(&mut lab, IpAddress::v4(10, 0, 2, 3), 53);
    steps(&mut lab, 50);
    assert_eq!(lab.host.one().to, Target::Resolver(GUEST));
}

#[test]
fn each_half_ends_on_its_own() {
    let mut lab = Lab::new(1);
    let handle = established(&mut lab);
    lab.sockets.get_mut::<Socket>(handle).close();
    steps(&mut lab, 400_000);
    assert_eq!(state(&lab, handle), State::FinWait2);
    assert!(lab.host.one().shutdown && lab.host.one().closed.is_none());
    // An answer after the guest's end, six minutes later.
    lab.host.one().outgoing = vec![7; 15_000].into();
    lab.host.one().ends = true;
    steps(&mut lab, 50);
    let mut buffer = [0; 20_000];
    let len = lab.sockets.get_mut::<Socket>(handle).recv_slice(&mut buffer).unwrap();
    assert_eq!(len, 15_000);
    assert_eq!(lab.host.one().closed, Some(Close::Gracefully));
}

#[test]
fn the_other_half_too() {
    let mut lab = Lab::new(1);
    let handle = established(&mut lab);
    lab.host.one().ends = true;
    steps(&mut lab, 50);
    assert_eq!(state(&lab, handle), State::CloseWait);
    lab.sockets.get_mut::<Socket>(handle).send_slice(&[5; 9000]).unwrap();
    steps(&mut lab, 50);
    assert_eq!(lab.host.one().received, [5; 9000]);
    assert!(!lab.host.one().shutdown);
    lab.sockets.get_mut::<Socket>(handle).close();
    steps(&mut lab, 50);
    assert_eq!(lab.host.one().closed, Some(Close::Gracefully));
}

#[test]
fn resets_pass_both_ways() {
    let mut lab = Lab::new(1);
    let handle = established(&mut lab);
    lab.sockets.get_mut::<Socket>(handle).abort();
    steps(&mut lab, 10);
    assert_eq!(lab.host.one().closed, Some(Close::Reset));
    assert_eq!(lab.nat.flows_of(GUEST), 0);

    let mut lab = Lab::new(1);
    let handle = established(&mut lab);
    let flow = lab.host.one().flow;
    lab.tell(flow, ringway_nat::Event::Failed(Failure::Reset));
    steps(&mut lab, 10);
    assert_eq!(state(&lab, handle), State::Closed);
    assert_eq!((lab.host.one().closed, lab.nat.flows_of(GUEST)), (Some(Close::Reset), 0));
}

#[test]
fn segments_of_no_connection_are_reset() {
    let mut lab = Lab::new(1);
    let handle = established(&mut lab);
    let mut actions = ringway_nat::Actions::new();
    while lab.nat.end_a_flow(GUEST, &mut actions) {}
    lab.sockets.get_mut::<Socket>(handle).send_slice(b"still there?").unwrap();
    steps(&mut lab, 10);
    assert_eq!(state(&lab, handle), State::Closed);
}

#[test]
fn a_guest_that_takes_nothing_is_asked_and_goes_on() {
    let mut lab = Lab::new(1);
    let handle = established(&mut lab);
    lab.host.one().outgoing = vec![9; 100_000].into();
    steps(&mut lab, 60_000);
    let before = lab.seen.len();
    steps(&mut lab, 60_000);
    let probes = lab.seen.len() - before;
    assert!((1..10).contains(&probes), "{probes} frames in a minute");
    let mut received = 0;
    for _ in 0..3000 {
        let mut buffer = [0; 20_000];
        let socket = lab.sockets.get_mut::<Socket>(handle);
        received += socket.recv_slice(&mut buffer).unwrap_or(0);
        lab.step();
    }
    assert_eq!(received, 100_000);
}

#[test]
fn a_host_that_takes_nothing_closes_the_window() {
    let mut lab = Lab::new(1);
    lab.host.capacity = 8000;
    let handle = established(&mut lab);
    lab.host.one().reads = false;
    lab.sockets.get_mut::<Socket>(handle).send_slice(&[3; 20_000]).unwrap();
    steps(&mut lab, 30_000);
    let before = lab.seen.len();
    steps(&mut lab, 30_000);
    assert!(lab.seen.len() - before < 40, "{}", lab.seen.len() - before);
    lab.host.one().reads = true;
    steps(&mut lab, 70_000);
    assert_eq!(lab.host.one().received, vec![3; 20_000]);
}

#[test]
fn a_guest_that_is_gone_is_given_up() {
    let mut lab = Lab::new(1);
    established(&mut lab);
    lab.wire.lost = 100;
    lab.host.one().outgoing = vec![9; 1000].into();
    steps(&mut lab, 15 * 64_000);
    assert_eq!(lab.host.one().closed, Some(Close::Reset));
    assert_eq!(lab.nat.flows_of(GUEST), 0);

    let mut lab = Lab::new(1);
    established(&mut lab);
    steps(&mut lab, 400_000);
    assert_eq!(lab.host.one().closed, None, "silent, and answers when it is asked");
    lab.wire.lost = 100;
    let keep_alive = lab.seen.len();
    lab.now = lab.now.plus(3 * 3600 * 1_000_000_000);
    steps(&mut lab, 6000);
    assert_eq!(lab.host.one().closed, Some(Close::Reset));
    assert!(keep_alive > 0);
}
