//! A port for a virtual machine: listening or connecting, and the link while there is one.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{anyhow, bail};
use ringway_net::MacAddress;
use ringway_supervisor::front_ends::{self, Admission, History};
use ringway_vhost_user::{Access, Connection, FilePart, Listener, Made, SocketError};

use super::guest_moves::GuestMoves;
use crate::closing::Closing;
use crate::config::port::SocketAccess;
use crate::config::values::Account;
use crate::config::{PortKind, PortSpec};
use crate::identity::Identity;
use crate::places;
use crate::supervisor::front_ends::front_end::FrontEnd;
use crate::supervisor::front_ends::peer::{self, Peer};
use crate::supervisor::record::{RecordFds, VmRecord};
use crate::supervisor::setup::activation::InheritedSocket;

/// A virtual machine's port.
pub struct VmPort {
    socket: FrontEndSocket,
    pub mac: MacAddress,
    pub link: Option<FrontEnd>,
    /// Who may connect, and who did.
    pub admission: Admission,
    /// Whether its guest is here, and how it came.
    pub moves: GuestMoves,
    pub closing: Closing,
    /// Front-ends that have connected, and are not linked yet: two at most.
    pub waiting: VecDeque<Newcomer>,
}

/// A front-end that has connected.
pub struct Newcomer {
    pub connection: Connection,
    /// The process at its other end, if it is known.
    pub peer: Option<Peer>,
}

/// How the front-end is reached.
enum FrontEndSocket {
    Listen(Listener),
    Connect(PathBuf),
    /// It was there from the start, and there is no other one: `None` once it is served.
    Given(Option<Box<Connection>>),
    /// The port is being removed: no front-end may connect.
    Closed,
}

impl FrontEndSocket {
    fn mode(&self) -> front_ends::SocketMode {
        match self {
            Self::Listen(_) => front_ends::SocketMode::Listen,
            Self::Connect(_) => front_ends::SocketMode::Connect,
            Self::Given(_) => front_ends::SocketMode::Given,
            Self::Closed => front_ends::SocketMode::Closed,
        }
    }
}

impl VmPort {
    pub fn open(identity: &Identity, spec: &PortSpec) -> anyhow::Result<Self> {
        let closing = Closing::start()?;
        let front_end_socket = match &spec.kind {
            PortKind::VmConnect { socket } => FrontEndSocket::Connect(socket.clone()),
            PortKind::Vm { socket } => FrontEndSocket::Listen(
                listen(socket, identity.control())?.closed_by(&closing.closer),
            ),
            PortKind::Tap { .. } | PortKind::TapFd { .. } | PortKind::Nat => {
                unreachable!("only called for virtual machines")
            }
        };
        let vm = Self::new(front_end_socket, closing, identity.mac_of(spec));
        vm.permit(spec)?;
        Ok(vm)
    }

    /// One whose socket a service manager or another program has made, and says who may open.
    ///
    /// # Errors
    /// The options say who may open it, too.
    pub fn over(
        identity: &Identity,
        spec: &PortSpec,
        socket: InheritedSocket,
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
        let front_end_socket = match socket {
            InheritedSocket::Listening(socket) => {
                let listener = Listener::resume(socket, path, Made::BY_OTHERS)?;
                FrontEndSocket::Listen(listener.closed_by(&closing.closer))
            }
            InheritedSocket::Connected(socket) => {
                let connection = Connection::new(UnixStream::from(socket))?;
                FrontEndSocket::Given(Some(Box::new(connection.closed_by(&closing.closer))))
            }
        };
        Ok(Self::new(front_end_socket, closing, identity.mac_of(spec)))
    }

    /// One that another supervisor had, without its front-end.
    ///
    /// # Errors
    /// Not all of it came along.
    pub fn resume(
        identity: &Identity,
        spec: &PortSpec,
        record: &VmRecord,
        fds: &mut RecordFds,
    ) -> anyhow::Result<Self> {
        let closing = Closing::start()?;
        let front_end_socket = match (&record.listener, &spec.kind) {
            (Some(made), _) => {
                let listener = Listener::resume(fds.take(made.fd)?, &made.path, made.made())?;
                FrontEndSocket::Listen(listener.closed_by(&closing.closer))
            }
            (None, PortKind::VmConnect { socket }) => FrontEndSocket::Connect(socket.clone()),
            (None, PortKind::Vm { .. }) => FrontEndSocket::Given(None),
            _ => bail!("port {} has no listener", spec.name),
        };
        let history = History {
            last_link: record.last_link,
            last_offence: record.last_offence.clone(),
            refused: record.refused,
        };
        let admission = Admission::resume(front_end_socket.mode(), history, Instant::now());
        let moves = record.moves.clone();
        let mut vm = Self {
            admission,
            moves,
            ..Self::new(front_end_socket, closing, identity.mac_of(spec))
        };
        if let Some(next) = &record.next {
            let socket = vm.closing.closer.keep(fds.take(next.connection)?.into());
            let connection = Connection::new(socket)?.closed_by(&vm.closing.closer);
            vm.waiting.push_back(Newcomer { connection, peer: None });
        }
        Ok(vm)
    }

    fn new(socket: FrontEndSocket, closing: Closing, mac: MacAddress) -> Self {
        let admission = Admission::new(socket.mode(), Instant::now());
        let moves = GuestMoves::default();
        Self { socket, mac, link: None, admission, moves, closing, waiting: VecDeque::new() }
    }

    /// Who may open the socket's file.
    ///
    /// # Errors
    /// The operating system refuses; then nothing has changed.
    pub fn permit(&self, spec: &PortSpec) -> anyhow::Result<()> {
        let FrontEndSocket::Listen(listener) = &self.socket else { return Ok(()) };
        permit(listener, spec)
    }

    /// No front-end may connect any more; a guest that is connected stays.
    pub fn close(&mut self) {
        self.socket = FrontEndSocket::Closed;
    }

    pub fn listener(&self) -> Option<&Listener> {
        match &self.socket {
            FrontEndSocket::Listen(listener) => Some(listener),
            FrontEndSocket::Connect(_) | FrontEndSocket::Given(_) | FrontEndSocket::Closed => None,
        }
    }

    /// Whether the only front-end that it will ever have has gone.
    pub fn is_over(&self) -> bool {
        matches!(self.socket, FrontEndSocket::Given(None)) && self.link.is_none()
    }

    /// The front-end that waits until the one that is linked has gone.
    pub fn next(&self) -> Option<&Newcomer> {
        self.waiting.front().filter(|next| !next.connection.has_ended())
    }

    /// Whether that is the front-end's end of a connection to this port.
    pub fn is_reached_by(&self, fd: BorrowedFd<'_>) -> bool {
        let is_linked = self.link.as_ref().is_some_and(|link| link.connection.is_reached_by(fd));
        is_linked || self.listener().is_some_and(|listener| listener.is_reached_by(fd))
    }

    /// The front-end that was there from the start, or that can be connected to.
    pub fn connect(&mut self) -> Option<Connection> {
        match &mut self.socket {
            FrontEndSocket::Given(connection) => connection.take().map(|connection| *connection),
            FrontEndSocket::Connect(socket) => {
                Some(Connection::connect(socket).ok()?.closed_by(&self.closing.closer))
            }
            FrontEndSocket::Listen(_) | FrontEndSocket::Closed => None,
        }
    }
}

/// Says who may open the file of a socket.
///
/// # Errors
/// The operating system refuses; then nothing has changed.
pub fn permit(listener: &Listener, spec: &PortSpec) -> anyhow::Result<()> {
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
pub fn listen(socket: &Path, control: &Path) -> anyhow::Result<Listener> {
    places::prepare(socket, control)?;
    Listener::bind(socket).map_err(|why| match peer::in_use(&why) {
        Some(who) => anyhow!("{who}: stop it or choose another path"),
        None => anyhow!("{why}"),
    })
}
