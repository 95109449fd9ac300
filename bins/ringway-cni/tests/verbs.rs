//! The plugin as a runtime calls it, with a real ringway, whose program lies beside it
//! (`cargo test --workspace` builds both).

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use ringway_control::protocol::client::ask;
use ringway_control::protocol::{ChangeReply, ListedPort, PortListReply, Request};
use ringway_extent::Extent;
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
    fn ports(&self) -> Option<Vec<ListedPort>> {
        let reply: PortListReply = ask(&self.control, &Request::PortList).ok()?;
        let is_made = |port: &ListedPort| port.texts("label").next().is_some();
        Some(reply.ports.into_iter().filter(is_made).collect())
    }

    fn label(&self, port: &ListedPort, labels: Value) {
        let options = [("label".to_owned(), labels)].into_iter().collect();
        let request = Request::PortSet { name: port.name().to_owned(), options };
        let _: ChangeReply = ask(&self.control, &request).expect("an answer");
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

    /// Of a network whose plugin for addresses is there.
    fn with_addresses(&self, more: Value) -> Value {
        let (place, plugin) = (self.directory.path(), self.directory.path().join("pool"));
        std::fs::write(&plugin, IPAM.replace("DIR", &place.display().to_string()))
            .expect("written");
        std::fs::set_permissions(&plugin, std::fs::Permissions::from_mode(0o755)).expect("changed");
        let mut configuration = self.configuration("blue", more);
        configuration["ipam"] = json!({ "type": "pool" });
        configuration
    }

    fn command(&self, verb: &str, container: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ringway-cni"));
        command.env("CNI_COMMAND", verb).env("CNI_CONTAINERID", container);
        command.env("CNI_IFNAME", "net1").env_remove("CNI_NETNS");
        // Programs that a plugin for addresses calls are found, too.
        command.env("CNI_PATH", self.directory.path());
        command.env("RINGWAY_CNI_DEVICE_INFO", self.directory.path());
        command
    }

    fn start(&self, verb: &str, (container, configuration): (&str, &Value)) -> Child {
        begin(self.command(verb, container), configuration)
    }

    /// For a container in the namespace of that process.
    fn ask_for(&self, process: u32, verb: &str, what: (&str, &Value)) -> (bool, Value) {
        let mut command = self.command(verb, what.0);
        command.env("CNI_NETNS", format!("/proc/{process}/ns/net"));
        answer(begin(command, what.1))
    }

    fn ask(&self, verb: &str, what: (&str, &Value)) -> (bool, Value) {
        answer(self.start(verb, what))
    }

    /// Files that attachments have left, if there are any.
    fn left_over(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.directory.path()).expect("a directory");
        let names = entries.map(|entry| entry.expect("an entry").file_name().into_string());
        let names = names.map(|name| name.expect("a name"));
        names.filter(|name| name.starts_with("cni-") || name.starts_with("given-")).collect()
    }
}

/// Starts the plugin with what it reads.
fn begin(mut command: Command, configuration: &Value) -> Child {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut stdin = child.stdin.take().expect("piped");
    let _ = stdin.write_all(configuration.to_string().as_bytes());
    child
}

/// Whether it succeeds, and what it prints.
fn answer(child: Child) -> (bool, Value) {
    let output: Output = child.wait_with_output().expect("it ends");
    (output.status.success(), serde_json::from_slice(&output.stdout).unwrap_or(Value::Null))
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
    assert!(result.get("ips").is_none(), "no plugin gives addresses: {result}");
    assert_eq!((&interface["name"], &interface["mtu"]), (&json!("net1"), &json!(1450)));
    assert!(interface["socketPath"].as_str().is_some_and(|path| Path::new(path).exists()));
    let written: Value =
        serde_json::from_slice(&std::fs::read(&info).expect("written")).expect("JSON");
    assert_eq!(written["vhost-user"]["path"], interface["socketPath"]);
    let port = ringway.ports().expect("it answers").remove(0);
    assert_eq!(port.port["vlan"], 7);
    let labels = json!(["cni.container:c1", "cni.interface:net1", "cni.network:blue"]);
    assert_eq!(port.port["label"], labels);
    assert!(bench.ask("CHECK", ("c1", &blue)).0);
    assert!(!bench.ask("CHECK", ("c2", &blue)).0);
    assert!(bench.ask("DEL", ("c1", &blue)).0 && bench.ask("DEL", ("c1", &blue)).0);
    assert!(ringway.count() == 0 && !info.exists());
}

/// A network's configuration may come from people who may not write this machine's files.
#[test]
fn no_file_of_others_is_written_or_deleted() {
    let Some(program) = Ringway::program() else { return };
    let bench = Bench::new();
    let ringway = Ringway::start(&program, &bench);
    let place = bench.directory.path();
    let elsewhere = tempfile::tempdir().expect("a directory");
    let file = elsewhere.path().join("file");
    std::fs::write(&file, "theirs").expect("written");
    std::fs::copy(&file, place.join("there")).expect("copied");
    std::os::unix::fs::symlink(&file, place.join("link")).expect("made");
    let up = place.join("..").join(place.file_name().expect("a name")).join("up");
    let others = [file.clone(), place.join("there"), place.join("link"), up, place.join("")];
    for named in &others {
        let runtime = json!({ "runtimeConfig": { "CNIDeviceInfoFile": named } });
        let blue = bench.configuration("blue", runtime);
        let (ok, why) = bench.ask("ADD", ("c1", &blue));
        assert!(!ok && ringway.count() == 0, "{named:?} {why}");
        assert!(bench.ask("DEL", ("c1", &blue)).0, "{named:?}");
    }
    for kept in [&file, &place.join("there"), &place.join("link")] {
        assert_eq!(std::fs::read_to_string(kept).expect("it is there"), "theirs");
    }
    assert!(place.join("link").is_symlink());
    let info = place.join("info");
    let runtime = json!({ "runtimeConfig": { "CNIDeviceInfoFile": info } });
    let blue = bench.configuration("blue", runtime);
    // Twice, as after an attempt that was killed.
    assert!(bench.ask("ADD", ("c1", &blue)).0 && bench.ask("ADD", ("c1", &blue)).0);
    let mode = std::fs::metadata(&info).expect("written").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(!bench.ask("ADD", ("c2", &blue)).0, "it is another attachment's");
    assert!(bench.ask("DEL", ("c2", &blue)).0 && info.exists());
    assert!(bench.ask("DEL", ("c1", &blue)).0 && !info.exists());
}

#[test]
fn a_port_of_another_attachment_stays() {
    let Some(program) = Ringway::program() else { return };
    let bench = Bench::new();
    let ringway = Ringway::start(&program, &bench);
    let blue = bench.configuration("blue", json!({}));
    assert!(bench.ask("ADD", ("c1", &blue)).0);
    let theirs = ["cni.network:red", "cni.container:c9", "cni.interface:net9"];
    let port = ringway.ports().expect("it answers")[0].clone();
    ringway.label(&port, theirs.into());
    let socket = port.port["vm"].as_str().expect("a socket");
    for verb in ["ADD", "CHECK", "DEL"] {
        let (ok, why) = bench.ask(verb, ("c1", &blue));
        assert!(ok == (verb == "DEL") && ringway.count() == 1, "{verb} {why}");
        assert!(Path::new(socket).exists(), "{verb}: its socket stays");
    }
}

#[test]
fn what_came_before_in_a_chain_is_handed_on() {
    let Some(program) = Ringway::program() else { return };
    let bench = Bench::new();
    let _ringway = Ringway::start(&program, &bench);
    let before = json!({ "cniVersion": "1.0.0",
        "interfaces": [{ "name": "eth0" }, { "name": "host" }],
        "ips": [{ "address": "192.0.2.5/24", "interface": 0 }],
        "routes": [{ "dst": "0.0.0.0/0" }], "dns": { "nameservers": ["192.0.2.1"] } });
    let more = json!({ "cniVersion": "1.0.0", "prevResult": before });
    for (blue, ips) in
        [(bench.configuration("blue", more.clone()), 1), (bench.with_addresses(more), 2)]
    {
        let (ok, result) = bench.ask("ADD", ("c1", &blue));
        assert!(ok && result["cniVersion"] == "1.0.0", "{result}");
        let names = result["interfaces"].as_array().expect("interfaces").iter();
        let names: Vec<_> = names.map(|it| it["name"].as_str().expect("a name")).collect();
        assert_eq!(names, ["eth0", "host", "net1"]);
        assert_eq!(result["ips"][0], before["ips"][0]);
        let told = result["ips"].as_array().expect("addresses");
        assert!(
            told.len() == ips && told.iter().skip(1).all(|ip| ip["interface"] == 2),
            "{result}"
        );
        assert_eq!((&result["routes"], &result["dns"]), (&before["routes"], &before["dns"]));
        assert!(bench.ask("DEL", ("c1", &blue)).0);
    }
}

#[test]
fn an_error_is_told_in_the_version_of_the_network() {
    let bench = Bench::new();
    for version in ["1.0.0", "1.1.0"] {
        let blue = bench.configuration("blue", json!({ "cniVersion": version }));
        let (ok, why) = bench.ask("ADD", ("c1", &blue));
        assert!(!ok && why["cniVersion"] == version, "{why}");
    }
}

#[test]
fn a_port_goes_also_where_its_address_cannot_be_given_back() {
    let Some(program) = Ringway::program() else { return };
    let bench = Bench::new();
    let ringway = Ringway::start(&program, &bench);
    let blue = bench.with_addresses(json!({}));
    assert!(bench.ask("ADD", ("c1", &blue)).0);
    std::fs::remove_file(bench.directory.path().join("pool")).expect("it is there");
    let (ok, why) = bench.ask("DEL", ("c1", &blue));
    assert!(!ok && why["code"] == 102 && ringway.count() == 0, "{why}");
}

/// A node that boots, or is drained.
#[test]
fn a_hundred_at_once_all_come_and_go() {
    let Some(program) = Ringway::program() else { return };
    let bench = Bench::new();
    let ringway = Ringway::start(&program, &bench);
    let blue = bench.configuration("blue", json!({}));
    let containers: Vec<String> = (0..100).map(|number| format!("c{number}")).collect();
    for (verb, count) in [("ADD", 100), ("DEL", 0)] {
        let start = |container: &String| bench.start(verb, (container, &blue));
        let children: Vec<Child> = containers.iter().map(start).collect();
        let failed = children.into_iter().map(answer).filter(|(ok, _)| !ok);
        let failed: Vec<_> = failed.collect();
        assert!(failed.is_empty(), "{verb}: {} failed: {:?}", failed.len(), failed[0]);
        assert_eq!(ringway.count(), count);
    }
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
    let mut unsaid = blue.clone();
    unsaid.as_object_mut().expect("an object").remove("cni.dev/valid-attachments");
    let (ok, why) = bench.ask("GC", ("", &unsaid));
    assert!(!ok && why["code"] == 7 && ringway.count() == 3, "{why}");
    assert!(bench.ask("GC", ("", &blue)).0);
    assert_eq!(ringway.count(), 2);
    assert!(bench.ask("CHECK", ("c2", &blue)).0 && bench.ask("CHECK", ("c1", &red)).0);
    assert!(!bench.ask("CHECK", ("c1", &blue)).0);
}

/// Ports that were added end with their ringway, so there is nothing left to fail about.
#[test]
fn what_has_ended_with_ringway_is_deleted_without_it() {
    let Some(program) = Ringway::program() else { return };
    let bench = Bench::new();
    let blue = bench.with_addresses(json!({}));
    for container in ["c1", "c2"] {
        let ringway = Ringway::start(&program, &bench);
        assert!(bench.ask("ADD", (container, &blue)).0 && ringway.count() == 1);
        assert!(!bench.left_over().is_empty());
        // Killed: the files of its sockets stay.
        drop(ringway);
        if container == "c2" {
            std::fs::remove_file(&bench.control).expect("it is there");
        }
        let (ok, why) = bench.ask("DEL", (container, &blue));
        assert!(ok && bench.left_over().is_empty(), "{why} {:?}", bench.left_over());
        let none = bench.with_addresses(json!({ "cni.dev/valid-attachments": null }));
        assert!(bench.ask("GC", ("", &none)).0);
        assert!(!bench.ask("CHECK", (container, &blue)).0);
    }
    let ringway = Ringway::start(&program, &bench);
    assert_eq!(ringway.count(), 0, "the next one does not have them");
}

/// Where a socket listens, a service manager may keep it, and the ports, for the next ringway.
#[test]
fn a_ringway_that_does_not_answer_is_no_end_of_its_ports() {
    let bench = Bench::new();
    let kept = UnixListener::bind(&bench.control).expect("it listens");
    std::thread::spawn(move || kept.incoming().for_each(drop));
    let (ok, why) = bench.ask("DEL", ("c1", &bench.configuration("blue", json!({}))));
    assert!(!ok && why["msg"].is_string(), "{why}");
    let valid = json!({ "cni.dev/valid-attachments": null });
    assert!(!bench.ask("GC", ("", &bench.with_addresses(valid))).0);
    assert!(bench.directory.path().join("collected").exists(), "addresses are collected, too");
}

/// A plugin for addresses: one script, that keeps a file while it has given one.
const IPAM: &str = r#"#!/bin/sh
case $CNI_COMMAND in
ADD) touch DIR/given-$CNI_CONTAINERID
    echo '{"ips":[{"address":"10.1.0.'${CNI_CONTAINERID#c}'/24"}],"routes":[]}' ;;
GC) touch DIR/collected ;;
DEL) rm -f DIR/given-$CNI_CONTAINERID ;;
esac
"#;

#[test]
fn addresses_are_asked_for_and_given_back() {
    let Some(program) = Ringway::program() else { return };
    let bench = Bench::new();
    let place = bench.directory.path();
    let blue = bench.with_addresses(json!({}));
    let given = place.join("given-c1");
    let (ok, _) = bench.ask("ADD", ("c1", &blue));
    assert!(!ok && !given.exists(), "no ringway runs: the address is given back");
    let _ringway = Ringway::start(&program, &bench);
    let (ok, result) = bench.ask("ADD", ("c1", &blue));
    assert!(ok && given.exists(), "{result}");
    assert_eq!(result["ips"][0], json!({ "address": "10.1.0.1/24", "interface": 0 }));
    assert!(bench.ask("DEL", ("c1", &blue)).0 && !given.exists());
}

/// Attachments that come and go, each with a plugin killed at another moment.
const ROUNDS: Extent = Extent::new("RINGWAY_CNI_ROUNDS", 40, 1000);

/// In one of so many rounds ringway is killed, too.
const RINGWAY_KILLED_EVERY: u32 = 8;

#[test]
fn killed_in_between_nothing_stays_and_nothing_is_in_the_way() {
    let Some(program) = Ringway::program() else { return };
    let bench = Bench::new();
    let rounds = u32::try_from(ROUNDS.announced()).expect("few");
    let mut ringway = Ringway::start(&program, &bench);
    let blue = bench.with_addresses(json!({}));
    let whole = {
        let begun = Instant::now();
        assert!(bench.ask("ADD", ("c0", &blue)).0 && bench.ask("DEL", ("c0", &blue)).0);
        begun.elapsed()
    };
    for step in 0..rounds {
        let (container, after) = (format!("c{step}"), whole * (step % 40) / 40);
        let is_killed = step % RINGWAY_KILLED_EVERY == RINGWAY_KILLED_EVERY / 2;
        for verb in ["ADD", "DEL"] {
            let mut child = bench.start(verb, (&container, &blue));
            std::thread::sleep(after.min(Duration::from_millis(50)));
            if is_killed {
                drop(ringway);
                ringway = Ringway::start(&program, &bench);
            }
            let _ = child.kill();
            child.wait().expect("a child");
        }
        // As a runtime goes on after that.
        assert!(bench.ask("DEL", (&container, &blue)).0, "{step}");
        assert!(bench.ask("ADD", (&container, &blue)).0, "{step}");
        assert!(bench.ask("CHECK", (&container, &blue)).0, "{step}");
        if is_killed {
            drop(ringway);
            ringway = Ringway::start(&program, &bench);
        }
        assert!(bench.ask("DEL", (&container, &blue)).0, "{step}");
    }
    assert_eq!((ringway.count(), bench.left_over()), (0, vec![]));
}

/// Names this test, which starts itself once more in namespaces of its own.
const INSIDE: &str = "RINGWAY_CNI_INSIDE";

#[test]
fn a_tap_becomes_an_interface_of_its_container() {
    if std::env::var_os(INSIDE).is_some() {
        return taps_of_two_containers();
    }
    let namespaces = ["--map-root-user", "--net", "--mount", "--pid", "--fork", "--mount-proc"];
    let unshare = |program: &Path| {
        let mut command = Command::new("unshare");
        command.args(namespaces).arg("--kill-child").arg(program);
        command
    };
    let has_them = unshare(Path::new("true")).output().is_ok_and(|tried| tried.status.success());
    if !has_them || !Path::new("/dev/net/tun").exists() || Ringway::program().is_none() {
        return println!("skipped: no namespaces, no /dev/net/tun, or ringway is not built");
    }
    let mut itself = unshare(&std::env::current_exe().expect("a path"));
    itself.args(["--exact", "a_tap_becomes_an_interface_of_its_container", "--nocapture"]);
    // It prints as a test program does: not in the midst of this one's lines.
    let output = itself.env(INSIDE, "1").stdin(Stdio::null()).output().expect("it starts");
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
}

/// A container: a process in a network namespace of its own.
struct Container(Child);

impl Container {
    fn start() -> Self {
        let mut command = Command::new("unshare");
        command.args(["--net", "sleep", "60"]).stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.spawn().expect("it starts");
        let own = std::fs::read_link("/proc/self/ns/net").expect("a namespace");
        let place = format!("/proc/{}/ns/net", child.id());
        let deadline = Instant::now() + LIMIT;
        while std::fs::read_link(&place).is_ok_and(|its| its == own) {
            assert!(Instant::now() < deadline, "it is not apart");
            std::thread::sleep(Duration::from_millis(5));
        }
        Self(child)
    }

    /// Runs a command there; what it prints, if it succeeds.
    fn run(&self, words: &str) -> Option<String> {
        let place = format!("--net=/proc/{}/ns/net", self.0.id());
        let output = Command::new("nsenter").arg(place).args(words.split(' ')).output();
        let output = output.expect("it starts");
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn taps_of_two_containers() {
    let program = Ringway::program().expect("it is built");
    let bench = Bench::new();
    let ringway = Ringway::start(&program, &bench);
    let blue = bench.with_addresses(json!({ "attachment": "tap" }));
    let (ok, why) = bench.ask("ADD", ("c1", &blue));
    assert!(!ok && why["code"] == 4 && ringway.count() == 0, "it has no namespace: {why}");
    let containers = ["c1", "c2"].map(|name| {
        let container = Container::start();
        let wanted = format!("52:54:00:00:00:0{}", &name[1..]);
        let mut blue = blue.clone();
        blue["runtimeConfig"] = json!({ "mac": wanted });
        let (ok, result) = bench.ask_for(container.0.id(), "ADD", (name, &blue));
        assert!(ok && result["interfaces"][0]["mac"] == wanted.as_str(), "{result}");
        let shown = container.run("ip -o link show dev net1").expect("an interface");
        let mac = result["interfaces"][0]["mac"].as_str().expect("an address");
        assert!(shown.contains(mac) && shown.contains("mtu 1450") && shown.contains("UP"));
        (name, container)
    });
    let ping = "ping -c 3 -i 0.1 -W 5 10.1.0.2";
    assert!(containers[0].1.run(ping).is_some(), "one container reaches the other");
    for (name, container) in &containers {
        let process = container.0.id();
        assert!(bench.ask_for(process, "CHECK", (name, &blue)).0);
        for _ in 0..2 {
            assert!(bench.ask_for(process, "DEL", (name, &blue)).0);
        }
        assert_eq!(container.run("ip -o link show dev net1"), None, "it goes with the port");
    }
    assert_eq!((ringway.count(), bench.left_over()), (0, vec![]));
}

#[test]
fn versions_are_told_without_a_ringway() {
    let bench = Bench::new();
    let (ok, told) = bench.ask("VERSION", ("", &json!({ "cniVersion": "1.1.0" })));
    assert!(ok && told["supportedVersions"] == json!(["1.0.0", "1.1.0"]), "{told}");
    let (ok, why) = bench.ask("ADD", ("c1", &json!({ "cniVersion": "0.2.0", "name": "a" })));
    assert!(!ok && why["code"] == 1, "{why}");
}
