//! A program that needs no shared library serves where there is nothing else, and in the image that
//! is made of it. To build one takes minutes: `./x test` does that, and says where it is.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
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

/// With a directory for what `buildah` keeps, and for sockets: makes the image of a directory in
/// which there is what was built, and runs it as it says itself.
const IMAGE: &str = r#"
set -eu
ip link set lo up
store="--root $1/storage --runroot $1/running --storage-driver vfs"
buildah $store build --isolation chroot --network host -f "$3" -t ringway "$2"
container=$(buildah $store from --pull-never ringway)
entry() { buildah $store inspect --format '{{range .OCIv1.Config.Entrypoint}}{{.}} {{end}}' $1; }
exec buildah $store run --isolation chroot --volume "$1/sockets:/run/ringway" $container -- \
    $(entry $container) --port vm0=vm: --port net=nat:
"#;

const SKIPPED: &str = "skipped: RINGWAY_STATIC names no program: ./x test builds one";

fn program() -> Option<PathBuf> {
    std::env::var_os("RINGWAY_STATIC").map(PathBuf::from)
}

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
fn asked(control: &Path, words: &[&str]) -> Option<String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringway"));
    let output = command.args(words).arg("--control").arg(control).output();
    output.ok().filter(|output| output.status.success()).map(|output| said(&output))
}

#[test]
fn a_program_without_libraries_serves_guests_where_there_is_nothing_else() {
    let Some(program) = program() else { return println!("{SKIPPED}") };
    let directory = tempfile::tempdir().expect("a directory");
    let root = directory.path();
    for name in ["proc", "run", "etc", "dev"] {
        fs::create_dir(root.join(name)).expect("a directory");
    }
    fs::write(root.join("etc/resolv.conf"), "nameserver 192.0.2.53\n").expect("a file");
    fs::write(root.join("dev/null"), "").expect("a file");
    fs::copy(program, root.join("ringway")).expect("the program");
    let mut serve = Command::new("unshare");
    serve.args(["--map-root-user", "--net", "--mount", "--pid", "--fork", "--kill-child"]);
    let served = serve.args(["sh", "-c", SERVE, "sh"]).arg(root).spawn();
    let _served = Ended(served.expect("unshare"));
    serves_a_guest(&root.join("run/vm0.sock"), &root.join("run/control.sock"));
}

#[test]
fn an_image_with_nothing_else_serves_guests_on_a_volume() {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root || Command::new("buildah").arg("--version").output().is_err() {
        return println!("skipped: needs root, and buildah");
    }
    let Some(program) = program() else { return println!("{SKIPPED}") };
    let directory = tempfile::tempdir().expect("a directory");
    let (place, tree) = (directory.path(), directory.path().join("tree"));
    let built = tree.join("target/package/static");
    fs::create_dir_all(&built).expect("a directory");
    fs::create_dir(place.join("sockets")).expect("a directory");
    fs::copy(program, built.join("ringway")).expect("the program");
    let recipe = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/Containerfile");
    let mut run = Command::new("unshare");
    run.args(["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]);
    run.args(["sh", "-c", IMAGE, "sh"]).args([place, &tree, &recipe]);
    let _ran = Ended(run.spawn().expect("unshare"));
    let sockets = place.join("sockets");
    serves_a_guest(&sockets.join("vm0.sock"), &sockets.join("ringway.sock"));
}

fn serves_a_guest(socket: &Path, control: &Path) {
    let _guest =
        wait_for("a guest", || AnyUserGuest::attach(socket, &GuestOptions::default()).ok());
    wait_for("it runs", || {
        asked(control, &["port", "list"]).filter(|text| text.contains("running")).map(drop)
    });
    let router = asked(control, &["port", "show", "net"]).expect("a router");
    assert!(router.contains("0 flows"), "{router}");
}
