//! Where a router listens for guests: places that are taken are tried again.

mod common;
#[path = "common/nat_guest.rs"]
mod nat_guest;

use std::io::{ErrorKind, Read};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use common::{Ringway, wait_for};
use nat_guest::Guest;
use ringway_testkit::GuestOptions;
use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};

fn nat(ringway: &Ringway) -> Value {
    let stats: Value = serde_json::from_str(&ringway.told(&["stats", "--json"])).expect("JSON");
    stats["ports"][0]["nat"].clone()
}

fn count(list: &Value) -> usize {
    list.as_array().map_or(0, Vec::len)
}

/// The name of this process.
fn program() -> String {
    std::fs::read_to_string("/proc/self/comm").expect("a name").trim_end().to_owned()
}

#[test]
fn a_place_that_is_taken_is_listened_at_when_it_is_free() {
    let directory = tempfile::tempdir().expect("a directory");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("an address").port();
    let forward = format!("tcp:127.0.0.1:{port}:vm0:80");
    let router = format!("net=nat:,forward={forward}");
    let ringway = Ringway::run(directory.path(), &["--port", &router]);
    let now = nat(&ringway);
    assert_eq!(count(&now["forwards"]), 0, "{now}");
    let failed = now["failed_forwards"][0].as_str().expect("a text").to_owned();
    assert!(failed.contains(&format!("127.0.0.1:{port}")) && failed.contains("in use"), "{failed}");
    assert!(ringway.told(&["stats"]).contains("not yet"), "for people too");
    let shown = ringway.told(&["port", "show", "net", "--json"]);
    let shown: Value = serde_json::from_str(&shown).expect("JSON");
    let forward_shown = &shown["forwards"][0];
    assert_eq!((&forward_shown["state"], &forward_shown["to"]), (&"failed".into(), &80.into()));
    let user = format!(": used by {} ({})", program(), std::process::id());
    assert!(forward_shown["error"].as_str().is_some_and(|why| why.ends_with(&user)), "{shown}");
    assert_eq!((count(&shown["guests"]), &shown["flows_count"]), (0, &0.into()));
    assert!(ringway.told(&["port", "show", "net"]).contains("not yet: "), "for people too");
    // It hinders no other change; what is newly wanted and taken does.
    let other = TcpListener::bind("127.0.0.1:0").expect("a port");
    let wanted = format!("{forward}+tcp:{}:vm0:81", other.local_addr().expect("an address"));
    let refused = ringway.refused(&["port", "set", "net", &format!("forward={wanted}")]);
    assert!(refused.contains("in use") && refused.contains(&user), "{refused}");
    drop(other);
    ringway.told(&["port", "set", "net", &format!("forward={wanted}")]);
    assert_eq!(count(&nat(&ringway)["forwards"]), 1);
    drop(taken);
    wait_for("both places", || (count(&nat(&ringway)["forwards"]) == 2).then_some(()));
    assert_eq!(count(&nat(&ringway)["failed_forwards"]), 0);
}

#[test]
fn forwards_are_added_removed_and_listed_and_what_goes_is_said() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| format!("unix:{}", directory.path().join(name).display());
    let [web, ssh] = [path("web.sock"), path("ssh.sock")];
    let ports = ["--port", "vm0=vm:a.sock", "--port", "net=nat:"];
    let ringway = Ringway::run(directory.path(), &ports);
    let forward = |words: &[&str]| ringway.told(&[&["forward"], words].concat());
    assert_eq!(forward(&["list"]), "no place of this machine leads into a guest\n");
    forward(&["add", "net", &format!("{web}:vm0:80")]);
    assert_eq!(forward(&["add", "net", &format!("{ssh}:vm0:22")]), "net: changed\n");
    let listed =
        || -> Value { serde_json::from_str(&forward(&["list", "net", "--json"])).expect("JSON") };
    assert_eq!(count(&listed()["forwards"]), 2, "the first one stays");
    assert_eq!(listed()["forwards"][1]["to"], 22);
    assert!(forward(&["ls"]).contains("vm0 has no address"), "{}", forward(&["ls"]));
    let again = ringway.refused(&["forward", "add", "net", &format!("{web}:vm0:80")]);
    assert!(again.contains("is there already"), "{again}");
    assert!(ringway.refused(&["forward", "add", "vm0", "tcp:1:vm0:1"]).contains("no router"));
    // A user that sets the option perhaps means to add to it.
    let set = ringway.told(&["port", "set", "net", &format!("forward={ssh}:vm0:22")]);
    assert_eq!(set, format!("net: changed; forward: {web}:vm0:80 removed\n"));
    assert_eq!(
        forward(&["rm", "net", &ssh]),
        format!("net: changed; forward: {ssh}:vm0:22 removed\n")
    );
    assert_eq!(count(&listed()["forwards"]), 0);
}

/// The stations behind it are asked of routers only, and only of ports that exist; others are shown
/// as `ringway stats` has them.
#[test]
fn what_is_no_router_has_no_guests_behind_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let ports = ["--port", "net=nat:", "--port", "vm0=vm:"];
    let ringway = Ringway::run(directory.path(), &ports);
    let refused = ringway.refused(&["port", "show", "vm0", "--guest", "vm0"]);
    assert!(refused.contains("no router"), "{refused}");
    let shown = ringway.told(&["port", "show", "vm0"]);
    assert!(shown.contains("waiting") && !shown.contains("nat:"), "{shown}");
    let refused = ringway.refused(&["port", "show", "vm7"]);
    assert!(refused.contains("vm7"), "{refused}");
    let listed = ringway.told(&["port", "ls", "vm0"]);
    assert!(listed.contains("vm0") && !listed.contains("nat:"), "{listed}");
    let refused = ringway.refused(&["port", "show", "net", "--guest", "vm1"]);
    assert!(refused.contains("did you mean vm0?"), "{refused}");
    let shown = ringway.told(&["port", "show", "net", "--guest", "vm0"]);
    assert_eq!(shown, "no guest has an address\n0 flows\n");
}

/// Where a forward of datagrams goes, its place is free at once, and others come to their guest.
#[test]
fn places_of_datagrams_come_and_go() {
    let directory = tempfile::tempdir().expect("a directory");
    let free = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let at = free.local_addr().expect("an address");
    drop(free);
    let router = format!("net=nat:,forward=udp:{at}:vm0:53");
    let ringway = Ringway::run(directory.path(), &["--port", &router]);
    assert_eq!(nat(&ringway)["forwards"][0], format!("udp {at} to vm0:53"));
    let client = UdpSocket::bind("127.0.0.1:0").expect("a port");
    for _ in 0..1000 {
        // No guest has an address: they are dropped, and nothing stays behind.
        client.send_to(b"?", at).expect("it listens");
    }
    ringway.told(&["port", "set", "net", "forward=default"]);
    UdpSocket::bind(at).expect("its place is free");
}

/// Two clients change a router at the same time. The first one's change is refused: what the second
/// one has asked for is told as it is, done or not.
#[test]
fn a_change_that_is_refused_takes_no_later_one_back() {
    let directory = tempfile::tempdir().expect("a directory");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let free = TcpListener::bind("127.0.0.1:0").expect("a port");
    let [not, well] = [&taken, &free].map(|it| format!("tcp:{}:vm0:80", it.local_addr().unwrap()));
    drop(free);
    let ringway = Ringway::run(directory.path(), &["--port", "net=nat:"]);
    let signal = |signal| kill_process(ringway.data_plane(), signal).expect("it runs");
    let mut clients = [ringway.connect(), ringway.connect()];
    for (options, is_done, forwards) in [
        (json!({ "label": ["tenant:blue"] }), false, Value::Null),
        (json!({ "forward": [well] }), true, json!([well])),
    ] {
        signal(Signal::STOP);
        for (client, options) in clients.iter_mut().zip([json!({ "forward": [not] }), options]) {
            let change = json!({
                "version": 1, "command": "port_set", "name": "net", "options": options,
            });
            client.send(format!("{change}\n").as_bytes()).expect("connected");
            std::thread::sleep(Duration::from_millis(100));
        }
        signal(Signal::CONT);
        let done = clients.each_mut().map(|client| {
            let answer: Value = serde_json::from_str(&client.line()).expect("JSON");
            answer["ok"] == true
        });
        assert_eq!(done, [false, is_done]);
        let listed = ringway.told(&["port", "list", "net", "--json"]);
        let listed: Value = serde_json::from_str(&listed).expect("JSON");
        assert_eq!(listed["ports"][0]["port"]["forward"], forwards, "{listed}");
    }
    assert_eq!(count(&nat(&ringway)["forwards"]), 1);
}

/// Its port is gone when that is told, and another one has its number.
#[test]
fn a_change_that_is_refused_changes_no_other_port() {
    let directory = tempfile::tempdir().expect("a directory");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let forward = format!("tcp:{}:vm0:80", taken.local_addr().expect("an address"));
    let ringway = Ringway::run(directory.path(), &["--port", "net=nat:"]);
    let signal = |signal| kill_process(ringway.data_plane(), signal).expect("it runs");
    signal(Signal::STOP);
    let requests = [
        json!({ "command": "port_set", "name": "net", "options": { "forward": [forward] } }),
        json!({ "command": "port_remove", "name": "net" }),
        json!({ "command": "port_add", "port": { "name": "new", "nat": "", "vlan": 7 } }),
    ];
    let clients = requests.map(|mut request| {
        let mut client = ringway.connect();
        request["version"] = 1.into();
        client.send(format!("{request}\n").as_bytes()).expect("connected");
        std::thread::sleep(Duration::from_millis(100));
        client
    });
    signal(Signal::CONT);
    for mut client in clients {
        assert!(client.line().contains("\"ok\""), "each is answered");
    }
    assert_eq!(ringway.names(), ["new"], "{}", ringway.log());
}

/// No guest has an address here: who is let in is sent away again.
#[track_caller]
fn assert_served(path: &Path) {
    let mut stream = UnixStream::connect(path).expect("it listens");
    stream.set_read_timeout(Some(common::LIMIT)).expect("a timeout");
    let read = std::io::Read::read(&mut stream, &mut [0]);
    assert!(matches!(read, Ok(0)), "a data plane takes it: {read:?}");
}

/// They are made, opened by others, moved and removed while data planes end and are replaced.
#[test]
fn unix_sockets_lead_into_guests() {
    let directory = tempfile::tempdir().expect("a directory");
    let [one, two] = ["one.sock", "two.sock"].map(|name| directory.path().join(name));
    let forward = |path: &Path, to: u16| format!("forward=unix:{}:vm0:{to}", path.display());
    let mode = |path: &Path| path.metadata().expect("a file").permissions().mode() & 0o777;
    let router = format!("net=nat:,{},socket_mode=0620", forward(&one, 80));
    let mut ringway = Ringway::run(directory.path(), &["--port", &router]);
    assert_eq!(mode(&one), 0o620);
    assert_served(&one);
    assert_eq!(nat(&ringway)["forwards"][0], format!("unix {} to vm0:80", one.display()));
    let shown = ringway.told(&["port", "show", "net", "--json"]);
    let shown: Value = serde_json::from_str(&shown).expect("JSON");
    let (forward_shown, path) = (&shown["forwards"][0], one.to_str().expect("a text"));
    let parts = [&forward_shown["protocol"], &forward_shown["at"], &forward_shown["state"]];
    assert_eq!(parts, ["unix", path, "bound"]);
    // It stays with the next data plane, and with the next supervisor.
    kill_process(ringway.data_plane(), Signal::KILL).expect("it runs");
    assert_served(&one);
    ringway.assert_logged("a new data plane serves");
    ringway.told(&["upgrade"]);
    assert_served(&one);
    ringway.told(&["port", "set", "net", "socket_mode=0600"]);
    assert_eq!(mode(&one), 0o600);
    ringway.told(&["port", "set", "net", &forward(&one, 81)]);
    assert_eq!(nat(&ringway)["forwards"][0], format!("unix {} to vm0:81", one.display()));
    // A change that cannot be followed changes nothing.
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = taken.local_addr().expect("an address");
    let both = format!("{}+tcp:{taken}:vm0:80", forward(&two, 80));
    assert!(ringway.refused(&["port", "set", "net", &both]).contains("in use"));
    assert!(!two.exists());
    assert_served(&one);
    let nowhere = forward(&directory.path().join("none/x.sock"), 80);
    let refused = ringway.refused(&["port", "set", "net", &nowhere]);
    assert!(refused.contains("none/x.sock: cannot listen: No such"), "{refused}");
    ringway.told(&["port", "set", "net", &forward(&two, 80)]);
    assert!(!one.exists());
    assert_served(&two);
    ringway.told(&["port", "remove", "net"]);
    assert!(!two.exists());
    ringway.told(&["port", "add", &format!("net=nat:,{}", forward(&two, 80))]);
    assert_served(&two);
    ringway.must_end_soon(common::LIMIT);
    assert!(!two.exists());
}

#[test]
fn a_unix_socket_that_is_in_use_is_made_when_it_is_free() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("web.sock");
    let taken = UnixListener::bind(&path).expect("a socket");
    let router = format!("net=nat:,forward=unix:{}:vm0:80", path.display());
    let ringway = Ringway::run(directory.path(), &["--port", &router]);
    assert!(ringway.told(&["port", "show", "net"]).contains("not made yet: the log says why"));
    ringway.assert_logged("a running instance listens here");
    drop(taken);
    wait_for("the socket", || (count(&nat(&ringway)["forwards"]) == 1).then_some(()));
    assert_served(&path);
}

/// It has a lease, and its port no guest: nothing would answer for half a minute.
#[test]
fn a_client_is_reset_at_once_where_no_guest_runs() {
    let directory = tempfile::tempdir().expect("a directory");
    let free = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = free.local_addr().expect("an address");
    drop(free);
    let router = format!("net=nat:,forward=tcp:{at}:a:80");
    let ringway = Ringway::run(directory.path(), &["--port", "a=vm:a.sock", "--port", &router]);
    let guest = Guest::new(directory.path(), "a", &GuestOptions::default());
    drop(guest);
    wait_for("its end", || (ringway.state("a").as_deref() == Some("waiting")).then_some(()));
    let mut client = TcpStream::connect(at).expect("it listens");
    client.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
    let read = client.read(&mut [0]).expect_err("no guest");
    assert_eq!(read.kind(), ErrorKind::ConnectionReset, "{read}");
    assert!(ringway.told(&["port", "show", "net"]).contains("10.0.2.15"), "it has its lease");
}
