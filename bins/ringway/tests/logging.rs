//! Logging ends nothing and holds nothing up, wherever standard error goes: to a full disk, to a
//! pipe without a reader, to a pipe whose reader is stuck.

mod common;

use std::fs::File;
use std::io::{PipeReader, Read, Write};
use std::process::Stdio;
use std::time::Duration;

use common::{Ringway, wait_for};
use ringway_testkit::{AnyUserGuest, GuestOptions};

/// Longest time from SIGTERM to the end: a log that takes no more is waited for, but not for long.
const END_MAX: Duration = Duration::from_secs(3);

/// Guests come and go, ports are added and removed, and it stops when it is told to.
fn serves_and_stops(log: impl Into<Stdio>) {
    let directory = tempfile::tempdir().expect("a directory");
    let mut ringway = Ringway::run_logging_to(log, directory.path(), &["--port", "a=vm:a.sock"]);
    for _ in 0..3 {
        let socket = directory.path().join("a.sock");
        let attach = || AnyUserGuest::attach(&socket, &GuestOptions::default()).ok();
        drop(wait_for("a guest", attach));
        ringway.told(&["port", "add", "b=vm:b.sock"]);
        ringway.told(&["port", "remove", "b"]);
    }
    ringway.must_end_soon(END_MAX);
}

#[test]
fn a_full_disk_ends_nothing() {
    serves_and_stops(File::options().write(true).open("/dev/full").expect("a full disk"));
}

#[test]
fn a_log_reader_that_has_gone_ends_nothing() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    serves_and_stops(writer);
}

#[test]
fn a_log_reader_that_is_stuck_holds_nothing_up() {
    let (_reader, writer) = full_pipe();
    serves_and_stops(writer);
}

#[test]
fn a_log_reader_that_goes_on_gets_what_waited() {
    let directory = tempfile::tempdir().expect("a directory");
    let (mut reader, writer) = full_pipe();
    let mut ringway = Ringway::run_logging_to(writer, directory.path(), &["--port", "a=vm:a.sock"]);
    let log = std::thread::spawn(move || {
        let mut log = Vec::new();
        reader.read_to_end(&mut log).expect("a pipe");
        log
    });
    ringway.must_end_soon(END_MAX);
    let log = log.join().expect("no panic");
    let log = String::from_utf8_lossy(&log);
    for line in ["open: ", "stopping"] {
        assert!(log.contains(line), "{line}: {}", log.trim_start_matches('.'));
    }
}

/// A pipe that takes nothing until it is read.
fn full_pipe() -> (PipeReader, impl Into<Stdio>) {
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    let len = rustix::pipe::fcntl_setpipe_size(&writer, 4096).expect("a smaller pipe");
    writer.write_all(&vec![b'.'; len]).expect("it is empty");
    (reader, writer)
}
