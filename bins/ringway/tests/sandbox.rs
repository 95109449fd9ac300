//! The data plane's sandbox: what it must not do, it cannot.

mod common;

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};

use common::{Ringway, wait_for};
use serde_json::Value;

/// A bad system call (Linux's number on all machines that this builds for).
const SIGSYS: i32 = 31;

fn attempt(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringway"));
    command.args(["data-plane", "--try"]).args(arguments).output().expect("ringway runs")
}

#[test]
fn what_is_forbidden_ends_the_data_plane() {
    let alone = ["fork", "signals", "async", "truncate", "memfd"];
    let others = ["stat", "statx", "readlink", "remap", "affinity", "socket-mptcp"];
    let outside = ["open", "socket", "execve", "ptrace", "kill"];
    for what in outside.into_iter().chain(alone).chain(others) {
        let output = attempt(&[what]);
        assert_eq!(output.status.signal(), Some(SIGSYS), "{what}: {output:?}");
    }
}

/// Where a filter of system calls had a hole, files and processes would still be out of reach.
#[test]
fn files_and_processes_are_out_of_reach_without_the_filter_too() {
    let directory = tempfile::tempdir().expect("a directory");
    let ringway = Ringway::run(directory.path(), &["--port", "a=vm:a.sock", "--sandbox", "on"]);
    let stats: Value = serde_json::from_str(&ringway.told(&["stats", "--json"])).expect("JSON");
    let sandbox = stats["data_plane"]["sandbox"].as_str().expect("a text").to_owned();
    assert!(sandbox.starts_with("no capabilities, seccomp, "), "{sandbox}");
    if !sandbox.contains("seccomp, landlock") || sandbox.contains("in part") {
        return println!("skipped: this kernel has less: {sandbox}");
    }
    let gone = "No such file";
    let mut refused = vec![("kill", "not permitted")];
    match sandbox.contains("an empty root") {
        true => refused.extend(["open", "stat", "statx", "readlink"].map(|what| (what, gone))),
        false => refused.push(("open", "Permission denied")),
    }
    for (what, why) in refused {
        let output = attempt(&[what, "--unfiltered"]);
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && text.contains(why), "{what}: {text}");
    }
}

/// A C library that needs another call shall not have to be searched for with a debugger.
#[test]
fn a_forbidden_call_is_named_in_the_log_and_in_statistics() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringway"));
    command.env("RINGWAY_DATA_PLANE_TRIES", "socket");
    let ports = ["--port", "a=vm:a.sock", "--sandbox", "on"];
    let ringway = Ringway::run_by(command, directory.path(), &ports);
    let forbidden = wait_for("the name of the call", || {
        let stats: Value = serde_json::from_str(&ringway.told(&["stats", "--json"])).ok()?;
        stats["data_plane"]["forbidden_call"].as_str().map(str::to_owned)
    });
    assert!(forbidden.ends_with(" (socket)"), "{forbidden}");
    let log = format!("SIGSYS (31): the sandbox forbids system call {forbidden}");
    ringway.assert_logged(&log);
    let shown = ringway.told(&["stats"]);
    assert!(shown.contains(&format!("forbidden system call {forbidden}")), "{shown}");
}

/// The C library asks the system before it gives back what is free, unless it is told not to.
#[test]
fn to_free_the_memory_of_a_thread_is_not_forbidden() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringway"));
    command.env("RINGWAY_DATA_PLANE_TRIES", "free");
    let ports = ["--port", "a=vm:a.sock", "--sandbox", "on"];
    let ringway = Ringway::run_by(command, directory.path(), &ports);
    ringway.assert_logged("tried Free: Ok");
    assert!(!ringway.log().contains("the data plane ended"), "{}", ringway.log());
}

/// In whatever thread it is: by a signal, so that what was being served is blamed.
#[test]
fn a_panic_ends_the_data_plane_as_a_fault() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringway"));
    command.env("RINGWAY_DATA_PLANE_TRIES", "panic").env("RUST_BACKTRACE", "1");
    let ports = ["--port", "a=vm:a.sock", "--sandbox", "on"];
    let ringway = Ringway::run_by(command, directory.path(), &ports);
    ringway.assert_logged("panicked at ");
    ringway.assert_logged("the data plane ended: SIGABRT (6): a new one");
    assert!(!ringway.log().contains("SIGSYS"), "{}", ringway.log());
}

#[test]
fn statistics_say_that_there_is_no_sandbox() {
    let directory = tempfile::tempdir().expect("a directory");
    let ringway = Ringway::run(directory.path(), &["--port", "a=vm:a.sock", "--sandbox", "off"]);
    let stats: Value = serde_json::from_str(&ringway.told(&["stats", "--json"])).expect("JSON");
    assert_eq!(stats["data_plane"]["sandbox"], "off");
    let path = format!("/proc/{}/status", ringway.data_plane().as_raw_nonzero());
    let status = fs::read_to_string(path).expect("it runs");
    assert!(status.contains("Seccomp:\t0"), "{status}");
}

const PORT: [&str; 2] = ["--port", "a=vm:a.sock"];

/// A line of `/proc/PID/FILE`, behind that key.
fn said(pid: rustix::process::Pid, file: &str, key: &str) -> String {
    let text = fs::read_to_string(format!("/proc/{}/{file}", pid.as_raw_nonzero()));
    let text = text.expect("it runs");
    let line = text.lines().find_map(|line| line.strip_prefix(key)).expect("that key");
    line.trim_start_matches(':').trim().to_owned()
}

fn number(text: &str, radix: u32) -> u64 {
    u64::from_str_radix(text, radix).expect("a number")
}

/// Where users may make namespaces, also without root.
#[test]
fn the_data_plane_has_an_empty_root_and_no_network_unless_it_has_a_router() {
    let tried = Command::new("unshare").args(["--user", "--mount", "--net", "true"]).status();
    if !tried.is_ok_and(|status| status.success()) {
        return println!("skipped: no namespaces here");
    }
    let own = |pid: rustix::process::Pid, kind: &str| {
        fs::read_link(format!("/proc/{}/ns/{kind}", pid.as_raw_nonzero())).expect("it runs")
    };
    for (port, has_network) in [("a=vm:a.sock", false), ("a=nat:", true)] {
        let directory = tempfile::tempdir().expect("a directory");
        let ringway = Ringway::run(directory.path(), &["--port", port, "--sandbox", "on"]);
        let (supervisor, plane) = (ringway.pid(), ringway.data_plane());
        let root = format!("/proc/{}/root", plane.as_raw_nonzero());
        if rustix::process::geteuid().is_root() {
            assert_eq!(fs::read_dir(root).expect("it runs").count(), 0);
            assert_ne!(own(supervisor, "mnt"), own(plane, "mnt"));
            assert_eq!(own(supervisor, "net") == own(plane, "net"), has_network, "{port}");
        }
        let stats: Value = serde_json::from_str(&ringway.told(&["stats", "--json"])).expect("JSON");
        let sandbox = stats["data_plane"]["sandbox"].as_str().expect("a text");
        assert!(sandbox.contains(", an empty root"), "{sandbox}");
    }
}

/// No program that it could start would have any either.
#[test]
fn the_data_plane_can_gain_no_capability() {
    let own = said(rustix::process::getpid(), "status", "CapEff");
    if !rustix::process::geteuid().is_root() || number(&own, 16) >> 8 & 1 == 0 {
        return println!("skipped: only root may make the bounding set smaller");
    }
    let directory = tempfile::tempdir().expect("a directory");
    let ringway = Ringway::run(directory.path(), &PORT);
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert_eq!(number(&said(ringway.data_plane(), "status", set), 16), 0, "{set}");
    }
}

/// It is of no use to ringway, and may be of use to a guest that has taken it over.
#[test]
fn what_else_it_was_started_with_is_closed() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut command = Command::new("sh");
    command.args(["-c", "exec 3</etc/passwd 9</etc/passwd; exec \"$0\" \"$@\""]);
    command.arg(env!("CARGO_BIN_EXE_ringway"));
    let ringway = Ringway::run_by(command, directory.path(), &PORT);
    for pid in [ringway.pid(), ringway.data_plane()] {
        let fds = fs::read_dir(format!("/proc/{}/fd", pid.as_raw_nonzero())).expect("it runs");
        let leads_to = |fd: fs::DirEntry| fd.path().read_link().unwrap_or_default();
        let found = fds.map(|fd| leads_to(fd.expect("an fd"))).collect::<Vec<_>>();
        assert!(!found.iter().any(|path| path.ends_with("passwd")), "{found:?}");
    }
}

/// Neither process can overwrite what the other one has said: a file is only added to, which a data
/// plane cannot change (`--try async`), nor can it make the file shorter (`--try truncate`).
#[test]
fn the_log_is_only_added_to() {
    const O_APPEND: u64 = 0o2000;
    let directory = tempfile::tempdir().expect("a directory");
    let ringway = Ringway::run(directory.path(), &PORT);
    let flags = said(ringway.data_plane(), "fdinfo/2", "flags");
    assert_ne!(number(&flags, 8) & O_APPEND, 0, "{flags}");
}

#[test]
fn the_kernel_ends_the_data_plane_before_the_supervisor() {
    let directory = tempfile::tempdir().expect("a directory");
    let ringway = Ringway::run(directory.path(), &PORT);
    let score = |pid| said(pid, "oom_score_adj", "").parse::<i32>().expect("a number");
    let own = score(rustix::process::getpid());
    assert_eq!(score(ringway.pid()), own);
    assert_eq!(score(ringway.data_plane()), own.max(500));
}

/// Nothing that has the journal of a data plane that has ended can have the next one ended.
#[test]
fn the_next_data_plane_has_a_journal_of_its_own() {
    use std::os::unix::fs::{FileExt, MetadataExt};
    const OWNER_AT: u64 = 64;
    const OWNER_DIED: u32 = 0x4000_0000;
    let directory = tempfile::tempdir().expect("a directory");
    let ringway = Ringway::run(directory.path(), &PORT);
    let (old, first) = (ringway.journal(), ringway.data_plane());
    rustix::process::kill_process(first, rustix::process::Signal::KILL).expect("it runs");
    let deaths = || {
        let stats: Value = serde_json::from_str(&ringway.told(&["stats", "--json"])).ok()?;
        let plane = &stats["data_plane"];
        Some((plane["deaths"].as_u64()?, plane["pid"].as_u64()?))
    };
    let first = u64::from(first.as_raw_nonzero().get().unsigned_abs());
    let next = wait_for("the next one", || deaths().filter(|(_, pid)| *pid != first));
    let ino = |file: &fs::File| file.metadata().expect("a file").ino();
    assert_ne!(ino(&old), ino(&ringway.journal()));
    old.write_all_at(&OWNER_DIED.to_le_bytes(), OWNER_AT).expect("room");
    // Many times as long as it takes to notice the end of a worker.
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert_eq!(deaths(), Some(next));
}

/// Rings are made, and measured, before the system calls for that are given up.
#[test]
fn taps_are_read_and_written_by_io_uring_in_the_sandbox_too() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("ringway.toml");
    let write = |calls: &str| {
        let settings = format!("[ringway]\ntap_writes = \"{calls}\"\ntap_reads = \"{calls}\"\n");
        fs::write(&file, format!("{settings}[port.up]\ntap = \"rwt0\"\n")).expect("ours");
    };
    write("plain");
    let arguments = ["--config", "ringway.toml", "--sandbox", "on"];
    let Some(ringway) = Ringway::run_in_namespace(directory.path(), &arguments) else {
        return println!("skipped: no network namespace or no /dev/net/tun here");
    };
    let pid = ringway.data_plane();
    for calls in ["auto", "io_uring"] {
        write(calls);
        ringway.reload();
        ringway.told(&["port", "set", "up", "link=down"]);
        ringway.told(&["port", "add", "second=tap:rwt1"]);
        ringway.told(&["port", "remove", "second"]);
        assert_eq!(ringway.data_plane(), pid, "{calls}: {}", ringway.log());
    }
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("it runs");
    wait_for("the next one", || (ringway.state("up")? == "running").then_some(()));
    assert_eq!(ringway.log().matches("the data plane ended").count(), 1, "{}", ringway.log());
}
