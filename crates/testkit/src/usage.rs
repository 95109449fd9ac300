//! Usage of a ringway, from `/proc`: processor time, wake-ups, memory, descriptors and mappings.
//!
//! How: a process and those that it has started count together: the supervisor and its data plane.
//!
//! Limits: threads that have ended in between are not counted.

use std::fs;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::arena::FILE_NAME;

/// Longest wait until what is no longer needed is gone.
const GONE_LIMIT: Duration = Duration::from_secs(5);

/// Usage up to a look, with the time of that look; or between two looks.
#[derive(Debug, Clone, Copy, Default)]
pub struct Usage {
    /// Processor time.
    pub processor_ns: f64,
    /// How often a thread went to sleep by itself.
    pub wakeups: f64,
    /// Resident memory, without what is shared with others.
    pub memory_kib: f64,
    /// Since the machine was started.
    pub seconds: f64,
}

impl Usage {
    /// Of the ringway whose supervisor is this process.
    ///
    /// # Errors
    /// It does not exist.
    pub fn look(pid: u32) -> io::Result<Self> {
        let since_boot = Duration::try_from(clock_gettime(ClockId::Monotonic));
        let seconds = since_boot.map_err(io::Error::other)?.as_secs_f64();
        let mut sum = Self { seconds, ..Self::default() };
        for id in processes(pid) {
            sum.memory_kib += number_behind(&read(id, "status")?, "RssAnon:");
            for thread in fs::read_dir(format!("/proc/{id}/task"))? {
                let thread = thread?.path();
                let text = |name: &str| fs::read_to_string(thread.join(name)).unwrap_or_default();
                sum.processor_ns += number_behind(&text("schedstat"), "");
                sum.wakeups += number_behind(&text("status"), "voluntary_ctxt_switches:");
            }
        }
        Ok(sum)
    }

    /// The usage since an earlier look.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self {
            processor_ns: self.processor_ns - before.processor_ns,
            wakeups: self.wakeups - before.wakeups,
            memory_kib: self.memory_kib - before.memory_kib,
            seconds: self.seconds - before.seconds,
        }
    }
}

/// The descriptors and mappings that a ringway holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Open file descriptors.
    pub fds: usize,
    /// Mappings of the memory of guests in user space.
    pub guest_mappings: usize,
}

impl Footprint {
    /// Of the ringway whose supervisor is this process, now.
    ///
    /// # Errors
    /// It does not exist.
    pub fn of(pid: u32) -> io::Result<Self> {
        let mut sum = Self::default();
        for id in processes(pid) {
            sum.fds += fs::read_dir(format!("/proc/{id}/fd"))?.count();
            let maps = read(id, "maps")?;
            let name = FILE_NAME.to_str().unwrap_or_default();
            sum.guest_mappings += maps.lines().filter(|line| line.contains(name)).count();
        }
        Ok(sum)
    }

    /// Waits until it holds no more than this again.
    ///
    /// # Errors
    /// It holds more for too long.
    pub fn wait_until_again(self, pid: u32) -> io::Result<()> {
        let deadline = Instant::now() + GONE_LIMIT;
        loop {
            let now = Self::of(pid)?;
            if now.fds <= self.fds && now.guest_mappings <= self.guest_mappings {
                return Ok(());
            }
            if Instant::now() > deadline {
                let why = format!("leaked: {self:?} before, {now:?} after");
                return Err(io::Error::other(why));
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
}

/// The process, and those that it has started.
fn processes(pid: u32) -> Vec<u32> {
    let children = read(pid, &format!("task/{pid}/children")).unwrap_or_default();
    let children = children.split_whitespace().filter_map(|child| child.parse().ok());
    std::iter::once(pid).chain(children).collect()
}

fn read(pid: u32, name: &str) -> io::Result<String> {
    fs::read_to_string(format!("/proc/{pid}/{name}"))
}

/// The first number of the line that begins so; 0 of a thread that has ended.
fn number_behind(text: &str, name: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let word = line.and_then(|line| line.split_whitespace().next());
    word.and_then(|word| word.parse().ok()).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_seen() {
        let pid = std::process::id();
        let before = Usage::look(pid).expect("we exist");
        let until = Instant::now() + Duration::from_millis(20);
        while Instant::now() < until {}
        let used = Usage::look(pid).expect("we exist").since(&before);
        assert!(used.processor_ns > 0.0 && used.seconds >= 0.02, "{used:?}");
        assert!(before.memory_kib > 0.0);
    }
}
