//! All ports, and the lookups that every part needs.

pub mod admission;
pub mod forward_sockets;
pub mod guest_moves;
pub mod port;
pub mod tap_port;
pub mod taps;
pub mod vm_port;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, bail};
use ringway_foreign::{DeferredDrop, UntrustedFd};
use ringway_host::{EventFd, Poller};
use ringway_supervisor::keep::slot;
use ringway_supervisor::wire::{
    KNOWN_STATIONS_MAX, KnownStation, List, SEEN_IPS_MAX, SeenIp, ToData, ToSupervisor,
};
use ringway_switch::{PORTS_MAX, PortId};
use tracing::info;

use self::port::SupervisedPort;
use self::vm_port::VmPort;
use crate::config::error::no_port;
use crate::config::reload::RunningPort;
use crate::config::{LowOption, PortKind, PortSpec, RunConfig};
use crate::supervisor::front_ends::front_end::FrontEnd;
use crate::supervisor::front_ends::peer::UserNames;
use crate::supervisor::planes::order::Requester;
use crate::supervisor::planes::plane::Plane;
use crate::supervisor::planes::telling::NEWER;
use crate::supervisor::setup::os::Os;
use crate::supervisor::setup::source::PortSource;
use crate::supervisor::stores::stations::News;
use crate::units;

/// All ports by number, with what their sockets need.
pub struct Ports {
    pub all: BTreeMap<PortId, SupervisedPort>,
    pub poller: Rc<Poller>,
    pub bell: Arc<EventFd>,
    /// Closes what refused front-ends have sent.
    pub refused: DeferredDrop,
    pub user_names: UserNames,
    /// The number of the front-end that came last.
    pub last_link: u32,
}

impl Deref for Ports {
    type Target = BTreeMap<PortId, SupervisedPort>;

    fn deref(&self) -> &Self::Target {
        &self.all
    }
}

impl DerefMut for Ports {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.all
    }
}

impl Ports {
    /// None yet.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn new(os: &Os) -> anyhow::Result<Self> {
        Ok(Self {
            all: BTreeMap::new(),
            poller: os.poller.clone(),
            bell: os.bell.clone(),
            refused: DeferredDrop::start().context("starting a thread")?,
            user_names: UserNames::default(),
            last_link: 0,
        })
    }

    /// The ids of all ports, as they are now.
    pub fn ids(&self) -> Vec<PortId> {
        self.ids_of(|_| true)
    }

    pub fn ids_of(&self, is_it: impl Fn(&SupervisedPort) -> bool) -> Vec<PortId> {
        self.iter().filter(|(_, port)| is_it(port)).map(|(id, _)| *id).collect()
    }

    pub fn name(&self, id: PortId) -> &str {
        self.get(&id).map_or("", |port| &port.spec.name)
    }

    /// See [`Chatter::complain`].
    pub fn complain(&mut self, id: PortId, why: impl fmt::Display) {
        if let Some(port) = self.get_mut(&id) {
            port.chatter.complain(&port.spec.name, why);
        }
    }

    /// The port of that name, unless it is about to go.
    pub fn find(&self, name: &str) -> Option<PortId> {
        let mut ports = self.iter().filter(|(_, port)| !port.is_leaving());
        ports.find(|(_, port)| port.spec.name == name).map(|(&id, _)| id)
    }

    /// The first port of that name, also one that is about to go.
    pub fn named(&self, name: &str) -> Option<PortId> {
        self.iter().find(|(_, port)| port.spec.name == name).map(|(id, _)| *id)
    }

    /// The configured ports, without those that are about to go.
    pub fn specs(&self) -> impl Iterator<Item = &PortSpec> {
        self.values().filter(|port| !port.is_leaving()).map(|port| &port.spec)
    }

    pub fn known(&self, name: &str) -> Result<PortId, Vec<String>> {
        let names = || self.specs().map(|spec| spec.name.as_str());
        self.find(name).ok_or_else(|| vec![no_port(name, names())])
    }

    pub fn free_id(&self) -> Option<PortId> {
        let count = u16::try_from(PORTS_MAX).unwrap_or(u16::MAX);
        (0..count).map(PortId).find(|id| !self.contains_key(id))
    }

    /// Whether some port is a router.
    pub fn has_routers(&self) -> bool {
        self.specs().any(|spec| spec.kind == PortKind::Nat)
    }

    /// The port of a virtual machine.
    pub fn vm(&mut self, id: PortId) -> Option<&mut VmPort> {
        self.get_mut(&id)?.vm.as_mut()
    }

    pub fn front_end(&mut self, id: PortId) -> Option<&mut FrontEnd> {
        self.get_mut(&id)?.vm.as_mut()?.link.as_mut()
    }

    /// The port of a front-end, by its number.
    pub fn port_of(&self, number: u32) -> Option<PortId> {
        let is_it = |port: &SupervisedPort| port.link().is_some_and(|it| it.number == number);
        self.iter().find(|(_, port)| is_it(port)).map(|(&id, _)| id)
    }

    /// A front-end that sends its end of a connection to us, as any fd, could end without us ever
    /// seeing it: its port would be taken for ever.
    pub fn is_own_socket(&self, fd: &Arc<UntrustedFd>) -> bool {
        let mut vms = self.values().filter_map(|port| port.vm.as_ref());
        vms.any(|vm| vm.is_reached_by(fd.as_fd()))
    }

    /// A port is gone, and nothing of it is watched any more.
    pub fn close(&mut self, id: PortId) -> bool {
        let port = self.remove(&id);
        port.iter().for_each(|port| self.unwatch(port));
        port.is_some()
    }

    /// When the next port goes for good.
    pub fn next_leaving(&self) -> Option<Instant> {
        self.values().filter_map(|port| port.leaves_at).min()
    }

    pub fn any_linked(&self) -> bool {
        self.values().any(SupervisedPort::is_linked)
    }

    /// Whether it is of no use any more.
    pub fn is_over(&self) -> bool {
        let vms = self.values().filter(|port| !port.is_leaving());
        vms.filter_map(|port| port.vm.as_ref()).any(VmPort::is_over)
    }

    /// Ports as a file finds them that is read again.
    pub fn running(&self) -> Vec<RunningPort<'_>> {
        let running = self.iter().filter(|(_, port)| !port.is_leaving());
        running
            .map(|(id, port)| RunningPort {
                number: id.0,
                spec: &port.spec,
                from_file: port.from_file.as_ref(),
                has_failed: port.failure.is_some(),
            })
            .collect()
    }

    /// Ports as the file has them.
    pub fn of_file(&self) -> Vec<PortSpec> {
        let running = self.values().filter(|port| !port.is_leaving());
        running.filter_map(|port| port.from_file.clone()).collect()
    }

    /// Why a file without mistakes is not carried out all the same.
    pub fn objection_to(&self, config: &RunConfig) -> Option<String> {
        let has_any = self.values().any(|port| port.from_file.is_some());
        // It is probably being written at this moment, or the disk is full.
        if has_any && config.ports.is_empty() && !config.settings.no_ports {
            let advice = "write no_ports = true below [ringway] if all are to be removed";
            return Some(format!("there is no port in it any more: {advice}"));
        }
        self.conflict_with_added(&config.ports)
    }

    /// Ports that were added while we run, and are not in the file, may be in its way.
    fn conflict_with_added(&self, ports: &[PortSpec]) -> Option<String> {
        let running = self.values().filter(|port| !port.is_leaving());
        let is_in_file =
            |port: &&SupervisedPort| ports.iter().any(|spec| spec.name == port.spec.name);
        let added = running.filter(|port| port.from_file.is_none() && !is_in_file(port));
        let mut added = added.map(|port| &port.spec);
        added.find_map(|added| {
            let (_, wrong, advice) = ports.iter().find_map(|spec| spec.conflict_with(added))?;
            Some(format!("{wrong}: {advice}"))
        })
    }

    /// That port's options with some of them changed.
    ///
    /// # Errors
    /// They cannot be so, or hinder another port.
    pub fn changed(&self, id: PortId, options: &[LowOption]) -> Result<PortSpec, Vec<String>> {
        let mut spec = self.get(&id).map(|port| port.spec.clone()).ok_or_else(Vec::new)?;
        let errors = spec.change(options);
        if !errors.is_empty() {
            return Err(errors.iter().map(ToString::to_string).collect());
        }
        let mut others = self.specs().filter(|other| other.name != spec.name);
        if let Some((_, wrong, advice)) = others.find_map(|other| spec.conflict_with(other)) {
            return Err(vec![format!("port {:?}: {wrong}: {advice}", spec.name)]);
        }
        Ok(spec)
    }

    /// Ports that were added and are in the file now are the file's from now on. `true`: some are.
    pub fn adopt(&mut self, specs: &[PortSpec], asked: &Requester) -> bool {
        let mut is_any = false;
        let running = self.values_mut().filter(|port| !port.is_leaving());
        for port in running.filter(|port| port.source != PortSource::Configuration) {
            let name = port.spec.name.clone();
            let Some(spec) = specs.iter().find(|spec| spec.name == name) else { continue };
            (port.source, is_any) = (PortSource::Configuration, true);
            info!(port = name, "it was added, and is the file's now");
            if port.spec.kind.is_same_place(&spec.kind) {
                // However it is spelled.
                port.spec.kind = spec.kind.clone();
            }
            if port.spec != *spec {
                asked.warns([format!("port {name}: it was added, and is as the file says now")]);
            }
            // As it is: what the file says otherwise is carried out next, or tried the next time.
            port.from_file = Some(port.spec.clone());
        }
        is_any
    }

    /// Whether enough ports of the configuration could be opened.
    ///
    /// # Errors
    /// None, or one of them where all are needed.
    pub fn check(&self, needs_all: bool) -> anyhow::Result<()> {
        let configured = |port: &&SupervisedPort| port.source == PortSource::Configuration;
        let ports = || self.values().filter(configured);
        let failed = ports().filter(|port| port.failure.is_some()).count();
        if failed > 0 && failed == ports().count() {
            bail!("no port could be opened");
        }
        if failed > 0 && needs_all {
            let ports = units::counted(failed as u64, "port");
            bail!("{ports} could not be opened (--keep-going serves the others)");
        }
        Ok(())
    }

    /// That sockets can be connected to, and how many ports work, if not all do.
    pub fn ready(&self) -> String {
        let failed = self.values().filter(|port| port.failure.is_some()).count();
        match (failed, self.len()) {
            (0, _) => "ready".to_owned(),
            (failed, all) => format!("ready: {} of {all} ports", all - failed),
        }
    }

    /// The IP addresses that are used behind a port, as far as was seen.
    pub fn see_ips(&mut self, id: PortId, ips: List<SeenIp, SEEN_IPS_MAX>) {
        if let Some(port) = self.get_mut(&id) {
            port.seen_ips = ips.into_inner();
        }
    }

    /// A data plane serves that has seen nothing yet. `is_told`: it says which guests run.
    pub fn forget_seen_ips(&mut self, is_told: bool) {
        self.values_mut().for_each(|port| port.seen_ips.clear());
        let vms = self.values_mut().filter_map(|port| port.vm.as_mut());
        vms.filter(|_| !is_told).for_each(|vm| vm.moves.is_stopped = false);
    }

    /// A front-end's guest runs, or has stopped.
    ///
    /// # Errors
    /// The data plane says something else.
    pub fn hear_of_guest(&mut self, message: &ToSupervisor) -> anyhow::Result<()> {
        let (&ToSupervisor::Runs { link, .. } | &ToSupervisor::Stopped { link, .. }) = message
        else {
            bail!("it says that in another way")
        };
        // It may have gone meanwhile.
        let Some(port) = self.port_of(link).and_then(|id| self.get_mut(&id)) else { return Ok(()) };
        let Some(vm) = &mut port.vm else { return Ok(()) };
        match *message {
            ToSupervisor::Runs { goes_on_at, .. } => {
                if let Some(at) = vm.moves.runs(goes_on_at) {
                    info!(port = port.spec.name, "guest came, goes on at {at:#x}");
                }
            }
            ToSupervisor::Stopped { is_migrating, .. } => vm.moves.stopped(is_migrating),
            _ => {}
        }
        Ok(())
    }

    /// A port whose front-end has told a log in which written pages are to be marked.
    pub fn logging(&self) -> Option<&SupervisedPort> {
        let has_log =
            |port: &&SupervisedPort| port.link().is_some_and(|link| link.kept.holds(slot::LOG));
        self.values().find(has_log)
    }

    /// A router knows something else of its stations.
    pub fn know(&mut self, router: u16, stations: List<KnownStation, KNOWN_STATIONS_MAX>) {
        if let Some(port) = self.get_mut(&PortId(router)) {
            port.stations.follow(stations.into_inner());
        }
    }

    /// That port is gone, with what routers know of the stations behind it.
    pub fn forget_stations(&mut self, gone: PortId) {
        for stations in self.values_mut().map(|port| &mut port.stations) {
            if stations.list.iter().any(|known| known.port == gone.0) {
                stations.list.retain(|known| known.port != gone.0);
                stations.news = News::Leases;
            }
        }
    }

    /// A data plane goes on with what is known, unless it is too old to hear of that.
    pub fn tell_of_stations(&self, plane: &mut Plane) {
        if plane.socket.speaks < NEWER {
            return;
        }
        for (id, port) in self.iter().filter(|(_, port)| !port.stations.list.is_empty()) {
            let stations = List::new(port.stations.list.clone()).unwrap_or_default();
            plane.tell(&ToData::Stations { port: id.0, stations }, vec![]);
        }
    }
}
