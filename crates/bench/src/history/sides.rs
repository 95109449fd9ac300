//! What both sides of the rings have in common.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::anyhow;
use ringway_net::Nanos;
use ringway_net::moderation::Policy;
use ringway_virtq::Broken;

use super::technique::{Pace, Technique};
use super::wake::Bells;

/// Packets per visit.
pub(super) const BATCH: u32 = 64;

/// What both sides have in common.
#[derive(Debug)]
pub(super) struct Common<'a> {
    pub technique: &'a Technique,
    pub bells: &'a Bells,
    pub stop: &'a AtomicBool,
    pub lock: &'a Mutex<()>,
    pub packet_len: usize,
    pub started: Instant,
    /// What happens so long after the start does not count yet.
    pub warm_up: Duration,
    /// Packets that the guest has published in the transmitq so far: with what the host has taken, how
    /// full the ring is.
    pub sent: &'a AtomicU64,
    /// What counted so far: packets of a stream, or round trips.
    pub counted: &'a AtomicU64,
}

impl Common<'_> {
    pub fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    /// Does something with the lock held, if there is one.
    pub fn locked<T>(&self, work: impl FnOnce() -> T) -> T {
        let _held =
            self.technique.lock.then(|| self.lock.lock().unwrap_or_else(PoisonError::into_inner));
        work()
    }

    pub fn now(&self) -> Nanos {
        Nanos(u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// Whether what has begun then counts; if so, `units` of it are noted.
    pub fn count(&self, since: Instant, units: u32) -> bool {
        let counts = since.duration_since(self.started) >= self.warm_up;
        if counts {
            self.counted.fetch_add(units.into(), Ordering::Relaxed);
        }
        counts
    }

    pub fn instant(&self, at: Option<Nanos>) -> Option<Instant> {
        at.map(|at| self.started + Duration::from_nanos(at.0))
    }

    pub fn policy(&self) -> Policy {
        match self.technique.pace {
            // The timer of then is on this side of the rings and not in the policy: see `take`.
            Pace::Every | Pace::Timer(_) => Policy::Every,
            Pace::Adaptive => Policy::Adaptive,
        }
    }
}

/// An error that says what was broken.
pub(super) fn broken(why: Broken) -> anyhow::Error {
    anyhow!("the peer broke the ring: {}", why.0)
}
