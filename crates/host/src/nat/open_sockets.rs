//! The sockets that are open, by the place of their flows in the router's table, and what they have
//! told of them.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;

use ringway_nat::{Close, Event, Failure, FlowId, Protocol};

use crate::nat::calls::{Skipped, Vectors};
use crate::nat::socket::Socket;
use crate::os::poller::Poller;

/// News that one call may lead to, for which there is room from the start.
const NEWS_MAX: usize = 64;

/// See the module.
#[derive(Debug)]
pub(crate) struct OpenSockets {
    list: Vec<Option<Socket>>,
    pub(crate) poller: Poller,
    pub(crate) vectors: Vectors,
    /// News of flows that the router has not been told, the oldest first.
    pub(crate) news: VecDeque<(FlowId, Event)>,
    /// Most of them.
    max: usize,
    count: usize,
}

impl OpenSockets {
    /// None yet, at most `max` of so many flows.
    ///
    /// # Errors
    /// The operating system has no epoll instance left.
    pub(crate) fn new(flows: usize, max: usize, skipped: Skipped) -> io::Result<Self> {
        Ok(Self {
            list: std::iter::repeat_with(|| None).take(flows).collect(),
            poller: Poller::new()?,
            vectors: Vectors::new(skipped),
            news: VecDeque::with_capacity(NEWS_MAX),
            max,
            count: 0,
        })
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    pub(crate) fn has_room(&self) -> bool {
        self.count < self.max
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Socket> {
        self.list.iter().flatten()
    }

    /// The socket of a flow that is not over.
    pub(crate) fn get(&self, flow: FlowId) -> Option<&Socket> {
        self.list.get(flow.index())?.as_ref().filter(|socket| socket.flow == flow)
    }

    /// The same, and where a message is put together.
    pub(crate) fn of(&mut self, flow: FlowId) -> Option<(&mut Socket, &mut Vectors)> {
        let socket = self.list.get_mut(flow.index())?.as_mut();
        socket.filter(|socket| socket.flow == flow).map(|socket| (socket, &mut self.vectors))
    }

    /// The flow of that client of a socket bound to `bound`.
    pub(crate) fn flow_to(&self, client: SocketAddr, bound: SocketAddr) -> Option<FlowId> {
        let is_it = |socket: &&Socket| socket.way.is_some_and(|way| way.is_to(client, bound));
        self.all().find(is_it).map(|socket| socket.flow)
    }

    /// Closes all; news of them stay.
    pub(crate) fn clear(&mut self) {
        for socket in self.list.iter_mut().filter_map(Option::take) {
            socket.close(Close::Reset);
        }
        self.count = 0;
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

    /// A socket has a flow now.
    pub(crate) fn adopt(&mut self, flow: FlowId, mut socket: Socket) {
        socket.flow = flow;
        // One that cannot be watched says nothing, and its flow ends in time.
        let _ = self.poller.add_edge_both(socket.as_fd(), flow.to_u64());
        self.put(socket);
    }

    pub(crate) fn put(&mut self, socket: Socket) {
        let Some(place) = self.list.get_mut(socket.flow.index()) else { return };
        let before = place.replace(socket);
        assert!(before.is_none(), "a flow's place is free once its socket is closed");
        self.count += 1;
    }

    /// The socket of the same flow makes room for this one.
    pub(crate) fn replace(&mut self, socket: Socket) {
        let place = socket.flow.index();
        self.list[place] = Some(socket);
    }

    /// Takes out the socket of a flow that ends.
    pub(crate) fn take(&mut self, flow: FlowId) -> Option<Socket> {
        let place = self.list.get_mut(flow.index())?;
        let socket = place.take_if(|socket| socket.flow == flow)?;
        self.count -= 1;
        Some(socket)
    }

    /// A flow has news.
    pub(crate) fn note(&mut self, flow: FlowId, event: Event) {
        self.news.push_back((flow, event));
    }
}
