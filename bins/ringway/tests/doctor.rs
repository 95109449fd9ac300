//! `ringway doctor` says before what `ringway run` would say.

mod common;

use std::path::Path;
use std::process::{Command, Output};

use common::Ringway;

fn doctor(directory: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringway"));
    command.arg("doctor").args(words).current_dir(directory).output().expect("it starts")
}

/// Whether the doctor thinks that this file would run, and what it says.
fn verdict(directory: &Path, ports: &str) -> (bool, String) {
    let text = format!("[ringway]\ncontrol = \"control.sock\"\n{ports}");
    std::fs::write(directory.join("ringway.toml"), text).expect("written");
    let output = doctor(directory, &["--config", "ringway.toml"]);
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&said).into_owned())
}

#[test]
fn a_machine_has_no_wrong_findings_by_itself() {
    let directory = tempfile::tempdir().expect("a directory");
    let output = doctor(directory.path(), &["--json"]);
    assert!(output.status.success());
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let findings = report["findings"].as_array().expect("findings");
    assert!(findings.iter().any(|finding| finding["what"] == "taps"));
    assert!(findings.iter().all(|finding| finding["verdict"] != "wrong"), "{report}");
}

#[test]
fn what_a_configuration_would_fail_for_is_found_with_what_mends_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let directory = directory.path();
    let (fine, said) = verdict(directory, "[port.a]\nvm = \"a.sock\"\n");
    assert!(fine && said.contains("ok port a: "), "{said}");
    let (fine, said) = verdict(directory, "[port.a]\nvm = \"gone/a.sock\"\n");
    assert!(!fine && said.contains("mkdir -p ") && said.contains("1 cause above"), "{said}");
    let (fine, said) = verdict(directory, "[port.up]\ntap = \"lo\"\n");
    assert!(!fine && said.contains("lo is an interface, but no tap"), "{said}");
    let _running = Ringway::run(directory, &["--port", "a=vm:a.sock"]);
    let (fine, said) = verdict(directory, "[port.a]\nvm = \"a.sock\"\n");
    assert!(!fine && said.contains("a process listens there already"), "{said}");
    let (fine, said) = verdict(directory, "[port.a]\nvm = \"a.sock\"\nbogus = 1\n");
    assert!(!fine && said.contains("ringway.toml:5: bogus"), "{said}");
}
