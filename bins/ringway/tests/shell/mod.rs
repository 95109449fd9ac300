//! Shells in namespaces of their own, with `ringway` in their path: of a plain user, and of root.
//! Each has a `/tmp`, a `/run` and interfaces of its own, which go with it.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::path::Path;
use std::process::{Command, Output, Stdio};

/// The user that types.
#[derive(Debug, Clone, Copy)]
pub enum User {
    /// User 1234, without a runtime directory.
    Plain,
    /// Root, as far as the namespaces go.
    Root,
}

/// Functions of the shell that scripts use: waiting for a ringway, and the end of it.
const FUNCTIONS: &str = r#"
ready() { # until the ringway with this number answers: ready NUMBER [ARGUMENTS OF STATS]
    number=$1; shift
    until ringway stats --json "$@" >/dev/null 2>&1; do
        kill -0 "$number" 2>/dev/null || return 1
        sleep 0.02
    done
}
end() { kill "$1" 2>/dev/null || true; wait "$1"; }
"#;

/// Runs a script to its end; `None`: there are no such namespaces here.
pub fn run(user: User, script: &str) -> Option<Output> {
    let binary = Path::new(env!("CARGO_BIN_EXE_ringway"));
    let directory = binary.parent().expect("a directory");
    let outer = ["--map-root-user", "--mount", "--net", "--pid", "--fork", "--kill-child"];
    // Where this tree is may be hidden by that, or closed to other users.
    let mounts = "mount --bind \"$PROGRAMS\" /mnt && mount --bind \"$FILES\" /srv \
                  && mount -t tmpfs tmpfs /tmp \
                  && mount -t tmpfs -o mode=755 tmpfs /run \
                  && chmod 1777 /tmp && ip link set lo up; cd /tmp";
    let tried = Command::new("unshare")
        .args(outer)
        .args(["sh", "-c", mounts])
        .env("PROGRAMS", directory)
        .env("FILES", env!("CARGO_TARGET_TMPDIR"))
        .output()
        .ok()?;
    if !tried.status.success() {
        return None;
    }
    let inner = match user {
        User::Plain => "exec unshare --user --map-user=1234 --map-group=1234",
        User::Root => "exec",
    };
    let path = std::env::var("PATH").unwrap_or_default();
    let output = Command::new("unshare")
        .args(outer)
        .args([
            "sh",
            "-c",
            &format!("{mounts}; {inner} sh -c \"$0\""),
            &format!("{FUNCTIONS}{script}"),
        ])
        .env("PROGRAMS", directory)
        .env("FILES", env!("CARGO_TARGET_TMPDIR"))
        .env("PATH", format!("/mnt:{path}"))
        .env_remove("XDG_RUNTIME_DIR")
        .env_remove("TMPDIR")
        .stdin(Stdio::null())
        .output();
    Some(output.expect("it ran before"))
}

/// The output of a script, which must succeed; `None`: there are no such namespaces here.
pub fn must(user: User, script: &str) -> Option<String> {
    let output = run(user, script)?;
    let [text, errors] =
        [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    assert!(output.status.success(), "{script}\n{}\n{text}{errors}", output.status);
    Some(text)
}
