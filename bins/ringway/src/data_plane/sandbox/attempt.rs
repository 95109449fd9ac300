//! Attempts at what the sandbox forbids, for tests: `ringway data-plane --try`, and [`TRIES`] in
//! the environment of a data plane that serves.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use anyhow::Context;
use clap::ValueEnum;
use nix::unistd::Pid;
use rustix::fs::{AtFlags, CWD, MemfdFlags, OFlags, StatxFlags, statat, statx};
use rustix::net::{AddressFamily, SocketType, ipproto};
use rustix::process::Signal;

use super::Sandbox;
use super::filter::filter_calls;

/// Names what a data plane is to try when it has served for [`LATER`].
const TRIES: &str = "RINGWAY_DATA_PLANE_TRIES";
const LATER: Duration = Duration::from_millis(300);

/// It is there, and all may read it.
const FILE: &str = "/etc/passwd";

/// Signals say that a descriptor is ready (`fcntl(2)`).
const O_ASYNC: u32 = libc::O_ASYNC.unsigned_abs();

/// One thing that must fail; but one.
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
    /// To make a process that would outlive this one
    Fork,
    /// To let a descriptor send signals to the process that has started this one
    Signals,
    /// To let a descriptor send signals at all
    Async,
    /// To shorten the log
    Truncate,
    /// To make a file in memory
    Memfd,
    /// To ask about a file by its path
    Stat,
    /// The same in another way
    Statx,
    /// To read where a link leads
    Readlink,
    /// To put memory into the place of the path that may be asked about
    Remap,
    /// To say where the process runs that has started this one
    Affinity,
    /// To make a socket of a kind that no router has
    SocketMptcp,
    /// To go on behind a panic
    Panic,
    /// To free all memory that a thread has, which must not fail
    Free,
}

impl Attempt {
    /// Where there is a router less is forbidden.
    fn needs_router(self) -> bool {
        self == Self::SocketMptcp
    }
}

/// Enters the sandbox, and tries; without the filter of system calls only what is left of it.
///
/// # Errors
/// It was refused. With the filter the process ends instead.
pub fn attempt(what: Attempt, is_filtered: bool) -> anyhow::Result<()> {
    let routers = what.needs_router();
    Sandbox::enter(routers)?;
    if is_filtered {
        filter_calls(routers, std::io::stdin().as_fd())?;
    }
    try_it(what)
}

/// The same in a data plane that serves.
pub fn attempt_later() {
    let named = std::env::var(TRIES).ok();
    if let Some(what) = named.and_then(|name| Attempt::from_str(&name, false).ok()) {
        std::thread::spawn(move || {
            std::thread::sleep(LATER);
            eprintln!("tried {what:?}: {:?}", try_it(what));
        });
    }
}

fn try_it(what: Attempt) -> anyhow::Result<()> {
    let stderr = std::io::stderr();
    match what {
        Attempt::Open => File::open(FILE).map(drop).context("open"),
        Attempt::Socket => rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None)
            .map(drop)
            .context("socket"),
        Attempt::SocketMptcp => {
            rustix::net::socket(AddressFamily::INET, SocketType::STREAM, Some(ipproto::MPTCP))
                .map(drop)
                .context("socket")
        }
        Attempt::Execve => Err(Command::new("/bin/true").exec()).context("execve"),
        Attempt::Ptrace => nix::sys::ptrace::attach(Pid::parent()).context("ptrace"),
        Attempt::Kill => rustix::process::kill_process(parent()?, Signal::WINCH).context("kill"),
        Attempt::Fork => ringway_host::try_fork().context("fork"),
        Attempt::Signals => {
            let parent = parent()?.as_raw_nonzero().get();
            ringway_host::try_signals(stderr.as_fd(), parent).context("fcntl")
        }
        Attempt::Async => {
            rustix::fs::fcntl_setfl(&stderr, OFlags::from_bits_retain(O_ASYNC)).context("fcntl")
        }
        Attempt::Truncate => rustix::fs::ftruncate(&stderr, 0).context("ftruncate"),
        Attempt::Memfd => {
            rustix::fs::memfd_create("tried", MemfdFlags::CLOEXEC).map(drop).context("memfd_create")
        }
        Attempt::Stat => statat(CWD, FILE, AtFlags::empty()).map(drop).context("newfstatat"),
        Attempt::Statx => {
            statx(CWD, FILE, AtFlags::empty(), StatxFlags::SIZE).map(drop).context("statx")
        }
        Attempt::Readlink => {
            rustix::fs::readlinkat(CWD, "/proc/self/exe", vec![]).map(drop).context("readlinkat")
        }
        Attempt::Remap => ringway_host::try_remap().context("mmap"),
        Attempt::Affinity => {
            let here = rustix::thread::sched_getaffinity(None)?;
            rustix::thread::sched_setaffinity(Some(parent()?), &here).context("sched_setaffinity")
        }
        Attempt::Panic => panic!("tried"),
        Attempt::Free => {
            // Each is in the thread's heap; a longer one would be a mapping of its own.
            let all: Vec<_> = (0..600).map(|_| vec![1_u8; 64 << 10]).collect();
            drop(std::hint::black_box(all));
            Ok(())
        }
    }
}

fn parent() -> anyhow::Result<rustix::process::Pid> {
    rustix::process::getppid().context("no parent")
}
