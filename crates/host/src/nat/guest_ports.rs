//! Ports of guests outside: all flows of datagrams from one port of a guest go through one socket,
//! which is not connected, so that every other end sees the same port (RFC 4787 REQ-1), and an
//! address that the host gets or loses makes no difference.

use std::collections::HashMap;
use std::sync::Arc;

use ringway_nat::{FlowId, Guest, GuestPort};

use crate::nat::shared_fd::SharedFd;

/// Of words that epoll carries: in front of those of listeners. No flow has such a place.
const FIRST_TOKEN: u64 = 0xfffe_0000;
const TOKENS: u64 = 0x1_0000;

#[derive(Debug)]
struct Port {
    end: GuestPort,
    fd: Arc<SharedFd>,
    flows: Vec<FlowId>,
    /// The flow that has sent last: most likely the next datagram is one of it.
    last: FlowId,
}

/// All of them, by their numbers.
#[derive(Debug, Default)]
pub(crate) struct GuestPorts {
    list: Vec<Option<Port>>,
    free: Vec<usize>,
    numbers: HashMap<GuestPort, usize>,
}

impl GuestPorts {
    /// Whether the word stands for one of them, and which.
    pub(crate) fn number(token: u64) -> Option<usize> {
        let number = (token & 0xffff_ffff).checked_sub(FIRST_TOKEN)?;
        usize::try_from(number).ok().filter(|_| number < TOKENS)
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    fn at(&mut self, number: usize) -> Option<&mut Port> {
        self.list.get_mut(number)?.as_mut()
    }

    fn port(&self, number: usize) -> Option<&Port> {
        self.list.get(number)?.as_ref()
    }

    pub(crate) fn fd(&self, number: usize) -> Option<Arc<SharedFd>> {
        self.port(number).map(|port| Arc::clone(&port.fd))
    }

    pub(crate) fn flows(&self, number: usize) -> &[FlowId] {
        self.port(number).map_or(&[], |port| &port.flows)
    }

    /// The flow that has sent last through it.
    pub(crate) fn last(&self, number: usize) -> Option<FlowId> {
        self.port(number).map(|port| port.last)
    }

    /// One more flow goes through that port of a guest, if there is one already.
    pub(crate) fn join(&mut self, end: GuestPort, flow: FlowId) -> Option<(usize, Arc<SharedFd>)> {
        let number = *self.numbers.get(&end)?;
        let port = self.at(number)?;
        port.flows.push(flow);
        Some((number, Arc::clone(&port.fd)))
    }

    /// The word that stands for the next one; `None`: there is none left.
    pub(crate) fn next_token(&self) -> Option<u64> {
        let number = u64::try_from(self.next()).ok().filter(|number| *number < TOKENS)?;
        Some(FIRST_TOKEN + number)
    }

    fn next(&self) -> usize {
        self.free.last().copied().unwrap_or(self.list.len())
    }

    /// A port that no flow had before; its number.
    pub(crate) fn add(&mut self, end: GuestPort, fd: Arc<SharedFd>, flow: FlowId) -> usize {
        let number = self.next();
        let port = Some(Port { end, fd, flows: vec![flow], last: flow });
        match self.free.pop() {
            Some(number) => self.list[number] = port,
            None => self.list.push(port),
        }
        self.numbers.insert(end, number);
        number
    }

    /// Flows are other guests' than before, and so are their ports.
    pub(crate) fn follow(&mut self, guest_of: impl Fn(FlowId) -> Option<Guest>) {
        for (number, port) in self.list.iter_mut().enumerate() {
            let Some(port) = port else { continue };
            let (before, end) = (port.end, guest_of(port.last).map(|guest| (guest, port.end.1)));
            let Some(end) = end.filter(|end| *end != before) else { continue };
            port.end = end;
            self.numbers.remove(&before);
            // New flows go on through the one that the guest has there already.
            self.numbers.entry(end).or_insert(number);
        }
    }

    /// A flow goes through it now.
    pub(crate) fn note_sender(&mut self, number: usize, flow: FlowId) {
        if let Some(port) = self.at(number) {
            port.last = flow;
        }
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    /// A flow does not go through it any more; another one that does.
    pub(crate) fn leave(&mut self, number: usize, flow: FlowId) -> Option<FlowId> {
        let port = self.at(number)?;
        if let Some(place) = port.flows.iter().position(|other| *other == flow) {
            port.flows.swap_remove(place);
        }
        let Some(other) = port.flows.last().copied() else {
            let end = port.end;
            if self.numbers.get(&end) == Some(&number) {
                self.numbers.remove(&end);
            }
            self.list[number] = None;
            self.free.push(number);
            return None;
        };
        if port.last == flow {
            port.last = other;
        }
        Some(other)
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    /// A guest that has moved keeps its ports outside, and another one behind its old port with the
    /// same address has others.
    #[test]
    fn ports_follow_the_guests_of_their_flows() {
        let fd = || {
            Arc::new(SharedFd::from(std::os::fd::OwnedFd::from(
                UdpSocket::bind("127.0.0.1:0").unwrap(),
            )))
        };
        let end = |guest| (Guest(guest), ([10, 0, 2, 15], 4000).into());
        let [one, two, three] = [1, 2, 3].map(FlowId::from_u64);
        let mut ports = GuestPorts::default();
        let first = ports.add(end(1), fd(), one);
        let of_another = ports.add(end(3), fd(), three);
        ports.follow(|flow| Some(Guest(if flow == one { 2 } else { 3 })));
        assert!(ports.join(end(1), two).is_none());
        assert_eq!(ports.join(end(2), two).map(|(number, _)| number), Some(first));
        // It comes to where there is one already, and leaves that one alone.
        ports.follow(|_| Some(Guest(3)));
        assert_eq!(ports.leave(first, two), Some(one));
        assert_eq!(ports.leave(first, one), None);
        assert_eq!(ports.join(end(3), two).map(|(number, _)| number), Some(of_another));
        let again = ports.add(end(2), fd(), one);
        assert_eq!(ports.leave(again, one), None);
        assert_eq!([three, two].map(|flow| ports.leave(of_another, flow)), [Some(two), None]);
        assert!(ports.is_empty());
    }
}
