//! Connections from outside into a guest with a real TCP/IP stack.

mod lab;

use std::net::SocketAddr;

use lab::packets::{dhcp, packet, tcp};
use lab::{GUEST, Lab};
use ringway_nat::{Actions, Client, Close};
use smoltcp::iface::SocketHandle;
use smoltcp::socket::tcp::{Socket, SocketBuffer, State};

const CLIENT: ([u8; 4], u16) = ([198, 51, 100, 7], 50_000);
const LOOPBACK: ([u8; 4], u16) = ([127, 0, 0, 1], 50_001);

/// A guest that has asked for its address.
fn leased(seed: u64) -> Lab {
    let mut lab = Lab::new(seed);
    lab::lease(&mut lab);
    lab
}

fn listen(lab: &mut Lab) -> SocketHandle {
    let buffer = || SocketBuffer::new(vec![0; 65_536]);
    let mut socket = Socket::new(buffer(), buffer());
    socket.listen(80).unwrap();
    lab.sockets.add(socket)
}

fn accept(lab: &mut Lab, from: SocketAddr) {
    let mut actions = Actions::new();
    let flow =
        lab.nat.accept(lab::port(GUEST, 80), lab::caller(from, 100_000), lab.now, &mut actions);
    assert!(actions.is_empty());
    let flow = flow.expect("room for a flow");
    lab.host.accepted(flow, from);
}

fn steps(lab: &mut Lab, count: usize) {
    (0..count).for_each(|_| lab.step());
}

/// The guest sends back what it gets, and ends when the other end has.
fn echo(lab: &mut Lab, handle: SocketHandle) {
    let socket = lab.sockets.get_mut::<Socket>(handle);
    let mut buffer = [0; 4096];
    if socket.can_recv() && socket.send_capacity() - socket.send_queue() >= buffer.len() {
        let len = socket.recv_slice(&mut buffer).unwrap();
        assert_eq!(socket.send_slice(&buffer[..len]).unwrap(), len);
    }
    if socket.state() == State::CloseWait && socket.send_queue() == 0 && !socket.can_recv() {
        socket.close();
    }
}

#[test]
fn every_byte_goes_in_and_comes_back_also_with_losses() {
    for (seed, harm) in (1..).zip([[0; 4], [3, 5, 10, 20]]) {
        let mut lab = leased(seed);
        [lab.wire.lost, lab.wire.doubled, lab.wire.late, lab.host.short] = harm;
        let handle = listen(&mut lab);
        accept(&mut lab, CLIENT.into());
        let bytes: Vec<u8> = (0..200_000u32).map(|at| (at % 251).to_le_bytes()[0]).collect();
        lab.host.one().outgoing = bytes.clone().into();
        for _ in 0..4_000_000 {
            lab.step();
            echo(&mut lab, handle);
            let fake = lab.host.one();
            // This guest ignores windows while it waits for its last acknowledgement.
            fake.ends = harm == [0; 4] || fake.received.len() == bytes.len();
            if fake.closed.is_some() {
                break;
            }
        }
        let fake = lab.host.one();
        assert!(fake.received == bytes, "{harm:?}: {}", fake.received.len());
        assert_eq!((fake.closed, fake.shutdown), (Some(Close::Gracefully), true));
        steps(&mut lab, 6000);
        assert_eq!(lab.nat.flows_of(lab::GUEST), 0, "nothing is left");
    }
}

#[test]
fn the_guest_sees_who_connects_or_the_router_where_that_cannot_be() {
    for (from, shown) in [(CLIENT, CLIENT.0), (LOOPBACK, [10, 0, 2, 2])] {
        let mut lab = leased(1);
        let handle = listen(&mut lab);
        accept(&mut lab, from.into());
        steps(&mut lab, 20);
        let socket = lab.sockets.get::<Socket>(handle);
        let other = socket.remote_endpoint().expect("connected");
        assert_eq!((other.addr, other.port), (std::net::Ipv4Addr::from(shown).into(), from.1));
    }
}

#[test]
fn a_guest_that_refuses_or_says_nothing_resets_who_connects() {
    let mut lab = leased(1);
    accept(&mut lab, CLIENT.into());
    steps(&mut lab, 20);
    assert_eq!(lab.host.one().closed, Some(Close::Reset), "no such service");
    let mut lab = leased(1);
    listen(&mut lab);
    accept(&mut lab, CLIENT.into());
    lab.wire.lost = 100;
    steps(&mut lab, 40_000);
    assert_eq!(lab.host.one().closed, Some(Close::Reset), "silence");
    assert_eq!(lab.nat.flows_of(lab::GUEST), 0);
}

#[test]
fn a_guest_without_an_address_gets_no_connection() {
    let mut lab = Lab::new(1);
    let to = lab::caller(CLIENT.into(), 1);
    assert_eq!(lab.nat.accept(lab::port(GUEST, 80), to, lab.now, &mut Actions::new()), None);
}

/// The station behind the port is another one since: it was given another MAC address.
#[test]
fn a_connection_goes_to_a_station_whose_lease_holds() {
    let mut lab = leased(1);
    lab.now = lab.now.plus(3_601_000_000_000);
    lab.send(&dhcp(3, 77, Some([10, 0, 2, 16])));
    lab.step();
    lab.seen.clear();
    accept(&mut lab, CLIENT.into());
    lab.step();
    let syn = lab.seen.iter().find(|frame| frame[23] == 6).expect("a SYN");
    assert_eq!((&syn[..6], &syn[30..34]), (&[2, 0, 0, 0, 0, 77][..], &[10, 0, 2, 16][..]));
}

/// Answers of the guest go to the client of its flow, and each datagram is told of by itself.
#[test]
fn datagrams_from_outside_have_a_flow_for_each_client() {
    let mut lab = leased(9);
    // Its own stack has no socket for them, and would say so.
    lab.interface.update_ip_addrs(|addresses| addresses.clear());
    let at = SocketAddr::from(([192, 0, 2, 1], 5353));
    let clients = [CLIENT, LOOPBACK, ([127, 0, 0, 9], LOOPBACK.1)].map(SocketAddr::from);
    let mut flows = Vec::new();
    for from in clients {
        let mut actions = Actions::new();
        let client = Client { from, at };
        let mut accept = |lab: &mut Lab| {
            lab.nat.accept_datagram(lab::port(GUEST, 53), client, lab.now, &mut actions).unwrap()
        };
        let flow = accept(&mut lab);
        assert_eq!(accept(&mut lab), flow, "the same client");
        assert!(actions.is_empty(), "its socket is there already");
        lab.host.accepted_datagrams(flow, from);
        flows.push(flow);
        let fake = lab.host.fakes.get_mut(&flow.to_u64()).unwrap();
        fake.datagrams_in = [b"one".to_vec(), b"two".to_vec()].into();
        lab.seen.clear();
        lab.step();
        let sent = lab.seen.iter().filter(|frame| frame[12..14] == [8, 0] && frame[23] == 17);
        let data: Vec<&[u8]> = sent.map(|frame| &frame[36..45]).collect();
        let golden = &[0, 53, 0, 11, data[0][4], data[0][5], b'o', b'n', b'e'][..];
        assert_eq!(data, [golden], "the next one may be another client's");
    }
    assert_eq!(flows.len(), 3);
    assert!(flows[1] != flows[2], "the guest sees both as the gateway, at other ports");
    assert_eq!(lab.nat.flows_of(GUEST), 3);
    let limits = *lab.nat.limits();
    for more in 0..2 * limits.flows_per_guest {
        let from = SocketAddr::from((CLIENT.0, u16::try_from(2000 + more).unwrap()));
        let mut actions = Actions::new();
        let client = Client { from, at };
        assert!(
            lab.nat.accept_datagram(lab::port(GUEST, 53), client, lab.now, &mut actions).is_some()
        );
    }
    assert_eq!(lab.nat.flows_of(GUEST), limits.flows_per_guest as usize, "the oldest goes");
}

/// A guest that drops SYNs: clients that have gone keep no places.
#[test]
fn a_client_that_hangs_up_before_the_guest_has_answered_is_over() {
    let mut lab = leased(1);
    lab.interface.update_ip_addrs(|addresses| addresses.clear());
    for port in 0..1024 {
        accept(&mut lab, (CLIENT.0, 1000 + port).into());
    }
    assert_eq!(lab.nat.flows_of(GUEST), 1024);
    for (number, fake) in (0..).zip(lab.host.fakes.values_mut()) {
        fake.ends = true;
        // A client that has said something may wait for an answer.
        fake.outgoing = vec![7; usize::from(number < 10)].into();
    }
    steps(&mut lab, 20);
    let mut actions = Actions::new();
    let new = lab.nat.accept(
        lab::port(GUEST, 80),
        lab::caller(CLIENT.into(), 100_000),
        lab.now,
        &mut actions,
    );
    assert!(new.is_some() && !actions.is_empty(), "it has the place of one that has gone");
    for action in actions.drain() {
        lab.host.carry_out(action, &[], &mut lab.random);
    }
    lab.host.accepted(new.expect("a flow"), CLIENT.into());
    steps(&mut lab, 1100);
    assert_eq!(lab.nat.flows_of(GUEST), 11);
}

/// It has ended its half, and waits for what the guest has to say.
#[test]
fn a_client_that_has_hung_up_is_waited_for_once_the_guest_has_answered() {
    let mut lab = leased(1);
    accept(&mut lab, CLIENT.into());
    lab.host.one().ends = true;
    lab.interface.update_ip_addrs(|addresses| addresses.clear());
    steps(&mut lab, 20);
    let syn = lab.seen.iter().find(|frame| frame[23] == 6).expect("a SYN");
    let isn = u32::from_be_bytes([syn[38], syn[39], syn[40], syn[41]]);
    let segment =
        |ack: u32, flags| packet(CLIENT.0, 6, &tcp((80, CLIENT.1), (7, ack), flags, &[&[]; 2]));
    lab.send(&segment(isn + 1, 18));
    // It says nothing of the FIN for a while.
    steps(&mut lab, 1500);
    assert_eq!(lab.host.one().closed, None);
    let fins = lab.seen.iter().filter(|frame| frame[23] == 6 && frame[47] & 1 == 1).count();
    assert!(fins > 1, "the FIN comes again: {fins}");
    // Others that come take no place of it.
    for port in 0..1023 {
        accept(&mut lab, (CLIENT.0, 1000 + port).into());
    }
    let mut actions = Actions::new();
    assert_eq!(
        lab.nat.accept(
            lab::port(GUEST, 80),
            lab::caller(LOOPBACK.into(), 1),
            lab.now,
            &mut actions
        ),
        None
    );
    assert!(actions.is_empty());
}
