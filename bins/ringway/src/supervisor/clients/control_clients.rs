//! Clients of the control socket: JSON lines in and out; none is waited for.
//!
//! A client that keeps others waiting is dropped: one that sends a line or reads its answer too
//! slowly after [`PATIENCE`], and, when all places are taken, the one that was silent for longest,
//! if that is [`SILENCE`]. No client that has asked is dropped before it has its answer; new ones
//! wait in the queue of the socket meanwhile.
//!
//! Limits: [`CLIENTS_MAX`] clients, [`LINES_PER_TURN`] lines of one client before others get their
//! turn, lines of at most [`LINE_LEN_MAX`](crate::control::LINE_LEN_MAX) bytes. Nothing more is
//! read from a client before it has read its answers.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use anyhow::ensure;
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};
use tracing::warn;

use super::accept_backoff::{AcceptBackoff, RETRY_AFTER};
use super::control_client::{Client, ClientId};
use super::control_socket::{CLIENTS_MAX, ControlSocket};
use crate::control::refusal;
use crate::supervisor::processes::descriptors::with_advice;
use crate::supervisor::record::{ClientRecord, RecordFds};
use crate::supervisor::setup::wake::Wake;

/// Lines of one client answered before others get their turn.
pub const LINES_PER_TURN: usize = 8;

/// How long a client may take to finish a line, and to read its answers.
const PATIENCE: Duration = Duration::from_secs(5);

/// After so long a client that asks nothing leaves its place to one that waits.
const SILENCE: Duration = Duration::from_secs(1);

/// No connection waits to be accepted (any more).
fn is_passing(why: Errno) -> bool {
    matches!(why, Errno::AGAIN | Errno::INTR | Errno::CONNABORTED)
}

impl ControlSocket {
    /// Until the next client has kept us waiting for too long.
    pub fn next_deadline(&self) -> Option<Instant> {
        let owes = self.clients.iter().flatten().filter_map(|client| client.owes_since);
        owes.min().map(|since| since + PATIENCE)
    }

    pub fn accept(&mut self) {
        let slot = match self.free_slot() {
            Ok(slot) => slot,
            Err(until) => {
                let _ = self.poller.remove(self.as_fd());
                self.is_full = true;
                self.backoff.until = Some(until);
                return;
            }
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let stream = match accept_with(&self.listener, flags) {
            Ok(stream) => UnixStream::from(stream),
            Err(why) if is_passing(why) => return,
            Err(why) => {
                let _ = self.poller.remove(self.as_fd());
                if self.backoff.begin() {
                    let why = with_advice(format!("accept: {why}"), &why);
                    warn!("control socket: {why}: trying again every {RETRY_AFTER:?}");
                }
                return;
            }
        };
        self.backoff = AcceptBackoff::default();
        let objection = self.objection(&stream);
        if let Some(why) = &objection {
            self.chatter.say_of(None, || warn!("control client: {why}"));
        }
        let token = Wake::ControlClient(u32::try_from(slot).unwrap_or(u32::MAX)).token();
        match self.poller.add(stream.as_fd(), token) {
            Ok(()) => {
                self.serial += 1;
                let client = Client::new(self.serial, stream, objection);
                self.clients[slot] = Some(client);
            }
            Err(why) => warn!("control client: {why}"),
        }
    }

    /// Clients of another supervisor. One that cannot be kept is disconnected: it asks again.
    pub fn resume_clients(&mut self, clients: &[ClientRecord], serial: u64, fds: &mut RecordFds) {
        for record in clients {
            let stream = fds.take(record.stream).map(Into::into);
            let resumed = stream.and_then(|stream| self.resume_client(record, stream));
            if let Err(why) = resumed {
                warn!("control client: {why:#}");
            }
        }
        self.serial = serial;
    }

    /// A client of another supervisor.
    ///
    /// # Errors
    /// It cannot be watched.
    fn resume_client(&mut self, record: &ClientRecord, stream: UnixStream) -> anyhow::Result<()> {
        let place = self.clients.get(record.slot);
        ensure!(place.is_some_and(Option::is_none), "no place");
        stream.set_nonblocking(true)?;
        let token = Wake::ControlClient(u32::try_from(record.slot)?).token();
        self.poller.add(stream.as_fd(), token)?;
        let objection = self.objection(&stream);
        let mut client = Client::new(record.serial, stream, objection);
        client.is_waiting = record.is_waiting;
        client.input = record.input.clone().into_bytes();
        client.output = record.output.clone().into_bytes();
        self.clients[record.slot] = Some(client);
        self.watch(record.slot);
        Ok(())
    }

    /// A free place; if there is none, one that may not ask makes room, or the client that was
    /// silent for longest, if that is long enough.
    ///
    /// # Errors
    /// None does: until when to wait, if no client ends before.
    fn free_slot(&mut self) -> Result<usize, Instant> {
        let places = &self.clients;
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
                self.drop_client(slot);
                Ok(slot)
            }
            Some((at, ..)) => Err(at),
            None => Err(now + SILENCE),
        }
    }

    /// Takes what a client has sent.
    pub fn receive(&mut self, slot: usize) {
        if let Some(client) = self.client(slot) {
            client.is_broken |= client.receive().is_err();
        }
    }

    /// The next question of a client; one that may not ask is told so.
    pub fn next_question(&mut self, slot: usize) -> Option<(ClientId, String)> {
        if self.is_held {
            return None;
        }
        let client = self.client(slot)?;
        let line = client.next_line()?;
        let id = client.id(slot);
        client.is_waiting = true;
        let Some(why) = client.objection.clone() else { return Some((id, line)) };
        client.is_broken = true;
        self.answer_client(id, &refusal(&[why]));
        None
    }

    /// A client had its turn.
    pub fn end_turn(&mut self, slot: usize) {
        let Some(client) = self.client(slot) else { return };
        let is_alive = client.send().is_ok() && client.check_len().is_ok() && !client.is_over();
        if client.is_broken || !is_alive {
            return self.drop_client(slot);
        }
        client.note_debt(Instant::now());
        self.watch(slot);
    }

    /// Whether a client is ringway's own user, or root.
    pub fn is_trusted(&mut self, id: ClientId) -> bool {
        let client = self.client(id.slot).filter(|client| client.serial == id.serial);
        client.is_some_and(|client| client.is_trusted)
    }

    /// The answer to a client's question; it may be gone.
    pub fn answer_client(&mut self, id: ClientId, reply: &str) {
        self.answer_with(id, reply, Vec::new());
    }

    /// The same, with file descriptors.
    pub fn answer_with(&mut self, id: ClientId, reply: &str, fds: Vec<OwnedFd>) {
        let client = self.client(id.slot).filter(|client| client.serial == id.serial);
        let Some(client) = client else { return };
        client.is_waiting = false;
        client.fds = fds;
        client.output.extend_from_slice(reply.as_bytes());
        client.output.push(b'\n');
        if client.send().is_err() || client.is_over() {
            return self.drop_client(id.slot);
        }
        client.note_debt(Instant::now());
        self.watch(id.slot);
    }

    /// Questions wait for a while; or no more.
    pub fn hold(&mut self, is_held: bool) {
        self.is_held = is_held;
        (0..CLIENTS_MAX).for_each(|slot| self.watch(slot));
    }

    /// The socket is listened to again when its time has come.
    pub fn accept_again(&mut self) {
        if self.backoff.ends(Instant::now()) {
            let _ = self.poller.add(self.as_fd(), Wake::Control.token());
        }
    }

    /// When its time comes.
    pub fn next_accepting(&self) -> Option<Instant> {
        self.backoff.until
    }

    /// Says in the log why a request is refused.
    pub fn say_refused(&mut self, why: &str) {
        self.chatter.say_of(None, || warn!("refused: {why}"));
    }

    /// Clients that owe us something for too long are dropped.
    pub fn drop_slow_clients(&mut self) {
        let now = Instant::now();
        for slot in 0..CLIENTS_MAX {
            let owes = self.clients[slot].as_ref().and_then(|client| client.owes_since);
            if owes.is_some_and(|since| now >= since + PATIENCE) {
                self.drop_client(slot);
            }
        }
    }

    /// Every client goes, as when another control socket takes over.
    pub fn drop_clients(&mut self) {
        (0..CLIENTS_MAX).for_each(|slot| self.drop_client(slot));
    }

    fn watch(&mut self, slot: usize) {
        let Some(Some(client)) = self.clients.get_mut(slot) else { return };
        let is_held = self.is_held && client.output.is_empty();
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
            self.drop_client(slot);
        }
    }

    fn client(&mut self, slot: usize) -> Option<&mut Client> {
        self.clients.get_mut(slot)?.as_mut()
    }

    fn drop_client(&mut self, slot: usize) {
        if let Some(client) = self.clients.get_mut(slot).and_then(Option::take) {
            let _ = self.poller.remove(client.stream.as_fd());
            if std::mem::take(&mut self.is_full) {
                // One that waits has a place now.
                self.backoff.until = Some(Instant::now());
            }
        }
    }
}
