//! One data plane as the supervisor has it: the process, the socket to it, what waits to be sent,
//! and what it owes.
//!
//! Nothing here waits for the process.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use ringway_foreign::UntrustedFd;
use ringway_supervisor::restart::{End, RequestId};
use ringway_supervisor::watch::{Act, Beat, Watch};
use ringway_supervisor::wire::{ToData, ToSupervisor};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid,
};

use super::order::Order;
use crate::channel::Channel;

/// A program under which data planes run, with its arguments: for debuggers and profilers, with
/// `--sandbox off`.
const UNDER: &str = "RINGWAY_DATA_PLANE_UNDER";

/// Places from which threads take memory without waiting for each other.
const ARENAS_MAX: &str = "8";

/// How often is looked whether a worker that slept has stood still since.
const LOOK_AT_WORKERS: Duration = Duration::from_secs(10);

/// Until what found no room is tried again.
const SEND_AGAIN: Duration = Duration::from_millis(1);

/// Messages of a data plane taken before others get their turn.
pub(super) const MESSAGES_PER_TURN: usize = 64;

/// Messages of one that has ended: more than a socket holds.
const LAST_MESSAGES_MAX: usize = 4096;

/// How far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// It was started.
    Starting,
    /// It gets what there is.
    Loading,
    /// It has all of it, and waits.
    Ready,
    /// It was told to go.
    Going,
    Running,
    /// It was told to stop where it is.
    Quiescing,
    /// It has done so.
    Frozen,
    /// It was killed, and has not ended yet.
    Ending,
}

impl Stage {
    /// Whether it may say that: a step that is said again would begin its time limit anew.
    pub(super) fn takes(self, message: &ToSupervisor) -> bool {
        match message {
            ToSupervisor::Hello { .. } => self == Self::Starting,
            ToSupervisor::Ready { refusal: None } => self == Self::Loading,
            ToSupervisor::Running {} => self == Self::Going,
            _ => true,
        }
    }
}

/// A file descriptor that goes to the data plane.
#[derive(Debug, Clone)]
pub(super) enum Sent {
    FrontEnd(Arc<UntrustedFd>),
    Own(Arc<OwnedFd>),
}

impl AsFd for Sent {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::FrontEnd(fd) => fd.as_fd(),
            Self::Own(fd) => fd.as_fd(),
        }
    }
}

/// A process that carries packets, or is about to.
pub(super) struct Plane {
    pid: Pid,
    pub(super) pidfd: OwnedFd,
    pub(super) channel: Channel,
    outbox: VecDeque<(Vec<u8>, Vec<Sent>)>,
    pub(super) stage: Stage,
    pub(super) since: Instant,
    watch: Watch,
    pub(super) look_at: Option<Instant>,
    is_hung: bool,
    /// It may open sockets for the guests of routers.
    pub(super) may_route: bool,
    /// What it was ordered and has not done yet, and since when.
    pub(super) orders: BTreeMap<u32, (Order, Instant)>,
    /// What it was asked, its answer so far, and since when.
    pub(super) asks: BTreeMap<u32, (Vec<u8>, Instant)>,
    /// Positions as far as they have come.
    pub(super) export: Vec<u8>,
    /// Another one follows it already: the ports that it served when it ended, and the requests
    /// that it had.
    pub(super) suspects: Option<(Vec<u16>, Vec<RequestId>)>,
    /// The system call by which it says that it ends.
    pub(super) forbidden: Option<u32>,
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

impl Plane {
    /// Starts that program as a data plane.
    pub(super) fn start(program: &File) -> anyhow::Result<Self> {
        let (channel, theirs) = Channel::pair().context("a socket to the data plane")?;
        let child = command_of(program)
            .arg("data-plane")
            // Without it the C library counts processors for each of many threads, in a file.
            .env("MALLOC_ARENA_MAX", ARENAS_MAX)
            .envs(crate::log::environment())
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .spawn()
            .context("starting the data plane")?;
        Self::of(Pid::from_child(&child), channel, Stage::Starting)
    }

    /// One that this process has started before another program took its place; it serves.
    ///
    /// # Errors
    /// There is no such process.
    pub(super) fn resume(pid: i32, channel: OwnedFd, may_route: bool) -> anyhow::Result<Self> {
        let pid = Pid::from_raw(pid).context("no process")?;
        let plane = Self::of(pid, Channel::over(channel), Stage::Running)?;
        Ok(Self { may_route, ..plane })
    }

    fn of(pid: Pid, channel: Channel, stage: Stage) -> anyhow::Result<Self> {
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).context("watching the data plane")?;
        Ok(Self {
            pid,
            pidfd,
            channel,
            outbox: VecDeque::new(),
            stage,
            since: Instant::now(),
            watch: Watch::default(),
            look_at: None,
            is_hung: false,
            may_route: false,
            orders: BTreeMap::new(),
            asks: BTreeMap::new(),
            export: Vec::new(),
            suspects: None,
            forbidden: None,
        })
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// Whether all that was to be sent is sent.
    pub(super) fn is_told(&self) -> bool {
        self.outbox.is_empty()
    }

    /// It may be told of ports and front-ends: it has those that there are.
    pub(super) fn is_loaded(&self) -> bool {
        matches!(self.stage, Stage::Loading | Stage::Ready | Stage::Going | Stage::Running)
    }

    pub(super) fn enters(&mut self, stage: Stage) {
        (self.stage, self.since) = (stage, Instant::now());
    }

    /// Sends it, now or when there is room.
    pub(super) fn tell(&mut self, message: &ToData, fds: Vec<Sent>) {
        self.outbox.push_back((message.encode(), fds));
        self.flush();
    }

    /// Sends what waits, as far as there is room.
    pub(super) fn flush(&mut self) {
        while let Some((bytes, fds)) = self.outbox.front() {
            let borrowed: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
            match self.channel.try_send(bytes, &borrowed) {
                Ok(()) => drop(self.outbox.pop_front()),
                Err(Errno::AGAIN | Errno::TOOMANYREFS | Errno::NOBUFS | Errno::NOMEM) => return,
                // It has ended, which is noticed elsewhere.
                Err(_) => return self.outbox.clear(),
            }
        }
    }

    /// When to try again to send.
    pub(super) fn next_flush(&self) -> Option<Instant> {
        (!self.outbox.is_empty()).then(|| Instant::now() + SEND_AGAIN)
    }

    /// The next message. `None`: there is none now.
    ///
    /// # Errors
    /// It has closed its end, or says what cannot be.
    pub(super) fn receive(&self) -> anyhow::Result<Option<ToSupervisor>> {
        match self.channel.try_receive() {
            Ok(bytes) => Ok(Some(ToSupervisor::decode(&bytes)?)),
            Err(Errno::AGAIN) => Ok(None),
            Err(why) => Err(why.into()),
        }
    }

    /// What one that has ended has said last, and was not heard any more.
    pub(super) fn hear_last_words(&mut self) {
        for _ in 0..LAST_MESSAGES_MAX {
            match self.receive() {
                Ok(Some(ToSupervisor::Forbidden { call })) => self.forbidden = Some(call),
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => return,
            }
        }
    }

    /// Looks whether it answers, and whether its workers go on; `oldest`: since when a front-end
    /// has waited for its answer.
    pub(super) fn look(&mut self, now: Instant, oldest: Option<Instant>, beats: &[Beat]) {
        let orders = self.orders.values().map(|(_, since)| *since);
        let asks = self.asks.values().map(|(_, since)| *since);
        let oldest = orders.chain(asks).chain(oldest).min();
        let beats = if self.stage == Stage::Running { beats } else { &[] };
        let (act, again) = self.watch.look(now, oldest, beats);
        self.look_at = again.into_iter().chain(Some(now + LOOK_AT_WORKERS)).min();
        match act {
            Some(Act::Abort) => {
                tracing::error!("the data plane does not answer: it is ended");
                self.is_hung = true;
                self.signal(Signal::ABORT);
            }
            Some(Act::Kill) => self.signal(Signal::KILL),
            None => {}
        }
    }

    fn signal(&self, signal: Signal) {
        let _ = pidfd_send_signal(&self.pidfd, signal);
    }

    /// Ends it; it has ended when its pidfd says so.
    pub(super) fn kill(&mut self) {
        if self.stage != Stage::Ending {
            self.signal(Signal::KILL);
            self.outbox.clear();
            self.enters(Stage::Ending);
        }
    }

    /// How it ended, if it has.
    pub(super) fn end(&self) -> Option<End> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        let status = waitid(WaitId::PidFd(self.pidfd.as_fd()), options).ok().flatten()?;
        Some(match (self.is_hung, status.terminating_signal()) {
            (true, _) => End::Hung,
            (false, Some(signal)) => End::Signal(signal),
            (false, None) => End::Exit(status.exit_status().unwrap_or(0)),
        })
    }

    /// At the end of everything: it is to end by itself, and is killed if it does not.
    pub(super) fn finish(self, at_most: Duration) {
        let Self { channel, pidfd, .. } = self;
        drop(channel);
        let timeout = rustix::event::Timespec::try_from(at_most).ok();
        let mut fds = [rustix::event::PollFd::new(&pidfd, rustix::event::PollFlags::IN)];
        let ended = rustix::event::poll(&mut fds, timeout.as_ref()).unwrap_or(0) > 0;
        if !ended {
            let _ = pidfd_send_signal(&pidfd, Signal::KILL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_supervisor::wire::Versions;

    #[test]
    fn each_step_is_said_once_and_in_its_turn() {
        use Stage::{Ending, Frozen, Going, Loading, Quiescing, Ready, Running, Starting};
        let stages = [Starting, Loading, Ready, Going, Running, Quiescing, Frozen, Ending];
        let versions = || Versions { first: 1, last: 1 };
        let hello = ToSupervisor::Hello { wire: versions(), journal: versions() };
        let ready = ToSupervisor::Ready { refusal: None };
        let taken = |message| stages.into_iter().filter(move |stage| stage.takes(message));
        assert!(taken(&hello).eq([Starting]));
        assert!(taken(&ready).eq([Loading]));
        assert!(taken(&ToSupervisor::Running {}).eq([Going]));
        assert!(taken(&ToSupervisor::Forbidden { call: 1 }).eq(stages));
    }
}
