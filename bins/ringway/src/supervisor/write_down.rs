//! What this supervisor would need to be told to go on where it is, in records.

use std::os::fd::AsFd;
use std::time::Duration;

use anyhow::Context;
use rustix::time::{ClockId, clock_gettime};

use super::Supervisor;
use super::front_end::FrontEnd;
use super::ports::Port;
use super::record::{
    AskedRecord, Common, Counts, Fds, LinkRecord, ListenerRecord, Numbers, PortRecord, Record,
    VmRecord, Whole,
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
        let mut all = vec![self.whole(asked)?];
        for (id, port) in &self.ports {
            if let Some(link) = port.vm.as_ref().and_then(|vm| vm.link.as_ref()) {
                all.push(link_record(id.0, link)?);
            }
        }
        Ok(all)
    }

    fn whole(&self, asked: Option<AskedRecord>) -> anyhow::Result<Record<'_>> {
        let mut fds = Fds::default();
        self.settings.control.to_str().context("the control socket's path is no text")?;
        let identity = self.identity.parts();
        let common = Common { settings: &self.settings, over: &self.over, identity };
        let mut whole = Whole::new(&common, self.control.record(&mut fds));
        whole.started_ms = self.started_ms;
        (whole.workers, whole.file) = (self.workers, self.file.clone());
        whole.next = Numbers {
            plane: self.planes.next,
            order: self.next_order,
            ask: self.next_ask,
            link: self.next_link,
            client: self.control.serial(),
        };
        whole.counts = Counts { deaths: self.counts.deaths, upgrades: self.counts.upgrades };
        whole.quarantined = self.restarts.quarantined().collect();
        whole.clients = self.control.client_records(&mut fds);
        whole.plane = self.planes.record(&mut fds);
        whole.journal = Some(fds.put(self.journal.file().as_fd()));
        whole.asked = asked;
        let ports = self.ports.iter().filter(|(_, port)| !port.is_leaving());
        whole.ports = ports.map(|(id, port)| port_record(id.0, port, &mut fds)).collect();
        fds.with(&whole)
    }
}

fn port_record<'a>(id: u16, port: &'a Port, fds: &mut Fds<'a>) -> PortRecord {
    let mut record = PortRecord::new(id, &port.spec, port.from_file.as_ref());
    (record.failure, record.is_served) = (port.failure.clone(), port.is_served);
    record.tap = port.tap.record(fds);
    record.reopens = port.tap.reopen_at.is_some();
    record.vm = port.vm.as_ref().map(|vm| VmRecord {
        listener: vm.listener().map(|listener| ListenerRecord::of(listener, fds)),
        last_link: vm.last_link,
        last_offence: vm.last_offence.clone(),
        refused: vm.refused,
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
