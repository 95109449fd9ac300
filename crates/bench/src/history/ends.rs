//! What both ends of the rings have in common: one loop, the eventfds on which they sleep, a clock.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::anyhow;
use ringway_host::EventFd;
use ringway_net::Nanos;
use ringway_virtq::Broken;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::technique::Technique;

pub(super) const BATCH: u32 = 64;

/// Longest sleep: an end looks that often whether it shall stop.
const SLEEP_MAX: Duration = Duration::from_millis(5);

#[derive(Debug)]
pub(super) struct Common<'a> {
    pub technique: &'a Technique,
    pub kick_receiveq: EventFd,
    pub kick_transmitq: EventFd,
    pub call_receiveq: EventFd,
    pub call_transmitq: EventFd,
    pub packet_len: usize,
    pub stop: AtomicBool,
    pub lock: Mutex<()>,
    pub started: Instant,
    /// What happens so long after the start does not count yet.
    pub warm_up: Duration,
    /// Packets that the guest has published in the transmitq: with what the host has taken, how
    /// full the ring is.
    pub sent: AtomicU64,
    /// Packets of a stream, or round trips, that count.
    pub counted: AtomicU64,
}

impl<'a> Common<'a> {
    pub fn new(of: &'a Technique, packet_len: usize, warm_up: Duration) -> std::io::Result<Self> {
        Ok(Self {
            technique: of,
            kick_receiveq: EventFd::new()?,
            kick_transmitq: EventFd::new()?,
            call_receiveq: EventFd::new()?,
            call_transmitq: EventFd::new()?,
            packet_len,
            stop: AtomicBool::new(false),
            lock: Mutex::new(()),
            started: Instant::now(),
            warm_up,
            sent: AtomicU64::new(0),
            counted: AtomicU64::new(0),
        })
    }

    pub fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    pub fn locked<T>(&self, work: impl FnOnce() -> T) -> T {
        let lock = || self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        let _held = self.technique.lock.then(lock);
        work()
    }

    pub fn now(&self) -> Nanos {
        Nanos(u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// Sleeps until the eventfd is notified, which it then no longer is, or until that moment.
    /// `true`: it was.
    pub fn sleep(&self, bell: &EventFd, wake_at: Option<Nanos>) -> bool {
        let wake_at = wake_at.map(|at| self.started + Duration::from_nanos(at.0));
        let longest = wake_at.map(|at| at.saturating_duration_since(Instant::now()));
        let longest = longest.map_or(SLEEP_MAX, |longest| longest.min(SLEEP_MAX));
        let timeout = Timespec { tv_sec: 0, tv_nsec: longest.subsec_nanos().into() };
        let mut fds = [PollFd::from_borrowed_fd(bell.as_fd(), PollFlags::IN)];
        // An interrupted sleep is a short one.
        poll(&mut fds, Some(&timeout)).unwrap_or(0) > 0 && bell.drain()
    }

    /// Whether what has begun then counts; if so, so many of it are noted.
    fn count(&self, since: Instant, units: u32) -> bool {
        let counts = since.duration_since(self.started) >= self.warm_up;
        if counts {
            self.counted.fetch_add(units.into(), Ordering::Relaxed);
        }
        counts
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Source,
    Sink,
    /// Sends back what comes.
    Echo,
    /// The same, and begins with one packet.
    Ping,
}

pub(super) trait End {
    /// Takes up to [`BATCH`] packets, and gives their buffers back; how many.
    fn take(&mut self) -> anyhow::Result<u32>;

    /// Puts up to so many packets; how many there was room for.
    fn put(&mut self, packets: u32) -> anyhow::Result<u32>;

    /// Publishes what was put, and notifies if it is time. `more`: other packets follow at once;
    /// `short`: there was no room.
    fn flush(&mut self, more: bool, short: bool);

    /// Waits for room, after a visit that put so many packets and found no room for others.
    fn wait_for_room(&mut self, put: u32) -> anyhow::Result<()>;

    /// Waits for packets, after a visit that took so many.
    fn wait_for_packets(&mut self, taken: u32) -> anyhow::Result<()>;
}

/// Does the part until told to stop; the round trips of [`Part::Ping`] in ms.
pub(super) fn play(
    end: &mut impl End,
    part: Part,
    common: &Common<'_>,
) -> anyhow::Result<Vec<f64>> {
    let (mut owed, mut times) = (u32::from(part == Part::Ping), Vec::new());
    let mut began = Instant::now();
    while common.goes_on() {
        let taken = if part == Part::Source { 0 } else { end.take()? };
        match part {
            Part::Source => owed = BATCH,
            Part::Sink => _ = common.count(Instant::now(), taken),
            Part::Echo | Part::Ping => owed += taken,
        }
        if part == Part::Ping && taken > 0 {
            if common.count(began, 1) {
                times.push(began.elapsed().as_secs_f64() * 1e3);
            }
            began = Instant::now();
        }
        let put = end.put(owed)?;
        owed -= put;
        end.flush(put == BATCH, owed > 0);
        if owed > 0 {
            end.wait_for_room(put)?;
        } else if part != Part::Source && taken < BATCH {
            end.wait_for_packets(taken)?;
        }
    }
    Ok(times)
}

pub(super) fn broken(why: Broken) -> anyhow::Error {
    anyhow!("the peer broke the ring: {}", why.0)
}

#[cfg(test)]
mod tests {
    use super::super::technique::tests::named;
    use super::*;

    #[test]
    fn a_notification_ends_one_sleep() {
        let technique = named("baseline");
        let common = Common::new(&technique, 98, Duration::ZERO).expect("eventfds");
        let bell = &common.kick_receiveq;
        bell.notify();
        assert!(common.sleep(bell, None));
        assert!(!common.sleep(bell, Some(Nanos(0))));
    }

    #[test]
    fn the_lock_is_held_where_there_is_one() {
        for (row, is_held) in [("ring of 512", true), ("no lock", false)] {
            let technique = named(row);
            let common = Common::new(&technique, 98, Duration::ZERO).expect("eventfds");
            assert_eq!(common.locked(|| common.lock.try_lock().is_err()), is_held, "{row}");
        }
    }
}
