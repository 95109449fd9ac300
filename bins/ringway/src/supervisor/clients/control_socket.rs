//! The control socket: where it is, and who may ask.
//!
//! A client may ask if it can open the socket's file, and is the daemon's own user, root, or in the
//! group that was named.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::rc::Rc;

use anyhow::anyhow;
use ringway_host::{PeerCredentials, Poller};
use ringway_vhost_user::{Access, FilePart, Listener, Made, SocketError};
use rustix::process::{getegid, geteuid};

use super::accept_backoff::AcceptBackoff;
use super::control_client::{Client, is_trusted};
use crate::chatter::Chatter;
use crate::config::Settings;
use crate::places;
use crate::supervisor::front_ends::peer;
use crate::supervisor::record::{ClientRecord, Fds, ListenerRecord, RecordFds};
use crate::supervisor::setup::wake::Wake;

/// Clients served at the same time.
pub const CLIENTS_MAX: usize = 16;

/// The listening socket and its clients.
pub struct ControlSocket {
    pub poller: Rc<Poller>,
    pub listener: Listener,
    /// Its members may ask too.
    group: Option<u32>,
    pub clients: [Option<Client>; CLIENTS_MAX],
    /// Clients so far.
    pub serial: u64,
    /// All places are taken, and no client may be dropped: others wait.
    pub is_full: bool,
    /// No question is taken.
    pub is_held: bool,
    pub backoff: AcceptBackoff,
    /// Lines that clients are the reason for.
    pub chatter: Chatter,
}

impl ControlSocket {
    /// Listens as the settings say; a socket file on which no process listens any more is replaced.
    pub fn bind(settings: &Settings, poller: &Rc<Poller>) -> anyhow::Result<Self> {
        let path = settings.control.as_path();
        places::prepare(path, path)?;
        let listener = Listener::bind(path).map_err(|why| match peer::in_use(&why) {
            Some(who) => {
                let stop = places::how_to_stop(path);
                anyhow!("{who}: stop it with: {stop}, or choose another path (--control SOCKET)")
            }
            None => anyhow!("{why} (--control SOCKET)"),
        })?;
        let socket = Self::new(listener, settings, poller);
        socket.permit(settings)?;
        Ok(socket)
    }

    fn new(listener: Listener, settings: &Settings, poller: &Rc<Poller>) -> Self {
        let group = settings.control_group.as_ref().map(|group| group.id);
        let (clients, backoff) = (Default::default(), AcceptBackoff::default());
        let (serial, chatter, poller) = (0, Chatter::new(), poller.clone());
        let (is_full, is_held) = (false, false);
        Self { poller, listener, group, clients, serial, is_full, is_held, backoff, chatter }
    }

    /// A socket that a service manager has made, and says who may open; its file stays.
    pub fn over(socket: OwnedFd, settings: &Settings, poller: &Rc<Poller>) -> anyhow::Result<Self> {
        let record = ListenerRecord {
            fd: 0,
            path: settings.control.clone(),
            file: Made::BY_OTHERS.file,
            made_for: Made::BY_OTHERS.made_for,
        };
        Self::resume(&record, settings, &mut RecordFds::new([Some(socket)]), poller)
    }

    /// One that another supervisor had, without its clients.
    ///
    /// # Errors
    /// It did not come along.
    pub fn resume(
        record: &ListenerRecord,
        settings: &Settings,
        fds: &mut RecordFds,
        poller: &Rc<Poller>,
    ) -> anyhow::Result<Self> {
        let mut made = record.made();
        if made.made_for == (0, 0) && made.file != Made::BY_OTHERS.file {
            // An older supervisor did not record the owner: it was the process's own.
            made.made_for = (geteuid().as_raw(), getegid().as_raw());
        }
        let listener = Listener::resume(fds.take(record.fd)?, &record.path, made)?;
        Ok(Self::new(listener, settings, poller))
    }

    /// The record of it for the next supervisor.
    pub fn record<'a>(&'a self, fds: &mut Fds<'a>) -> ListenerRecord {
        ListenerRecord::of(&self.listener, fds)
    }

    /// The same of its clients.
    pub fn client_records<'a>(&'a self, fds: &mut Fds<'a>) -> Vec<ClientRecord> {
        let clients = self.clients.iter().enumerate();
        clients.filter_map(|(slot, client)| client.as_ref()?.record(slot, fds)).collect()
    }

    pub fn serial(&self) -> u64 {
        self.serial
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

    /// Follows other settings: clients that are connected stay unless the socket is elsewhere.
    ///
    /// # Errors
    /// It stays as it is.
    pub fn follow(&mut self, settings: &Settings) -> anyhow::Result<()> {
        if settings.control == self.listener.path() {
            self.permit(settings)?;
            self.group = settings.control_group.as_ref().map(|group| group.id);
            return Ok(());
        }
        let other = Self::bind(settings, &self.poller)?;
        self.poller.add(other.as_fd(), Wake::Control.token())?;
        self.drop_clients();
        let _ = self.poller.remove(self.as_fd());
        *self = other;
        Ok(())
    }

    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// Why this peer may not ask, if it may not.
    pub fn objection(&self, stream: &UnixStream) -> Option<String> {
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
