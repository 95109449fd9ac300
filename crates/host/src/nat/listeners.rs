//! Sockets that wait for connections into guests.
//!
//! Limits: [`ACCEPTS_MAX`] connections of one listener in a visit. Where the process has no file
//! descriptor left a listener rests, because it stays readable.

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{SocketFlags, acceptfrom_with};

use crate::os::poller::Poller;

/// Connections of one listener that are taken in one visit.
const ACCEPTS_MAX: usize = 16;

/// Of words that epoll carries: no flow has such a place in the table.
const FIRST_TOKEN: u64 = 0xffff_0000;

/// A port of this machine that leads into a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forward {
    /// Where the machine listens.
    pub at: SocketAddr,
    /// Behind which port of the switch the guest is.
    pub guest: String,
    /// The guest's port.
    pub to: u16,
}

/// A socket that listens for it.
#[derive(Debug)]
pub struct Listener {
    /// What it leads to.
    pub forward: Forward,
    /// The socket, which does not wait.
    pub fd: OwnedFd,
}

/// A connection: its socket, from where it comes, and what it is for.
pub(crate) type Taken = (OwnedFd, SocketAddr, Forward);

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Listeners {
    list: Vec<Listener>,
    /// No file descriptor was left.
    is_resting: bool,
}

impl Listeners {
    /// Whether the word stands for one of them, and which.
    pub(crate) fn number(token: u64) -> Option<usize> {
        let number = (token & 0xffff_ffff).checked_sub(FIRST_TOKEN)?;
        usize::try_from(number).ok()
    }

    /// Closes those whose place is not in `kept` any more, lets the others lead where that says,
    /// and adds more. Connections stay.
    pub(crate) fn change(&mut self, kept: &[Forward], added: Vec<Listener>, poller: &Poller) {
        self.watch(false, poller);
        self.list.retain_mut(|listener| {
            let now = kept.iter().find(|forward| forward.at == listener.forward.at);
            listener.forward = now.unwrap_or(&listener.forward).clone();
            now.is_some()
        });
        self.list.extend(added);
        self.watch(true, poller);
    }

    pub(crate) fn forwards(&self) -> impl Iterator<Item = &Forward> {
        self.list.iter().map(|listener| &listener.forward)
    }

    fn watch(&mut self, is_watched: bool, poller: &Poller) {
        for (token, listener) in (FIRST_TOKEN..).zip(&self.list) {
            let fd = listener.fd.as_fd();
            // A listener that cannot be watched is one that nothing comes from.
            let _ = if is_watched { poller.add(fd, token) } else { poller.remove(fd) };
        }
        self.is_resting = !is_watched;
    }

    /// After a rest.
    pub(crate) fn go_on(&mut self, poller: &Poller) {
        if self.is_resting && !self.list.is_empty() {
            self.watch(true, poller);
        }
    }

    /// Takes connections; `true`: no file descriptor is left, and all rest.
    pub(crate) fn accept(
        &mut self,
        number: usize,
        poller: &Poller,
        taken: &mut Vec<Taken>,
    ) -> bool {
        let Some(listener) = self.list.get(number) else { return false };
        for _ in 0..ACCEPTS_MAX {
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            match acceptfrom_with(&listener.fd, flags) {
                Ok((fd, from)) => {
                    let from = from.and_then(|from| SocketAddr::try_from(from).ok());
                    let Some(from) = from else { continue };
                    taken.push((fd, from, listener.forward.clone()));
                }
                Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                    self.watch(false, poller);
                    return true;
                }
                // It was reset meanwhile, or there is none.
                Err(Errno::CONNABORTED | Errno::INTR) => {}
                Err(_) => break,
            }
        }
        false
    }
}
