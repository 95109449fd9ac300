//! Flows of datagrams by their guests' ports outside: how they begin and end, and what is heard of
//! them.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;

use ringway_nat::{Event, Failure, FlowId, GuestPort, Protocol};
use ringway_net::Nanos;

use crate::nat::opening::unconnected;
use crate::nat::reports::reports_of_many;
use crate::nat::shared_fd::SharedFd;
use crate::nat::socket::Socket;
use crate::nat::sockets::Sockets;
use crate::os::poller::PollEvent;

impl Sockets {
    /// A flow of datagrams to that place, by its guest's port outside, if it has one in common with
    /// others.
    pub(crate) fn open_datagrams(
        &mut self,
        flow: FlowId,
        protocol: Protocol,
        to: SocketAddr,
        port: Option<GuestPort>,
    ) -> Result<Socket, Failure> {
        let Some(end) = port else {
            let socket = Socket::unconnected(flow, protocol, to)?;
            let watched = self.table.poller.add_edge_both(socket.as_fd(), flow.to_u64());
            return watched.map(|()| socket).map_err(|_| Failure::NoRoom);
        };
        if let Some((number, fd)) = self.ports.join(end, flow) {
            return Ok(Socket::by_port(flow, &fd, number, to, false));
        }
        let fd = Arc::new(SharedFd::from(unconnected(protocol, to.is_ipv4())?));
        let token = self.ports.next_token().ok_or(Failure::NoRoom)?;
        self.table.poller.add_edge_both(fd.as_fd(), token).map_err(|_| Failure::NoRoom)?;
        let number = self.ports.add(end, Arc::clone(&fd), flow);
        Ok(Socket::by_port(flow, &fd, number, to, true))
    }

    /// A flow is over: what waits in its port is for others, if there are any.
    pub(crate) fn leave_port(&mut self, number: usize, flow: FlowId) {
        if let Some(other) = self.ports.leave(number, flow) {
            self.table.note(other, Event::Readable);
        }
    }

    /// Turns the readiness of a port's socket into news of its flows.
    pub(crate) fn on_port_event(&mut self, number: usize, event: &PollEvent) {
        if event.hang_up {
            self.take_port_reports(number);
        }
        if let Some(last) = self.ports.last(number).filter(|_| event.readable) {
            self.table.note(last, Event::Readable);
        }
    }

    /// Datagrams of its flows that did not arrive.
    pub(crate) fn take_port_reports(&mut self, number: usize) {
        let Some(fd) = self.ports.fd(number) else { return };
        let found = reports_of_many(fd.as_fd(), |to| self.flow_of_port(number, to));
        self.table.news.extend(found);
    }

    /// The flow whose datagram was to go there.
    fn flow_of_port(&self, number: usize, to: SocketAddr) -> Option<FlowId> {
        let is_it =
            |flow: &&FlowId| self.table.get(**flow).is_some_and(|socket| socket.goes_to(to));
        self.ports.flows(number).iter().find(is_it).copied()
    }

    /// Whether the place where a flow of datagrams goes has become the host's own since it was
    /// asked for last.
    pub(crate) fn became_own(&mut self, flow: FlowId, now: Nanos) -> bool {
        /// How long an answer holds, in nanoseconds.
        const ASK_EVERY_NS: u64 = 2_000_000_000;
        let Some((socket, _)) = self.table.of(flow) else { return false };
        let Some(to) = socket.to.as_ref().map(|name| name.address()) else { return false };
        if now.since(socket.asked_own) < ASK_EVERY_NS {
            return false;
        }
        socket.asked_own = now;
        self.own.contains(to.ip())
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use ringway_nat::{Action, Close, Guest, Target};

    use super::*;
    use crate::memory::scratch::Scratch;
    use crate::nat::calls::{Skipped, Vectors};
    use crate::nat::clients::Name;
    use crate::nat::guest_ports::GuestPorts;
    use crate::nat::part::FramePart;

    const END: GuestPort = (
        Guest(1),
        SocketAddr::V4(std::net::SocketAddrV4::new(std::net::Ipv4Addr::new(10, 0, 2, 15), 4000)),
    );

    /// As [`Sockets::carry_out`] does; but places of this machine may be tried.
    fn open(sockets: &mut Sockets, flow: FlowId, to: SocketAddr) {
        let socket = sockets.open_datagrams(flow, Protocol::Udp, to, Some(END)).unwrap();
        sockets.table.put(socket);
    }

    fn send(sockets: &mut Sockets, flow: FlowId) {
        let (socket, vectors) = sockets.table.of(flow).unwrap();
        let scratch = Scratch::new(2);
        let way = socket.to.as_ref().map(Name::way);
        let part = FramePart { pieces: &[scratch.bytes()], skip: 0, len: 2 };
        vectors.send_datagrams(socket.as_fd(), part, None, way).unwrap();
    }

    #[test]
    fn one_port_of_a_guest_is_one_port_outside() {
        let mut sockets = Sockets::new(4, 4, Skipped::new(true)).unwrap();
        let far = [(); 3].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        let mut ports = Vec::new();
        for (number, far) in (0..).zip(&far) {
            let flow = FlowId::from_u64(number);
            open(&mut sockets, flow, far.local_addr().unwrap());
            send(&mut sockets, flow);
            ports.push(far.recv_from(&mut [0; 9]).unwrap().1);
        }
        assert!(ports.iter().all(|port| *port == ports[0]), "{ports:?}");
        // Any of them is heard there, and the flow that has sent last is looked at.
        far[0].send_to(b"back", ports[0]).unwrap();
        let mut events = Sockets::events();
        sockets.wait(&mut events);
        for event in events.iter() {
            let number = GuestPorts::number(event.token).expect("a port");
            sockets.on_port_event(number, &event);
        }
        assert_eq!(sockets.table.news, [(FlowId::from_u64(0), Event::Readable)]);
        sockets.ports.note_sender(0, FlowId::from_u64(2));
        sockets.table.news.clear();
        let close = |flow| Action::Close { flow, how: Close::Gracefully };
        sockets.carry_out(close(FlowId::from_u64(2)), None, Nanos(0));
        assert_eq!(
            sockets.table.news,
            [(FlowId::from_u64(1), Event::Readable)],
            "what waits is another one's"
        );
        for number in [0, 1] {
            sockets.carry_out(close(FlowId::from_u64(number)), None, Nanos(0));
        }
        assert!(sockets.table.count() == 0 && sockets.ports.is_empty());
        far[0].send_to(b"late", ports[0]).unwrap();
        assert!(UdpSocket::bind(ports[0]).is_ok(), "its port is free");
    }

    #[test]
    fn a_report_is_about_the_flow_whose_datagram_did_not_arrive() {
        let mut sockets = Sockets::new(4, 4, Skipped::new(true)).unwrap();
        let stays = UdpSocket::bind("127.0.0.1:0").unwrap();
        let closed = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        for (number, to) in [(0, stays.local_addr().unwrap()), (1, closed)] {
            open(&mut sockets, FlowId::from_u64(number), to);
            send(&mut sockets, FlowId::from_u64(number));
        }
        sockets.take_port_reports(0);
        let news = sockets.table.news.make_contiguous();
        let [(flow, Event::Report { .. })] = *news else { panic!("{news:?}") };
        assert_eq!(flow, FlowId::from_u64(1));
        send(&mut sockets, FlowId::from_u64(0));
    }

    #[test]
    fn a_flow_to_a_place_that_becomes_the_hosts_own_is_noticed() {
        let mut sockets = Sockets::new(4, 4, Skipped::new(true)).unwrap();
        let flow = FlowId::from_u64(0);
        open(&mut sockets, flow, "127.0.0.9:7".parse().unwrap());
        assert!(!sockets.became_own(flow, Nanos(1_999_999_999)), "it was asked for at first");
        assert!(sockets.became_own(flow, Nanos(2_000_000_000)));
        let open = Action::Open {
            flow: FlowId::from_u64(1),
            protocol: Protocol::Udp,
            to: Target::Address("127.0.0.9:7".parse().unwrap()),
            port: Some(END),
        };
        sockets.carry_out(open, None, Nanos(0));
        assert_eq!(sockets.table.news.len(), 2, "reported, and failed: {:?}", sockets.table.news);
        assert!(Vectors::new(Skipped::new(true)).from.is_none());
    }
}
