//! All sockets of a router, and what it wants done with them.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use ringway_nat::{Action, Client, Event, Failure, FlowId, Forward, Problem, Protocol, Target};
use ringway_net::{GsoType, Nanos, Packet};
use rustix::io::Errno;

use crate::nat::calls::Skipped;
use crate::nat::clients::{Name, WayBack};
use crate::nat::guest_ports::GuestPorts;
use crate::nat::listeners::{Listener, Listeners, NewConnection};
use crate::nat::open_sockets::OpenSockets;
use crate::nat::opening::errno;
use crate::nat::own_addresses::OwnAddresses;
use crate::nat::part::FramePart;
use crate::nat::resolvers::Resolvers;
use crate::nat::socket::Socket;
use crate::os::poller::{Events, PollEvent};

/// Sockets with news that are looked at in one visit; the others come with the next one.
const EVENTS_MAX: usize = 64;

/// The sockets, and what is needed to open and to serve them.
#[derive(Debug)]
pub(crate) struct Sockets {
    pub(crate) table: OpenSockets,
    pub(crate) own: OwnAddresses,
    pub(crate) ports: GuestPorts,
    pub(crate) resolvers: Resolvers,
    pub(crate) listeners: Listeners,
    /// Flows of whose receive queue something is to be taken off.
    acknowledged: Vec<FlowId>,
    /// Flows to resolvers that have not answered, and when each is looked at.
    pub(crate) asked: VecDeque<(Nanos, FlowId)>,
}

impl Sockets {
    /// None yet, at most `max` of so many flows.
    ///
    /// # Errors
    /// The operating system has no epoll instance left.
    pub(crate) fn new(flows: usize, max: usize, skipped: Skipped) -> io::Result<Self> {
        Ok(Self {
            table: OpenSockets::new(flows, max, skipped)?,
            own: OwnAddresses::new(),
            ports: GuestPorts::default(),
            resolvers: Resolvers::default(),
            listeners: Listeners::default(),
            acknowledged: Vec::with_capacity(flows),
            asked: VecDeque::new(),
        })
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.table.poller.as_fd()
    }

    pub(crate) fn events() -> Events {
        Events::with_capacity(EVENTS_MAX)
    }

    /// Closes all. New flows may have the names of those that were here.
    pub(crate) fn clear(&mut self) {
        self.table.clear();
        self.ports.clear();
        self.acknowledged.clear();
        self.asked.clear();
        self.listeners.forget_flow(|_| true);
    }

    /// Listens elsewhere.
    pub(crate) fn listen(&mut self, kept: &[Forward], added: Vec<Listener>) {
        self.listeners.change(kept, added, &self.table.poller);
    }

    /// Takes connections of the listener with that number; `true`: see [`Listeners::accept`].
    pub(crate) fn accept(&mut self, number: usize, taken: &mut Vec<NewConnection>) -> bool {
        self.listeners.accept(number, &self.table.poller, taken)
    }

    /// After a rest of the listeners.
    pub(crate) fn go_on(&mut self) {
        self.listeners.go_on(&self.table.poller);
    }

    /// A flow of datagrams from outside has the listener's socket, which is watched already.
    pub(crate) fn share(&mut self, flow: FlowId, number: usize, client: &Client) -> bool {
        if self.table.of(flow).is_some() {
            return true;
        }
        let listener = self.listeners.at(number).filter(|_| self.table.has_room());
        let socket = listener.and_then(|it| Socket::of_client(flow, it, client).ok());
        let is_there = socket.is_some();
        if let Some(socket) = socket {
            self.table.put(socket);
        }
        is_there
    }

    /// Datagrams that wait for a client whose flow is over are looked at again; `true`: there are
    /// some.
    pub(crate) fn forget_ended_clients(&mut self) -> bool {
        let table = &self.table;
        self.listeners.forget_flow(|flow| table.get(flow).is_none())
    }

    /// Flows of clients whose place is not listened at any more.
    pub(crate) fn strangers(&self) -> Vec<FlowId> {
        let is_stranger = |socket: &&Socket| {
            let at = socket.way.map(|way| way.bound());
            let is_it = |it: &Forward| it.protocol == Protocol::Udp && it.at.address() == at;
            at.is_some() && !self.listeners.forwards().any(is_it)
        };
        self.table.all().filter(is_stranger).map(|socket| socket.flow).collect()
    }

    /// Sockets with news.
    pub(crate) fn wait(&mut self, events: &mut Events) {
        if self.table.poller.wait(events, Some(std::time::Duration::ZERO)).is_err() {
            events.clear();
        }
    }

    /// Carries out one action, which may make news. `packet`: what the guest sent.
    pub(crate) fn carry_out(&mut self, action: Action, packet: Option<&Packet<'_>>, now: Nanos) {
        match action {
            Action::Open { .. } => self.open(action, now),
            Action::Consume { flow, len } => {
                let Some((socket, _)) = self.table.of(flow) else { return };
                let (takes_cut, is_first) = (socket.takes_cut(), socket.acknowledge(len));
                if takes_cut {
                    self.table.note(flow, Event::Readable);
                }
                if is_first {
                    self.acknowledged.push(flow);
                }
            }
            Action::Send { flow, skip, len } => {
                let Some((socket, vectors)) = self.table.of(flow) else { return };
                let pieces = packet.map_or(&[][..], |packet| packet.payload);
                vectors.begin().add(FramePart { pieces, skip: skip as usize, len: len as usize });
                let event = match socket.send(vectors, len) {
                    Ok(taken) => Event::Sent(taken),
                    Err(why) => Event::Failed(why),
                };
                self.table.note(flow, event);
            }
            Action::SendDatagram { .. } => {
                if let Some(packet) = packet {
                    self.send_datagram(action, packet, now);
                }
            }
            Action::Shutdown { flow } => {
                if let Some((socket, _)) = self.table.of(flow) {
                    socket.shut_down();
                }
            }
            Action::AskRoom { flow } => {
                if let Some(room) = self.table.of(flow).map(|(socket, _)| socket.room()) {
                    self.table.note(flow, Event::Room(room));
                }
            }
            Action::AskEnd { flow } => {
                if self.table.of(flow).is_some_and(|(socket, _)| socket.has_hung_up()) {
                    self.table.note(flow, Event::HungUp);
                }
            }
            // It is the ports' alone.
            Action::FollowGuests => {}
            Action::Close { flow, how } => {
                if let Some(socket) = self.table.take(flow) {
                    let port = socket.port;
                    socket.close(how);
                    if let Some(number) = port {
                        self.leave_port(number, flow);
                    }
                }
            }
        }
    }

    /// Takes off receive queues what guests have acknowledged, after they were given what is behind
    /// it: meanwhile they are busy with that.
    pub(crate) fn take_off(&mut self) {
        while let Some(flow) = self.acknowledged.pop() {
            if let Some((socket, _)) = self.table.of(flow) {
                socket.take_off();
            }
        }
    }

    fn open(&mut self, action: Action, now: Nanos) {
        let Action::Open { flow, protocol, to, port } = action else { return };
        let opened = match to {
            // Guests reach this machine's own addresses only where that was said.
            Target::Address(to) if self.own.contains(to.ip()) => {
                Err(Failure::Unreachable(Problem::Prohibited))
            }
            _ if !self.table.has_room() => Err(Failure::NoRoom),
            Target::Address(to) if protocol != Protocol::Tcp => {
                self.open_datagrams(flow, protocol, to, port)
            }
            Target::Address(to) | Target::Loopback(to) => self.table.open_to(flow, protocol, to),
            Target::Resolver(guest) => self.open_to_resolver(flow, guest, protocol, now),
        };
        match opened {
            Ok(mut socket) => {
                socket.asked_own = now;
                self.table.put(socket);
                self.watch_question(flow);
            }
            Err(why) => {
                if let (Failure::Unreachable(problem), true) = (why, protocol != Protocol::Tcp) {
                    self.table.note(flow, Event::Report { from: None, problem });
                }
                self.table.note(flow, Event::Failed(why));
            }
        }
    }

    fn send_datagram(&mut self, action: Action, packet: &Packet<'_>, now: Nanos) {
        let Action::SendDatagram { flow, skip, len, hops, is_whole_only } = action else { return };
        if self.became_own(flow, now) {
            let problem = Problem::Prohibited;
            self.table.note(flow, Event::Report { from: None, problem });
            return self.table.note(flow, Event::Failed(Failure::Unreachable(problem)));
        }
        let all = FramePart { pieces: packet.payload, skip: skip as usize, len: len as usize };
        self.note_question(flow, all, now);
        let Some((socket, vectors)) = self.table.of(flow) else { return };
        socket.set_way(hops, is_whole_only);
        let is_cut = GsoType::from_raw(packet.header.gso_type) == Some(GsoType::UdpL4);
        let segment_len = Some(packet.header.gso_size).filter(|size| is_cut && *size > 0);
        let (way, to, port) = (socket.way, socket.to, socket.port);
        let way = way.as_ref().map(WayBack::parts).or(to.as_ref().map(Name::way));
        let sent = vectors.send_datagrams(socket.as_fd(), all, segment_len, way);
        let problem = match sent.map_err(|why| errno(&why)) {
            // The kernel has a report of it.
            Err(Errno::MSGSIZE) if to.is_some() => return self.take_reports(flow, now),
            Err(Errno::MSGSIZE) => Problem::TooBig(socket.path_mtu()),
            Err(Errno::NETUNREACH) => Problem::NetworkUnreachable,
            Err(Errno::HOSTUNREACH) => Problem::HostUnreachable,
            Err(Errno::ACCESS | Errno::PERM) => Problem::Prohibited,
            // Datagrams get lost.
            Ok(_) | Err(_) => {
                if let Some(number) = port {
                    self.ports.note_sender(number, flow);
                }
                return;
            }
        };
        self.table.note(flow, Event::Report { from: None, problem });
    }

    /// Turns an event of a socket into the news that it means.
    pub(crate) fn on_event(&mut self, event: &PollEvent, now: Nanos) {
        let flow = FlowId::from_u64(event.token);
        let Some((socket, _)) = self.table.of(flow) else { return };
        if socket.protocol != Protocol::Tcp {
            if event.hang_up {
                self.take_reports(flow, now);
            }
            if event.readable {
                self.table.note(flow, Event::Readable);
            }
            return;
        }
        let may_have_failed = event.hang_up || socket.is_connecting;
        if let Some(why) = may_have_failed.then(|| socket.take_error()).flatten() {
            if socket.is_connecting && self.asks_next(flow, now) {
                return;
            }
            return self.table.note(flow, Event::Failed(why));
        }
        let mut news = None;
        if socket.is_connecting && event.writable {
            socket.is_connecting = false;
            news = Some(Event::Connected { room: socket.room() });
        } else if event.writable && std::mem::take(&mut socket.is_blocked) {
            news = Some(Event::Writable);
        }
        let readable = (event.readable && !socket.is_connecting).then_some(Event::Readable);
        self.table.news.extend(news.into_iter().chain(readable).map(|event| (flow, event)));
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;
    use ringway_nat::ListenAddress;

    #[test]
    fn datagrams_that_wait_for_a_flow_do_not_wait_for_one_of_another_table() {
        let mut sockets = Sockets::new(4, 4, Skipped::new(true)).unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let at = ListenAddress::Address(socket.local_addr().unwrap());
        let forward = Forward { protocol: Protocol::Udp, at, guest: "vm0".into(), to: 53 };
        sockets.listen(&[], vec![Listener { forward, fd: socket.into() }]);
        sockets.listeners.set_flow(0, Some(FlowId::from_u64(0)));
        assert_eq!(sockets.listeners.readable().count(), 0);
        sockets.clear();
        assert!(sockets.listeners.readable().eq([0]));
    }
}
