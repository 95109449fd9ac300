//! All sockets of a router, and what it wants done with them.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use ringway_nat::{
    Action, Client, Close, Event, Failure, FlowId, Forward, Problem, Protocol, Target,
};
use ringway_net::{GsoType, Nanos, Packet};
use rustix::io::Errno;

use crate::nat::calls::{Skipped, Vectors};
use crate::nat::clients::{Name, WayBack};
use crate::nat::guest_ports::GuestPorts;
use crate::nat::listeners::{Listener, Listeners, NewConnection};
use crate::nat::opening::errno;
use crate::nat::own_addresses::OwnAddresses;
use crate::nat::part::FramePart;
use crate::nat::resolvers::Resolvers;
use crate::nat::socket::Socket;
use crate::os::poller::{Events, PollEvent, Poller};

/// Sockets with news that are looked at in one visit; the others come with the next one.
const EVENTS_MAX: usize = 64;

/// News that one call may lead to, for which there is room from the start.
const NEWS_MAX: usize = 64;

/// The sockets, by their flow's place in the table.
#[derive(Debug)]
pub(crate) struct Sockets {
    pub(crate) list: Vec<Option<Socket>>,
    pub(crate) poller: Poller,
    pub(crate) own: OwnAddresses,
    pub(crate) ports: GuestPorts,
    pub(crate) resolvers: Resolvers,
    pub(crate) vectors: Vectors,
    pub(crate) listeners: Listeners,
    /// News of flows that the router has not been told, the oldest first.
    pub(crate) news: VecDeque<(FlowId, Event)>,
    /// Most of them.
    max: usize,
    count: usize,
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
            list: std::iter::repeat_with(|| None).take(flows).collect(),
            poller: Poller::new()?,
            own: OwnAddresses::new(),
            ports: GuestPorts::default(),
            resolvers: Resolvers::default(),
            vectors: Vectors::new(skipped),
            listeners: Listeners::default(),
            news: VecDeque::with_capacity(NEWS_MAX),
            max,
            count: 0,
            acknowledged: Vec::with_capacity(flows),
            asked: VecDeque::new(),
        })
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.poller.as_fd()
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    pub(crate) fn events() -> Events {
        Events::with_capacity(EVENTS_MAX)
    }

    /// The socket of a flow that is not over, and where a message is put together.
    pub(crate) fn of(&mut self, flow: FlowId) -> Option<(&mut Socket, &mut Vectors)> {
        let socket = self.list.get_mut(flow.index())?.as_mut();
        socket.filter(|socket| socket.flow == flow).map(|socket| (socket, &mut self.vectors))
    }

    /// Closes all. New flows may have the names of those that were here.
    pub(crate) fn clear(&mut self) {
        for socket in self.list.iter_mut().filter_map(Option::take) {
            socket.close(Close::Reset);
        }
        self.count = 0;
        self.ports.clear();
        self.acknowledged.clear();
        self.asked.clear();
        self.listeners.forget_flow(|_| true);
    }

    /// Listens elsewhere.
    pub(crate) fn listen(&mut self, kept: &[Forward], added: Vec<Listener>) {
        self.listeners.change(kept, added, &self.poller);
    }

    /// Takes connections of the listener with that number; `true`: see [`Listeners::accept`].
    pub(crate) fn accept(&mut self, number: usize, taken: &mut Vec<NewConnection>) -> bool {
        self.listeners.accept(number, &self.poller, taken)
    }

    /// After a rest of the listeners.
    pub(crate) fn go_on(&mut self) {
        self.listeners.go_on(&self.poller);
    }

    pub(crate) fn has_room(&self) -> bool {
        self.count < self.max
    }

    /// A socket has a flow now.
    pub(crate) fn adopt(&mut self, flow: FlowId, mut socket: Socket) {
        socket.flow = flow;
        // One that cannot be watched says nothing, and its flow ends in time.
        let _ = self.poller.add_edge_both(socket.as_fd(), flow.to_u64());
        self.put(socket);
    }

    /// A flow of datagrams from outside has the listener's socket, which is watched already.
    pub(crate) fn share(&mut self, flow: FlowId, number: usize, client: &Client) -> bool {
        if self.of(flow).is_some() {
            return true;
        }
        let listener = self.listeners.at(number).filter(|_| self.has_room());
        let socket = listener.and_then(|it| Socket::of_client(flow, it, client).ok());
        let is_there = socket.is_some();
        if let Some(socket) = socket {
            self.put(socket);
        }
        is_there
    }

    /// Datagrams that wait for a client whose flow is over are looked at again; `true`: there are
    /// some.
    pub(crate) fn forget_ended_clients(&mut self) -> bool {
        let list = &self.list;
        self.listeners.forget_flow(|flow| {
            let socket = list.get(flow.index()).and_then(Option::as_ref);
            socket.is_none_or(|socket| socket.flow != flow)
        })
    }

    /// Flows of clients whose place is not listened at any more.
    pub(crate) fn strangers(&self) -> Vec<FlowId> {
        let is_stranger = |socket: &&Socket| {
            let at = socket.way.map(|way| way.bound());
            let is_it = |it: &Forward| it.protocol == Protocol::Udp && it.at.address() == at;
            at.is_some() && !self.listeners.forwards().any(is_it)
        };
        self.list.iter().flatten().filter(is_stranger).map(|socket| socket.flow).collect()
    }

    /// The flow of that client of a socket bound to `bound`.
    pub(crate) fn flow_to(&self, client: SocketAddr, bound: SocketAddr) -> Option<FlowId> {
        let is_it = |socket: &&Socket| socket.way.is_some_and(|way| way.is_to(client, bound));
        self.list.iter().flatten().find(is_it).map(|socket| socket.flow)
    }

    pub(crate) fn put(&mut self, socket: Socket) {
        let Some(place) = self.list.get_mut(socket.flow.index()) else { return };
        let before = place.replace(socket);
        assert!(before.is_none(), "a flow's place is free once its socket is closed");
        self.count += 1;
    }

    /// Sockets with news.
    pub(crate) fn wait(&mut self, events: &mut Events) {
        if self.poller.wait(events, Some(std::time::Duration::ZERO)).is_err() {
            events.clear();
        }
    }

    /// A flow has news.
    pub(crate) fn note(&mut self, flow: FlowId, event: Event) {
        self.news.push_back((flow, event));
    }

    /// Carries out one action, which may make news. `packet`: what the guest sent.
    pub(crate) fn carry_out(&mut self, action: Action, packet: Option<&Packet<'_>>, now: Nanos) {
        match action {
            Action::Open { .. } => self.open(action, now),
            Action::Consume { flow, len } => {
                let Some((socket, _)) = self.of(flow) else { return };
                let (takes_cut, is_first) = (socket.takes_cut(), socket.acknowledge(len));
                if takes_cut {
                    self.note(flow, Event::Readable);
                }
                if is_first {
                    self.acknowledged.push(flow);
                }
            }
            Action::Send { flow, skip, len } => {
                let Some((socket, vectors)) = self.of(flow) else { return };
                let pieces = packet.map_or(&[][..], |packet| packet.payload);
                vectors.begin().add(FramePart { pieces, skip: skip as usize, len: len as usize });
                let event = match socket.send(vectors, len) {
                    Ok(taken) => Event::Sent(taken),
                    Err(why) => Event::Failed(why),
                };
                self.note(flow, event);
            }
            Action::SendDatagram { .. } => {
                if let Some(packet) = packet {
                    self.send_datagram(action, packet, now);
                }
            }
            Action::Shutdown { flow } => {
                if let Some((socket, _)) = self.of(flow) {
                    socket.shut_down();
                }
            }
            Action::AskRoom { flow } => {
                if let Some(room) = self.of(flow).map(|(socket, _)| socket.room()) {
                    self.note(flow, Event::Room(room));
                }
            }
            Action::AskEnd { flow } => {
                if self.of(flow).is_some_and(|(socket, _)| socket.has_hung_up()) {
                    self.note(flow, Event::HungUp);
                }
            }
            Action::Close { flow, how } => {
                let place = self.list.get_mut(flow.index());
                let is_it = |socket: &mut Socket| socket.flow == flow;
                if let Some(socket) = place.and_then(|place| place.take_if(is_it)) {
                    let port = socket.port;
                    socket.close(how);
                    self.count -= 1;
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
            if let Some((socket, _)) = self.of(flow) {
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
            _ if !self.has_room() => Err(Failure::NoRoom),
            Target::Address(to) if protocol != Protocol::Tcp => {
                self.open_datagrams(flow, protocol, to, port)
            }
            Target::Address(to) | Target::Loopback(to) => self.open_to(flow, protocol, to),
            Target::Resolver(guest) => self.open_to_resolver(flow, guest, protocol, now),
        };
        match opened {
            Ok(mut socket) => {
                socket.asked_own = now;
                self.put(socket);
                self.watch_question(flow);
            }
            Err(why) => {
                if let (Failure::Unreachable(problem), true) = (why, protocol != Protocol::Tcp) {
                    self.note(flow, Event::Report { from: None, problem });
                }
                self.note(flow, Event::Failed(why));
            }
        }
    }

    pub(crate) fn open_to(
        &self,
        flow: FlowId,
        protocol: Protocol,
        to: SocketAddr,
    ) -> Result<Socket, Failure> {
        let socket = Socket::open(flow, protocol, to)?;
        let watched = self.poller.add_edge_both(socket.as_fd(), flow.to_u64());
        watched.map(|()| socket).map_err(|_| Failure::NoRoom)
    }

    fn send_datagram(&mut self, action: Action, packet: &Packet<'_>, now: Nanos) {
        let Action::SendDatagram { flow, skip, len, hops, is_whole_only } = action else { return };
        if self.became_own(flow, now) {
            let problem = Problem::Prohibited;
            self.note(flow, Event::Report { from: None, problem });
            return self.note(flow, Event::Failed(Failure::Unreachable(problem)));
        }
        let all = FramePart { pieces: packet.payload, skip: skip as usize, len: len as usize };
        self.note_question(flow, all, now);
        let Some((socket, vectors)) = self.of(flow) else { return };
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
        self.note(flow, Event::Report { from: None, problem });
    }

    /// Turns an event of a socket into the news that it means.
    pub(crate) fn on_event(&mut self, event: &PollEvent, now: Nanos) {
        let flow = FlowId::from_u64(event.token);
        let Some((socket, _)) = self.of(flow) else { return };
        if socket.protocol != Protocol::Tcp {
            if event.hang_up {
                self.take_reports(flow, now);
            }
            if event.readable {
                self.note(flow, Event::Readable);
            }
            return;
        }
        let may_have_failed = event.hang_up || socket.is_connecting;
        if let Some(why) = may_have_failed.then(|| socket.take_error()).flatten() {
            if socket.is_connecting && self.asks_next(flow, now) {
                return;
            }
            return self.note(flow, Event::Failed(why));
        }
        let mut news = None;
        if socket.is_connecting && event.writable {
            socket.is_connecting = false;
            news = Some(Event::Connected { room: socket.room() });
        } else if event.writable && std::mem::take(&mut socket.is_blocked) {
            news = Some(Event::Writable);
        }
        let readable = (event.readable && !socket.is_connecting).then_some(Event::Readable);
        self.news.extend(news.into_iter().chain(readable).map(|event| (flow, event)));
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
