//! A supervisor that goes on where another one has written down how far it was.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use ringway_host::Poller;
use ringway_supervisor::front_ends;
use ringway_supervisor::restart::Restarts;
use ringway_supervisor::succession::{Event, Succession};
use ringway_supervisor::wire::{Bytes, SeenIp};
use ringway_switch::PortId;
use ringway_vhost_user::Connection;
use rustix::process::{Signal, pidfd_send_signal};
use tracing::warn;

use super::journal::Watched;
use super::replace;
use crate::control::{PROTOCOL_VERSION, UpgradeReply, reply_line};
use crate::identity::Identity;
use crate::sandbox::Sandbox;
use crate::supervisor::Supervisor;
use crate::supervisor::clients::control_client::ClientId;
use crate::supervisor::clients::control_socket::ControlSocket;
use crate::supervisor::front_ends::front_end::FrontEnd;
use crate::supervisor::front_ends::peer::Peer;
use crate::supervisor::planes::Planes;
use crate::supervisor::planes::plane::{Plane, has_ended_within};
use crate::supervisor::ports::forward_sockets::ForwardSockets;
use crate::supervisor::ports::port::SupervisedPort;
use crate::supervisor::ports::tap_port::TapState;
use crate::supervisor::ports::vm_port::VmPort;
use crate::supervisor::record::{
    AskedRecord, FdAt, LinkRecord, PortRecord, RecordFds, StoredRecord, Whole,
};
use crate::supervisor::setup::Setup;
use crate::supervisor::setup::activation::Sockets;
use crate::supervisor::setup::source::PortSource;
use crate::supervisor::setup::surroundings::Surroundings;
use crate::supervisor::stores::fd_store::{self, FdStore, InheritedFds};
use crate::supervisor::stores::stations::Stations;

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
    pub fn new(found: Vec<StoredRecord>) -> anyhow::Result<Self> {
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
        (kept.and_then(|(found, names)| Self::of_kept(found, names)), Sockets::new(sockets))
    }

    fn of_kept(found: Vec<StoredRecord>, names: Vec<String>) -> anyhow::Result<Option<Self>> {
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

impl TakenOver {
    /// Goes on from there. Without a data plane that goes on one is started, and gets everything.
    ///
    /// # Errors
    /// The operating system refuses, or not everything came along.
    pub fn go_on(self, sandbox: Sandbox) -> anyhow::Result<Supervisor> {
        let Self { mut whole, mut fds, links } = self;
        let settings = whole.settings()?;
        let poller = Rc::new(Poller::new().context("epoll")?);
        let control = ControlSocket::resume(&whole.control, &settings, &mut fds, &poller)?;
        let setup = Setup {
            settings,
            workers: whole.workers,
            identity: Identity::of_parts(whole.machine.clone(), whole.instance()?),
            file: whole.file.take(),
            over: whole.over(),
            started_ms: whole.started_ms,
            sandbox,
            sockets: Sockets::default(),
        };
        let planes = resumed_planes(&whole, &mut fds, &poller)?;
        let mut supervisor = Supervisor::new(setup, poller, control, planes)?;
        supervisor.stores.fds = FdStore::of_environment(std::mem::take(&mut whole.stored));
        supervisor.questions.last = whole.next.ask;
        supervisor.ports.last_link = whole.next.link;
        // Routers are told again.
        supervisor.surroundings = Surroundings::new(false);
        for port in &whole.ports {
            resume_port(&mut supervisor, port, &mut fds)?;
        }
        for link in links {
            resume_link(&mut supervisor, link)?;
        }
        match whole.plane.take() {
            Some(plane) => {
                let channel = fds.take(plane.channel)?;
                supervisor.planes.resume(plane.number, Plane::resume(&plane, channel)?)?;
            }
            None => {
                wait_for_the_end_of(whole.ended, &mut fds)?;
                supervisor.planes.journal.renew();
                supervisor.happens(Event::Begin);
                supervisor.wait_for_the_first()?;
            }
        }
        supervisor.control.resume_clients(&whole.clients, whole.next.client, &mut fds);
        if let Some([stop, reload]) = whole.caught {
            replace::send_again(fds.take(stop)?, Signal::TERM)?;
            replace::send_again(fds.take(reload)?, Signal::HUP)?;
        }
        for id in supervisor.ports.ids() {
            supervisor.happens_at(id, front_ends::Event::Hold(false));
            if supervisor.ports.find_peer_of_next(id) {
                supervisor.happens_at(id, front_ends::Event::Connected);
            }
        }
        supervisor.stores.added.recall_unopened(&supervisor.ports);
        if let Some(AskedRecord { slot, serial, stall_us }) = whole.asked {
            let pid = supervisor.planes.current().map(Plane::pid);
            let reply = UpgradeReply { version: PROTOCOL_VERSION, ok: true, pid, stall_us };
            supervisor.control.answer_client(ClientId { slot, serial }, &reply_line(&reply));
        }
        Ok(supervisor)
    }
}

/// Data planes, as far as they do not need ports.
fn resumed_planes(
    whole: &Whole,
    fds: &mut RecordFds,
    poller: &Rc<Poller>,
) -> anyhow::Result<Planes> {
    let mut planes = Planes::new(poller.clone(), journal(whole, fds)?);
    planes.succession = Succession::new(whole.next.plane);
    let quarantined = whole.quarantined.iter().copied();
    planes.restarts = Restarts::with_quarantined(quarantined, Instant::now());
    planes.counts.deaths = whole.counts.deaths;
    planes.counts.upgrades = whole.counts.upgrades;
    planes.counts.forbidden_call = whole.counts.forbidden_call;
    planes.last_order = whole.next.order;
    Ok(planes)
}

fn resume_port(
    supervisor: &mut Supervisor,
    record: &PortRecord,
    fds: &mut RecordFds,
) -> anyhow::Result<()> {
    let Supervisor { setup, planes, ports, surroundings, .. } = supervisor;
    let mut port = SupervisedPort::new(record.spec()?, record.as_in_file()?);
    let is_quarantined = planes.restarts.quarantined().any(|port| port == record.id);
    (port.failure, port.is_served) = (record.failure.clone(), record.is_served);
    port.replayed = record.replayed;
    // Of a file all that an older supervisor had beside it was added.
    let is_added = setup.file.is_some() && port.from_file.is_none();
    let source = if is_added { PortSource::Added } else { PortSource::Configuration };
    port.source = record.source.unwrap_or(source);
    let seen = record.seen_ips.iter();
    port.seen_ips = seen.map(|&(vlan, address, ip)| SeenIp { vlan, address, ip }).collect();
    let network = record.network.as_ref().and_then(|text| text.parse().ok());
    if let Some(network) = network {
        setup.identity.choose_network(&port.spec.name, network);
    }
    surroundings.choose_network(&port.spec, &mut setup.identity);
    port.stations = Stations::of_record(&record.stations);
    if let Some(tap) = &record.tap {
        port.tap = TapState::resume(tap, fds)?;
    }
    port.sockets = ForwardSockets::resume(&record.sockets, fds)?;
    port.tap.reopen_at = record.reopens.then(Instant::now);
    if let Some(vm) = record.vm.as_ref() {
        port.vm = Some(VmPort::resume(&setup.identity, &port.spec, vm, fds)?);
    }
    let is_new = ports.insert(PortId(record.id), port).is_none();
    ensure!(is_new, "port {} is there twice", record.id);
    if is_quarantined {
        let why = record.vm.as_ref().and_then(|vm| vm.last_offence.clone());
        let why = why.unwrap_or_default();
        supervisor.happens_at(PortId(record.id), front_ends::Event::Quarantine { why });
    }
    Ok(())
}

fn resume_link(supervisor: &mut Supervisor, found: StoredRecord) -> anyhow::Result<()> {
    let StoredRecord { text, mut fds } = found;
    let record = LinkRecord::read(&text)?;
    let (id, number) = (PortId(record.port), record.number);
    let ports = &mut supervisor.ports;
    let closer = ports.vm(id).context("a front-end without a port")?.closing.closer.clone();
    let socket = closer.keep(fds.take(record.connection)?.into());
    let connection = Connection::new(socket)?.closed_by(&closer).without_waiting();
    let peer = Peer::of(&connection, &mut ports.user_names);
    let spec = Bytes::new(record.spec.clone().into_bytes()).context("a long port")?;
    let kept = record.kept(|at| Ok(Arc::new(closer.keep(fds.take(at)?))))?;
    let mut link = FrontEnd::new(number, connection, peer, spec);
    link.kept = kept;
    ports.last_link = ports.last_link.max(number);
    if let Some(vm) = ports.vm(id) {
        vm.link = Some(link);
    }
    supervisor.happens_at(id, front_ends::Event::Linked);
    supervisor.look_for_room(id);
    supervisor.planes.note_request(id, &supervisor.ports);
    Ok(())
}

/// A data plane ends with its supervisor. Two of them must never have the same rings.
fn wait_for_the_end_of(ended: Option<FdAt>, fds: &mut RecordFds) -> anyhow::Result<()> {
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
