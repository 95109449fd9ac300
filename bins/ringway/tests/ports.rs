//! Ports that come, change and go while others carry traffic: nothing is disturbed, guests are
//! told, and nothing is left behind.

mod common;

use std::path::Path;
use std::time::Duration;

use common::{Ringway, wait_for};
use ringway_net::Features;
use ringway_testkit::{AnyUserGuest, GuestOptions, Traffic};
use serde_json::json;

/// How often a port is added and removed.
const CYCLES: usize = 1000;

/// Bytes of the longest frame in these tests.
const FRAME_LEN_MAX: usize = 1514;

fn guest(directory: &Path, name: &str, accept: Features) -> AnyUserGuest {
    let socket = directory.join(format!("{name}.sock"));
    let options = GuestOptions { accept, ..GuestOptions::default() };
    let attach = || AnyUserGuest::attach(&socket, &options).ok();
    wait_for("the socket", || socket.exists().then_some(()));
    wait_for("a guest", attach)
}

fn config_changed(guest: &mut AnyUserGuest) -> bool {
    let changed = match guest {
        AnyUserGuest::Split(guest) => guest.device().config_changed(),
        AnyUserGuest::Packed(guest) => guest.device().config_changed(),
    };
    changed.expect("connected")
}

fn traffic(guests: &[AnyUserGuest; 2], flow: u64) -> Traffic {
    Traffic::new([guests[0].mac(), guests[1].mac()], flow, FRAME_LEN_MAX)
}

fn two_guests(directory: &Path, accept: Features) -> (Ringway, [AnyUserGuest; 2], Traffic) {
    let port = |name: &str| format!("{name}=vm:{name}.sock");
    // A third port makes it a switch.
    let (a, b) = (port("a"), port("b"));
    let ports = ["--port", &a, "--port", &b, "--port", "idle=vm:idle.sock"];
    let ringway = Ringway::run(directory, &ports);
    let mut guests = [guest(directory, "a", accept), guest(directory, "b", accept)];
    let mut between = traffic(&guests, 1);
    between.settle(&mut guests).expect("they hear each other");
    (ringway, guests, between)
}

#[test]
fn a_thousand_ports_come_and_go_and_others_notice_nothing() {
    for accept in [Features::OFFERED, Features::OFFERED.difference(Features::RING_PACKED)] {
        let directory = tempfile::tempdir().expect("a directory");
        let (ringway, mut guests, mut between) = two_guests(directory.path(), accept);
        let mut client = ringway.connect();
        let socket = directory.path().join("c.sock");
        let add = json!({ "version": 1, "command": "port_add",
            "port": { "name": "c", "vm": socket, "mtu": 9000 } });
        let remove = json!({ "version": 1, "command": "port_remove", "name": "c" });
        let mut before = None;
        for cycle in 0..CYCLES / 2 {
            assert_eq!(client.ask(&add)["ok"], true, "{cycle}");
            // Now and then a guest uses it, with memory, rings and learned addresses.
            let third = cycle.is_multiple_of(25).then(|| {
                let mut third = guest(directory.path(), "c", accept);
                let _ = third.send(&[0xff; 60]);
                third.flush();
                third
            });
            between.exchange(&mut guests, 2).expect("undisturbed");
            assert_eq!(client.ask(&remove)["ok"], true, "{cycle}");
            between.exchange(&mut guests, 2).expect("undisturbed");
            assert!(!socket.exists(), "the place is free at once");
            if let Some(mut third) = third {
                wait_for("the notice", || config_changed(&mut third).then_some(()));
                assert!(!third.config().expect("still there").link_up);
            }
            // Memory and descriptors that were allocated once stay; after that, nothing may grow.
            if cycle == CYCLES / 10 {
                wait_for("the last guest's end", || (ringway.names().len() == 3).then_some(()));
                std::thread::sleep(Duration::from_millis(300));
                before = Some((ringway.fds(), ringway.memory()));
            }
        }
        std::thread::sleep(Duration::from_millis(300));
        let (fds, memory) = before.expect("measured");
        assert_eq!(ringway.fds(), fds);
        let now = ringway.memory();
        assert_eq!(now.files, memory.files, "the memory of a guest stays mapped");
        // Stacks and heaps of threads that have ended are kept for others, a few more when many end
        // at a time; what a cycle leaves behind would be there some hundred times.
        assert!(now.others < memory.others + CYCLES / 10, "{memory:?}, now {now:?}");
        let grown_kib = now.resident_kib.saturating_sub(memory.resident_kib);
        assert!(grown_kib < 1024, "{memory:?}, now {now:?}");
        assert_eq!(between.lost(), 0);
        assert_eq!(ringway.names(), ["a", "b", "idle"]);
    }
}

#[test]
fn a_guest_is_told_of_its_link_and_its_mtu() {
    let directory = tempfile::tempdir().expect("a directory");
    let (ringway, mut guests, mut between) = two_guests(directory.path(), Features::OFFERED);
    assert!(!config_changed(&mut guests[0]));
    let told = ringway.told(&["port", "set", "a", "link=down"]);
    assert_eq!(told, "a: changed, and its guest was told\n");
    assert!(config_changed(&mut guests[0]));
    assert!(!guests[0].config().expect("connected").link_up);
    // Whatever is sent now is gone: towards it, and from it.
    let broadcast = [0xff; 60];
    for guest in &mut guests {
        let _ = guest.send(&broadcast).expect("sent");
        guest.flush();
        wait_for("taken", || {
            guest.wait_room(Duration::from_millis(50)).expect("fine").then_some(())
        });
    }
    assert!(guests[0].receive().expect("fine").is_none());
    assert!(guests[1].receive().expect("fine").is_none());
    let told = ringway.told(&["port", "set", "a", "link=up", "mtu=1400"]);
    assert_eq!(told, "a: changed, and its guest was told\n");
    assert!(config_changed(&mut guests[0]));
    let config = guests[0].config().expect("connected");
    assert!(config.link_up);
    assert_eq!(config.mtu, 1400);
    between.settle(&mut guests).expect("they hear each other again");
    between.exchange(&mut guests, 100).expect("undisturbed");
    let told = ringway.told(&["port", "set", "b", "packed=off", "mac=52:54:00:00:00:99"]);
    assert_eq!(told, "b: changed; for the next guest that connects: mac packed\n");
    assert!(!config_changed(&mut guests[1]));
    between.exchange(&mut guests, 100).expect("undisturbed");
}

#[test]
fn a_rule_is_felt_at_once_and_a_bad_one_changes_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let (ringway, mut guests, mut between) = two_guests(directory.path(), Features::OFFERED);
    for name in ["a", "b"] {
        assert_eq!(
            ringway.told(&["port", "set", name, "isolated=on"]),
            format!("{name}: changed\n")
        );
    }
    let _ = guests[0].send(&[0xff; 60]).expect("sent");
    guests[0].flush();
    guests[1].wait_call(Duration::from_millis(100)).expect("fine");
    while let Some((_, packet)) = guests[1].receive().expect("fine") {
        // Packets that were sent to settle are still there.
        assert!(packet != [0xff; 60], "it went from one isolated port to another");
    }
    guests[1].flush();
    let complaint = ringway.refused(&["port", "set", "a", "uplink=on"]);
    assert!(complaint.contains("either isolated"), "{complaint}");
    ringway.told(&["port", "set", "a", "isolated=default", "uplink=on", "rate_to_guest=1G"]);
    between.settle(&mut guests).expect("an uplink is reached");
    between.exchange(&mut guests, 100).expect("undisturbed");
    let file = ringway.told(&["port", "list", "--toml"]);
    assert!(file.contains("uplink = true\n") && file.contains("rate_to_guest = 1000000000\n"));
    // The address of another port's station cannot be fixed twice: nothing is left of the port.
    ringway.told(&["port", "set", "b", "static_macs=02:00:00:00:00:07"]);
    let complaint = ringway.refused(&["port", "add", "c=vm:c.sock,static_macs=02:00:00:00:00:07"]);
    assert!(complaint.contains("belong to another port"), "{complaint}");
    assert_eq!(ringway.names(), ["a", "b", "idle"]);
    ringway.told(&["port", "add", "c=vm:c.sock"]);
    between.exchange(&mut guests, 100).expect("undisturbed");
}

#[test]
fn what_a_removed_port_had_learned_and_held_is_forgotten() {
    let directory = tempfile::tempdir().expect("a directory");
    let (ringway, mut guests, mut between) = two_guests(directory.path(), Features::OFFERED);
    let [first, second] = [guests[0].mac(), guests[1].mac()];
    // The address of b was configured for c: traffic for it goes there, until c is removed.
    let colons = second.map(|byte| format!("{byte:02x}")).join(":");
    ringway.told(&["port", "add", &format!("c=vm:c.sock,static_macs={colons}")]);
    let mut third = guest(directory.path(), "c", Features::OFFERED);
    let mut frame = [0; 60];
    frame[..6].copy_from_slice(&first);
    frame[6..12].copy_from_slice(&second);
    wait_for("c's claim", || {
        let _ = third.send(&frame).expect("sent");
        third.flush();
        guests[0].wait_call(Duration::from_millis(20)).expect("fine");
        guests[0].receive().expect("fine").filter(|(_, packet)| packet[..] == frame[..]).map(drop)
    });
    drop(third);
    // A port with a guest would stay for a moment, and its configuration with it.
    wait_for("c's guest to go", || (ringway.state("c")? == "waiting").then_some(()));
    ringway.told(&["port", "remove", "c"]);
    // The claim may have been made more often than it was seen.
    while guests[0].receive().expect("fine").is_some() {}
    between.exchange(&mut guests, 50).expect("what c had claimed is forgotten");
}

#[test]
fn mistakes_are_told_as_they_were_typed_and_change_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let ringway = Ringway::run(directory.path(), &["--port", "a=vm:a.sock"]);
    for (typed, part) in [
        (&["port", "add", "a=vm:other.sock"][..], "another port is called a already"),
        (&["port", "add", "b=vm:a.sock"], "is at "),
        (&["port", "add", "b=vm:control.sock"], "is the control socket"),
        (&["port", "add", "b=vm:b.sock,paked=off"], "did you mean packed?"),
        (&["port", "add", "b=vm:no/such/directory.sock"], "make its directory first"),
        (&["port", "remove", "b"], "there is no port called \"b\": use one of a"),
        (&["port", "set", "bb", "mtu=1500"], "no port called \"bb\": use one of a"),
        (&["port", "set", "a", "mtu=1"], "mtu=1: \"1\" is not an MTU"),
        (&["port", "set", "a", "vm=b.sock"], "remove the port and add it again"),
        (&["port", "set", "a", "csum=off", "host_tso4=on"], "turn on csum"),
        (&["attach", "b"], "there is no port called \"b\": use one of a"),
        (&["port", "list", "b"], "there is no port called \"b\": use one of a"),
        (&["stats", "aa"], "there is no port called \"aa\": use one of a"),
        (&["why", "b"], "there is no port called \"b\": use one of a"),
        (&["why", "a", "b"], "use one of a (and it is no address)"),
        (&["trace", "b"], "there is no port called \"b\": use one of a"),
        (&["trace", "a", "dst=b"], "there is no port called \"b\": use one of a"),
        (&["log", "loud"], "refused: loud: \"loud\" is not a level: write one of off error"),
    ] {
        let complaint = ringway.refused(typed);
        assert!(complaint.contains(part), "{typed:?}: {complaint}");
    }
    assert_eq!(ringway.names(), ["a"]);
    assert_eq!(ringway.told(&["port", "list", "--toml"]).lines().next(), Some("[port.a]"));
    ringway.told(&["port", "add", "b=vm:b.sock,mtu=9000,packed=off"]);
    assert_eq!(ringway.state("b").as_deref(), Some("waiting"));
    assert!(directory.path().join("b.sock").exists());
    let table = ringway.told(&["port", "list"]);
    assert!(table.contains("mtu=9000") && table.contains("packed=off"), "{table}");
    ringway.told(&["port", "remove", "b"]);
    assert!(!directory.path().join("b.sock").exists());
}

#[test]
fn only_the_owner_may_connect_unless_more_is_permitted() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().expect("a directory");
    let ports = ["--port", "a=vm:a.sock", "--port", "b=vm:b.sock,socket_mode=0666"];
    let ringway = Ringway::run(directory.path(), &ports);
    let mode = |name: &str| {
        let file = std::fs::metadata(directory.path().join(name)).expect("a socket");
        file.permissions().mode() & 0o777
    };
    assert_eq!((mode("a.sock"), mode("b.sock")), (0o600, 0o666));
    ringway.told(&["port", "set", "a", "socket_mode=0660"]);
    ringway.told(&["port", "set", "b", "socket_mode=default"]);
    assert_eq!((mode("a.sock"), mode("b.sock")), (0o660, 0o600));
    let refused = ringway.refused(&["port", "add", "c=vm-connect:c.sock,socket_mode=0660"]);
    assert!(refused.contains("socket_mode belongs to vm"), "{refused}");
}

/// The MAC address that a port's guest is given.
fn mac(ringway: &Ringway, name: &str) -> String {
    let list: serde_json::Value =
        serde_json::from_str(&ringway.told(&["port", "list", "--json"])).expect("JSON");
    let port =
        list["ports"].as_array().expect("ports").iter().find(|it| it["port"]["name"] == name);
    port.expect("that port")["mac"].as_str().expect("an address").to_owned()
}

#[test]
fn addresses_stay_when_other_ports_come_first_and_differ_between_ringways() {
    let directory = tempfile::tempdir().expect("a directory");
    let ringway = Ringway::run(directory.path(), &["--port", "a=vm:a.sock"]);
    let before = mac(&ringway, "a");
    drop(ringway);
    let ports = ["--port", "b=vm:b.sock", "--port", "a=vm:a.sock"];
    let ringway = Ringway::run(directory.path(), &ports);
    assert_eq!(mac(&ringway, "a"), before);
    assert_ne!(mac(&ringway, "b"), before);
    let other = tempfile::tempdir().expect("a directory");
    assert_ne!(mac(&Ringway::run(other.path(), &ports), "a"), before);
}

#[test]
fn two_ports_with_one_address_are_named() {
    let directory = tempfile::tempdir().expect("a directory");
    let ringway = Ringway::run(directory.path(), &["--port", "a=vm:a.sock"]);
    let taken = mac(&ringway, "a");
    let warning = format!("ports a and b have one MAC address, {taken}: every guest needs its own");
    let told = ringway.told(&["port", "add", &format!("b=vm:b.sock,mac={taken}")]);
    assert_eq!(told, format!("b: added\nwarning: {warning}\n"));
    ringway.assert_logged(&warning);
    let file = ringway.told(&["port", "list", "--toml"]);
    let file = format!("[ringway]\ncontrol = {:?}\n{file}", ringway.control());
    let right = format!("file.toml: fine, 2 ports\nfile.toml: warning: {warning}\n");
    assert_eq!(checked(directory.path(), &file), right);
}

/// Both would answer each guest.
#[test]
fn two_routers_in_one_vlan_are_named() {
    let directory = tempfile::tempdir().expect("a directory");
    let ringway = Ringway::run(directory.path(), &["--port", "net=nat:"]);
    let warning = "ports net and net2 are routers in one VLAN, and both answer each guest: write \
                   another vlan= at one of them";
    let told = ringway.told(&["port", "add", "net3=nat:,vlan=7"]);
    assert_eq!(told, "net3: added\n");
    let told = ringway.told(&["port", "add", "net2=nat:"]);
    assert_eq!(told, format!("net2: added\nwarning: {warning}\n"));
    let file =
        "[port.net]\nnat = \"\"\n[port.net2]\nnat = \"\"\n[port.net3]\nnat = \"\"\nvlan = 7\n";
    let right = format!("file.toml: fine, 3 ports\nfile.toml: warning: {warning}\n");
    assert_eq!(checked(directory.path(), file), right);
}

/// The output of `check-config` for a file.
fn checked(directory: &std::path::Path, text: &str) -> String {
    std::fs::write(directory.join("file.toml"), text).expect("a file");
    let mut check = std::process::Command::new(env!("CARGO_BIN_EXE_ringway"));
    let output = check.args(["check-config", "file.toml"]).current_dir(directory).output();
    String::from_utf8_lossy(&output.expect("it ends").stdout).into_owned()
}

#[test]
fn a_forward_that_leads_to_no_port_is_named() {
    let directory = tempfile::tempdir().expect("a directory");
    let ringway = Ringway::run(directory.path(), &["--port", "vm0=vm:a.sock", "--port", "n=nat:"]);
    let forward = |guest: &str| {
        format!("forward=unix:{}:{guest}:80", directory.path().join("web.sock").display())
    };
    let warning =
        format!("{}: there is no port called \"vm1\": did you mean vm0?\n", forward("vm1"));
    let told = ringway.told(&["port", "set", "n", &forward("vm1")]);
    assert_eq!(told, format!("n: changed\nwarning: {warning}"));
    let file = ringway.told(&["port", "list", "--toml"]);
    assert!(checked(directory.path(), &file).ends_with(&format!("warning: {warning}")));
    let gone = forward("vm1").replacen('=', ": ", 1);
    let told = ringway.told(&["port", "set", "n", &forward("vm0")]);
    assert_eq!(told, format!("n: changed; {gone} removed\n"));
}

#[test]
fn what_is_noted_at_ports_is_kept_shown_and_asked_for() {
    let directory = tempfile::tempdir().expect("a directory");
    let ports = ["--port", "a=vm:a.sock,label=tenant:blue+rack:r1", "--port", "b=vm:b.sock"];
    let ringway = Ringway::run(directory.path(), &ports);
    ringway.told(&["port", "set", "b", "label=tenant:blue"]);
    let listed = |arguments: &[&str]| {
        let told = ringway.told(&[&["port", "ls", "--toml"], arguments].concat());
        ["a", "b"].map(|name| told.contains(&format!("[port.{name}]")))
    };
    assert_eq!(listed(&[]), [true, true]);
    assert_eq!(listed(&["--label", "tenant:blue"]), [true, true]);
    assert_eq!(listed(&["--label", "tenant=blue", "--label", "rack=r1"]), [true, false]);
    assert_eq!(listed(&["--label", "tenant:red"]), [false, false]);
    assert!(ringway.told(&["port", "ls"]).contains("label=rack:r1+tenant:blue"));
    let stats: serde_json::Value =
        serde_json::from_str(&ringway.told(&["stats", "--json"])).expect("JSON");
    assert_eq!(stats["ports"][0]["labels"], json!({ "rack": "r1", "tenant": "blue" }));
    assert!(ringway.told(&["metrics"]).contains("{port=\"b\",label_tenant=\"blue\"} 1"));
    ringway.told(&["port", "set", "b", "label=default"]);
    assert_eq!(listed(&["--label", "tenant:blue"]), [true, false]);
    let wrong = ringway.refused(&["port", "ls", "--label", "tenant"]);
    assert!(wrong.contains("write KEY:VALUE"), "{wrong}");
    let wrong = ringway.refused(&["port", "set", "b", "label=a:1+a:2"]);
    assert!(wrong.contains("label a is given twice"), "{wrong}");
}
