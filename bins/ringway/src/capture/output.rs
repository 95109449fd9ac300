//! Where a capture is written: a file that stays readable whatever happens, or a pipe.

use std::fs::File;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::places::STANDARD_OUTPUT;

/// A pipe that takes anything takes so much without waiting (`PIPE_BUF`, pipe(7)).
const PIECE_LEN: usize = 4096;

/// How long a program may take to read the rest, when all is to end.
const REST_LIMIT: Duration = Duration::from_secs(1);

/// The output.
pub struct Output {
    file: File,
    /// For people.
    name: String,
    /// A file of a name, and not what was written to standard output.
    is_named: bool,
    /// One that never waits for a reader.
    is_regular: bool,
    written: u64,
}

/// Why nothing more can be written.
pub enum Ended {
    /// The program that read it has ended.
    Unread,
    /// For another reason; so many blocks of the last ones are not in it.
    Refused { why: anyhow::Error, blocks_lost: u64 },
}

/// The limits of the wait for a program that does not read.
#[derive(Clone, Copy)]
pub struct Limits<'a> {
    pub signals: BorrowedFd<'a>,
    pub until: Option<Instant>,
}

impl Output {
    /// Opens the file, in which all stays as it is until [`empty`](Self::empty), or takes standard
    /// output.
    ///
    /// # Errors
    /// It cannot be made, or is a terminal.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        if path != Path::new(STANDARD_OUTPUT) {
            let name = path.display().to_string();
            let file = File::options().write(true).create(true).truncate(false).open(path);
            let file = file.with_context(|| format!("{name}: cannot be written"))?;
            return Ok(Self::new(file, name, true));
        }
        let output = io::stdout();
        if output.is_terminal() {
            bail!("a capture is no text: name a file, or add `| tcpdump -r -`");
        }
        let file = output.as_fd().try_clone_to_owned().context("standard output")?;
        let name = "standard output".to_owned();
        Ok(Self::new(file.into(), name, false))
    }

    fn new(file: File, name: String, is_named: bool) -> Self {
        let is_regular = file.metadata().is_ok_and(|about| about.is_file());
        Self { file, name, is_named, is_regular, written: 0 }
    }

    /// There is something to be written: what was in a file before goes.
    ///
    /// # Errors
    /// From the operating system.
    pub fn empty(&self) -> anyhow::Result<()> {
        match self.is_regular && self.is_named {
            true => self.file.set_len(0).context(self.name.clone()),
            false => Ok(()),
        }
    }

    /// Bytes so far.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Writes whole blocks, which end at `ends`. If not all fit, the file ends with the last one
    /// that does.
    ///
    /// # Errors
    /// It takes no more.
    pub fn write(&mut self, bytes: &[u8], ends: &[usize], limits: Limits<'_>) -> Result<(), Ended> {
        let limits = Some(limits).filter(|_| !self.is_regular);
        let (done, outcome) = write_all(&self.file, bytes, limits);
        let whole = ends.iter().copied().filter(|end| *end <= done).max().unwrap_or(0);
        let before = self.written;
        self.written += whole as u64;
        let Err(why) = outcome else { return Ok(()) };
        if why.kind() == ErrorKind::BrokenPipe {
            return Err(Ended::Unread);
        }
        if self.is_named {
            // Half a block would be an error for readers. A pipe has no length.
            let _ = self.file.set_len(before + whole as u64);
        }
        let lost = ends.iter().filter(|end| **end > done).count();
        let why = anyhow::Error::new(why).context(self.name.clone());
        Err(Ended::Refused { why, blocks_lost: lost as u64 })
    }
}

/// How many bytes were written, and why not all.
fn write_all(mut to: &File, bytes: &[u8], limits: Option<Limits<'_>>) -> (usize, io::Result<()>) {
    let (mut done, mut end) = (0, None);
    while done < bytes.len() {
        let mut piece = &bytes[done..];
        if let Some(limits) = limits {
            if let Err(why) = wait_for_room(to, limits, &mut end) {
                return (done, Err(why));
            }
            piece = &piece[..piece.len().min(PIECE_LEN)];
        }
        match to.write(piece) {
            Ok(0) => return (done, Err(ErrorKind::WriteZero.into())),
            Ok(len) => done += len,
            Err(why) if why.kind() == ErrorKind::Interrupted => {}
            Err(why) => return (done, Err(why)),
        }
    }
    (done, Ok(()))
}

/// Until it takes a piece, or reports an error; not later than `end`, which is soon after a signal
/// has come or the time is over.
fn wait_for_room(to: &File, limits: Limits<'_>, end: &mut Option<Instant>) -> io::Result<()> {
    loop {
        let is_heard = if end.is_some() { PollFlags::empty() } else { PollFlags::IN };
        let signals = PollFd::from_borrowed_fd(limits.signals, is_heard);
        let mut fds = [PollFd::new(to, PollFlags::OUT), signals];
        let left = end.or(limits.until).map(|at| at.saturating_duration_since(Instant::now()));
        let timeout = left.and_then(|left| Timespec::try_from(left).ok());
        match poll(&mut fds, timeout.as_ref()) {
            Err(Errno::INTR) => {}
            Err(why) => return Err(why.into()),
            Ok(_) if !fds[0].revents().is_empty() => return Ok(()),
            Ok(_) if end.is_none() => *end = Some(Instant::now() + REST_LIMIT),
            Ok(_) => return Err(io::Error::new(ErrorKind::TimedOut, "its reader takes nothing")),
        }
    }
}
