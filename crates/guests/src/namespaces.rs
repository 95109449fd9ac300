//! Namespaces of one's own, so that nothing can stay behind.
//!
//! How: `unshare` starts a program in fresh network, process and mount namespaces. When the first
//! process of a process namespace ends, the kernel kills all others in it, and removes the
//! interfaces of the network namespace with the last of them.
//!
//! Limits: without root it needs a kernel that lets users create namespaces, and a tap driver that
//! lets them in.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::process::LOOK_EVERY;
use crate::shell;

/// The command that puts what follows into fresh namespaces.
pub fn unshare() -> Command {
    let mut command = shell::command(&["unshare"]);
    if !shell::is_root() {
        command.arg("--map-root-user");
    }
    command.args(["--net", "--pid", "--fork", "--kill-child=KILL", "--mount-proc", "--"]);
    command
}

/// Why there are no namespaces here, if so.
pub fn missing() -> Option<String> {
    attempt("no namespaces", &["true"])
}

/// Why there are no taps in namespaces, if so.
pub fn missing_taps() -> Option<String> {
    let add_tap = ["ip", "tuntap", "add", "dev", "attempt0", "mode", "tap", "vnet_hdr"];
    attempt("no tap in a network namespace", &add_tap)
}

/// Why there are no bridges with VXLAN in namespaces, if so.
pub fn missing_bridges() -> Option<String> {
    let lines = "ip link add br0 type bridge && ip link add vx0 type vxlan id 1 dstport 4789";
    attempt("no bridge or no VXLAN in a network namespace", &["sh", "-c", lines])
}

/// Why this command does not work in namespaces of its own, if so.
fn attempt(what: &str, words: &[&str]) -> Option<String> {
    let error = shell::output(unshare().args(words)).err()?;
    Some(format!("{what} here: {error:#}"))
}

/// Does something with the calling thread in the network of another process: what it starts stays
/// there. Afterwards the thread is where it was.
///
/// # Errors
/// There is no such process, or its network is out of reach.
pub fn within<T>(id: u32, action: impl FnOnce() -> T) -> io::Result<T> {
    let network = LinkNameSpaceType::Network;
    let here = File::open("/proc/thread-self/ns/net")?;
    let there = File::open(format!("/proc/{id}/ns/net"))?;
    move_into_link_name_space(there.as_fd(), Some(network))?;
    let done = action();
    move_into_link_name_space(here.as_fd(), Some(network))?;
    Ok(done)
}

/// Starts a program and waits for its end. Its standard input stays open meanwhile: the end of it
/// tells the program that we are gone.
///
/// # Errors
/// It does not start, or it took too long and was killed.
pub fn run(command: &mut Command, limit: Duration) -> anyhow::Result<ExitStatus> {
    let mut child = command.stdin(Stdio::piped()).spawn().context("unshare")?;
    let ended = wait(&mut child, limit)?;
    ended.with_context(|| format!("killed: it took longer than {limit:?}"))
}

/// Waits for the end of a program. `None`: it took too long and was killed.
///
/// # Errors
/// It cannot be waited for.
pub fn wait(child: &mut Child, limit: Duration) -> anyhow::Result<Option<ExitStatus>> {
    let deadline = Instant::now() + limit;
    // `Child::wait` would close its standard input.
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() > deadline {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(LOOK_EVERY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_too_long_is_killed() {
        let mut child = shell::command(&["sleep", "1000"]).spawn().expect("sleep starts");
        let ended = wait(&mut child, Duration::from_millis(100)).expect("it can be killed");
        assert!(ended.is_none());
    }
}
