//! Processes that never outlive the demonstration, however it ends.
//!
//! How: between the demonstration and each of its programs stands a keeper, `ringway keep`. It has
//! a session of its own, so that Ctrl-C does not reach it, and its standard input is a pipe whose
//! other end only the demonstration holds. When that end closes, because the demonstration is done
//! or because it was killed, the keeper kills the program's whole process group with SIGKILL, takes
//! in what is left of it, and ends; after a kill it removes the demonstration's directory, too.
//! User Mode Linux needs that: it ignores SIGTERM while its guest hangs, and its helper processes
//! live on when only the first one is killed.
//!
//! Limits: a keeper that was itself killed keeps nothing. The switch and its guests still end then:
//! the guests power off when their network device is gone, at the latest after a fixed time.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, getpid, kill_process_group,
    set_child_subreaper, setsid, wait, waitid,
};

use crate::args::KeepArgs;

/// Longest wait for processes that were killed.
const KILL_LIMIT: Duration = Duration::from_secs(3);

/// Pause between two looks at a process that is ending.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// What a keeper waits for.
enum Event {
    ProgramEnded,
    /// The demonstration wrote something before it closed its end: it cleans up by itself.
    Dismissed,
    DemoGone,
}

/// Written to a keeper that is not needed any more.
const DISMISSAL: &[u8] = b".";

/// A program and its keeper; dropping it ends both.
pub struct Kept {
    keeper: Child,
    /// Its end is the sign for the keeper.
    sign: Option<ChildStdin>,
}

impl Kept {
    /// Starts `command` with its output in the file `log`; `remove`: a directory that the keeper
    /// removes when the demonstration is gone.
    ///
    /// # Errors
    /// From the operating system. That the command itself cannot be started stands in the log.
    pub fn start(command: &[OsString], log: &Path, remove: Option<&Path>) -> io::Result<Self> {
        let log = File::options().create(true).append(true).open(log)?;
        let mut keeper = Command::new(std::env::current_exe()?);
        keeper.arg("keep");
        if let Some(directory) = remove {
            keeper.arg("--remove").arg(directory);
        }
        keeper.arg("--").args(command);
        keeper.stdin(Stdio::piped()).stdout(log.try_clone()?).stderr(log);
        let mut keeper = keeper.spawn()?;
        let sign = keeper.stdin.take();
        Ok(Self { keeper, sign })
    }

    /// Whether the program has ended by itself.
    pub fn has_ended(&mut self) -> bool {
        !matches!(self.keeper.try_wait(), Ok(None))
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if let Some(mut sign) = self.sign.take() {
            // A keeper that does not read any more has ended.
            let _ = sign.write_all(DISMISSAL);
        }
        let until = Instant::now() + KILL_LIMIT * 2;
        while !self.has_ended() && Instant::now() < until {
            thread::sleep(LOOK_EVERY);
        }
        // Without effect on one that has ended.
        let _ = self.keeper.kill();
        let _ = self.keeper.wait();
    }
}

/// `ringway keep`: runs a program until it ends or standard input does.
///
/// # Errors
/// The program cannot be started.
pub fn keep(args: &KeepArgs) -> anyhow::Result<()> {
    // Fails only where there is a session of our own already.
    let _ = setsid();
    set_child_subreaper(Some(getpid())).context("taking in orphans")?;
    let (program, arguments) = args.command.split_first().context("no program")?;
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .process_group(0)
        .spawn()
        .with_context(|| format!("{}: cannot be started", Path::new(program).display()))?;
    let group = Pid::from_child(&child);
    let event = wait_for_end(group);
    // The program is not waited for yet, so the group's number cannot belong to anybody else.
    let _ = kill_process_group(group, Signal::KILL);
    let _ = child.wait();
    take_in_orphans();
    if let (Event::DemoGone, Some(directory)) = (event, &args.remove) {
        // No process is left that could report a failure; the next demonstration tries again.
        let _ = std::fs::remove_dir_all(directory);
    }
    Ok(())
}

/// Waits for whatever comes first; the program is left unreaped.
fn wait_for_end(program: Pid) -> Event {
    let (sender, receiver) = mpsc::channel();
    let from_demo = sender.clone();
    thread::spawn(move || {
        let read = io::copy(&mut io::stdin().lock(), &mut io::sink());
        let event = if read.is_ok_and(|len| len > 0) { Event::Dismissed } else { Event::DemoGone };
        let _ = from_demo.send(event);
    });
    thread::spawn(move || {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        while waitid(WaitId::Pid(program), options).is_err_and(|why| why == Errno::INTR) {}
        let _ = sender.send(Event::ProgramEnded);
    });
    receiver.recv().unwrap_or(Event::DemoGone)
}

/// Killed members of the group become ours as they end; without us they could stay as zombies.
fn take_in_orphans() {
    let until = Instant::now() + KILL_LIMIT;
    while Instant::now() < until {
        match wait(WaitOptions::NOHANG) {
            Ok(Some(_)) => {}
            Ok(None) => thread::sleep(LOOK_EVERY),
            Err(_) => return,
        }
    }
}
