//! Ports that come, change and go while others carry traffic, as the supervisor orders.
//!
//! A port that goes with a guest connected is seen by that guest as a link that goes down: it stays
//! without packets until the supervisor disconnects the guest.

use std::os::fd::OwnedFd;

use anyhow::{Context, ensure};
use ringway_host::{Carrier, GuestMemory, TapWatch};
use ringway_net::Negotiated;
use ringway_switch::{PORTS_MAX, PortId, PortPolicy};

use super::DataPlane;
use super::link::Link;
use super::nat_port::NatState;
use super::vm_port::VmPort;
use crate::chatter::Chatter;
use crate::config::{PortKind, PortSpec};

/// One port as the control thread sees it.
pub(super) struct Port {
    pub(super) spec: PortSpec,
    pub(super) vm: Option<VmPort>,
    /// Each queue of its tap.
    pub(super) tap: Vec<TapWatch>,
    pub(super) nat: NatState,
    /// Lines that its front-end is the reason for.
    pub(super) chatter: Chatter,
    /// It was removed, and goes for good when its front-end does.
    is_leaving: bool,
}

impl Port {
    fn new(spec: PortSpec) -> Self {
        Self {
            spec,
            vm: None,
            tap: Vec::new(),
            nat: NatState::default(),
            chatter: Chatter::new(),
            is_leaving: false,
        }
    }

    /// The front-end that is connected.
    pub(super) fn link(&self) -> Option<&Link> {
        self.vm.as_ref()?.link.as_ref()
    }

    pub(super) fn is_linked(&self) -> bool {
        self.link().is_some()
    }

    pub(super) fn is_leaving(&self) -> bool {
        self.is_leaving
    }
}

impl DataPlane {
    /// The ids of all ports, as they are now.
    pub(super) fn ids(&self) -> Vec<PortId> {
        self.ports.keys().copied().collect()
    }

    pub(super) fn name(&self, id: PortId) -> &str {
        self.ports.get(&id).map_or("", |port| &port.spec.name)
    }

    /// The port of a virtual machine.
    pub(super) fn vm(&mut self, id: PortId) -> Option<&mut VmPort> {
        self.ports.get_mut(&id)?.vm.as_mut()
    }

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
        let is_new = self.replay.is_some() && !self.ports.contains_key(&id);
        let rules = match is_new && !has_rules {
            // As each port is at first.
            true => Ok(()),
            false => self.worker.set_policy(id, spec.policy()),
        };
        let opened = rules.and_then(|()| self.attach_end(id, spec, fds));
        if opened.is_err() {
            let _ = self.worker.set_policy(id, PortPolicy::default());
            self.ports.remove(&id);
        }
        self.refresh_mirrors();
        self.told_ips.is_changed();
        opened
    }

    fn attach_end(&mut self, id: PortId, spec: PortSpec, fds: Vec<OwnedFd>) -> anyhow::Result<()> {
        let (is_guest, is_router) = (spec.kind.is_guest(), spec.kind == PortKind::Nat);
        if !is_router {
            self.name_port(id, &spec.name);
        }
        if !is_guest && let Some(port) = self.ports.get_mut(&id) {
            port.spec = spec;
        } else {
            self.ports.insert(id, Port::new(spec));
        }
        let port = self.ports.get_mut(&id).context("the port is gone")?;
        if is_guest {
            let vm = VmPort::open(&port.spec).context("starting a thread")?;
            // Packets for it are dropped and counted.
            let ends = (vm.mac, 1);
            self.worker.send_all(move |worker| {
                worker.attach_guest(id, Negotiated::NOTHING, ends, &GuestMemory::empty());
            });
            port.vm = Some(vm);
            if !port.spec.is_link_up {
                self.worker.set_link(id, Carrier::Down);
            }
            return Ok(());
        }
        if is_router {
            port.nat.take_sockets(fds);
            match &mut self.replay {
                Some(replay) => replay.routers.push(id),
                None => self.attach_nat(id, false)?,
            }
            return Ok(());
        }
        match &mut self.replay {
            Some(replay) => replay.taps.push((id, fds)),
            None => self.attach_tap(id, fds)?,
        }
        Ok(())
    }

    /// Removes a port; `true`: its guest was told, and the port goes when its front-end does.
    pub(super) fn remove_port(&mut self, id: PortId) -> bool {
        let Some(port) = self.ports.get_mut(&id) else { return false };
        port.is_leaving = true;
        self.refresh_mirrors();
        let leaving = self.leaving(id);
        self.worker.set_link(id, Carrier::Down);
        self.have_left(leaving);
        let Some(port) = self.ports.get_mut(&id) else { return false };
        let Some(vm) = &mut port.vm else {
            self.finish_leaving(id);
            return false;
        };
        vm.is_link_up = false;
        vm.believes = None;
        let is_told = vm.tell_config();
        if !vm.is_linked() {
            self.finish_leaving(id);
        }
        is_told
    }

    /// The port is gone, its id free.
    pub(super) fn finish_leaving(&mut self, id: PortId) {
        self.end_captures_of(id);
        let Some(port) = self.ports.remove(&id) else { return };
        // Only then may the guest's memory and fds go with the port.
        self.worker.ask_all(move |worker| worker.remove_port(id));
        drop(port);
        self.refresh_mirrors();
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
        let port = self.ports.get_mut(&id).context("the port is gone")?;
        port.nat.take_sockets(sockets);
        let before = std::mem::replace(&mut port.spec, spec);
        let now = port.spec.clone();
        let mut done = match now.policy() != before.policy() {
            true => self.worker.set_policy(id, now.policy()),
            false => Ok(()),
        };
        if done.is_ok() && now.nat.forwards != before.nat.forwards {
            done = self.follow_forwards(id);
        }
        let port = self.ports.get_mut(&id).context("the port is gone")?;
        if let Err(why) = done {
            // Those hold already, so they are accepted.
            let _ = self.worker.set_policy(id, before.policy());
            port.spec = before;
            return Err(why);
        }
        self.told_ips.is_changed();
        if now.nat != before.nat || now.mtu != before.mtu {
            self.tell_nat(id);
        }
        if now.notify != before.notify {
            self.worker.send_all(move |worker| worker.set_notify(id, now.notify));
        }
        if now.has_histograms != before.has_histograms {
            let is_on = now.has_histograms;
            self.worker.send_all(move |worker| worker.count_waits(id, is_on));
        }
        if now.offloads != before.offloads {
            self.worker.send_all(move |worker| worker.complete_for_tap(id, !now.offloads));
        }
        if now.mirror != before.mirror {
            self.refresh_mirrors();
        }
        if now.is_link_up != before.is_link_up {
            let leaving = (!now.is_link_up).then(|| self.leaving(id));
            let is_told = self.ports.get(&id).is_some_and(super::Port::is_linked);
            self.worker.set_link(
                id,
                match now.is_link_up {
                    false => Carrier::Down,
                    true if is_told => Carrier::Rising,
                    true => Carrier::Up,
                },
            );
            leaving.into_iter().for_each(|leaving| self.have_left(leaving));
        }
        let port = self.ports.get_mut(&id).context("the port is gone")?;
        let Some(vm) = &mut port.vm else {
            if now.is_link_up && !before.is_link_up {
                self.announce_all();
            }
            return Ok(false);
        };
        vm.configure(&now);
        if now.is_link_up != before.is_link_up {
            vm.plan_belief(now.is_link_up);
        }
        self.follow_link(id, &before);
        let port = self.ports.get_mut(&id).context("the port is gone")?;
        let Some(vm) = &mut port.vm else { return Ok(false) };
        let is_news = now.is_link_up != before.is_link_up || now.mtu != before.mtu;
        Ok(is_news && vm.tell_config())
    }
}
