//! Records of this supervisor, with which another one goes on where it is.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use anyhow::Context;
use ringway_nat::Prefix4;
use ringway_supervisor::front_ends::History;
use ringway_switch::PortId;

use super::fd_store::FdStore;
use crate::supervisor::Supervisor;
use crate::supervisor::clients::control_socket::ControlSocket;
use crate::supervisor::front_ends::front_end::FrontEnd;
use crate::supervisor::planes::{self, Planes};
use crate::supervisor::ports::Ports;
use crate::supervisor::ports::port::SupervisedPort;
use crate::supervisor::processes::journal::Watched;
use crate::supervisor::record::{
    AskedRecord, Common, CountsRecord, Fds, LINK, LinkHead, LinkRecord, ListenerRecord,
    NewcomerRecord, Numbers, PortRecord, Record, VmRecord, WHOLE, Whole,
};
use crate::supervisor::setup::Setup;

/// All that is written down, as it is at this moment.
pub struct View<'a> {
    ports: &'a Ports,
    planes: &'a Planes,
    setup: &'a Setup,
    control: &'a ControlSocket,
    stored: Vec<String>,
    caught: [&'a UnixStream; 2],
    last_ask: u32,
}

impl<'a> View<'a> {
    pub fn of(all: &'a Supervisor) -> Self {
        let Supervisor { ports, planes, setup, control, .. } = all;
        let (stored, caught) = (all.stores.fds.names(), all.os.caught());
        Self { ports, planes, setup, control, stored, caught, last_ask: all.questions.last }
    }

    /// Everything: what is of no front-end first.
    ///
    /// # Errors
    /// A path is no text.
    pub fn records(self, asked: Option<AskedRecord>) -> anyhow::Result<Vec<Record<'a>>> {
        let mut fds = Fds::default();
        let mut whole = self.whole(&mut fds)?;
        whole.next = Numbers {
            plane: self.planes.succession.last(),
            order: self.planes.last_order,
            ask: self.last_ask,
            link: self.ports.last_link,
            client: self.control.serial(),
        };
        whole.clients = self.control.client_records(&mut fds);
        whole.plane = self.planes.record(&mut fds);
        whole.stored = self.stored.clone();
        whole.asked = asked;
        whole.caught = Some(self.caught.map(|it| fds.put(it.as_fd())));
        let mut all = vec![fds.with(&whole)?];
        for (id, port) in self.ports.iter() {
            if let Some(link) = port.link() {
                all.push(link_record(id.0, link)?);
            }
        }
        Ok(all)
    }

    /// Everything of it is kept by the service manager, if it can; for a supervisor that goes on
    /// when this process was killed, with another data plane.
    pub fn store(&self, store: &mut FdStore) {
        let mut keys = vec![WHOLE.to_owned()];
        match self.whole_to_store() {
            Ok(record) => store.keep(WHOLE, record),
            Err(why) => tracing::warn!("not kept: {why:#}"),
        }
        for (id, port) in self.ports.iter() {
            let Some(link) = port.link() else { continue };
            let key = format!("{LINK}{}", link.number);
            if let Ok(record) = link_record(id.0, link) {
                store.keep(&key, record);
            }
            keys.push(key);
        }
        store.keep_only(&keys);
    }

    fn whole_to_store(&self) -> anyhow::Result<Record<'a>> {
        let mut fds = Fds::default();
        let mut whole = self.whole(&mut fds)?;
        whole.next.link = self.ports.last_link;
        whole.ended = self.planes.current().map(|plane| fds.put(plane.process.pidfd.as_fd()));
        fds.with(&whole)
    }

    fn whole(&self, fds: &mut Fds<'a>) -> anyhow::Result<Whole> {
        self.setup.settings.control.to_str().context("the control socket's path is no text")?;
        let identity = self.setup.identity.parts();
        let common = Common { settings: &self.setup.settings, over: &self.setup.over, identity };
        let mut whole = Whole::new(&common, self.control.record(fds));
        whole.started_ms = self.setup.started_ms;
        if self.ports.logging().is_some() {
            whole.needs_log();
        }
        (whole.workers, whole.file) = (self.setup.workers, self.setup.file.clone());
        let planes::PlaneCounts { deaths, upgrades, forbidden_call, .. } = self.planes.counts;
        whole.counts = CountsRecord { deaths, upgrades, forbidden_call };
        whole.quarantined = self.planes.restarts.quarantined().collect();
        whole.journal = Some(fds.put(self.planes.journal.file().as_fd()));
        whole.journal_layout = Some(Watched::LAYOUT);
        let ports = self.ports.iter().filter(|(_, port)| !port.is_leaving());
        whole.ports = ports
            .map(|(id, port)| {
                let network = self.setup.identity.network_of(&port.spec.name);
                port_record(id.0, port, network, fds)
            })
            .collect();
        Ok(whole)
    }
}

/// The record that the service manager keeps of one front-end.
pub fn store_link(id: PortId, ports: &Ports, store: &mut FdStore) {
    if !store.has_store() {
        return;
    }
    if let Some(link) = ports.get(&id).and_then(SupervisedPort::link)
        && let Ok(record) = link_record(id.0, link)
    {
        store.keep(&format!("{LINK}{}", link.number), record);
    }
}

fn port_record<'a>(
    id: u16,
    port: &'a SupervisedPort,
    network: Option<Prefix4>,
    fds: &mut Fds<'a>,
) -> PortRecord {
    let mut record = PortRecord::new(id, &port.spec, port.from_file.as_ref());
    record.network = network.map(|network| network.to_string());
    (record.failure, record.is_served) = (port.failure.clone(), port.is_served);
    (record.replayed, record.source) = (port.replayed, Some(port.source));
    record.seen_ips = port.seen_ips.iter().map(|seen| (seen.vlan, seen.address, seen.ip)).collect();
    record.stations = port.stations.record();
    record.tap = port.tap.record(fds);
    record.sockets = port.sockets.record(fds);
    record.reopens = port.tap.reopen_at.is_some();
    record.vm = port.vm.as_ref().map(|vm| {
        let listener = vm.listener().map(|listener| ListenerRecord::of(listener, fds));
        let History { last_link, last_offence, refused } = vm.admission.history().clone();
        let next = vm.next().and_then(|next| NewcomerRecord::of(&next.connection, fds));
        let moves = vm.moves.clone();
        VmRecord { listener, last_link, last_offence, refused, next, moves }
    });
    record
}

fn link_record(port: u16, link: &FrontEnd) -> anyhow::Result<Record<'_>> {
    let mut fds = Fds::default();
    let connection = fds.put(link.connection.as_fd());
    let spec = link.spec.as_slice();
    let head = LinkHead { number: link.number, port, connection };
    let record = LinkRecord::of(head, spec, &link.kept, |fd| fds.put(fd.as_fd()));
    fds.with(&record)
}
