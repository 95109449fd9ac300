//! The consequences of events of sockets.

use std::collections::HashMap;
use std::net::IpAddr;

use ringway_net::Nanos;

use super::open::port_of;
use super::{Nat, Refusal, State};
use crate::actions::{Action, Actions};
use crate::datagrams::is_question;
use crate::errors::{error, quote};
use crate::frame::{ICMP, ICMPV6, Stations, TCP, UDP};
use crate::reach::{Reach, reach};
use crate::socket::{Close, Event, Failure, Problem};
use crate::table::{FlowId, FlowKey, Guest, Protocol};
use crate::tcp::{Phase, Todo};

impl Nat {
    /// A socket has an event; one of a flow that is over is ignored. `Some`: its flow is given up
    /// for that reason.
    pub fn on_socket(
        &mut self,
        flow: FlowId,
        event: Event,
        now: Nanos,
        actions: &mut Actions,
    ) -> Option<Refusal> {
        let (is_connecting, is_there) =
            (self.is_connecting(flow), self.table.entry(flow).is_some());
        let has_no_port = is_there && event == Event::Failed(Failure::NoPort);
        if has_no_port && is_connecting != Some(false) && self.tries_again(flow, actions) {
            return None;
        }
        match (is_connecting, event) {
            (_, Event::Report { from, problem }) => self.report(flow, from, problem, now),
            (Some(true), Event::Failed(Failure::Unreachable(problem))) => {
                self.report(flow, None, problem, now);
                self.end(flow, Close::Reset, actions);
            }
            // The guest tries again.
            (Some(true), Event::Failed(Failure::NoRoom)) => self.end(flow, Close::Reset, actions),
            (None, Event::Failed(Failure::NoPort)) => {
                self.report(flow, None, Problem::PortUnreachable, now);
                self.end(flow, Close::Gracefully, actions);
            }
            (Some(was_connecting), event) => {
                if event == Event::Readable && self.is_accepted(flow) {
                    actions.push(Action::AskEnd { flow });
                }
                let todo = self.tcp_event(flow, event, now);
                self.note_connecting(flow, was_connecting);
                self.apply(flow, todo, 0, actions);
            }
            (None, Event::Readable) => self.datagram_readable(flow),
            (None, Event::Failed(_)) => self.end(flow, Close::Gracefully, actions),
            (None, _) => {}
        }
        has_no_port.then_some(Refusal::NoPort)
    }

    /// The host has no port left for that flow: the guest that has most flows like it gives one up
    /// for it. `false`: not this time.
    fn tries_again(&mut self, flow: FlowId, actions: &mut Actions) -> bool {
        let Some(entry) = self.table.entry_mut(flow) else { return false };
        let key = entry.key;
        if std::mem::replace(&mut entry.is_second_try, true) {
            return false;
        }
        let of_guests = (0..self.limits.guests).map(Guest);
        let of_guests = of_guests.map(|guest| self.those_with_a_port(guest, (flow, &key)));
        let all: Vec<Vec<(Nanos, FlowId)>> = of_guests.collect();
        let own = all.get(usize::from(key.guest.0)).map_or(0, Vec::len);
        let most = all.iter().max_by_key(|its| its.len());
        let giver = most.filter(|most| most.len() > own + 1);
        // Of its own datagrams a guest gives up the oldest ones.
        let own = all.get(usize::from(key.guest.0)).filter(|_| key.protocol != Protocol::Tcp);
        let oldest = giver.or(own).and_then(|its| its.iter().min_by_key(|(used, _)| *used));
        let (Some((_, oldest)), Some(to)) = (oldest, self.way(&key)) else { return false };
        // A port is free at once only where no end is waited for.
        self.end(*oldest, Close::Reset, actions);
        let port = port_of(&key, to);
        actions.push(Action::Open { flow, protocol: key.protocol, to, port });
        true
    }

    /// The guest's flows like that one whose end makes a port of the host free, and when each was
    /// used last: connections to one place have a port each; of datagrams many flows have one port,
    /// and those from outside that of a socket that listens.
    fn those_with_a_port(
        &self,
        guest: Guest,
        (flow, key): (FlowId, &FlowKey),
    ) -> Vec<(Nanos, FlowId)> {
        let is_alike = |it: &FlowKey| {
            it.protocol == key.protocol && (it.protocol != Protocol::Tcp || it.to == key.to)
        };
        let all = self.table.of_guest(guest).filter(|(id, entry)| {
            *id != flow && is_alike(&entry.key) && !entry.state.is_from_outside()
        });
        let shares = |it: &FlowKey| it.protocol == Protocol::Udp && !is_question(it);
        let all: Vec<_> = all.map(|(id, entry)| (entry.used, id, entry.key)).collect();
        let mut counts = HashMap::new();
        for (.., it) in all.iter().filter(|(.., it)| shares(it)) {
            *counts.entry(it.from).or_insert(0u32) += 1;
        }
        let is_alone = |it: &FlowKey| !shares(it) || counts.get(&it.from) == Some(&1);
        let alone = all.into_iter().filter(|(.., it)| is_alone(it));
        alone.map(|(used, id, _)| (used, id)).collect()
    }

    /// Whether the guest has not answered a connection from outside.
    fn is_accepted(&self, flow: FlowId) -> bool {
        let state = self.table.entry(flow).map(|entry| &entry.state);
        matches!(state, Some(State::Tcp(tcp)) if tcp.phase() == Phase::Accepted)
    }

    /// `None`: not a connection.
    fn is_connecting(&self, flow: FlowId) -> Option<bool> {
        match &self.table.entry(flow)?.state {
            State::Tcp(tcp) => Some(tcp.phase() == Phase::Connecting),
            State::Datagrams(_) => None,
        }
    }

    fn tcp_event(&mut self, flow: FlowId, event: Event, now: Nanos) -> Todo {
        let none = Todo::default();
        let Some(entry) = self.table.entry_mut(flow) else { return none };
        let State::Tcp(tcp) = &mut entry.state else { return none };
        if let Event::Sent(len) = event {
            entry.from_guest += u64::from(len);
        }
        match event {
            Event::Connected { room } => tcp.connected(room, now),
            Event::Failed(_) => return tcp.failed(now),
            Event::Readable => tcp.readable(now),
            Event::HungUp => tcp.hung_up(),
            Event::Writable => return tcp.writable(now),
            Event::Sent(len) => return tcp.sent(len, now),
            Event::Room(room) => tcp.has_room(room, now),
            Event::Report { .. } => {}
        }
        none
    }

    pub(super) fn datagram_readable(&mut self, flow: FlowId) {
        if let Some(entry) = self.table.entry_mut(flow)
            && let State::Datagrams(datagrams) = &mut entry.state
        {
            datagrams.is_readable = true;
            self.table.set_ready(flow);
        }
    }

    /// Tells the guest that what it sent did not arrive.
    fn report(&mut self, flow: FlowId, from: Option<IpAddr>, problem: Problem, now: Nanos) {
        let Some(entry) = self.table.entry(flow) else { return };
        let (key, plan) = (entry.key, self.plan());
        let stations = Stations { from: plan.mac(), to: entry.mac };
        let protocol = match key.protocol {
            Protocol::Tcp => TCP,
            Protocol::Udp => UDP,
            Protocol::Echo if key.from.is_ipv4() => ICMP,
            Protocol::Echo => ICMPV6,
        };
        let seq = match &entry.state {
            State::Tcp(tcp) => tcp.first_seq(),
            State::Datagrams(_) => 0,
        };
        let gateway = match key.from {
            _ if key.from.is_ipv4() => Some(IpAddr::V4(plan.gateway4())),
            _ => plan.gateway6().map(IpAddr::V6),
        };
        // Only addresses that the guest may see: loopback and its own networks are none of it.
        let from = from.filter(|from| from.is_ipv4() == key.from.is_ipv4());
        let is_shown = |from: &IpAddr| reach(plan, *from) == Reach::Allowed;
        let Some(from) = from.filter(is_shown).or(gateway) else { return };
        if let Some(guest) = self.guest_mut(key.guest) {
            let quote = quote(key.from, key.to, protocol, seq);
            guest.refuse(now, || error(stations, (from, key.from.ip()), problem, &quote));
        }
    }
}
