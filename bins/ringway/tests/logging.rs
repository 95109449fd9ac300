//! Logging ends nothing and holds nothing up, wherever standard error goes: to a full disk, to a
//! pipe without a reader, to a pipe whose reader is stuck. Both processes, and those that follow
//! them, write the lines that were asked for.

mod common;

use std::fs::File;
use std::io::{PipeReader, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{Ringway, wait_for};
use ringway_testkit::{AnyUserGuest, GuestOptions};
use serde_json::Value;

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

/// Of one of its ports nothing can come.
const PORTS: [&str; 5] = ["--keep-going", "--port", "a=vm:a.sock", "--port", "b=vm:none/b.sock"];

/// The log of one whose program was replaced, and to which a guest came then.
fn replaced_and_stopped(mut ringway: Ringway, directory: &Path) -> String {
    ringway.told(&["log", "debug"]);
    ringway.told(&["upgrade"]);
    assert_eq!(ringway.told(&["log", "debug"]), "log: debug → debug\n", "an upgrade leaves it");
    let socket = directory.join("a.sock");
    wait_for("a guest", || AnyUserGuest::attach(&socket, &GuestOptions::default()).ok());
    ringway.must_end_soon(END_MAX);
    ringway.log()
}

#[test]
fn each_line_of_json_says_when_what_happened_and_how_grave_it_is() {
    let directory = tempfile::tempdir().expect("a directory");
    let words = [&PORTS[..], &["--log-format", "json"]].concat();
    let log = replaced_and_stopped(Ringway::run(directory.path(), &words), directory.path());
    let is_told = |line: &str, port: &str, level: &str| {
        let line: Value = serde_json::from_str(line).unwrap_or_else(|why| panic!("{why}: {line}"));
        for key in ["timestamp", "level", "message"] {
            assert!(line[key].is_string(), "{key}: {line}");
        }
        line["port"] == port && line["level"] == level
    };
    for (port, level) in [("a", "INFO"), ("a", "DEBUG"), ("b", "ERROR")] {
        let count = log.lines().filter(|line| is_told(line, port, level)).count();
        assert!(count > 0, "{port} {level}: {log}");
    }
}

#[test]
fn the_journal_gets_priorities_and_no_times() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut leads_there = Command::new("sh");
    let script = "JOURNAL_STREAM=$(stat -Lc %d:%i /proc/self/fd/2) exec \"$0\" \"$@\"";
    leads_there.args(["-c", script, env!("CARGO_BIN_EXE_ringway")]);
    let ringway = Ringway::run_by(leads_there, directory.path(), &PORTS);
    let log = replaced_and_stopped(ringway, directory.path());
    for line in log.lines() {
        let text = line.strip_prefix(['<']).and_then(|line| line.split_once('>'));
        let (priority, text) = text.unwrap_or_else(|| panic!("{line}"));
        assert!(["3", "4", "6", "7"].contains(&priority), "{line}");
        assert!(!text.starts_with([' ', '2']), "no time: {line}");
    }
    for part in ["<6>ready", "<3>", "<7>"] {
        assert!(log.lines().any(|line| line.starts_with(part)), "{part}: {log}");
    }
}

/// A pipe that takes nothing until it is read.
fn full_pipe() -> (PipeReader, impl Into<Stdio>) {
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    let len = rustix::pipe::fcntl_setpipe_size(&writer, 4096).expect("a smaller pipe");
    writer.write_all(&vec![b'.'; len]).expect("it is empty");
    (reader, writer)
}
