//! The ports as the control thread sees them, and the front-ends that are linked to them.

mod announcement;
pub mod nat_port;
pub mod uplinks;
pub mod vm_port;

use std::collections::BTreeMap;
use std::fmt::Display;
use std::os::fd::OwnedFd;
use std::time::Instant;

use anyhow::{Context, bail};
use ringway_host::{Callee, Carrier, Tap, TapWatch};
use ringway_switch::PortId;
use tracing::info;

use super::links::Link;
use super::workers::Workers;
use crate::chatter::Chatter;
use crate::config::PortSpec;
use nat_port::NatState;
use vm_port::VmPort;

/// One port.
pub struct Port {
    pub id: PortId,
    pub spec: PortSpec,
    pub vm: Option<VmPort>,
    /// Each queue of its tap.
    pub tap: Vec<TapWatch>,
    pub nat: NatState,
    /// Lines that its front-end is the reason for.
    pub chatter: Chatter,
    /// It was removed, and goes for good when its front-end does.
    pub is_leaving: bool,
}

impl Port {
    pub fn new(id: PortId, spec: PortSpec) -> Self {
        Self {
            id,
            spec,
            vm: None,
            tap: Vec::new(),
            nat: NatState::new(id),
            chatter: Chatter::new(),
            is_leaving: false,
        }
    }

    /// The front-end that is connected.
    pub fn link(&self) -> Option<&Link> {
        self.vm.as_ref()?.link.as_ref()
    }

    pub fn is_linked(&self) -> bool {
        self.link().is_some()
    }

    /// A front-end has come, for which these options hold: those of the moment at which it came.
    pub fn connect(&mut self, number: u32, spec: &PortSpec, callee: Callee) -> anyhow::Result<()> {
        let Some(vm) = self.vm.as_mut().filter(|vm| !vm.is_linked()) else {
            bail!("a front-end is linked already")
        };
        vm.configure(spec);
        let link = Link::new(number, self.id, vm.mac, vm.offer(), callee);
        let link = vm.link.insert(link);
        link.mtu = spec.mtu;
        vm.configure(&self.spec);
        let config = vm.config(vm.is_link_up);
        if let Some(link) = &mut vm.link {
            // It is told nothing: it has read it, or will.
            let _ = link.session.set_config(config);
        }
        Ok(())
    }

    /// Says what its guest can have: a front-end that needs more leaves without a word.
    pub fn say_offer(&mut self) {
        let Some(link) = self.link() else { return };
        let (features, mac, pairs) = (link.session.offered(), link.mac, link.pairs);
        self.say(|port| {
            info!(port, "offers features {features:#x}, MAC address {mac}, queue pairs: {pairs}");
        });
    }

    /// Says a line about it, unless too much was said.
    pub fn say(&mut self, line: impl FnOnce(&str)) {
        let name = &self.spec.name;
        self.chatter.say(name, || line(name));
    }

    /// See [`Chatter::complain`].
    pub fn complain(&mut self, why: impl Display) {
        self.chatter.complain(&self.spec.name, why);
    }

    /// The queues of its tap, which the supervisor has opened, go to the workers.
    pub fn attach_tap(&mut self, mut fds: Vec<OwnedFd>, workers: &Workers) -> anyhow::Result<()> {
        let name = self.spec.kind.address();
        let interfaces = if fds.len() > 1 { fds.pop() } else { None };
        let mut queues = Vec::new();
        for fd in fds {
            let interfaces = interfaces.as_ref().map(OwnedFd::try_clone).transpose()?;
            let mut queue = Tap::new(fd, name.clone(), interfaces);
            queue.complete_all(!self.spec.offloads);
            queues.push(queue);
        }
        self.tap = queues.iter().map(Tap::watch).collect();
        workers.attach_tap(self.id, queues)?;
        if !self.spec.is_link_up {
            workers.set_link(self.id, Carrier::Down);
        }
        Ok(())
    }
}

/// All ports.
#[derive(Default)]
pub struct Ports {
    all: BTreeMap<PortId, Port>,
    /// The port of each front-end, until the supervisor says that it is gone.
    links: BTreeMap<u32, PortId>,
}

impl Ports {
    /// The ids of all ports, as they are now.
    pub fn ids(&self) -> Vec<PortId> {
        self.all.keys().copied().collect()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Port> {
        self.all.values()
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Port> {
        self.all.values_mut()
    }

    pub fn contains(&self, id: PortId) -> bool {
        self.all.contains_key(&id)
    }

    pub fn port(&self, id: PortId) -> Option<&Port> {
        self.all.get(&id)
    }

    pub fn port_mut(&mut self, id: PortId) -> Option<&mut Port> {
        self.all.get_mut(&id)
    }

    pub fn insert(&mut self, port: Port) {
        self.all.insert(port.id, port);
    }

    pub fn remove(&mut self, id: PortId) -> Option<Port> {
        self.all.remove(&id)
    }

    pub fn name(&self, id: PortId) -> &str {
        self.port(id).map_or("", |port| &port.spec.name)
    }

    /// The same of several ports.
    pub fn names(&self, ids: &[PortId]) -> String {
        ids.iter().map(|id| self.name(*id)).collect::<Vec<_>>().join(", ")
    }

    /// The port of that name.
    pub fn called(&self, name: &str) -> anyhow::Result<PortId> {
        match self.iter().find(|port| port.spec.name == name && !port.is_leaving) {
            Some(port) => Ok(port.id),
            None => bail!("there is no port called {name:?}"),
        }
    }

    /// The port of a virtual machine.
    pub fn vm(&mut self, id: PortId) -> Option<&mut VmPort> {
        self.port_mut(id)?.vm.as_mut()
    }

    /// The connection of a port, if there is one.
    pub fn link(&mut self, id: PortId) -> Option<&mut Link> {
        self.vm(id)?.link.as_mut()
    }

    /// The same, with the options of the port.
    pub fn linked(&mut self, id: PortId) -> anyhow::Result<(&mut Link, &PortSpec)> {
        let port = self.port_mut(id).context("port")?;
        let link = port.vm.as_mut().and_then(|vm| vm.link.as_mut());
        Ok((link.context("no front-end is connected")?, &port.spec))
    }

    /// A front-end is linked to that port.
    pub fn note_link(&mut self, number: u32, id: PortId) {
        self.links.insert(number, id);
    }

    /// The front-end is gone: the port that it was linked to.
    pub fn forget_link(&mut self, number: u32) -> Option<PortId> {
        self.links.remove(&number)
    }

    /// The port of a front-end, as long as the supervisor has not said that it is gone.
    pub fn of_link(&self, number: u32) -> Option<PortId> {
        self.links.get(&number).copied()
    }

    /// The port of a link that is still served.
    pub fn served(&self, number: u32) -> Option<PortId> {
        let id = self.of_link(number)?;
        let link = self.port(id)?.link()?;
        (link.number == number).then_some(id)
    }

    /// All guests see their links go down; `true`: one was told.
    pub fn tell_links_down(&mut self) -> bool {
        let vms = self.iter_mut().filter_map(|port| port.vm.as_mut());
        vms.map(VmPort::tell_link_down).filter(|is_told| *is_told).count() > 0
    }

    /// Another process is about to take over: transfers of devices' states end soon.
    pub fn end_transfers(&mut self) {
        let links = self.iter_mut().filter_map(|port| port.vm.as_mut()?.link.as_mut());
        links.for_each(|link| link.state.end_soon());
    }

    pub fn complain(&mut self, id: PortId, why: impl Display) {
        if let Some(port) = self.port_mut(id) {
            port.complain(why);
        }
    }

    /// The first of the times that ports tell of.
    pub fn earliest(&self, at: impl Fn(&Port) -> Option<Instant>) -> Option<Instant> {
        self.iter().filter_map(at).min()
    }
}
