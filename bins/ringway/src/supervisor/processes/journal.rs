//! The journal as the supervisor has it: the file for data planes, and what their workers show in
//! it.
//!
//! How: a thread sleeps until the kernel says that a worker has ended, which it does before it
//! unmaps the memory of guests, and rings a bell.
//!
//! Limits: a data plane can write there, too, that it is dead, or which port it serves. Then it is
//! ended, the next one gets a journal that the first one does not have, and a port may be blamed
//! without reason, for a time. While no data plane has the journal the thread looks every
//! [`NOT_YET`].

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use ringway_host::{EventFd, JOURNAL_LAYOUT, Journal, JournalWatch, Owner};
use ringway_supervisor::restart::Busy;
use ringway_supervisor::watch::Beat;

/// Most rings that are noted at the same time. Those that are not used take no memory.
const RINGS_MAX: u32 = 8192;

/// A worker that has not ended by then has not been killed.
const ENDED_WITHIN: Duration = Duration::from_millis(50);

/// Until a data plane has the journal.
const NOT_YET: Duration = Duration::from_millis(10);

/// For as long as a worker lives.
const LONG: Duration = Duration::from_secs(3600);

/// See the module.
pub struct Watched {
    file: Arc<OwnedFd>,
    watch: Arc<JournalWatch>,
    workers: u16,
    bell: Arc<EventFd>,
}

impl Watched {
    /// The layout that is made here.
    pub const LAYOUT: u16 = JOURNAL_LAYOUT;

    pub fn create(workers: u16) -> anyhow::Result<Self> {
        Self::of(Journal::create(workers, RINGS_MAX).context("the journal")?, workers)
    }

    /// That journal, which no data plane has.
    pub fn of(file: OwnedFd, workers: u16) -> anyhow::Result<Self> {
        let watch = JournalWatch::open(&file).context("the journal")?;
        Self::over(file, watch, workers)
    }

    /// That journal of [this layout](Self::LAYOUT), whatever a data plane has done to its head.
    pub fn resume(file: OwnedFd, workers: u16) -> anyhow::Result<Self> {
        let watch = JournalWatch::resume(&file, workers, RINGS_MAX).context("the journal")?;
        Self::over(file, watch, workers)
    }

    fn over(file: OwnedFd, watch: JournalWatch, workers: u16) -> anyhow::Result<Self> {
        let bell = Arc::new(EventFd::new().context("eventfd")?);
        let watch = watched_by_a_thread(watch, &bell)?;
        Ok(Self { file: Arc::new(file), watch, workers, bell })
    }

    /// The data plane that had the journal has ended: the next one gets another one, with what it
    /// may believe of this one, which nothing but the two of them has. Where that cannot be made it
    /// gets this one.
    pub fn renew(&mut self) {
        let renewed = || {
            let file = self.watch.renewed(&self.file)?;
            let watch = JournalWatch::open(&file)?;
            Ok((file, watched_by_a_thread(watch, &self.bell)?))
        };
        match renewed() {
            Ok((file, watch)) => {
                // The thread that waits for its end wakes up, and ends.
                self.watch.repair(true);
                (self.file, self.watch) = (Arc::new(file), watch);
            }
            Err::<_, anyhow::Error>(why) => tracing::warn!("the journal stays: {why:#}"),
        }
    }

    pub fn file(&self) -> &Arc<OwnedFd> {
        &self.file
    }

    /// Rung when the first worker has ended.
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    pub fn drain(&self) {
        self.bell.drain();
    }

    /// To be called before a data plane gets it: see [`JournalWatch::repair`].
    pub fn repair(&self, are_gone: bool) {
        self.watch.repair(are_gone);
    }

    pub fn beats(&self) -> Vec<Beat> {
        let beats = (0..self.workers).filter_map(|worker| self.watch.beat(worker));
        beats.map(|beat| Beat { count: beat.number, is_asleep: !beat.is_awake }).collect()
    }

    /// Visits that workers were in.
    pub fn busy(&self) -> Vec<Busy> {
        let busy = (0..self.workers).filter_map(|worker| self.watch.busy(worker));
        busy.map(|it| Busy { visited: it.port.0, into: it.into.map(|into| into.0) }).collect()
    }

    /// Whether a worker has ended without giving back its line.
    pub fn is_dead(&self) -> bool {
        (0..self.workers).any(|worker| self.watch.owner(worker) == Owner::Dead)
    }

    /// Waits until no worker uses the journal; `false`: one still does.
    pub fn all_have_ended(&self) -> bool {
        (0..self.workers).all(|worker| {
            self.watch.wait(worker, ENDED_WITHIN).is_ok_and(|owner| owner != Owner::Alive)
        })
    }
}

fn watched_by_a_thread(
    watch: JournalWatch,
    bell: &Arc<EventFd>,
) -> anyhow::Result<Arc<JournalWatch>> {
    let watch = Arc::new(watch);
    let (watched, rung) = (watch.clone(), bell.clone());
    let thread = std::thread::Builder::new().name("ringway-watch".into());
    thread.spawn(move || ring_at_deaths(&watched, &rung)).context("starting a thread")?;
    Ok(watch)
}

/// Until this thread alone has it.
fn ring_at_deaths(watch: &Arc<JournalWatch>, bell: &EventFd) {
    let mut is_rung = false;
    while Arc::strong_count(watch) > 1 {
        match watch.owner(0) {
            Owner::Alive => {
                is_rung = false;
                if watch.wait(0, LONG).is_err() {
                    return;
                }
            }
            Owner::Dead if !is_rung => {
                is_rung = true;
                bell.notify();
            }
            Owner::Dead | Owner::Free => std::thread::sleep(NOT_YET),
        }
    }
}
