//! Sockets that wait for connections into guests.
//!
//! Limits: [`ACCEPTS_MAX`] connections of one listener in a visit. Where the process has no file
//! descriptor left a listener rests, because it stays readable.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};

use ringway_nat::{Client, FlowId, Forward, ListenAddress, Protocol};
use rustix::io::Errno;
use rustix::net::{SocketFlags, acceptfrom_with};

use crate::nat::calls::discard;
use crate::nat::clients;
use crate::nat::queue_len::set_queue_len;
use crate::os::poller::Poller;

/// Connections of one listener that are taken in one visit.
const ACCEPTS_MAX: usize = 16;

/// Of words that epoll carries: no flow has such a place in the table.
const FIRST_TOKEN: u64 = 0xffff_0000;

/// Ports that clients of Unix sockets get, in place of one of their own.
const LOCAL_PORTS: std::ops::RangeInclusive<u16> = 1024..=65_535;

/// A socket that listens for it.
#[derive(Debug)]
pub struct Listener {
    /// The forward that it leads to.
    pub forward: Forward,
    /// The socket, which does not wait.
    pub fd: OwnedFd,
}

/// A connection: its socket, from where it comes, and what it is for.
#[derive(Debug)]
pub(crate) struct NewConnection {
    pub fd: OwnedFd,
    pub from: SocketAddr,
    pub forward: Forward,
}

/// Datagrams that came to one of them.
#[derive(Debug, Clone, Copy, Default)]
struct Waiting {
    /// There may be some.
    is_readable: bool,
    /// The flow that gets the next one.
    flow: Option<FlowId>,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Listeners {
    list: Vec<Listener>,
    /// Of each that datagrams come to: what is known of the next one.
    waiting: Vec<Waiting>,
    /// No file descriptor was left.
    is_resting: bool,
    /// The port that the last client of a Unix socket got.
    last_local: u16,
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
            let now = kept.iter().find(|forward| forward.is_at_place_of(&listener.forward));
            listener.forward = now.unwrap_or(&listener.forward).clone();
            now.is_some()
        });
        for listener in &added {
            if listener.forward.protocol == Protocol::Udp {
                set_queue_len(listener.fd.as_fd(), None);
            }
        }
        self.list.extend(added);
        // Each is looked at once more.
        self.waiting = vec![Waiting { is_readable: true, flow: None }; self.list.len()];
        self.watch(true, poller);
    }

    pub(crate) fn at(&self, number: usize) -> Option<&Listener> {
        self.list.get(number)
    }

    /// The one at that address.
    pub(crate) fn bound_to(&self, protocol: Protocol, bound: SocketAddr) -> Option<&Listener> {
        let is_it = |forward: &Forward| forward.at == ListenAddress::Address(bound);
        let mut of_protocol = self.list.iter().filter(|it| it.forward.protocol == protocol);
        of_protocol.find(|listener| is_it(&listener.forward))
    }

    /// Numbers of those that datagrams may have come to, the next of which has no flow yet.
    pub(crate) fn readable(&self) -> impl Iterator<Item = usize> + use<> {
        let is_it = |waiting: &Waiting| waiting.is_readable && waiting.flow.is_none();
        let all = self.waiting.iter().enumerate().filter(|(_, waiting)| is_it(waiting));
        all.map(|(number, _)| number).collect::<Vec<_>>().into_iter()
    }

    /// The client that has sent the next datagram, and the forward that says where it is to go.
    pub(crate) fn next(&mut self, number: usize) -> Option<(Client, &Forward)> {
        let Listener { forward, fd } = self.list.get(number)?;
        let waiting = self.waiting.get_mut(number)?;
        if forward.protocol != Protocol::Udp {
            waiting.is_readable = false;
            return None;
        }
        let client = forward.at.address().and_then(|bound| clients::next(fd.as_fd(), bound));
        waiting.is_readable = client.is_some();
        Some((client?, forward))
    }

    /// The next datagram is that flow's; `None`: it is not to be had by any, and is gone.
    pub(crate) fn set_flow(&mut self, number: usize, flow: Option<FlowId>) {
        if let Some(waiting) = self.waiting.get_mut(number) {
            waiting.flow = flow;
        }
        if let (None, Some(listener)) = (flow, self.at(number)) {
            let _ = discard(listener.fd.as_fd(), 0);
        }
    }

    /// That flow has taken the next datagram of a listener, or will not: the one behind it is
    /// looked at.
    pub(crate) fn forget_flow(&mut self, is_over: impl Fn(FlowId) -> bool) -> bool {
        let mut any = false;
        for waiting in &mut self.waiting {
            if waiting.flow.is_some_and(&is_over) {
                (waiting.flow, any) = (None, true);
            }
        }
        any
    }

    /// Datagrams have come to it, if it is one for datagrams.
    pub(crate) fn note(&mut self, number: usize) -> bool {
        let is_it = |listener: &Listener| listener.forward.protocol == Protocol::Udp;
        let is_it = self.list.get(number).is_some_and(is_it);
        if let Some(waiting) = self.waiting.get_mut(number).filter(|_| is_it) {
            waiting.is_readable = true;
        }
        is_it
    }

    pub(crate) fn forwards(&self) -> impl Iterator<Item = &Forward> {
        self.list.iter().map(|listener| &listener.forward)
    }

    fn watch(&mut self, is_watched: bool, poller: &Poller) {
        for (token, listener) in (FIRST_TOKEN..).zip(&self.list) {
            let fd = listener.fd.as_fd();
            // A listener that cannot be watched is one that nothing comes from.
            let _ = match (is_watched, listener.forward.protocol) {
                (false, _) => poller.remove(fd),
                // Datagrams may stay there as long as their guest has no room.
                (true, Protocol::Udp) => poller.add_edge(fd, token),
                (true, _) => poller.add(fd, token),
            };
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
        taken: &mut Vec<NewConnection>,
    ) -> bool {
        let Some(listener) = self.list.get(number) else { return false };
        for _ in 0..ACCEPTS_MAX {
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            match acceptfrom_with(&listener.fd, flags) {
                Ok((fd, from)) => {
                    let from = match &listener.forward.at {
                        ListenAddress::Address(_) => from.and_then(|from| from.try_into().ok()),
                        ListenAddress::Unix(_) => {
                            self.last_local = port_behind(self.last_local);
                            Some((Ipv4Addr::LOCALHOST, self.last_local).into())
                        }
                    };
                    let Some(from) = from else { continue };
                    taken.push(NewConnection { fd, from, forward: listener.forward.clone() });
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

/// The next one, and behind the last one the first.
fn port_behind(port: u16) -> u16 {
    port.wrapping_add(1).max(*LOCAL_PORTS.start())
}
