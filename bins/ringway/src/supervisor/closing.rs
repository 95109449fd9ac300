//! A thread of each port closes what its front-end sent (ADR 25), because closing may take as long
//! as the front-end likes. Only this port waits: its front-end's next request is read, and the next
//! front-end is accepted, when everything is closed.
//!
//! So what is left to that thread is bounded: what one request, or one connection, leaves behind.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ringway_foreign::DeferredDrop;
use ringway_host::EventFd;
use ringway_switch::PortId;
use tracing::info;

use super::Supervisor;

/// A wait is logged if it takes longer.
const SLOW_AFTER: Duration = Duration::from_secs(1);

const SLOW: &str = "what the front-end sent is still being closed";

/// The port's thread, and the wait for it.
pub(super) struct Closing {
    pub(super) closer: DeferredDrop,
    /// The data plane has copies of the same, and closes them too.
    pub(super) is_plane_closing: bool,
    wait: Option<Wait>,
}

struct Wait {
    since: Instant,
    is_over: Arc<AtomicBool>,
    is_told: bool,
}

impl Closing {
    pub(super) fn start() -> std::io::Result<Self> {
        Ok(Self { closer: DeferredDrop::start()?, is_plane_closing: false, wait: None })
    }

    /// Whether there is something to wait for; if so `bell` is rung when that is over.
    fn begin(&mut self, bell: Arc<EventFd>) -> bool {
        let is_idle = self.closer.is_idle();
        if self.wait.is_some() || is_idle && !self.is_plane_closing {
            return self.wait.is_some();
        }
        let is_over = Arc::new(AtomicBool::new(is_idle));
        self.wait = Some(Wait { since: Instant::now(), is_over: is_over.clone(), is_told: false });
        if !is_idle {
            self.closer.afterwards(move || {
                is_over.store(true, Ordering::Release);
                bell.notify();
            });
        }
        true
    }

    /// Whether there is more to wait for behind a wait that is over, as if it were the same one.
    fn goes_on(&mut self, over: &Wait, bell: Arc<EventFd>) -> bool {
        let goes_on = self.begin(bell);
        if let Some(wait) = &mut self.wait {
            (wait.since, wait.is_told) = (over.since, over.is_told);
        }
        goes_on
    }

    /// Nothing is being closed.
    pub(super) fn is_idle(&self) -> bool {
        self.wait.is_none() && !self.is_plane_closing && self.closer.is_idle()
    }

    pub(super) fn is_waited_for(&self) -> bool {
        self.wait.is_some()
    }

    /// Since when, in words, if it takes long.
    pub(super) fn complaint(&self) -> Option<&'static str> {
        self.wait.as_ref().filter(|wait| wait.is_told).map(|_| SLOW)
    }

    /// When it will have taken long.
    fn next_word(&self) -> Option<Instant> {
        self.wait.as_ref().filter(|wait| !wait.is_told).map(|wait| wait.since + SLOW_AFTER)
    }

    /// It takes long, and that was not logged yet.
    fn must_be_told(&mut self, now: Instant) -> bool {
        let is_due = self.next_word().is_some_and(|at| at <= now);
        if let Some(wait) = self.wait.as_mut().filter(|_| is_due) {
            wait.is_told = true;
        }
        is_due
    }

    /// The wait that is over now.
    fn end(&mut self) -> Option<Wait> {
        let is_over = |wait: &mut Wait| wait.is_over.load(Ordering::Acquire);
        self.wait.take_if(|wait| !self.is_plane_closing && is_over(wait))
    }
}

impl Supervisor {
    /// Whether nothing more is taken from the port's front-end, or from the next one, for now.
    pub(super) fn waits_for_closing(&mut self, id: PortId) -> bool {
        let bell = self.bell.clone();
        self.vm(id).is_some_and(|vm| vm.closing.begin(bell))
    }

    /// The data plane has closed its copies, or is gone.
    pub(super) fn plane_has_closed(&mut self, id: PortId) {
        if let Some(vm) = self.vm(id) {
            vm.closing.is_plane_closing = false;
        }
    }

    /// When the next port is to be named that waits for long.
    pub(super) fn next_slow_closing(&self) -> Option<Instant> {
        let ports = self.ports.values().filter_map(|port| port.vm.as_ref());
        ports.filter_map(|vm| vm.closing.next_word()).min()
    }

    /// Ports for which everything is closed are served again.
    pub(super) fn end_closing(&mut self) {
        let now = Instant::now();
        let is_waiting =
            |port: &super::Port| port.vm.as_ref().is_some_and(|vm| vm.closing.wait.is_some());
        for id in self.ids_of(is_waiting) {
            let Some(port) = self.ports.get_mut(&id) else { continue };
            let Some(vm) = &mut port.vm else { continue };
            if let Some(wait) = vm.closing.end() {
                // More to close: the front-end has gone meanwhile.
                if vm.closing.goes_on(&wait, self.bell.clone()) {
                    continue;
                }
                if wait.is_told {
                    let (name, took) = (&port.spec.name, wait.since.elapsed());
                    port.chatter.say(name, || info!(port = name, "closed after {took:.1?}"));
                }
                self.watch_link(id);
                self.serve_listener(id);
            } else if vm.closing.must_be_told(now) {
                let why = format_args!("{SLOW}: the port serves no front-end until that is done");
                port.chatter.complain(&port.spec.name, why);
            }
        }
    }

    /// A front-end has gone. The port accepts the next one at once, or, if something that this one
    /// sent is still being closed, when that is done.
    pub(super) fn listen_to_the_next(&mut self, id: PortId) {
        self.waits_for_closing(id);
        self.serve_listener(id);
    }
}
