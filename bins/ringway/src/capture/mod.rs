//! `ringway capture`: packets of a port as a pcapng file, until something ends it.
//!
//! Workers write into a ring in memory, which is read here every few milliseconds. What comes
//! faster than it is read is lost, and counted.
//!
//! Limits: packets of several workers are in the order of their times only within one reading.

mod describe;
mod output;
mod pcapng;

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use ringway_host::{CaptureReader, CaptureRecord};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::args::CaptureArgs;
use crate::config::SpecError;
use crate::control::client::ask_for_fds;
use crate::control::{CaptureQuestion, CaptureReply, Request};
use crate::units;
use output::{Ended, Output};
use pcapng::Blocks;

/// Time between two readings.
const PERIOD: Duration = Duration::from_millis(5);

/// Captures until a limit is reached, a signal comes, or the other side ends; the outer error is a
/// mistake in what was typed.
///
/// # Errors
/// What is wrong with the filter.
pub fn capture(args: &CaptureArgs) -> Result<anyhow::Result<()>, Vec<SpecError>> {
    let question = CaptureQuestion {
        name: args.port.clone(),
        direction: args.direction,
        snap: args.snap,
        filter: args.filter.clone(),
    };
    if let Err(why) = question.parsed_filter() {
        let typed = format!("--filter {:?}", args.filter.as_deref().unwrap_or_default());
        let advice = "see `ringway capture --help` for what a filter may say";
        return Err(vec![SpecError::new(&typed, why.trim_start_matches("the filter: "), advice)]);
    }
    Ok(run(args, question))
}

fn run(args: &CaptureArgs, question: CaptureQuestion) -> anyhow::Result<()> {
    let output = Output::open(&args.file)?;
    let signals = catch_signals()?;
    let request = Request::Capture(question.clone());
    let (reply, fds): (CaptureReply, _) = ask_for_fds(&args.control_or_default(), &request)?;
    let Ok([file, plane]) = <[OwnedFd; 2]>::try_from(fds) else {
        bail!("the answer came without file descriptors: none is left");
    };
    let reader = CaptureReader::open(file).context("the file of captures")?;
    let blocks = Blocks::new(&question, &reply.description)?;
    let until = args.time.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let left = Left { packets: args.count, bytes: args.bytes, until };
    Session { reader, blocks, output, plane, signals, left, packets: 0 }.run(&args.port)
}

/// What may still come.
struct Left {
    packets: Option<u64>,
    bytes: Option<u64>,
    until: Option<Instant>,
}

/// Why a capture ends.
#[derive(Debug)]
enum End {
    /// A limit was reached, or a signal came.
    Wanted,
    /// The program that read the output has ended.
    Unread,
    /// The port is gone, or the process that wrote.
    Gone,
    /// The output takes no more.
    Refused(anyhow::Error),
}

struct Session {
    reader: CaptureReader,
    blocks: Blocks,
    output: Output,
    /// Closed at the other end when the capture ends there.
    plane: OwnedFd,
    signals: UnixStream,
    left: Left,
    packets: u64,
}

impl Session {
    fn run(mut self, port: &str) -> anyhow::Result<()> {
        let mut end = self.write().err();
        while end.is_none() {
            let over = self.wait()?;
            // What is there when it ends is written as well.
            end = self.read_and_write().err().or(over);
        }
        let lost = self.reader.lost();
        if !matches!(end, Some(End::Refused(_) | End::Unread)) {
            self.blocks.finish(self.packets, lost)?;
            if let Err(End::Refused(why)) = self.write() {
                end = Some(End::Refused(why));
            }
        }
        let counted = units::counted(self.packets, "packet");
        let mut told = format!("{port}: {counted}");
        if lost > 0 {
            let lost = units::count(lost);
            told += &format!("; {lost} were lost, because they came faster than they were written");
        }
        match end {
            Some(End::Refused(why)) => bail!("{why:#}: the capture ends; {told}, all readable"),
            Some(End::Gone) => {
                bail!("the port or its data plane is gone: the capture ends; {told}")
            }
            Some(End::Wanted | End::Unread) | None => {
                eprintln!("{told}");
                Ok(())
            }
        }
    }

    /// Until the next reading; `Some`: it is the last one.
    fn wait(&self) -> anyhow::Result<Option<End>> {
        let fds = [&self.plane.as_fd(), &self.signals.as_fd()];
        let mut fds = fds.map(|fd| PollFd::new(fd, PollFlags::IN));
        let timeout = Timespec::try_from(PERIOD).ok();
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(why) => return Err(why).context("waiting for packets"),
        }
        let is_ready = |at: usize| !fds[at].revents().is_empty();
        let is_late = self.left.until.is_some_and(|until| Instant::now() >= until);
        Ok(if is_ready(1) || is_late {
            Some(End::Wanted)
        } else if is_ready(0) {
            Some(End::Gone)
        } else {
            None
        })
    }

    fn read_and_write(&mut self) -> Result<(), End> {
        let mut packets: Vec<(CaptureRecord, Vec<u8>)> = Vec::new();
        let take = |record, bytes| {
            packets.push((record, bytes));
            true
        };
        let read = self.reader.read(take);
        packets.sort_by_key(|(record, _)| record.time_ns);
        let mut is_full = false;
        for (record, bytes) in packets {
            if !self.add(&record, bytes) {
                is_full = true;
                break;
            }
        }
        self.write()?;
        read.map_err(|why| End::Refused(why.into()))?;
        if is_full || self.left.packets == Some(0) { Err(End::Wanted) } else { Ok(()) }
    }

    /// `false`: a limit does not allow it.
    fn add(&mut self, record: &CaptureRecord, bytes: Vec<u8>) -> bool {
        if self.left.packets == Some(0) {
            return false;
        }
        let bytes_max = self.left.bytes.map(|max| max.saturating_sub(self.output.written()));
        let is_added = self.blocks.packet(record, bytes, bytes_max);
        if is_added {
            self.packets += 1;
            self.left.packets = self.left.packets.map(|left| left - 1);
        }
        is_added
    }

    /// Writes what is ready.
    fn write(&mut self) -> Result<(), End> {
        let (bytes, ends) = self.blocks.take();
        match self.output.write(&bytes, &ends) {
            Ok(()) => Ok(()),
            Err(Ended::Unread) => Err(End::Unread),
            Err(Ended::Refused { why, blocks_lost }) => {
                self.packets = self.packets.saturating_sub(blocks_lost);
                Err(End::Refused(why))
            }
        }
    }
}

/// SIGINT and SIGTERM make the returned stream readable.
fn catch_signals() -> anyhow::Result<UnixStream> {
    let (read, write) = UnixStream::pair().context("socketpair")?;
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::low_level::pipe::register(signal, write.try_clone()?)
            .context("catching signals")?;
    }
    Ok(read)
}
