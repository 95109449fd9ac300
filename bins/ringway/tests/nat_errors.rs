//! Datagrams that do not arrive: guests and who is outside hear of each other's errors as far as
//! the kernel lets an unprivileged process tell them.

mod common;
#[path = "common/nat_guest.rs"]
mod nat_guest;

use std::io::ErrorKind;
use std::path::Path;

use common::{Ringway, wait_for};
use nat_guest::{Guest, UDP, datagram, socket, word};
use ringway_testkit::GuestOptions;

const ICMP: u8 = 1;
const PORT_UNREACHABLE: [u8; 2] = [3, 3];

fn router(directory: &Path, options: &str) -> (Ringway, Guest) {
    let router = format!("net=nat:,{options}");
    let ringway = Ringway::run(directory, &["--port", "a=vm:a.sock", "--port", &router]);
    (ringway, Guest::new(directory, "a", &GuestOptions::default()))
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
    // From now on it hears only someone else. If it were closed, a child that another test starts
    // meanwhile could have a copy of it, and hear in its place.
    goes.connect("127.0.0.1:9").expect("an address");
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
