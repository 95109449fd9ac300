//! `ringway doctor` says before what `ringway run` would say.

mod common;
mod shell;

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

/// The needs of guests behind a router, none of which this machine meets at first.
const NEEDS: &str = r#"
: >/tmp/resolv.conf; mount --bind /tmp/resolv.conf /etc/resolv.conf || exit 9
ringway run --port vm0=vm: --port net=nat:,forward=unix:/tmp/web.sock:vm0:80 2>log & pid=$!
ready $pid || { cat log; exit 1; }
ringway doctor
ringway why net
ip link add rw0 type veth peer name rw1 && ip link set rw1 up || exit 9
ip addr add 198.51.100.1/24 dev rw0 && ip link set rw0 up || exit 9
ip route add default dev rw0 || exit 9
echo 'nameserver 198.51.100.2' >/tmp/resolv.conf
echo 0 0 >/proc/sys/net/ipv4/ping_group_range || exit 9
echo then
ringway doctor
until grep -q 'resolvers: \["198.51.100.2"\]' log; do kill -0 $pid || break; sleep 0.05; done
: >/tmp/resolv.conf
until grep 'no resolver is left' log; do kill -0 $pid || break; sleep 0.05; done
end $pid
"#;

#[test]
fn what_guests_need_and_this_machine_lacks_is_told() {
    let output = shell::run(shell::User::Root, NEEDS);
    let output = output.filter(|output| output.status.code() != Some(9));
    let Some(output) = output else { return println!("skipped: no such namespaces here") };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (before, after) = text.split_once("\nthen\n").expect("both");
    for part in [
        "absent ping of guests: not permitted\n         sudo sysctl net.ipv4.ping_group_range='0 ",
        "absent names for guests: no resolver is in /etc/resolv.conf\n",
        "absent IPv4 for guests: no default route\n",
        "absent IPv6 for guests: no default route\n",
        "absent forward of net: unix:/tmp/web.sock:vm0:80: vm0 has no lease\n",
        "  a forward leads to no guest: unix:/tmp/web.sock:vm0:80: vm0 has no lease\n",
        "  this machine lacks what guests need: ping of guests: not permitted; names for guests: \
         no resolver is in /etc/resolv.conf; IPv4 for guests: no default route; IPv6 for guests:",
    ] {
        assert!(before.contains(part), "{part}: {before}");
    }
    for part in ["ok ping of guests: ", "ok names for guests: ", "ok IPv4 for guests: "] {
        assert!(after.contains(part), "{part}: {after}");
    }
    assert!(after.contains("WARN no resolver is left in /etc/resolv.conf"), "{after}");
}
