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
fn a_bridge_that_is_to_hear_of_guests_is_mended_by_what_is_said() {
    let directory = tempfile::tempdir().expect("a directory");
    let Some(ringway) = Ringway::run_in_namespace(directory.path(), &["--port", "t=tap:rwt0"])
    else {
        println!("skipped: no network namespace or no /dev/net/tun here");
        return;
    };
    let run = |line: &str| ringway.inside(&line.split(' ').collect::<Vec<_>>());
    run("ip link add br0 type bridge");
    run("ip link add vx0 type vxlan id 7 dstport 4789 local 127.0.0.1");
    if !run("ip link show vx0").contains("vx0") {
        println!("skipped: no VXLAN here");
        return;
    }
    run("ip link set vx0 master br0");
    let file = directory.path().join("bridge.toml");
    let text = "[port.up]\ntap = \"rwt0\"\nfdb = \"sync\"\nneighbours = \"sync\"\n";
    std::fs::write(&file, text).expect("written");
    let program = env!("CARGO_BIN_EXE_ringway");
    let file = file.display().to_string();
    let mends = || -> Vec<String> {
        let told = ringway.inside(&[program, "doctor", "--json", "--config", &file]);
        let report: serde_json::Value = serde_json::from_str(&told).expect("JSON");
        let of_bridge = |it: &&serde_json::Value| it["what"] == "port up, bridge";
        let findings = report["findings"].as_array().into_iter().flatten().filter(of_bridge);
        findings.filter_map(|finding| Some(finding["mend"].as_str()?.to_owned())).collect()
    };
    for count in [1, 2] {
        let said = mends();
        assert_eq!(said.len(), count, "{said:?}");
        for line in said {
            let line = line.replace("BRIDGE", "br0");
            run(line.strip_prefix("sudo ").expect("a command for root"));
        }
    }
    assert_eq!(mends(), [""; 0]);
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
    let (fine, said) = verdict(directory, "pin = \"0\"\n[port.a]\nvm = \"a.sock\"\n");
    assert!(fine && said.contains("ok pin: "), "{said}");
    let (fine, said) = verdict(directory, "pin = \"1023\"\n[port.a]\nvm = \"a.sock\"\n");
    assert!(!fine && said.contains("processor 1023 does not exist"), "{said}");
    let _running = Ringway::run(directory, &["--port", "a=vm:a.sock"]);
    let (fine, said) = verdict(directory, "[port.a]\nvm = \"a.sock\"\n");
    assert!(fine && said.contains("the ringway that runs listens there"), "{said}");
    let other = directory.join("b.sock");
    let _other = std::os::unix::net::UnixListener::bind(other).expect("a socket");
    let (fine, said) = verdict(directory, "[port.b]\nvm = \"b.sock\"\n");
    assert!(!fine && said.contains("a process listens there already"), "{said}");
    let (fine, said) = verdict(directory, "[port.a]\nvm = \"a.sock\"\nbogus = 1\n");
    assert!(!fine && said.contains("ringway.toml:5: bogus"), "{said}");
}
