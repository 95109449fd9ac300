//! How a ringway is ended that was started by hand, also by who does not know where.

mod shell;

use shell::{User, must};

const SKIPPED: &str = "skipped: no user, mount and network namespaces here";

const STOP: &str = "
ringway run --port vm0=vm: 2>log & pid=$!
ready $pid || { cat log; exit 1; }
ringway run --port vm0=vm: 2>&1; echo \"pid $pid, second: $?\"
ringway stop || exit 1
[ ! -e /tmp/ringway-1234/ringway.sock ] || echo left
wait $pid; echo \"first: $?\"
ringway stop 2>&1; echo \"again: $?\"
";

#[test]
fn a_second_one_says_how_to_stop_the_first_and_that_works() {
    let Some(text) = must(User::Plain, STOP) else { return println!("{SKIPPED}") };
    let pid = text.split_once("\npid ").and_then(|(_, rest)| rest.split(',').next());
    let pid = pid.expect("its number");
    let socket = "/tmp/ringway-1234/ringway.sock";
    for part in [
        format!("{socket}: a running instance listens here (process {pid} of user 1234)"),
        "): stop it with: ringway stop, or choose another path (--control SOCKET)\n".to_owned(),
        format!("pid {pid}, second: 1\nstopped (process {pid})\nfirst: 0\n"),
        format!("{socket}: no ringway is listening here"),
        "again: 1\n".to_owned(),
    ] {
        assert!(text.contains(&part), "{part}: {text}");
    }
    assert!(!text.contains("left"), "{text}");
}

/// A terminal that is closed sends the signal to what was started there.
const HANGUP: &str = "
env --default-signal=HUP ringway run --port vm0=vm: 2>log & pid=$!
ready $pid || { cat log; exit 1; }
kill -HUP $pid; wait $pid; echo \"a terminal: $?\"
nohup ringway run --port vm0=vm: >log 2>&1 & pid=$!
ready $pid || { cat log; exit 1; }
kill -HUP $pid; ringway port list >/dev/null && ringway port list >/dev/null && echo 'nohup: here'
ringway stop; wait $pid; echo \"stopped: $?\"
printf '[port.vm0]\\nvm = \"\"\\n' >f.toml
ringway run --config f.toml 2>log & pid=$!
ready $pid || { cat log; exit 1; }
kill -HUP $pid; until grep -q 'read again' log; do kill -0 $pid || break; sleep 0.02; done
ringway stop
";

#[test]
fn one_whose_terminal_is_closed_ends_unless_it_is_to_stay() {
    let Some(text) = must(User::Plain, HANGUP) else { return println!("{SKIPPED}") };
    for part in ["a terminal: 0\n", "nohup: here\nstopped (process ", "stopped: 0\nstopped ("] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

/// Without what every machine has, and where the usual place is too long for a socket.
const BARE: &str = r#"
long=/tmp/$(printf 'x%.0s' $(seq 115)); mkdir -m 700 $long
XDG_RUNTIME_DIR=$long ringway run --port vm0=vm: 2>&1; echo "long: $?"
mkdir /tmp/empty; mount --bind /tmp/empty /proc && {
    ringway run --sandbox off --port vm0=vm: 2>&1; echo "proc: $?"; umount /proc; }
mount -t tmpfs tmpfs /dev && { ringway run --sandbox off --port vm0=vm: 2>&1; echo "null: $?"; }
exit 0
"#;

#[test]
fn what_cannot_be_opened_is_named() {
    let Some(text) = must(User::Root, BARE) else { return println!("{SKIPPED}") };
    for part in [
        "/ringway.sock: the path of the control socket has 133 bytes, and a socket's has at most \
         107: choose a shorter $XDG_RUNTIME_DIR, or a place with --control\nlong: 2\n",
        "ringway could not start: /proc/self/exe cannot be opened: mount /proc: No such file or",
        "proc: 1\n",
        "/dev/null cannot be opened: No such file or directory",
        "null: 1\n",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}
