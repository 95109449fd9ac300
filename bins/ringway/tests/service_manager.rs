//! A supervisor that is killed and started again by a service manager that has kept what it had:
//! front-ends stay connected. This test is the service manager.

mod common;

use std::collections::BTreeMap;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{IntoRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{Ringway, wait_for};
use ringway_net::Features;
use ringway_testkit::{Answer, AnyUserGuest, GuestOptions, RawFrontEnd, Traffic};
use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

/// Above all that the shell uses.
const HIGH: i32 = 200;

/// Where a journal says what its layout is.
const LAYOUT_AT: u64 = 8;

struct Manager {
    socket: UnixDatagram,
    kept: BTreeMap<String, Vec<OwnedFd>>,
    /// The messages that are not about the store.
    told: Vec<String>,
}

impl Manager {
    fn new(directory: &Path) -> Self {
        let socket = UnixDatagram::bind(directory.join("notify")).expect("a socket");
        Self { socket, kept: BTreeMap::new(), told: Vec::new() }
    }

    fn listen(&mut self) {
        loop {
            let mut text = [0; 4096];
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
            let mut ancillary = RecvAncillaryBuffer::new(&mut space);
            let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
            let mut into = [IoSliceMut::new(&mut text)];
            let Ok(came) = recvmsg(&self.socket, &mut into, &mut ancillary, flags) else { return };
            let fds = ancillary.drain().flat_map(|message| match message {
                RecvAncillaryMessage::ScmRights(fds) => fds.collect::<Vec<_>>(),
                _ => vec![],
            });
            let fds: Vec<OwnedFd> = fds.collect();
            let text = String::from_utf8(text[..came.bytes].to_vec()).expect("text");
            let name = text.lines().find_map(|line| line.strip_prefix("FDNAME="));
            match (name, text.lines().next()) {
                (Some(name), Some("FDSTORE=1")) => {
                    self.kept.entry(name.to_owned()).or_default().extend(fds);
                }
                (Some(name), Some("FDSTOREREMOVE=1")) => drop(self.kept.remove(name)),
                _ => self.told.push(text),
            }
        }
    }

    /// A program that gets what is kept, as systemd passes it.
    fn command(&self, directory: &Path) -> Command {
        let mut moves = String::new();
        let (mut names, mut number) = (Vec::new(), 3);
        for (name, fds) in &self.kept {
            for fd in fds {
                let fd = fcntl_dupfd_cloexec(fd, HIGH).expect("room");
                fcntl_setfd(&fd, FdFlags::empty()).expect("open");
                let at = fd.into_raw_fd();
                moves += &format!("{number}<&{at} {at}<&- ");
                names.push(name.as_str());
                number += 1;
            }
        }
        let start = "LISTEN_PID=$$ exec \"$0\" \"$@\"";
        let script = format!("exec {moves}; {start}");
        let script = if names.is_empty() { start.to_owned() } else { script };
        let mut command = Command::new("bash");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_ringway")]);
        command.env("NOTIFY_SOCKET", directory.join("notify")).env("FDSTORE", "1000");
        command.env("WATCHDOG_USEC", "400000");
        command.env("LISTEN_FDS", names.len().to_string()).env("LISTEN_FDNAMES", names.join(":"));
        command
    }
}

/// Listens all the time, as a service manager does, while the test holds the other one.
fn listening(manager: Manager) -> Arc<Mutex<Manager>> {
    let manager = Arc::new(Mutex::new(manager));
    let listener = Arc::downgrade(&manager);
    std::thread::spawn(move || {
        while let Some(manager) = listener.upgrade() {
            manager.lock().expect("it goes on").listen();
            drop(manager);
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    manager
}

#[test]
fn front_ends_stay_when_the_supervisor_is_killed() {
    let directory = tempfile::tempdir().expect("a directory");
    let manager = listening(Manager::new(directory.path()));
    let heard = || {
        let mut manager = manager.lock().expect("it goes on");
        manager.listen();
        manager
    };
    let ports = ["--port", "a=vm:a.sock", "--port", "b=vm:b.sock"];
    let start = || {
        let command = heard().command(directory.path());
        Ringway::run_by(command, directory.path(), &ports)
    };
    let mut ringway = start();
    let accept = Features::OFFERED.difference(Features::RING_PACKED);
    let options = GuestOptions { accept, ..GuestOptions::default() };
    let guest = |name: &str| {
        let socket = directory.path().join(name);
        wait_for("a guest", || AnyUserGuest::attach(&socket, &options).ok())
    };
    let mut guests = [guest("a.sock"), guest("b.sock")];
    let mut between = Traffic::new([guests[0].mac(), guests[1].mac()], 1, 1514);
    between.settle(&mut guests).expect("they hear each other");
    let is_told = |what: &str| heard().told.iter().any(|text| text == what);
    assert!(is_told("READY=1"));
    // It would be started again.
    assert!(ringway.refused(&["stop"]).contains("systemctl stop ringway"));
    ringway.told(&["port", "add", "c=vm:c.sock"]);
    for round in 0..5 {
        between.exchange(&mut guests, 50).expect("undisturbed");
        if round == 3 {
            ringway.told(&["upgrade"]);
            between.exchange(&mut guests, 50).expect("undisturbed");
        }
        let has_other_layout = round == 1;
        if has_other_layout {
            let layout = 1u32.to_le_bytes();
            ringway.journal().write_all_at(&layout, LAYOUT_AT).expect("room");
        }
        ringway.kill();
        // Each front-end, and the whole; twice in the moment when a new one takes its place.
        let names: Vec<String> = heard().kept.keys().cloned().collect();
        let key = |name: &String| name.rsplit_once('-').map(|(key, _)| key.to_owned());
        let mut keys: Vec<String> = names.iter().filter_map(key).collect();
        keys.dedup();
        assert_eq!(keys, ["link-1", "link-2", "whole"], "{names:?}");
        assert!(names.len() <= 2 * keys.len(), "{names:?}");
        ringway = start();
        // A client that looks for the process that listens finds the one that is there.
        let client = UnixStream::connect(ringway.control()).expect("it listens");
        let peer = rustix::net::sockopt::socket_peercred(&client).expect("a process");
        assert_eq!(peer.pid, ringway.pid());
        between.exchange(&mut guests, 50).expect("they go on");
        assert_eq!(ringway.names(), ["a", "b", "c"]);
        assert_eq!(ringway.log().contains("the journal has layout 1"), has_other_layout);
        assert!(!ringway.log().contains("front-end connected"), "{}", ringway.log());
    }
    assert_eq!(between.lost(), 0);
    drop(guest("c.sock"));
    wait_for("a sign of life", || is_told("WATCHDOG=1").then_some(()));
    ringway.must_end_soon(Duration::from_secs(5));
    assert!(is_told("STOPPING=1"));
    assert_eq!(heard().kept.len(), 0);
}

/// A front-end that waits until another one has gone waits at the next supervisor, too.
#[test]
fn a_front_end_that_waits_goes_on_waiting_when_the_supervisor_is_killed() {
    const GET_FEATURES: u32 = 1;
    let directory = tempfile::tempdir().expect("a directory");
    let socket = directory.path().join("a.sock");
    let manager = listening(Manager::new(directory.path()));
    let start = || {
        let command = manager.lock().expect("it goes on").command(directory.path());
        Ringway::run_by(command, directory.path(), &["--port", "a=vm:a.sock"])
    };
    let mut ringway = start();
    let connect = || wait_for("the socket", || RawFrontEnd::connect(&socket).ok());
    let mut first = connect();
    assert!(first.request(GET_FEATURES, &[], &[]).is_ok());
    let mut second = connect();
    let request = [GET_FEATURES, 1, 0].map(u32::to_le_bytes).concat();
    second.send(&request, &[]).expect("connected");
    wait_for("the log", || ringway.log().contains("front-end waits").then_some(()));
    for _ in 0..2 {
        ringway.kill();
        ringway = start();
        assert!(matches!(first.request(GET_FEATURES, &[], &[]), Ok(Answer::Number(_))));
        wait_for("the log", || ringway.log().contains("front-end waits").then_some(()));
    }
    drop(first);
    assert!(matches!(second.answer(GET_FEATURES), Ok(Answer::Number(_))));
}

/// The service manager listens: front-ends may connect before ringway is started, and between its
/// end and its next start.
#[test]
fn sockets_of_the_service_manager_are_served_and_stay() {
    let directory = tempfile::tempdir().expect("a directory");
    let place = |name: &str| directory.path().join(name);
    let mut manager = Manager::new(directory.path());
    for (name, file) in [("control", "control.sock"), ("a", "a.sock"), ("unknown", "c.sock")] {
        let listener = UnixListener::bind(place(file)).expect("a socket");
        manager.kept.insert(name.to_owned(), vec![listener.into()]);
    }
    let early = UnixStream::connect(place("a.sock")).expect("the manager listens");
    let ports = ["--port", "a=vm:a.sock", "--port", "b=vm:b.sock"];
    let start = || {
        let mut command = manager.command(directory.path());
        // It keeps nothing.
        command.env_remove("NOTIFY_SOCKET").env_remove("FDSTORE").env_remove("WATCHDOG_USEC");
        Ringway::run_by(command, directory.path(), &ports)
    };
    let mut ringway = start();
    ringway.assert_logged("\"unknown\", and no port is called that");
    wait_for("the first front-end", || (ringway.state("a")? != "waiting").then_some(()));
    drop(early);
    let options = GuestOptions::default();
    for _ in 0..2 {
        let guest = wait_for("a guest", || AnyUserGuest::attach(&place("a.sock"), &options).ok());
        let why = ringway.refused(&["port", "set", "a", "socket_mode=0660"]);
        assert!(why.contains("a.sock"), "{why}");
        drop(guest);
        ringway.must_end_soon(Duration::from_secs(5));
        assert!(place("a.sock").exists() && place("control.sock").exists());
        assert!(!place("b.sock").exists());
        ringway = start();
    }
}
