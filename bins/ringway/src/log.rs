//! The log: lines on standard error that nothing waits for, and whose failure ends nothing.
//!
//! Standard error may be a full disk, a pipe without a reader, or a pipe whose reader is stuck. A
//! thread of its own writes the lines, so only that thread meets such errors and waits. Other
//! threads put their lines into a bounded queue. A line that finds no room in the queue, or that
//! cannot be written, is lost and counted; the next time a line is written, the log says how many
//! were lost.
//!
//! Limits: [`LINES_MAX`] lines wait. [`Log::flush`] waits for a bounded time.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender, TryRecvError, TrySendError};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use rustix::fs::{FileType, OFlags};
use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, reload};

use crate::config::SpecError;
use crate::log_filter::{self, LOG_VARIABLE};
use crate::log_format::{FORMAT_VARIABLE, Format};

/// Lines that wait to be written.
const LINES_MAX: usize = 1024;

/// Pause between two attempts to queue the request to flush.
const FLUSH_PAUSE: Duration = Duration::from_millis(1);

/// The filter and the format of the log.
#[derive(Debug)]
pub struct Logging {
    pub filter: EnvFilter,
    pub format: Format,
}

/// The queue to the thread that writes.
#[derive(Debug, Clone)]
pub struct Log {
    format: Format,
    queue: SyncSender<LogItem>,
    lost: Arc<AtomicU64>,
}

#[derive(Debug)]
enum LogItem {
    Line(Vec<u8>),
    /// Everything before is to be written; then this sender is dropped.
    Flush(SyncSender<()>),
}

/// The current filter and format.
struct Current {
    text: String,
    format: Format,
    replace: Box<dyn Fn(EnvFilter) -> bool + Send>,
}

static CURRENT: OnceLock<Mutex<Current>> = OnceLock::new();

/// From now on that is logged, as in `RINGWAY_LOG`; what was logged before. `None`: there is no
/// log, or no such level.
pub fn set_level(text: &str) -> Option<String> {
    let filter = log_filter::read(text, text).ok()?;
    let mut current = CURRENT.get()?.lock().ok()?;
    (current.replace)(filter).then(|| std::mem::replace(&mut current.text, text.to_owned()))
}

/// Environment variables of processes that log as this one does now.
pub fn environment() -> impl Iterator<Item = (&'static str, String)> {
    let current = CURRENT.get().and_then(|current| current.lock().ok());
    let variables = current.map(|current| {
        let format = current.format.name().to_owned();
        [(LOG_VARIABLE, current.text.clone()), (FORMAT_VARIABLE, format)]
    });
    variables.into_iter().flatten()
}

/// From now on lines are added to the file of the log, wherever its writers stand in it: another
/// process that has it, too, can overwrite nothing. Other kinds of files stay as they are.
pub fn only_add() {
    let stderr = io::stderr();
    let is_file = rustix::fs::fstat(&stderr)
        .is_ok_and(|it| FileType::from_raw_mode(it.st_mode) == FileType::RegularFile);
    if is_file && let Ok(flags) = rustix::fs::fcntl_getfl(&stderr) {
        // Where it is refused, the file is one for others to care about.
        let _ = rustix::fs::fcntl_setfl(&stderr, flags | OFlags::APPEND);
    }
}

impl Logging {
    /// As the environment says.
    ///
    /// # Errors
    /// It names something else than levels, or no format.
    pub fn from_environment() -> Result<Self, Vec<SpecError>> {
        let read = || {
            let filter = log_filter::from_environment()?;
            Ok(Self { filter, format: Format::from_environment()? })
        };
        read().map_err(|error| vec![error])
    }
}

impl Log {
    /// Starts the thread, and sends there what is to be logged of `tracing`.
    ///
    /// # Errors
    /// The operating system has no thread left.
    pub fn start(Logging { filter, format }: Logging) -> io::Result<Self> {
        let (queue, entries) = mpsc::sync_channel(LINES_MAX);
        let log = Self { format, queue, lost: Arc::default() };
        let lost = log.lost.clone();
        std::thread::Builder::new()
            .name("ringway-log".into())
            .spawn(move || write_all(&entries, &lost, format, &mut StandardError))?;
        let text = filter.to_string();
        let (filter, handle) = reload::Layer::new(filter);
        let replace = Box::new(move |filter| handle.reload(filter).is_ok());
        // There is one log in a process.
        let _ = CURRENT.set(Mutex::new(Current { text, format, replace }));
        tracing_subscriber::registry().with(filter).with(format.layer(log.clone())).init();
        Ok(log)
    }

    /// Queues what ends the process, whatever is logged; as text it is written as it is.
    pub fn write_last(&self, why: &str) {
        let line = match self.format {
            Format::Text => format!("{why}\n"),
            Format::Json | Format::Journal => self.format.line(Level::ERROR, why),
        };
        self.put(line.into_bytes());
    }

    /// Waits until everything so far is written, but no longer than that.
    pub fn flush(&self, at_most: Duration) {
        let until = Instant::now() + at_most;
        let (done, is_done) = mpsc::sync_channel(0);
        let mut item = LogItem::Flush(done);
        while let Err(TrySendError::Full(refused)) = self.queue.try_send(item) {
            if Instant::now() >= until {
                return;
            }
            item = refused;
            std::thread::sleep(FLUSH_PAUSE);
        }
        // An error either way: the sender was dropped, or it took too long.
        let _ = is_done.recv_timeout(until.saturating_duration_since(Instant::now()));
    }

    fn put(&self, line: Vec<u8>) {
        if self.queue.try_send(LogItem::Line(line)).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Takes a line, and puts that in front of it.
pub struct Lines<'a>(&'a Log, &'static str);

impl<'a> MakeWriter<'a> for Log {
    type Writer = Lines<'a>;

    fn make_writer(&'a self) -> Self::Writer {
        Lines(self, "")
    }

    fn make_writer_for(&'a self, what: &Metadata<'_>) -> Self::Writer {
        Lines(self, self.format.prefix(*what.level()))
    }
}

/// `tracing_subscriber` writes each line with one call.
impl Write for Lines<'_> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.put(one_line([self.1.as_bytes(), line].concat()));
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A path, or what else others have named, may have ends of lines in it: no line begins there.
fn one_line(mut line: Vec<u8>) -> Vec<u8> {
    let inside = line.len().saturating_sub(1);
    let ends = line[..inside].iter_mut().filter(|byte| matches!(**byte, b'\n' | b'\r'));
    ends.for_each(|byte| *byte = b'?');
    line
}

/// Without the lock and the buffer of the standard library: a write that waits keeps nothing else
/// from being written.
struct StandardError;

impl Write for StandardError {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::retry_on_intr(|| rustix::io::write(io::stderr(), bytes))?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes what comes through the queue until nothing can come any more.
fn write_all(entries: &Receiver<LogItem>, lost: &AtomicU64, format: Format, to: &mut impl Write) {
    loop {
        let item = match entries.try_recv() {
            Ok(item) => item,
            Err(TryRecvError::Empty) => {
                // All lines before those that were lost are written.
                say_lost(lost, format, to);
                match entries.recv() {
                    Ok(item) => item,
                    Err(_) => return,
                }
            }
            Err(TryRecvError::Disconnected) => return,
        };
        match item {
            LogItem::Line(line) => {
                if to.write_all(&line).is_err() {
                    lost.fetch_add(1, Ordering::Relaxed);
                }
            }
            LogItem::Flush(done) => {
                say_lost(lost, format, to);
                drop(done);
            }
        }
    }
}

fn say_lost(lost: &AtomicU64, format: Format, to: &mut impl Write) {
    let count = lost.swap(0, Ordering::Relaxed);
    if count == 0 {
        return;
    }
    let message = format!("{count} lines of the log were lost before this one");
    let line = format.line(Level::WARN, &message);
    if to.write_all(line.as_bytes()).is_err() {
        lost.fetch_add(count, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes so many lines, then fails as a full disk does until it is emptied.
    #[derive(Default)]
    struct Disk {
        lines: Vec<String>,
        lines_max: usize,
    }

    impl Write for Disk {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            if self.lines.len() == self.lines_max {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.lines.push(String::from_utf8_lossy(line).into_owned());
            Ok(line.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Writes these lines through the queue to the disk.
    fn written(lines: &[&str], lost: &AtomicU64, disk: &mut Disk) {
        let (queue, entries) = mpsc::sync_channel(LINES_MAX);
        for line in lines {
            queue.send(LogItem::Line(line.as_bytes().to_vec())).expect("room");
        }
        let (done, _is_done) = mpsc::sync_channel(0);
        queue.send(LogItem::Flush(done)).expect("room");
        drop(queue);
        write_all(&entries, lost, Format::Text, disk);
    }

    #[test]
    fn what_a_full_disk_did_not_take_is_counted_and_said_when_there_is_room() {
        let (lost, mut disk) = (AtomicU64::new(0), Disk { lines_max: 1, ..Disk::default() });
        written(&["one\n", "two\n", "three\n"], &lost, &mut disk);
        assert_eq!((disk.lines.len(), lost.load(Ordering::Relaxed)), (1, 2));
        disk.lines_max = 10;
        written(&["four\n"], &lost, &mut disk);
        assert_eq!(disk.lines[..2], ["one\n", "four\n"]);
        assert!(disk.lines[2].contains("WARN 2 lines of the log were lost"), "{:?}", disk.lines);
        assert_eq!((disk.lines.len(), lost.load(Ordering::Relaxed)), (3, 0));
    }

    #[test]
    fn a_line_stays_one() {
        assert_eq!(one_line(b"/a\nERROR b\r\n".to_vec()), b"/a?ERROR b?\n");
        assert_eq!(one_line(vec![]), b"");
    }

    #[test]
    fn nothing_waits_for_a_queue_that_is_full() {
        let (queue, entries) = mpsc::sync_channel(LINES_MAX);
        let log = Log { format: Format::Text, queue, lost: Arc::default() };
        (0..LINES_MAX + 7).for_each(|_| log.write_last("a line"));
        assert_eq!(log.lost.load(Ordering::Relaxed), 7);
        log.flush(Duration::from_millis(20));
        drop(entries);
        log.flush(Duration::from_secs(3600));
    }
}
