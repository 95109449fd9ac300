//! Where sockets are by default: a plain user can start ringway as it stands, whatever others have
//! put into the temporary folder.

mod shell;

use shell::{User, must};

const SKIPPED: &str = "skipped: no user, mount and network namespaces here";

/// Two ports without paths, asked and extended with the same defaults.
const SCRIPT: &str = "
ringway run --port vm0=vm: --port vm1=vm: 2>log & pid=$!
ready $pid || { cat log; exit 1; }
ringway port add vm2=vm: && ringway port list --toml && ringway attach vm0 --for qemu || exit 1
find /tmp -mindepth 1 -printf '%M %p\\n'
end $pid
";

#[test]
fn a_plain_user_needs_no_paths() {
    let Some(text) = must(User::Plain, SCRIPT) else { return println!("{SKIPPED}") };
    for name in ["vm0", "vm1", "vm2"] {
        let socket = format!("/tmp/ringway-1234/ringway/{name}.sock");
        assert!(text.contains(&format!("srw------- {socket}\n")), "{text}");
        assert!(text.contains(&format!("vm = \"{socket}\"\n")), "{text}");
    }
    assert!(text.contains("drwx------ /tmp/ringway-1234\n"), "{text}");
    assert!(text.contains("srw------- /tmp/ringway-1234/ringway.sock\n"), "{text}");
    assert!(text.contains("path=/tmp/ringway-1234/ringway/vm0.sock"), "{text}");
}

#[test]
fn what_others_have_put_there_stops_nothing() {
    for taken in ["touch", "mkdir -m 777", "ln -s /tmp"] {
        let script = format!("{taken} /tmp/ringway-1234\n{SCRIPT}");
        let Some(text) = must(User::Plain, &script) else { return println!("{SKIPPED}") };
        assert!(text.contains("srw------- /tmp/ringway-1234-1/ringway.sock\n"), "{text}");
        assert!(text.contains("path=/tmp/ringway-1234-1/ringway/vm0.sock"), "{text}");
    }
}

#[test]
fn root_and_a_session_have_other_places() {
    let Some(text) = must(User::Root, &SCRIPT.replace("find /tmp", "find /run")) else {
        return println!("{SKIPPED}");
    };
    assert!(
        text.contains("/run/ringway.sock\n") && text.contains("/run/ringway/vm2.sock\n"),
        "{text}"
    );
    let session = format!("mkdir -m 700 /tmp/1234; export XDG_RUNTIME_DIR=/tmp/1234\n{SCRIPT}");
    let Some(text) = must(User::Plain, &session) else { return println!("{SKIPPED}") };
    for path in ["ringway.sock", "ringway/vm0.sock"] {
        assert!(text.contains(&format!("srw------- /tmp/1234/{path}\n")), "{text}");
    }
}

/// The second is told where its control socket is, and nothing else.
const SECOND: &str = "
mkdir -m 700 /tmp/1234; export XDG_RUNTIME_DIR=/tmp/1234
ringway run --port vm0=vm: --port vm1=vm: 2>log & pid=$!
ready $pid || { cat log; exit 1; }
ringway run --control $XDG_RUNTIME_DIR/b.sock --port vm0=vm: --port net=nat: 2>second & other=$!
ready $other --control $XDG_RUNTIME_DIR/b.sock || { cat second; exit 1; }
ringway port add --control $XDG_RUNTIME_DIR/b.sock vm2=vm: || exit 1
find /tmp/1234 -printf '%M %p\\n'
grep ready second
end $other; end $pid
";

#[test]
fn two_ringways_of_a_user_have_sockets_of_their_own() {
    let Some(text) = must(User::Plain, SECOND) else { return println!("{SKIPPED}") };
    for path in ["ringway/vm0.sock", "ringway/vm1.sock", "b/vm0.sock", "b/vm2.sock"] {
        assert!(text.contains(&format!("srw------- /tmp/1234/{path}\n")), "{path}: {text}");
    }
    assert!(text.contains("drwx------ /tmp/1234/b\n"), "{text}");
    assert!(text.contains(" ready ") && !text.contains("ready:"), "{text}");
}

/// Sockets that lie beside the control socket stay where they are when it moves, with their guests.
const MOVED: &str = r#"
file() { printf '[ringway]\ncontrol = "%s"\n[port.vm0]\nvm = ""\n' "$1"; }
file /tmp/a.sock > f.toml
ringway run --config f.toml 2>log & pid=$!
ready $pid --control /tmp/a.sock || { cat log; exit 1; }
file /tmp/b.sock > f.toml
ringway reload --control /tmp/a.sock
ready $pid --control /tmp/b.sock || { cat log; exit 1; }
ringway port add --control /tmp/b.sock vm1=vm: || exit 1
find /tmp -type s
end $pid
"#;

#[test]
fn sockets_of_ports_stay_when_the_control_socket_moves() {
    let Some(text) = must(User::Plain, MOVED) else { return println!("{SKIPPED}") };
    for path in ["/tmp/a/vm0.sock", "/tmp/a/vm1.sock", "/tmp/b.sock"] {
        assert!(text.contains(&format!("{path}\n")), "{path}: {text}");
    }
}

/// This machine is in the network that a router's guests are to have.
const OVERLAP: &str = r#"
ip link add rw0 type veth peer name rw1 && ip link set rw1 up || exit 9
ip addr add 192.168.43.7/24 dev rw0 && ip link set rw0 up || exit 9
set -- run --port vm0=vm: --port net=nat:,range=192.168.43.0/24
timeout 10 ringway "$@" 2>&1; echo "exit $?"
ringway "$@" --keep-going 2>log & pid=$!
ready $pid || { cat log; exit 1; }
cat log
end $pid
"#;

#[test]
fn a_router_that_cannot_be_opened_ends_the_start() {
    let output = shell::run(User::Root, OVERLAP);
    let output = output.filter(|output| output.status.code() != Some(9));
    let Some(output) = output else { return println!("skipped: no interface can be made here") };
    let text = String::from_utf8_lossy(&output.stdout);
    for part in [
        "range=192.168.43.0/24: this machine reaches 192.168.43.0/24 by rw0",
        "ringway could not start: 1 port could not be opened (--keep-going serves the others)",
        "exit 1\n",
        " ready: 1 of 2 ports ",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}
