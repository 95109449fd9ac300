//! The plugin as a runtime calls it, with a real ringway, whose program lies beside it
//! (`cargo test --workspace` builds both).

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// Longest wait until ringway answers.
const LIMIT: Duration = Duration::from_secs(20);

/// A running ringway; it ends with the test.
struct Ringway {
    child: Child,
    control: PathBuf,
}

impl Ringway {
    fn program() -> Option<PathBuf> {
        let beside = Path::new(env!("CARGO_BIN_EXE_ringway-cni")).with_file_name("ringway");
        let found = beside.is_file().then_some(beside);
        if found.is_none() {
            println!("skipped: ringway is not built");
        }
        found
    }

    fn start(program: &Path, bench: &Bench) -> Self {
        let child = Command::new(program)
            .args(["run", "--port", "other=vm:other.sock", "--control"])
            .arg(&bench.control)
            .current_dir(bench.directory.path())
            .stderr(Stdio::null())
            .spawn()
            .expect("ringway starts");
        let ringway = Self { child, control: bench.control.clone() };
        let deadline = Instant::now() + LIMIT;
        while ringway.ports().is_none() {
            assert!(Instant::now() < deadline, "ringway does not answer");
            std::thread::sleep(Duration::from_millis(5));
        }
        ringway
    }

    /// The ports with labels: what the plugin has made.
    fn ports(&self) -> Option<Vec<Value>> {
        let mut stream = UnixStream::connect(&self.control).ok()?;
        stream.write_all(b"{\"version\":1,\"command\":\"port_list\"}\n").ok()?;
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).ok()?;
        let reply: Value = serde_json::from_str(&line).ok()?;
        let ports = reply["ports"].as_array()?.iter().map(|port| port["port"].clone());
        Some(ports.filter(|port| port["label"].is_array()).collect())
    }

    fn count(&self) -> usize {
        self.ports().expect("it answers").len()
    }
}

impl Drop for Ringway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Bench {
    directory: tempfile::TempDir,
    control: PathBuf,
}

impl Bench {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let control = directory.path().join("c.sock");
        Self { directory, control }
    }

    fn configuration(&self, network: &str, more: Value) -> Value {
        let mut all = json!({ "cniVersion": "1.1.0", "name": network, "type": "ringway-cni",
            "control": self.control,
            "socketDirectory": self.directory.path(), "options": { "vlan": 7, "mtu": 1450 } });
        for (key, value) in more.as_object().into_iter().flatten() {
            all[key] = value.clone();
        }
        all
    }

    fn start(&self, verb: &str, (container, configuration): (&str, &Value)) -> Child {
        let mut child = Command::new(env!("CARGO_BIN_EXE_ringway-cni"))
            .env("CNI_COMMAND", verb)
            .env("CNI_CONTAINERID", container)
            .env("CNI_IFNAME", "net1")
            .env("CNI_PATH", self.directory.path())
            .env_remove("CNI_NETNS")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut stdin = child.stdin.take().expect("piped");
        let _ = stdin.write_all(configuration.to_string().as_bytes());
        child
    }

    fn ask(&self, verb: &str, what: (&str, &Value)) -> (bool, Value) {
        let output: Output = self.start(verb, what).wait_with_output().expect("it ends");
        let value = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
        (output.status.success(), value)
    }
}

#[test]
fn an_attachment_comes_is_checked_and_goes() {
    let Some(program) = Ringway::program() else { return };
    let bench = Bench::new();
    let info = bench.directory.path().join("info");
    let runtime = json!({ "runtimeConfig": { "CNIDeviceInfoFile": info } });
    let blue = bench.configuration("blue", runtime);
    let (ok, why) = bench.ask("STATUS", ("", &blue));
    assert!(!ok && why["code"] == 50, "{why}");
    let ringway = Ringway::start(&program, &bench);
    assert!(bench.ask("STATUS", ("", &blue)).0);
    let (ok, result) = bench.ask("ADD", ("c1", &blue));
    assert!(ok, "{result}");
    let interface = &result["interfaces"][0];
    assert_eq!((&interface["name"], &interface["mtu"]), (&json!("net1"), &json!(1450)));
    assert!(interface["socketPath"].as_str().is_some_and(|path| Path::new(path).exists()));
    let written: Value =
        serde_json::from_slice(&std::fs::read(&info).expect("written")).expect("JSON");
    assert_eq!(written["vhost-user"]["path"], interface["socketPath"]);
    let port = ringway.ports().expect("it answers").remove(0);
    assert_eq!(port["vlan"], 7);
    let labels = json!(["cni.container:c1", "cni.interface:net1", "cni.network:blue"]);
    assert_eq!(port["label"], labels);
    assert!(bench.ask("CHECK", ("c1", &blue)).0);
    assert!(!bench.ask("CHECK", ("c2", &blue)).0);
    assert!(bench.ask("DEL", ("c1", &blue)).0 && bench.ask("DEL", ("c1", &blue)).0);
    assert!(ringway.count() == 0 && !info.exists());
}

#[test]
fn what_is_not_known_any_more_is_collected_in_its_own_network_only() {
    let Some(program) = Ringway::program() else { return };
    let bench = Bench::new();
    let ringway = Ringway::start(&program, &bench);
    let valid = json!({ "cni.dev/valid-attachments": [{ "containerID": "c2", "ifname": "net1" }] });
    let [blue, red] = ["blue", "red"].map(|name| bench.configuration(name, valid.clone()));
    for (container, network) in [("c1", &blue), ("c2", &blue), ("c1", &red)] {
        assert!(bench.ask("ADD", (container, network)).0);
    }
    assert!(bench.ask("GC", ("", &blue)).0);
    assert_eq!(ringway.count(), 2);
    assert!(bench.ask("CHECK", ("c2", &blue)).0 && bench.ask("CHECK", ("c1", &red)).0);
    assert!(!bench.ask("CHECK", ("c1", &blue)).0);
}

/// A plugin for addresses: one script, that keeps a file while it has given one.
const IPAM: &str = "#!/bin/sh\n\
    case $CNI_COMMAND in\n\
    ADD) touch DIR/given; echo '{\"ips\":[{\"address\":\"10.1.0.2/24\"}],\"routes\":[]}' ;;\n\
    DEL) rm -f DIR/given ;;\n\
    esac\n";

#[test]
fn addresses_are_asked_for_and_given_back() {
    use std::os::unix::fs::PermissionsExt;
    let Some(program) = Ringway::program() else { return };
    let bench = Bench::new();
    let place = bench.directory.path();
    std::fs::write(place.join("pool"), IPAM.replace("DIR", &place.display().to_string()))
        .expect("written");
    std::fs::set_permissions(place.join("pool"), std::fs::Permissions::from_mode(0o755))
        .expect("changed");
    let blue = bench.configuration("blue", json!({ "ipam": { "type": "pool" } }));
    let given = place.join("given");
    let (ok, _) = bench.ask("ADD", ("c1", &blue));
    assert!(!ok && !given.exists(), "no ringway runs: the address is given back");
    let _ringway = Ringway::start(&program, &bench);
    let (ok, result) = bench.ask("ADD", ("c1", &blue));
    assert!(ok && given.exists(), "{result}");
    assert_eq!(result["ips"][0], json!({ "address": "10.1.0.2/24", "interface": 0 }));
    assert!(bench.ask("DEL", ("c1", &blue)).0 && !given.exists());
}

#[test]
fn killed_in_between_nothing_stays_and_nothing_is_in_the_way() {
    let Some(program) = Ringway::program() else { return };
    let bench = Bench::new();
    let ringway = Ringway::start(&program, &bench);
    let blue = bench.configuration("blue", json!({}));
    let whole = {
        let begun = Instant::now();
        assert!(bench.ask("ADD", ("c0", &blue)).0 && bench.ask("DEL", ("c0", &blue)).0);
        begun.elapsed()
    };
    for step in 0..40 {
        let (container, after) = (format!("c{step}"), whole * step / 40);
        for verb in ["ADD", "DEL"] {
            let mut child = bench.start(verb, (&container, &blue));
            std::thread::sleep(after.min(Duration::from_millis(50)));
            let _ = child.kill();
            child.wait().expect("a child");
        }
        // As a runtime goes on after that.
        assert!(bench.ask("DEL", (&container, &blue)).0, "{step}");
        assert!(bench.ask("ADD", (&container, &blue)).0, "{step}");
        assert!(bench.ask("CHECK", (&container, &blue)).0, "{step}");
        assert!(bench.ask("DEL", (&container, &blue)).0, "{step}");
    }
    assert_eq!(ringway.count(), 0);
}

#[test]
fn versions_are_told_without_a_ringway() {
    let bench = Bench::new();
    let (ok, told) = bench.ask("VERSION", ("", &json!({ "cniVersion": "1.1.0" })));
    assert!(ok && told["supportedVersions"] == json!(["1.0.0", "1.1.0"]), "{told}");
    let (ok, why) = bench.ask("ADD", ("c1", &json!({ "cniVersion": "0.2.0", "name": "a" })));
    assert!(!ok && why["code"] == 1, "{why}");
}
