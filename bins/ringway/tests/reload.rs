//! SIGHUP: the file's difference is carried out, what is unchanged is not touched, and a bad file
//! changes nothing.

mod common;

use std::fs;
use std::net::TcpListener;
use std::path::Path;

use common::{Ringway, wait_for};
use ringway_testkit::{AnyUserGuest, GuestOptions, Traffic};
use serde_json::Value;

fn write(directory: &Path, text: &str) {
    fs::write(directory.join("ringway.toml"), text).expect("the file");
}

fn port(name: &str, options: &str) -> String {
    format!("[port.{name}]\nvm = \"{name}.sock\"\n{options}\n")
}

#[test]
fn only_the_difference_is_carried_out() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path();
    let stays = port("a", "") + &port("b", "mtu = 1400");
    write(path, &(stays.clone() + &port("old", "") + &port("changed", "link = \"down\"")));
    let ringway = Ringway::run(path, &["--config", "ringway.toml"]);
    assert_eq!(ringway.names(), ["a", "b", "old", "changed"]);
    ringway.told(&["port", "add", "mine=vm:mine.sock"]);
    let attach = |name: &str| {
        let socket = path.join(format!("{name}.sock"));
        wait_for("a guest", || AnyUserGuest::attach(&socket, &GuestOptions::default()).ok())
    };
    let mut guests = [attach("a"), attach("b")];
    let mut traffic = Traffic::new([guests[0].mac(), guests[1].mac()], 1, 1400);
    traffic.settle(&mut guests).expect("they hear each other");
    // While they talk: one goes, one comes, one changes, one moves to another socket.
    let moved = "[port.changed]\nvm = \"elsewhere.sock\"\n";
    write(path, &(port("new", "packed = false") + &stays + moved));
    ringway.reload();
    traffic.exchange(&mut guests, 200).expect("undisturbed");
    let mut names = ringway.names();
    names.sort_unstable();
    assert_eq!(names, ["a", "b", "changed", "mine", "new"]);
    assert!(!path.join("old.sock").exists() && !path.join("changed.sock").exists());
    assert!(path.join("new.sock").exists() && path.join("elsewhere.sock").exists());
    // The same file again changes nothing, and takes nothing back that was set meanwhile.
    ringway.told(&["port", "set", "new", "mtu=2000"]);
    ringway.reload();
    assert!(ringway.told(&["port", "list", "--toml"]).contains("mtu = 2000"));
    // An option of a running port: told at once.
    write(path, &(port("new", "packed = false") + &port("a", "link = \"down\"") + &port("b", "")));
    ringway.reload();
    assert!(!guests[0].config().expect("connected").link_up);
    assert!(guests[1].config().expect("connected").link_up);
}

#[test]
fn a_bad_file_changes_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path();
    write(path, &port("a", ""));
    let ringway = Ringway::run(path, &["--config", "ringway.toml"]);
    ringway.told(&["port", "add", "mine=vm:mine.sock"]);
    // Its place, under another name.
    let taken = "[port.other]\nvm = \"mine.sock\"\n".to_string();
    let bad = [
        "[port.a\n".to_string(),
        port("b", "paked = true"),
        port("b", "") + &port("c", "mtu = 1"),
        taken,
        port("b", "") + "[port.c]\nvm = \"b.sock\"\n",
    ];
    for text in bad {
        write(path, &text);
        ringway.reload();
        assert_eq!(ringway.names(), ["a", "mine"], "{text}");
        assert!(path.join("a.sock").exists());
    }
    fs::remove_file(path.join("ringway.toml")).expect("it was there");
    ringway.reload();
    assert_eq!(ringway.names(), ["a", "mine"]);
    ringway.assert_logged("did you mean packed?");
    // The reader of a pipe waits for its writer.
    let place = path.join("ringway.toml");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mkfifoat(rustix::fs::CWD, &place, mode).expect("a pipe");
    ringway.reload();
    assert_eq!(ringway.names(), ["a", "mine"]);
    ringway.assert_logged("ringway.toml: is no file any more");
}

#[test]
fn the_control_socket_moves_and_changes_its_permissions() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path();
    write(path, &port("a", ""));
    let ringway = Ringway::run(path, &["--config", "ringway.toml"]);
    let mode = || {
        let file = fs::metadata(path.join("control.sock")).expect("a socket");
        file.permissions().mode() & 0o777
    };
    assert_eq!(mode(), 0o600);
    write(path, &("[ringway]\ncontrol_mode = \"0640\"\n".to_string() + &port("a", "")));
    ringway.reload();
    assert_eq!(mode(), 0o640);
    // The flag counts more than the file.
    write(path, &("[ringway]\ncontrol = \"other.sock\"\n".to_string() + &port("a", "")));
    ringway.reload();
    assert_eq!(mode(), 0o600);
    assert!(!path.join("other.sock").exists());
}

#[test]
fn workers_stay_and_a_wish_for_others_is_answered() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path();
    write(path, &("[ringway]\nworkers = 2\n".to_string() + &port("a", "")));
    let ringway = Ringway::run(path, &["--config", "ringway.toml"]);
    ringway.reload();
    assert!(!ringway.log().contains("started again"), "{}", ringway.log());
    write(path, &("[ringway]\nworkers = 1\npin = [0]\n".to_string() + &port("b", "")));
    for times in 1..=2 {
        ringway.reload();
        for key in ["workers", "pin"] {
            let line = format!("{key} stays as it is until ringway is started again");
            assert_eq!(ringway.log().matches(&line).count(), times, "{}", ringway.log());
        }
    }
    assert_eq!(ringway.names(), ["b"], "the rest is carried out");
}

#[test]
fn an_empty_file_is_a_switch_that_waits_for_ports() {
    let directory = tempfile::tempdir().expect("a directory");
    write(directory.path(), "");
    let ringway = Ringway::run(directory.path(), &["--config", "ringway.toml"]);
    assert!(ringway.names().is_empty());
    ringway.told(&["port", "add", "a=vm:a.sock"]);
    assert_eq!(ringway.names(), ["a"]);
}

/// The same file, once what was in its way is gone.
#[test]
fn what_could_not_be_changed_is_tried_again() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path();
    write(path, &port("a", ""));
    let ringway = Ringway::run(path, &["--config", "ringway.toml"]);
    ringway.told(&["port", "add", "mine=vm:mine.sock,static_macs=02:00:00:00:00:07"]);
    write(path, &port("a", "static_macs = [\"02:00:00:00:00:07\"]\nmtu = 1400"));
    let has_changed = || ringway.told(&["port", "list", "--toml"]).contains("mtu = 1400");
    ringway.reload();
    assert!(!has_changed(), "the address is another port's");
    ringway.told(&["port", "remove", "mine"]);
    ringway.reload();
    assert!(has_changed());
}

/// As it is for a moment while it is written, or where the disk is full.
#[test]
fn a_file_that_became_empty_removes_nothing_unless_it_says_so() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path();
    write(path, &port("a", ""));
    let ringway = Ringway::run(path, &["--config", "ringway.toml"]);
    for text in ["", "# nothing yet\n", "[ringway]\n", "[ringway]\nno_ports = false\n"] {
        write(path, text);
        ringway.reload();
        assert_eq!(ringway.names(), ["a"], "{text}");
    }
    ringway.assert_logged("write no_ports = true");
    write(path, &("[ringway]\nno_ports = true\n".to_string() + &port("a", "")));
    ringway.reload();
    ringway.assert_logged("remove it, or the ports");
    write(path, "[ringway]\nno_ports = true\n");
    ringway.reload();
    assert!(ringway.names().is_empty());
}

/// Errors that show only when it is tried fail the command: some at once, some at the data plane.
#[test]
fn what_cannot_be_carried_out_fails_the_command_and_stays_as_it_was() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path();
    write(path, &(port("a", "") + &port("b", "")));
    let ringway = Ringway::run(path, &["--config", "ringway.toml"]);
    ringway.told(&["port", "add", "mine=vm:mine.sock,static_macs=02:00:00:00:00:07"]);
    let moved = "[port.a]\nvm = \"missing/a.sock\"\n".to_owned();
    let refused = port("b", "static_macs = [\"02:00:00:00:00:07\"]");
    let new = "[port.c]\nvm = \"missing/c.sock\"\n";
    write(path, &(moved + &refused + new + &port("d", "")));
    for _ in 0..2 {
        let why = ringway.refused(&["reload"]);
        assert!(why.contains("port a stays vm:"), "{why}");
        assert!(why.contains("missing/a.sock"), "{why}");
        assert!(why.contains("port b stays as it was: "), "{why}");
        assert!(why.contains("1 of the static MAC addresses belong to another port"), "{why}");
        assert!(why.contains("port c does not work: "), "{why}");
        assert!(why.contains("missing/c.sock"), "{why}");
        assert!(why.contains("everything else in ") && why.contains("is carried out"), "{why}");
    }
    assert_eq!(ringway.state("a").as_deref(), Some("waiting"));
    assert!(path.join("a.sock").exists() && path.join("d.sock").exists());
    let json = ringway.refused(&["reload", "--json"]);
    assert!(json.starts_with("{\"") && json.contains("\"ok\":false"), "{json}");
    fs::create_dir(path.join("missing")).expect("a directory");
    ringway.told(&["port", "remove", "mine"]);
    let told = ringway.told(&["reload"]);
    assert!(told.contains("a: kind: vm:a.sock → vm:missing/a.sock"), "{told}");
    assert!(told.contains("b: static_macs: default → 02:00:00:00:00:07"), "{told}");
    assert!(!told.contains("workers"), "{told}");
    assert!(!path.join("a.sock").exists() && path.join("missing/a.sock").exists());
}

/// A guest whose port cannot move keeps its link; ports can take each other's places.
#[test]
fn a_port_moves_when_its_new_place_is_there() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path();
    write(path, &(port("a", "") + &port("b", "")));
    let ringway = Ringway::run(path, &["--config", "ringway.toml"]);
    let guest = AnyUserGuest::attach(&path.join("a.sock"), &GuestOptions::default());
    let _guest = guest.expect("a guest");
    wait_for("a link", || (ringway.state("a")? == "running").then_some(()));
    write(path, &("[port.a]\nvm = \"missing/a.sock\"\n".to_owned() + &port("b", "")));
    ringway.refused(&["reload"]);
    assert_eq!(ringway.state("a").as_deref(), Some("running"));
    let swapped = "[port.a]\nvm = \"b.sock\"\n[port.b]\nvm = \"a.sock\"\n";
    write(path, swapped);
    let told = ringway.told(&["reload"]);
    assert_eq!(told.lines().count(), 2, "{told}");
    assert_eq!(ringway.state("b").as_deref(), Some("waiting"));
    // The same place, spelled in another way.
    write(path, &swapped.replace("\"b.sock\"", "\"./b.sock\""));
    ringway.told(&["reload"]);
    // The place is not free, because the port that is there cannot move.
    write(path, "[port.a]\nvm = \"a.sock\"\n[port.b]\nvm = \"missing/b.sock\"\n");
    let why = ringway.refused(&["reload"]);
    assert!(why.contains("port a stays vm:") && why.contains("port b stays vm:"), "{why}");
    assert_eq!(ringway.state("a").as_deref(), Some("waiting"));
    assert_eq!(ringway.state("b").as_deref(), Some("waiting"));
    assert!(path.join("a.sock").exists() && path.join("b.sock").exists());
}

#[test]
fn what_stays_until_the_next_start_is_a_warning() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path();
    write(path, &port("a", ""));
    let ringway = Ringway::run(path, &["--config", "ringway.toml"]);
    write(path, &("[ringway]\nworkers = 2\n".to_owned() + &port("a", "packed = false")));
    let told = ringway.told(&["reload"]);
    assert!(told.contains("warning: workers stays as it is until"), "{told}");
    assert!(told.contains("for the next guest that connects: packed"), "{told}");
    assert!(told.contains("a: packed: "), "{told}");
    assert!(!told.contains("workers: "), "{told}");
}

fn forwards(ringway: &Ringway) -> [usize; 2] {
    let stats: Value = serde_json::from_str(&ringway.told(&["stats", "--json"])).expect("JSON");
    let bound = |port: &Value| port["nat"]["forwards"].as_array().map_or(0, Vec::len);
    [bound(&stats["ports"][0]), bound(&stats["ports"][1])]
}

/// Routers are told one after the other: the first one is told when the second one has let go.
#[test]
fn places_of_forwards_move_between_routers() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path();
    let taken = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").expect("a port"));
    let [one, two] = taken.map(|it| it.local_addr().expect("an address").port());
    let unix = path.join("web.sock").display().to_string();
    let places = [
        format!("\"tcp:127.0.0.1:{one}:vm0:80\", \"unix:{unix}:vm0:80\""),
        format!("\"tcp:127.0.0.1:{two}:vm0:80\", \"udp:127.0.0.1:{two}:vm0:80\""),
    ];
    let file = |a: &str, b: &str| {
        let router = |name: &str, vlan: u16, forwards: &str| {
            let line = format!("forward = [{forwards}]\n");
            let line = if forwards.is_empty() { "" } else { &line };
            format!("[port.{name}]\nnat = \"\"\nvlan = {vlan}\n{line}")
        };
        write(path, &(router("a", 7, a) + &router("b", 8, b)));
    };
    write(path, "[ringway]\nno_ports = true\n");
    let ringway = Ringway::run(path, &["--config", "ringway.toml"]);
    file(&places[0], &places[1]);
    // One data plane that may open sockets is started for both.
    ringway.told(&["reload"]);
    assert_eq!(forwards(&ringway), [2, 2]);
    for round in 0..4 {
        let [a, b] = [round % 2, (round + 1) % 2].map(|at| &places[at]);
        file(b, a);
        let told = ringway.told(&["reload"]);
        assert_eq!(told.lines().count(), 2, "{told}");
        assert_eq!(forwards(&ringway), [2, 2], "{}", ringway.log());
        // All of one go to the other one.
        file(&(a.clone() + ", " + b), "");
        ringway.told(&["reload"]);
        assert_eq!(forwards(&ringway), [4, 0]);
        file("", &(a.clone() + ", " + b));
        ringway.told(&["reload"]);
        assert_eq!(forwards(&ringway), [0, 4]);
    }
    // Of a file that says nothing new nothing is carried out.
    ringway.told(&["port", "set", "a", &format!("forward=tcp:127.0.0.2:{one}:vm0:80")]);
    ringway.told(&["reload"]);
    assert_eq!(forwards(&ringway), [1, 4]);
}
