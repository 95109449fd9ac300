//! A front-end that sends what takes long to close: only its own port waits for that.

mod common;

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use common::{Ringway, wait_for};
use ringway_testkit::{AnyUserGuest, GuestOptions, RawFrontEnd};
use rustix::fs::fstat;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sockopt};
use rustix::process::Pid;

/// The process that closes the last fd waits for so long.
const CLOSING_TIME: Duration = Duration::from_secs(12);

/// The longest time of anything that does not wait for that.
const SOON: Duration = Duration::from_secs(6);

/// A front-end that is served at once is answered within that time.
const AT_ONCE: Duration = Duration::from_millis(300);

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

/// A TCP connection over loopback that has sent bytes which are not read, with `SO_LINGER`; and its
/// other end.
fn slow_to_close() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let mut ours = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
    let (theirs, _) = listener.accept().expect("it has connected");
    sockopt::set_socket_linger(&ours, Some(CLOSING_TIME)).expect("it is a TCP socket");
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

/// A Unix stream socket, as a front-end may send for calls: the process that closes the last fd of
/// it waits.
struct SlowToClose {
    fd: OwnedFd,
    /// Inodes of this socket and of the connection in its queue.
    sockets: [u64; 2],
    /// The processes that shall be the last to close it.
    ringway: [Pid; 2],
}

impl AsFd for SlowToClose {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl SlowToClose {
    /// One, and the other ends.
    fn new(ringway: [Pid; 2]) -> (Self, [OwnedFd; 2]) {
        let (tcp, tcp_end) = slow_to_close();
        let (unix, unix_end) = UnixStream::pair().expect("sockets");
        send_fd(&unix_end, tcp.as_fd());
        let sockets = [tcp.as_fd(), unix.as_fd()].map(|fd| fstat(fd).expect("it is open").st_ino);
        (Self { fd: unix.into(), sockets, ringway }, [tcp_end.into(), unix_end.into()])
    }

    /// Leaves it to ringway. What another thread starts meanwhile has copies of all fds until it
    /// runs.
    fn hand_over(self) {
        let Self { fd, sockets, ringway } = self;
        drop(fd);
        let copies = sockets.map(|inode| format!("socket:[{inode}]").into());
        wait_for("that no other process has it", || (!is_held(&copies, ringway)).then_some(()));
    }
}

/// Whether a process other than ringway has one of these open.
fn is_held(names: &[PathBuf], ringway: [Pid; 2]) -> bool {
    let entries = |path: &Path| std::fs::read_dir(path).into_iter().flatten().flatten();
    let ringway = ringway.map(|pid| pid.as_raw_nonzero().to_string());
    let others = entries(Path::new("/proc"))
        .filter(|process| !ringway.iter().any(|pid| *process.file_name() == **pid));
    let mut fds = others.flat_map(|process| entries(&process.path().join("fd")));
    fds.any(|fd| std::fs::read_link(fd.path()).is_ok_and(|name| names.contains(&name)))
}

/// A way of making ringway close what came; the front-end, where it stays.
type Way = fn(RawFrontEnd, &Path, SlowToClose) -> Option<RawFrontEnd>;

fn replaced(mut front_end: RawFrontEnd, _: &Path, slow: SlowToClose) -> Option<RawFrontEnd> {
    let set = front_end.request(SET_VRING_CALL, &0_u64.to_le_bytes(), &[slow.as_fd()]);
    assert!(set.expect("an answer").is_done());
    slow.hand_over();
    let set = front_end.request(SET_VRING_CALL, &NO_FD.to_le_bytes(), &[]);
    assert!(set.expect("an answer").is_done());
    Some(front_end)
}

/// Sends a message in two parts. With the first one the fd goes, so that ringway is the last to
/// close it.
fn send(front_end: &mut RawFrontEnd, code: u32, payload: &[u8], slow: SlowToClose) {
    let len = u32::try_from(payload.len()).expect("a few bytes");
    let header = [code, 1, len].map(u32::to_le_bytes).concat();
    front_end.send(&header, &[slow.as_fd(), slow.as_fd()]).expect("connected");
    slow.hand_over();
    front_end.send(payload, &[]).expect("connected");
}

fn malformed(mut front_end: RawFrontEnd, _: &Path, slow: SlowToClose) -> Option<RawFrontEnd> {
    send(&mut front_end, SET_VRING_CALL, &[0; 4], slow);
    Some(front_end)
}

fn not_memory(mut front_end: RawFrontEnd, _: &Path, slow: SlowToClose) -> Option<RawFrontEnd> {
    let table = front_end.memory_table();
    send(&mut front_end, SET_MEM_TABLE, &table, slow);
    Some(front_end)
}

/// A worker calls through it, until the front-end goes.
fn of_a_queue(mut front_end: RawFrontEnd, _: &Path, slow: SlowToClose) -> Option<RawFrontEnd> {
    front_end.bring_up(ringway_virtq::Format::Split).expect("a device");
    let set = front_end.request(SET_VRING_CALL, &0_u64.to_le_bytes(), &[slow.as_fd()]);
    assert!(set.expect("an answer").is_done());
    slow.hand_over();
    None
}

/// It comes behind a header that is not believed, and stays in the queue of the connection.
fn unread(mut front_end: RawFrontEnd, socket: &Path, slow: SlowToClose) -> Option<RawFrontEnd> {
    front_end.request(GET_FEATURES, &[], &[]).expect("an answer");
    let mut next = RawFrontEnd::connect(socket).expect("it listens");
    next.send(&[0xff; 12], &[]).expect("room");
    next.send(&[0; 12], &[slow.as_fd()]).expect("room");
    slow.hand_over();
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

/// Whether a front-end that connects is answered at once. It looks again and again: a read that a
/// signal interrupts, such as the end of what another thread has started, would begin its time
/// anew.
fn is_answered(socket: &Path) -> bool {
    let mut stream = UnixStream::connect(socket).expect("it listens");
    let get_features = [1_u32, 1, 0].map(u32::to_le_bytes).concat();
    stream.write_all(&get_features).expect("connected");
    stream.set_nonblocking(true).expect("a mode");
    let begun = Instant::now();
    while begun.elapsed() < AT_ONCE {
        if stream.read(&mut [0; 20]).is_ok_and(|len| len > 0) {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    false
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
    let (what, ends) = SlowToClose::new([ringway.pid(), ringway.data_plane()]);
    let front_end = way(front_end, &slow, what);
    let begun = Instant::now();
    // Everybody else is served while it closes.
    ringway.told(&["stats", "--json"]);
    drop(attach(&other));
    ringway.told(&["port", "add", "third=vm:third.sock"]);
    drop(attach(&directory.path().join("third.sock")));
    assert!(begun.elapsed() < SOON, "{name}: {:?}", begun.elapsed());
    drop(front_end);
    assert!(!is_answered(&slow), "{name}: no new front-end while it closes");
    assert!(begun.elapsed() < CLOSING_TIME, "{name}: it must still be closing");
    wait_for("a word", || ringway.error("slow").filter(|why| why.contains("being closed")));
    assert!(begun.elapsed() < CLOSING_TIME, "{name}: it must still be closing");
    // Then all is as before.
    drop(attach(&slow));
    assert!(begun.elapsed() > CLOSING_TIME, "{name}: {:?}", begun.elapsed());
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
    let (what, _ends) = SlowToClose::new([ringway.pid(), ringway.data_plane()]);
    let _front_end = replaced(front_end, &socket, what);
    ringway.must_end_soon(SOON);
}
