//! Front-ends that come to ports and go: their sockets, as the value says that decides who may
//! connect.
//!
//! Limits: what refused front-ends have sent is closed by a thread of all ports, and while that
//! takes long none is refused.

use std::io;
use std::os::fd::AsFd;
use std::time::Instant;

use anyhow::Context;
use ringway_supervisor::front_ends::{Effect, Event, RETRY_AFTER};
use ringway_supervisor::wire::{Bytes, SPEC_LEN_MAX};
use ringway_switch::PortId;
use ringway_vhost_user::Connection;
use tracing::{info, warn};

use super::Ports;
use super::port::SupervisedPort;
use super::vm_port::{Newcomer, VmPort};
use crate::closing::SLOW;
use crate::identity::Identity;
use crate::supervisor::front_ends::front_end::FrontEnd;
use crate::supervisor::front_ends::peer::Peer;
use crate::supervisor::front_ends::told::told;
use crate::supervisor::processes::descriptors::with_advice;
use crate::supervisor::setup::wake::Wake;

impl Ports {
    /// Carries out an effect that concerns the port alone.
    pub fn carry_out(&mut self, id: PortId, effect: Effect) -> Option<Event> {
        match effect {
            Effect::Listen(listens) => self.listen(id, listens),
            Effect::Connect => {
                let vm = self.vm(id)?;
                let connection = vm.connect()?;
                return self.note_newcomer(id, connection);
            }
            Effect::SayItWaits => self.say_it_waits(id),
            Effect::Refuse => return self.refuse(id),
            Effect::Drop => self.vm(id)?.waiting.clear(),
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
                let port = self.get_mut(&id)?;
                let name = &port.spec.name;
                port.chatter.say(name, || info!(port = name, "closed after {took:.1?}"));
            }
            Effect::Link | Effect::Read(_) | Effect::Disconnect | Effect::Free => {
                unreachable!("these concern the data plane, too")
            }
        }
        None
    }

    /// Accepts a front-end.
    pub fn accept(&mut self, id: PortId) -> Option<Event> {
        let vm = self.vm(id)?;
        // It may have been told of before it was not watched any more.
        let listener = vm.listener().filter(|_| vm.admission.is_listening())?;
        match listener.accept() {
            Ok(connection) => {
                let connection = connection?;
                self.note_newcomer(id, connection)
            }
            Err(why) => {
                Some(Event::NotAccepted { why: with_advice(format!("accept: {why}"), &why) })
            }
        }
    }

    fn note_newcomer(&mut self, id: PortId, connection: Connection) -> Option<Event> {
        let peer = Peer::of(&connection, &mut self.user_names);
        self.vm(id)?.waiting.push_back(Newcomer { connection, peer });
        Some(Event::Connected)
    }

    /// The front-end that waited at the supervisor before waits still: its process. `false`: there
    /// is none.
    pub fn find_peer_of_next(&mut self, id: PortId) -> bool {
        let port = self.all.get_mut(&id);
        let next = port.and_then(|port| port.vm.as_mut()?.waiting.front_mut());
        next.map(|next| next.peer = Peer::of(&next.connection, &mut self.user_names)).is_some()
    }

    /// Links the front-end that has connected: its number, and what data planes are told of it.
    /// `is_told`: the data plane says when its guest runs.
    ///
    /// # Errors
    /// There is too much to tell the data plane of it.
    pub fn link(
        &mut self,
        id: PortId,
        identity: &Identity,
        is_told: bool,
    ) -> anyhow::Result<Option<(u32, Bytes<SPEC_LEN_MAX>)>> {
        let next = self.vm(id).and_then(|vm| vm.waiting.pop_front());
        let Some(Newcomer { connection, peer }) = next else { return Ok(None) };
        let port = self.get(&id).context("the port is gone")?;
        let spec = told(&port.spec, self, identity)?;
        self.last_link += 1;
        let connection = connection.without_waiting();
        let front_end = FrontEnd::new(self.last_link, connection, peer, spec.clone());
        let port = self.get_mut(&id).context("the port is gone")?;
        let name = &port.spec.name;
        port.chatter.say(name, || match &front_end.peer {
            Some(peer) => info!(port = name, "front-end connected: {peer}"),
            None => info!(port = name, "front-end connected"),
        });
        let number = front_end.number;
        let vm = port.vm.as_mut().context("it is no virtual machine's")?;
        vm.link = Some(front_end);
        vm.moves.begin(is_told);
        Ok(Some((number, spec)))
    }

    /// Disconnects a front-end: its number.
    pub fn unlink(&mut self, id: PortId) -> Option<u32> {
        let port = self.all.get_mut(&id)?;
        let vm = port.vm.as_mut()?;
        let link = vm.link.take()?;
        vm.moves.end();
        if vm.admission.is_reading() {
            let _ = self.poller.remove(link.connection.as_fd());
        }
        let name = &port.spec.name;
        port.chatter.say(name, || info!(port = name, "front-end gone"));
        Some(link.number)
    }

    /// Whether the port's thread closes something; if so the bell is rung when that is over.
    pub fn is_closing(&mut self, id: PortId) -> Option<bool> {
        let bell = self.bell.clone();
        Some(self.vm(id)?.closing.is_busy(&bell))
    }

    /// When something at a port is due next.
    pub fn next_admission(&self) -> Option<Instant> {
        let ports = self.values().filter_map(|port| port.vm.as_ref());
        ports.filter_map(|vm| vm.admission.wake_at()).min()
    }

    /// Says that a front-end waits that came second. Not if the other one has closed its end and
    /// only left something to do.
    fn say_it_waits(&mut self, id: PortId) {
        let Some(port) = self.all.get_mut(&id) else { return };
        let Some(vm) = &port.vm else { return };
        let first = vm.link.as_ref().filter(|link| !link.connection.has_ended());
        let (Some(first), Some(second)) = (first, vm.waiting.front()) else { return };
        let name = &port.spec.name;
        port.chatter.say(name, || {
            let (first, second) = (known(first.peer.as_ref()), known(second.peer.as_ref()));
            warn!(
                port = name,
                "front-end waits: {second}: the port is taken by {first}, and the second is served \
                 when that one ends: for a guest that moves from one to the other give the second \
                 a port of its own"
            );
        });
    }

    /// Disconnects a front-end that came third, or one in front of it that has gone. Not if the
    /// first one has closed its end and only left something to do.
    fn refuse(&mut self, id: PortId) -> Option<Event> {
        let port = self.all.get_mut(&id)?;
        let vm = port.vm.as_mut()?;
        let first = vm.link.as_ref().filter(|link| !link.connection.has_ended())?;
        if !self.refused.is_idle() {
            return None;
        }
        if let Some(next) = vm.waiting.pop_front_if(|next| next.connection.has_ended()) {
            drop(next.connection.closed_by(&self.refused));
            return Some(Event::NextHasGone);
        }
        let Newcomer { connection, peer } = vm.waiting.pop_back()?;
        let name = &port.spec.name;
        port.chatter.say(name, || {
            let (first, third) = (known(first.peer.as_ref()), known(peer.as_ref()));
            let why = "and another front-end waits for it";
            warn!(port = name, "front-end refused: {third}: the port is taken by {first}, {why}");
        });
        drop(connection.closed_by(&self.refused));
        Some(Event::Refused)
    }

    fn listen(&mut self, id: PortId, listens: bool) {
        let Some(port) = self.all.get_mut(&id) else { return };
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

    pub fn watch_link(&mut self, id: PortId, reads: bool) -> io::Result<()> {
        let Some(link) = self.get(&id).and_then(SupervisedPort::link) else { return Ok(()) };
        let fd = link.connection.as_fd();
        match reads {
            true => self.poller.add(fd, Wake::Link(id).token()),
            false => self.poller.remove(fd),
        }
    }

    /// Nothing of a port is watched any more.
    pub fn unwatch(&self, port: &SupervisedPort) {
        let Some(vm) = &port.vm else { return };
        if let Some(listener) = vm.listener().filter(|_| vm.admission.is_listening()) {
            let _ = self.poller.remove(listener.as_fd());
        }
        if let Some(link) = vm.link.as_ref().filter(|_| vm.admission.is_reading()) {
            let _ = self.poller.remove(link.connection.as_fd());
        }
    }
}

fn known(peer: Option<&Peer>) -> String {
    peer.map_or_else(|| "a process that is not known".to_owned(), Peer::to_string)
}
