//! A small internet for a router without root: this namespace is the provider, with servers on its
//! loopback, and ringway runs in a namespace of users and networks of its own, with no right over
//! anything and no tap driver, behind one link.
//!
//! Limits: the answers of the servers are made up of what they are asked.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use crate::process::Process;
use crate::ringway::Ringway;
use crate::stage::Stage;
use crate::traffic::Side;
use crate::{net, shell};
use anyhow::Context;

/// The provider's server.
pub const SERVER: &str = "10.98.0.1";
/// The same.
pub const SERVER6: &str = "fd98::1";
/// Takes a stream, and answers its sum.
pub const SINK: u16 = 7001;
/// Takes a stream, and keeps its sum.
pub const KEEPER: u16 = 7005;
/// Sends as many bytes as a line says.
pub const SOURCE: u16 = 7002;
/// Sends back what comes.
pub const ECHO: u16 = 7003;
/// Resets what sends to it.
pub const RESET: u16 = 7004;
/// The machine that ringway runs on, as the provider sees it.
pub const MACHINE: &str = "10.99.0.1";
/// Guests behind [`start_machine`] whose addresses the provider sees.
pub const GUESTS: &str = "10.90.0.0/16";
/// An address behind a link with an MTU of 1280.
pub const NARROW: &str = "10.98.0.7";
/// A name that the resolver knows.
pub const NAME: &str = "a.test";

/// Starts ringway where it may do nothing.
const WRAPPER: &str = r#"#!/bin/sh
binary=BINARY
[ "$1" = run ] || exec "$binary" "$@"
exec unshare --user --map-root-user --net --mount -- sh -c '
    mount -t tmpfs none /dev/net
    ip link set lo up
    echo 0 0 > /proc/sys/net/ipv4/ping_group_range
    exec setpriv --bounding-set=-all --inh-caps=-all --no-new-privs "$@"' sh "$binary" "$@"
"#;

/// The same stage, whose ringway has no right.
///
/// # Errors
/// No file can be written.
pub fn without_rights(stage: &Stage) -> anyhow::Result<Stage> {
    let wrapper = stage.file("ringway");
    let mut programs = stage.programs.clone();
    fs::write(&wrapper, WRAPPER.replace("BINARY", &programs.ringway.display().to_string()))?;
    fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755))?;
    programs.ringway = wrapper;
    Ok(Stage::new(programs, stage.logs.clone(), &stage.directory))
}

/// A file that a guest runs for its lease: the guest goes by it, and writes down what it was given.
const LEASE_SCRIPT: &str = r#"#!/bin/sh
[ "$1" = bound ] || exit 0
ip addr add $ip/$mask dev $interface
[ -z "$mtu" ] || ip link set $interface mtu $mtu
ip route add default via $router
echo "lease $ip $router $dns $mtu $search" > given"#;

/// Lets a guest ask its router for an address, and go by it; what it was given.
///
/// # Errors
/// The guest has no device, or gets no address.
pub fn lease(side: &mut Side<'_>) -> anyhow::Result<String> {
    side.must("ip link set eth0 up").context("the guest has no device")?;
    let script = LEASE_SCRIPT.replace('\n', "' '");
    side.must(&format!("printf '%s\\n' '{script}' > lease && chmod +x lease"))?;
    side.must("busybox udhcpc -q -n -i eth0 -s ./lease -O mtu -O search -O dns -t 10 -T 1")?;
    side.must("cat given")
}

/// Ringway with these ports in its own network, the link to it, and the provider's servers.
///
/// # Errors
/// It does not come up, or the network cannot be set up.
pub fn start(stage: &Stage, ports: &[String]) -> anyhow::Result<Ringway> {
    stage.step("the provider, and ringway without rights");
    let ringway = Ringway::start(stage, ports)?;
    provide(ringway.id())?;
    Ok(ringway)
}

/// A machine for routers: a network of its own, behind the provider's link, that passes on what
/// comes to it, and where every user may ping. It is there as long as the process.
///
/// # Errors
/// It does not come up.
pub fn start_machine(stage: &Stage) -> anyhow::Result<Process> {
    let command = shell::command(&["unshare", "--net", "sleep", "infinity"]);
    let mut machine = Process::start(stage, "machine", command)?;
    let id = machine.id();
    let network = |of: &str| fs::read_link(format!("/proc/{of}/ns/net")).ok();
    let is_apart = |_: &mut Process| network(&id.to_string()) != network("self");
    machine.wait_until("apart", Duration::from_secs(10), is_apart)?;
    provide(id)?;
    let sets = "ip link set lo up; echo 1 > /proc/sys/net/ipv4/ip_forward; \
                echo 0 2147483647 > /proc/sys/net/ipv4/ping_group_range";
    on_machine(id, sets)?;
    net::ip(&format!("route add {GUESTS} via {MACHINE}"))?;
    Ok(machine)
}

/// The provider's link to the machine in the network of this process, and its servers.
fn provide(id: u32) -> anyhow::Result<()> {
    net::ip(&format!("link add v0 type veth peer name v1 netns {id}"))?;
    for set in ["all", "lo", "v0"] {
        fs::write(format!("/proc/sys/net/ipv6/conf/{set}/disable_ipv6"), "0")?;
    }
    for words in [
        "addr add 10.99.0.2/24 dev v0",
        "addr add fd99::2/64 dev v0 nodad",
        "link set v0 up",
        &format!("addr add {SERVER}/32 dev lo"),
        &format!("addr add {NARROW}/32 dev lo"),
        // Without nodad it can be bound only when a thread of the kernel has run.
        &format!("addr add {SERVER6}/128 dev lo nodad"),
    ] {
        net::ip(words)?;
    }
    for words in [
        &format!("ip addr add {MACHINE}/24 dev v1"),
        "ip addr add fd99::1/64 dev v1 nodad",
        "ip link set v1 up",
        "ip route add default via 10.99.0.2",
        "ip -6 route add default via fd99::2",
        &format!("ip route add {NARROW} via 10.99.0.2 mtu lock 1280"),
    ] {
        on_machine(id, words)?;
    }
    fs::write("/proc/sys/net/ipv4/ip_forward", "1")?;
    serve()
}

/// Runs a command in the network of ringway's machine; what it printed.
///
/// # Errors
/// It fails.
pub fn on_machine(id: u32, words: &str) -> anyhow::Result<String> {
    let mut command = shell::command(&["nsenter", &format!("--net=/proc/{id}/ns/net")]);
    shell::output(command.args(["sh", "-c", words]))
}

fn serve() -> anyhow::Result<()> {
    each_connection(SINK, sink)?;
    each_connection(KEEPER, |mut stream| {
        let mut sum = Sum::start()?;
        std::io::copy(&mut stream, sum.to())?;
        let text = sum.finish()?;
        if let Ok(mut kept) = KEPT.lock() {
            *kept = text;
        }
        Ok(())
    })?;
    each_connection(SOURCE, source)?;
    each_connection(ECHO, |mut stream| {
        let mut bytes = [0; 4096];
        while let Ok(len @ 1..) = stream.read(&mut bytes) {
            stream.write_all(&bytes[..len])?;
        }
        Ok(())
    })?;
    each_connection(RESET, |mut stream| {
        // The bytes that it has not read make it a reset.
        stream.read_exact(&mut [0; 1])
    })?;
    each_datagram(ECHO, <[u8]>::to_vec)?;
    each_datagram(53, answer)
}

static KEPT: Mutex<String> = Mutex::new(String::new());

/// The sum of the last stream that the keeper has taken, once; empty: none yet.
pub fn kept_sum() -> String {
    KEPT.lock().map(|mut kept| std::mem::take(&mut *kept)).unwrap_or_default()
}

fn each_connection(port: u16, serve: fn(TcpStream) -> std::io::Result<()>) -> anyhow::Result<()> {
    let listener = TcpListener::bind(("::", port)).context("a service")?;
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || serve(stream));
        }
    });
    Ok(())
}

fn each_datagram(port: u16, answer: fn(&[u8]) -> Vec<u8>) -> anyhow::Result<()> {
    // Answers come from the address that was asked.
    for address in [SERVER, SERVER6, NARROW] {
        let socket = UdpSocket::bind((address, port)).context("a service")?;
        thread::spawn(move || {
            let mut bytes = vec![0; 65_536];
            while let Ok((len, from)) = socket.recv_from(&mut bytes) {
                let _ = socket.send_to(&answer(&bytes[..len]), from);
            }
        });
    }
    Ok(())
}

/// Says, after the end of what came, what it was.
fn sink(mut stream: TcpStream) -> std::io::Result<()> {
    let mut sum = Sum::start()?;
    std::io::copy(&mut stream, sum.to())?;
    stream.write_all(sum.finish()?.as_bytes())?;
    stream.shutdown(Shutdown::Write)
}

/// Sends as many bytes as a line says.
fn source(mut stream: TcpStream) -> std::io::Result<()> {
    let mut line = String::new();
    while !line.ends_with('\n') {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        line.push(char::from(byte[0]));
    }
    // A browser asks for GET /NUMBER.
    let is_browser = line.starts_with("GET ");
    let digits = |character: &char| character.is_ascii_digit();
    let number: String = line.chars().skip_while(|it| !digits(it)).take_while(digits).collect();
    if is_browser {
        stream.write_all(b"HTTP/1.0 200 OK\r\n\r\n")?;
    }
    let mut left: usize = number.parse().unwrap_or(0);
    let chunk = pattern();
    while left > 0 {
        let len = left.min(chunk.len());
        stream.write_all(&chunk[..len])?;
        left -= len;
    }
    stream.shutdown(Shutdown::Write)?;
    // Until the other end has all.
    std::io::copy(&mut stream, &mut std::io::sink()).map(drop)
}

/// Bytes that the source sends, again and again: a length that is no multiple of anything on the
/// way.
fn pattern() -> Vec<u8> {
    (0..100_003u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

/// The output of `sha256sum` for the first `len` bytes of the source.
///
/// # Errors
/// There is no such program.
pub fn source_sum(len: usize) -> anyhow::Result<String> {
    let (mut sum, chunk) = (Sum::start()?, pattern());
    let mut left = len;
    while left > 0 {
        let len = left.min(chunk.len());
        sum.to().write_all(&chunk[..len])?;
        left -= len;
    }
    Ok(sum.finish()?)
}

/// The program `sha256sum`, which guests have too.
struct Sum(Child);

impl Sum {
    fn start() -> std::io::Result<Self> {
        let mut command = shell::command(&["sha256sum"]);
        Ok(Self(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?))
    }

    fn to(&mut self) -> &mut ChildStdin {
        self.0.stdin.as_mut().expect("it was piped")
    }

    fn finish(self) -> std::io::Result<String> {
        let output = self.0.wait_with_output()?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// A resolver: the server's addresses for [`NAME`], and no other name exists.
fn answer(question: &[u8]) -> Vec<u8> {
    const NAME_LEN: usize = 8;
    let mut answer = question.to_vec();
    let (Some(name), Some(kind)) = (question.get(12..12 + NAME_LEN), question.get(12 + NAME_LEN..))
    else {
        return answer;
    };
    answer.truncate(12 + NAME_LEN + 4);
    answer[2..12].copy_from_slice(&[0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0]);
    let address: &[u8] = match kind {
        [0, 1, ..] => &[10, 98, 0, 1],
        [0, 28, ..] => &[0xfd, 0x98, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
        _ => &[],
    };
    if name != b"\x01a\x04test\0" {
        answer[3] |= 3;
    } else if let Ok(len @ 1..) = u16::try_from(address.len()) {
        answer[7] = 1;
        answer.extend([0xc0, 12, 0, kind[1], 0, 1, 0, 0, 0, 60]);
        answer.extend(len.to_be_bytes());
        answer.extend(address);
    }
    answer
}
