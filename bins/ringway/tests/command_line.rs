//! The errors of a command line that is wrong, compared with committed text.
//!
//! Each case of `tests/golden/*_errors.txt` is a command line after `$`, run where the files of
//! `tests/golden/config` are, and below it what goes to standard error. After an intended change
//! run with `RINGWAY_GOLDEN=accept` and read the diff.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// A wrong command line is rejected at once; this bounds one that is taken by mistake.
const LIMIT: Duration = Duration::from_secs(10);

fn ringway(arguments: &[&str]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_ringway"))
        .args(arguments)
        .current_dir(golden_directory().join("config"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let deadline = Instant::now() + LIMIT;
    while child.try_wait().expect("wait").is_none() {
        if Instant::now() > deadline {
            child.kill().expect("kill");
        }
        thread::sleep(Duration::from_millis(2));
    }
    child.wait_with_output().expect("output")
}

/// Runs each command line of a golden file and compares what it complains about.
fn compare_with(golden: &str, cases_min: usize) {
    let path = golden_directory().join(golden);
    let golden = fs::read_to_string(&path).expect("golden file");
    let mut now = String::new();
    let mut cases = 0;
    for line in golden.lines().filter(|line| line.starts_with("$ ")) {
        let words: Vec<&str> = line.split(' ').skip(2).collect();
        let output = ringway(&words);
        assert_eq!(output.status.code(), Some(2), "{line}");
        assert!(output.stdout.is_empty(), "{line}");
        let _ = writeln!(now, "{line}\n{}", String::from_utf8_lossy(&output.stderr));
        cases += 1;
    }
    assert!(cases >= cases_min, "{cases} cases");
    if std::env::var_os("RINGWAY_GOLDEN").is_some_and(|value| value == "accept") {
        return fs::write(&path, &now).expect("golden file");
    }
    assert!(now == golden, "not as in {}:\n{now}", path.display());
}

fn golden_directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

#[test]
fn wrong_ports_are_told_in_one_line_each() {
    compare_with("port_errors.txt", 20);
}

#[test]
fn mistakes_in_files_are_told_with_their_line_and_what_to_do() {
    compare_with("config_errors.txt", 8);
}

#[test]
fn a_good_file_is_fine_and_shown_as_what_it_means() {
    let output = ringway(&["check-config", "good.toml"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "good.toml: fine, 3 ports\n");
    let output = ringway(&["check-config", "good.toml", "--json"]);
    let shown: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let right = serde_json::json!({
        "ringway": {
            "control": "/run/ringway-test.sock", "control_mode": "0660", "control_group": null,
            "snoop_multicast": false,
        },
        "ports": [
            {
                "name": "vm0", "vm": "/run/vm0.sock", "mac": "52:54:00:12:34:56",
                "packed": false,
            },
            { "name": "vm1", "vm-connect": "/run/vm1.sock", "link": "down" },
            { "name": "up", "tap": "tap0", "mtu": 9000 },
        ],
    });
    assert_eq!(shown, right);
}

#[test]
fn every_key_is_documented() {
    let output = ringway(&["check-config", "--keys"]);
    assert!(output.status.success());
    let tables = String::from_utf8_lossy(&output.stdout).into_owned();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    let document = fs::read_to_string(&path).expect("the documentation");
    let (before, rest) = document.split_once("-->\n\n").expect("the mark before the tables");
    if std::env::var_os("RINGWAY_GOLDEN").is_some_and(|value| value == "accept") {
        let accepted = format!("{before}-->\n\n{tables}");
        return fs::write(&path, accepted).expect("the documentation");
    }
    assert!(rest == tables, "not as in {}:\n{tables}", path.display());
}

#[test]
fn help_and_version_succeed_and_name_the_commands() {
    for arguments in [&["help"][..], &["--help"], &["run", "--help"]] {
        let output = ringway(arguments);
        assert!(output.status.success());
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains("Usage"), "{text}");
        for hidden in ["data-plane", "take-over"] {
            assert!(!text.contains(hidden), "{hidden} is not shown: {text}");
        }
    }
    let all = ringway(&["help"]);
    let text = String::from_utf8_lossy(&all.stdout).into_owned();
    let commands =
        ["run", "check-config", "stats", "port", "fdb", "why", "capture", "trace", "reload", "log"];
    for command in commands.iter().chain(&["attach", "demo", "help"]) {
        assert!(text.contains(&format!("\n  {command} ")), "{command} in {text}");
    }
    let version = ringway(&["--version"]);
    assert!(version.stdout.starts_with(concat!("ringway ", env!("CARGO_PKG_VERSION")).as_bytes()));
}

#[test]
fn the_demonstration_is_said_to_be_in_the_source_tree() {
    let output = ringway(&["demo"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && text.ends_with("\n\n  ./x demo\n"), "{text}");
}

#[test]
fn without_a_command_there_is_help_and_a_failure() {
    let output = ringway(&[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("Usage"));
}

#[test]
fn statistics_without_a_daemon_are_an_error_that_says_what_to_do() {
    let directory = tempfile::tempdir().expect("directory");
    let socket = directory.path().join("none.sock");
    let shown = socket.display().to_string();
    let output = ringway(&["stats", "--control", &shown]);
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty());
    let expected = format!(
        "{shown}: no ringway is listening here: start one with: ringway run --control {shown} …\n"
    );
    assert_eq!(String::from_utf8_lossy(&output.stderr), expected);
}

#[test]
fn a_processor_that_is_not_there_is_an_error_and_leaves_nothing_behind() {
    let directory = std::env::temp_dir().join(format!("ringway-pin-{}", std::process::id()));
    fs::create_dir(&directory).expect("a directory");
    let control = directory.join("control.sock");
    let port = format!("a=vm:{}", directory.join("a.sock").display());
    let output = ringway(&[
        "run",
        "--control",
        control.to_str().expect("UTF-8"),
        "--port",
        &port,
        "--pin",
        "1023",
    ]);
    let left = fs::read_dir(&directory).expect("the directory").count();
    fs::remove_dir_all(&directory).expect("the directory");
    let text = String::from_utf8_lossy(&output.stderr);
    let why = "pin: processor 1023 does not exist, or this process may not use it: ";
    assert!(text.contains(why), "{text}");
    assert_eq!((output.status.code(), left), (Some(1), 0), "{text}");
}

#[test]
fn a_port_of_the_command_line_that_cannot_be_opened_ends_the_start() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name).display().to_string();
    let (a, b) = (format!("a=vm:{}", path("a.sock")), format!("b=vm:{}", path("none/b.sock")));
    let words = ["run", "--control", &path("c.sock"), "--port", &a, "--port", &b];
    let output = ringway(&[&words[..], &["--quiet"]].concat());
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("1 port could not be opened (--keep-going serves"), "{text}");
    assert!(text.contains("ERROR") && !text.contains("INFO"), "{text}");
    let output = ringway(&[&words[..], &["--log-format", "json"]].concat());
    let text = String::from_utf8_lossy(&output.stderr);
    let last =
        text.lines().last().and_then(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let last = last.unwrap_or_default();
    assert_eq!(last["level"], "ERROR", "{text}");
    assert_eq!(
        last["message"],
        "ringway could not start: 1 port could not be opened (--keep-going serves the others)",
        "{text}"
    );
    let left = fs::read_dir(directory.path()).expect("the directory").count();
    assert_eq!(left, 0, "sockets");
}

#[test]
fn a_level_of_the_log_that_does_not_exist_is_an_error() {
    let directory = tempfile::tempdir().expect("directory");
    let output = Command::new(env!("CARGO_BIN_EXE_ringway"))
        .args(["run", "--control", "c.sock", "--port", "a=vm:a.sock"])
        .current_dir(directory.path())
        .env("RINGWAY_LOG", "bogus")
        .output()
        .expect("it ends");
    let right = "RINGWAY_LOG=bogus: \"bogus\" is not a level: write one of off error warn info \
                 debug trace\n";
    assert_eq!(String::from_utf8_lossy(&output.stderr), right);
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn a_descriptor_that_is_not_open_is_told_once() {
    let directory = tempfile::tempdir().expect("directory");
    let control = directory.path().join("c.sock").display().to_string();
    let output = ringway(&["run", "--control", &control, "--port", "a=tap-fd:77"]);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(text.matches("Bad file descriptor").count(), 1, "{text}");
}

#[test]
fn errors_of_json_commands_are_one_line_of_json() {
    let cases: [(&[&str], i32, usize); 4] = [
        (&["stats", "--json", "--control", "/nonexistent/ringway.sock"], 1, 1),
        (&["check-config", "unknown.toml", "--json"], 2, 7),
        (&["port", "add", "vm0=vn:a.sock", "--json"], 2, 1),
        (&["attach", "vm0", "--json", "--color"], 2, 1),
    ];
    for (words, status, count) in cases {
        let output = ringway(words);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), text.lines().count()), (Some(status), 1), "{text}");
        assert!(output.stdout.is_empty(), "{words:?}");
        let error: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(error["ok"], false, "{text}");
        assert_eq!(error["errors"].as_array().map(Vec::len), Some(count), "{text}");
    }
}

#[test]
fn no_line_of_any_help_is_longer_than_100_columns() {
    let commands: [&[&str]; 11] = [
        &[],
        &["run"],
        &["check-config"],
        &["stats"],
        &["attach"],
        &["demo"],
        &["port"],
        &["port", "add"],
        &["port", "set"],
        &["port", "list"],
        &["port", "remove"],
    ];
    for command in commands {
        for help in ["-h", "--help"] {
            let output = ringway(&[command, &[help]].concat());
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let long: Vec<&str> = text.lines().filter(|line| line.chars().count() > 100).collect();
            assert!(output.status.success() && long.is_empty(), "{command:?} {help}: {long:#?}");
        }
    }
}

/// Some of which libraries print.
#[test]
fn output_that_is_not_taken_is_told_and_a_reader_that_has_enough_is_not() {
    let run = |words: &[&str], stdout: Stdio, stderr: Stdio| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ringway"));
        command.args(words).current_dir(golden_directory().join("config"));
        command.stdout(stdout).stderr(stderr).output().expect("the binary starts")
    };
    let full = || Stdio::from(fs::File::create("/dev/full").expect("a full disk"));
    for words in [
        &["help"][..],
        &["--version"],
        &["run", "--help"],
        &["completions", "bash"],
        &["check-config", "good.toml"],
        &["vhost-user-net", "--print-capabilities"],
    ] {
        let output = run(words, full(), Stdio::piped());
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {told}");
        assert!(told.starts_with("standard output: No space left"), "{words:?}: {told}");
        let (_, closed) = std::io::pipe().expect("a pipe");
        let output = run(words, closed.into(), Stdio::piped());
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), &*told), (Some(0), ""), "{words:?}");
    }
    for (words, status) in [(&["run", "--port", "?"][..], 2), (&["port", "list", "--json"], 1)] {
        let words = [words, &["--control", "/nonexistent"]].concat();
        assert_eq!(run(&words, Stdio::null(), full()).status.code(), Some(status), "{words:?}");
    }
}
