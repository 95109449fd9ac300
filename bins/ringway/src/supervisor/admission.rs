//! Events at virtual machines' ports go to the value that decides who may connect; its effects are
//! carried out here.
//!
//! Limits: what refused front-ends have sent is closed by a thread of all ports, and while that
//! takes long none is refused.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;
use std::time::Instant;

use ringway_supervisor::front_ends::{Effect, Event, RETRY_AFTER};
use ringway_switch::PortId;
use tracing::{info, warn};

use super::closing::SLOW;
use super::descriptors::with_advice;
use super::peer::Peer;
use super::vm_port::VmPort;
use super::{Supervisor, Wake};

impl Supervisor {
    /// Takes an event of a port, and does what follows from it; what happens meanwhile comes
    /// behind it.
    pub(super) fn happens_at(&mut self, id: PortId, event: Event) {
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            let mut effects = Vec::new();
            let Some(vm) = self.vm(id) else { return };
            vm.admission.on(event, Instant::now(), &mut effects);
            events.extend(effects.into_iter().filter_map(|effect| self.carry_out_at(id, effect)));
        }
    }

    fn carry_out_at(&mut self, id: PortId, effect: Effect) -> Option<Event> {
        match effect {
            Effect::Listen(listens) => self.listen(id, listens),
            Effect::Connect => {
                let vm = self.vm(id)?;
                vm.next = vm.connect();
                return vm.next.as_ref().map(|_| Event::Connected);
            }
            Effect::Link => {
                let connection = self.vm(id)?.next.take()?;
                let linked = self.link(id, connection);
                let why = linked.err()?;
                self.complain(id, format_args!("link: {why}"));
                return Some(Event::NotLinked);
            }
            Effect::Refuse => return self.refuse(id),
            Effect::Drop => self.vm(id)?.next = None,
            Effect::Read(reads) => {
                let why = self.watch_link(id, reads).err()?;
                self.complain(id, format_args!("link: {why}"));
                return self.disconnect(id, None);
            }
            Effect::Disconnect => return self.disconnect(id, None),
            Effect::Free => self.finish_leaving(id),
            Effect::CannotAccept { why } => {
                warn!(port = self.name(id), "{why}: trying again every {RETRY_AFTER:?}");
            }
            Effect::HoldOff { pause, why } => {
                let why = format_args!("{why}: the port accepts no front-end for {pause:?}");
                self.complain(id, why);
            }
            Effect::IsSlow => {
                let why = format_args!("{SLOW}: the port serves no front-end until that is done");
                self.complain(id, why);
            }
            Effect::IsOver { took } => {
                let port = self.ports.get_mut(&id)?;
                let name = &port.spec.name;
                port.chatter.say(name, || info!(port = name, "closed after {took:.1?}"));
            }
        }
        None
    }

    /// A front-end connects.
    pub(super) fn accept(&mut self, id: PortId) {
        let Some(vm) = self.vm(id) else { return };
        // It may have been told of before it was not watched any more.
        let Some(listener) = vm.listener().filter(|_| vm.admission.is_listening()) else { return };
        let event = match listener.accept() {
            Ok(Some(connection)) => {
                vm.next = Some(connection);
                Event::Connected
            }
            Ok(None) => return,
            Err(why) => Event::NotAccepted { why: with_advice(format!("accept: {why}"), &why) },
        };
        self.happens_at(id, event);
    }

    /// When something at a port is due next.
    pub(super) fn next_admission(&self) -> Option<Instant> {
        let ports = self.ports.values().filter_map(|port| port.vm.as_ref());
        ports.filter_map(|vm| vm.admission.wake_at()).min()
    }

    /// Ports at which something is due are told so.
    pub(super) fn tell_due_ports(&mut self) {
        let wake_at = |port: &super::Port| port.vm.as_ref()?.admission.wake_at();
        for id in self.ids_of(|port| wake_at(port).is_some_and(|at| at <= Instant::now())) {
            self.happens_at(id, Event::Due);
        }
    }

    /// Disconnects a front-end that came second. Not if the other one has closed its end and only
    /// left something to do.
    fn refuse(&mut self, id: PortId) -> Option<Event> {
        let port = self.ports.get_mut(&id)?;
        let vm = port.vm.as_mut()?;
        let first = vm.link.as_ref().filter(|link| !link.connection.has_ended())?;
        let connection = vm.next.take_if(|_| self.refused.is_idle())?;
        let known = |peer: Option<&Peer>| {
            peer.map_or_else(|| "a process that is not known".to_string(), Peer::to_string)
        };
        let (name, names) = (&port.spec.name, &mut self.user_names);
        port.chatter.say(name, || {
            let second = Peer::of(&connection, names);
            let (second, first) = (known(second.as_ref()), known(first.peer.as_ref()));
            warn!(port = name, "front-end refused: {second}: the port is taken by {first}");
        });
        drop(connection.closed_by(&self.refused));
        Some(Event::Refused)
    }

    fn listen(&mut self, id: PortId, listens: bool) {
        let Some(port) = self.ports.get_mut(&id) else { return };
        let Some(listener) = port.vm.as_ref().and_then(VmPort::listener) else {
            return;
        };
        let outcome = match listens {
            true => self.poller.add(listener.as_fd(), Wake::Listener(id).token()),
            false => self.poller.remove(listener.as_fd()),
        };
        if let Err(why) = outcome {
            warn!(port = port.spec.name, "cannot listen any more: {why}");
            port.failure = Some(format!("cannot listen any more: {why}"));
        }
    }

    fn watch_link(&mut self, id: PortId, reads: bool) -> io::Result<()> {
        let Some(link) = self.ports.get(&id).and_then(super::Port::link) else { return Ok(()) };
        let fd = link.connection.as_fd();
        match reads {
            true => self.poller.add(fd, Wake::Link(id).token()),
            false => self.poller.remove(fd),
        }
    }

    /// A port goes; nothing of it is watched any more.
    pub(super) fn close_port(&self, port: &super::Port) {
        let Some(vm) = &port.vm else { return };
        if let Some(listener) = vm.listener().filter(|_| vm.admission.is_listening()) {
            let _ = self.poller.remove(listener.as_fd());
        }
        if let Some(link) = vm.link.as_ref().filter(|_| vm.admission.is_reading()) {
            let _ = self.poller.remove(link.connection.as_fd());
        }
    }
}
