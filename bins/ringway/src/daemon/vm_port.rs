//! A port for a virtual machine: listening or connecting, and the link while there is one.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail};
use ringway_net::{Features, MacAddress, NetConfig};
use ringway_switch::PortId;
use ringway_vhost_user::{Connection, FilePart, Listener, Offer, SocketError};
use tracing::info;

use super::accept_backoff::{AcceptBackoff, RETRY_AFTER};
use super::closing::Closing;
use super::link::Link;
use super::peer::Peer;
use super::{Daemon, Wake};
use crate::config::values::Account;
use crate::config::{PortKind, PortSpec};
use crate::identity::Identity;
use crate::places;

/// How long the port accepts no front-end after one has blocked a call, which costs others up to
/// two ticks of the [`CallGuard`](ringway_host::CallGuard), 20 ms, or has made page faults sleep.
const HOLD_OFF: Duration = Duration::from_secs(3);

/// After faults, twice as long each time, but so often at most: each costs others more.
const HOLD_OFF_DOUBLED_MAX: u32 = 6;

/// After this time without another one, an offence is forgotten.
const OFFENCE_FORGOTTEN: Duration = Duration::from_secs(600);

const BLOCKED: &str = "the front-end blocked a notification fd and filled it";
const STALLED: &str =
    "the front-end's memory made page faults sleep (a cold file, or holes that it punched)";

/// The largest MTU that may be configured and the one assumed without configuration.
const MTU_DEFAULT: u16 = 1500;

/// A virtual machine's port.
pub(super) struct VmPort {
    way: Way,
    pub(super) mac: MacAddress,
    pub(super) mtu: Option<u16>,
    pub(super) is_link_up: bool,
    pub(super) features: Features,
    /// Queue pairs, at least 1.
    pub(super) pairs: u16,
    pub(super) link: Option<Link>,
    /// Why the last front-end was disconnected, if it was hostile; until the next one comes.
    pub(super) last_offence: Option<&'static str>,
    /// How many there were in a row, and when the last one was.
    offences: (u32, Option<Instant>),
    pub(super) closing: Closing,
    pub(super) backoff: AcceptBackoff,
    /// Whether the control thread hears of front-ends that connect.
    pub(super) is_watched: bool,
    /// A front-end that came while another one is linked.
    pub(super) next: Option<Newcomer>,
    /// Front-ends that came while another one was linked.
    pub(super) refused: u64,
}

/// How the front-end is reached.
enum Way {
    Listen(Listener),
    Connect {
        socket: PathBuf,
        next_try: Instant,
    },
    /// The port is being removed: no front-end may connect.
    Closed,
}

/// A front-end that came while another one was linked.
pub(super) struct Newcomer {
    pub(super) connection: Connection,
    /// Unless the other one has ended by then.
    pub(super) refuse_at: Instant,
}

impl VmPort {
    pub(super) fn open(identity: &Identity, spec: &PortSpec) -> anyhow::Result<Self> {
        let closing = Closing::start()?;
        let way = match &spec.kind {
            PortKind::VmConnect { socket } => {
                Way::Connect { socket: socket.clone(), next_try: Instant::now() }
            }
            PortKind::Vm { socket } => Way::Listen(listen(socket)?.closed_by(&closing.closer)),
            PortKind::Tap { .. } | PortKind::TapFd { .. } | PortKind::Nat => {
                unreachable!("only called for virtual machines")
            }
        };
        let mut vm = Self {
            way,
            mac: MacAddress::ZERO,
            mtu: None,
            is_link_up: true,
            features: Features::empty(),
            pairs: 1,
            link: None,
            last_offence: None,
            offences: (0, None),
            closing,
            backoff: AcceptBackoff::default(),
            is_watched: false,
            next: None,
            refused: 0,
        };
        vm.configure(identity, spec);
        vm.permit(spec)?;
        Ok(vm)
    }

    /// Takes over what the next guest is offered, and what holds at once.
    pub(super) fn configure(&mut self, identity: &Identity, spec: &PortSpec) {
        let mut features = spec.features_offered();
        if spec.mtu.is_none() {
            // A guest takes an offered MTU for the largest it may ever set.
            features -= Features::MTU;
        }
        self.mac = identity.mac_of(spec);
        self.mtu = spec.mtu;
        self.is_link_up = spec.is_link_up;
        self.features = features.drop_unmet();
        self.pairs = spec.queues;
    }

    /// Who may open the socket's file.
    ///
    /// # Errors
    /// The operating system refuses; then nothing has changed.
    pub(super) fn permit(&self, spec: &PortSpec) -> anyhow::Result<()> {
        let Way::Listen(listener) = &self.way else { return Ok(()) };
        listener.permit(spec.socket_access()).map_err(|why| {
            let SocketError::Permission { part, .. } = &why else { return anyhow!("{why}") };
            let named = |account: &Option<Account>| {
                account.as_ref().map_or("default", |account| &account.name).to_owned()
            };
            let (typed, advice) = match part {
                FilePart::Mode => {
                    let mode = spec.socket_access().mode;
                    (format!("socket_mode={mode:04o}"), "check that the file is ringway's own")
                }
                FilePart::User => (
                    format!("socket_user={}", named(&spec.socket_user)),
                    "start ringway as root, or name a group that its user is in: socket_group",
                ),
                FilePart::Group => (
                    format!("socket_group={}", named(&spec.socket_group)),
                    "use a group that ringway's user is in, or start ringway as root",
                ),
            };
            anyhow!("{typed}: {why}: {advice}")
        })
    }

    /// No front-end may connect any more; a guest that is connected stays.
    pub(super) fn close(&mut self) {
        (self.way, self.next) = (Way::Closed, None);
        self.is_link_up = false;
    }

    /// Tells the guest what its configuration is now; `true`: it was told.
    pub(super) fn tell_config(&mut self) -> bool {
        let config = self.config(self.is_link_up);
        self.link.as_mut().is_some_and(|link| link.change_config(config))
    }

    pub(super) fn listener(&self) -> Option<&Listener> {
        match &self.way {
            Way::Listen(listener) => Some(listener),
            Way::Connect { .. } | Way::Closed => None,
        }
    }

    /// Whether that is the front-end's end of a connection to this port.
    pub(super) fn is_reached_by(&self, fd: BorrowedFd<'_>) -> bool {
        let is_linked = self.link.as_ref().is_some_and(|link| link.connection.is_reached_by(fd));
        is_linked || matches!(&self.way, Way::Listen(listener) if listener.is_reached_by(fd))
    }

    pub(super) fn is_linked(&self) -> bool {
        self.link.is_some()
    }

    /// The device configuration space with the link up or down.
    pub(super) fn config(&self, link_up: bool) -> Vec<u8> {
        let config = NetConfig {
            mac: self.link.as_ref().map_or(self.mac, |link| link.mac),
            link_up,
            announce: self.link.as_ref().is_some_and(|link| link.announcement.is_asked),
            max_queue_pairs: self.pairs,
            mtu: self.mtu.unwrap_or(MTU_DEFAULT),
        };
        config.encode().to_vec()
    }

    fn offer(&self) -> Offer {
        Offer {
            features: self.features.bits(),
            queue_pairs_max: self.pairs,
            has_control_queue: self.features.contains(Features::CTRL_VQ),
            config: self.config(self.is_link_up),
            memory_slots_max: ringway_virtq::REGIONS_MAX as u64,
        }
    }

    fn try_connect(&mut self, now: Instant) -> Option<Connection> {
        let Way::Connect { socket, next_try } = &mut self.way else { return None };
        if self.link.is_some() || self.closing.is_waited_for() || *next_try > now {
            return None;
        }
        *next_try = now + RETRY_AFTER;
        Some(Connection::connect(socket).ok()?.closed_by(&self.closing.closer))
    }

    /// After an offence the port accepts no front-end, and connects to none, for this long.
    fn hold_off(&mut self, offence: &'static str) -> Duration {
        let now = Instant::now();
        let (count, last) = self.offences;
        let is_soon = last.is_some_and(|at| now.duration_since(at) < OFFENCE_FORGOTTEN);
        let count = if is_soon { (count + 1).min(HOLD_OFF_DOUBLED_MAX) } else { 0 };
        self.offences = (count, Some(now));
        self.last_offence = Some(offence);
        let pause = if offence == STALLED { HOLD_OFF * (1 << count) } else { HOLD_OFF };
        let until = now + pause;
        match &mut self.way {
            Way::Listen(_) => self.backoff.until = Some(until),
            Way::Connect { next_try, .. } => *next_try = until,
            Way::Closed => {}
        }
        pause
    }

    fn next_try(&self) -> Option<Instant> {
        match &self.way {
            _ if self.link.is_some() || self.closing.is_waited_for() => None,
            Way::Connect { next_try, .. } => Some(*next_try),
            Way::Listen(_) | Way::Closed => None,
        }
    }
}

/// Listens at `socket`; the error says all in one line.
fn listen(socket: &Path) -> anyhow::Result<Listener> {
    places::prepare(socket)?;
    let directory = socket.parent().filter(|parent| !parent.as_os_str().is_empty());
    if directory.is_some_and(|directory| !directory.is_dir()) {
        bail!("{}: its directory does not exist: create it first", socket.display());
    }
    Listener::bind(socket).map_err(|why| anyhow!("{why}"))
}

impl Daemon {
    pub(super) fn next_try(&self) -> Option<Instant> {
        self.ports.values().filter_map(|port| port.vm.as_ref()?.next_try()).min()
    }

    /// Ports that connect by themselves try again when their time has come.
    pub(super) fn connect_due_ports(&mut self) {
        let now = Instant::now();
        for id in self.ids() {
            let Some(vm) = self.ports.get_mut(&id).and_then(|port| port.vm.as_mut()) else {
                continue;
            };
            if let Some(connection) = vm.try_connect(now) {
                self.link(id, connection);
            }
        }
    }

    /// Disconnects front-ends that took away memory which a worker then touched.
    pub(super) fn drop_torn_links(&mut self) {
        self.torn.drain();
        for id in self.ids() {
            let link = self.ports.get(&id).and_then(|port| port.vm.as_ref()?.link.as_ref());
            if link.is_some_and(|link| link.memory.torn()) {
                let why = "the front-end took away memory that it had shared";
                self.complain(id, why);
                self.drop_link(id);
            }
        }
    }

    /// Disconnects front-ends for which a call would have waited.
    pub(super) fn drop_blocking_links(&mut self) {
        for id in self.ids() {
            let link = self.ports.get(&id).and_then(|port| port.vm.as_ref()?.link.as_ref());
            if link.is_some_and(|link| link.callee.has_blocked()) {
                self.drop_link(id);
            }
        }
    }

    /// Disconnects the front-end in whose memory a worker slept.
    pub(super) fn drop_stalled_link(&mut self, id: PortId) {
        self.drop_link_after(id, Some(STALLED));
    }

    pub(super) fn link(&mut self, id: PortId, connection: Connection) {
        let Some(port) = self.ports.get_mut(&id) else { return };
        let Some(vm) = &mut port.vm else { return };
        if let Err(why) = self.poller.add(connection.as_fd(), Wake::Link(id).token()) {
            return self.stop_listening(id, format_args!("link: {why}"));
        }
        let name = &port.spec.name;
        let peer = Peer::of(&connection, &mut self.user_names);
        port.chatter.say(name, || match &peer {
            Some(peer) => info!(port = name, "front-end connected: {peer}"),
            None => info!(port = name, "front-end connected"),
        });
        let connection = connection.without_waiting();
        vm.backoff = AcceptBackoff::default();
        vm.last_offence = None;
        let callee = self.worker.new_callee();
        vm.link = Some(Link::new((connection, peer), vm.mac, vm.offer(), callee));
    }

    /// Disconnects a front-end; the port waits for the next one.
    pub(super) fn drop_link(&mut self, id: PortId) {
        self.drop_link_after(id, None);
    }

    fn drop_link_after(&mut self, id: PortId, offence: Option<&'static str>) {
        let Some(port) = self.ports.get_mut(&id) else { return };
        let is_leaving = port.is_leaving();
        let Some(vm) = &mut port.vm else { return };
        let Some(link) = vm.link.take() else { return };
        let _ = self.poller.remove(link.connection.as_fd());
        if let Some(watch) = &link.kicks.watch {
            let _ = self.poller.remove(watch.as_fd());
        }
        self.worker.detach(id);
        let name = &port.spec.name;
        port.chatter.say(name, || info!(port = name, "front-end gone"));
        if is_leaving {
            return self.finish_leaving(id);
        }
        // Asked only now: it may have gone before it was disconnected, and no worker calls it any
        // more.
        let has_blocked = link.callee.has_blocked();
        if let Some(offence) = offence.or(has_blocked.then_some(BLOCKED)) {
            let pause = vm.hold_off(offence);
            port.complain(format_args!("{offence}: the port accepts no front-end for {pause:?}"));
        }
        drop(link);
        self.listen_to_the_next(id);
    }

    /// Every guest that can be told sees its link go down; returns how many.
    pub(super) fn tell_link_down(&mut self) -> usize {
        let mut told = 0;
        for vm in self.ports.values_mut().filter_map(|port| port.vm.as_mut()) {
            vm.is_link_up = false;
            told += usize::from(vm.tell_config());
        }
        told
    }
}
