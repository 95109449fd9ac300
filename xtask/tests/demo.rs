//! The demonstration as a newcomer sees it: it works, leaves nothing behind, and works again after
//! it was killed. The guests are two Linux kernels (User Mode Linux); the program of ringway lies
//! beside ours (`cargo test --workspace` builds both).

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// The demonstration promises to end within a minute.
const DEMO_LIMIT: Duration = Duration::from_secs(60);

/// Longest wait for processes to vanish.
const VANISH_LIMIT: Duration = Duration::from_secs(10);

const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Everything that the demonstration creates goes below `directory`.
fn start(directory: &Path, arguments: &[&str]) -> Child {
    let program = env!("CARGO_BIN_EXE_xtask");
    // However the tests were started, Ctrl-C ends it: a shell's background jobs ignore SIGINT.
    Command::new("env")
        .args(["--default-signal=INT", program, "demo", "--built"])
        .args(arguments)
        .env("RINGWAY_BIN", Path::new(program).with_file_name("ringway"))
        .env("TMPDIR", directory)
        .env("CARGO_TARGET_DIR", directory.join("target"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts")
}

fn wait_for(limit: Duration, what: &str, mut look: impl FnMut() -> bool) {
    let deadline = Instant::now() + limit;
    while !look() {
        assert!(Instant::now() < deadline, "{what}: not within {limit:?}");
        thread::sleep(LOOK_EVERY);
    }
}

/// Waits for its end in time; the output is small enough for the pipes.
fn finish(mut child: Child) -> Output {
    wait_for(DEMO_LIMIT, "the end of the demonstration", || {
        child.try_wait().expect("wait").is_some()
    });
    child.wait_with_output().expect("output")
}

/// Command lines of processes that were told a path below `directory`.
fn users_of(directory: &Path) -> Vec<String> {
    let needle = directory.display().to_string();
    let entries = fs::read_dir("/proc").expect("/proc").flatten();
    let lines = entries.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    let lines = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    lines.filter(|line| line.contains(&needle)).collect()
}

/// But for the logs.
fn assert_nothing_is_left(directory: &Path) {
    wait_for(VANISH_LIMIT, "the end of all processes", || users_of(directory).is_empty());
    wait_for(VANISH_LIMIT, "an empty directory", || {
        let mut left = fs::read_dir(directory).expect("directory").flatten();
        left.all(|entry| entry.file_name() == "target")
    });
}

/// Stops a demonstration in the middle of its work: both guests run.
fn interrupt(directory: &Path, signal: Signal) {
    let child = start(directory, &[]);
    wait_for(DEMO_LIMIT, "two guests", || {
        users_of(directory).iter().filter(|line| line.contains("umid=")).count() >= 2
    });
    kill_process(Pid::from_child(&child), signal).expect("kill");
    let output = finish(child);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(signal.as_raw()), "{}: {errors}", output.status);
    assert_nothing_is_left(directory);
}

fn assert_works(directory: &Path) {
    let output = finish(start(directory, &["--json"]));
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{errors}");
    let report: Value = serde_json::from_slice(&output.stdout).expect("json");
    assert!(report["a_to_b_bits_per_second"].as_f64() > Some(1e6), "{report}");
    assert!(report["b_to_a_bits_per_second"].as_f64() > Some(1e6), "{report}");
    assert_eq!(report["round_trip"]["sent"], report["round_trip"]["received"]);
    for port in 0..2 {
        let port = &report["ports"][port];
        assert_eq!(port["state"], "running", "{port}");
        assert!(port["from_guest"]["packets"].as_u64() > Some(200), "{port}");
        assert!(port["features"].as_array().is_some_and(|all| !all.is_empty()), "{port}");
    }
    assert_nothing_is_left(directory);
}

#[test]
fn the_demonstration_works_again_after_ctrl_c_and_after_a_kill() {
    let ringway = Path::new(env!("CARGO_BIN_EXE_xtask")).with_file_name("ringway");
    for (path, advice) in [
        (Path::new("/usr/bin/linux.uml"), "apt-get install user-mode-linux"),
        (&ringway, "cargo build -p ringway"),
    ] {
        if !path.exists() {
            return eprintln!("SKIPPED: no {}: {advice}", path.display());
        }
    }
    let directory = tempfile::tempdir().expect("directory");
    let directory = directory.path();
    interrupt(directory, Signal::INT);
    interrupt(directory, Signal::KILL);
    assert_works(directory);
    assert_works(directory);
}
