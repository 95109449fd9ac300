//! Ports that come, change and go while others carry traffic.
//!
//! A port that goes with a guest connected is seen by that guest as a link that goes down: it stays
//! for [`LINK_DOWN_GRACE`], without packets, so that the guest can read what it was told.
//! Its name and its place are free at once.
//!
//! Limits: at most [`PORTS_MAX`] ports, those included that are about to go.

use std::fmt;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use anyhow::Context;
use ringway_supervisor::front_ends;
use ringway_supervisor::wire::{SeenIp, ToData};
use ringway_switch::{PORTS_MAX, PortId};
use tracing::{error, info, warn};

use super::descriptors::explained;
use super::forward_sockets::ForwardSockets;
use super::front_end::FrontEnd;
use super::order::{Order, Requester};
use super::plane::OutgoingFd;
use super::source::Source;
use super::stations::Stations;
use super::tap_port::TapState;
use super::vm_port::VmPort;
use super::{LINK_DOWN_GRACE, Supervisor, Wake};
use crate::chatter::Chatter;
use crate::config::options::{Effect, OPTIONS};
use crate::config::{PortKind, PortSpec};
use crate::{host_routes, socket_reach, spec_text};

pub(super) const TOO_MANY: &str = "there are 256 ports already: remove one first";
const _: () = assert!(PORTS_MAX == 256);

/// At the start, for a tap that another process has.
const TAP_PATIENCE: Duration = Duration::from_secs(1);

/// One port as the supervisor sees it.
pub(super) struct Port {
    pub(super) spec: PortSpec,
    /// As the file has it, if it comes from there.
    pub(super) from_file: Option<PortSpec>,
    pub(super) source: Source,
    /// Why the port does not work, if it does not.
    pub(super) failure: Option<String>,
    pub(super) vm: Option<VmPort>,
    pub(super) tap: TapState,
    /// Unix sockets that lead into guests, of a router.
    pub(super) sockets: ForwardSockets,
    /// Lines that its front-end is the reason for.
    pub(super) chatter: Chatter,
    /// It was removed, and goes for good then.
    leaves_at: Option<Instant>,
    /// A data plane has had it.
    pub(super) is_served: bool,
    /// Visits of it in which data planes ended: in each a packet may have come twice.
    pub(super) replayed: u64,
    /// IP addresses that were seen to be used behind it.
    pub(super) seen_ips: Vec<SeenIp>,
    /// The stations that a router knows.
    pub(super) stations: Stations,
    /// The network of this machine that a router's overlaps with; the log has said so.
    pub(super) overlap: Option<String>,
    /// Who asked for it, and has no answer yet because the data plane had ended.
    pub(super) asked: Option<Requester>,
}

impl Port {
    pub(super) fn new(spec: PortSpec, from_file: Option<PortSpec>) -> Self {
        Self {
            spec,
            from_file,
            source: Source::Configuration,
            failure: None,
            vm: None,
            tap: TapState::default(),
            sockets: ForwardSockets::default(),
            chatter: Chatter::new(),
            leaves_at: None,
            is_served: false,
            replayed: 0,
            seen_ips: Vec::new(),
            stations: Stations::default(),
            overlap: None,
            asked: None,
        }
    }

    /// The front-end that is connected.
    pub(super) fn link(&self) -> Option<&FrontEnd> {
        self.vm.as_ref()?.link.as_ref()
    }

    pub(super) fn is_linked(&self) -> bool {
        self.link().is_some()
    }

    /// Whether a guest is there, and its link is up.
    pub(super) fn is_here(&self) -> bool {
        self.is_linked() && self.spec.is_link_up && !self.is_leaving()
    }

    pub(super) fn is_leaving(&self) -> bool {
        self.leaves_at.is_some()
    }

    pub(super) fn is_new(&self) -> bool {
        !self.is_served
    }

    /// The reason why it does not stay as it is, if there is one.
    pub(super) fn is_changing(&self) -> Option<&'static str> {
        if self.is_leaving() || self.asked.is_some() || self.tap.is_reopening() {
            return Some("it is changing");
        }
        let vm = self.vm.as_ref()?;
        let is_closing = vm.admission.is_closing() || !vm.closing.closer.is_idle();
        let is_closing = is_closing.then_some("what its front-end sent is still being closed");
        is_closing.or(vm.next.is_some().then_some("a second front-end waits"))
    }

    /// It does not work. What it had open is closed.
    pub(super) fn fail(&mut self, why: String) {
        (self.failure, self.vm, self.tap) = (Some(why), None, TapState::default());
        self.sockets = ForwardSockets::default();
    }

    /// The file descriptors of it that the data plane gets.
    pub(super) fn sent(&self) -> Vec<OutgoingFd> {
        self.tap.sent().into_iter().chain(self.sockets.sent()).collect()
    }
}

impl Supervisor {
    /// The ids of all ports, as they are now.
    pub(super) fn ids(&self) -> Vec<PortId> {
        self.ids_of(|_| true)
    }

    pub(super) fn ids_of(&self, is_it: impl Fn(&Port) -> bool) -> Vec<PortId> {
        self.ports.iter().filter(|(_, port)| is_it(port)).map(|(id, _)| *id).collect()
    }

    pub(super) fn name(&self, id: PortId) -> &str {
        self.ports.get(&id).map_or("", |port| &port.spec.name)
    }

    /// See [`Chatter::complain`].
    pub(super) fn complain(&mut self, id: PortId, why: impl fmt::Display) {
        if let Some(port) = self.ports.get_mut(&id) {
            port.chatter.complain(&port.spec.name, why);
        }
    }

    /// The port of that name, unless it is about to go.
    pub(super) fn find_port(&self, name: &str) -> Option<PortId> {
        let mut ports = self.ports.iter().filter(|(_, port)| !port.is_leaving());
        ports.find(|(_, port)| port.spec.name == name).map(|(&id, _)| id)
    }

    /// The configured ports, without those that are about to go.
    pub(super) fn specs(&self) -> impl Iterator<Item = &PortSpec> {
        self.ports.values().filter(|port| !port.is_leaving()).map(|port| &port.spec)
    }

    /// Opens a port of the configuration. If that fails it is kept, with the reason.
    pub(super) fn open_configured(&mut self, spec: PortSpec, asked: &Requester) {
        let from_file = self.file.is_some().then(|| spec.clone());
        let Some(id) = self.free_id() else {
            error!(port = spec.name, "{TOO_MANY}");
            return asked.has_failed(|| format!("port {} does not work: {TOO_MANY}", spec.name));
        };
        let mut port = Port::new(spec, from_file);
        asked.warns(self.warn_of_shared_mac(&port.spec));
        if let Some(why) = socket_reach::barrier(&port.spec) {
            warn!(port = port.spec.name, "{why}");
            asked.warns([format!("port {}: {why}", port.spec.name)]);
        }
        let opened = self.open_end(id, &mut port);
        if let Err(why) = &opened {
            let (name, why) = (&port.spec.name, explained(why));
            error!(port = name, "{why}");
            asked.has_failed(|| format!("port {name} does not work: {why}"));
            port.failure = Some(why);
        }
        self.ports.insert(id, port);
        if opened.is_ok() {
            self.order_open(id, asked.clone());
        }
    }

    /// Opens a port that was asked for.
    ///
    /// # Errors
    /// It cannot be opened; nothing is left of it.
    pub(super) fn open_port(
        &mut self,
        (spec, source): (PortSpec, Source),
        mut asked: Requester,
    ) -> anyhow::Result<()> {
        let id = self.free_id().context(TOO_MANY)?;
        let mut port = Port::new(spec, None);
        port.source = source;
        self.open_end(id, &mut port)?;
        asked.warnings = self.warnings_about(&port.spec);
        self.ports.insert(id, port);
        self.added.is_changed = true;
        self.order_open(id, asked);
        Ok(())
    }

    /// The data plane is told of a port. Without a data plane the next one will be.
    pub(super) fn order_open(&mut self, id: PortId, asked: Requester) {
        if self.opens_first_router(id, &asked) {
            return;
        }
        let Some(port) = self.ports.get(&id) else { return };
        let (fds, spec) = (port.sent(), &port.spec);
        let Ok(spec) = spec_text::port(spec, port.tap.name(), &self.identity) else { return };
        let message = |order| ToData::Port { order, port: id.0, spec: spec.clone() };
        let order = Order::Open { port: id, asked: asked.clone() };
        if !self.order_now(order, message, fds)
            && let Some(port) = self.ports.get_mut(&id)
        {
            port.asked = Some(asked);
        }
    }

    pub(super) fn free_id(&self) -> Option<PortId> {
        let count = u16::try_from(PORTS_MAX).unwrap_or(u16::MAX);
        (0..count).map(PortId).find(|id| !self.ports.contains_key(id))
    }

    /// Opens what is the supervisor's: the socket, or the tap.
    pub(super) fn open_end(&mut self, id: PortId, port: &mut Port) -> anyhow::Result<()> {
        spec_text::port(&port.spec, None, &self.identity)?;
        host_routes::check(port.spec.nat.ranges())?;
        self.choose_network(&port.spec);
        if !port.spec.kind.is_guest() {
            let name = &port.spec.name;
            port.sockets.open(&port.spec, |why| error!(port = name, "{why:#}: tried again"));
            // The data plane of a ringway that was killed just now may still have it.
            let is_start = !self.planes.is_begun();
            let patience = if is_start { TAP_PATIENCE } else { Duration::ZERO };
            return port.tap.open(&port.spec, self.workers, patience);
        }
        let passed = match &port.spec.kind {
            PortKind::Vm { socket } => self.sockets.port(&port.spec.name, socket)?,
            _ => None,
        };
        let vm = match passed {
            Some(passed) => VmPort::over(&self.identity, &port.spec, passed)?,
            None => VmPort::open(&self.identity, &port.spec)?,
        };
        if let Some(listener) = vm.listener() {
            self.poller.add(listener.as_fd(), Wake::Listener(id).token())?;
        }
        port.vm = Some(vm);
        Ok(())
    }

    /// Removes a port; a connected guest is told first, and has a moment to see it.
    pub(super) fn remove_port(&mut self, id: PortId, asked: Requester) {
        let Some(port) = self.ports.get_mut(&id) else { return };
        info!(port = port.spec.name, "removed");
        self.added.is_changed = true;
        let grace = if port.is_linked() { LINK_DOWN_GRACE } else { Duration::ZERO };
        port.leaves_at = Some(Instant::now() + grace);
        port.sockets = ForwardSockets::default();
        self.happens_at(id, front_ends::Event::Close);
        if let Some(vm) = self.vm(id) {
            vm.close();
        }
        let message = |order| ToData::Remove { order, port: id.0 };
        let order = Order::Remove { port: id, asked: asked.clone() };
        if !self.order_now(order, message, vec![]) {
            self.changed(&asked, false);
        }
        self.finish_leaving_ports();
    }

    /// When the next port goes for good.
    pub(super) fn next_leaving(&self) -> Option<Instant> {
        self.ports.values().filter_map(|port| port.leaves_at).min()
    }

    pub(super) fn finish_leaving_ports(&mut self) {
        let now = Instant::now();
        for id in self.ids_of(|port| port.leaves_at.is_some_and(|at| at <= now)) {
            self.finish_leaving(id);
        }
    }

    /// The port is gone, its id free.
    pub(super) fn finish_leaving(&mut self, id: PortId) {
        if self.ports.get(&id).is_some_and(Port::is_linked) {
            return self.drop_link(id, None); // it comes back here
        }
        if let Some(port) = self.ports.remove(&id) {
            // Another port that gets its number has done nothing yet, and has no stations.
            self.restarts.release(id.0);
            self.forget_stations(id);
            self.close_port(&port);
        }
    }

    /// Gives a port other options; its kind stays. `from_file`: as the file had it before.
    ///
    /// # Errors
    /// The operating system refuses; then nothing has changed.
    pub(super) fn change_port(
        &mut self,
        id: PortId,
        spec: PortSpec,
        from_file: Option<PortSpec>,
        mut asked: Requester,
    ) -> anyhow::Result<()> {
        self.choose_network(&spec);
        let told = spec_text::port(&spec, None, &self.identity)?;
        self.added.is_changed = true;
        let port = self.ports.get_mut(&id).context("the port is gone")?;
        let before = std::mem::replace(&mut port.spec, spec);
        if let Err(why) = Self::change_end(port, &before) {
            port.spec = before;
            return Err(why);
        }
        let now = &port.spec;
        if let Some(vm) = &mut port.vm {
            vm.mac = self.identity.mac_of(now);
        }
        let differs = |option: &&_| differs(option, &before, now);
        let late = OPTIONS.iter().filter(|option| option.effect == Effect::NextConnection);
        asked.at_next_connection = late.filter(differs).map(|option| option.key).collect();
        let is_led_elsewhere = now.nat.forwards != before.nat.forwards && asked.client.is_some();
        let syncs = |spec: &PortSpec| (spec.syncs_fdb, spec.syncs_neighbours);
        if now.mac != before.mac || is_led_elsewhere || syncs(now) != syncs(&before) {
            let spec = now.clone();
            asked.warnings = self.warnings_about(&spec);
            asked.warns(asked.warnings.iter().cloned());
        }
        if asked.client.is_none() && !asked.at_next_connection.is_empty() {
            let (late, name) = (asked.at_next_connection.join(" "), self.name(id));
            warn!(port = name, "for the next guest that connects: {late}");
            asked.warns([format!("port {name}: for the next guest that connects: {late}")]);
        }
        let message = |order| ToData::Change { order, port: id.0, spec: told.clone() };
        if self.ports.get(&id).is_some_and(|port| port.spec.is_link_up) {
            self.release(id);
        }
        let (before, from_file) = (Box::new(before), from_file.map(Box::new));
        let order = Order::Change { port: id, before, from_file, asked: asked.clone() };
        let sockets = self.ports.get(&id).filter(|port| port.failure.is_none());
        let sockets = sockets.map(|port| port.sockets.sent().collect());
        if !sockets.is_some_and(|sockets| self.order_now(order, message, sockets)) {
            self.close_other_sockets(id);
            self.changed(&asked, false);
        }
        Ok(())
    }

    /// The supervisor's part of a change.
    pub(super) fn change_end(port: &mut Port, before: &PortSpec) -> anyhow::Result<()> {
        let now = &port.spec;
        let is_router = now.kind == PortKind::Nat;
        if now.nat.ranges() != before.nat.ranges() {
            host_routes::check(now.nat.ranges())?;
        }
        if let Some(mtu) = now.mtu.filter(|_| now.mtu != before.mtu && !is_router) {
            port.tap.set_mtu(mtu)?;
        }
        port.sockets.follow(now, before)?;
        match &port.vm {
            // Its file may be gone, which hinders no other change.
            Some(vm) if now.socket_access() != before.socket_access() => vm.permit(now),
            _ => Ok(()),
        }
    }
}

fn differs(option: &crate::config::options::PortOption, one: &PortSpec, other: &PortSpec) -> bool {
    option.value_of(one) != option.value_of(other)
}
