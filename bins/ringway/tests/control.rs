//! The control socket and clients that do not behave: everybody else is served.

mod common;

use std::io::Write;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use common::{Client, Ringway, wait_for};
use rustix::process::Signal;
use serde_json::json;

/// As the daemon's own limits.
const LINE_LEN_MAX: usize = 16 << 10;
const CLIENTS_MAX: usize = 16;
const PATIENCE: Duration = Duration::from_secs(5);

fn ringway(directory: &tempfile::TempDir) -> Ringway {
    Ringway::run(directory.path(), &["--port", "a=vm:a.sock"])
}

#[test]
fn a_line_may_be_as_long_as_the_limit_and_no_longer() {
    let directory = tempfile::tempdir().expect("a directory");
    let ringway = ringway(&directory);
    let mut client = ringway.connect();
    let question = json!({ "version": 1, "command": "stats" }).to_string();
    let mut longest = question.clone() + &" ".repeat(LINE_LEN_MAX - question.len());
    longest.push('\n');
    client.send(longest.as_bytes()).expect("connected");
    assert!(client.line().contains("\"ok\":true"));
    // Without an end, the line is given up as soon as it is too long.
    let _ = client.send(&vec![b' '; 2 * LINE_LEN_MAX]);
    assert!(client.line().contains("longer than"));
    assert_eq!(client.line(), "", "and the connection with it");
    assert!(ringway.told(&["stats"]).contains("waiting"));
}

#[test]
fn nonsense_is_refused_and_the_next_question_answered() {
    let directory = tempfile::tempdir().expect("a directory");
    let ringway = ringway(&directory);
    let mut client = ringway.connect();
    let nested = "[".repeat(LINE_LEN_MAX);
    for line in [
        "",
        "{}",
        "\0\u{1}",
        "null",
        &nested,
        r#"{"version":1,"command":"port_add"}"#,
        r#"{"version":1,"command":"port_add","port":{}}"#,
        r#"{"version":1,"command":"port_add","port":{"name":"a b","vm":7}}"#,
        r#"{"version":1,"command":"port_set","name":"a","options":{"mtu":{"a":1}}}"#,
        r#"{"version":1,"command":"port_set","name":"a","options":{"mtu":-1}}"#,
        r#"{"version":1,"command":"port_remove","name":"\u0000"}"#,
    ] {
        client.send(format!("{line}\n").as_bytes()).expect("connected");
        let reply = client.line();
        assert!(reply.contains("\"ok\":false"), "{line:?}: {reply}");
    }
    // Bytes that are no text at all.
    client.send(b"\xff\xfe\n").expect("connected");
    assert!(client.line().contains("\"ok\":false"));
    // Many questions at once, each with its answer.
    let questions =
        (json!({ "version": 1, "command": "port_list" }).to_string() + "\n").repeat(100);
    client.send(questions.as_bytes()).expect("connected");
    for _ in 0..100 {
        assert!(client.line().contains("\"ok\":true"));
    }
    assert_eq!(ringway.names(), ["a"]);
}

/// As `nc -N` does.
#[test]
fn a_client_that_sends_nothing_more_still_gets_the_answers() {
    let directory = tempfile::tempdir().expect("a directory");
    let ringway = ringway(&directory);
    let fds = ringway.fds();
    let question = |command: &str| json!({ "version": 1, "command": command }).to_string() + "\n";
    let mut stream = UnixStream::connect(ringway.control()).expect("a control socket");
    // It finds all of that at once.
    ringway.signal(Signal::STOP);
    let questions = question("stats") + &question("nonsense") + &question("port_list") + "{";
    stream.write_all(questions.as_bytes()).expect("connected");
    stream.shutdown(Shutdown::Write).expect("connected");
    ringway.signal(Signal::CONT);
    let mut client = Client::new(stream);
    for part in ["\"uptime_ms\"", "\"ok\":false", "\"mac\""] {
        let reply = client.line();
        assert!(reply.contains(part), "{part}: {reply}");
    }
    assert_eq!(client.line(), "", "that is all");
    wait_for("its end", || (ringway.fds() <= fds).then_some(()));
}

#[test]
fn what_a_client_names_begins_no_line_of_the_log() {
    let directory = tempfile::tempdir().expect("a directory");
    let ringway = ringway(&directory);
    let port = json!({ "name": "b", "vm": "/nowhere\nERROR forged/b.sock" });
    let request = json!({ "version": 1, "command": "port_add", "port": port });
    assert_eq!(ringway.connect().ask(&request)["ok"], false);
    ringway.assert_logged("forged");
    assert!(!ringway.log().contains("\nERROR forged"), "{}", ringway.log());
}

#[test]
fn stuck_clients_block_no_other_and_are_dropped() {
    let directory = tempfile::tempdir().expect("a directory");
    let ringway = ringway(&directory);
    let fds = ringway.fds();
    // More silent clients than there are places.
    let mut silent: Vec<Client> = (0..2 * CLIENTS_MAX).map(|_| ringway.connect()).collect();
    assert!(ringway.told(&["stats"]).contains("waiting"));
    assert_eq!(silent[0].line(), "", "the oldest had to go");
    drop(silent);
    // One that begins a line and does not end it, and one that asks and never reads.
    let mut unfinished = ringway.connect();
    unfinished.send(b"{").expect("connected");
    let mut unread = UnixStream::connect(ringway.control()).expect("connected");
    unread.set_nonblocking(true).expect("non-blocking");
    let question = json!({ "version": 1, "command": "stats" }).to_string() + "\n";
    let full_at = Instant::now();
    wait_for("a full socket", || {
        std::io::Write::write(&mut unread, question.repeat(10).as_bytes()).is_err().then_some(())
    });
    let ticks = ringway.ticks();
    assert!(ringway.told(&["stats"]).contains("waiting"), "others are served meanwhile");
    assert_eq!(unfinished.line(), "", "given up");
    assert!(full_at.elapsed() >= PATIENCE / 2);
    wait_for("the end of the client that does not read", || (ringway.fds() <= fds).then_some(()));
    assert!(ringway.ticks() - ticks < 100, "the daemon waits for no client in a busy loop");
}

/// Whatever comes meanwhile, and whatever the data plane is busy with.
#[test]
fn who_has_asked_gets_an_answer() {
    let directory = tempfile::tempdir().expect("a directory");
    let ringway = ringway(&directory);
    let question = json!({ "version": 1, "command": "stats" }).to_string() + "\n";
    let data_plane = ringway.data_plane();
    rustix::process::kill_process(data_plane, Signal::STOP).expect("it runs");
    let ask = || {
        let mut client = ringway.connect();
        client.send(question.as_bytes()).expect("connected");
        client
    };
    let mut asking: Vec<Client> = (0..3 * CLIENTS_MAX).map(|_| ask()).collect();
    let silent: Vec<Client> = (0..3 * CLIENTS_MAX).map(|_| ringway.connect()).collect();
    rustix::process::kill_process(data_plane, Signal::CONT).expect("it runs");
    for (number, client) in asking.iter_mut().enumerate() {
        assert!(client.line().contains("\"uptime_ms\""), "{number}");
    }
    // They have said nothing more for a second.
    assert!(ringway.told(&["stats"]).contains("waiting"));
    drop(silent);
}

#[test]
fn who_has_no_process_id_here_may_ask_all_the_same() {
    let directory = tempfile::tempdir().expect("a directory");
    let ports = ["--port", "a=vm:a.sock"];
    let Some(ringway) = Ringway::run_in_container(directory.path(), &ports) else {
        println!("skipped: no PID namespace here");
        return;
    };
    assert!(ringway.told(&["stats"]).contains("waiting"), "from outside of the container");
}

#[test]
fn only_the_owner_root_and_a_named_group_may_ask() {
    // The answer for others is tested where there are other users: as root, with one of them.
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can become another user");
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(directory.path(), open).expect("open");
    let python = |user: &str, group: &str| {
        let script = "import os, socket, sys\n\
             os.setgroups([int(sys.argv[3])]); os.setgid(65534); os.setuid(int(sys.argv[2]))\n\
             s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])\n\
             s.sendall(b'{\"version\":1,\"command\":\"port_list\"}\\n' * 2)\n\
             print(s.recv(4096).decode())";
        let output = std::process::Command::new("python3")
            .args(["-c", script])
            .arg(directory.path().join("control.sock"))
            .args([user, group])
            .output();
        output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
    };
    if python("0", "0").is_err() {
        println!("skipped: python3 is not installed");
        return;
    }
    let ports = ["--port", "a=vm:a.sock", "--control-mode", "0666", "--control-group", "4242"];
    let _ringway = Ringway::run(directory.path(), &ports);
    let asked = |user, group| python(user, group).expect("it ran before");
    assert!(asked("0", "0").contains("\"ok\":true"), "root");
    assert!(asked("65534", "4242").contains("\"ok\":true"), "in the group, by one of its others");
    let refused = asked("65534", "65534");
    assert!(refused.contains("not permitted: user 65534"), "{refused}");
    assert!(!refused.contains("\"ok\":true"), "not even the second question: {refused}");
}

#[test]
fn a_port_that_is_not_there_is_refused_alike_whatever_is_asked_of_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let ringway = Ringway::run(directory.path(), &["--port", "vm0=vm:a.sock"]);
    let refused = |words: &[&str]| {
        let output = ringway.ask(words);
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let set = refused(&["port", "set", "vm1", "mtu=9000"]);
    assert_eq!(set, refused(&["port", "remove", "vm1"]));
    assert_eq!(set.0, Some(1));
    assert!(set.1.contains("there is no port called \"vm1\": did you mean vm0?"), "{}", set.1);
}

#[test]
fn refused_requests_without_end_do_not_fill_the_log() {
    let directory = tempfile::tempdir().expect("a directory");
    let ringway = ringway(&directory);
    let mut client = ringway.connect();
    let remove = json!({ "version": 1, "command": "port_remove", "name": "missing" });
    for _ in 0..2000 {
        assert_eq!(client.ask(&remove)["ok"], false);
    }
    let log = ringway.log();
    let lines = log.matches("refused: ").count();
    assert!((2..200).contains(&lines), "{lines} lines");
    assert!(log.contains("too many lines: the next ones are left out"), "{log}");
}

#[test]
fn it_says_when_it_is_ready_and_where_it_takes_orders() {
    let directory = tempfile::tempdir().expect("a directory");
    let ringway = Ringway::run(directory.path(), &["--port", "a=vm:a.sock"]);
    let line = wait_for("the line", || {
        ringway.log().lines().find(|line| line.contains(" ready ")).map(str::to_owned)
    });
    let control = format!("control={}", ringway.control().display());
    assert!(line.split_whitespace().any(|word| word == control), "{line}");
}
