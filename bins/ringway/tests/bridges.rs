//! A bridge of this machine behind a tap: it hears of guests that are silent, and forgets those
//! that have left at once, and nothing else.

mod common;

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use common::{Ringway, wait_for};
use ringway_testkit::frames::arp_request;
use ringway_testkit::{AnyUserGuest, GuestOptions};

fn guest(directory: &Path, name: &str) -> AnyUserGuest {
    let socket = directory.join(format!("{name}.sock"));
    wait_for("a guest", || AnyUserGuest::attach(&socket, &GuestOptions::default()).ok())
}

#[test]
fn stations_come_and_leave_the_bridge_with_their_ports() {
    let directory = tempfile::tempdir().expect("a directory");
    let ports = [
        "a=vm:a.sock,mac=52:54:00:00:00:01",
        "b=vm:b.sock,mac=52:54:00:00:00:02",
        "m=vm:m.sock,mtu=auto",
        "c=vm:c.sock,locked_mac=52:54:00:00:00:03,locked_ips=10.9.0.3+fd09::3",
        "up=tap:rwt0,fdb=sync,neighbours=sync",
    ];
    let arguments: Vec<&str> = ports.iter().flat_map(|port| ["--port", port]).collect();
    let Some(ringway) = Ringway::run_in_namespace(directory.path(), &arguments) else {
        println!("skipped: no network namespace or no /dev/net/tun here");
        return;
    };
    ringway.inside(&["ip", "link", "add", "br0", "type", "bridge", "forward_delay", "0"]);
    if !ringway.inside(&["ip", "link", "show", "br0"]).contains("br0") {
        println!("skipped: no bridges here");
        return;
    }
    for words in ["link set rwt0 master br0", "link set br0 up", "link set rwt0 up"] {
        ringway.inside(&[&["ip"][..], &words.split(' ').collect::<Vec<_>>()].concat());
    }
    let known = |number: u8| {
        let mac = format!("52:54:00:00:00:{number:02x}");
        ringway.inside(&["bridge", "fdb", "show", "br", "br0"]).contains(&mac)
    };
    let stay = "fdb add 52:54:00:00:00:09 dev rwt0 master static";
    ringway.inside(&[&["bridge"][..], &stay.split(' ').collect::<Vec<_>>()].concat());
    for words in ["link add v0 mtu 1400 type veth peer name v1", "link set v0 master br0"] {
        ringway.inside(&[&["ip"][..], &words.split(' ').collect::<Vec<_>>()].concat());
    }
    let _m = guest(directory.path(), "m");
    let stats: serde_json::Value =
        serde_json::from_str(&ringway.told(&["stats", "--json"])).expect("JSON");
    let m = stats["ports"].as_array().expect("ports").iter().find(|port| port["name"] == "m");
    assert_eq!(m.expect("a port")["mtu"], 1400, "the smallest in the bridge");
    assert!(ringway.told(&["port", "list"]).contains("mtu=auto"));
    // None of them sends anything.
    let [mut a, mut b, _c] = ["a", "b", "c"].map(|name| guest(directory.path(), name));
    wait_for("all are known", || (1..=3).all(known).then_some(()));
    let answers_for = |ip: &str| has_neighbour(&ringway, ip, 3);
    let (both, none) =
        (|| answers_for("10.9.0.3") && answers_for("fd09::3"), |ip| !answers_for(ip));
    wait_for("its IP addresses", || both().then_some(()));
    addresses_are_seen(&ringway, &mut a, &mut b);
    ringway.told(&["port", "remove", "a"]);
    wait_for("one left", || (!known(1)).then_some(()));
    wait_for("its address", || has_neighbour(&ringway, "10.9.0.1", 2).then_some(()));
    drop(b);
    wait_for("another one left", || (!known(2)).then_some(()));
    wait_for("its addresses left", || (!has_neighbour(&ringway, "10.9.0.1", 2)).then_some(()));
    assert!(!has_neighbour(&ringway, "10.9.0.2", 2));
    ringway.told(&["port", "set", "c", "link=down"]);
    wait_for("the last one left", || (!known(3)).then_some(()));
    wait_for("no address", || (none("10.9.0.3") && none("fd09::3")).then_some(()));
    let stay = "neigh add 10.9.0.9 lladdr 52:54:00:00:00:03 dev br0";
    ringway.inside(&[&["ip"][..], &stay.split(' ').collect::<Vec<_>>()].concat());
    assert!(known(9), "it was configured");
    // Here again, and known again.
    ringway.told(&["port", "set", "c", "link=up"]);
    wait_for("it is back", || (known(3) && both()).then_some(()));
    ringway.told(&["port", "set", "c", "locked_ips=10.9.0.4"]);
    wait_for("another", || (none("10.9.0.3") && answers_for("10.9.0.4")).then_some(()));
    ringway.told(&["port", "set", "up", "neighbours=off"]);
    wait_for("none any more", || none("10.9.0.4").then_some(()));
    assert!(answers_for("10.9.0.9"), "it was configured");
    come_back_at_once(&ringway, || known(3));
    ringway.told(&["port", "set", "up", "fdb=off"]);
    ringway.told(&["port", "remove", "c"]);
    assert!(known(3), "nothing is asked of the bridge");
    assert!(!ringway.log().contains("what bridges have learned"), "{}", ringway.log());
}

/// Whether the bridge answers for that address with the station of that number.
fn has_neighbour(ringway: &Ringway, ip: &str, number: u8) -> bool {
    let told = ringway.inside(&["ip", "neigh", "show", "dev", "br0", "nud", "all"]);
    let start = format!("{ip} lladdr 52:54:00:00:00:{number:02x} ");
    told.lines().any(|line| line.starts_with(&start))
}

/// Two guests that are locked to nothing say who they are; the second also that it is others: it
/// gets what is locked to none at once, as where an address moves.
fn addresses_are_seen(ringway: &Ringway, a: &mut AnyUserGuest, b: &mut AnyUserGuest) {
    say(a, [10, 9, 0, 1]);
    wait_for("an address that was seen", || has_neighbour(ringway, "10.9.0.1", 1).then_some(()));
    // Asking takes such an address for its port.
    let traced = ringway.told(&["trace", "b", "dst=10.9.0.1", "proto=udp"]);
    assert!(traced.starts_with("from b: goes to a"), "{traced}");
    let traced = ringway.told(&["trace", "10.9.0.1", "dst=b", "proto=udp"]);
    assert!(traced.starts_with("from a: goes to b"), "{traced}");
    let why = ringway.told(&["why", "10.9.0.1", "c"]);
    assert!(why.starts_with("a → c: "), "{why}");
    for last in [1, 3, 2] {
        say(b, [10, 9, 0, last]);
    }
    wait_for("its own", || has_neighbour(ringway, "10.9.0.2", 2).then_some(()));
    assert!(has_neighbour(ringway, "10.9.0.3", 3), "it is locked to another one");
    wait_for("the address of the first", || has_neighbour(ringway, "10.9.0.1", 2).then_some(()));
    // One announcement a second counts.
    wait_for("it is back", || {
        say(a, [10, 9, 0, 1]);
        has_neighbour(ringway, "10.9.0.1", 1).then_some(())
    });
}

fn say(guest: &mut AnyUserGuest, ip: [u8; 4]) {
    let frame = arp_request(guest.mac(), ip, ip);
    let _ = guest.wait_room(Duration::ZERO);
    let _ = guest.send(&frame).expect("a device");
    guest.flush();
}

/// `c` goes and comes while so many do that the bridge is told of its going only afterwards.
fn come_back_at_once(ringway: &Ringway, is_known: impl Fn() -> bool) {
    for link in ["link=down", "link=up"].repeat(12) {
        ringway.told(&["port", "set", "m", link]);
    }
    for link in ["link=down", "link=up"] {
        ringway.told(&["port", "set", "c", link]);
    }
    let until = Instant::now() + Duration::from_millis(500);
    while Instant::now() < until {
        assert!(is_known(), "it has come back before its turn was to go");
    }
}

/// An entry of the neighbour table that is not ringway's stays, whatever a guest announces.
#[test]
fn a_guest_takes_no_neighbour_from_others() {
    let directory = tempfile::tempdir().expect("a directory");
    let ports = ["a=vm:a.sock,mac=52:54:00:00:00:01", "up=tap:rwt0,fdb=sync,neighbours=sync"];
    let arguments: Vec<&str> = ports.iter().flat_map(|port| ["--port", port]).collect();
    let Some(ringway) = Ringway::run_in_namespace(directory.path(), &arguments) else {
        println!("skipped: no network namespace or no /dev/net/tun here");
        return;
    };
    let run = |words: &str| ringway.inside(&words.split(' ').collect::<Vec<_>>());
    run("ip link add br0 type bridge forward_delay 0");
    if !run("ip link show br0").contains("br0") {
        println!("skipped: no bridges here");
        return;
    }
    for words in [
        "ip link set rwt0 master br0",
        "ip link set br0 up",
        "ip link set rwt0 up",
        "ip addr add 10.9.0.1/24 dev br0",
        "ip addr add 10.9.0.66/32 dev lo",
        "ip neigh add 10.9.0.77 lladdr 52:54:00:00:00:77 dev br0 nud permanent",
        "ip neigh add 10.9.0.78 lladdr 52:54:00:00:00:78 dev br0 nud noarp extern_learn proto 186",
        "ip neigh add 10.9.0.79 lladdr 52:54:00:00:00:79 dev br0 nud noarp proto 42",
    ] {
        run(words);
    }
    let table = || run("ip neigh show dev br0 nud all");
    let before = table();
    assert_eq!(before.lines().filter(|line| line.starts_with("10.9.0.")).count(), 3, "{before}");
    let mut a = guest(directory.path(), "a");
    let others = [77, 78, 79, 1, 66].map(|last| [10, 9, 0, last]);
    for ip in others.into_iter().chain([[8, 8, 8, 8], [10, 9, 0, 2]]) {
        say(&mut a, ip);
    }
    wait_for("its own", || has_neighbour(&ringway, "10.9.0.2", 1).then_some(()));
    // The order of the list is that of a hash.
    let is_left = |now: &str| {
        before
            .lines()
            .filter(|line| line.starts_with("10.9.0."))
            .all(|line| now.lines().any(|it| it.trim_end() == line.trim_end()))
    };
    let now = table();
    assert!(is_left(&now), "{before}\n{now}");
    assert!(!now.contains("8.8.8.8 ") && !now.contains("10.9.0.1 "), "{now}");
    assert!(!now.contains("10.9.0.66 "), "{now}");
    for said in ["10.9.0.77 of", "10.9.0.1 of", "8.8.8.8 of"] {
        ringway.assert_logged(said);
    }
    // Ours, until an operator says who it is.
    run("ip neigh replace 10.9.0.2 lladdr 52:54:00:00:00:99 dev br0 nud permanent");
    drop(a);
    run("ip neigh del 10.9.0.77 dev br0");
    ringway.told(&["port", "remove", "a"]);
    ringway.told(&["port", "set", "up", "neighbours=off"]);
    let now = table();
    assert!(now.contains("10.9.0.2 lladdr 52:54:00:00:00:99 PERMANENT"), "{now}");
    assert!(now.contains("52:54:00:00:00:78") && now.contains("52:54:00:00:00:79"), "{now}");
}

/// As the service of a package, which has no capabilities.
#[test]
fn a_ringway_that_may_tell_bridges_nothing_says_so() {
    let directory = tempfile::tempdir().expect("a directory");
    let made = "ip tuntap add dev rwt0 mode tap vnet_hdr && ip link set rwt0 up";
    let dropped = "exec setpriv --bounding-set=-net_admin --inh-caps=-net_admin";
    let namespace = ["--map-root-user", "--net", "sh", "-c"];
    let mut tried = Command::new("unshare");
    tried.args(namespace).arg(format!("{made} && {dropped} true"));
    if !tried.output().is_ok_and(|tried| tried.status.success()) {
        return println!("skipped: no network namespace, tap or setpriv here");
    }
    let mut command = Command::new("unshare");
    command.args(namespace).arg(format!("{made} && {dropped} \"$0\" \"$@\""));
    command.arg(env!("CARGO_BIN_EXE_ringway"));
    let ringway = Ringway::run_by(command, directory.path(), &["--port", "z=vm:z.sock"]);
    let is_said = |told: &str| {
        let parts = ["fdb=sync", "CAP_NET_ADMIN", "/usr/share/ringway/wide.conf"];
        parts.iter().all(|part| told.contains(part))
    };
    assert!(!is_said(&ringway.told(&["port", "add", "up=tap:rwt0"])));
    let told = ringway.told(&["port", "set", "up", "fdb=sync"]);
    assert!(is_said(&told), "{told}");
    assert!(!is_said(&ringway.told(&["port", "set", "up", "fdb=off"])));
    ringway.told(&["port", "remove", "up"]);
    let told = ringway.told(&["port", "add", "up=tap:rwt0,fdb=sync,neighbours=sync"]);
    assert!(is_said(&told), "{told}");
    let told = ringway.told(&["why", "up"]);
    assert!(told.contains("bridges do not hear of guests") && is_said(&told), "{told}");
}
