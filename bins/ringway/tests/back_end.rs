//! `ringway vhost-user-net` keeps to the conventions by which other programs start back-ends: it
//! says what it can do, and serves the socket that it is told of or was given.

mod common;

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread;

use common::wait_for;
use ringway_testkit::{AnyUserGuest, GuestOptions};
use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_ringway");

/// Another port than a router, which needs a network.
const REST: [&str; 2] = ["--port", "other=vm:other.sock"];

/// Above all that the shell uses.
const HIGH: i32 = 200;

fn back_end(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.arg("vhost-user-net").args(arguments).args(REST);
    command.current_dir(directory).env("XDG_RUNTIME_DIR", directory).stderr(Stdio::null());
    command
}

/// The same with a socket as number 5.
fn start_with_fd(directory: &Path, socket: impl AsFd) -> Child {
    let fd: OwnedFd = fcntl_dupfd_cloexec(socket, HIGH).expect("room");
    fcntl_setfd(&fd, FdFlags::empty()).expect("open");
    let at = fd.as_raw_fd();
    let script = format!("exec 5<&{at} {at}<&-; exec \"$0\" vhost-user-net --fd=5 \"$@\"");
    let mut command = Command::new("bash");
    command.args(["-c", &script, PROGRAM]).args(REST).args(["--control", "c.sock"]);
    command.current_dir(directory).env("XDG_RUNTIME_DIR", directory).spawn().expect("it starts")
}

fn guest(socket: &Path) -> AnyUserGuest {
    wait_for("a guest", || AnyUserGuest::attach(socket, &GuestOptions::default()).ok())
}

/// The state of the guest's port.
fn state(directory: &Path, control: &str) -> Option<String> {
    let mut stats = Command::new(PROGRAM);
    let stats = stats.args(["stats", "--json", "--control", control]).current_dir(directory);
    let stats: Value = serde_json::from_slice(&stats.output().ok()?.stdout).ok()?;
    let port = stats["ports"].as_array()?.iter().find(|port| port["name"] == "vm0")?;
    port["state"].as_str().map(str::to_owned)
}

fn wait_running(directory: &Path, control: &str) {
    wait_for("running", || (state(directory, control)? == "running").then_some(()));
}

fn end(child: &mut Child) -> ExitStatus {
    wait_for("the end", || child.try_wait().expect("a child"))
}

fn stop(child: &mut Child) -> ExitStatus {
    kill_process(Pid::from_child(child), Signal::TERM).expect("it runs");
    end(child)
}

#[test]
fn it_says_what_it_can_do_whatever_else_is_typed() {
    let directory = tempfile::tempdir().expect("a directory");
    let program = directory.path().join("vhost-user-net");
    std::os::unix::fs::symlink(PROGRAM, &program).expect("a link");
    let of = |mut command: Command| command.output().expect("it starts");
    let told =
        |output: &Output| output.status.success() && output.stdout == b"{\"type\":\"net\"}\n";
    let arguments = ["--what", "--fd=x", "--print-capabilities", "--socket-path=a"];
    assert!(told(&of(back_end(directory.path(), &arguments))));
    let mut as_it_is_called = Command::new(&program);
    as_it_is_called.arg("--print-capabilities");
    assert!(told(&of(as_it_is_called)));
    assert_eq!(std::fs::read_dir(directory.path()).expect("it").count(), 1);
}

#[test]
fn what_it_cannot_use_ends_it_at_once() {
    let directory = tempfile::tempdir().expect("a directory");
    let of = |arguments: &[&str]| {
        let mut command = back_end(directory.path(), arguments);
        let output = command.stderr(Stdio::piped()).output().expect("it starts");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let text = of(&["--fd=99"]);
    assert!(text.starts_with("--fd 99: this program was not started with it: "), "{text}");
    assert!(of(&["--fd=5", "--socket-path=a"]).contains("cannot be used with"));
    assert!(of(&[]).contains("required"));
    let text = of(&["--socket-path=a", "--option", "mtu=1400,rate=5"]);
    assert!(text.starts_with("rate=5: there is no option called \"rate\""), "{text}");
    let mut no_directory = back_end(directory.path(), &["--socket-path=none/a.sock"]);
    assert_eq!(no_directory.status().expect("it starts").code(), Some(1));
}

/// One after the other, so that no program inherits what is meant for another one.
#[test]
fn it_serves_a_path_a_socket_that_listens_and_one_that_is_connected() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    let options = ["--option=rate_to_guest=20M,mtu=1400", "--option=vlan=7"];
    let arguments = [&["--socket-path=a.sock"], &options[..]].concat();
    let mut child = back_end(here, &arguments).spawn().expect("it starts");
    let first = guest(&here.join("a.sock"));
    wait_running(here, "a.sock.control");
    let mut list = Command::new(PROGRAM);
    let list = list.args(["port", "list", "--control", "a.sock.control"]).current_dir(here);
    let listed = String::from_utf8(list.output().expect("it starts").stdout).expect("text");
    for option in ["rate_to_guest=20", "mtu=1400", "vlan=7"] {
        assert!(listed.contains(option), "{listed}");
    }
    drop(first);
    let _second = guest(&here.join("a.sock"));
    assert!(stop(&mut child).success());
    assert!(!here.join("a.sock").exists() && !here.join("a.sock.control").exists());

    let path = here.join("b.sock");
    let listener = UnixListener::bind(&path).expect("a socket");
    let mut child = start_with_fd(here, &listener);
    let _guest = guest(&path);
    wait_running(here, "c.sock");
    assert!(stop(&mut child).success());
    // It is not its own.
    assert!(path.exists());

    let path = here.join("d.sock");
    let listener = UnixListener::bind(&path).expect("a socket");
    let connected = thread::spawn(move || guest(&path));
    let (stream, _) = listener.accept().expect("the guest");
    let mut child = start_with_fd(here, &stream);
    drop(stream);
    let guest = connected.join().expect("it is served");
    wait_running(here, "c.sock");
    let upgraded = Command::new(PROGRAM)
        .args(["upgrade", "--control", "c.sock"])
        .current_dir(here)
        .output()
        .expect("it starts");
    assert!(upgraded.status.success(), "{}", String::from_utf8_lossy(&upgraded.stderr));
    assert_eq!(state(here, "c.sock").as_deref(), Some("running"));
    drop(guest);
    assert!(end(&mut child).success(), "it ends with its front-end");
}

/// The firmware of a virtual machine asks for an address, and gets it from the router.
#[test]
fn the_guest_of_a_qemu_is_on_the_router_that_comes_along() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    let mut child = Command::new(PROGRAM)
        .args(["vhost-user-net", "--socket-path=vm0.sock"])
        .current_dir(here)
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    wait_for("a socket", || here.join("vm0.sock").exists().then_some(()));
    let machine = "-m 256M -machine memory-backend=m -display none -serial none -monitor none \
                   -object memory-backend-memfd,id=m,size=256M,share=on -boot n \
                   -chardev socket,id=c,path=vm0.sock -netdev vhost-user,id=n,chardev=c \
                   -device virtio-net-pci,netdev=n,vectors=0";
    let mut qemu = Command::new("qemu-system-x86_64");
    let qemu = qemu.args(machine.split_whitespace()).current_dir(here);
    match qemu.stdout(Stdio::null()).stderr(Stdio::null()).spawn() {
        Ok(mut qemu) => {
            let leased = wait_for("an address", || {
                let mut show = Command::new(PROGRAM);
                show.args(["port", "show", "net", "--control", "vm0.sock.control"]);
                let shown = show.current_dir(here).output().ok()?.stdout;
                String::from_utf8(shown).ok().filter(|text| text.contains("10.0.2.15"))
            });
            assert!(leased.contains("vm0"), "{leased}");
            qemu.kill().expect("it runs");
            qemu.wait().expect("it ends");
        }
        Err(why) => println!("skipped: qemu-system-x86_64: {why}"),
    }
    assert!(stop(&mut child).success());
}
