//! What the sandbox forbids, tried, for tests: `ringway data-plane --try`, and [`TRIES`] in the
//! environment of a data plane that serves.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use anyhow::Context;
use clap::ValueEnum;
use nix::unistd::Pid;
use rustix::net::{AddressFamily, SocketType};
use rustix::process::Signal;

use super::sandbox::{Sandbox, filter_calls};

/// Names what a data plane is to try when it has served for [`LATER`].
const TRIES: &str = "RINGWAY_DATA_PLANE_TRIES";
const LATER: Duration = Duration::from_millis(300);

/// One thing that must fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Attempt {
    /// To open a file that all may read
    Open,
    /// To make a socket
    Socket,
    /// To start another program
    Execve,
    /// To trace the process that has started this one
    Ptrace,
    /// To send a signal to it
    Kill,
    /// To go on behind a panic
    Panic,
}

/// Enters the sandbox, and tries; without the filter of system calls only what is left of it.
///
/// # Errors
/// It was refused. With the filter the process ends instead.
pub fn attempt(what: Attempt, is_filtered: bool) -> anyhow::Result<()> {
    Sandbox::enter(false)?;
    if is_filtered {
        filter_calls(false, std::io::stdin().as_fd())?;
    }
    try_it(what)
}

/// The same in a data plane that serves.
pub(super) fn attempt_later() {
    let named = std::env::var(TRIES).ok();
    if let Some(what) = named.and_then(|name| Attempt::from_str(&name, false).ok()) {
        std::thread::spawn(move || {
            std::thread::sleep(LATER);
            try_it(what)
        });
    }
}

fn try_it(what: Attempt) -> anyhow::Result<()> {
    match what {
        Attempt::Open => File::open("/etc/passwd").map(drop).context("open"),
        Attempt::Socket => rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None)
            .map(drop)
            .context("socket"),
        Attempt::Execve => Err(Command::new("/bin/true").exec()).context("execve"),
        Attempt::Ptrace => nix::sys::ptrace::attach(Pid::parent()).context("ptrace"),
        Attempt::Kill => {
            let parent = rustix::process::getppid().context("no parent")?;
            rustix::process::kill_process(parent, Signal::WINCH).context("kill")
        }
        Attempt::Panic => panic!("tried"),
    }
}
