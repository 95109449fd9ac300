//! A program that needs no shared library (`./x package --static`) serves where there is nothing
//! else. `RINGWAY_STATIC` names it: to build one takes minutes.

mod common;

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output};

use common::wait_for;
use ringway_testkit::{AnyUserGuest, GuestOptions};

/// With a directory as its root, in which there are the program, resolvers, and what every
/// container has: processes and /dev/null.
const SERVE: &str = r#"
set -eu
mount --bind "$1" "$1"
mount -t proc proc "$1/proc"
mount --bind /dev/null "$1/dev/null"
exec chroot "$1" /ringway run --control /run/control.sock \
    --port vm0=vm:/run/vm0.sock --port net=nat:
"#;

struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

/// Asks the one that serves, from outside.
fn asked(root: &Path, words: &[&str]) -> Option<String> {
    let mut command = Command::new(root.join("ringway"));
    let output = command.args(words).arg("--control").arg(root.join("run/control.sock")).output();
    output.ok().filter(|output| output.status.success()).map(|output| said(&output))
}

#[test]
fn a_program_without_libraries_serves_guests_where_there_is_nothing_else() {
    let Some(program) = std::env::var_os("RINGWAY_STATIC") else {
        return println!("skipped: RINGWAY_STATIC names no program of `./x package --static`");
    };
    let directory = tempfile::tempdir().expect("a directory");
    let root = directory.path();
    for name in ["proc", "run", "etc", "dev"] {
        fs::create_dir(root.join(name)).expect("a directory");
    }
    fs::write(root.join("etc/resolv.conf"), "nameserver 192.0.2.53\n").expect("a file");
    fs::write(root.join("dev/null"), "").expect("a file");
    // As from the top of the tree.
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(program);
    fs::copy(&program, root.join("ringway")).expect("the program");
    let mut serve = Command::new("unshare");
    serve.args(["--map-root-user", "--net", "--mount", "--pid", "--fork", "--kill-child"]);
    let served = serve.args(["sh", "-c", SERVE, "sh"]).arg(root).spawn();
    let _served = Ended(served.expect("unshare"));
    let socket = root.join("run/vm0.sock");
    let _guest =
        wait_for("a guest", || AnyUserGuest::attach(&socket, &GuestOptions::default()).ok());
    wait_for("it runs", || {
        asked(root, &["port", "list"]).filter(|text| text.contains("running")).map(drop)
    });
    let router = asked(root, &["port", "show", "net"]).expect("a router");
    assert!(router.contains("0 flows"), "{router}");
}
