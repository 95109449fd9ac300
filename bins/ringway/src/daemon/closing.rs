//! What a front-end sent is closed by a thread of its port (ADR 25), because closing may take as
//! long as the front-end likes. Only this port waits: its front-end's next request is read, and the
//! next front-end is accepted, when everything is closed.
//!
//! So what is left to that thread is bounded: what one request, or one connection, leaves behind.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ringway_foreign::DeferredDrop;
use ringway_host::EventFd;
use ringway_switch::PortId;
use tracing::info;

use super::{Daemon, Wake};

/// A wait is logged if it takes longer.
const SLOW_AFTER: Duration = Duration::from_secs(1);

const SLOW: &str = "what the front-end sent is still being closed";

/// The port's thread, and the wait for it.
pub(super) struct Closing {
    pub(super) closer: DeferredDrop,
    wait: Option<Wait>,
}

struct Wait {
    since: Instant,
    is_over: Arc<AtomicBool>,
    is_told: bool,
}

impl Closing {
    pub(super) fn start() -> std::io::Result<Self> {
        Ok(Self { closer: DeferredDrop::start()?, wait: None })
    }

    /// Whether there is something to wait for; if so `bell` is rung when that is over.
    fn begin(&mut self, bell: Arc<EventFd>) -> bool {
        if self.wait.is_some() || self.closer.is_idle() {
            return self.wait.is_some();
        }
        let is_over = Arc::new(AtomicBool::new(false));
        self.wait = Some(Wait { since: Instant::now(), is_over: is_over.clone(), is_told: false });
        self.closer.afterwards(move || {
            is_over.store(true, Ordering::Release);
            bell.notify();
        });
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
        self.wait.take_if(|wait| wait.is_over.load(Ordering::Acquire))
    }
}

impl Daemon {
    /// Whether nothing more is taken from the port's front-end, or from the next one, for now.
    pub(super) fn waits_for_closing(&mut self, id: PortId) -> bool {
        let bell = self.worker.shared_bell();
        let Some(vm) = self.ports.get_mut(&id).and_then(|port| port.vm.as_mut()) else {
            return false;
        };
        if !vm.closing.begin(bell) {
            return false;
        }
        if let Some(link) = &vm.link {
            let _ = self.poller.remove(link.connection.as_fd());
            if let Some(watch) = &link.kicks.watch {
                let _ = self.poller.remove(watch.as_fd());
            }
        }
        true
    }

    /// When the next port is to be named that waits for long.
    pub(super) fn next_slow_closing(&self) -> Option<Instant> {
        let ports = self.ports.values().filter_map(|port| port.vm.as_ref());
        ports.filter_map(|vm| vm.closing.next_word()).min()
    }

    /// Ports for which everything is closed are served again.
    pub(super) fn end_closing(&mut self) {
        let now = Instant::now();
        for id in self.ids() {
            let Some(port) = self.ports.get_mut(&id) else { continue };
            let Some(vm) = &mut port.vm else { continue };
            if let Some(wait) = vm.closing.end() {
                // More to close: the front-end has gone meanwhile.
                if vm.closing.goes_on(&wait, self.worker.shared_bell()) {
                    continue;
                }
                if wait.is_told {
                    let (name, took) = (&port.spec.name, wait.since.elapsed());
                    port.chatter.say(name, || info!(port = name, "closed after {took:.1?}"));
                }
                self.listen_to(id);
            } else if vm.closing.must_be_told(now) {
                port.complain(format_args!(
                    "{SLOW}: the port serves no front-end until that is done"
                ));
            }
        }
    }

    /// Watches the connection of the front-end, or the socket that the next one connects to.
    fn listen_to(&mut self, id: PortId) {
        let Some(port) = self.ports.get_mut(&id) else { return };
        let Some(vm) = &mut port.vm else { return };
        let watch = vm.link.as_ref().and_then(|link| link.kicks.watch.as_ref());
        if let Some(watch) = watch {
            let _ = self.poller.add(watch.as_fd(), Wake::Kicks(id).token());
        }
        let link = vm.link.as_ref();
        let added =
            link.map(|link| self.poller.add(link.connection.as_fd(), Wake::Link(id).token()));
        if let Some(Err(why)) = added {
            port.complain(format_args!("link: {why}"));
            return self.drop_link(id);
        }
        self.serve_knocks(id);
    }

    /// A front-end has gone. The port accepts the next one at once, or, if something that this one
    /// sent is still being closed, when that is done.
    pub(super) fn listen_to_the_next(&mut self, id: PortId) {
        match self.waits_for_closing(id) {
            true => self.serve_knocks(id),
            false => self.listen_to(id),
        }
    }
}
