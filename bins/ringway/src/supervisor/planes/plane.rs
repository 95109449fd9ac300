//! One data plane as the supervisor has it: the process, the socket to it, what waits to be sent,
//! and what it owes.
//!
//! Nothing here waits for the process.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use ringway_foreign::UntrustedFd;
use ringway_supervisor::outbox::{Outbox, Owed};
use ringway_supervisor::restart::{Busy, PlaneExit, RequestId};
use ringway_supervisor::watch::{Act, Beat, Look, Watch};
use ringway_supervisor::wire::{Batch, ToSupervisor};
use ringway_switch::PortId;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid,
};
use signal_hook::consts::SIGKILL;

use super::order::Order;
use crate::channel::{Channel, MEASURED};
use crate::supervisor::processes::descriptors::Kept;
use crate::supervisor::record::PlaneRecord;

/// A program under which data planes run, with its arguments: for debuggers and profilers, with
/// `--sandbox off`.
const UNDER: &str = "RINGWAY_DATA_PLANE_UNDER";

/// Settings of the C library's memory (`mallopt(3)`), which looks into files of the system without
/// them: it counts processors for each of many threads, and asks whether memory may be given back.
const MEMORY: [(&str, &str); 2] =
    [("MALLOC_ARENA_MAX", "8"), ("MALLOC_TRIM_THRESHOLD_", "1099511627776")];

/// How often is looked whether a worker that slept has stood still since.
const LOOK_AT_WORKERS: Duration = Duration::from_secs(10);

/// Messages of a data plane taken before others get their turn.
pub const MESSAGES_PER_TURN: usize = 64;

/// Messages of one that has ended: more than a socket holds.
const LAST_MESSAGES_MAX: usize = 4096;

/// A file descriptor that goes to the data plane.
#[derive(Debug, Clone)]
pub enum OutgoingFd {
    FrontEnd(Arc<UntrustedFd>),
    Own(Arc<OwnedFd>),
}

impl AsFd for OutgoingFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::FrontEnd(fd) => fd.as_fd(),
            Self::Own(fd) => fd.as_fd(),
        }
    }
}

/// A process that carries packets, or is about to.
pub struct Plane {
    pub process: PlaneProcess,
    pub socket: PlaneSocket,
    pub debts: PlaneDebts,
    pub watch: Watch,
    pub look_at: Option<Instant>,
    /// It may open sockets for the guests of routers.
    pub may_route: bool,
}

/// The process, and how it ends.
pub struct PlaneProcess {
    pid: Pid,
    pub pidfd: OwnedFd,
    /// Descriptors it was started with, by number; open here, so that no number means another one.
    pub given: BTreeMap<RawFd, OutgoingFd>,
    /// Nothing that it says counts any more.
    pub is_killed: bool,
    is_hung: bool,
    /// It has said what cannot be, or has not done in time what it has to: it is killed for that.
    pub is_condemned: bool,
    /// The system call by which it says that it ends.
    pub forbidden: Option<u32>,
    /// Why it could not start, heard after its end.
    pub refusal: Option<String>,
}

/// The socket to it, and what waits to be sent.
pub struct PlaneSocket {
    pub channel: Channel,
    pub outbox: Outbox<(Vec<u8>, Vec<OutgoingFd>)>,
    /// While it gets all that there is: messages that go together, with what they ask for.
    pub batch: Option<(Batch, Vec<Owed>)>,
    /// The version of what both speak.
    pub speaks: u16,
}

/// Work that it has to do or to answer, and ports that it is to be told of later.
#[derive(Default)]
pub struct PlaneDebts {
    /// Orders that it has not carried out yet.
    pub orders: BTreeMap<u32, Order>,
    /// Questions that it was asked, and its answer so far.
    pub asks: BTreeMap<u32, Vec<u8>>,
    /// Positions as far as they have come.
    pub export: Vec<u8>,
    /// Another one follows it already: what its workers did when it ended, and the requests that it
    /// had.
    pub suspects: Option<(Vec<Busy>, Vec<RequestId>)>,
    /// Ports whose front-ends it was not told of, because they are held back.
    pub without: BTreeSet<PortId>,
    /// Another one is not started before, to be told of them.
    pub renew_at: Option<Instant>,
}

/// By its descriptor: its file may be replaced meanwhile.
fn command_of(program: &File) -> Command {
    let path = format!("/proc/self/fd/{}", program.as_raw_fd());
    let Ok(under) = std::env::var(UNDER) else {
        let mut command = Command::new(path);
        command.arg0("ringway");
        return command;
    };
    let mut words = under.split_whitespace();
    let mut command = Command::new(words.next().unwrap_or("env"));
    // Another program does not have the descriptor.
    command.args(words).arg(std::fs::read_link(&path).unwrap_or(path.into()));
    command
}

/// For what is not read.
pub fn nowhere() -> anyhow::Result<File> {
    const NULL: &str = "/dev/null";
    let opened = File::options().write(true).open(NULL);
    opened.with_context(|| format!("{NULL} cannot be opened"))
}

impl Plane {
    /// Starts that program as a data plane, with these file descriptors.
    pub fn start(program: &File, given: Vec<OutgoingFd>) -> anyhow::Result<Self> {
        let (channel, theirs) = Channel::pair().context("a socket to the data plane")?;
        let kept = Kept::open(given.iter().map(AsFd::as_fd).collect())?;
        crate::log::only_add();
        let child = command_of(program)
            .arg("data-plane")
            .envs(MEMORY)
            .env(MEASURED, ringway_host::calls_measured())
            .envs(crate::log::environment())
            .stdin(Stdio::from(theirs))
            .stdout(nowhere()?)
            .spawn()
            .context("starting the data plane")?;
        drop(kept);
        let mut plane = Self::of(Pid::from_child(&child), channel)?;
        plane.process.given = given.into_iter().map(|fd| (fd.as_fd().as_raw_fd(), fd)).collect();
        Ok(plane)
    }

    /// One that this process has started before another program took its place; it serves.
    ///
    /// # Errors
    /// There is no such process.
    pub fn resume(record: &PlaneRecord, channel: OwnedFd) -> anyhow::Result<Self> {
        let &PlaneRecord { pid, may_route, speaks, .. } = record;
        let pid = Pid::from_raw(pid).context("no process")?;
        let mut plane = Self::of(pid, Channel::over(channel))?;
        plane.may_route = may_route;
        plane.socket.speaks = speaks.unwrap_or(1);
        Ok(plane)
    }

    pub fn of(pid: Pid, channel: Channel) -> anyhow::Result<Self> {
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).context("watching the data plane")?;
        Ok(Self {
            process: PlaneProcess {
                pid,
                pidfd,
                given: BTreeMap::new(),
                is_killed: false,
                is_hung: false,
                is_condemned: false,
                forbidden: None,
                refusal: None,
            },
            socket: PlaneSocket { channel, outbox: Outbox::default(), batch: None, speaks: 1 },
            debts: PlaneDebts::default(),
            watch: Watch::default(),
            look_at: None,
            may_route: false,
        })
    }

    pub fn pid(&self) -> u32 {
        self.process.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// The next message. `None`: there is none now.
    ///
    /// # Errors
    /// It has closed its end, or says what cannot be.
    pub fn receive(&self) -> anyhow::Result<Option<ToSupervisor>> {
        match self.socket.channel.try_receive() {
            Ok(bytes) => Ok(Some(ToSupervisor::decode(&bytes)?)),
            Err(Errno::AGAIN) => Ok(None),
            Err(why) => Err(why.into()),
        }
    }

    /// Takes the last messages of one that has ended, which were not heard any more.
    pub fn hear_last_words(&mut self) {
        for _ in 0..LAST_MESSAGES_MAX {
            match self.receive() {
                Ok(Some(message)) => self.notes(&message),
                Ok(None) | Err(_) => return,
            }
        }
    }

    /// Takes what it says of itself.
    pub fn notes(&mut self, message: &ToSupervisor) {
        match message {
            ToSupervisor::Forbidden { call } => self.process.forbidden = Some(*call),
            ToSupervisor::GoesOn {} => self.watch.goes_on(),
            ToSupervisor::Ready { refusal: Some(why) } => {
                self.process.refusal = Some(why.as_str().to_owned());
            }
            _ => {}
        }
    }

    /// Looks whether it answers, and whether its workers, if it runs, go on.
    pub fn look(&mut self, now: Instant, beats: &[Beat]) {
        let oldest = self.socket.outbox.oldest();
        let Look { act, asks, again } = self.watch.look(now, oldest, beats);
        if asks {
            self.ask_whether_it_goes_on();
        }
        self.look_at = again.into_iter().chain(Some(now + LOOK_AT_WORKERS)).min();
        match act {
            Some(Act::Abort) => {
                tracing::error!("the data plane does not answer: it is ended");
                self.process.is_hung = true;
                self.signal(Signal::ABORT);
            }
            Some(Act::Kill) => self.signal(Signal::KILL),
            None => {}
        }
    }

    fn signal(&self, signal: Signal) {
        let _ = pidfd_send_signal(&self.process.pidfd, signal);
    }

    /// Ends it; it has ended when its pidfd says so.
    pub fn kill(&mut self) {
        if !std::mem::replace(&mut self.process.is_killed, true) {
            self.signal(Signal::KILL);
            self.socket.outbox.clear();
        }
    }

    /// How it ended, if it has.
    pub fn end(&self) -> Option<PlaneExit> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        let status = waitid(WaitId::PidFd(self.process.pidfd.as_fd()), options).ok().flatten()?;
        Some(match status.terminating_signal() {
            _ if self.process.is_hung => PlaneExit::Hung,
            Some(SIGKILL) if self.process.is_condemned => PlaneExit::Condemned,
            Some(signal) => PlaneExit::Signal(signal),
            None => PlaneExit::Exit(status.exit_status().unwrap_or(0)),
        })
    }

    /// At the end of everything: it is to end by itself, and is killed if it does not.
    pub fn finish(self, at_most: Duration) {
        let Self { process: PlaneProcess { pidfd, .. }, socket, .. } = self;
        drop(socket);
        if !has_ended_within(&pidfd, at_most).unwrap_or(false) {
            let _ = pidfd_send_signal(&pidfd, Signal::KILL);
        }
    }
}

/// Waits for the end of a process, whatever signals come meanwhile.
///
/// # Errors
/// From the operating system.
pub fn has_ended_within(pidfd: &OwnedFd, at_most: Duration) -> rustix::io::Result<bool> {
    let until = Instant::now() + at_most;
    let ended = retry_on_intr(|| {
        let left = until.saturating_duration_since(Instant::now());
        let mut fds = [PollFd::new(pidfd, PollFlags::IN)];
        poll(&mut fds, Timespec::try_from(left).ok().as_ref())
    })?;
    Ok(ended > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It says how it ended: killed by others, or for what it has done.
    #[test]
    fn one_that_is_killed_for_what_it_has_done_is_not_killed_from_outside() {
        for (is_condemned, end) in
            [(false, PlaneExit::Signal(SIGKILL)), (true, PlaneExit::Condemned)]
        {
            let mut child = Command::new("sleep").arg("60").spawn().expect("it starts");
            let (channel, _theirs) = Channel::pair().expect("sockets");
            let plane = Plane::of(Pid::from_child(&child), channel);
            let mut plane = plane.expect("it runs");
            plane.process.is_condemned = is_condemned;
            assert_eq!(plane.end(), None);
            plane.kill();
            let has_ended = has_ended_within(&plane.process.pidfd, Duration::from_secs(20));
            assert!(has_ended.expect("a child"));
            assert_eq!(plane.end(), Some(end));
            // It was waited for just now.
            let _ = child.wait();
        }
    }
}
