//! Guests behind a router that move to another port of the same ringway.

mod common;
#[path = "common/nat_guest.rs"]
mod nat_guest;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;

use common::{LIMIT, Ringway, wait_for};
use nat_guest::{ACK, Connection, Guest, TCP};
use ringway_testkit::GuestOptions;
use serde_json::Value;

fn nat(ringway: &Ringway) -> Value {
    let stats: Value = serde_json::from_str(&ringway.told(&["stats", "--json"])).expect("JSON");
    let ports = stats["ports"].as_array().expect("ports");
    ports.iter().find(|port| port["name"] == "net").expect("a router")["nat"].clone()
}

/// The guest's own address, as its VM monitor has it: no port has it.
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 9];

/// A guest at that port, which has an address, or asks for one.
fn guest(directory: &Path, port: &str, address: Option<[u8; 4]>) -> Guest {
    let options = GuestOptions::default();
    let guest = Guest::again(directory, port, &options, address.unwrap_or_default());
    let mut guest = guest.of_station(MAC);
    if address.is_none() {
        guest.ask_address();
    }
    guest
}

/// How many packets were refused as another guest's.
fn spoofed(ringway: &Ringway) -> u64 {
    let nat = nat(ringway);
    let refused = nat["refused"].as_object().expect("reasons").get("spoofed_source");
    refused.and_then(Value::as_u64).unwrap_or(0)
}

/// Two ports for one guest, and a router with a forward into the first one.
fn two_ports(directory: &Path) -> (Ringway, std::net::SocketAddr) {
    let free = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = free.local_addr().expect("an address");
    drop(free);
    let ports = ["a", "b"].map(|name| format!("{name}=vm:{name}.sock"));
    let router = format!("net=nat:,host=10.0.2.2,dns=off,forward=tcp:{at}:a:80");
    let arguments = ["--port", &ports[0], "--port", &ports[1], "--port", &router];
    (Ringway::run(directory, &arguments), at)
}

/// A connection of the guest to this process.
fn connect(guest: &mut Guest) -> (Connection, TcpStream) {
    let server = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = server.local_addr().expect("an address").port();
    let connection = Connection::open(guest, [40_000, port]);
    let (stream, _) = server.accept().expect("a connection");
    stream.set_read_timeout(Some(LIMIT)).expect("a timeout");
    (connection, stream)
}

/// Both ends hear each other.
fn talk(guest: &mut Guest, connection: &mut Connection, stream: &mut TcpStream, text: &[u8]) {
    let data = connection.segment(ACK, text);
    guest.tell(TCP, &data);
    let mut read = vec![0; text.len()];
    stream.read_exact(&mut read).expect("what the guest sent");
    assert_eq!(read, text);
    stream.write_all(text).expect("connected");
    while !connection.receive(guest, ACK).ends_with(text) {}
    let ack = connection.segment(ACK, &[]);
    guest.tell(TCP, &ack);
}

#[test]
fn a_guest_that_moves_keeps_its_address_and_its_connections() {
    let directory = tempfile::tempdir().expect("a directory");
    let (ringway, forward) = two_ports(directory.path());
    let mut old = guest(directory.path(), "a", None);
    let (mut connection, mut stream) = connect(&mut old);
    talk(&mut old, &mut connection, &mut stream, b"before");
    // Its front-end stays connected, as a VM monitor's does whose guest has left.
    old.nic.stop().expect("a good device");
    let mut new = guest(directory.path(), "b", Some(old.address()));
    talk(&mut new, &mut connection, &mut stream, b"after");
    drop(old);
    wait_for("its end", || (ringway.state("a").as_deref() == Some("waiting")).then_some(()));
    talk(&mut new, &mut connection, &mut stream, b"later");
    assert_eq!(spoofed(&ringway), 0, "{}", nat(&ringway));
    // What led to it leads to it where it is.
    let _client = TcpStream::connect(forward).expect("it listens");
    let syn = new.receive(TCP, |segment| nat_guest::word(segment, 2) == 80);
    assert_eq!(syn[16..20], new.address());
    let shown: Value =
        serde_json::from_str(&ringway.told(&["port", "show", "net", "--json"])).expect("JSON");
    assert_eq!(shown["guests"][0]["port"], "b", "{shown}");
}

/// A guest that was shut down is started at another port, and asks for an address.
#[test]
fn a_guest_that_is_plugged_in_elsewhere_has_its_address_again() {
    let directory = tempfile::tempdir().expect("a directory");
    let (ringway, _) = two_ports(directory.path());
    let before = guest(directory.path(), "a", None);
    let address = before.address();
    drop(before);
    wait_for("its end", || (ringway.state("a").as_deref() == Some("waiting")).then_some(()));
    let mut after = guest(directory.path(), "b", None);
    assert_eq!(after.address(), address);
    let (mut connection, mut stream) = connect(&mut after);
    talk(&mut after, &mut connection, &mut stream, b"hello");
    assert_eq!(spoofed(&ringway), 0);
}

/// Otherwise one guest could take another one's address.
#[test]
fn a_guest_that_runs_keeps_its_address() {
    let directory = tempfile::tempdir().expect("a directory");
    let (ringway, _) = two_ports(directory.path());
    let mut old = guest(directory.path(), "a", None);
    let (mut connection, mut stream) = connect(&mut old);
    talk(&mut old, &mut connection, &mut stream, b"before");
    let mut other = guest(directory.path(), "b", Some(old.address()));
    let taken = connection.clone().segment(ACK, b"mine now");
    // The switch lets a station move once in a while only.
    wait_for("a refusal", || {
        other.tell(TCP, &taken);
        (spoofed(&ringway) > 0).then_some(())
    });
    other.ask_address();
    assert_ne!(other.address(), old.address());
    talk(&mut old, &mut connection, &mut stream, b"after");
}
