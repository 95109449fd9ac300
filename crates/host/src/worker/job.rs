//! Jobs that the control thread gives a worker.
//!
//! Jobs are done one at a time between two visits, so nothing on the data path needs a lock.

use crate::worker::Worker;

/// One job for a worker.
pub enum Job {
    /// Calls methods of the worker, between two visits.
    Do(Box<dyn FnOnce(&mut Worker) + Send>),
    /// The worker ends.
    Stop,
}

impl Job {
    /// A job that calls methods of the worker.
    pub fn new(work: impl FnOnce(&mut Worker) + Send + 'static) -> Self {
        Self::Do(Box::new(work))
    }
}
