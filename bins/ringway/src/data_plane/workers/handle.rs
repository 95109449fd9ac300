//! One worker and its jobs.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use ringway_host::{EventFd, Job, Tap, Worker};
use tracing::debug;

/// The worker answers between two visits; this long only if it has ended.
const ANSWER_MAX: Duration = Duration::from_secs(3);

/// A worker, as the control thread has it.
pub struct Handle {
    jobs: Sender<Job>,
    bell: Rc<Bell>,
    pub thread: Option<JoinHandle<()>>,
}

/// A worker is woken once for many jobs: when an answer is waited for, or the control thread
/// is about to sleep.
struct Bell {
    fd: Arc<EventFd>,
    is_owed: Cell<bool>,
}

impl Handle {
    pub fn new(jobs: Sender<Job>, bell: Arc<EventFd>, thread: JoinHandle<()>) -> Self {
        let bell = Rc::new(Bell { fd: bell, is_owed: Cell::new(false) });
        Self { jobs, bell, thread: Some(thread) }
    }

    /// It is done when the worker is rung for.
    pub fn send(&self, work: impl FnOnce(&mut Worker) + Send + 'static) {
        self.give(Job::new(work));
    }

    /// The result of the job; `None`: the worker has ended.
    pub fn ask<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Worker) -> T + Send + 'static,
    ) -> Option<T> {
        self.begin(work).wait()
    }

    /// The same, with an answer that can be waited for later, or not at all.
    pub fn begin<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Worker) -> T + Send + 'static,
    ) -> Promise<T> {
        let (done, answer) = mpsc::sync_channel(1);
        self.send(move |worker| _ = done.send(work(worker)));
        Promise { answer, bell: self.bell.clone() }
    }

    /// The worker ends when it has done all jobs before.
    pub fn stop(&self) {
        self.give(Job::Stop);
    }

    fn give(&self, job: Job) {
        // A worker that has ended is noticed through its bell.
        if self.jobs.send(job).is_ok() {
            self.bell.is_owed.set(true);
        }
    }

    pub fn ring(&self) {
        self.bell.ring();
    }
}

impl Bell {
    fn ring(&self) {
        if self.is_owed.take() {
            self.fd.notify();
        }
    }
}

/// An answer that a worker owes.
#[must_use]
pub struct Promise<T> {
    answer: Receiver<T>,
    bell: Rc<Bell>,
}

impl<T> Promise<T> {
    /// `None`: the worker has ended.
    pub fn wait(self) -> Option<T> {
        self.bell.ring();
        self.answer.recv_timeout(ANSWER_MAX).ok()
    }
}

/// Packets of this tap are `carried` so.
pub fn log_calls(tap: &Tap, carried: &str, from: Option<usize>) {
    match from {
        Some(from) => debug!(tap = tap.name(), "{carried} with io_uring from {from} packets on"),
        None => debug!(tap = tap.name(), "{carried} with one system call for each packet"),
    }
}
