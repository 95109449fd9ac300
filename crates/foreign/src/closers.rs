//! The threads that drop values for all who hand some over. Values of one queue are dropped one
//! after the other; one that takes long keeps no other queue waiting.
//!
//! One thread does everything as long as it comes back soon. Another one is always there to take
//! over when it does not, and sees then that there is a next one.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// A thread that has not come back for so long is not waited for.
const SOON: Duration = Duration::from_millis(2);

/// Jobs, and who does them.
pub(crate) struct Closers {
    jobs: Mutex<JobQueue>,
    /// A job has come, or a queue may go on.
    news: Condvar,
}

#[derive(Default)]
struct JobQueue {
    /// With the queues that they belong to, the oldest first.
    jobs: VecDeque<(u64, Job)>,
    /// Queues of which a job is being done.
    busy: BTreeSet<u64>,
    /// The number of the last job that was taken, and since when it is being done, while it is.
    taken: u64,
    since: Option<Instant>,
    /// Threads that do no job.
    free: usize,
}

/// Those of this process.
pub(crate) static CLOSERS: Closers =
    Closers { jobs: Mutex::new(JobQueue::NEW), news: Condvar::new() };

impl JobQueue {
    const NEW: Self =
        Self { jobs: VecDeque::new(), busy: BTreeSet::new(), taken: 0, since: None, free: 0 };

    fn next(&self) -> Option<usize> {
        self.jobs.iter().position(|(queue, _)| !self.busy.contains(queue))
    }
}

impl Closers {
    /// There is a thread.
    ///
    /// # Errors
    /// The operating system gives none.
    pub(crate) fn start(&'static self) -> io::Result<()> {
        let mut jobs = self.lock();
        if jobs.free == 0 {
            self.add_thread(&mut jobs)?;
        }
        Ok(())
    }

    /// Does that after what the queue has been given before.
    pub(crate) fn give(&self, queue: u64, job: Job) {
        self.lock().jobs.push_back((queue, job));
        self.news.notify_one();
    }

    fn add_thread(&'static self, jobs: &mut JobQueue) -> io::Result<()> {
        let thread = std::thread::Builder::new().name("ringway-closer".to_string());
        thread.spawn(|| self.work())?;
        jobs.free += 1;
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, JobQueue> {
        // No job is done under it, so nothing has ended half way.
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&'static self) {
        let mut jobs = self.lock();
        // The one that it was made for has perhaps come back.
        while jobs.free < 3 {
            let at = match (jobs.next(), jobs.since) {
                (None, _) => {
                    jobs = self.news.wait(jobs).unwrap_or_else(PoisonError::into_inner);
                    continue;
                }
                (Some(_), Some(since)) if since.elapsed() < SOON => {
                    let waited = self.news.wait_timeout(jobs, SOON);
                    jobs = waited.unwrap_or_else(PoisonError::into_inner).0;
                    continue;
                }
                (Some(at), _) => at,
            };
            let Some((queue, job)) = jobs.jobs.remove(at) else { continue };
            jobs.busy.insert(queue);
            jobs.taken += 1;
            let taken = jobs.taken;
            jobs.since = Some(Instant::now());
            jobs.free -= 1;
            if jobs.free == 0 {
                // Without another one all wait for this one, and the next one tries again.
                let _ = self.add_thread(&mut jobs);
            }
            drop(jobs);
            job();
            jobs = self.lock();
            jobs.free += 1;
            jobs.busy.remove(&queue);
            if jobs.taken == taken {
                jobs.since = None;
            }
        }
        jobs.free -= 1;
        // The wake-up may be for another one.
        self.news.notify_one();
    }
}
