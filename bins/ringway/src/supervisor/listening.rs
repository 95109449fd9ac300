//! Front-ends that connect: one at a time is served. One that comes while another is linked is
//! refused, that is, disconnected: in the socket's queue it would wait without a word.
//!
//! The one that is linked may be about to end, and the newcomer be the same machine once more. So
//! the newcomer is refused only if the other one is still there [`GRACE`] later, and follows it if
//! it ends before.
//!
//! Limits: one newcomer of each port waits so; others wait in the socket's queue. What refused
//! front-ends have sent is closed by a thread of all ports, and while that takes long none is
//! refused.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use ringway_switch::PortId;
use ringway_vhost_user::Connection;
use tracing::warn;

use super::accept_backoff::RETRY_AFTER;
use super::descriptors::with_advice;
use super::peer::Peer;
use super::vm_port::{Newcomer, VmPort};
use super::{Supervisor, Wake};

/// A process that has ended may have copies of its sockets for a moment, as between fork and exec.
const GRACE: Duration = Duration::from_millis(100);

impl VmPort {
    /// Whether the port has a use for the next front-end now, to serve it or to refuse it.
    fn wants_connection(&self) -> bool {
        let is_able =
            self.listener().is_some() && self.backoff.until.is_none() && !self.is_quarantined;
        is_able && self.next.is_none() && (self.is_linked() || !self.closing.is_waited_for())
    }

    /// The one that came while another was linked, if its turn has come.
    fn take_next(&mut self) -> Option<Connection> {
        let is_free = !self.is_linked() && !self.closing.is_waited_for();
        let next = self.next.take_if(|_| is_free && self.backoff.until.is_none())?;
        Some(next.connection)
    }

    /// When the newcomer is to be refused. Not at all, if the other one has closed its end and only
    /// left something to do.
    fn refuses_at(&self) -> Option<Instant> {
        let (next, link) = self.next.as_ref().zip(self.link.as_ref())?;
        (!link.connection.has_ended()).then_some(next.refuse_at)
    }
}

impl Supervisor {
    /// A front-end connects.
    pub(super) fn accept(&mut self, id: PortId) {
        let Some(vm) = self.ports.get_mut(&id).and_then(|port| port.vm.as_mut()) else { return };
        // It may have been told of before it was not watched any more.
        let Some(listener) = vm.listener().filter(|_| vm.is_watched) else { return };
        match listener.accept() {
            Ok(Some(connection)) if vm.is_linked() => {
                vm.next = Some(Newcomer { connection, refuse_at: Instant::now() + GRACE });
                self.serve_listener(id);
            }
            Ok(Some(connection)) => self.link(id, connection),
            Ok(None) => {}
            Err(why) => {
                let why = with_advice(format!("accept: {why}"), &why);
                self.stop_listening(id, &why);
            }
        }
    }

    /// When the next newcomer is to be refused.
    pub(super) fn next_refusal(&self) -> Option<Instant> {
        let ports = self.ports.values().filter_map(|port| port.vm.as_ref());
        ports.filter_map(VmPort::refuses_at).min()
    }

    /// Newcomers are refused whose grace is over.
    pub(super) fn refuse_due_newcomers(&mut self) {
        let now = Instant::now();
        let refuses_at = |port: &super::Port| port.vm.as_ref()?.refuses_at();
        for id in self.ids_of(|port| refuses_at(port).is_some_and(|at| at <= now)) {
            let Some(vm) = self.ports.get_mut(&id).and_then(|port| port.vm.as_mut()) else {
                continue;
            };
            match vm.next.take() {
                Some(next) if self.refused.is_idle() => {
                    self.refuse(id, next.connection);
                    self.serve_listener(id);
                }
                next => {
                    vm.next = next.map(|next| Newcomer { refuse_at: now + RETRY_AFTER, ..next });
                }
            }
        }
    }

    /// Disconnects a front-end that came second.
    fn refuse(&mut self, id: PortId, connection: Connection) {
        let Some(port) = self.ports.get_mut(&id) else { return };
        let Some(vm) = &mut port.vm else { return };
        vm.refused += 1;
        let known = |peer: Option<&Peer>| {
            peer.map_or_else(|| "a process that is not known".to_string(), Peer::to_string)
        };
        let (name, names) = (&port.spec.name, &mut self.user_names);
        let first = vm.link.as_ref().and_then(|link| link.peer.as_ref());
        port.chatter.say(name, || {
            let second = Peer::of(&connection, names);
            let (second, first) = (known(second.as_ref()), known(first));
            warn!(port = name, "front-end refused: {second}: the port is taken by {first}");
        });
        drop(connection.closed_by(&self.refused));
    }

    /// Links the front-end whose turn has come, and watches the listener exactly while there is a
    /// use for those that connect.
    pub(super) fn serve_listener(&mut self, id: PortId) {
        let Some(port) = self.ports.get_mut(&id) else { return };
        let Some(vm) = &mut port.vm else { return };
        if !self.planes.is_holding()
            && let Some(next) = vm.take_next()
        {
            self.link(id, next);
            return self.serve_listener(id);
        }
        let Some(listener) = vm.listener() else { return };
        let outcome = match (vm.is_watched, !self.planes.is_holding() && vm.wants_connection()) {
            (false, true) => self.poller.add(listener.as_fd(), Wake::Listener(id).token()),
            (true, false) => self.poller.remove(listener.as_fd()),
            _ => return,
        };
        vm.is_watched = outcome.is_ok() && !vm.is_watched;
        if let Err(why) = outcome {
            warn!(port = port.spec.name, "cannot listen any more: {why}");
            port.failure = Some(format!("cannot listen any more: {why}"));
        }
    }

    /// For a while: a front-end that connects waits, and does not wake the supervisor.
    pub(super) fn stop_listening(&mut self, id: PortId, why: &str) {
        let Some(port) = self.ports.get_mut(&id) else { return };
        let Some(vm) = &mut port.vm else { return };
        if vm.backoff.begin() {
            warn!(port = port.spec.name, "{why}: trying again every {RETRY_AFTER:?}");
        }
        self.serve_listener(id);
    }

    /// When the next listener that could not accept is to be listened to again.
    pub(super) fn next_listening(&self) -> Option<Instant> {
        let ports = self.ports.values().filter_map(|port| port.vm.as_ref());
        ports.filter_map(|vm| vm.backoff.until).chain(self.control.backoff.until).min()
    }

    /// Listeners that could not accept are listened to again when their time has come.
    pub(super) fn listen_again(&mut self) {
        let now = Instant::now();
        if self.control.backoff.ends(now) {
            let _ = self.poller.add(self.control.as_fd(), Wake::Control.token());
        }
        let is_waiting = |vm: &VmPort| vm.backoff.until.is_some();
        for id in self.ids_of(|port| port.vm.as_ref().is_some_and(is_waiting)) {
            if self.vm(id).is_some_and(|vm| vm.backoff.ends(now)) {
                self.serve_listener(id);
            }
        }
    }

    /// A port goes; nothing of it is watched any more.
    pub(super) fn close_port(&self, port: &super::Port) {
        let Some(vm) = &port.vm else { return };
        if let Some(listener) = vm.listener().filter(|_| vm.is_watched) {
            let _ = self.poller.remove(listener.as_fd());
        }
        if let Some(link) = vm.link.as_ref().filter(|link| link.is_watched()) {
            let _ = self.poller.remove(link.connection.as_fd());
        }
    }
}
