//! How the control thread and the worker reach each other.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};

use ringway_net::Nanos;
use ringway_switch::Switch;

use crate::os::eventfd::EventFd;
use crate::worker::event::WorkerEvent;
use crate::worker::job::Job;

/// At most one move of an address, and one change, is told in this time, in nanoseconds.
const NEWS_PAUSE_NS: u64 = 1_000_000_000;

/// The worker's ends of both directions.
pub(crate) struct ControlChannel {
    jobs: Receiver<Job>,
    job_bell: Arc<EventFd>,
    events: Sender<WorkerEvent>,
    event_bell: Arc<EventFd>,
    /// When something was last told of an address.
    news_told_at: Nanos,
}

impl ControlChannel {
    pub(crate) fn new(
        jobs: Receiver<Job>,
        job_bell: Arc<EventFd>,
        events: Sender<WorkerEvent>,
        event_bell: Arc<EventFd>,
    ) -> Self {
        Self { jobs, job_bell, events, event_bell, news_told_at: Nanos(0) }
    }

    /// Rung by the control thread after it has sent a job.
    pub(crate) fn bell(&self) -> &EventFd {
        &self.job_bell
    }

    /// The next job, if there is one.
    pub(crate) fn next(&self) -> Option<Job> {
        self.jobs.try_recv().ok()
    }

    pub(crate) fn tell(&self, event: WorkerEvent) {
        // The receiver lives as long as the worker; a full shutdown may have dropped it.
        if self.events.send(event).is_ok() {
            self.event_bell.notify();
        }
    }

    /// Tells that addresses were learned, and of one that has moved or was refused, now and then.
    pub(crate) fn tell_address_news(&mut self, switch: &mut Switch, now: Nanos) {
        if !switch.has_news() || now.since(self.news_told_at) < NEWS_PAUSE_NS {
            return;
        }
        self.news_told_at = now.max(Nanos(1));
        if switch.shared().take_change() {
            self.tell(WorkerEvent::Learned);
        }
        if let Some(news) = switch.take_news() {
            self.tell(WorkerEvent::Address(news));
        }
    }
}
