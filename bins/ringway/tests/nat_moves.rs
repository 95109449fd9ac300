//! Guests behind a router that move: to another port of the same ringway, or to another ringway.

mod common;
#[path = "common/nat_guest.rs"]
mod nat_guest;

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use common::{LIMIT, Ringway, wait_for};
use nat_guest::{ACK, Connection, Guest, RST, TCP};
use ringway_testkit::GuestOptions;
use rustix::process::{Resource, getrlimit, setrlimit};
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

/// As many connections as a busy guest has, or as there may be here: each has a socket in this
/// process, and one in a ringway.
fn connections_max() -> u16 {
    const MOST: u64 = 1000;
    const OTHERS: u64 = 300;
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
    let most = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    u16::try_from(most.saturating_sub(OTHERS).min(MOST)).expect("few")
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
    // The forwards to it lead to where it is.
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

/// Its VM monitor connects again, as after an error.
#[test]
fn a_guest_whose_front_end_comes_back_at_once_keeps_its_connections() {
    let directory = tempfile::tempdir().expect("a directory");
    let (_ringway, _) = two_ports(directory.path());
    let mut before = guest(directory.path(), "a", None);
    let (mut connection, mut stream) = connect(&mut before);
    let address = before.address();
    drop(before);
    let mut after = guest(directory.path(), "a", Some(address));
    // Longer than a guest that does not come back is waited for.
    std::thread::sleep(Duration::from_millis(2500));
    talk(&mut after, &mut connection, &mut stream, b"still here");
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

/// With the limit for a guest that has been there, 1,000 take eight seconds.
const RESET_WITHIN: Duration = Duration::from_secs(1);

/// As soon as a guest sends a segment again that was not answered.
const AGAIN_AFTER: Duration = Duration::from_millis(200);

/// Says something in each connection, and again, until all are reset; how long that took.
fn all_are_reset(guest: &mut Guest, connections: &[Connection]) -> Duration {
    let begun = Instant::now();
    let mut left: Vec<bool> = vec![true; connections.len()];
    while left.contains(&true) {
        let count = left.iter().filter(|is_left| **is_left).count();
        assert!(begun.elapsed() < LIMIT, "{count} were not reset");
        for (at, connection) in connections.iter().enumerate().filter(|(at, _)| left[*at]) {
            guest.tell(TCP, &connection.clone().segment(ACK, b"still there?"));
            if at % 32 == 31 {
                // A ring has room for some of them only.
                std::thread::sleep(Duration::from_micros(500));
            }
        }
        let sent = Instant::now();
        while left.contains(&true) && sent.elapsed() < AGAIN_AFTER {
            match guest.poll(TCP) {
                Some(segment) => note_reset(&segment, connections, &mut left),
                None => std::thread::sleep(Duration::from_micros(200)),
            }
        }
    }
    begun.elapsed()
}

fn note_reset(segment: &[u8], connections: &[Connection], left: &mut [bool]) {
    let at = connections.iter().position(|connection| connection.has(segment));
    if let Some(at) = at.filter(|_| segment[13] & RST != 0) {
        left[at] = false;
    }
}

/// Both ends of its connections hear soon that they are over, and no end hears it before.
#[test]
fn the_connections_of_a_guest_that_goes_to_another_ringway_are_reset_at_once() {
    let directories = [(); 2].map(|()| tempfile::tempdir().expect("a directory"));
    let [(here, _), (there, _)] = directories.each_ref().map(|it| two_ports(it.path()));
    let mut old = guest(directories[0].path(), "a", None);
    let server = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = server.local_addr().expect("an address").port();
    let (mut connections, mut streams) = (Vec::new(), Vec::new());
    for number in 0..connections_max() {
        connections.push(Connection::open(&mut old, [20_000 + number, port]));
        let (stream, _) = server.accept().expect("a connection");
        stream.set_nonblocking(true).expect("a socket");
        streams.push(stream);
    }
    let ends = |streams: &mut [TcpStream], why: ErrorKind| {
        let is_it =
            |stream: &mut TcpStream| stream.read(&mut [0]).is_err_and(|it| it.kind() == why);
        streams.iter_mut().filter_map(|stream| is_it(stream).then_some(())).count()
    };
    old.nic.stop().expect("a good device");
    let mut new = guest(directories[1].path(), "a", Some(old.address()));
    let elapsed = all_are_reset(&mut new, &connections);
    println!("{} connections reset within {elapsed:?}", connections.len());
    assert!(elapsed < RESET_WITHIN, "{elapsed:?}");
    // New ones work at once, and it keeps its address without having asked for one there.
    let (mut connection, mut stream) = connect(&mut new);
    talk(&mut new, &mut connection, &mut stream, b"new");
    assert_eq!((spoofed(&here), spoofed(&there)), (0, 0));
    // It may come back as long as its first front-end is there.
    assert_eq!(ends(&mut streams, ErrorKind::WouldBlock), streams.len());
    drop(old);
    let ended = Instant::now();
    let mut resets = 0;
    wait_for("resets outside", || {
        resets += ends(&mut streams, ErrorKind::ConnectionReset);
        (resets == streams.len()).then_some(())
    });
    println!("and outside within {:?}", ended.elapsed());
}
