//! A port for a virtual machine: listening or connecting, and the link while there is one.

use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail};
use ringway_net::MacAddress;
use ringway_supervisor::wire::{Offence, ToData};
use ringway_switch::PortId;
use ringway_vhost_user::{Access, Connection, FilePart, Listener, Made, SocketError};
use tracing::info;

use super::accept_backoff::{AcceptBackoff, RETRY_AFTER};
use super::activation::Passed;
use super::closing::Closing;
use super::front_end::FrontEnd;
use super::order::Order;
use super::peer::Peer;
use super::record::{FoundFds, VmRecord};
use super::{Supervisor, peer};
use crate::config::port::SocketAccess;
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

/// A virtual machine's port.
pub(super) struct VmPort {
    way: Way,
    pub(super) mac: MacAddress,
    pub(super) link: Option<FrontEnd>,
    /// The number of the one before.
    pub(super) last_link: Option<u32>,
    /// Why the last front-end was disconnected, if it was hostile; until the next one comes.
    pub(super) last_offence: Option<String>,
    /// How many there were in a row, and when the last one was.
    offences: (u32, Option<Instant>),
    /// The data plane has ended again and again while it served this port.
    pub(super) is_quarantined: bool,
    pub(super) closing: Closing,
    pub(super) backoff: AcceptBackoff,
    /// Whether the supervisor hears of front-ends that connect.
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
    /// It was there from the start, and there is no other one: `None` once it is served.
    Given(Option<Box<Connection>>),
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
            PortKind::Vm { socket } => {
                Way::Listen(listen(socket, identity.control())?.closed_by(&closing.closer))
            }
            PortKind::Tap { .. } | PortKind::TapFd { .. } | PortKind::Nat => {
                unreachable!("only called for virtual machines")
            }
        };
        let vm = Self::new(way, closing, identity.mac_of(spec));
        vm.permit(spec)?;
        Ok(vm)
    }

    /// One whose socket a service manager or another program has made, and says who may open.
    ///
    /// # Errors
    /// The options say who may open it, too.
    pub(super) fn over(
        identity: &Identity,
        spec: &PortSpec,
        socket: Passed,
    ) -> anyhow::Result<Self> {
        let says_who =
            spec.socket_mode.is_some() || spec.socket_user.is_some() || spec.socket_group.is_some();
        if says_who {
            bail!(
                "the service manager made its socket, and says who may open it: SocketMode=, \
                 SocketUser=, SocketGroup= in place of the options"
            );
        }
        let PortKind::Vm { socket: path } = &spec.kind else { bail!("it listens nowhere") };
        let closing = Closing::start()?;
        let way = match socket {
            Passed::Listening(socket) => {
                let listener = Listener::resume(socket, path, Made::BY_OTHERS)?;
                Way::Listen(listener.closed_by(&closing.closer))
            }
            Passed::Connected(socket) => {
                let connection = Connection::new(UnixStream::from(socket))?;
                Way::Given(Some(Box::new(connection.closed_by(&closing.closer))))
            }
        };
        Ok(Self::new(way, closing, identity.mac_of(spec)))
    }

    /// One that another supervisor had, without its front-end.
    ///
    /// # Errors
    /// Not all of it came along.
    pub(super) fn resume(
        identity: &Identity,
        spec: &PortSpec,
        record: &VmRecord,
        fds: &mut FoundFds,
    ) -> anyhow::Result<Self> {
        let closing = Closing::start()?;
        let way = match (&record.listener, &spec.kind) {
            (Some(made), _) => {
                let listener = Listener::resume(fds.take(made.fd)?, &made.path, made.made())?;
                Way::Listen(listener.closed_by(&closing.closer))
            }
            (None, PortKind::VmConnect { socket }) => {
                Way::Connect { socket: socket.clone(), next_try: Instant::now() }
            }
            (None, PortKind::Vm { .. }) => Way::Given(None),
            _ => bail!("port {} has no listener", spec.name),
        };
        Ok(Self {
            last_link: record.last_link,
            last_offence: record.last_offence.clone(),
            refused: record.refused,
            ..Self::new(way, closing, identity.mac_of(spec))
        })
    }

    fn new(way: Way, closing: Closing, mac: MacAddress) -> Self {
        Self {
            way,
            mac,
            link: None,
            last_link: None,
            last_offence: None,
            offences: (0, None),
            is_quarantined: false,
            closing,
            backoff: AcceptBackoff::default(),
            is_watched: false,
            next: None,
            refused: 0,
        }
    }

    /// Who may open the socket's file.
    ///
    /// # Errors
    /// The operating system refuses; then nothing has changed.
    pub(super) fn permit(&self, spec: &PortSpec) -> anyhow::Result<()> {
        let Way::Listen(listener) = &self.way else { return Ok(()) };
        permit(listener, spec)
    }

    /// No front-end may connect any more; a guest that is connected stays.
    pub(super) fn close(&mut self) {
        (self.way, self.next) = (Way::Closed, None);
    }

    pub(super) fn listener(&self) -> Option<&Listener> {
        match &self.way {
            Way::Listen(listener) => Some(listener),
            Way::Connect { .. } | Way::Given(_) | Way::Closed => None,
        }
    }

    /// Whether the only front-end that it will ever have has gone.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.way, Way::Given(None)) && self.link.is_none()
    }

    /// Whether that is the front-end's end of a connection to this port.
    pub(super) fn is_reached_by(&self, fd: BorrowedFd<'_>) -> bool {
        let is_linked = self.link.as_ref().is_some_and(|link| link.connection.is_reached_by(fd));
        is_linked || matches!(&self.way, Way::Listen(listener) if listener.is_reached_by(fd))
    }

    pub(super) fn is_linked(&self) -> bool {
        self.link.is_some()
    }

    fn try_connect(&mut self, now: Instant) -> Option<Connection> {
        if let Way::Given(connection) = &mut self.way {
            return connection.take().map(|connection| *connection);
        }
        let Way::Connect { socket, next_try } = &mut self.way else { return None };
        let is_busy = self.link.is_some() || self.is_quarantined || self.closing.is_waited_for();
        if is_busy || *next_try > now {
            return None;
        }
        *next_try = now + RETRY_AFTER;
        Some(Connection::connect(socket).ok()?.closed_by(&self.closing.closer))
    }

    /// After an offence the port accepts no front-end, and connects to none, for this long.
    pub(super) fn hold_off(&mut self, offence: Offence, why: &str) -> Duration {
        let now = Instant::now();
        let (count, last) = self.offences;
        let is_soon = last.is_some_and(|at| now.duration_since(at) < OFFENCE_FORGOTTEN);
        let count = if is_soon { (count + 1).min(HOLD_OFF_DOUBLED_MAX) } else { 0 };
        self.offences = (count, Some(now));
        self.last_offence = Some(why.to_owned());
        let pause = if offence == Offence::Stalled { HOLD_OFF * (1 << count) } else { HOLD_OFF };
        let until = now + pause;
        match &mut self.way {
            Way::Listen(_) => self.backoff.until = Some(until),
            Way::Connect { next_try, .. } => *next_try = until,
            Way::Given(_) | Way::Closed => {}
        }
        pause
    }

    /// It accepts no front-end, and connects to none, until it is [released](Self::release).
    pub(super) fn quarantine(&mut self, why: String) {
        self.last_offence = Some(why);
        self.is_quarantined = true;
        self.next = None;
    }

    /// `true`: it had been quarantined.
    pub(super) fn release(&mut self) -> bool {
        if self.is_quarantined {
            self.last_offence = None;
        }
        std::mem::take(&mut self.is_quarantined)
    }

    fn next_try(&self) -> Option<Instant> {
        match &self.way {
            _ if self.link.is_some() || self.is_quarantined => None,
            _ if self.closing.is_waited_for() => None,
            Way::Connect { next_try, .. } => Some(*next_try),
            Way::Given(connection) => connection.as_ref().map(|_| Instant::now()),
            Way::Listen(_) | Way::Closed => None,
        }
    }
}

/// Says who may open the file of a socket.
///
/// # Errors
/// The operating system refuses; then nothing has changed.
pub(super) fn permit(listener: &Listener, spec: &PortSpec) -> anyhow::Result<()> {
    let SocketAccess { mode, user, group } = spec.socket_access();
    listener.permit(Access { mode, user, group }).map_err(|why| {
        let SocketError::Permission { part, .. } = &why else { return anyhow!("{why}") };
        let named = |account: &Option<Account>| {
            account.as_ref().map_or("default", |account| &account.name).to_owned()
        };
        let (typed, advice) = match part {
            FilePart::Mode => {
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

/// Listens at `socket`, of a ringway with that control socket; the error says all in one line.
pub(super) fn listen(socket: &Path, control: &Path) -> anyhow::Result<Listener> {
    places::prepare(socket, control)?;
    Listener::bind(socket).map_err(|why| match peer::in_use(&why) {
        Some(who) => anyhow!("{who}: stop it or choose another path"),
        None => anyhow!("{why}"),
    })
}

impl Supervisor {
    /// The port of a virtual machine.
    pub(super) fn vm(&mut self, id: PortId) -> Option<&mut VmPort> {
        self.ports.get_mut(&id)?.vm.as_mut()
    }

    pub(super) fn next_try(&self) -> Option<Instant> {
        let ports = self.ports.values().filter_map(|port| port.vm.as_ref()?.next_try());
        ports.filter(|_| !self.planes.is_holding()).min()
    }

    /// Ports that connect by themselves try again when their time has come.
    pub(super) fn connect_due_ports(&mut self) {
        let now = Instant::now();
        let next_try = |port: &super::Port| port.vm.as_ref()?.next_try();
        // At once is the time at which that was asked.
        for id in self.ids_of(|port| next_try(port).is_some_and(|at| at <= Instant::now())) {
            let Some(vm) = self.ports.get_mut(&id).and_then(|port| port.vm.as_mut()) else {
                continue;
            };
            if self.planes.is_holding() {
                return;
            }
            if let Some(connection) = vm.try_connect(now) {
                self.link(id, connection);
            }
        }
    }

    pub(super) fn link(&mut self, id: PortId, connection: Connection) {
        let Some(port) = self.ports.get(&id) else { return };
        let told = self.told(&port.spec);
        let Some(port) = self.ports.get_mut(&id) else { return };
        let spec = match told {
            Ok(spec) => spec,
            Err(why) => {
                return port.chatter.complain(&port.spec.name, format_args!("link: {why}"));
            }
        };
        let Some(vm) = &mut port.vm else { return };
        let name = &port.spec.name;
        let peer = Peer::of(&connection, &mut self.user_names);
        port.chatter.say(name, || match &peer {
            Some(peer) => info!(port = name, "front-end connected: {peer}"),
            None => info!(port = name, "front-end connected"),
        });
        let connection = connection.without_waiting();
        vm.backoff = AcceptBackoff::default();
        vm.last_offence = None;
        self.next_link += 1;
        let number = self.next_link;
        vm.link = Some(FrontEnd::new(number, (connection, peer), spec.clone()));
        if !self.holds_back(id) {
            let message =
                |order| ToData::Link { order, port: id.0, link: number, spec: spec.clone() };
            self.order_now(Order::Link { port: id }, message, vec![]);
        }
        self.watch_link(id);
    }
}
