//! Ports that connect by themselves, and what a front-end sees when ringway goes.

use std::io::ErrorKind;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use ringway_net::{Features, NetConfig};
use ringway_vhost_user::Frontend;

const LIMIT: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(10);

/// Bytes of the configuration space that hold address, status, pairs and MTU.
const CONFIG_LEN: u32 = 24;

/// A running ringway, ended with the test.
struct Ringway(Child);

impl Ringway {
    fn run(directory: &Path, port: &str) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ringway"));
        command.args(["run", "--port", port, "--control"]).arg(directory.join("control.sock"));
        Self(command.stderr(Stdio::null()).spawn().expect("ringway starts"))
    }

    fn ask_to_stop(&self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
    }
}

impl Drop for Ringway {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Tries until it works.
fn wait_for<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + LIMIT;
    loop {
        if let Some(done) = attempt() {
            return done;
        }
        assert!(Instant::now() < deadline, "{what}: not within {LIMIT:?}");
        sleep(PAUSE);
    }
}

fn accept(listener: &UnixListener) -> UnixStream {
    wait_for("a connection", || match listener.accept() {
        Ok((stream, _)) => Some(stream),
        Err(why) if why.kind() == ErrorKind::WouldBlock => None,
        Err(why) => panic!("{why}"),
    })
}

#[test]
fn a_connecting_port_tries_again_until_a_front_end_listens() {
    let directory = tempfile::tempdir().expect("a directory");
    let socket = directory.path().join("vm.sock");
    let _ringway = Ringway::run(directory.path(), &format!("vm=vm-connect:{}", socket.display()));
    // No front-end listens yet; then one does, goes, and comes again.
    sleep(20 * PAUSE);
    for _ in 0..3 {
        let listener = UnixListener::bind(&socket).expect("a socket");
        listener.set_nonblocking(true).expect("non-blocking");
        let stream = accept(&listener);
        stream.set_nonblocking(false).expect("blocking");
        let frontend = Frontend::from_stream(stream, LIMIT).expect("a handshake");
        let offered = Features::from_bits_retain(frontend.offered_features());
        assert!(offered.contains(Features::VERSION_1 | Features::MRG_RXBUF | Features::CSUM));
        drop((frontend, listener));
        std::fs::remove_file(&socket).expect("the socket was there");
    }
}

#[test]
fn on_sigterm_the_guest_sees_its_link_go_down_and_the_sockets_go() {
    let directory = tempfile::tempdir().expect("a directory");
    let socket = directory.path().join("vm.sock");
    let mut ringway = Ringway::run(directory.path(), &format!("vm=vm:{}", socket.display()));
    let mut frontend = wait_for("the socket", || Frontend::connect(&socket, LIMIT).ok());
    assert!(link_is_up(&mut frontend));
    assert!(!frontend.config_changed().expect("connected"));
    ringway.ask_to_stop();
    wait_for("the notice", || frontend.config_changed().expect("connected").then_some(()));
    assert!(!link_is_up(&mut frontend));
    let status = wait_for("the end", || ringway.0.try_wait().expect("a child"));
    assert!(status.success(), "{status}");
    assert!(!socket.exists() && !directory.path().join("control.sock").exists());
}

fn link_is_up(frontend: &mut Frontend) -> bool {
    let bytes = frontend.config(CONFIG_LEN).expect("the configuration space");
    NetConfig::decode(&bytes.try_into().expect("as many bytes as asked for")).link_up
}
