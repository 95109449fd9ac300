//! The unit of the package for users: its command serves where that user's commands ask.

mod shell;

use shell::{User, must};

const UNIT: &str = include_str!("../../../packaging/user/ringway.service");

/// With the file of the guide, in place of systemd, which has its test in `service.rs`.
const SCRIPT: &str = r#"
mkdir -m 700 /tmp/1234; export XDG_RUNTIME_DIR=/tmp/1234
mkdir -p /tmp/config/ringway
printf '[port.%s]\n%s = ""\n' vm0 vm vm1 vm net nat >/tmp/config/ringway/ringway.toml
START 2>log & pid=$!
ready $pid || { cat log; exit 1; }
ringway ls
RELOAD
find /tmp/1234 -type s
end $pid
"#;

fn command(key: &str) -> String {
    let line = UNIT.lines().find_map(|line| line.strip_prefix(key)).expect("a command");
    line.replace("/usr/bin/ringway", "ringway").replace("%E", "/tmp/config")
}

#[test]
fn a_user_has_a_ringway_as_a_service() {
    let start = command("ExecStart=");
    let script = SCRIPT.replace("START", &start).replace("RELOAD", &command("ExecReload="));
    let Some(text) = must(User::Plain, &script) else {
        return println!("skipped: no user, mount and network namespaces here");
    };
    for part in
        ["vm0", "net", "read again", "/tmp/1234/ringway.sock\n", "/tmp/1234/ringway/vm1.sock\n"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    // A process that waits for it is told when guests can connect, and that it goes on.
    for line in ["Type=notify", "WatchdogSec=30s", "WantedBy=default.target"] {
        assert!(UNIT.lines().any(|it| it == line), "{line}");
    }
}
