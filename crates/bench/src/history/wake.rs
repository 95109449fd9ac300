//! Sleeping and waking: one eventfd for each direction of each queue.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use ringway_host::EventFd;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Longest sleep: whoever waits for the end looks that often.
const SLEEP_MAX: Duration = Duration::from_millis(5);

/// The bells of one queue pair.
#[derive(Debug)]
pub(super) struct Bells {
    pub kick_receiveq: EventFd,
    pub kick_transmitq: EventFd,
    pub call_receiveq: EventFd,
    pub call_transmitq: EventFd,
}

impl Bells {
    pub fn new() -> std::io::Result<Self> {
        Ok(Self {
            kick_receiveq: EventFd::new()?,
            kick_transmitq: EventFd::new()?,
            call_receiveq: EventFd::new()?,
            call_transmitq: EventFd::new()?,
        })
    }
}

/// Sleeps until one of the bells rings, or until `wake_at`; `true`: one rang. Rings are forgotten.
pub(super) fn sleep(bells: &[&EventFd], wake_at: Option<Instant>) -> bool {
    let longest = wake_at.map(|at| at.saturating_duration_since(Instant::now()));
    let longest = longest.map_or(SLEEP_MAX, |longest| longest.min(SLEEP_MAX));
    let timeout = Timespec {
        tv_sec: i64::try_from(longest.as_secs()).unwrap_or(0),
        tv_nsec: i64::from(longest.subsec_nanos()),
    };
    let mut fds: Vec<PollFd<'_>> =
        bells.iter().map(|bell| PollFd::from_borrowed_fd(bell.as_fd(), PollFlags::IN)).collect();
    // An interrupted sleep is a short one.
    if poll(&mut fds, Some(&timeout)).unwrap_or(0) == 0 {
        return false;
    }
    // All of them, not only up to the first that rang.
    bells.iter().filter(|bell| bell.drain()).count() > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_ends_the_sleep_once() {
        let bells = Bells::new().expect("eventfds");
        bells.kick_receiveq.notify();
        let both = [&bells.kick_transmitq, &bells.kick_receiveq];
        assert!(sleep(&both, None));
        assert!(!sleep(&both, Some(Instant::now())));
    }
}
