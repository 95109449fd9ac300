//! `ringway capture`: packets of ports as a pcapng file, until something ends it.
//!
//! Workers write into a ring in memory, which is read here every few milliseconds. What comes
//! faster than it is read is lost, and counted.
//!
//! Where the data plane ends or is replaced, the next one is asked for the same.
//!
//! Limits: packets of several workers are in the order of their times only within one reading. What
//! passes while one data plane follows another is not in the file. Ports that come while it
//! runs are not captured.

mod describe;
mod output;
mod pcapng;
mod places;
pub mod target;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use anyhow::bail;
use ringway_host::{CaptureReader, CaptureRecord, DroppedBy};

use crate::args::{CaptureArgs, Dropped};
use crate::config::SpecError;
use crate::control::CaptureQuestion;
use crate::port_command::ports;
use crate::signals::catch_signals;
use crate::{outcome, units};
use output::{Ended, Limits, Output};
use pcapng::Blocks;
use places::{Interface, Ring, places};
use target::{CaptureTarget, first_ready};

/// Time between two readings.
const PERIOD: Duration = Duration::from_millis(5);

/// How long another data plane may take to come, and how often it is asked meanwhile.
const FOLLOWS_WITHIN: Duration = Duration::from_secs(10);
const ASKED_EVERY: Duration = Duration::from_millis(50);

/// Captures until a limit is reached, a signal comes, or the other side ends; the outer error is a
/// mistake in what was typed.
///
/// # Errors
/// Everything that is wrong with the filter.
pub fn capture(args: &CaptureArgs) -> Result<anyhow::Result<()>, Vec<SpecError>> {
    let question = CaptureQuestion {
        direction: args.direction,
        snap: args.snap,
        sample: args.sample,
        filter: args.filter.clone(),
        ..CaptureQuestion::default()
    };
    if let Err(why) = question.parsed_filter() {
        let typed = format!("--filter {:?}", args.filter.as_deref().unwrap_or_default());
        let advice = "see `ringway capture --help` for what a filter may say";
        return Err(vec![SpecError::new(&typed, why.trim_start_matches("the filter: "), advice)]);
    }
    Ok(run(args, question))
}

fn run(args: &CaptureArgs, mut question: CaptureQuestion) -> anyhow::Result<()> {
    let control = args.control_or_default();
    let (interfaces, file) = places(args, &ports(&control)?)?;
    let mut names = interfaces.iter().map(|interface| interface.name.clone());
    match interfaces.len() {
        1 => question.name = names.next().unwrap_or_default(),
        _ => question.names = names.collect(),
    }
    let ring = Ring::of(args, &file)?;
    let output = Output::open(&ring.as_ref().map_or(file, Ring::path))?;
    let signals = catch_signals()?;
    let target = CaptureTarget { control, question };
    let (_, reader, plane) = target.begin()?;
    output.empty()?;
    let blocks = Blocks::new(&target.question, &interfaces)?;
    let until = args.time.map(|time| Instant::now() + time);
    let left = Left { packets: args.count, bytes: args.bytes, until };
    let counts = CaptureCounts::default();
    let mut session =
        Session { target, interfaces, reader, blocks, output, ring, plane, signals, left, counts };
    session.run(args.dropped)
}

#[derive(Default)]
struct CaptureCounts {
    packets: u64,
    lost: u64,
    /// Of them, those that files tell of that are written already.
    told: u64,
    /// Bytes of files that are written already.
    bytes: u64,
    /// Data planes that have followed.
    followed: u64,
}

/// The packets, bytes and time that are left.
struct Left {
    packets: Option<u64>,
    bytes: Option<u64>,
    until: Option<Instant>,
}

/// Why a capture ends.
#[derive(Debug)]
enum CaptureEnd {
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
    target: CaptureTarget,
    /// Its ports at the beginning, as the file numbers them.
    interfaces: Vec<Interface>,
    reader: CaptureReader,
    blocks: Blocks,
    output: Output,
    ring: Option<Ring>,
    /// Closed at the other end when the capture ends there.
    plane: OwnedFd,
    signals: UnixStream,
    left: Left,
    counts: CaptureCounts,
}

impl Session {
    fn run(&mut self, dropped: Option<Dropped>) -> anyhow::Result<()> {
        let mut end = self.write().err();
        while end.is_none() {
            let over = self.wait()?;
            // Packets that are there when it ends are written as well.
            end = self.read_and_write(dropped).err().or(over);
            if matches!(end, Some(CaptureEnd::Gone)) {
                end = self.follow()?;
            }
        }
        if !matches!(end, Some(CaptureEnd::Refused(_) | CaptureEnd::Unread)) {
            self.blocks.finish(self.lost() - self.counts.told)?;
            if let Err(CaptureEnd::Refused(why)) = self.write() {
                end = Some(CaptureEnd::Refused(why));
            }
        }
        let told = self.told();
        match end {
            Some(CaptureEnd::Refused(why)) => {
                bail!("{why:#}: the capture ends; {told}, all readable")
            }
            Some(CaptureEnd::Gone) => {
                bail!("the port or its data plane is gone: the capture ends; {told}")
            }
            Some(CaptureEnd::Wanted | CaptureEnd::Unread) | None => {
                outcome::say(&told);
                Ok(())
            }
        }
    }

    /// How it was.
    fn told(&self) -> String {
        let of = match &self.interfaces[..] {
            [interface] => interface.name.clone(),
            all => units::counted(all.len() as u64, "port"),
        };
        let mut told = format!("{of}: {}", units::counted(self.counts.packets, "packet"));
        let lost = self.lost();
        if lost > 0 {
            let lost = units::count(lost);
            told += &format!("; {lost} were lost, because they came faster than they were written");
        }
        if self.counts.followed > 0 {
            let times = units::counted(self.counts.followed, "time");
            told += &format!("; the data plane changed {times}, what passed then is not there");
        }
        told
    }

    fn lost(&self) -> u64 {
        self.counts.lost.saturating_add(self.reader.lost())
    }

    /// Another data plane goes on with the capture; `Some`: none does.
    fn follow(&mut self) -> anyhow::Result<Option<CaptureEnd>> {
        let begun = Instant::now();
        while begun.elapsed() < FOLLOWS_WITHIN {
            if let Ok((_, reader, plane)) = self.target.begin() {
                self.counts.lost = self.counts.lost.saturating_add(self.reader.lost());
                self.counts.followed += 1;
                (self.reader, self.plane) = (reader, plane);
                return Ok(None);
            }
            if self.target.is_over() {
                break;
            }
            if let Some(end) = self.wait_for(&[self.signals.as_fd()], ASKED_EVERY)? {
                return Ok(Some(end));
            }
        }
        Ok(Some(CaptureEnd::Gone))
    }

    /// Until the next reading; `Some`: it is the last one.
    fn wait(&self) -> anyhow::Result<Option<CaptureEnd>> {
        self.wait_for(&[self.signals.as_fd(), self.plane.as_fd()], PERIOD)
    }

    /// Of the signals, and the other end if it is named.
    fn wait_for(
        &self,
        fds: &[BorrowedFd<'_>],
        time: Duration,
    ) -> anyhow::Result<Option<CaptureEnd>> {
        let ready = first_ready(fds, time)?;
        let is_late = self.left.until.is_some_and(|until| Instant::now() >= until);
        Ok(if ready == Some(0) || is_late {
            Some(CaptureEnd::Wanted)
        } else if ready == Some(1) {
            Some(CaptureEnd::Gone)
        } else {
            None
        })
    }

    /// `dropped`: only such packets.
    fn read_and_write(&mut self, dropped: Option<Dropped>) -> Result<(), CaptureEnd> {
        let mut packets: Vec<(CaptureRecord, Vec<u8>)> = Vec::new();
        let take = |record, bytes| {
            packets.push((record, bytes));
            true
        };
        let read = self.reader.read(take);
        self.blocks.follow_clock();
        packets.retain(|(record, _)| dropped.is_none_or(|dropped| is_such(record, dropped)));
        packets.sort_by_key(|(record, _)| record.time_ns);
        let mut is_full = false;
        for (record, bytes) in packets {
            if !self.add(&record, &bytes)? {
                is_full = true;
                break;
            }
        }
        self.write()?;
        read.map_err(|why| CaptureEnd::Refused(why.into()))?;
        if is_full || self.left.packets == Some(0) { Err(CaptureEnd::Wanted) } else { Ok(()) }
    }

    /// `false`: a limit does not allow it.
    fn add(&mut self, record: &CaptureRecord, bytes: &[u8]) -> Result<bool, CaptureEnd> {
        if self.left.packets == Some(0) {
            return Ok(false);
        }
        // The data plane may say anything.
        let Some(interface) = self.interface(record.port) else { return Ok(true) };
        let mut is_added = self.blocks.packet(record, bytes, interface, self.room());
        if !is_added && self.ring.is_some() {
            self.turn()?;
            is_added = self.blocks.packet(record, bytes, interface, self.room());
        }
        if is_added {
            self.counts.packets += 1;
            self.left.packets = self.left.packets.map(|left| left - 1);
        }
        Ok(is_added)
    }

    /// The number of a port in the file: ports may have gone since it began.
    fn interface(&self, place: u16) -> Option<usize> {
        let name = self.target.question.ports().get(usize::from(place))?;
        self.interfaces.iter().position(|interface| interface.name == *name)
    }

    /// Bytes that may wait to be written.
    fn room(&self) -> Option<u64> {
        let left = self.left.bytes.map(|max| max.saturating_sub(self.counts.bytes));
        let of_file = self.ring.as_ref().map(|ring| ring.bytes);
        let max = left.into_iter().chain(of_file).min()?;
        Some(max.saturating_sub(self.output.written() + self.blocks.last_len_max()))
    }

    /// The file of a ring is full: the next one is written.
    fn turn(&mut self) -> Result<(), CaptureEnd> {
        let Some(ring) = &mut self.ring else { return Ok(()) };
        ring.turn();
        let path = ring.path();
        let lost = self.lost();
        self.blocks.finish(lost - self.counts.told).map_err(CaptureEnd::Refused)?;
        self.counts.told = lost;
        self.write()?;
        self.counts.bytes = self.counts.bytes.saturating_add(self.output.written());
        let opened = Output::open(&path).and_then(|output| output.empty().map(|()| output));
        self.output = opened.map_err(CaptureEnd::Refused)?;
        let blocks = Blocks::new(&self.target.question, &self.interfaces);
        self.blocks = blocks.map_err(CaptureEnd::Refused)?;
        Ok(())
    }

    /// Writes what is ready.
    fn write(&mut self) -> Result<(), CaptureEnd> {
        let (bytes, ends) = self.blocks.take();
        let limits = Limits { signals: self.signals.as_fd(), until: self.left.until };
        match self.output.write(&bytes, &ends, limits) {
            Ok(()) => Ok(()),
            Err(Ended::Unread) => Err(CaptureEnd::Unread),
            Err(Ended::Refused { why, blocks_lost }) => {
                self.counts.packets = self.counts.packets.saturating_sub(blocks_lost);
                Err(CaptureEnd::Refused(why))
            }
        }
    }
}

fn is_such(record: &CaptureRecord, Dropped(only): Dropped) -> bool {
    let reason = record.dropped.map(|(DroppedBy::Port(why) | DroppedBy::Receiver(why))| why);
    reason.is_some_and(|reason| only.is_none_or(|only| only == reason))
}
