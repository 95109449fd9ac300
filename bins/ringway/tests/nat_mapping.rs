//! A guest's port as others see it, and its end when the host's addresses change.

mod common;
#[path = "common/far.rs"]
mod far;
#[path = "common/nat_guest.rs"]
mod nat_guest;

use std::net::{Ipv6Addr, SocketAddr, UdpSocket};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use common::{Ringway, wait_for};
use far::{FAR, FAR_6, Far};
use nat_guest::{Guest, UDP, datagram, word};
use ringway_testkit::GuestOptions;

const ICMP: u8 = 1;
const PORTS: [u16; 2] = [51_820, 51_821];
const OWN: u16 = 4000;
/// Without a datagram for so long the other machine ends.
const SILENCE_MAX: Duration = Duration::from_secs(60);
const SERVES: &str = "RINGWAY_TEST_FAR";

/// Not a test: what runs on the other machine. It answers each datagram with the port that it came
/// from, one that says `tftp` from another port; `push` is sent on from another address.
#[test]
fn serves_on_the_other_machine() {
    if std::env::var_os(SERVES).is_none() {
        return;
    }
    let serve = |socket: UdpSocket| {
        let mut bytes = [0; 64];
        // It ends by itself where who asks was killed.
        socket.set_read_timeout(Some(SILENCE_MAX)).expect("set");
        while let Ok((len, from)) = socket.recv_from(&mut bytes) {
            let answer = from.port().to_string();
            let (other, near) = match (&bytes[..len], from) {
                (b"tftp", SocketAddr::V4(_)) => (Some("0.0.0.0:0"), None),
                (b"tftp", SocketAddr::V6(_)) => (Some("[::]:0"), None),
                (b"push", _) => (None, Some("192.0.2.8:0")),
                _ => (None, None),
            };
            let other = other.or(near).map(|at| bind(at.parse().expect("an address")));
            let _ = other.as_ref().unwrap_or(&socket).send_to(answer.as_bytes(), from);
        }
    };
    let threads: Vec<_> = PORTS
        .into_iter()
        .flat_map(|port| [([0, 0, 0, 0], port).into(), (Ipv6Addr::UNSPECIFIED, port).into()])
        .map(|at: SocketAddr| {
            let socket = match at {
                SocketAddr::V4(_) => bind(at),
                SocketAddr::V6(_) => only_ipv6(at),
            };
            std::thread::spawn(move || serve(socket))
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
}

fn bind(at: SocketAddr) -> UdpSocket {
    UdpSocket::bind(at).expect("a port")
}

fn only_ipv6(at: SocketAddr) -> UdpSocket {
    use rustix::net::{AddressFamily, SocketType, bind, socket, sockopt::set_ipv6_v6only};
    let fd = socket(AddressFamily::INET6, SocketType::DGRAM, None).expect("a socket");
    set_ipv6_v6only(&fd, true).expect("it can");
    bind(&fd, &at).expect("a port");
    fd.into()
}

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Lab {
    guest: Guest,
    far: Far,
    ringway: Ringway,
    _server: Server,
    _directory: tempfile::TempDir,
}

const OWN_6: &str = "fd00:9::99";

impl Lab {
    /// `None`: such a thing cannot be made here.
    fn new() -> Option<Self> {
        let directory = tempfile::tempdir().expect("a directory");
        let ports = ["--port", "a=vm:a.sock", "--port", "net=nat:,range=10.0.2.0/24+fd00:9::/64"];
        let ringway = Ringway::run_in_namespace(directory.path(), &ports)?;
        let far = Far::new(&ringway)?;
        assert!(far.run("ip addr add 192.0.2.8/24 dev far0"));
        let program = std::env::current_exe().expect("a program");
        let line = format!("exec {} --exact serves_on_the_other_machine", program.display());
        let server = far.command(&line).env(SERVES, "1").stdout(Stdio::null()).spawn();
        let server = Server(server.expect("nsenter is where unshare is"));
        let guest = Guest::new(directory.path(), "a", &GuestOptions::default());
        let mut lab = Self { guest, far, ringway, _server: server, _directory: directory };
        // The server is there.
        for is_ipv4 in [true, false] {
            wait_for("the other machine", || lab.ask(is_ipv4, PORTS[0], b"who"));
        }
        Some(lab)
    }

    fn send(&mut self, is_ipv4: bool, to: u16, text: &[u8]) {
        let payload = datagram([OWN, to], text);
        match is_ipv4 {
            true => self.guest.send_to(FAR, UDP, &payload),
            false => {
                let ends = [OWN_6, FAR_6].map(|it| it.parse::<Ipv6Addr>().expect("an address"));
                self.guest.send_to6(ends, UDP, &payload);
            }
        }
    }

    /// The next datagram for the guest's port: from which port, and its text.
    fn receive(&mut self, is_ipv4: bool, within: Duration) -> Option<(u16, String)> {
        let (kind, at) = if is_ipv4 { ([8, 0], 34) } else { ([0x86, 0xdd], 54) };
        let end = Instant::now() + within;
        while Instant::now() < end {
            let Some((_, frame)) = self.guest.nic.receive().expect("a good device") else {
                std::thread::sleep(Duration::from_millis(1));
                continue;
            };
            let is_udp = frame[12..14] == kind && frame[if is_ipv4 { 23 } else { 20 }] == UDP;
            if is_udp && word(&frame, at + 2) == OWN {
                let end = at + usize::from(word(&frame, at + 4));
                let text = String::from_utf8_lossy(&frame[at + 8..end]).into_owned();
                return Some((word(&frame, at), text));
            }
        }
        None
    }

    fn ask(&mut self, is_ipv4: bool, to: u16, text: &[u8]) -> Option<(u16, String)> {
        self.send(is_ipv4, to, text);
        self.receive(is_ipv4, Duration::from_secs(1))
    }

    fn inside(&self, line: &str) {
        let done = self.ringway.inside(&["sh", "-c", &format!("{line} && echo done")]);
        assert!(done.contains("done"), "{line}");
    }
}

#[test]
fn one_port_of_a_guest_is_one_port_outside() {
    let Some(mut lab) = Lab::new() else {
        return println!("skipped: no network namespace can be made here");
    };
    for is_ipv4 in [true, false] {
        let (from, seen) = lab.ask(is_ipv4, PORTS[0], b"who").expect("an answer");
        assert_eq!(from, PORTS[0]);
        let (from, other) = lab.ask(is_ipv4, PORTS[1], b"who").expect("an answer");
        assert_eq!((from, &other), (PORTS[1], &seen), "the same port for another end");
        let (from, other) = lab.ask(is_ipv4, PORTS[0], b"tftp").expect("from another port");
        assert!(!PORTS.contains(&from) && other == seen, "{from} {other}");
        // And that one is answered, by the same port.
        lab.send(is_ipv4, from, b"on");
    }
    // From an address that the guest has sent nothing to.
    lab.send(true, PORTS[0], b"push");
    assert_eq!(lab.receive(true, Duration::from_millis(500)), None);
    let (from, _) = lab.ask(true, PORTS[0], b"who").expect("an answer behind it");
    assert_eq!(from, PORTS[0]);
}

#[test]
fn flows_go_on_when_the_hosts_addresses_change() {
    let Some(mut lab) = Lab::new() else {
        return println!("skipped: no network namespace can be made here");
    };
    let ping = |lab: &mut Lab, number: u8| {
        lab.guest.send_to(FAR, ICMP, &[8, 0, 0, 0, 7, 7, 0, number]);
        let end = Instant::now() + Duration::from_secs(1);
        let mut is_answered = false;
        while !is_answered && Instant::now() < end {
            let frame = lab.guest.nic.receive().expect("a good device");
            is_answered = frame.is_some_and(|(_, it)| it[23] == ICMP && it[34] == 0);
        }
        is_answered
    };
    assert!(ping(&mut lab, 0));
    lab.inside(
        "ip addr del 192.0.2.1/24 dev up0 && ip addr add 192.0.2.9/24 dev up0 && \
         ip addr del 2001:db8::1/64 dev up0 && ip addr add 2001:db8::9/64 dev up0 nodad",
    );
    assert!(lab.far.run("ip neigh flush dev far0"));
    for is_ipv4 in [true, false] {
        let answers = (0..3).filter_map(|_| lab.ask(is_ipv4, PORTS[0], b"who")).count();
        assert!(answers > 0, "IPv4 {is_ipv4}");
    }
    assert!((1..4).any(|number| ping(&mut lab, number)), "echo");
}

/// A place that becomes this machine's own is none for guests.
#[test]
fn a_flow_to_a_place_that_becomes_the_hosts_own_ends() {
    let Some(mut lab) = Lab::new() else {
        return println!("skipped: no network namespace can be made here");
    };
    assert!(lab.ask(true, PORTS[0], b"who").is_some());
    lab.inside("ip addr add 192.0.2.7/32 dev lo");
    std::thread::sleep(Duration::from_millis(2100));
    lab.send(true, PORTS[0], b"who");
    let frame = lab.guest.receive_frame(|frame| frame[23] == ICMP && frame[34] == 3);
    assert_eq!(frame[35], 13, "prohibited");
}
