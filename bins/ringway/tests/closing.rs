//! A front-end that sends what takes long to close: nobody waits for that but its own port.

mod common;

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use common::{Ringway, wait_for};
use ringway_testkit::{AnyUserGuest, GuestOptions, RawFrontEnd};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sockopt};

/// Who closes the last fd waits for so long.
const LINGER: Duration = Duration::from_secs(8);

/// What does not wait for that takes no longer.
const SOON: Duration = Duration::from_secs(3);

const GET_FEATURES: u32 = 1;
const SET_VRING_CALL: u32 = 13;
const SET_MEM_TABLE: u32 = 5;
const NO_FD: u64 = 1 << 8;

/// Puts a file descriptor into the queue of the socket at the other end.
fn send_fd(through: &UnixStream, fd: BorrowedFd<'_>) {
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let fds = [fd];
    assert!(ancillary.push(SendAncillaryMessage::ScmRights(&fds)));
    let bytes = [std::io::IoSlice::new(b"x")];
    rustix::net::sendmsg(through, &bytes, &mut ancillary, SendFlags::NOSIGNAL).expect("room");
}

/// A TCP connection over loopback that has sent what nobody reads, and lingers; and its other end.
fn lingering() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let mut ours = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
    let (theirs, _) = listener.accept().expect("it has connected");
    sockopt::set_socket_linger(&ours, Some(LINGER)).expect("it is a TCP socket");
    ours.set_nonblocking(true).expect("a mode");
    let full = loop {
        if let Err(why) = ours.write(&[0; 65536]) {
            break why;
        }
    };
    assert_eq!(full.kind(), ErrorKind::WouldBlock);
    ours.set_nonblocking(false).expect("a mode");
    (ours, theirs)
}

/// A Unix stream socket, as a front-end may send for calls: whoever closes the last fd of it waits.
fn slow_to_close() -> (OwnedFd, [OwnedFd; 2]) {
    let (tcp, tcp_end) = lingering();
    let (unix, unix_end) = UnixStream::pair().expect("sockets");
    send_fd(&unix_end, tcp.as_fd());
    (unix.into(), [tcp_end.into(), unix_end.into()])
}

/// A way of making ringway close what came; the front-end, where it stays.
type Way = fn(RawFrontEnd, &Path, OwnedFd) -> Option<RawFrontEnd>;

fn replaced(mut front_end: RawFrontEnd, _: &Path, fd: OwnedFd) -> Option<RawFrontEnd> {
    let set = front_end.request(SET_VRING_CALL, &0_u64.to_le_bytes(), &[fd.as_fd()]);
    assert!(set.expect("an answer").is_done());
    drop(fd);
    let set = front_end.request(SET_VRING_CALL, &NO_FD.to_le_bytes(), &[]);
    assert!(set.expect("an answer").is_done());
    Some(front_end)
}

/// Sends a message in two parts. With the first one the fd goes, so that ringway is the last to close it.
fn send(front_end: &mut RawFrontEnd, code: u32, payload: &[u8], fd: OwnedFd) {
    let len = u32::try_from(payload.len()).expect("a few bytes");
    let header = [code, 1, len].map(u32::to_le_bytes).concat();
    front_end.send(&header, &[fd.as_fd(), fd.as_fd()]).expect("connected");
    drop(fd);
    front_end.send(payload, &[]).expect("connected");
}

fn malformed(mut front_end: RawFrontEnd, _: &Path, fd: OwnedFd) -> Option<RawFrontEnd> {
    send(&mut front_end, SET_VRING_CALL, &[0; 4], fd);
    Some(front_end)
}

fn not_memory(mut front_end: RawFrontEnd, _: &Path, fd: OwnedFd) -> Option<RawFrontEnd> {
    let table = front_end.memory_table();
    send(&mut front_end, SET_MEM_TABLE, &table, fd);
    Some(front_end)
}

/// A worker calls through it, until the front-end goes.
fn of_a_queue(mut front_end: RawFrontEnd, _: &Path, fd: OwnedFd) -> Option<RawFrontEnd> {
    front_end.bring_up(ringway_virtq::Format::Split).expect("a device");
    let set = front_end.request(SET_VRING_CALL, &0_u64.to_le_bytes(), &[fd.as_fd()]);
    assert!(set.expect("an answer").is_done());
    None
}

/// It comes behind a header that is not believed, and stays in the queue of the connection.
fn unread(mut front_end: RawFrontEnd, socket: &Path, fd: OwnedFd) -> Option<RawFrontEnd> {
    front_end.request(GET_FEATURES, &[], &[]).expect("an answer");
    let mut next = RawFrontEnd::connect(socket).expect("it listens");
    next.send(&[0xff; 12], &[]).expect("room");
    next.send(&[0; 12], &[fd.as_fd()]).expect("room");
    None
}

const WAYS: [(&str, Way); 5] = [
    ("replaced", replaced),
    ("malformed", malformed),
    ("not memory", not_memory),
    ("of a queue", of_a_queue),
    ("unread", unread),
];

fn attach(socket: &Path) -> AnyUserGuest {
    wait_for("a guest", || AnyUserGuest::attach(socket, &GuestOptions::default()).ok())
}

/// Whether a front-end that connects is answered at once.
fn is_answered(socket: &Path) -> bool {
    let mut stream = UnixStream::connect(socket).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_millis(300))).expect("a mode");
    let get_features = [1_u32, 1, 0].map(u32::to_le_bytes).concat();
    stream.write_all(&get_features).expect("connected");
    stream.read_exact(&mut [0; 20]).is_ok()
}

#[test]
fn only_its_own_port_waits_for_what_a_front_end_makes_slow_to_close() {
    std::thread::scope(|scope| {
        for (name, way) in WAYS {
            scope.spawn(move || only_its_own_port_waits(name, way));
        }
    });
}

fn only_its_own_port_waits(name: &str, way: Way) {
    let directory = tempfile::tempdir().expect("a directory");
    let ports = ["--port", "slow=vm:slow.sock", "--port", "other=vm:other.sock"];
    let mut ringway = Ringway::run(directory.path(), &ports);
    let [slow, other] = ["slow.sock", "other.sock"].map(|name| directory.path().join(name));
    let front_end = RawFrontEnd::connect(&slow).expect("it listens");
    let (fd, ends) = slow_to_close();
    let front_end = way(front_end, &slow, fd);
    let begun = Instant::now();
    // Everybody else is served while it closes.
    ringway.told(&["stats", "--json"]);
    drop(attach(&other));
    ringway.told(&["port", "add", "third=vm:third.sock"]);
    drop(attach(&directory.path().join("third.sock")));
    assert!(begun.elapsed() < SOON, "{name}: {:?}", begun.elapsed());
    drop(front_end);
    assert!(!is_answered(&slow), "{name}: nobody new while it closes");
    assert!(begun.elapsed() < LINGER, "{name}: it must still be closing");
    wait_for("a word", || ringway.error("slow").filter(|why| why.contains("being closed")));
    assert!(begun.elapsed() < LINGER, "{name}: it must still be closing");
    // Then all is as before.
    drop(attach(&slow));
    assert!(begun.elapsed() > LINGER, "{name}: {:?}", begun.elapsed());
    assert_eq!(ringway.error("slow"), None);
    let log = ringway.log();
    assert_eq!(log.matches("still being closed").count(), 1, "{name}: {log}");
    assert_eq!(log.matches("closed after").count(), 1, "{name}: {log}");
    drop(ends);
    ringway.must_end_soon(SOON);
}

#[test]
fn who_stops_ringway_does_not_wait_for_what_is_slow_to_close() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut ringway = Ringway::run(directory.path(), &["--port", "slow=vm:slow.sock"]);
    let socket = directory.path().join("slow.sock");
    let front_end = RawFrontEnd::connect(&socket).expect("it listens");
    let (fd, _ends) = slow_to_close();
    let _front_end = replaced(front_end, &socket, fd);
    ringway.must_end_soon(SOON);
}
