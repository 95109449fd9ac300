//! Files for other programs: a schema for editors, and a dashboard for Grafana.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Ringway, wait_for};
use ringway_testkit::{AnyUserGuest, GuestOptions};
use serde_json::Value;

/// Reads the schema, and files in TOML; prints those that it does not allow.
const VALIDATE: &str = "
import json, sys, tomllib, jsonschema
check = jsonschema.Draft7Validator(json.load(open(sys.argv[1])))
check.check_schema(check.schema)
for name in sys.argv[2:]:
    with open(name, 'rb') as file:
        if not check.is_valid(tomllib.load(file)):
            print(name)
";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn the_schema_allows_what_is_right_and_nothing_else() {
    let directory = tempfile::tempdir().expect("a directory");
    let schema = Command::new(env!("CARGO_BIN_EXE_ringway"))
        .args(["check-config", "--schema"])
        .output()
        .expect("it runs");
    assert!(schema.status.success());
    let place = directory.path().join("schema.json");
    fs::write(&place, schema.stdout).expect("a file");
    let write = |name: &str, text: &str| {
        let path = directory.path().join(name);
        fs::write(&path, text).expect("a file");
        path
    };
    let right = [
        write(
            "a",
            "[ringway]\nworkers = 2\npoll = \"never\"\n[port.a]\nvm = \"\"\npacked = false\n",
        ),
        write("b", "[port.a]\nnat = \"\"\ndns = [\"192.0.2.1\"]\nrate_to_guest = \"10M\"\n"),
        root().join("packaging/ringway.toml"),
        root().join("bins/ringway/tests/golden/config/good.toml"),
    ];
    let wrong = [
        write("c", "[port.a]\nvm = \"a\"\nvlam = 7\n"),
        write("d", "[port.a]\nvm = \"a\"\ntap = \"b\"\n"),
        write("e", "[port.a]\nvlan = 7\n"),
        write("f", "[port.a]\nvm = \"a\"\nlink = \"sideways\"\n"),
        write("g", "[switch]\nworkers = 2\n"),
    ];
    let mut python = Command::new("python3");
    python.args(["-c", VALIDATE]).arg(&place).args(&right).args(&wrong);
    let Some(output) = python.output().ok().filter(|output| output.status.success()) else {
        return println!("skipped: no Python with jsonschema");
    };
    let refused: Vec<PathBuf> =
        String::from_utf8_lossy(&output.stdout).lines().map(PathBuf::from).collect();
    assert_eq!(refused, wrong);
}

/// Names of metrics in a text.
fn metrics(text: &str) -> BTreeSet<&str> {
    let is_part = |letter: char| letter.is_ascii_lowercase() || letter == '_';
    let words = text.split(|letter: char| !is_part(letter));
    words.filter(|word| word.starts_with("ringway_")).collect()
}

#[test]
fn the_dashboard_asks_for_metrics_that_there_are() {
    let directory = tempfile::tempdir().expect("a directory");
    let ports = ["--port", "a=vm:a.sock,histograms=on", "--port", "b=vm:b.sock,link=down"];
    let ringway = Ringway::run(directory.path(), &ports);
    let socket = directory.path().join("a.sock");
    let guest = || AnyUserGuest::attach(&socket, &GuestOptions::default()).ok();
    let mut guest = wait_for("a guest", guest);
    let _ = guest.send(&[0xff; 60]).expect("connected");
    guest.flush();
    wait_for("a drop", || ringway.told(&["stats"]).contains("link_down").then_some(()));
    let served = ringway.told(&["metrics"]);
    let text = fs::read_to_string(root().join("packaging/grafana-ringway.json")).expect("a file");
    let dashboard: Value = serde_json::from_str(&text).expect("JSON");
    assert!(dashboard["panels"].as_array().is_some_and(|panels| panels.len() >= 10));
    let (asked, there) = (metrics(&text), metrics(&served));
    let missing: Vec<_> = asked.difference(&there).collect();
    assert!(missing.is_empty() && asked.len() >= 12, "{missing:?} of {asked:?}");
    let rules = fs::read_to_string(root().join("packaging/ringway.rules.yml")).expect("a file");
    let asked = metrics(&rules);
    let missing: Vec<_> = asked.difference(&there).collect();
    assert!(missing.is_empty() && asked.len() >= 9, "{missing:?} of {asked:?}");
}

/// A guest as libvirt describes it, as far as its network goes.
const DOMAIN: &str = r#"<domain type='qemu'><name>web 1</name><devices>
    <interface type='vhostuser'>
      <mac address='52:54:00:00:00:07'/>
      <source type='unix' path='DIR/web1.sock' mode='client'>
        <reconnect enabled='yes' timeout='1'/>
      </source>
      <model type='virtio'/>
    </interface>
    <interface type="vhostuser">
      <source type="unix" mode="server" path="DIR/a,b/web2.sock"/></interface>
    <interface type='network'><mac address='52:54:00:00:00:08'/><source network='x'/></interface>
    <interface type='vhostuser'><source type='unix' path='DIR/own.sock' mode='client'/></interface>
</devices></domain>"#;

#[test]
fn libvirts_hook_makes_ports_for_a_guest_and_takes_them_away() {
    let directory = tempfile::tempdir().expect("a directory");
    let place = directory.path();
    let ringway = Ringway::run(place, &["--port", "own=vm:own.sock"]);
    let programs = Path::new(env!("CARGO_BIN_EXE_ringway")).parent().expect("a directory");
    let path = std::env::var("PATH").expect("a path");
    let hook = |operation: &str, part: &str| {
        let xml = place.join("xml");
        fs::write(&xml, DOMAIN.replace("DIR", &place.display().to_string())).expect("a file");
        let output = Command::new(root().join("packaging/ringway-libvirt-hook"))
            .args(["web 1", operation, part, "-"])
            .env("PATH", format!("{}:{path}", programs.display()))
            .env("RINGWAY_CONTROL", ringway.control())
            .env("RINGWAY_LIBVIRT", place)
            .stdin(fs::File::open(&xml).expect("a file"))
            .output()
            .expect("it starts");
        assert!(output.stdout.is_empty(), "libvirt would take it for another guest");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() { Ok(said) } else { Err(said) }
    };
    let ports = || {
        let told: Value =
            serde_json::from_str(&ringway.told(&["port", "list", "--json"])).expect("JSON");
        let ports = told["ports"].as_array().expect("a list").iter();
        ports.map(|port| port["port"].clone()).collect::<Vec<_>>()
    };
    fs::create_dir(place.join("libvirt.d")).expect("a directory");
    let options = format!("OPTIONS=vlan=7,socket_mode=0660\nDIRECTORY={}\n", place.display());
    fs::write(place.join("libvirt"), &options).expect("a file");
    for (operation, part) in
        [("prepare", "begin"), ("start", "begin"), ("started", "begin"), ("reconnect", "begin")]
    {
        hook(operation, part).expect(operation);
    }
    let made = ports();
    let of = |name: &str| made.iter().find(|port| port["name"] == name).expect(name);
    assert_eq!(made.len(), 3);
    let (one, two) = (of("web1"), of("web2"));
    assert_eq!((&one["mac"], &one["vlan"]), (&"52:54:00:00:00:07".into(), &7.into()));
    assert!(one["socket_mode"] == "0660" && two["socket_mode"].is_null(), "it makes no socket");
    let connects_to = two["vm-connect"].as_str().expect("a path");
    assert!(one["vm"].is_string() && connects_to.ends_with("/a,b/web2.sock"));
    assert_eq!(two["label"], serde_json::json!(["libvirt:web_1"]));
    hook("migrate", "begin").expect("nothing to do yet");
    for (operation, part) in [("stopped", "end"), ("release", "end"), ("release", "end")] {
        hook(operation, part).expect(operation);
    }
    assert_eq!(ports().len(), 1, "what the hook has not made stays");
    ringway.told(&["port", "add", "web1=vm:another.sock"]);
    let why = hook("prepare", "begin").expect_err("the guest would find no socket");
    assert!(why.contains("another port is called web1 already"), "{why}");
    ringway.told(&["port", "remove", "web1"]);
    ports_of_others_are_refused((&ringway, place), hook);
    // Those of another switch.
    fs::write(place.join("libvirt"), "DIRECTORY=/var/run/openvswitch\n").expect("a file");
    hook("prepare", "begin").expect("nothing to do");
    assert_eq!(ports().len(), 1);
    fs::write(place.join("libvirt"), &options).expect("a file");
    fs::write(place.join("libvirt.d/web 1"), "OPTIONS=vlan=sideways\n").expect("a file");
    let why = hook("prepare", "begin").expect_err("libvirt does not start the guest then");
    assert!(why.contains("sideways"), "{why}");
}

/// Another guest's, by the label or because it is connected.
fn ports_of_others_are_refused(
    (ringway, place): (&Ringway, &Path),
    hook: impl Fn(&str, &str) -> Result<String, String>,
) {
    ringway.told(&["port", "add", "web1=vm:web1.sock,label=libvirt:db"]);
    for operation in ["prepare", "reconnect"] {
        let why = hook(operation, "begin").expect_err("it is another guest's");
        assert!(why.contains("web 1: web1 belongs to db"), "{why}");
    }
    hook("release", "end").expect("nothing of it");
    assert_eq!(ringway.names().len(), 2, "and stays");
    ringway.told(&["port", "set", "web1", "label=default"]);
    let socket = place.join("web1.sock");
    let guest = || AnyUserGuest::attach(&socket, &GuestOptions::default()).ok();
    let guest = wait_for("a guest", guest);
    let why = hook("prepare", "begin").expect_err("it is in use");
    assert!(why.contains("web1 is in use"), "{why}");
    drop(guest);
    ringway.told(&["port", "remove", "web1"]);
}
