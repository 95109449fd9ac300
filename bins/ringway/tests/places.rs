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
