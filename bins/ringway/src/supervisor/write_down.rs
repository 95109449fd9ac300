//! Records of this supervisor, with which another one goes on where it is.

use std::os::fd::AsFd;
use std::time::Duration;

use anyhow::Context;
use ringway_nat::Prefix4;
use ringway_supervisor::front_ends::History;
use ringway_switch::PortId;
use rustix::time::{ClockId, clock_gettime};

use super::Supervisor;
use super::front_end::FrontEnd;
use super::journal::Watched;
use super::planes;
use super::ports::Port;
use super::record::{
    AskedRecord, Common, Counts, Fds, LINK, LinkRecord, ListenerRecord, Numbers, PortRecord,
    Record, VmRecord, WHOLE, Whole,
};

/// By the clock that counts from the start of the machine.
pub(super) fn since_boot() -> Duration {
    Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap_or_default()
}

impl Supervisor {
    /// Everything: what is of no front-end first.
    ///
    /// # Errors
    /// A path is no text.
    pub(super) fn records(&self, asked: Option<AskedRecord>) -> anyhow::Result<Vec<Record<'_>>> {
        let mut fds = Fds::default();
        let mut whole = self.whole(&mut fds)?;
        whole.next = Numbers {
            plane: self.planes.succession.last(),
            order: self.next_order,
            ask: self.next_ask,
            link: self.next_link,
            client: self.control.serial(),
        };
        whole.clients = self.control.client_records(&mut fds);
        whole.plane = self.planes.record(&mut fds);
        whole.stored = self.fd_store.names();
        whole.asked = asked;
        whole.caught = Some([&self.signals, &self.reload_signals].map(|it| fds.put(it.as_fd())));
        let mut all = vec![fds.with(&whole)?];
        for (id, port) in &self.ports {
            if let Some(link) = port.link() {
                all.push(link_record(id.0, link)?);
            }
        }
        Ok(all)
    }

    /// Everything of it is kept by the service manager, if it can; for a supervisor that goes on
    /// when this process was killed, with another data plane.
    pub(super) fn store(&mut self) {
        if !self.fd_store.has_store() {
            return;
        }
        let mut store = std::mem::take(&mut self.fd_store);
        let mut keys = vec![WHOLE.to_owned()];
        match self.whole_to_store() {
            Ok(record) => store.keep(WHOLE, record),
            Err(why) => tracing::warn!("not kept: {why:#}"),
        }
        for (id, port) in &self.ports {
            let Some(link) = port.link() else { continue };
            let key = format!("{LINK}{}", link.number);
            if let Ok(record) = link_record(id.0, link) {
                store.keep(&key, record);
            }
            keys.push(key);
        }
        store.keep_only(&keys);
        self.fd_store = store;
    }

    fn whole_to_store(&self) -> anyhow::Result<Record<'_>> {
        let mut fds = Fds::default();
        let mut whole = self.whole(&mut fds)?;
        whole.next.link = self.next_link;
        whole.ended = self.planes.current().map(|plane| fds.put(plane.pidfd.as_fd()));
        fds.with(&whole)
    }

    /// The same of one front-end alone.
    pub(super) fn store_link(&mut self, id: PortId) {
        if !self.fd_store.has_store() {
            return;
        }
        let mut store = std::mem::take(&mut self.fd_store);
        let link = self.ports.get(&id).and_then(Port::link);
        if let Some(link) = link
            && let Ok(record) = link_record(id.0, link)
        {
            store.keep(&format!("{LINK}{}", link.number), record);
        }
        self.fd_store = store;
    }

    fn whole<'a>(&'a self, fds: &mut Fds<'a>) -> anyhow::Result<Whole> {
        self.settings.control.to_str().context("the control socket's path is no text")?;
        let identity = self.identity.parts();
        let common = Common { settings: &self.settings, over: &self.over, identity };
        let mut whole = Whole::new(&common, self.control.record(fds));
        whole.started_ms = self.started_ms;
        (whole.workers, whole.file) = (self.workers, self.file.clone());
        let planes::Counts { deaths, upgrades, forbidden_call, .. } = self.counts;
        whole.counts = Counts { deaths, upgrades, forbidden_call };
        whole.quarantined = self.restarts.quarantined().collect();
        whole.journal = Some(fds.put(self.journal.file().as_fd()));
        whole.journal_layout = Some(Watched::LAYOUT);
        let ports = self.ports.iter().filter(|(_, port)| !port.is_leaving());
        whole.ports = ports
            .map(|(id, port)| {
                let network = self.identity.network_of(&port.spec.name);
                port_record(id.0, port, network, fds)
            })
            .collect();
        Ok(whole)
    }
}

fn port_record<'a>(
    id: u16,
    port: &'a Port,
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
        VmRecord { listener, last_link, last_offence, refused }
    });
    record
}

fn link_record(port: u16, link: &FrontEnd) -> anyhow::Result<Record<'_>> {
    let mut fds = Fds::default();
    let connection = fds.put(link.connection.as_fd());
    let spec = link.spec.as_slice();
    let is_at = (link.number, port, connection);
    let record = LinkRecord::of(is_at, spec, &link.kept, |fd| fds.put(fd.as_fd()));
    fds.with(&record)
}
