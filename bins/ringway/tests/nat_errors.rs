//! Datagrams that do not arrive: guests and who is outside hear of each other's errors as far as
//! the kernel lets an unprivileged process tell them.

mod common;

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;

use common::{LIMIT, Ringway, wait_for};
use ringway_testkit::{AnyUserGuest, GuestOptions};

const GATEWAY: [u8; 6] = [0x52, 0x55, 10, 0, 2, 2];
const ADDRESSES: [[u8; 4]; 2] = [[10, 0, 2, 15], [10, 0, 2, 2]];
const ICMP: u8 = 1;
const UDP: u8 = 17;
const PORT_UNREACHABLE: [u8; 2] = [3, 3];

/// A guest that makes its packets byte by byte.
struct Guest(AnyUserGuest);

impl Guest {
    /// With the first address of the router's network.
    fn new(directory: &Path) -> Self {
        let socket = directory.join("a.sock");
        let attach = || AnyUserGuest::attach(&socket, &GuestOptions::default()).ok();
        let mut guest = Self(wait_for("a guest", attach));
        let mut message = vec![1, 1, 6, 0, 0, 0, 0, 7];
        message.resize(28, 0);
        message.extend(guest.0.mac());
        message.resize(236, 0);
        // Who discovers and is in a hurry gets a lease at once.
        message.extend([0x63, 0x82, 0x53, 0x63, 53, 1, 1, 80, 0, 255]);
        guest.send([0xff; 6], [[0; 4], [255; 4]], UDP, &datagram([68, 67], &message));
        guest.receive(UDP, |payload| payload[..4] == [0, 67, 0, 68]);
        guest
    }

    fn send(&mut self, to: [u8; 6], ends: [[u8; 4]; 2], protocol: u8, payload: &[u8]) {
        let mut frame = [&to[..], &self.0.mac(), &[8, 0]].concat();
        let len = u16::try_from(20 + payload.len()).expect("short").to_be_bytes();
        frame.extend([0x45, 0, len[0], len[1], 0, 0, 0, 0, 64, protocol, 0, 0]);
        frame.extend(ends.as_flattened());
        frame.extend(payload);
        let _ = self.0.send(&frame).expect("a good device");
        self.0.flush();
    }

    fn tell(&mut self, protocol: u8, payload: &[u8]) {
        self.send(GATEWAY, ADDRESSES, protocol, payload);
    }

    /// The first IPv4 packet of that protocol, from its IP header on, whose payload is right.
    #[track_caller]
    fn receive(&mut self, protocol: u8, is_it: impl Fn(&[u8]) -> bool) -> Vec<u8> {
        wait_for("a packet", || {
            let (_, frame) = self.0.receive().expect("a good device")?;
            let is_right = frame.len() > 42 && frame[12..14] == [8, 0] && frame[23] == protocol;
            (is_right && is_it(&frame[34..])).then(|| frame[14..].to_vec())
        })
    }
}

fn datagram(ports: [u16; 2], data: &[u8]) -> Vec<u8> {
    let len = u16::try_from(8 + data.len()).expect("short");
    let words = [ports[0], ports[1], len, 0].map(u16::to_be_bytes);
    [words.as_flattened(), data].concat()
}

fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn router(directory: &Path, options: &str) -> (Ringway, Guest) {
    let router = format!("net=nat:,{options}");
    let ringway = Ringway::run(directory, &["--port", "a=vm:a.sock", "--port", &router]);
    (ringway, Guest::new(directory))
}

fn socket() -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    socket.set_read_timeout(Some(LIMIT)).expect("a timeout");
    let at = socket.local_addr().expect("an address");
    (socket, at)
}

/// The answer to a client that has gone comes back as an error about it, and about no other
/// client's.
#[test]
fn a_guest_hears_that_a_client_has_gone() {
    let directory = tempfile::tempdir().expect("a directory");
    let (_, at) = socket();
    let (_ringway, mut guest) = router(directory.path(), &format!("forward=udp:{at}:a:53"));
    let [(stays, _), (goes, _)] = [socket(), socket()];
    let mut ports = Vec::new();
    for client in [&stays, &goes] {
        client.send_to(b"ask", at).expect("it listens");
        let asked = guest.receive(UDP, |payload| payload[2..4] == [0, 53]);
        ports.push(word(&asked, 20));
    }
    drop(goes);
    for _ in 0..2 {
        guest.tell(UDP, &datagram([53, ports[1]], b"lost"));
        let error = guest.receive(ICMP, |payload| payload[..2] == PORT_UNREACHABLE);
        assert_eq!((error[12..16].to_vec(), word(&error, 50)), (vec![10, 0, 2, 2], ports[1]));
        guest.tell(UDP, &datagram([53, ports[0]], b"answer"));
        let mut got = [0; 16];
        assert_eq!(stays.recv(&mut got).expect("an answer"), 6);
    }
    stays.send_to(b"more", at).expect("it listens");
    guest.receive(UDP, |payload| payload.ends_with(b"more"));
}

/// A guest without a socket for what a server sends refuses it, and the server is told.
#[test]
fn a_server_hears_that_a_guest_has_no_such_port() {
    let directory = tempfile::tempdir().expect("a directory");
    let (_ringway, mut guest) = router(directory.path(), "host=10.0.2.2");
    let (server, at) = socket();
    guest.tell(UDP, &datagram([4000, at.port()], b"hello"));
    let mut got = [0; 16];
    let (_, from) = server.recv_from(&mut got).expect("a datagram");
    server.connect(from).expect("an address");
    server.send(b"answer").expect("connected");
    let quote = guest.receive(UDP, |payload| payload[2..4] == 4000u16.to_be_bytes());
    guest.tell(ICMP, &[&[3, 3, 0, 0, 0, 0, 0, 0], &quote[..28]].concat());
    wait_for("a refusal", || {
        let sent = server.send(b"again");
        sent.is_err_and(|why| why.kind() == ErrorKind::ConnectionRefused).then_some(())
    });
}

/// A guest's datagram to a closed port of this machine's loopback comes back as an error from an
/// address that it may see.
#[test]
fn a_guest_hears_that_a_port_of_the_host_is_closed() {
    let directory = tempfile::tempdir().expect("a directory");
    let (_ringway, mut guest) = router(directory.path(), "host=10.0.2.2");
    let (_, closed) = socket();
    guest.tell(UDP, &datagram([4000, closed.port()], b"hello"));
    let error = guest.receive(ICMP, |payload| payload[..2] == PORT_UNREACHABLE);
    assert_eq!(error[12..16], [10, 0, 2, 2]);
}
