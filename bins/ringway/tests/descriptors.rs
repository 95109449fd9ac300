//! No file descriptor left: a front-end that connects waits, without keeping ringway busy, and is
//! served as soon as there is one again.

mod common;

use std::os::unix::net::UnixStream;
use std::thread::sleep;
use std::time::Duration;

use common::{Ringway, wait_for};
use ringway_testkit::{AnyUserGuest, GuestOptions};
use rustix::process::{Resource, Rlimit};

/// Long enough for several attempts.
const WATCHED: Duration = Duration::from_millis(1500);

/// Clock ticks of processor time that are more than a few attempts take: ringway would use a
/// hundred in a second.
const BUSY_TICKS: u64 = 20;

#[test]
fn a_front_end_that_connects_while_no_descriptor_is_left_is_served_later() {
    let directory = tempfile::tempdir().expect("a directory");
    let ringway = Ringway::run(directory.path(), &["--port", "vm0=vm:vm0.sock"]);
    let socket = directory.path().join("vm0.sock");
    let limit = |fds: u64| {
        let limit = Rlimit { current: Some(fds), maximum: ringway.fds_max().maximum };
        rustix::process::prlimit(Some(ringway.pid()), Resource::Nofile, limit).expect("allowed")
    };
    // One that was used for the last question may still be open.
    let before = limit(3);
    let connecting = UnixStream::connect(&socket).expect("it listens");
    let asking = UnixStream::connect(ringway.control()).expect("it listens");
    let ticks = ringway.ticks();
    sleep(WATCHED);
    assert!(ringway.ticks() - ticks < BUSY_TICKS, "busy with nothing");
    let log = ringway.log();
    assert_eq!(log.matches("trying again").count(), 2, "one line for each socket: {log}");
    assert_eq!(log.matches("Too many open files").count(), 2, "{log}");
    let advice = "ringway has all 3 file descriptors that it may have: allow more: LimitNOFILE= in";
    assert_eq!(log.matches(advice).count(), 2, "{log}");
    drop((connecting, asking));
    limit(before.current.expect("a limit"));
    wait_for("a guest", || AnyUserGuest::attach(&socket, &GuestOptions::default()).ok());
    assert_eq!(ringway.names(), ["vm0"]);
}

/// The usual limit of 1,024 is for programs that use select; front-ends together may bring more.
#[test]
fn it_may_have_as_many_descriptors_as_it_is_allowed_to() {
    let directory = tempfile::tempdir().expect("a directory");
    // Ringway starts with the limit of this process.
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let lower = Rlimit { current: Some(256), ..limit };
    rustix::process::setrlimit(Resource::Nofile, lower).expect("allowed");
    let ringway = Ringway::run(directory.path(), &["--port", "vm0=vm:vm0.sock"]);
    let path = format!("/proc/{}/limits", ringway.pid().as_raw_nonzero());
    let limits = std::fs::read_to_string(path).expect("it runs");
    let line = limits.lines().find(|line| line.starts_with("Max open files")).expect("a limit");
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(words[3], words[4], "{line}");
}
