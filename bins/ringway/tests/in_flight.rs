//! The kernel lets each user have so many file descriptors in flight, in messages that were sent
//! and not received. Where others of ringway's user have used them up, a front-end that brings some
//! waits, and no other.

mod common;

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;

use common::{Ringway, wait_for};
use ringway_testkit::{AnyUserGuest, GuestOptions, Traffic};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::{Resource, Rlimit, Signal, kill_process, prlimit};

/// Most descriptors of a message.
const MESSAGE_FDS_MAX: usize = 253;

/// Longer than a data plane may take to answer.
const ANSWERED_WITHIN: Duration = Duration::from_millis(5500);

/// Sends so many copies of one descriptor without waiting; `false`: there is no room for more.
fn send_fds(socket: &UnixStream, bytes: &[u8], count: usize) -> bool {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MESSAGE_FDS_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let fds = vec![socket.as_fd(); count];
    assert!(ancillary.push(SendAncillaryMessage::ScmRights(&fds)));
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, flags).is_ok()
}

fn allow_descriptors(ringway: &Ringway, count: u64) {
    let limit = Rlimit { current: Some(count), maximum: Some(count) };
    prlimit(Some(ringway.pid()), Resource::Nofile, limit).expect("ours");
}

fn attach(directory: &Path, name: &str) -> Option<AnyUserGuest> {
    AnyUserGuest::attach(&directory.join(name), &GuestOptions::default()).ok()
}

fn good_pair(directory: &Path) -> ([AnyUserGuest; 2], Traffic) {
    let mut guests =
        ["a.sock", "b.sock"].map(|name| wait_for("a guest", || attach(directory, name)));
    let mut traffic = Traffic::new(guests.each_ref().map(AnyUserGuest::mac), 1, 1514);
    traffic.settle(&mut guests).expect("they hear each other");
    (guests, traffic)
}

fn kill_data_plane(ringway: &Ringway) {
    let before = ringway.data_plane();
    kill_process(before, Signal::KILL).expect("it runs");
    wait_for("the next one", || ringway.log().contains("a new data plane serves").then_some(()));
}

#[test]
fn only_a_new_front_end_waits_while_too_many_descriptors_are_in_flight() {
    let directory = tempfile::tempdir().expect("a directory");
    let ports = ["a=vm:a.sock", "b=vm:b.sock", "c=vm:c.sock"].map(|port| ["--port", port]);
    let ringway = Ringway::run(directory.path(), ports.as_flattened());
    allow_descriptors(&ringway, 1024);
    let (mut guests, mut traffic) = good_pair(directory.path());
    let (sender, receiver) = UnixStream::pair().expect("sockets");
    let sent = (0..5).filter(|_| send_fds(&sender, &[0], 240)).count();
    assert_eq!(sent, 5, "1,200 of them");
    std::thread::scope(|scope| {
        let newcomer = scope.spawn(|| wait_for("c", || attach(directory.path(), "c.sock")));
        ringway.assert_logged("more than 1024 file descriptors in flight");
        let pid = ringway.data_plane();
        let begun = std::time::Instant::now();
        while begun.elapsed() < ANSWERED_WITHIN {
            traffic.exchange(&mut guests, 10).expect("undisturbed");
            sleep(Duration::from_millis(10));
        }
        assert_eq!(ringway.data_plane(), pid, "{}", ringway.log());
        // The request that waits would be lost between two data planes.
        let complaint = ringway.refused(&["upgrade"]);
        assert!(complaint.contains("not ready within"), "{complaint}");
        kill_data_plane(&ringway);
        traffic.settle(&mut guests).expect("they go on");
        assert_ne!(ringway.state("c").as_deref(), Some("running"));
        // Those of other tests are in flight as well: others may have waited for a moment.
        let log = ringway.log();
        let said = log.lines().filter(|it| it.contains("in flight") && it.ends_with("port=\"c\""));
        assert_eq!(said.count(), 1, "one request: {log}");
        drop((sender, receiver));
        newcomer.join().expect("c is served");
    });
    assert_eq!(ringway.log().matches("the data plane ended").count(), 1, "{}", ringway.log());
}

/// Descriptors that ringway has not received count as in flight; those it has received take its
/// descriptors.
fn be_hostile(socket: &Path, is_over: &AtomicBool) {
    let get_features = [1u32, 1, 0].map(u32::to_le_bytes).concat();
    while !is_over.load(Ordering::Relaxed) {
        let Ok(connection) = UnixStream::connect(socket) else { continue };
        for count in [1, 16, 32, 64, MESSAGE_FDS_MAX, MESSAGE_FDS_MAX, MESSAGE_FDS_MAX] {
            send_fds(&connection, &get_features, count);
        }
        sleep(Duration::from_millis(20));
    }
}

#[test]
fn hostile_front_ends_that_send_many_descriptors_do_not_hinder_the_next_data_plane() {
    let directory = tempfile::tempdir().expect("a directory");
    let names = ["a", "b", "c", "d", "e"].map(|name| format!("{name}=vm:{name}.sock"));
    let ports: Vec<&str> = names.iter().flat_map(|port| ["--port", port]).collect();
    let ringway = Ringway::run(directory.path(), &ports);
    allow_descriptors(&ringway, 256);
    let (mut guests, mut traffic) = good_pair(directory.path());
    // A message sent to a listener before it accepts stays in flight whatever happens.
    let waiting: Vec<UnixStream> = (0..8)
        .filter_map(|_| UnixStream::connect(directory.path().join("a.sock")).ok())
        .inspect(|socket| _ = send_fds(socket, &[0], MESSAGE_FDS_MAX))
        .collect();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for name in ["c.sock", "d.sock", "e.sock"] {
            let (socket, is_over) = (directory.path().join(name), &is_over);
            scope.spawn(move || be_hostile(&socket, is_over));
        }
        sleep(Duration::from_millis(200));
        kill_data_plane(&ringway);
        let went_on = traffic.settle(&mut guests);
        is_over.store(true, Ordering::Relaxed);
        went_on.expect("the good pair goes on");
    });
    drop(waiting);
    assert_eq!(ringway.log().matches("the data plane ended").count(), 1, "{}", ringway.log());
}
