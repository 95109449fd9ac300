//! The users that may connect to a port, and the one that has: the socket's file, and the process
//! at the other end.

mod common;
mod shell;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use common::{Ringway, wait_for};
use ringway_testkit::{Answer, AnyUserGuest, GuestOptions, RawFrontEnd};
use serde_json::Value;
use shell::{User, must};

const GET_FEATURES: u32 = 1;

/// Permissions, owner and group of a file.
fn owned(path: &Path) -> (u32, u32, u32) {
    let file = fs::symlink_metadata(path).expect("a file");
    (file.mode() & 0o777, file.uid(), file.gid())
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[test]
fn sockets_belong_to_whom_they_are_given_and_come_back() {
    if !is_root() {
        return println!("skipped: only root gives files away");
    }
    let directory = tempfile::tempdir().expect("a directory");
    let ports = ["--port", "a=vm:a.sock,socket_user=12,socket_group=34", "--port", "b=vm:b.sock"];
    let ringway = Ringway::run(directory.path(), &ports);
    let [a, b] = ["a.sock", "b.sock"].map(|name| directory.path().join(name));
    let ours = owned(&b);
    assert_eq!((owned(&a), ours.0), ((0o660, 12, 34), 0o600));
    ringway.told(&["port", "set", "b", "socket_group=56", "socket_mode=0664"]);
    assert_eq!(owned(&b), (0o664, ours.1, 56));
    let list = ringway.told(&["port", "list", "--toml"]);
    assert!(list.contains("socket_group = \"56\"\n"), "{list}");
    assert!(list.contains("socket_mode = \"0664\"\n"), "{list}");
    ringway.told(&["port", "set", "a", "socket_user=default", "socket_group=default"]);
    ringway.told(&["port", "set", "b", "socket_group=default", "socket_mode=default"]);
    assert_eq!((owned(&a), owned(&b)), (ours, ours));
    ringway.told(&["port", "add", "c=vm:c.sock,socket_group=78"]);
    assert_eq!(owned(&directory.path().join("c.sock")), (0o660, ours.1, 78));
}

#[test]
fn what_is_wrong_with_it_changes_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let ringway = Ringway::run(directory.path(), &["--port", "a=vm:a.sock"]);
    let socket = directory.path().join("a.sock");
    let before = owned(&socket);
    for (typed, why) in [
        ("socket_mode=0888", "is not a file's permissions"),
        ("socket_mode=2770", "is more than a file's permissions"),
        ("socket_group=no-such-group-here", "knows no group called \"no-such-group-here\""),
        ("socket_user=no-such-user-here", "knows no user called \"no-such-user-here\""),
        ("socket_group=4294967295", "knows no group called"),
    ] {
        let refused = ringway.refused(&["port", "set", "a", "mtu=9000", typed]);
        assert!(refused.starts_with(typed) && refused.contains(why), "{refused}");
    }
    // A file that another process has put there stays as it is, and hinders no other change.
    fs::remove_file(&socket).expect("it was there");
    fs::write(&socket, "").expect("a file");
    let replaced = owned(&socket);
    let refused = ringway.refused(&["port", "set", "a", "mtu=9000", "socket_mode=0666"]);
    assert!(refused.contains("a.sock: another file is there now: remove the port"), "{refused}");
    assert_eq!(owned(&socket), replaced);
    assert!(!ringway.told(&["port", "list"]).contains("mtu"));
    ringway.told(&["port", "set", "a", "mtu=9000"]);
    assert_eq!(before.0, 0o600);
}

#[test]
fn the_file_of_a_configuration_says_it_too() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("ringway.toml");
    let write = |options: &str| {
        fs::write(&file, format!("[port.a]\nvm = 'a.sock'\n{options}")).expect("a file");
    };
    let group = rustix::process::getegid().as_raw();
    write(&format!("socket_group = {group}\n"));
    let ringway = Ringway::run(directory.path(), &["--config", "ringway.toml"]);
    let socket = directory.path().join("a.sock");
    assert_eq!(owned(&socket).0, 0o660);
    write("socket_mode = 0o604\n");
    ringway.reload();
    assert_eq!(owned(&socket).0, 0o604);
    write("socket_group = 'no-such-group-here'\n");
    ringway.reload();
    assert_eq!(owned(&socket).0, 0o604);
    let right = "ringway.toml:3: socket_group = 'no-such-group-here': this machine knows no group";
    ringway.assert_logged(right);
}

/// A user who may write in its directory could have any file of ringway's user opened to others.
#[test]
fn a_file_in_the_place_of_the_control_socket_is_not_touched() {
    let directory = tempfile::tempdir().expect("a directory");
    let [file, precious] = ["ringway.toml", "precious"].map(|name| directory.path().join(name));
    let ports = "[port.a]\nvm = 'a.sock'\n";
    fs::write(&file, ports).expect("a file");
    fs::write(&precious, "data").expect("a file");
    let ringway = Ringway::run(directory.path(), &["--config", "ringway.toml"]);
    let (control, before) = (ringway.control(), owned(&precious));
    assert_eq!(owned(&control).0, 0o600);
    let mode = |mode: &str| {
        fs::write(&file, format!("[ringway]\ncontrol_mode = '{mode}'\n{ports}")).expect("a file");
        ringway.reload();
    };
    mode("0660");
    assert_eq!(owned(&control).0, 0o660);
    fs::remove_file(&control).expect("it was there");
    std::os::unix::fs::symlink(&precious, &control).expect("a link");
    mode("0666");
    assert_eq!(owned(&precious), before);
    ringway.assert_logged("the control socket stays as it is: ");
    ringway.assert_logged("another file is there now");
}

/// In a namespace where no other user and no other group exists.
#[test]
fn what_the_system_refuses_is_told_and_changes_nothing() {
    let script = r#"
ringway run --port a=vm:/tmp/a.sock --control /tmp/c.sock 2>log & pid=$!
ready $pid --control /tmp/c.sock
before=$(stat -c '%a %u %g' /tmp/a.sock)
change() { ringway port set --control /tmp/c.sock a "$@" && echo accepted; }
change socket_group=4321 mtu=9000
change socket_user=4321 mtu=9000
ringway port add --control /tmp/c.sock b=vm:/tmp/b.sock,socket_group=4321
[ "$before" = "$(stat -c '%a %u %g' /tmp/a.sock)" ] || echo changed
[ ! -e /tmp/b.sock ] || echo left
ringway port list --control /tmp/c.sock --toml | grep mtu
end $pid
exit 0"#;
    for user in [User::Plain, User::Root] {
        let Some(output) = shell::run(user, script) else {
            return println!("skipped: no namespaces here");
        };
        let [text, errors] = [&output.stdout, &output.stderr].map(|it| String::from_utf8_lossy(it));
        assert_eq!(text, "", "{errors}");
        for right in [
            "socket_group=4321: /tmp/a.sock: its group cannot be changed: ",
            "socket_user=4321: /tmp/a.sock: its owner cannot be changed: ",
            "socket_group=4321: /tmp/b.sock: its group cannot be changed: ",
            ": use a group that ringway's user is in, or start ringway as root",
        ] {
            assert!(errors.contains(right), "{right}\n{errors}");
        }
    }
}

/// A user who may not write there, or whose path another user has, is told what to do.
#[test]
fn what_a_user_may_not_open_is_told_with_what_to_do() {
    let script = r#"
mkdir -m 555 /tmp/closed
ringway run --port a=vm:/tmp/a.sock,socket_mode=0000 --control /tmp/c.sock 2>/dev/null & pid=$!
ready $pid --control /tmp/c.sock
ringway run --port a=vm:/tmp/closed/a.sock --control /tmp/d.sock
ringway run --port a=vm:/tmp/a.sock --control /tmp/d.sock
ringway run --port a=vm:/tmp/b.sock --control /tmp/closed/d.sock
ringway run --port a=vm:/tmp/b.sock --control /tmp/c.sock
end $pid
exit 0"#;
    let Some(output) = shell::run(User::Plain, script) else {
        return println!("skipped: no namespaces here");
    };
    let errors = String::from_utf8_lossy(&output.stderr);
    for right in [
        "/tmp/closed/a.sock: cannot listen: Permission denied (os error 13): let this user write \
         in its directory, or choose another path",
        "/tmp/a.sock: another user's socket: remove it if nothing listens there, or choose",
        "/tmp/closed/d.sock: cannot listen: Permission denied (os error 13): let this user write \
         in its directory, or choose another path (--control SOCKET)",
        "/tmp/c.sock: a running instance listens here (process ",
        "): stop it with: ringway stop --control /tmp/c.sock, or choose another path (--control",
    ] {
        assert!(errors.contains(right), "{right}\n{errors}");
    }
    let named = errors.lines().find(|line| line.contains("/tmp/c.sock: a running instance"));
    assert!(named.is_some_and(|line| line.contains(" of user 1234)")), "{errors}");
}

/// From a source of names beside /etc/passwd, as LDAP would be: see `groups.rs`.
#[test]
fn users_are_those_of_the_whole_machine() {
    let script = r#"
mkdir /run/userdb
user='{"userName":"rwguest","uid":4321,"gid":4321,"disposition":"regular"}'
echo "$user" > /run/userdb/rwguest.user
printf '[port.a]\nvm = ""\nsocket_user = "rwguest"\n' > f.toml
getent passwd rwguest >/dev/null || exit 0
ringway check-config f.toml
"#;
    match must(User::Root, script) {
        Some(text) if text.starts_with("f.toml: fine") => {}
        _ => println!("skipped: no namespaces here, or no names of users from systemd"),
    }
}

/// The statistics of a port.
fn stats(ringway: &Ringway, port: &str) -> Value {
    let stats: Value = serde_json::from_str(&ringway.told(&["stats", "--json"])).expect("JSON");
    let ports = stats["ports"].as_array().expect("ports");
    ports.iter().find(|it| it["name"] == port).expect("that port").clone()
}

fn is_answered(front_end: &mut RawFrontEnd) -> bool {
    matches!(front_end.request(GET_FEATURES, &[], &[]), Ok(Answer::Number(_)))
}

/// A front-end that has asked, and is answered when its turn has come.
fn asking(socket: &Path) -> RawFrontEnd {
    let mut front_end = RawFrontEnd::connect(socket).expect("it listens");
    front_end.send(&[GET_FEATURES, 1, 0].map(u32::to_le_bytes).concat(), &[]).expect("connected");
    front_end
}

fn must_be_answered(mut front_end: RawFrontEnd) {
    let answer = front_end.answer(GET_FEATURES).expect("an answer");
    assert!(matches!(answer, Answer::Number(_)), "{answer:?}");
}

#[test]
fn a_second_front_end_waits_a_third_is_refused_and_the_first_goes_on() {
    let directory = tempfile::tempdir().expect("a directory");
    let ports = ["--port", "a=vm:a.sock", "--port", "b=vm:b.sock"];
    let ringway = Ringway::run(directory.path(), &ports);
    let socket = |name: &str| directory.path().join(name);
    let attach = |name: &str| AnyUserGuest::attach(&socket(name), &GuestOptions::default());
    let mut guests = ["a.sock", "b.sock"].map(|name| attach(name).expect("a guest"));
    let second = asking(&socket("a.sock"));
    let pid = std::process::id();
    let count = |parts: &[String]| {
        let log = ringway.log();
        log.lines().filter(|line| parts.iter().all(|part| line.contains(part))).count()
    };
    let first = format!("the port is taken by pid {pid} (");
    let waits = [format!("front-end waits: pid {pid} ("), first.clone()];
    wait_for("the log", || (count(&waits) == 1).then_some(()));
    assert_eq!(stats(&ringway, "a")["waiting_front_end"]["pid"], pid);
    assert!(ringway.told(&["why", "a"]).contains("a second front-end waits for the port"));
    for _ in 0..3 {
        let mut third = RawFrontEnd::connect(&socket("a.sock")).expect("it listens");
        let answer = third.request(GET_FEATURES, &[], &[]).expect("an end");
        assert!(matches!(answer, Answer::Closed), "{answer:?}");
    }
    let [to, from] = [guests[1].mac(), guests[0].mac()];
    let mut packet = [&to[..], &from[..], &[0x88, 0xb5]].concat();
    packet.resize(64, 0);
    let _ = guests[0].send(&packet).expect("a device");
    guests[0].flush();
    wait_for("the packet", || guests[1].receive().expect("a device"));
    let told = stats(&ringway, "a");
    assert_eq!((&told["state"], &told["refused_front_ends"]), (&"running".into(), &3.into()));
    assert_eq!(stats(&ringway, "b")["refused_front_ends"], 0);
    let refused = [format!("front-end refused: pid {pid} ("), first];
    wait_for("the log", || (count(&refused) == 3).then_some(()));
    let text = ringway.told(&["stats"]);
    assert!(text.contains("3 front-ends refused") && text.contains("waits for it:"), "{text}");
    // Neither what it has sent nor its presence keeps anything awake.
    let effort = ringway.ticks();
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert!(ringway.ticks() - effort < 25, "{} ticks", ringway.ticks() - effort);
    ringway.told(&["upgrade"]);
    assert_eq!(stats(&ringway, "a")["waiting_front_end"]["pid"], pid);
    let [first, _other] = guests;
    drop(first);
    must_be_answered(second);
    assert_eq!(stats(&ringway, "a")["waiting_front_end"], Value::Null);
}

/// The one that waits may end before its turn has come: the next one has its place.
#[test]
fn a_front_end_that_ends_while_it_waits_is_followed_by_the_next() {
    let directory = tempfile::tempdir().expect("a directory");
    let ringway = Ringway::run(directory.path(), &["--port", "a=vm:a.sock"]);
    let socket = directory.path().join("a.sock");
    let mut first = RawFrontEnd::connect(&socket).expect("it listens");
    assert!(is_answered(&mut first));
    for round in 0..3 {
        drop(asking(&socket));
        let second = asking(&socket);
        let is_there = || (!stats(&ringway, "a")["waiting_front_end"].is_null()).then_some(());
        wait_for("the second one", is_there);
        if round == 2 {
            drop(std::mem::replace(&mut first, second));
            assert!(matches!(first.answer(GET_FEATURES), Ok(Answer::Number(_))));
        }
    }
    assert_eq!(stats(&ringway, "a")["refused_front_ends"], 0, "{}", ringway.log());
}

/// Also if the end of the one before was not looked at yet, and if it left requests behind.
#[test]
fn a_front_end_that_comes_after_the_end_of_another_is_served() {
    let directory = tempfile::tempdir().expect("a directory");
    let ringway = Ringway::run(directory.path(), &["--port", "a=vm:a.sock"]);
    let socket = directory.path().join("a.sock");
    let request = [GET_FEATURES, 1, 0].map(u32::to_le_bytes).concat();
    for turn in 0..200 {
        let mut front_end = RawFrontEnd::connect(&socket).expect("it listens");
        assert!(is_answered(&mut front_end), "turn {turn}: {}", ringway.log());
        for _ in 0..turn {
            // More of them than are served in one turn.
            front_end.send(&request, &[]).expect("connected");
        }
        drop(front_end);
    }
    assert_eq!(stats(&ringway, "a")["refused_front_ends"], 0, "{}", ringway.log());
}

#[test]
fn the_process_that_is_connected_is_named() {
    let directory = tempfile::tempdir().expect("a directory");
    let ringway = Ringway::run(directory.path(), &["--port", "a=vm:a.sock"]);
    assert_eq!(stats(&ringway, "a")["front_end"], Value::Null);
    let mut front_end = RawFrontEnd::connect(&directory.path().join("a.sock")).expect("it listens");
    assert!(is_answered(&mut front_end));
    let told = stats(&ringway, "a")["front_end"].clone();
    let (pid, uid) = (std::process::id(), rustix::process::geteuid().as_raw());
    assert_eq!((&told["pid"], &told["uid"]), (&pid.into(), &uid.into()), "{told}");
    let program = fs::read_to_string("/proc/self/comm").expect("this program");
    assert_eq!(told["program"], program.trim());
    let name = format!("pid {pid} ({})", program.trim());
    let line = format!("front-end connected: {name}, user ");
    let log = wait_for("the log", || Some(ringway.log()).filter(|log| log.contains(&line)));
    let text = ringway.told(&["stats"]);
    assert!(text.contains(&format!("pid {pid}")), "{text}");
    if uid == 0 {
        assert_eq!(told["user"], "root");
        assert!(log.contains(", user root (0)") && text.contains("root (0)"), "{log}{text}");
    }
    drop(front_end);
    wait_for("its end", || stats(&ringway, "a")["front_end"].is_null().then_some(()));
}

/// The value behind that key in the kernel's status of each thread of a process.
fn of_threads(pid: i32, key: &str) -> Vec<String> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).expect("it runs");
    let value = |thread: fs::DirEntry| {
        let status = fs::read_to_string(thread.path().join("status")).expect("a thread");
        let line = status.lines().find_map(|line| line.strip_prefix(key)).expect("that key");
        line.trim_start_matches(':').trim().to_owned()
    };
    threads.map(|thread| value(thread.expect("a thread"))).collect()
}

/// `CAP_CHOWN`, `CAP_DAC_OVERRIDE`, `CAP_FOWNER`, `CAP_KILL`, `CAP_SETGID`, `CAP_SETUID` and
/// `CAP_NET_ADMIN` (capabilities(7)).
const KEPT: u64 = 1 << 0 | 1 << 1 | 1 << 3 | 1 << 5 | 1 << 6 | 1 << 7 | 1 << 12;

fn sandbox(ringway: &Ringway) -> Value {
    let stats: Value = serde_json::from_str(&ringway.told(&["stats", "--json"])).expect("JSON");
    stats["sandbox"].clone()
}

#[test]
fn every_thread_has_only_what_it_may_need() {
    let directory = tempfile::tempdir().expect("a directory");
    let ports = ["--port", "a=vm:a.sock", "--workers", "2", "--sandbox", "on"];
    let ringway = Ringway::run(directory.path(), &ports);
    let pid = ringway.pid().as_raw_nonzero().get();
    let privileges = of_threads(pid, "NoNewPrivs");
    assert!(privileges.len() >= 4 && privileges.iter().all(|it| it == "1"), "{privileges:?}");
    for set in ["CapEff", "CapPrm", "CapInh", "CapAmb", "CapBnd"] {
        // Only root may make the last one smaller.
        let allowed = match set {
            "CapInh" | "CapAmb" => 0,
            "CapBnd" if !is_root() => u64::MAX,
            // With `CAP_SETPCAP` the data plane empties its bounding set.
            "CapBnd" | "CapPrm" => KEPT | 1 << 8,
            _ => KEPT,
        };
        for bits in of_threads(pid, set) {
            let bits = u64::from_str_radix(&bits, 16).expect("a set");
            assert_eq!(bits & !allowed, 0, "{set} {bits:x}");
        }
    }
    let limits = fs::read_to_string(format!("/proc/{pid}/limits")).expect("it runs");
    let core = limits.lines().find(|line| line.starts_with("Max core file size"));
    let core: Vec<&str> = core.expect("a limit").split_whitespace().skip(4).take(2).collect();
    assert_eq!(core, ["0", "0"]);
    assert_eq!(sandbox(&ringway)["on"], true);
    let text = ringway.told(&["stats"]);
    assert!(text.contains("\nsandbox: on (no_new_privs, no core, "), "{text}");
}

#[test]
fn without_a_sandbox_everything_is_as_it_was() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("ringway.toml");
    fs::write(&file, "[ringway]\nsandbox = \"off\"\n[port.a]\nvm = 'a.sock'\n").expect("a file");
    let flags = ["--config", "ringway.toml"];
    let ringway = Ringway::run(directory.path(), &flags);
    let pid = ringway.pid().as_raw_nonzero().get();
    let own = i32::try_from(std::process::id()).expect("a number");
    for key in ["NoNewPrivs", "CapEff", "CapBnd"] {
        assert_eq!(of_threads(pid, key)[0], of_threads(own, key)[0], "{key}");
    }
    assert_eq!(sandbox(&ringway)["on"], false);
    assert!(ringway.told(&["stats"]).contains("\nsandbox: off\n"));
    fs::write(&file, "[port.a]\nvm = 'a.sock'\n").expect("a file");
    if is_root() {
        ringway.reload();
        let stays = "sandbox stays as it is until ringway is started again";
        wait_for("the log", || ringway.log().contains(stays).then_some(()));
        assert_eq!(sandbox(&ringway)["on"], false);
    }
}

/// Other processes of the same user: a monitor of one guest has no business in the memory of all.
#[test]
fn other_processes_of_its_user_cannot_look_into_it() {
    // Processes have other numbers in /proc, which is that of the machine.
    let script = r#"
tag=$(cut -c1-8 /proc/sys/kernel/random/uuid)
for sandbox in on off; do
    control=/tmp/$tag-$sandbox.sock
    ringway run --port a=vm: --sandbox $sandbox --control $control 2>log & pid=$!
    ready $pid --control $control
    process=$(dirname $(grep -la "$tag[-]$sandbox" /proc/[0-9]*/cmdline 2>/dev/null))
    [ "$(cat $process/comm)" = ringway ] || echo "$process is another"
    cat $process/maps >/dev/null 2>&1 && echo "$sandbox: maps"
    readlink $process/exe >/dev/null && echo "$sandbox: program"
    ringway port add --control $control b=vm: >/dev/null && echo served
    ringway stats --control $control | grep ^sandbox
    end $pid
done"#;
    let Some(printed) = must(User::Plain, script) else {
        return println!("skipped: no namespaces here");
    };
    let right = "served\nsandbox: on (no_new_privs, no core, no capabilities)\n\
                 off: maps\noff: program\nserved\nsandbox: off\n";
    assert_eq!(printed, right);
}

/// After it was killed, the sockets are left, and belong to others.
#[test]
fn sockets_of_others_are_taken_over_after_a_crash() {
    if !is_root() {
        return println!("skipped: only root gives files away");
    }
    let directory = tempfile::tempdir().expect("a directory");
    let ports = ["--port", "a=vm:a.sock,socket_user=12,socket_group=34"];
    drop(Ringway::run(directory.path(), &ports));
    let socket = directory.path().join("a.sock");
    assert_eq!(owned(&socket), (0o660, 12, 34), "it was killed");
    let ringway = Ringway::run(directory.path(), &ports);
    assert_eq!(ringway.state("a").as_deref(), Some("waiting"), "{}", ringway.log());
    let mut front_end = RawFrontEnd::connect(&socket).expect("it listens");
    assert!(is_answered(&mut front_end));
}
