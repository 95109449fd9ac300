//! The control socket: JSON lines in and out; never waits for a client.
//!
//! A client may ask if it can open the socket's file, and is the daemon's own user, root, or in the
//! group that was named. A client that keeps others waiting is dropped: one that sends a line or
//! reads its answer too slowly after [`PATIENCE`], and, when all places are taken, the one that was
//! silent for longest, if that is [`SILENCE`]. No client that has asked is dropped before it has
//! its answer; new ones wait in the queue of the socket meanwhile.
//!
//! Limits: [`CLIENTS_MAX`] clients, [`LINES_PER_TURN`] lines of one client before others get their
//! turn, lines of at most [`LINE_LEN_MAX`] bytes. Nothing more is read from a client before it has
//! read its answers.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use anyhow::{anyhow, ensure};
use ringway_host::PeerCredentials;
use ringway_vhost_user::{Access, FilePart, Listener, Made, SocketError};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};
use rustix::process::{getegid, geteuid};
use tracing::warn;

use super::accept_backoff::{AcceptBackoff, RETRY_AFTER};
use super::control_client::{Client, ClientId, is_trusted};
use super::descriptors::with_advice;
use super::record::{ClientRecord, Fds, ListenerRecord, RecordFds};
use super::{Supervisor, Wake, peer};
use crate::chatter::Chatter;
use crate::config::Settings;
use crate::control::refusal;
use crate::places;

/// Clients served at the same time.
const CLIENTS_MAX: usize = 16;

/// Lines of one client answered before others get their turn.
const LINES_PER_TURN: usize = 8;

/// How long a client may take to finish a line, and to read its answers.
const PATIENCE: Duration = Duration::from_secs(5);

/// After so long a client that asks nothing leaves its place to one that waits.
const SILENCE: Duration = Duration::from_secs(1);

/// The listening socket and its clients.
pub(super) struct ControlSocket {
    listener: Listener,
    /// Its members may ask too.
    group: Option<u32>,
    clients: [Option<Client>; CLIENTS_MAX],
    /// Clients so far.
    serial: u64,
    /// All places are taken, and no client may be dropped: others wait.
    is_full: bool,
    pub(super) backoff: AcceptBackoff,
    /// Lines that clients are the reason for.
    pub(super) chatter: Chatter,
}

impl ControlSocket {
    /// Listens as the settings say; a socket file on which no process listens any more is replaced.
    pub(super) fn bind(settings: &Settings) -> anyhow::Result<Self> {
        let path = settings.control.as_path();
        places::prepare(path, path)?;
        let listener = Listener::bind(path).map_err(|why| match peer::in_use(&why) {
            Some(who) => {
                let stop = places::how_to_stop(path);
                anyhow!("{who}: stop it with: {stop}, or choose another path (--control SOCKET)")
            }
            None => anyhow!("{why} (--control SOCKET)"),
        })?;
        let socket = Self::new(listener, settings);
        socket.permit(settings)?;
        Ok(socket)
    }

    fn new(listener: Listener, settings: &Settings) -> Self {
        let group = settings.control_group.as_ref().map(|group| group.id);
        let (clients, backoff) = (Default::default(), AcceptBackoff::default());
        let (serial, is_full, chatter) = (0, false, Chatter::new());
        Self { listener, group, clients, serial, is_full, backoff, chatter }
    }

    /// A socket that a service manager has made, and says who may open; its file stays.
    pub(super) fn over(socket: OwnedFd, settings: &Settings) -> anyhow::Result<Self> {
        let record = ListenerRecord {
            fd: 0,
            path: settings.control.clone(),
            file: Made::BY_OTHERS.file,
            made_for: Made::BY_OTHERS.made_for,
        };
        Self::resume(&record, settings, &mut RecordFds::new([Some(socket)]))
    }

    /// One that another supervisor had, without its clients.
    ///
    /// # Errors
    /// It did not come along.
    pub(super) fn resume(
        record: &ListenerRecord,
        settings: &Settings,
        fds: &mut RecordFds,
    ) -> anyhow::Result<Self> {
        let mut made = record.made();
        if made.made_for == (0, 0) && made.file != Made::BY_OTHERS.file {
            // An older supervisor did not record the owner: it was the process's own.
            made.made_for = (geteuid().as_raw(), getegid().as_raw());
        }
        let listener = Listener::resume(fds.take(record.fd)?, &record.path, made)?;
        Ok(Self::new(listener, settings))
    }

    /// The record of it for the next supervisor.
    pub(super) fn record<'a>(&'a self, fds: &mut Fds<'a>) -> ListenerRecord {
        ListenerRecord::of(&self.listener, fds)
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

    /// Says who may open the socket's file, unless that is a service manager's.
    fn permit(&self, settings: &Settings) -> anyhow::Result<()> {
        if self.listener.made().file == Made::BY_OTHERS.file {
            return Ok(());
        }
        let shown = self.listener.path().display();
        let group = settings.control_group.as_ref();
        let mode = settings.file_mode();
        let access = Access { mode, user: None, group: group.map(|group| group.id) };
        self.listener.permit(access).map_err(|why| match (why, group) {
            (SocketError::Permission { part: FilePart::Group, source, .. }, Some(group)) => {
                let name = &group.name;
                anyhow!("{shown}: cannot be given to group {name}: {source}: use one you are in")
            }
            (SocketError::Replaced { .. }, _) => {
                anyhow!("{shown}: another file is there now: start ringway again")
            }
            (why, _) => why.into(),
        })
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
        let (user, own) = (peer.user, geteuid().as_raw());
        Some(format!("not permitted: user {user} is neither {own} nor root nor in control_group"))
    }
}

/// No connection waits to be accepted (any more).
fn is_passing(why: Errno) -> bool {
    matches!(why, Errno::AGAIN | Errno::INTR | Errno::CONNABORTED)
}

impl Supervisor {
    pub(super) fn accept_control_client(&mut self) {
        let slot = match self.free_control_slot() {
            Ok(slot) => slot,
            Err(until) => {
                let _ = self.poller.remove(self.control.as_fd());
                self.control.is_full = true;
                self.control.backoff.until = Some(until);
                return;
            }
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let stream = match accept_with(&self.control.listener, flags) {
            Ok(stream) => UnixStream::from(stream),
            Err(why) if is_passing(why) => return,
            Err(why) => {
                let _ = self.poller.remove(self.control.as_fd());
                if self.control.backoff.begin() {
                    let why = with_advice(format!("accept: {why}"), &why);
                    warn!("control socket: {why}: trying again every {RETRY_AFTER:?}");
                }
                return;
            }
        };
        self.control.backoff = AcceptBackoff::default();
        let objection = self.control.objection(&stream);
        if let Some(why) = &objection {
            self.control.chatter.say_of(None, || warn!("control client: {why}"));
        }
        let token = Wake::ControlClient(u32::try_from(slot).unwrap_or(u32::MAX)).token();
        match self.poller.add(stream.as_fd(), token) {
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
    /// silent for longest, if that is long enough.
    ///
    /// # Errors
    /// None does: until when to wait, if no client ends before.
    fn free_control_slot(&mut self) -> Result<usize, Instant> {
        let places = &self.control.clients;
        if let Some(slot) = places.iter().position(Option::is_none) {
            return Ok(slot);
        }
        let now = Instant::now();
        let leaves_from = |(slot, client): (usize, &Option<Client>)| {
            let client = client.as_ref()?;
            // Those who may not ask go first.
            Some((client.leaves_from(SILENCE)?, client.objection.is_none(), slot))
        };
        let all = places.iter().enumerate().filter_map(leaves_from);
        let first = all.min_by_key(|(at, may_ask, _)| (*may_ask, *at));
        match first {
            Some((at, _, slot)) if at <= now => {
                self.drop_control_client(slot);
                Ok(slot)
            }
            Some((at, ..)) => Err(at),
            None => Err(now + SILENCE),
        }
    }

    pub(super) fn serve_control_client(&mut self, slot: u32) {
        let slot = slot as usize;
        let Some(Some(client)) = self.control.clients.get_mut(slot) else { return };
        let mut is_alive = client.receive().is_ok();
        for _ in 0..LINES_PER_TURN {
            if self.planes.is_holding() {
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
        is_alive &= client.send().is_ok() && client.check_len().is_ok() && !client.is_over();
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
        if client.send().is_err() || client.is_over() {
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
        let is_held = self.planes.is_holding() && client.output.is_empty();
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
            if std::mem::take(&mut self.control.is_full) {
                // One that waits has a place now.
                self.control.backoff.until = Some(Instant::now());
            }
        }
    }
}
