//! The control socket: JSON lines in and out; never waits for a client.
//!
//! A client may ask if it can open the socket's file, and is the daemon's own user, root, or in the
//! group that was named. A client that keeps others waiting is dropped: one that sends a line or
//! reads its answer too slowly after [`PATIENCE`], and the one that was silent for longest when all
//! places are taken.
//!
//! Limits: [`CLIENTS_MAX`] clients, [`LINES_PER_TURN`] lines of one client before others get their
//! turn, lines of at most [`LINE_LEN_MAX`] bytes. Nothing more is read from a client before it has
//! read its answers.

use std::fs::Permissions;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use ringway_host::PeerCredentials;
use ringway_vhost_user::Made;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use tracing::warn;

use super::accept_backoff::{AcceptBackoff, RETRY_AFTER};
use super::control_client::{Client, ClientId, is_trusted};
use super::record::{ClientRecord, Fds, FoundFds, ListenerRecord};
use super::{Supervisor, Wake};
use crate::chatter::Chatter;
use crate::config::Settings;
use crate::config::settings::CONTROL_MODE;
use crate::control::refusal;
use crate::places;

/// Clients served at the same time.
const CLIENTS_MAX: usize = 16;

/// Lines of one client answered before others get their turn.
const LINES_PER_TURN: usize = 8;

/// How long a client may take to finish a line, and to read its answers.
const PATIENCE: Duration = Duration::from_secs(5);

/// The listening socket and its clients.
pub(super) struct ControlSocket {
    listener: UnixListener,
    path: PathBuf,
    /// Device and inode of the file that was made.
    file: (u64, u64),
    /// Its members may ask too.
    group: Option<u32>,
    clients: [Option<Client>; CLIENTS_MAX],
    /// Clients so far.
    serial: u64,
    pub(super) backoff: AcceptBackoff,
    /// Lines that clients are the reason for.
    pub(super) chatter: Chatter,
}

impl ControlSocket {
    /// Listens as the settings say; a socket file on which no process listens any more is replaced.
    pub(super) fn bind(settings: &Settings) -> anyhow::Result<Self> {
        let path = settings.control.as_path();
        let shown = path.display();
        places::prepare(path)?;
        if is_served(path) {
            bail!("{shown}: another ringway listens here: choose another with --control SOCKET");
        }
        if std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket()) {
            std::fs::remove_file(path).with_context(|| format!("{shown}: cannot be replaced"))?;
        }
        let listener = UnixListener::bind(path)
            .with_context(|| format!("{shown}: cannot listen: choose another with --control"))?;
        listener.set_nonblocking(true)?;
        let file = identity(path)?;
        let group = settings.control_group.as_ref().map(|group| group.id);
        let path = path.to_owned();
        let (clients, backoff) = (Default::default(), AcceptBackoff::default());
        let chatter = Chatter::new();
        let socket = Self { listener, path, file, group, clients, serial: 0, backoff, chatter };
        socket.permit(settings)?;
        Ok(socket)
    }

    /// A socket that a service manager has made, and says who may open; its file stays.
    pub(super) fn over(socket: OwnedFd, settings: &Settings) -> anyhow::Result<Self> {
        let record = ListenerRecord {
            fd: 0,
            path: settings.control.clone(),
            file: Made::BY_OTHERS.file,
            made_for: Made::BY_OTHERS.made_for,
        };
        Self::resume(&record, settings, &mut FoundFds::new([Some(socket)]))
    }

    /// One that another supervisor had, without its clients.
    ///
    /// # Errors
    /// It did not come along.
    pub(super) fn resume(
        record: &ListenerRecord,
        settings: &Settings,
        fds: &mut FoundFds,
    ) -> anyhow::Result<Self> {
        let listener = UnixListener::from(fds.take(record.fd)?);
        listener.set_nonblocking(true)?;
        let group = settings.control_group.as_ref().map(|group| group.id);
        let (clients, backoff) = (Default::default(), AcceptBackoff::default());
        let (path, file, chatter) = (record.path.clone(), record.file, Chatter::new());
        Ok(Self { listener, path, file, group, clients, serial: 0, backoff, chatter })
    }

    /// What the next supervisor needs of it.
    pub(super) fn record<'a>(&'a self, fds: &mut Fds<'a>) -> ListenerRecord {
        let (fd, path) = (fds.put(self.as_fd()), self.path.clone());
        ListenerRecord { fd, path, file: self.file, made_for: (0, 0) }
    }

    /// The same of its clients.
    pub(super) fn client_records<'a>(&'a self, fds: &mut Fds<'a>) -> Vec<ClientRecord> {
        let clients = self.clients.iter().enumerate();
        clients.filter_map(|(slot, client)| client.as_ref()?.record(slot, fds)).collect()
    }

    pub(super) fn serial(&self) -> u64 {
        self.serial
    }

    pub(super) fn resume_serial(&mut self, serial: u64) {
        self.serial = serial;
    }

    /// Permissions of the socket's file: first for its owner alone, then for the group that was
    /// named.
    fn permit(&self, settings: &Settings) -> anyhow::Result<()> {
        let shown = self.path.display();
        std::fs::set_permissions(&self.path, Permissions::from_mode(CONTROL_MODE))?;
        if let Some(group) = &settings.control_group {
            chown(&self.path, None, Some(group.id)).with_context(|| {
                format!("{shown}: cannot be given to group {}: use one you are in", group.name)
            })?;
        }
        std::fs::set_permissions(&self.path, Permissions::from_mode(settings.file_mode()))
            .with_context(|| format!("{shown}: permissions"))
    }

    /// Changes who may ask. Clients that are connected stay.
    pub(super) fn change_permissions(&mut self, settings: &Settings) -> anyhow::Result<()> {
        self.permit(settings)?;
        self.group = settings.control_group.as_ref().map(|group| group.id);
        Ok(())
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// Until the next client has kept us waiting for too long.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let owes = self.clients.iter().flatten().filter_map(|client| client.owes_since);
        owes.min().map(|since| since + PATIENCE)
    }

    /// Why this peer may not ask, if it may not.
    fn objection(&self, stream: &UnixStream) -> Option<String> {
        let peer = match PeerCredentials::of(stream) {
            Ok(peer) => peer,
            Err(why) => return Some(format!("not permitted: who asks is not known: {why}")),
        };
        let in_group = self.group.is_some_and(|group| peer.groups.contains(&group));
        if in_group || is_trusted(&peer) {
            return None;
        }
        let (user, own) = (peer.user, rustix::process::geteuid().as_raw());
        Some(format!("not permitted: user {user} is neither {own} nor root nor in control_group"))
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|file| file == self.file) {
            // Removed by another process is as good.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Whether a process listens there. It may be too busy to accept at once.
fn is_served(path: &Path) -> bool {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let probe = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None);
    let connected = probe.and_then(|probe| connect(&probe, &SocketAddrUnix::new(path)?));
    matches!(connected, Ok(()) | Err(Errno::AGAIN))
}

/// No connection waits to be accepted (any more).
fn is_passing(why: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, Interrupted, WouldBlock};
    matches!(why.kind(), WouldBlock | Interrupted | ConnectionAborted)
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    std::fs::symlink_metadata(path).map(|file| (file.dev(), file.ino()))
}

impl Supervisor {
    pub(super) fn accept_control_client(&mut self) {
        let stream = match self.control.listener.accept() {
            Ok((stream, _)) => stream,
            Err(why) if is_passing(&why) => return,
            Err(why) => {
                let _ = self.poller.remove(self.control.as_fd());
                if self.control.backoff.begin() {
                    warn!("control socket: accept: {why}: trying again every {RETRY_AFTER:?}");
                }
                return;
            }
        };
        self.control.backoff = AcceptBackoff::default();
        let objection = self.control.objection(&stream);
        if let Some(why) = &objection {
            self.control.chatter.say_of(None, || warn!("control client: {why}"));
        }
        let slot = self.free_control_slot();
        let token = Wake::ControlClient(u32::try_from(slot).unwrap_or(u32::MAX)).token();
        let added =
            stream.set_nonblocking(true).and_then(|()| self.poller.add(stream.as_fd(), token));
        match added {
            Ok(()) => {
                self.control.serial += 1;
                let client = Client::new(self.control.serial, stream, objection);
                self.control.clients[slot] = Some(client);
            }
            Err(why) => warn!("control client: {why}"),
        }
    }

    /// A client of another supervisor.
    ///
    /// # Errors
    /// It cannot be watched.
    pub(super) fn resume_client(
        &mut self,
        record: &ClientRecord,
        stream: UnixStream,
    ) -> anyhow::Result<()> {
        let place = self.control.clients.get(record.slot);
        ensure!(place.is_some_and(Option::is_none), "no place");
        stream.set_nonblocking(true)?;
        let token = Wake::ControlClient(u32::try_from(record.slot)?).token();
        self.poller.add(stream.as_fd(), token)?;
        let objection = self.control.objection(&stream);
        let mut client = Client::new(record.serial, stream, objection);
        client.is_waiting = record.is_waiting;
        client.input = record.input.clone().into_bytes();
        client.output = record.output.clone().into_bytes();
        self.control.clients[record.slot] = Some(client);
        self.watch_control_client(record.slot);
        Ok(())
    }

    /// A free place; if there is none, one that may not ask makes room, or the client that was
    /// silent for longest.
    fn free_control_slot(&mut self) -> usize {
        let merit = |slot: &usize| {
            let client = self.control.clients[*slot].as_ref();
            // `None`, for a free place, is less than anything.
            client.map(|client| (client.objection.is_none(), client.heard_at))
        };
        let slot = (0..CLIENTS_MAX).min_by_key(merit).unwrap_or(0);
        self.drop_control_client(slot);
        slot
    }

    pub(super) fn serve_control_client(&mut self, slot: u32) {
        let slot = slot as usize;
        let Some(Some(client)) = self.control.clients.get_mut(slot) else { return };
        let mut is_alive = client.receive().is_ok();
        for _ in 0..LINES_PER_TURN {
            if self.is_holding {
                break;
            }
            let Some(line) = self.control_client(slot).and_then(Client::next_line) else { break };
            let Some(client) = self.control_client(slot) else { return };
            let id = client.id(slot);
            client.is_waiting = true;
            match client.objection.clone() {
                Some(why) => {
                    is_alive = false;
                    self.answer_client(id, &refusal(&[why]));
                }
                None => self.answer(id, &line),
            }
        }
        let Some(client) = self.control_client(slot) else { return };
        is_alive &= client.send().is_ok() && client.check_len().is_ok();
        if !is_alive {
            return self.drop_control_client(slot);
        }
        client.note_debt(Instant::now());
        self.watch_control_client(slot);
    }

    /// Whether a client is ringway's own user, or root.
    pub(super) fn is_trusted(&mut self, id: ClientId) -> bool {
        let client = self.control_client(id.slot).filter(|client| client.serial == id.serial);
        client.is_some_and(|client| client.is_trusted)
    }

    /// The answer to a client's question; it may be gone.
    pub(super) fn answer_client(&mut self, id: ClientId, reply: &str) {
        self.answer_with(id, reply, Vec::new());
    }

    /// The same, with file descriptors.
    pub(super) fn answer_with(&mut self, id: ClientId, reply: &str, fds: Vec<OwnedFd>) {
        let client = self.control_client(id.slot).filter(|client| client.serial == id.serial);
        let Some(client) = client else { return };
        client.is_waiting = false;
        client.fds = fds;
        client.output.extend_from_slice(reply.as_bytes());
        client.output.push(b'\n');
        if client.send().is_err() {
            return self.drop_control_client(id.slot);
        }
        client.note_debt(Instant::now());
        self.watch_control_client(id.slot);
    }

    /// New clients, and questions of those that are there, wait for a while; or no more.
    pub(super) fn watch_clients(&mut self) {
        for slot in 0..CLIENTS_MAX {
            self.watch_control_client(slot);
        }
    }

    /// Clients that owe us something for too long are dropped.
    pub(super) fn drop_slow_control_clients(&mut self) {
        let now = Instant::now();
        for slot in 0..CLIENTS_MAX {
            let owes = self.control.clients[slot].as_ref().and_then(|client| client.owes_since);
            if owes.is_some_and(|since| now >= since + PATIENCE) {
                self.drop_control_client(slot);
            }
        }
    }

    /// Every client goes, as when another control socket takes over.
    pub(super) fn drop_control_clients(&mut self) {
        (0..CLIENTS_MAX).for_each(|slot| self.drop_control_client(slot));
    }

    fn watch_control_client(&mut self, slot: usize) {
        let Some(Some(client)) = self.control.clients.get_mut(slot) else { return };
        let is_held = self.is_holding && client.output.is_empty();
        let wanted = (!client.is_waiting && !is_held).then(|| client.wanted());
        if wanted == client.interest {
            return;
        }
        let before = std::mem::replace(&mut client.interest, wanted);
        let token = Wake::ControlClient(u32::try_from(slot).unwrap_or(u32::MAX)).token();
        let fd = client.stream.as_fd();
        let done = match (before, wanted) {
            (None, Some(wanted)) => self.poller.add_with(fd, token, wanted),
            (_, Some(wanted)) => self.poller.modify(fd, token, wanted),
            (_, None) => self.poller.remove(fd),
        };
        if done.is_err() {
            self.drop_control_client(slot);
        }
    }

    fn control_client(&mut self, slot: usize) -> Option<&mut Client> {
        self.control.clients.get_mut(slot)?.as_mut()
    }

    fn drop_control_client(&mut self, slot: usize) {
        if let Some(client) = self.control.clients.get_mut(slot).and_then(Option::take) {
            let _ = self.poller.remove(client.stream.as_fd());
        }
    }
}
