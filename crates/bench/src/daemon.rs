//! What a daemon has used: processor time, wake-ups and memory, from `/proc`.
//!
//! Limits: threads that have ended in between are not counted.

use std::fs;
use std::time::Duration;

use anyhow::Context;
use ringway_testkit::beside::resident_private_kib;
use rustix::time::{ClockId, clock_gettime};

/// What to do where none can be started.
pub(crate) const NO_DAEMON: &str = "no daemon: RINGWAY_BIN can name the program";

/// So far, with the time of the look; or between two looks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Usage {
    pub processor_ns: f64,
    /// How often a thread went to sleep by itself.
    pub wakeups: f64,
    pub memory_kib: f64,
    pub seconds: f64,
}

impl Usage {
    /// Of a process and those that it has started: the supervisor and its data plane.
    pub fn look(pid: u32) -> anyhow::Result<Self> {
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        let children = children.unwrap_or_default();
        let mut sum = Self::of_one(pid)?;
        for child in children.split_whitespace().filter_map(|child| child.parse().ok()) {
            let child = Self::of_one(child)?;
            sum.processor_ns += child.processor_ns;
            sum.wakeups += child.wakeups;
            sum.memory_kib += child.memory_kib;
        }
        Ok(sum)
    }

    fn of_one(pid: u32) -> anyhow::Result<Self> {
        let directory = format!("/proc/{pid}/task");
        let (mut processor_ns, mut wakeups) = (0.0, 0.0);
        for thread in fs::read_dir(&directory).with_context(|| directory.clone())? {
            let thread = thread?.path();
            let text = |name: &str| fs::read_to_string(thread.join(name)).unwrap_or_default();
            processor_ns += first_number(&text("schedstat")).unwrap_or(0.0);
            let status = text("status");
            let mut lines = status.lines();
            let line = lines.find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
            wakeups += line.and_then(first_number).unwrap_or(0.0);
        }
        // A number of KiB is far below 2^53.
        #[allow(clippy::cast_precision_loss)]
        let memory_kib = resident_private_kib(pid)? as f64;
        let since_boot = clock_gettime(ClockId::Monotonic);
        let seconds = Duration::try_from(since_boot)?.as_secs_f64();
        Ok(Self { processor_ns, wakeups, memory_kib, seconds })
    }

    pub fn since(&self, before: &Self) -> Self {
        Self {
            processor_ns: self.processor_ns - before.processor_ns,
            wakeups: self.wakeups - before.wakeups,
            memory_kib: self.memory_kib - before.memory_kib,
            seconds: self.seconds - before.seconds,
        }
    }
}

fn first_number(text: &str) -> Option<f64> {
    text.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

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
