//! The stations and flows that are shown.

mod lab;

use std::net::SocketAddr;

use lab::{GUEST, Lab, MAC, guest6};
use ringway_nat::{Event, FlowLook, Protocol};
use ringway_net::MacAddress;
use smoltcp::socket::tcp::{Socket, SocketBuffer};
use smoltcp::wire::IpAddress;

const REMOTE: [u8; 4] = [198, 51, 100, 7];

fn flows(lab: &Lab) -> Vec<FlowLook> {
    lab.nat.flows(GUEST, lab.now).collect()
}

fn steps(lab: &mut Lab, count: u32) {
    for _ in 0..count {
        lab.step();
    }
}

#[test]
fn a_connection_is_shown_with_its_state_and_what_it_carried() {
    let mut lab = Lab::new(1);
    let buffer = || SocketBuffer::new(vec![0; 20_000]);
    let mut socket = Socket::new(buffer(), buffer());
    let to = IpAddress::from(std::net::Ipv4Addr::from(REMOTE));
    socket.connect(lab.interface.context(), (to, 80), 40_000).unwrap();
    let handle = lab.sockets.add(socket);
    steps(&mut lab, 20);
    let [open] = &flows(&lab)[..] else { panic!("one flow") };
    let ends = (open.key.from, open.key.to);
    let expected = (SocketAddr::from(([10, 0, 2, 15], 40_000)), (REMOTE, 80).into());
    assert_eq!((open.key.protocol, ends, open.state), (Protocol::Tcp, expected, "open"));
    lab.host.one().outgoing = vec![7; 3000].into();
    lab.sockets.get_mut::<Socket>(handle).send_slice(&[1; 500]).unwrap();
    steps(&mut lab, 200);
    let flow = &flows(&lab)[0];
    assert_eq!((flow.from_guest, flow.to_guest), (500, 3000));
    assert!(flow.idle_ns > 0);
    lab.host.one().ends = true;
    steps(&mut lab, 50);
    assert_eq!(flows(&lab)[0].state, "remote ended");
    lab.sockets.get_mut::<Socket>(handle).close();
    steps(&mut lab, 50);
    assert_eq!(flows(&lab)[0].state, "closed");
}

#[test]
fn datagrams_are_shown_one_way_and_both_ways() {
    let mut lab = Lab::new(1);
    let head = [0x45, 0, 0, 33, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 2, 15];
    let datagram = [0x0f, 0xa0, 0, 7, 0, 13, 0, 0, 1, 2, 3, 4, 5];
    let mac = lab.nat.plan().mac().0;
    lab.send(&[&mac[..], &MAC, &[8, 0], &head, &REMOTE, &datagram].concat());
    assert_eq!((flows(&lab)[0].state, flows(&lab)[0].from_guest), ("one way", 5));
    let flow = lab.host.one().flow;
    lab.host.one().datagrams_in = [vec![9; 100]].into();
    lab.tell(flow, Event::Readable);
    lab.step();
    assert_eq!((flows(&lab)[0].state, flows(&lab)[0].to_guest), ("both ways", 100));
}

/// A lease and the addresses of IPv6 that one station uses are shown as one.
#[test]
fn a_station_has_addresses_of_both_families() {
    let mut lab = Lab::new(1);
    let mut socket = smoltcp::socket::dhcpv4::Socket::new();
    socket.set_ignore_naks(true);
    lab.sockets.add(socket);
    let buffer = || SocketBuffer::new(vec![0; 2000]);
    let mut socket = Socket::new(buffer(), buffer());
    let to = IpAddress::v6(0x2001, 0xdb8, 0, 0, 0, 0, 0, 7);
    socket.connect(lab.interface.context(), (to, 80), 40_000).unwrap();
    lab.sockets.add(socket);
    steps(&mut lab, 3000);
    let [station] = &lab.nat.stations(lab.now)[..] else { panic!("one station") };
    assert_eq!((station.port.as_str(), station.mac), ("vm0", MacAddress(MAC)));
    let expected: [std::net::IpAddr; 2] = [[10, 0, 2, 15].into(), guest6().into()];
    assert_eq!(station.addresses, expected);
    assert!(station.leased_ns.is_some_and(|ns| ns > 1_000_000_000), "{station:?}");
}
