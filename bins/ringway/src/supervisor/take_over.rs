//! A supervisor that goes on where another one has written down how far it was.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use ringway_supervisor::front_ends;
use ringway_supervisor::restart::Restarts;
use ringway_supervisor::succession::Event;
use ringway_supervisor::wire::{Bytes, SeenIp};
use ringway_switch::PortId;
use ringway_vhost_user::Connection;
use rustix::process::{Signal, pidfd_send_signal};
use tracing::warn;

use super::activation::Sockets;
use super::control_client::ClientId;
use super::control_socket::ControlSocket;
use super::fd_store::{self, FdStore, InheritedFds};
use super::forward_sockets::ForwardSockets;
use super::front_end::FrontEnd;
use super::journal::Watched;
use super::peer::Peer;
use super::plane::{Plane, has_ended_within};
use super::planes::Planes;
use super::ports::Port;
use super::record::{
    AskedRecord, FdAt, LinkRecord, PlaneRecord, PortRecord, RecordFds, StoredRecord, Whole,
};
use super::source::Source;
use super::stations::Stations;
use super::tap_port::TapState;
use super::vm_port::VmPort;
use super::{Supervisor, replace};
use crate::control::{PROTOCOL_VERSION, UpgradeReply, reply_line};
use crate::identity::Identity;
use crate::sandbox::Sandbox;

/// How long the data plane of a supervisor that was killed may take to end by itself, and then.
const ENDS_WITHIN: Duration = Duration::from_secs(1);
const KILLED_WITHIN: Duration = Duration::from_secs(5);

/// All that another supervisor has written down, checked.
pub struct TakenOver {
    whole: Whole,
    fds: RecordFds,
    links: Vec<StoredRecord>,
}

impl TakenOver {
    /// # Errors
    /// It says what cannot be, or is of another version.
    pub(super) fn new(found: Vec<StoredRecord>) -> anyhow::Result<Self> {
        let mut found = found.into_iter();
        let StoredRecord { text, fds } = found.next().context("the record is empty")?;
        Ok(Self { whole: Whole::read(&text)?, fds, links: found.collect() })
    }

    /// The records that a service manager has kept for this one, if any, and sockets on which
    /// it listens for this one.
    ///
    /// # Errors
    /// The records that were kept cannot be read, or make no sense.
    pub fn from_service_manager() -> (anyhow::Result<Option<Self>>, Sockets) {
        let InheritedFds { kept, sockets } = fd_store::passed();
        (kept.and_then(Self::of_kept), Sockets::new(sockets))
    }

    fn of_kept((found, names): (Vec<StoredRecord>, Vec<String>)) -> anyhow::Result<Option<Self>> {
        if found.is_empty() {
            return Ok(None);
        }
        let mut taken = Self::new(found)?;
        taken.whole.stored = names;
        Ok(Some(taken))
    }

    /// Whether that supervisor was in its sandbox.
    pub fn is_in_sandbox(&self) -> bool {
        self.whole.settings().is_ok_and(|settings| settings.sandbox)
    }
}

/// The one that was there. One that cannot be used, such as one of another layout, is begun anew
/// unless a data plane has it.
fn journal(whole: &Whole, fds: &mut RecordFds) -> anyhow::Result<Watched> {
    let found = whole.journal.map(|at| fds.take(at)).transpose()?;
    let is_ours = whole.plane.is_some() && whole.journal_layout == Some(Watched::LAYOUT);
    let open = if is_ours { Watched::resume } else { Watched::of };
    match found.map(|file| open(file, whole.workers)) {
        Some(Err(why)) if whole.plane.is_none() => {
            warn!("{why:#}: begun anew: rings go on where they show it themselves");
            Watched::create(whole.workers)
        }
        Some(journal) => journal,
        None => Watched::create(whole.workers),
    }
}

impl Supervisor {
    /// Goes on from there. Without a data plane that goes on one is started, and gets everything.
    ///
    /// # Errors
    /// The operating system refuses, or not everything came along.
    pub fn go_on(taken: TakenOver, sandbox: Sandbox) -> anyhow::Result<Self> {
        let TakenOver { mut whole, mut fds, links } = taken;
        let settings = whole.settings()?;
        let control = ControlSocket::resume(&whole.control, &settings, &mut fds)?;
        let identity = Identity::of_parts(whole.machine.clone(), whole.instance()?);
        let journal = journal(&whole, &mut fds)?;
        let settings = (settings, whole.workers);
        let given = (sandbox, whole.file.take());
        let mut supervisor = Self::new(settings, identity, (control, journal), given)?;
        (supervisor.started_ms, supervisor.over) = (whole.started_ms, whole.over());
        let quarantined = whole.quarantined.iter().copied();
        supervisor.restarts = Restarts::with_quarantined(quarantined, Instant::now());
        supervisor.counts.deaths = whole.counts.deaths;
        supervisor.counts.upgrades = whole.counts.upgrades;
        supervisor.counts.forbidden_call = whole.counts.forbidden_call;
        supervisor.next_order = whole.next.order;
        (supervisor.next_ask, supervisor.next_link) = (whole.next.ask, whole.next.link);
        // Routers are told again.
        supervisor.resolvers = crate::resolvers::Listed::default();
        for port in &whole.ports {
            supervisor.resume_port(port, &mut fds)?;
        }
        for link in links {
            supervisor.resume_link(link)?;
        }
        supervisor.planes = Planes::new(whole.next.plane);
        supervisor.fd_store = FdStore::of_environment(std::mem::take(&mut whole.stored));
        match whole.plane.take() {
            Some(plane) => supervisor.resume_plane(&plane, &mut fds)?,
            None => {
                supervisor.wait_for_the_end_of(whole.ended, &mut fds)?;
                supervisor.journal.renew();
                supervisor.happens(Event::Begin);
                supervisor.wait_for_the_first()?;
            }
        }
        supervisor.resume_clients(&whole, &mut fds);
        if let Some([stop, reload]) = whole.caught {
            replace::send_again(fds.take(stop)?, Signal::TERM)?;
            replace::send_again(fds.take(reload)?, Signal::HUP)?;
        }
        for id in supervisor.ids() {
            supervisor.happens_at(id, front_ends::Event::Hold(false));
        }
        supervisor.recall_unopened();
        supervisor.answer_upgrade(whole.asked);
        Ok(supervisor)
    }

    fn resume_port(&mut self, record: &PortRecord, fds: &mut RecordFds) -> anyhow::Result<()> {
        let mut port = Port::new(record.spec()?, record.as_in_file()?);
        let is_quarantined = self.restarts.quarantined().any(|port| port == record.id);
        (port.failure, port.is_served) = (record.failure.clone(), record.is_served);
        port.replayed = record.replayed;
        // Of a file all that an older supervisor had beside it was added.
        let is_added = self.file.is_some() && port.from_file.is_none();
        let source = if is_added { Source::Added } else { Source::Configuration };
        port.source = record.source.unwrap_or(source);
        let seen = record.seen_ips.iter();
        port.seen_ips = seen.map(|&(vlan, address, ip)| SeenIp { vlan, address, ip }).collect();
        let network = record.network.as_ref().and_then(|text| text.parse().ok());
        if let Some(network) = network {
            self.identity.choose_network(&port.spec.name, network);
        }
        self.choose_network(&port.spec);
        port.stations = Stations::of_record(&record.stations);
        if let Some(tap) = &record.tap {
            port.tap = TapState::resume(tap, fds)?;
        }
        port.sockets = ForwardSockets::resume(&record.sockets, fds)?;
        port.tap.reopen_at = record.reopens.then(Instant::now);
        if let Some(vm) = record.vm.as_ref() {
            port.vm = Some(VmPort::resume(&self.identity, &port.spec, vm, fds)?);
        }
        let is_new = self.ports.insert(PortId(record.id), port).is_none();
        ensure!(is_new, "port {} is there twice", record.id);
        if is_quarantined {
            let why = record.vm.as_ref().and_then(|vm| vm.last_offence.clone());
            let why = why.unwrap_or_default();
            self.happens_at(PortId(record.id), front_ends::Event::Quarantine { why });
        }
        Ok(())
    }

    fn resume_link(&mut self, found: StoredRecord) -> anyhow::Result<()> {
        let StoredRecord { text, mut fds } = found;
        let record = LinkRecord::read(&text)?;
        let port = self.ports.get_mut(&PortId(record.port));
        let vm = port.and_then(|port| port.vm.as_mut()).context("a front-end without a port")?;
        let closer = vm.closing.closer.clone();
        let socket = closer.keep(fds.take(record.connection)?.into());
        let connection = Connection::new(socket)?.closed_by(&closer).without_waiting();
        let peer = Peer::of(&connection, &mut self.user_names);
        let spec = Bytes::new(record.spec.clone().into_bytes()).context("a long port")?;
        let (id, number) = (PortId(record.port), record.number);
        let kept = record.kept(|at| Ok(Arc::new(closer.keep(fds.take(at)?))))?;
        let mut link = FrontEnd::new(number, (connection, peer), spec);
        link.kept = kept;
        vm.link = Some(link);
        self.next_link = self.next_link.max(number);
        self.happens_at(id, front_ends::Event::Linked);
        self.look_for_room(id);
        self.note_request(id);
        Ok(())
    }

    /// A data plane ends with its supervisor. Two of them must never have the same rings.
    fn wait_for_the_end_of(&self, ended: Option<FdAt>, fds: &mut RecordFds) -> anyhow::Result<()> {
        let Some(process) = ended.map(|at| fds.take(at)).transpose()? else { return Ok(()) };
        for (signal, at_most) in [(None, ENDS_WITHIN), (Some(Signal::KILL), KILLED_WITHIN)] {
            if let Some(signal) = signal {
                let _ = pidfd_send_signal(&process, signal);
            }
            if has_ended_within(&process, at_most)? {
                return Ok(());
            }
        }
        bail!("the data plane of the supervisor before does not end")
    }

    fn resume_plane(&mut self, record: &PlaneRecord, fds: &mut RecordFds) -> anyhow::Result<()> {
        let channel = fds.take(record.channel)?;
        let plane = Plane::resume(record, channel)?;
        self.watch_plane(record.number, &plane)?;
        self.planes.resume(record.number, plane);
        Ok(())
    }

    /// A client that cannot be kept is disconnected: it asks again.
    fn resume_clients(&mut self, whole: &Whole, fds: &mut RecordFds) {
        for record in &whole.clients {
            let stream = fds.take(record.stream).map(Into::into);
            let resumed = stream.and_then(|stream| self.resume_client(record, stream));
            if let Err(why) = resumed {
                warn!("control client: {why:#}");
            }
        }
        self.control.resume_serial(whole.next.client);
    }

    fn answer_upgrade(&mut self, asked: Option<AskedRecord>) {
        let Some(AskedRecord { slot, serial, stall_us }) = asked else { return };
        let pid = self.planes.current().map(Plane::pid);
        let reply = UpgradeReply { version: PROTOCOL_VERSION, ok: true, pid, stall_us };
        self.answer_client(ClientId { slot, serial }, &reply_line(&reply));
    }
}
