//! Messages to a service manager (sd_notify(3)), and what it keeps for the next supervisor: every
//! record with its file descriptors, if it has a store for them (`FDSTORE`, systemd 254).
//!
//! A record is kept as one file descriptor: a socket in whose queue are its text, as a file in
//! memory, and its file descriptors. So the same file may be in it twice, and the manager never
//! closes one of a front-end as its own.
//!
//! Limits: a supervisor that is killed between two instructions may have read what it has not
//! stored; that front-end then waits until its guest is reset.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

use anyhow::Context;
use ringway_supervisor::wire::MESSAGE_FDS_MAX;
use rustix::cmsg_space;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::time::{ClockId, clock_gettime};

use crate::channel::Channel;
use crate::supervisor::record::{LINK, Record, RecordFds, StoredRecord, TEXT_LEN_MAX, WHOLE};
use crate::supervisor::setup::os::since_boot;

/// A manager that does not listen for so long keeps nothing new.
const LISTENS_WITHIN: Duration = Duration::from_secs(1);

/// The number of the first file descriptor that a service manager passes.
const FIRST: i32 = 3;

/// The socket of the manager, and what it keeps.
#[derive(Default)]
pub struct FdStore {
    socket: Option<UnixDatagram>,
    has_store: bool,
    /// Kept records, by their key: the name, and the text.
    kept: BTreeMap<String, (String, String)>,
    /// Kept for the supervisor before; removed when everything is kept anew.
    left: Vec<String>,
    watchdog: Option<(Duration, Instant)>,
}

/// That the file is read again: since when is what `Type=notify-reload` compares.
pub fn reloading() -> String {
    let now = clock_gettime(ClockId::Monotonic);
    let now = Duration::try_from(now).unwrap_or_default().as_micros();
    format!("RELOADING=1\nMONOTONIC_USEC={now}")
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

impl FdStore {
    /// The one that the environment names; `left`: names of what it keeps already.
    pub fn of_environment(left: Vec<String>) -> Self {
        let path = std::env::var("NOTIFY_SOCKET").unwrap_or_default();
        let address = match path.strip_prefix('@') {
            Some(name) => SocketAddr::from_abstract_name(name),
            None => SocketAddr::from_pathname(&path),
        };
        let connect = |address| {
            let socket = UnixDatagram::unbound()?;
            socket.connect_addr(&address)?;
            socket.set_write_timeout(Some(LISTENS_WITHIN)).map(|()| socket)
        };
        let socket = address.and_then(connect).ok().filter(|_| !path.is_empty());
        let has_store = socket.is_some() && number("FDSTORE").is_some_and(|count| count > 0);
        let is_ours = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
        let watchdog = number("WATCHDOG_USEC").filter(|_| is_ours && socket.is_some());
        let watchdog = watchdog.map(|us| (Duration::from_micros(us) / 2, Instant::now()));
        Self { socket, has_store, kept: BTreeMap::new(), left, watchdog }
    }

    /// Whether there is a manager.
    pub fn is_of_service(&self) -> bool {
        self.socket.is_some()
    }

    /// Tells it; that it does not listen changes nothing.
    pub fn tell(&self, text: &str) {
        if let Some(socket) = &self.socket {
            let _ = socket.send(text.as_bytes());
        }
    }

    /// When it is to be told again that this process goes on.
    pub fn next_sign_of_life(&self) -> Option<Instant> {
        self.watchdog.map(|(_, at)| at)
    }

    pub fn give_sign_of_life(&mut self) {
        let now = Instant::now();
        if let Some((every, at)) = self.watchdog.filter(|(_, at)| *at <= now) {
            self.tell("WATCHDOG=1");
            self.watchdog = Some((every, at.max(now) + every));
        }
    }

    /// From now on nothing is kept.
    pub fn store_nothing(&mut self) {
        self.has_store = false;
    }

    pub fn has_store(&self) -> bool {
        self.has_store
    }

    /// Names of all that it keeps.
    pub fn names(&self) -> Vec<String> {
        let kept = self.kept.values().map(|(name, _)| name.clone());
        kept.chain(self.left.iter().cloned()).collect()
    }

    /// Keeps that record, in the place of the one before with the same key, unless it says the
    /// same.
    pub fn keep(&mut self, key: &str, record: Record<'_>) {
        if !self.has_store || self.kept.get(key).is_some_and(|(_, text)| *text == record.text) {
            return;
        }
        let name = format!("{key}-{}", since_boot().as_nanos());
        if let Err(why) = self.store(&name, &record) {
            return tracing::warn!("the service manager keeps nothing of {key}: {why:#}");
        }
        if let Some((before, _)) = self.kept.insert(key.to_owned(), (name, record.text)) {
            self.forget(&before);
        }
    }

    fn store(&self, name: &str, record: &Record<'_>) -> anyhow::Result<()> {
        let (ours, stored) = Channel::pair()?;
        let mut text = File::from(memfd_create("ringway-record", MemfdFlags::CLOEXEC)?);
        text.write_all(record.text.as_bytes())?;
        let fds: Vec<BorrowedFd<'_>> =
            std::iter::once(text.as_fd()).chain(record.fds.iter().copied()).collect();
        for some in fds.chunks(MESSAGE_FDS_MAX) {
            ours.try_send(&[0], some)?;
        }
        // It looks closed once our end of it is.
        let text = format!("FDSTORE=1\nFDNAME={name}\nFDPOLL=0");
        let mut space = [std::mem::MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let fds = [stored.as_fd()];
        ancillary.push(SendAncillaryMessage::ScmRights(&fds));
        let text = [std::io::IoSlice::new(text.as_bytes())];
        let socket = self.socket.as_ref().context("no socket")?;
        sendmsg(socket, &text, &mut ancillary, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    fn forget(&self, name: &str) {
        self.tell(&format!("FDSTOREREMOVE=1\nFDNAME={name}"));
    }

    /// Everything is kept; what has none of these keys is not needed any more.
    pub fn keep_only(&mut self, keys: &[String]) {
        let others: Vec<_> = self.kept.extract_if(.., |key, _| !keys.contains(key)).collect();
        let left = std::mem::take(&mut self.left);
        others.into_iter().map(|(_, (name, _))| name).chain(left).for_each(|it| self.forget(&it));
    }
}

/// File descriptors that a service manager has passed, with their names. To be called once: they
/// belong to the caller.
fn inherited() -> Vec<(String, OwnedFd)> {
    let is_ours = number("LISTEN_PID") == Some(u64::from(std::process::id()));
    let count = number("LISTEN_FDS").and_then(|count| usize::try_from(count).ok());
    let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
    let numbers = (FIRST..).zip(names.split(':')).take(count.filter(|_| is_ours).unwrap_or(0));
    let fds = numbers
        .filter_map(|(at, name)| Some((name.to_owned(), ringway_host::take_inherited_fd(at)?)));
    fds.collect()
}

/// The key, and when it was kept, if that is a name of something kept.
fn key_of(name: &str) -> Option<(&str, u128)> {
    let (key, time) = name.rsplit_once('-')?;
    let is_link = |number: &str| number.parse::<u32>().is_ok();
    let is_ours = key == WHOLE || key.strip_prefix(LINK).is_some_and(is_link);
    Some((key, time.parse().ok().filter(|_| is_ours)?))
}

/// File descriptors that this process was started with: see [`found`], and sockets with their
/// names.
pub struct InheritedFds {
    pub kept: anyhow::Result<(Vec<StoredRecord>, Vec<String>)>,
    pub sockets: Vec<(String, OwnedFd)>,
}

/// To be called once.
pub fn passed() -> InheritedFds {
    let is_kept = |(name, _): &(String, OwnedFd)| key_of(name).is_some();
    let (kept, sockets) = inherited().into_iter().partition(is_kept);
    InheritedFds { kept: found(kept), sockets }
}

/// The records that a manager has kept, the newest of each key, and the names of all. Empty: none.
fn found(kept: Vec<(String, OwnedFd)>) -> anyhow::Result<(Vec<StoredRecord>, Vec<String>)> {
    let (mut newest, mut all) = (BTreeMap::<String, (u128, OwnedFd)>::new(), Vec::new());
    for (name, fd) in kept {
        let Some((key, time)) = key_of(&name) else { continue };
        if newest.get(key).is_none_or(|(known, _)| *known < time) {
            newest.insert(key.to_owned(), (time, fd));
        }
        all.push(name);
    }
    let whole = newest.remove(WHOLE).map(|(_, fd)| fd);
    let links = newest.into_values().map(|(_, fd)| fd);
    let found = whole.into_iter().chain(links).map(unpack);
    Ok((found.collect::<anyhow::Result<_>>()?, all))
}

fn unpack(stored: OwnedFd) -> anyhow::Result<StoredRecord> {
    let stored = Channel::over(stored);
    let mut fds = Vec::new();
    while let Ok(packet) = stored.receive_with_fds(false) {
        fds.extend(packet.fds);
    }
    anyhow::ensure!(!fds.is_empty(), "the service manager has kept nothing in it");
    let (mut file, mut text) = (File::from(fds.remove(0)), String::new());
    std::io::Seek::rewind(&mut file)?;
    file.take(TEXT_LEN_MAX).read_to_string(&mut text)?;
    Ok(StoredRecord { text, fds: RecordFds::new(fds.into_iter().map(Some)) })
}
