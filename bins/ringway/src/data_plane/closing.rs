//! A thread of each port closes what its front-end sent (ADR 25), because closing may take as long
//! as the front-end likes. Only this port waits: its front-end's next request is read, and the next
//! front-end is accepted, when everything is closed.
//!
//! So what is left to that thread is bounded: what one request, or one connection, leaves behind.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ringway_foreign::DeferredDrop;
use ringway_host::EventFd;
use ringway_supervisor::wire::ToSupervisor;
use ringway_switch::PortId;

use super::DataPlane;

/// The port's thread, and the wait for it.
pub(super) struct Closing {
    pub(super) closer: DeferredDrop,
    /// Set when what was to be closed is.
    wait: Option<Arc<AtomicBool>>,
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
        self.wait = Some(is_over.clone());
        self.closer.afterwards(move || {
            is_over.store(true, Ordering::Release);
            bell.notify();
        });
        true
    }

    /// Whether a wait is over now, and nothing is left to wait for.
    fn ends(&mut self, bell: Arc<EventFd>) -> bool {
        let is_over = self.wait.take_if(|is_over| is_over.load(Ordering::Acquire)).is_some();
        // More to close: the front-end has gone meanwhile.
        is_over && !self.begin(bell)
    }
}

impl DataPlane {
    /// Whether something that the port's front-end sent is still being closed. The supervisor is
    /// told when that is over.
    pub(super) fn waits_for_closing(&mut self, id: PortId) -> bool {
        let bell = self.worker.shared_bell();
        let Some(vm) = self.ports.get_mut(&id).and_then(|port| port.vm.as_mut()) else {
            return false;
        };
        if !vm.closing.begin(bell) {
            return false;
        }
        if let Some(watch) = vm.link.as_ref().and_then(|link| link.kicks.watch.as_ref()) {
            self.wakes.forget(watch);
        }
        true
    }

    /// Ports for which everything is closed are served again.
    pub(super) fn end_closing(&mut self) {
        for id in self.ids() {
            let vm = self.ports.get_mut(&id).and_then(|port| port.vm.as_mut());
            if vm.is_some_and(|vm| vm.closing.ends(self.worker.shared_bell())) {
                self.watch_kicks_again(id);
                self.supervisor.tell(&ToSupervisor::Closed { port: id.0 });
            }
        }
    }
}
