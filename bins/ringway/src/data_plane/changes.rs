//! Ports and front-ends that come, change and go while others carry traffic, as the supervisor
//! orders.
//!
//! A port that goes with a guest connected is seen by that guest as a link that goes down: it stays
//! without packets until the supervisor disconnects the guest.

use std::os::fd::OwnedFd;

use anyhow::{Context, ensure};
use ringway_host::{Carrier, GuestMemory};
use ringway_nat::Rings;
use ringway_net::Negotiated;
use ringway_switch::{PORTS_MAX, PortId, PortPolicy};

use super::DataPlane;
use super::departed::departed;
use super::ports::Port;
use super::ports::vm_port::VmPort;
use crate::config::{PortKind, PortSpec};

impl DataPlane {
    /// A port is there; or a tap was opened anew, and takes the place of the one before.
    ///
    /// # Errors
    /// It cannot be served; nothing is left of it.
    pub(super) fn open_port(
        &mut self,
        id: PortId,
        spec: PortSpec,
        fds: Vec<OwnedFd>,
    ) -> anyhow::Result<()> {
        ensure!(usize::from(id.0) < PORTS_MAX, "there is no port {}", id.0);
        // Its rules hold from the first packet on.
        let has_rules = spec.policy() != PortPolicy::default();
        let is_new = self.replay.is_some() && !self.ports.contains(id);
        let rules = match is_new && !has_rules {
            // As each port is at first.
            true => Ok(()),
            false => self.workers.set_policy(id, spec.policy()),
        };
        let opened = rules.and_then(|()| self.attach_end(id, spec, fds));
        if opened.is_err() {
            let _ = self.workers.set_policy(id, PortPolicy::default());
            self.ports.remove(id);
        }
        self.refresh_mirrors();
        self.told_ips.is_changed();
        opened
    }

    fn attach_end(&mut self, id: PortId, spec: PortSpec, fds: Vec<OwnedFd>) -> anyhow::Result<()> {
        let (is_guest, is_router) = (spec.kind.is_guest(), spec.kind == PortKind::Nat);
        if !is_router {
            // The guests of routers ask for it.
            let name = spec.name.clone();
            self.workers.send_all(move |worker| worker.name_port(id, name));
        }
        match self.ports.port_mut(id).filter(|_| !is_guest) {
            Some(port) => port.spec = spec,
            None => self.ports.insert(Port::new(id, spec)),
        }
        let port = self.ports.port_mut(id).context("the port is gone")?;
        if is_guest {
            let vm = VmPort::open(&port.spec).context("starting a thread")?;
            // Packets for it are dropped and counted.
            let ends = (vm.mac, 1);
            self.workers.send_all(move |worker| {
                worker.set_stopped(id, true);
                worker.attach_guest(id, Negotiated::NOTHING, ends, &GuestMemory::empty());
            });
            port.vm = Some(vm);
            if !port.spec.is_link_up {
                self.workers.set_link(id, Carrier::Down);
            }
            self.ports.tell_routers(id, Rings::Stop, &self.workers);
        } else if is_router {
            port.nat.take_sockets(fds);
            match &mut self.replay {
                Some(replay) => replay.routers.push(id),
                None => {
                    port.nat.open(&port.spec, false, &self.workers)?;
                    self.ports.tell_router(id, &self.workers);
                }
            }
        } else if let Some(replay) = &mut self.replay {
            replay.taps.push((id, fds));
        } else {
            port.attach_tap(fds, &self.workers)?;
            self.ports.announce_all(self.workers.shared());
        }
        Ok(())
    }

    /// Removes a port; `true`: its guest was told, and the port goes when its front-end does.
    pub(super) fn remove_port(&mut self, id: PortId) -> bool {
        let Some(port) = self.ports.port_mut(id) else { return false };
        port.is_leaving = true;
        self.refresh_mirrors();
        self.set_down(id);
        let Some(vm) = self.ports.vm(id) else {
            self.finish_leaving(id);
            return false;
        };
        vm.believes = None;
        let is_told = vm.tell_link_down();
        if !vm.is_linked() {
            self.finish_leaving(id);
        }
        is_told
    }

    /// The port is gone, its id free.
    fn finish_leaving(&mut self, id: PortId) {
        for capture in self.captures.of(id) {
            self.captures.end(capture, &self.ports, &self.wakes, &self.workers);
        }
        let Some(port) = self.ports.remove(id) else { return };
        // Only then may the guest's memory and fds go with the port.
        self.workers.ask_all(move |worker| worker.remove_port(id));
        drop(port);
        self.refresh_mirrors();
    }

    /// No packet goes to a port, or comes from it, any more.
    fn set_down(&mut self, id: PortId) {
        let departed = departed(id, &self.ports, self.workers.shared());
        self.workers.set_link(id, Carrier::Down);
        self.have_left(departed);
    }

    /// Tells the workers which ports have mirrors now, if that has changed.
    fn refresh_mirrors(&mut self) {
        if let Some(mirrors) = self.mirrors.follow(&self.ports) {
            self.workers.ask_all(move |worker| worker.set_mirrors(mirrors));
        }
    }

    /// Gives a port other options; its kind stays. `true`: its guest was told.
    ///
    /// # Errors
    /// They cannot be followed; then nothing has changed.
    pub(super) fn change_port(
        &mut self,
        id: PortId,
        spec: PortSpec,
        sockets: Vec<OwnedFd>,
    ) -> anyhow::Result<bool> {
        let (workers, port) = (&self.workers, self.ports.port_mut(id).context("the port is gone")?);
        port.nat.take_sockets(sockets);
        let before = std::mem::replace(&mut port.spec, spec);
        let now = port.spec.clone();
        let mut done = match now.policy() != before.policy() {
            true => workers.set_policy(id, now.policy()),
            false => Ok(()),
        };
        if done.is_ok() && now.nat.forwards != before.nat.forwards {
            done = port.nat.follow_forwards(&now, workers);
        }
        if let Err(why) = done {
            // Those hold already, so they are accepted.
            let _ = workers.set_policy(id, before.policy());
            port.spec = before;
            return Err(why);
        }
        self.told_ips.is_changed();
        if now.nat != before.nat || now.mtu != before.mtu {
            port.nat.follow(&now, workers);
        }
        workers.follow(id, &before, &now);
        if now.mirror != before.mirror {
            self.refresh_mirrors();
        }
        let is_moved = now.is_link_up != before.is_link_up;
        let is_linked = self.ports.port(id).is_some_and(Port::is_linked);
        match now.is_link_up {
            _ if !is_moved => {}
            false => self.set_down(id),
            true if is_linked => self.workers.set_link(id, Carrier::Rising),
            true => self.workers.set_link(id, Carrier::Up),
        }
        let port = self.ports.port_mut(id).context("the port is gone")?;
        let Some(vm) = &mut port.vm else {
            if now.is_link_up && is_moved {
                self.ports.announce_all(self.workers.shared());
            }
            return Ok(false);
        };
        vm.configure(&now);
        if is_moved {
            vm.plan_belief(now.is_link_up);
        }
        port.follow_link(&before, self.workers.shared());
        let is_news = is_moved || now.mtu != before.mtu;
        Ok(is_news && port.vm.as_mut().is_some_and(VmPort::tell_config))
    }

    /// A front-end has come, for which these options hold: those of the moment at which it came.
    ///
    /// # Errors
    /// There is no such port, or it has a front-end.
    pub(super) fn link(&mut self, id: PortId, number: u32, spec: &PortSpec) -> anyhow::Result<()> {
        let port = self.ports.port_mut(id).context("there is no such port")?;
        port.connect(number, spec, self.workers.new_callee())?;
        // One that a data plane had before this one was told of it then.
        if self.replay.is_none() {
            port.say_offer();
        }
        self.ports.note_link(number, id);
        self.workers.send_all(move |worker| worker.note_rings(id, Some(number)));
        Ok(())
    }

    /// The front-end has gone. `true`: what it sent is still being closed.
    pub(super) fn unlink(&mut self, number: u32) -> bool {
        let served = self.ports.served(number);
        let Some(id) = self.ports.forget_link(number) else { return false };
        if served.is_some() {
            self.drop_link(id);
        }
        if self.ports.port(id).is_some_and(|port| port.is_leaving) {
            self.finish_leaving(id);
        }
        self.waits_for_closing(id)
    }
}
