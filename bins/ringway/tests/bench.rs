//! `ringway bench` becomes `ringway-bench`: found beside it or in `PATH`, with all that was typed.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;

/// A program that says how it was called.
const SCRIPT: &str = "#!/bin/sh\ncat; echo \"$RINGWAY_BIN|$*\"; echo error >&2; exit 7\n";

/// A copy of `ringway` in a directory of its own.
fn ringway_alone() -> TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    let program = env!("CARGO_BIN_EXE_ringway");
    let copy = directory.path().join("ringway");
    // Its executable is the file, not the link: a hard link or a copy is needed.
    fs::hard_link(program, &copy).or_else(|_| fs::copy(program, &copy).map(|_| ())).expect("copy");
    directory
}

fn write_script(directory: &Path) {
    let script = directory.join("ringway-bench");
    fs::write(&script, SCRIPT).expect("written");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("executable");
}

fn bench(directory: &Path) -> Command {
    let mut command = Command::new(directory.join("ringway"));
    command.arg("bench").env_remove("RINGWAY_BIN").stdin(Stdio::null());
    command
}

#[test]
fn all_that_was_typed_and_the_exit_status_are_passed() {
    let directory = ringway_alone();
    write_script(directory.path());
    let ringway = directory.path().join("ringway").canonicalize().expect("it is there");
    for words in [&["--help"][..], &[], &["ring", "--sizes", "64", "-x", "--", "--json"]] {
        let output = bench(directory.path()).args(words).output().expect("ringway starts");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(said, format!("{}|{}\n", ringway.display(), words.join(" ")));
        assert_eq!((output.status.code(), &output.stderr[..]), (Some(7), &b"error\n"[..]));
    }
}

#[test]
fn it_is_found_in_path_too_and_measures_what_ringway_bin_names() {
    let (directory, elsewhere) = (ringway_alone(), tempfile::tempdir().expect("a directory"));
    write_script(elsewhere.path());
    symlink("/bin/cat", elsewhere.path().join("cat")).expect("a link");
    let mut command = bench(directory.path());
    command.env("PATH", elsewhere.path()).env("RINGWAY_BIN", "another").arg("scale");
    let output = command.output().expect("ringway starts");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "another|scale\n");
}

#[test]
fn where_it_is_missing_that_is_said_with_what_to_do() {
    let directory = ringway_alone();
    for (words, is_json) in [(&["ring"][..], false), (&["ring", "--json"], true)] {
        let mut command = bench(directory.path());
        let output = command.args(words).env("PATH", "/nowhere").output().expect("ringway starts");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        let looked_for = directory.path().join("ringway-bench").display().to_string();
        for part in [&looked_for, "PATH", "cargo build --release -p ringway-bench", "package"] {
            assert!(said.contains(part), "{part}: {said}");
        }
        assert_eq!(said.starts_with('{'), is_json, "{said}");
    }
}
