//! A visit of the router: news of its sockets, its timers, and frames for each guest in turn.
//!
//! Of datagrams from outside into guests, several clients send to one socket, so the next datagram
//! in it decides whose turn it is. It stays there until its guest has room.

use ringway_device::Queue;
use ringway_nat::{Actions, Caller, Close, Destination, Event, Failure, Forward, Guest, Nat};
use ringway_switch::PortId;

use crate::forward::budget::BUDGET_UNITS;
use crate::forward::{Fabric, VisitEnd};
use crate::nat::NatPort;
use crate::nat::give::{RETRY_NS, Turn};
use crate::nat::guest_ports::GuestPorts;
use crate::nat::listeners::{Listeners, NewConnection};
use crate::nat::socket::Socket;
use crate::port::pair_map::PairOwner;
use crate::port::queue_pair::End;

/// Frames for one guest before it is the next one's turn.
const FRAMES_MAX: usize = 16;

/// Timers that end in one visit; the others end in the next one.
const TIMERS_MAX: usize = 256;

/// How long listeners rest where no file descriptor is left, in nanoseconds.
const REST_NS: u64 = 100_000_000;

/// Datagrams that no guest can have, dropped in one go; the others are with the next visit.
const DROPPED_MAX: usize = 64;

/// Moves what there is, as far as the budget goes.
pub(crate) fn visit_nat(port: &mut NatPort, fabric: &mut Fabric<'_>) -> VisitEnd {
    port.begin(fabric);
    let visit = if fabric.is_link_up { give_turns(port, fabric) } else { VisitEnd::Idle };
    port.sockets.take_off();
    visit
}

/// Frames for each guest in turn.
fn give_turns(port: &mut NatPort, fabric: &mut Fabric<'_>) -> VisitEnd {
    let mut is_over = false;
    while !is_over {
        is_over = true;
        for _ in 0..port.guests.len() {
            port.turn = (port.turn + 1) % port.guests.len();
            let guest = port.guests[port.turn];
            for _ in 0..FRAMES_MAX {
                match port.give(guest, fabric) {
                    Turn::Goes => is_over = false,
                    Turn::Over => break,
                    Turn::Waits(visit) => return visit,
                }
                if fabric.delivery.work >= BUDGET_UNITS {
                    return VisitEnd::More;
                }
            }
        }
    }
    if port.nat.deadline().is_some_and(|at| at <= fabric.now) {
        VisitEnd::More
    } else {
        VisitEnd::Idle
    }
}

impl NatPort {
    fn begin(&mut self, fabric: &mut Fabric<'_>) {
        (self.now, self.retry_at) = (fabric.now, None);
        self.sender = None;
        self.sockets.wait(&mut self.events);
        let (mut taken, mut must_rest) = (Vec::new(), false);
        self.sockets.go_on();
        for event in self.events.iter() {
            match Listeners::number(event.token) {
                Some(number) if self.sockets.listeners.note(number) => {
                    if event.hang_up {
                        self.sockets.take_client_reports(number);
                    }
                }
                Some(number) => must_rest |= self.sockets.accept(number, &mut taken),
                None => match GuestPorts::number(event.token) {
                    Some(number) => self.sockets.on_port_event(number, &event),
                    None => self.sockets.on_event(&event, self.now),
                },
            }
        }
        self.sockets.ask_others(self.now);
        self.tell();
        for taken in taken {
            self.take_in(taken, fabric);
        }
        if must_rest {
            self.retry_at = Some(self.now.plus(REST_NS));
        }
        self.look_at_datagrams();
        let mut actions = Actions::new();
        for _ in 0..TIMERS_MAX {
            if !self.nat.timer(self.now, &mut actions) {
                break;
            }
            self.carry_out(&mut actions, None);
        }
    }

    /// A connection from outside: one that no guest can have is reset, also where its port has no
    /// guest that runs.
    fn take_in(&mut self, taken: NewConnection, fabric: &mut Fabric<'_>) {
        let NewConnection { fd, from, forward } = taken;
        let Ok(mut socket) = Socket::accepted(fd, forward.at.is_local()) else { return };
        let guest = leads_to(&forward, &self.guests, &self.nat);
        let guest = guest.filter(|guest| is_running(fabric, *guest));
        let to = guest.map(|guest| Destination { guest, port: forward.to });
        let (caller, mut actions) = (Caller { from, room: socket.room() }, Actions::new());
        let flow = to.and_then(|to| self.nat.accept(to, caller, self.now, &mut actions));
        // It may have the place of a flow that ends.
        self.carry_out(&mut actions, None);
        match flow {
            Some(flow) => {
                self.sockets.table.adopt(flow, socket);
                self.limit_buffers(flow);
            }
            None => socket.close(Close::Reset),
        }
    }

    /// Finds the flow of the next datagram of each listener that has one.
    pub(crate) fn look_at_datagrams(&mut self) {
        self.sockets.forget_ended_clients();
        for number in self.sockets.listeners.readable() {
            for _ in 0..DROPPED_MAX {
                if !self.look_at_datagram(number) {
                    break;
                }
            }
        }
        // One that was taken in may have ended the flow that another listener's waits for.
        if self.sockets.forget_ended_clients() {
            let soon = self.now.plus(RETRY_NS);
            self.retry_at = Some(self.retry_at.map_or(soon, |at| at.min(soon)));
        }
    }

    /// Ends flows of clients whose place is not listened at any more: it is free at once.
    pub(crate) fn end_strangers(&mut self) {
        for flow in self.sockets.strangers() {
            self.tell_one(flow, Event::Failed(Failure::Reset));
        }
    }

    /// `true`: it was dropped, and there may be more behind it.
    fn look_at_datagram(&mut self, number: usize) -> bool {
        let Some((client, forward)) = self.sockets.listeners.next(number) else { return false };
        let guest = leads_to(forward, &self.guests, &self.nat);
        let to = guest.map(|guest| Destination { guest, port: forward.to });
        let (now, mut actions) = (self.now, Actions::new());
        let flow = to.and_then(|to| self.nat.accept_datagram(to, client, now, &mut actions));
        self.carry_out(&mut actions, None);
        let flow = flow.filter(|flow| self.sockets.share(*flow, number, &client));
        self.sockets.listeners.set_flow(number, flow);
        flow.is_none()
    }
}

/// The guest that a forward leads into: it may have moved to another port.
fn leads_to(forward: &Forward, guests: &[Guest], nat: &Nat) -> Option<Guest> {
    let is_it = |guest: &&Guest| nat.name_of(**guest) == Some(&forward.guest);
    guests.iter().find(is_it).map(|guest| nat.whereabouts(*guest))
}

/// Whether a guest at that port takes packets, as far as this worker knows.
fn is_running(fabric: &mut Fabric<'_>, guest: Guest) -> bool {
    let Some(port) = fabric.receivers.port(PortId(guest.0)) else { return false };
    let slot = match port.owner_of(0) {
        PairOwner::Here(slot) => slot,
        PairOwner::There(_) => return true,
    };
    fabric.receivers.slot(slot).is_some_and(|pair| match &pair.end {
        End::Guest(guest) => pair.carrier.is_up() && guest.queues.is_running(Queue::ToGuest),
        End::Absent => false,
        _ => true,
    })
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use ringway_nat::{FromGuest, Plan, Protocol, Verdict};
    use ringway_net::Nanos;
    use ringway_switch::PortId;

    use super::*;
    use crate::nat::listeners::Listener;
    use crate::nat::options::NatOptions;
    use ringway_nat::ListenAddress;

    /// A guest's question for an address.
    fn discover() -> Vec<u8> {
        let station = [2, 0, 0, 0, 0, 9];
        let mut frame = [&[0xff; 6][..], &station, &[8, 0]].concat();
        frame.extend([0x45, 0, 1, 16, 0, 0, 0, 0, 64, 17, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255]);
        frame.extend([0, 68, 0, 67, 0, 252, 0, 0]);
        let mut message = vec![1, 1, 6, 0, 0, 0, 0, 7];
        message.resize(28, 0);
        message.extend(station);
        message.resize(236, 0);
        message.extend([0x63, 0x82, 0x53, 0x63, 53, 1, 1, 255]);
        [frame, message].concat()
    }

    fn listener(to: u16) -> (Listener, UdpSocket) {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        crate::tell_of_datagrams(&socket, true).unwrap();
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.connect(socket.local_addr().unwrap()).unwrap();
        let at = ListenAddress::Address(socket.local_addr().unwrap());
        let forward = Forward { protocol: Protocol::Udp, at, guest: "vm0".into(), to };
        (Listener { forward, fd: socket.into() }, client)
    }

    /// There is room for one flow, so each client takes the place of the other one.
    #[test]
    fn a_datagram_whose_flow_was_ended_by_another_one_is_looked_at_soon() {
        let options = NatOptions { plan: Plan::default(), resolvers: vec![], sockets_max: 1 };
        let mut port = NatPort::new(options).unwrap();
        port.add_guest(PortId(0), "vm0");
        let frame = discover();
        let packet =
            FromGuest { guest: Guest(0), head: &frame, len: u32::try_from(frame.len()).unwrap() };
        let verdict = port.nat.from_guest(packet, Nanos(0), &mut Actions::new());
        assert_eq!(verdict, Verdict::Done);
        let [(one, first), (two, second)] = [53, 54].map(listener);
        port.listen(&[], vec![one, two]);
        for client in [first, second] {
            assert_eq!(client.send(b"hello").unwrap(), 5);
        }
        for now in [0, 1, 2].map(|ms| Nanos(ms * 1_000_000)) {
            (port.now, port.retry_at) = (now, None);
            port.look_at_datagrams();
            assert_eq!(port.nat.flows_of(Guest(0)), 1);
            let at = port.wake_at().expect("a time");
            assert!(at <= now.plus(1_000_000), "{at:?}");
        }
    }
}
